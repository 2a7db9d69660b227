//! SOCKS 5 (RFC 1928) as the server speaks it: no authentication, CONNECT only.
//! Owns the messages and their limits; whether the target may be reached is not decided here. `connections` feeds it what
//! the client sends, sends what it answers, and writes the last reply once the connection is made or refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::lower_name;

#[cfg(test)]
mod tests;

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reply {
    Succeeded = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

/// The bytes of a reply. Clients look at the first two; the address is where the connection leaves from, and may be
/// unspecified.
pub(crate) fn reply(reply: Reply, bound: SocketAddr) -> Vec<u8> {
    let mut out = vec![5, reply as u8, 0];
    match bound.ip() {
        IpAddr::V4(address) => {
            out.push(1);
            out.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.push(4);
            out.extend_from_slice(&address.octets());
        }
    }
    out.extend_from_slice(&bound.port().to_be_bytes());
    out
}

/// A reply without an address, for refusals.
pub(crate) fn refusal(code: Reply) -> Vec<u8> {
    reply(code, SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))
}

/// Where a client wants to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub host: Host,
    /// Never 0.
    pub port: u16,
}

/// A host as the client gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// Lower case, without a trailing dot; may still be an address written as text.
    Name(String),
    Address(IpAddr),
}

/// What to do after feeding bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Read more.
    More,
    /// Send these bytes, and go on feeding.
    Send([u8; 2]),
    /// Decide about this target; the bytes after it are the connection's.
    Connect(Target),
    /// Send these bytes and close.
    Refuse { reply: Vec<u8>, reason: &'static str },
    /// Close: the client speaks something else.
    Close(&'static str),
}

/// One client's negotiation.
#[derive(Debug, Default)]
pub(crate) struct Negotiation {
    /// The message read so far; at most 262 bytes.
    message: Vec<u8>,
    at: At,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum At {
    #[default]
    Greeting,
    Request,
    Over,
}

impl Negotiation {
    /// Takes bytes up to the end of the message they complete; says how many, and what follows from it.
    ///
    /// Feed the rest again after `Send`. After any step but `More` and `Send` nothing more is taken.
    pub(crate) fn feed(&mut self, input: &[u8]) -> (usize, Step) {
        for (index, &byte) in input.iter().enumerate() {
            if self.at == At::Over {
                return (index, Step::More);
            }
            self.message.push(byte);
            let step = match self.at {
                At::Greeting => greeting(&self.message),
                _ => request(&self.message),
            };
            match step {
                Step::More => continue,
                Step::Send(_) => self.at = At::Request,
                _ => self.at = At::Over,
            }
            self.message.clear();
            return (index + 1, step);
        }
        (input.len(), Step::More)
    }
}

const NO_AUTHENTICATION: u8 = 0;

fn greeting(message: &[u8]) -> Step {
    match message {
        [] | [5] => Step::More,
        [4, ..] => Step::Close("SOCKS 4 is not spoken"),
        [5, count, methods @ ..] if methods.len() < usize::from(*count) => Step::More,
        [5, _, methods @ ..] if methods.contains(&NO_AUTHENTICATION) => Step::Send([5, NO_AUTHENTICATION]),
        [5, ..] => Step::Refuse { reply: vec![5, 0xff], reason: "no method without authentication was offered" },
        _ => Step::Close("not SOCKS"),
    }
}

fn request(message: &[u8]) -> Step {
    let refuse = |code, reason| Step::Refuse { reply: refusal(code), reason };
    let (&command, address) = match message {
        [5, command, 0, address @ ..] => (command, address),
        [] | [5] | [5, _] => return Step::More,
        _ => return refuse(Reply::GeneralFailure, "malformed request"),
    };
    let (length, host) = match address {
        [] | [3] => return Step::More,
        [1, rest @ ..] => (4, rest),
        [3, length, rest @ ..] => (usize::from(*length), rest),
        [4, rest @ ..] => (16, rest),
        _ => return refuse(Reply::AddressNotSupported, "unknown kind of address"),
    };
    let Some((host, port)) = host.split_at_checked(length) else { return Step::More };
    let Ok(port) = <[u8; 2]>::try_from(port) else { return Step::More };
    let port = u16::from_be_bytes(port);
    // Read to its end before it is refused: unread bytes would reset the connection, and the reply with it.
    if command != 1 {
        return refuse(Reply::CommandNotSupported, "only CONNECT is carried");
    }
    if port == 0 {
        return refuse(Reply::GeneralFailure, "port 0");
    }
    match host_of(address[0], host) {
        Some(host) => Step::Connect(Target { host, port }),
        None => refuse(Reply::GeneralFailure, "malformed host name"),
    }
}

fn host_of(kind: u8, bytes: &[u8]) -> Option<Host> {
    match kind {
        1 => <[u8; 4]>::try_from(bytes).ok().map(|octets| Host::Address(Ipv4Addr::from(octets).into())),
        4 => <[u8; 16]>::try_from(bytes).ok().map(|octets| Host::Address(Ipv6Addr::from(octets).into())),
        _ => lower_name(bytes).map(Host::Name),
    }
}
