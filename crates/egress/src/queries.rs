//! Answers name queries that programs send to any resolver. Owns the verdict on a query: a name that policy refuses does not
//! exist and is never asked outside; one that it allows gets an address of ours once the outside knows it; one that would be
//! asked about gets an address of ours and nothing leaves until somebody connects. Called by `service`.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use cofferdam_kernel::datagram::{self, Received};
use cofferdam_policy::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;

use crate::decide::Verdict;
use crate::message::Outcome;
use crate::resolve::Failure;
use crate::service::Service;
use crate::wire::dns::{self, Kind, Query};

/// Largest query that is looked at, and what all others are.
const DATAGRAM: usize = 4096;
/// How long programs keep an address of ours.
const TTL: u32 = 60;
/// How long a stream for queries stays open without one.
const PATIENCE: Duration = Duration::from_secs(10);

/// Datagrams, until the socket fails.
pub(crate) async fn serve(service: Rc<Service>, socket: OwnedFd) {
    let Ok(socket) = AsyncFd::new(socket) else { return };
    let socket = Rc::new(socket);
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let received = socket.async_io(Interest::READABLE, |socket| Ok(datagram::receive(socket, &mut buffer)?)).await;
        let Ok(received) = received else { return };
        // Past the rate, queries are lost, as they are with a slow server.
        if !service.queries.take(Instant::now()) {
            continue;
        }
        let query = buffer[..received.length].to_vec();
        let (service, socket) = (Rc::clone(&service), Rc::clone(&socket));
        tokio::task::spawn_local(async move {
            if let Some(answer) = answer(&service, &query, true).await {
                send(&socket, &answer, &received);
            }
        });
    }
}

fn send(socket: &AsyncFd<OwnedFd>, answer: &[u8], to: &Received) {
    // A program that does not wait any more loses its answer.
    let _sent = datagram::answer(socket.get_ref(), answer, to);
}

/// The same on a stream, where each message stands behind its length.
pub(crate) async fn serve_stream(service: &Service, mut client: TcpStream) {
    loop {
        let served = tokio::time::timeout(PATIENCE, one_of_stream(service, &mut client)).await;
        if !matches!(served, Ok(Ok(()))) {
            return;
        }
    }
}

async fn one_of_stream(service: &Service, client: &mut TcpStream) -> io::Result<()> {
    let length = usize::from(client.read_u16().await?);
    if length > DATAGRAM || !service.queries.take(Instant::now()) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut query = vec![0; length];
    client.read_exact(&mut query).await?;
    let answer = answer(service, &query, false).await.ok_or(io::ErrorKind::InvalidData)?;
    let length = u16::try_from(answer.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    let mut message = length.to_be_bytes().to_vec();
    message.extend_from_slice(&answer);
    client.write_all(&message).await
}
