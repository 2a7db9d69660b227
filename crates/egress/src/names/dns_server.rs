//! Answers name queries that programs send to any resolver. Owns the verdict on a query: a name that policy refuses does not
//! exist and is never asked outside; one that it allows gets an address of ours once the outside knows it; one that would be
//! asked about gets an address of ours and nothing leaves until a program connects. Started by `process::accept`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use cofferdam_kernel::datagram::{self, Received};
use cofferdam_policy::{Host, OnUnknown};
use cofferdam_reach::decide::Verdict;
use cofferdam_wire::NetworkOutcome;
use hickory_resolver::proto::rr::RecordType;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpStream, UdpSocket};

use crate::names::lookups::{Lookups, TTL};
use crate::names::resolve::Failure;
use crate::session::rules::SessionRules;
use crate::session::supervisor_link::Link;
use crate::wire::dns::{self, Extended, Kind, Query, Transport};

/// Largest query that is looked at, and what all others are.
const DATAGRAM: usize = 4096;
/// What the session calls itself.
const OWN_NAME: &str = "sandbox";
/// How long a stream for queries stays open without one.
const OPEN_FOR: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct DnsServer {
    pub(crate) rules: Rc<SessionRules>,
    pub(crate) lookups: Rc<Lookups>,
    pub(crate) link: Rc<Link>,
}

/// Datagrams, until the socket fails.
pub(crate) async fn serve(server: Rc<DnsServer>, socket: OwnedFd) {
    let Ok(socket) = UdpSocket::from_std(socket.into()) else { return };
    let socket = Rc::new(socket);
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let received = socket.async_io(Interest::READABLE, || Ok(datagram::receive(&*socket, &mut buffer)?)).await;
        let Ok(received) = received else { return };
        // Past the rate, queries are lost, as they are with a slow server.
        if !server.lookups.take() {
            continue;
        }
        let query = buffer[..received.length].to_vec();
        let (server, socket) = (Rc::clone(&server), Rc::clone(&socket));
        tokio::task::spawn_local(async move {
            if let Some(answer) = answer(&server, &query, Transport::Udp).await {
                send(&socket, &answer, &received);
            }
        });
    }
}

fn send(socket: &UdpSocket, answer: &[u8], to: &Received) {
    // A program that does not wait any more loses its answer.
    let _sent = datagram::answer(socket, answer, to);
}

/// The same on a stream, where each message stands behind its length.
pub(crate) async fn serve_stream(server: &DnsServer, mut client: TcpStream) {
    loop {
        let served = tokio::time::timeout(OPEN_FOR, one_of_stream(server, &mut client)).await;
        if !matches!(served, Ok(Ok(()))) {
            return;
        }
    }
}

async fn one_of_stream(server: &DnsServer, client: &mut TcpStream) -> io::Result<()> {
    let length = usize::from(client.read_u16().await?);
    if length > DATAGRAM || !server.lookups.take() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut query = vec![0; length];
    client.read_exact(&mut query).await?;
    let answer = answer(server, &query, Transport::Tcp).await.ok_or(io::ErrorKind::InvalidData)?;
    let length = u16::try_from(answer.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    let mut message = length.to_be_bytes().to_vec();
    message.extend_from_slice(&answer);
    client.write_all(&message).await
}

/// None where nothing can be said.
async fn answer(server: &DnsServer, bytes: &[u8], transport: Transport) -> Option<Vec<u8>> {
    let query = match dns::parse(bytes, transport) {
        Ok(query) => query,
        Err(bad) => return bad.reply,
    };
    if query.name == OWN_NAME || query.name == "localhost" || query.name.ends_with(".localhost") {
        let own = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        return Some(query.addresses(&own, seconds(TTL)));
    }
    let kind = format!("{:?}", query.kind);
    let note = |outcome| server.link.queried(&query.name, &kind, outcome);
    // What is asked about a service stands below the host that policy names.
    let base = if query.name.starts_with('_') { after_underscores(&query.name) } else { query.name.as_str() };
    let Ok(host @ Host::Name(_)) = Host::parse(base) else {
        note(NetworkOutcome::Denied);
        return Some(query.nxdomain(Some((Extended::Filtered, "not the name of a host"))));
    };
    let verdict = server.rules.name(&host);
    match verdict {
        Verdict::Denied(denial) => {
            note(NetworkOutcome::Denied);
            Some(query.nxdomain(Some((Extended::Filtered, &denial.why))))
        }
        Verdict::Unknown if server.rules.on_unknown() == OnUnknown::Deny => {
            note(NetworkOutcome::Denied);
            Some(query.nxdomain(Some((Extended::Filtered, "no rule of the sandbox allows this host"))))
        }
        Verdict::Allowed(_) | Verdict::Unknown if dns::looks_tunnelled(&query.name) => {
            note(NetworkOutcome::Denied);
            Some(query.nxdomain(Some((Extended::Filtered, "the name looks like data"))))
        }
        Verdict::Unknown if server.rules.on_unknown() == OnUnknown::Ask => {
            note(NetworkOutcome::Held);
            Some(synthetic(server, &query))
        }
        Verdict::Allowed(_) | Verdict::Unknown => {
            note(NetworkOutcome::Allowed);
            Some(resolved(server, &query).await)
        }
    }
}

fn after_underscores(name: &str) -> &str {
    let mut rest = name;
    while let Some((label, after)) = rest.split_once('.')
        && label.starts_with('_')
    {
        rest = after;
    }
    rest
}

/// An address of ours, which leads to the name.
fn synthetic(server: &DnsServer, query: &Query) -> Vec<u8> {
    match query.kind {
        Kind::A => match server.lookups.address_of(&query.name) {
            Some(address) => query.addresses(&[IpAddr::V4(address)], seconds(TTL)),
            // More names at once than any program needs.
            None => query.servfail(),
        },
        _ => query.nodata(),
    }
}

/// Asked outside first, so that a name that does not exist does not exist inside either.
async fn resolved(server: &DnsServer, query: &Query) -> Vec<u8> {
    let failed = |failure| match failure {
        Failure::NoSuchName => query.nxdomain(None),
        Failure::Nothing => query.nodata(),
        Failure::Unanswered | Failure::TooMany => query.servfail(),
    };
    match query.kind {
        Kind::A => match server.lookups.resolve.addresses(&query.name).await {
            Ok(_) => synthetic(server, query),
            Err(failure) => failed(failure),
        },
        Kind::Srv => match server.lookups.resolve.records(&query.name, RecordType::SRV).await {
            Ok(records) => query.forward(&records),
            Err(failure) => failed(failure),
        },
        _ => query.nodata(),
    }
}

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}
