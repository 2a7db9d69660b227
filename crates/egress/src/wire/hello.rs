//! The ClientHello of TLS, looked at and passed on: which server a client names before anything is encrypted.
//! Owns the records and the one extension it reads; terminates nothing and checks no certificate. `connections` calls it
//! with the first bytes of a connection that claims to be TLS, compares the name with the one it decided about, and
//! forwards the same bytes. Why rustls does not read them: decision 0046.
//!
//! What is seen is the outer name. An `encrypted_client_hello` extension does not mean that there is an inner one:
//! browsers send a GREASE one to every server, which cannot be told from a real one. A server that takes part in ECH
//! for its name may serve others behind it, as may any server that several names share; that remains.

use std::collections::BTreeSet;

use super::{Progress, lower_name};

#[cfg(test)]
mod tests;

/// The most bytes that are read before the hello must be whole. One with post-quantum keys has about 1,800.
pub(crate) const HELLO_MAX: usize = 16 * 1024;

/// Reads the ClientHello at the start of a connection, which may be spread over several records, for the server that it
/// names: lower case, without a trailing dot; may be an address written as text, which clients should not send.
pub(crate) fn server_name(buf: &[u8]) -> Progress<Option<String>> {
    match message(buf) {
        Err(Stop::Partial) => Progress::Partial,
        Err(Stop::Bad(reason)) => Progress::Bad(reason, 400),
        Ok((body, used)) => match client_hello(&body) {
            Ok(name) => Progress::Done(name, used),
            Err(reason) => Progress::Bad(reason, 400),
        },
    }
}

enum Stop {
    Partial,
    Bad(&'static str),
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const RECORD_MAX: usize = 1 << 14;

/// The body of the first handshake message, put together from its records, and the bytes they took.
fn message(buf: &[u8]) -> Result<(Vec<u8>, usize), Stop> {
    let mut message = Vec::new();
    let mut at = 0;
    loop {
        let (payload, whole) = record(buf, at)?;
        let start = at + 5;
        let taken = message.len();
        message.extend_from_slice(payload);
        if message.first().is_some_and(|&kind| kind != CLIENT_HELLO) {
            return Err(Stop::Bad("the first TLS message is not a ClientHello"));
        }
        if let [_, high, middle, low, body @ ..] = message.as_slice() {
            let length = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
            if length > HELLO_MAX {
                return Err(Stop::Bad("ClientHello too large"));
            }
            if let Some(body) = body.get(..length) {
                return Ok((body.to_vec(), start + (4 + length).saturating_sub(taken)));
            }
        }
        if start + payload.len() >= HELLO_MAX {
            return Err(Stop::Bad("ClientHello too large"));
        }
        if !whole {
            return Err(Stop::Partial);
        }
        at = start + payload.len();
    }
}

/// What is there of the payload of the record at `at`, and whether that is all of it.
fn record(buf: &[u8], at: usize) -> Result<(&[u8], bool), Stop> {
    let buf = &buf[..buf.len().min(HELLO_MAX)];
    let header = &buf[at.min(buf.len())..];
    match header {
        // An SSL 2 hello: a length with the high bit set, then the message type.
        [first, rest @ ..] if at == 0 && first & 0x80 != 0 => match rest {
            [] | [_] => return Err(Stop::Partial),
            [_, CLIENT_HELLO, ..] => return Err(Stop::Bad("SSL 2 hello")),
            _ => return Err(Stop::Bad("not TLS")),
        },
        [kind, ..] if *kind != HANDSHAKE => {
            return Err(Stop::Bad(if at == 0 { "not TLS" } else { "another record inside the ClientHello" }));
        }
        [_, major, ..] if *major != 3 => return Err(Stop::Bad("not TLS")),
        _ => {}
    }
    let [_, _, minor, high, low, payload @ ..] = header else {
        // The header itself may be cut off by the limit.
        return Err(if at + 5 > HELLO_MAX { Stop::Bad("ClientHello too large") } else { Stop::Partial });
    };
    let length = usize::from(*high) << 8 | usize::from(*low);
    if *minor > 4 || length == 0 || length > RECORD_MAX {
        return Err(Stop::Bad("malformed TLS record"));
    }
    Ok(payload.get(..length).map_or((payload, false), |payload| (payload, true)))
}

/// Reads values off the front; every length is checked against what is there.
struct Reader<'a>(&'a [u8]);

const MALFORMED: &str = "malformed ClientHello";

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(MALFORMED)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, &'static str> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Result<u16, &'static str> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn with_u8_length(&mut self) -> Result<&'a [u8], &'static str> {
        let length = self.u8()?;
        self.take(length.into())
    }

    fn with_u16_length(&mut self) -> Result<&'a [u8], &'static str> {
        let length = self.u16()?;
        self.take(length.into())
    }

    fn end(&self) -> Result<(), &'static str> {
        if self.0.is_empty() { Ok(()) } else { Err(MALFORMED) }
    }
}

const SERVER_NAME: u16 = 0;

fn client_hello(body: &[u8]) -> Result<Option<String>, &'static str> {
    let mut reader = Reader(body);
    let version = reader.u16()?;
    reader.take(32)?; // random
    let session = reader.with_u8_length()?;
    let suites = reader.with_u16_length()?;
    let compressions = reader.with_u8_length()?;
    if version >> 8 != 3 || session.len() > 32 || suites.is_empty() || suites.len() % 2 != 0 || compressions.is_empty()
    {
        return Err(MALFORMED);
    }
    if reader.end().is_ok() {
        return Ok(None); // extensions may be left out before TLS 1.3
    }
    let mut extensions = Reader(reader.with_u16_length()?);
    reader.end()?;
    let mut kinds = BTreeSet::new();
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let value = extensions.with_u16_length()?;
        // Readers that take the first and readers that take the last would see two names.
        if !kinds.insert(kind) {
            return Err("an extension is repeated in the ClientHello");
        }
        if kind == SERVER_NAME {
            name = Some(host_name(value)?);
        }
    }
    Ok(name)
}

/// The one host name of a server_name extension.
fn host_name(value: &[u8]) -> Result<String, &'static str> {
    let mut extension = Reader(value);
    let mut list = Reader(extension.with_u16_length()?);
    extension.end()?;
    let kind = list.u8()?;
    let name = list.with_u16_length()?;
    list.end()?;
    if kind != 0 {
        return Err(MALFORMED);
    }
    lower_name(name).ok_or("malformed server name in the ClientHello")
}
