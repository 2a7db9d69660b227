//! What a client sends first: which protocol it is, and whether it names the host that was asked for. Owns reading just as
//! much as it takes to know; carries nothing and refuses nothing. Called by `tunnel`.

use std::io;
use std::time::Duration;

use cofferdam_policy::Host;
use tokio::net::TcpStream;

use crate::wire::{Progress, hello};

/// A record of TLS that greets.
const HANDSHAKE: u8 = 0x16;
/// How long a program may take between the first letters of what could be a request.
const BETWEEN_LETTERS: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Names the host.
    Tls,
    /// Looks like a request, about which `http` decides.
    Http,
    Other,
    /// Too little to know, and the program waits.
    Unclear,
}

/// Reads as much as it takes to know what a program begins with. Bytes are taken off the connection, into `read`: a task
/// that only looks would be woken again and again. A caller that stops waiting finds there what came until then.
pub(crate) async fn look(client: &TcpStream, read: &mut Vec<u8>, host: &Host) -> Result<Kind, &'static str> {
    loop {
        if let Some(kind) = kind_of(read, host)? {
            return Ok(kind);
        }
        let is_letters = !read.is_empty() && !begins_tls(read);
        let reading = read_more(client, read);
        let length = if is_letters {
            match tokio::time::timeout(BETWEEN_LETTERS, reading).await {
                Ok(length) => length,
                Err(_) => return Ok(Kind::Unclear),
            }
        } else {
            reading.await
        };
        if length.map_err(|_| "the connection failed")? == 0 {
            return Ok(Kind::Other);
        }
    }
}

/// Room is made once there is something: a connection that says nothing holds none.
pub(crate) async fn read_more(from: &TcpStream, into: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        from.readable().await?;
        into.reserve(2048);
        match from.try_read_buf(into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
    }
}

pub(crate) fn begins_tls(bytes: &[u8]) -> bool {
    bytes.starts_with(&[HANDSHAKE])
}

/// None while it cannot be known.
pub(crate) fn kind_of(bytes: &[u8], host: &Host) -> Result<Option<Kind>, &'static str> {
    const METHODS: &[&[u8]] =
        &[b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"CONNECT ", b"TRACE ", b"PRI "];
    match bytes {
        [] => Ok(None),
        [HANDSHAKE, 3, ..] => match hello::server_name(bytes) {
            Progress::Partial => Ok(None),
            Progress::Bad(why, _) => Err(why),
            Progress::Done(named, _) => match (host, named) {
                (Host::Name(name), Some(asked)) if asked.trim_end_matches('.').eq_ignore_ascii_case(name) => {
                    Ok(Some(Kind::Tls))
                }
                (Host::Name(_), Some(_)) => Err("TLS names another host than the one that was asked for"),
                (Host::Name(_), None) => Err("TLS does not name the host"),
                // An address that policy lists needs no name.
                (Host::Address(_), _) => Ok(Some(Kind::Tls)),
            },
        },
        [HANDSHAKE] => Ok(None),
        _ if METHODS.iter().any(|method| bytes.starts_with(method)) => Ok(Some(Kind::Http)),
        _ if METHODS.iter().any(|method| method.starts_with(bytes)) => Ok(None),
        _ => Ok(Some(Kind::Other)),
    }
}
