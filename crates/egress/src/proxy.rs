//! The explicit proxy at the address that the environment names, for programs that know about proxies: the same decision,
//! with words where it refuses. Owns telling the protocols apart; requests are `exchange`'s, tunnels `transparent`'s.
//! Also serves plain HTTP that a program sent without knowing. Called by `service` and `transparent`.

use std::net::SocketAddr;

use cofferdam_policy::Host;
use tokio::net::TcpStream;

use crate::decide::Decided;
use crate::exchange::{Exchange, For, Incoming, Server};
use crate::limits::Place;
use crate::service::{self, Service, reset};
use crate::transparent::{self, Recorded};
use crate::wire::socks;

/// HTTP or SOCKS, as the first byte says.
pub(crate) async fn serve(service: &Service, client: TcpStream, from: SocketAddr, place: &Place) {
    let mut first = [0];
    let looked = tokio::time::timeout(service.header_timeout, client.peek(&mut first)).await;
    match (looked, first) {
        (Ok(Ok(1)), [socks::VERSION]) => serve_socks(service, client, from, place).await,
        (Ok(Ok(1)), _) => serve_http(service, client, from, place).await,
        _ => reset(&client),
    }
}

async fn serve_http(service: &Service, client: TcpStream, from: SocketAddr, place: &Place) {
    let (reading, writing) = client.into_split();
    let incoming = Incoming { from: reading, bytes: Vec::new() };
    let mut exchange =
        Exchange { service, incoming, outgoing: writing, whom: For::Anybody { from }, server: None, place };
    // A client that goes away in the middle has nobody to be told.
    let Ok(Some(agreed)) = exchange.run().await else { return };
    let Exchange { incoming, outgoing, .. } = exchange;
    let Ok(client) = incoming.from.reunite(outgoing) else { return };
    let case = service::allowed(&agreed.host, agreed.port, agreed.address, &agreed.decided);
    service.link.open(&case).await;
    let server = Some((agreed.server, Recorded::new(service, case)));
    let to = (&agreed.host, agreed.port);
    transparent::tunnel(service, client, incoming.bytes, server, to, &agreed.decided, place).await;
}

/// A client that sent plain HTTP to a server of its choice, of which `read` was read.
pub(crate) async fn serve_origin<'a>(
    service: &'a Service,
    client: TcpStream,
    read: Vec<u8>,
    server: Option<(TcpStream, Recorded<'a>)>,
    (host, port): (&Host, u16),
    decided: &Decided,
    place: &Place,
) {
    let (reading, writing) = client.into_split();
    let server = server.map(|(stream, recorded)| Server::new(host, port, stream, recorded));
    let mut exchange = Exchange {
        service,
        incoming: Incoming { from: reading, bytes: read },
        outgoing: writing,
        whom: For::One { host, port, decided },
        server,
        place,
    };
    // As above.
    drop(exchange.run().await);
}

async fn serve_socks(service: &Service, client: TcpStream, from: SocketAddr, place: &Place) {
    reset(&client);
    let _later = (service, from, place);
}
