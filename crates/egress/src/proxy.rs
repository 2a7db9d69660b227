//! The explicit proxy at the address that the environment names, for programs that know about proxies: the same decision,
//! with words where it refuses. Owns telling the protocols apart; requests are `exchange`'s, tunnels `transparent`'s.
//! Also serves plain HTTP that a program sent without knowing. Called by `service` and `transparent`.

use std::io;
use std::net::SocketAddr;

use cofferdam_policy::Host;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::carry::write_all;
use crate::exchange::{Exchange, For, Incoming, Server};
use crate::limits::Place;
use crate::service::{self, Service, Unreached, reset};
use crate::terminate::Terminator;
use crate::transparent::{self, Dialled, Flow, Recorded};
use crate::wire::socks;

/// The version that a client of SOCKS begins with; no method of HTTP does.
const SOCKS: u8 = 5;

/// HTTP or SOCKS, as the first byte says.
pub(crate) async fn serve(service: &Service, client: TcpStream, from: SocketAddr, place: &Place) {
    let mut first = [0];
    let looked = tokio::time::timeout(service.header_timeout, client.peek(&mut first)).await;
    match (looked, first) {
        (Ok(Ok(1)), [SOCKS]) => serve_socks(service, client, from, place).await,
        (Ok(Ok(1)), _) => serve_http(service, client, from, place).await,
        _ => reset(&client),
    }
}

async fn serve_http(service: &Service, client: TcpStream, from: SocketAddr, place: &Place) {
    let (reading, writing) = client.into_split();
    let incoming = Incoming { from: reading, bytes: Vec::new() };
    let mut exchange = Exchange {
        service,
        incoming,
        outgoing: writing,
        whom: For::Anybody { from },
        server: None,
        dialled: None,
        place,
    };
    // A client that goes away in the middle has nobody to be told.
    let Ok(Some(agreed)) = exchange.run().await else { return };
    let Exchange { incoming, outgoing, .. } = exchange;
    let Ok(client) = incoming.from.reunite(outgoing) else { return };
    let case = service::allowed(&agreed.host, agreed.port, agreed.address, &agreed.decided);
    service.link.open(&case).await;
    let server = Some((agreed.server, Recorded::new(service, case)));
    let flow = Flow { service, host: &agreed.host, port: agreed.port, decided: &agreed.decided, place };
    transparent::tunnel(flow, client, incoming.bytes, server).await;
}

/// A client that sent plain HTTP to a server of its choice, of which `read` was read.
pub(crate) async fn serve_origin<'a>(flow: Flow<'a>, client: TcpStream, read: Vec<u8>, dialled: Dialled<'a>) {
    let Flow { service, host, port, decided, place } = flow;
    let (reading, writing) = client.into_split();
    let server = dialled.map(|(stream, recorded)| Server::new(host, port, stream, recorded));
    let mut exchange = Exchange {
        service,
        incoming: Incoming { from: reading, bytes: read },
        outgoing: writing,
        whom: For::One { host, port, decided, secure: None },
        server,
        dialled: None,
        place,
    };
    // As above.
    drop(exchange.run().await);
}

/// A client that began TLS with a host whose requests are read.
pub(crate) async fn serve_terminated<'a>(
    flow: Flow<'a>,
    terminator: &'a Terminator,
    client: TcpStream,
    read: Vec<u8>,
    dialled: Dialled<'a>,
) {
    let Flow { service, host, port, decided, place } = flow;
    let accepted = tokio::time::timeout(service.header_timeout, terminator.accept(host, client, read)).await;
    let stream = match accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => stream,
        Err(error) => {
            let why = format!("the program does not speak TLS with the session's own authority: {error}");
            return service.link.open(&service::failed(host, port, &why)).await;
        }
    };
    let (reading, writing) = tokio::io::split(stream);
    let mut exchange = Exchange {
        service,
        incoming: Incoming { from: reading, bytes: Vec::new() },
        outgoing: writing,
        whom: For::One { host, port, decided, secure: Some(terminator) },
        server: None,
        dialled,
        place,
    };
    // As above; but TLS says when it is over.
    drop(exchange.run().await);
    drop(exchange.outgoing.shutdown().await);
}

async fn serve_socks(service: &Service, client: TcpStream, from: SocketAddr, place: &Place) {
    let negotiated = tokio::time::timeout(service.header_timeout, negotiate(&client)).await;
    // A client that was told why closes by itself; a reset could overtake the words.
    let Ok(Ok((host, port, rest))) = negotiated else { return };
    let (answer, reached) = match service.judge(&host, port, Some(from)).await {
        Err(denial) => {
            service.link.open(&service::denied(&host, port, &denial)).await;
            (socks::Reply::NotAllowed, None)
        }
        Ok(decided) => match service.reach(&host, port).await {
            Ok((server, address)) => (socks::Reply::Succeeded, Some((server, address, decided))),
            Err(unreached) => {
                service.link.open(&unreached.case(&host, port)).await;
                (unreached_reply(&unreached), None)
            }
        },
    };
    let told = write_all(&client, &socks::refusal(answer)).await;
    let (Ok(()), Some((server, address, decided))) = (told, reached) else { return };
    let case = service::allowed(&host, port, address, &decided);
    service.link.open(&case).await;
    let server = Some((server, Recorded::new(service, case)));
    let flow = Flow { service, host: &host, port, decided: &decided, place };
    transparent::tunnel(flow, client, rest, server).await;
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
