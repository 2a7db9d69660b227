//! Connections that a program made as if there were nothing in between. Owns the first step of each: the verdict is asked
//! for, and what was allowed goes to `http` or `tunnel`, or to a port of the host. Called by `process::accept` for every
//! connection that is not to the proxy.

use std::net::SocketAddr;

use cofferdam_policy::Host;
use cofferdam_reach::decide::Decided;
use tokio::net::TcpStream;

use crate::connections::context::{Context, Unreached};
use crate::connections::flow::{Flow, Recorded, carry, reset};
use crate::connections::{http, tunnel};
use crate::session::limits::Place;
use crate::session::supervisor_link::Case;

/// On which nothing but HTTP is carried.
const HTTP_PORT: u16 = 80;

pub(crate) async fn serve(
    context: &Context,
    client: TcpStream,
    from: SocketAddr,
    (host, port): (&Host, u16),
    place: &Place,
) {
    match context.rules.decide(host, port, Some(from)).await {
        Ok(decided) => {
            let flow = Flow { context, host, port, decided: &decided, from, place };
            if port == HTTP_PORT {
                // What few connections need does not stand in the memory of all.
                Box::pin(http::serve_origin(flow, client, Vec::new(), None)).await;
            } else {
                tunnel::serve(flow, client, Vec::new(), None).await;
            }
        }
        Err(denial) => {
            context.link.open(&Case::denied(host, port, &denial)).await;
            reset(&client);
        }
    }
}

/// To one chosen port of the host's loopback.
pub(crate) async fn to_host(context: &Context, client: TcpStream, to: SocketAddr, decided: &Decided, place: &Place) {
    let host = Host::Address(to.ip());
    let server = match TcpStream::connect(to).await {
        Ok(server) => server,
        Err(error) => {
            context.link.open(&Unreached::Refused(error).case(&host, to.port())).await;
            return reset(&client);
        }
    };
    let case = Case::allowed(&host, to.port(), to.ip(), decided);
    let recorded = Recorded::open(&context.link, case).await;
    carry(context, (&client, Vec::new()), &server, &recorded, place).await;
}
