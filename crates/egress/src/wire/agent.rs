//! The ssh-agent protocol, between a program that may have things signed and an agent that holds the keys.
//! Owns which requests exist for the program and what a signature would be for; which key may sign what is the
//! policy's, and the keys stay with the agent. `connections` asks `classify` about every message of the program, passes on or
//! answers with `FAILURE`, and shows the program only the identities it may use.
//!
//! Adding, removing, locking and unlocking are never passed on: the agent is the user's, and outlives the session.

use data_encoding::BASE64_NOPAD;
use sha2::{Digest, Sha256};

use super::Progress;

mod purpose;

#[cfg(test)]
mod tests;

pub(crate) use purpose::Purpose;

/// The longest message; OpenSSH's own limit.
pub(crate) const MESSAGE_MAX: usize = 256 * 1024;

const FAILURE_CODE: u8 = 5;
const REQUEST_IDENTITIES: u8 = 11;
const SIGN_REQUEST: u8 = 13;
const EXTENSION: u8 = 27;
const SESSION_BIND: &[u8] = b"session-bind@openssh.com";

/// The agent's way to say no, framed.
pub(crate) const FAILURE: [u8; 5] = [0, 0, 0, 1, FAILURE_CODE];

/// The first message in `buf`, without its length.
pub(crate) fn message(buf: &[u8]) -> Progress<&[u8]> {
    let Some((&length, rest)) = buf.split_first_chunk::<4>() else { return Progress::Partial };
    match usize::try_from(u32::from_be_bytes(length)) {
        Ok(0) => Progress::Bad("empty agent message", 400),
        Ok(length) if length <= MESSAGE_MAX => match rest.get(..length) {
            Some(message) => Progress::Done(message, 4 + length),
            None => Progress::Partial,
        },
        _ => Progress::Bad("agent message too long", 400),
    }
}

/// What a program asks of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    /// Which keys are there? Pass on, and filter the answer.
    Identities,
    /// Sign this. Decide, then pass on or answer `FAILURE`.
    Sign(SignRequest<'a>),
    /// Bind the connection to an ssh session, so that later signatures are bound to it. Pass on.
    SessionBind { host_key: &'a [u8], session_id: &'a [u8], forwarding: bool },
    /// Anything else: answer `FAILURE`. The message's type, and why.
    Refused { kind: u8, reason: &'static str },
}

/// A request for a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SignRequest<'a> {
    pub key: &'a [u8],
    pub data: &'a [u8],
    pub flags: u32,
    /// What the signature would be good for.
    pub purpose: Purpose<'a>,
}

/// What one message of the program asks for, as `message` cut it out. What does not parse to its last byte is refused.
pub(crate) fn classify(message: &[u8]) -> Request<'_> {
    let Some((&kind, body)) = message.split_first() else {
        return Request::Refused { kind: 0, reason: "empty agent message" };
    };
    let (parsed, reason) = match kind {
        REQUEST_IDENTITIES => (body.is_empty().then_some(Request::Identities), "malformed request for identities"),
        SIGN_REQUEST => (sign_request(body).map(Request::Sign), "malformed request for a signature"),
        EXTENSION => (session_bind(body), "only the extension session-bind@openssh.com is carried"),
        _ => (None, "only listing and signing are carried"),
    };
    parsed.unwrap_or(Request::Refused { kind, reason })
}

fn sign_request(body: &[u8]) -> Option<SignRequest<'_>> {
    let mut reader = Reader(body);
    let key = reader.string()?;
    let data = reader.string()?;
    let flags = reader.u32()?;
    reader.end()?;
    (!key.is_empty()).then(|| SignRequest { key, data, flags, purpose: Purpose::of(key, data) })
}

fn session_bind(body: &[u8]) -> Option<Request<'_>> {
    let mut reader = Reader(body);
    if reader.string()? != SESSION_BIND {
        return None;
    }
    let host_key = reader.string()?;
    let session_id = reader.string()?;
    reader.string()?; // the host's signature, which the agent checks
    let forwarding = reader.u8()? != 0;
    reader.end()?;
    Some(Request::SessionBind { host_key, session_id, forwarding })
}

/// A key's fingerprint, as `ssh-add -l` shows it: `SHA256:` and base64 without padding.
pub(crate) fn fingerprint(key: &[u8]) -> String {
    format!("SHA256:{}", BASE64_NOPAD.encode(&Sha256::digest(key)))
}

/// Text that can be shown and compared: printable ASCII.
fn printable(bytes: &[u8]) -> Option<&str> {
    let ok = bytes.iter().all(|byte| *byte == b' ' || byte.is_ascii_graphic());
    if ok { std::str::from_utf8(bytes).ok() } else { None }
}

/// Reads ssh's wire types off the front; `None` where the bytes do not reach.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Option<u32> {
        let (&bytes, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(bytes))
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok()?;
        self.take(length)
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
