//! The explicit proxy at the address that the environment names, for programs that know about proxies: the same decision,
//! with words where it refuses. Owns telling HTTP from SOCKS, and the negotiation of SOCKS; requests are `http`'s, tunnels
//! `tunnel`'s. Called by `process::accept`.

use std::io;
use std::net::SocketAddr;

use cofferdam_policy::Host;
use tokio::net::TcpStream;

use crate::connections::context::{Context, Unreached};
use crate::connections::flow::{Flow, Recorded, reset};
use crate::connections::http::{Exchange, For, Incoming};
use crate::connections::splice::write_all;
use crate::connections::tunnel;
use crate::session::limits::Place;
use crate::session::supervisor_link::Case;
use crate::wire::socks;

/// The version that a client of SOCKS begins with; no method of HTTP does.
const SOCKS: u8 = 5;

/// HTTP or SOCKS, as the first byte says.
pub(crate) async fn serve(context: &Context, client: TcpStream, from: SocketAddr, place: &Place) {
    let mut first = [0];
    let looked = tokio::time::timeout(context.header_timeout, client.peek(&mut first)).await;
    match (looked, first) {
        (Ok(Ok(1)), [SOCKS]) => serve_socks(context, client, from, place).await,
        (Ok(Ok(1)), _) => serve_http(context, client, from, place).await,
        _ => reset(&client),
    }
}

async fn serve_http(context: &Context, client: TcpStream, from: SocketAddr, place: &Place) {
    let (reading, writing) = client.into_split();
    let incoming = Incoming { from: reading, bytes: Vec::new() };
    let mut exchange = Exchange {
        context,
        incoming,
        outgoing: writing,
        whom: For::AnyHost { from },
        server: None,
        dialled: None,
        place,
    };
    // A client that goes away in the middle needs no answer.
    let Ok(Some(agreed)) = exchange.run().await else { return };
    let Exchange { incoming, outgoing, .. } = exchange;
    let Ok(client) = incoming.from.reunite(outgoing) else { return };
    let case = Case::allowed(&agreed.host, agreed.port, agreed.address, &agreed.decided);
    let server = Some((agreed.server, Recorded::open(&context.link, case).await));
    let flow = Flow { context, host: &agreed.host, port: agreed.port, decided: &agreed.decided, from, place };
    tunnel::serve(flow, client, incoming.bytes, server).await;
}

async fn serve_socks(context: &Context, client: TcpStream, from: SocketAddr, place: &Place) {
    let negotiated = tokio::time::timeout(context.header_timeout, negotiate(&client)).await;
    // A client that was told why closes by itself; a reset could overtake the words.
    let Ok(Ok((host, port, rest))) = negotiated else { return };
    let (answer, reached) = match context.rules.decide(&host, port, Some(from)).await {
        Err(denial) => {
            context.link.open(&Case::denied(&host, port, &denial)).await;
            (socks::Reply::NotAllowed, None)
        }
        Ok(decided) => match context.reach(&host, port, from).await {
            Ok((server, address)) => (socks::Reply::Succeeded, Some((server, address, decided))),
            Err(unreached) => {
                context.link.open(&unreached.case(&host, port)).await;
                (unreached_reply(&unreached), None)
            }
        },
    };
    let told = write_all(&client, &socks::refusal(answer)).await;
    let (Ok(()), Some((server, address, decided))) = (told, reached) else { return };
    let case = Case::allowed(&host, port, address, &decided);
    let server = Some((server, Recorded::open(&context.link, case).await));
    let flow = Flow { context, host: &host, port, decided: &decided, from, place };
    tunnel::serve(flow, client, rest, server).await;
}

fn unreached_reply(unreached: &Unreached) -> socks::Reply {
    match unreached {
        Unreached::Denied(_) => socks::Reply::NotAllowed,
        Unreached::Unresolved(_) => socks::Reply::HostUnreachable,
        Unreached::Refused(_) => socks::Reply::ConnectionRefused,
    }
}

/// Where the client wants to go, and what it sent behind that.
async fn negotiate(client: &TcpStream) -> io::Result<(Host, u16, Vec<u8>)> {
    let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
    let mut negotiation = socks::Negotiation::default();
    let mut chunk = [0; 512];
    loop {
        client.readable().await?;
        let length = match client.try_read(&mut chunk) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        let mut input = &chunk[..length];
        while !input.is_empty() {
            let (used, step) = negotiation.feed(input);
            input = &input[used..];
            match step {
                socks::Step::More => {}
                socks::Step::Send(bytes) => write_all(client, &bytes).await?,
                socks::Step::Connect(target) => {
                    let host = match target.host {
                        socks::Host::Address(address) => Ok(Host::Address(address.to_canonical())),
                        socks::Host::Name(name) => Host::parse(&name),
                    };
                    let Ok(host) = host else {
                        write_all(client, &socks::refusal(socks::Reply::AddressNotSupported)).await?;
                        return Err(refused());
                    };
                    return Ok((host, target.port, input.to_vec()));
                }
                socks::Step::Refuse { reply, .. } => {
                    write_all(client, &reply).await?;
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                socks::Step::Close(_) => return Err(refused()),
            }
        }
    }
}
