//! The ssh-agent protocol, between a program that may have things signed and an agent that holds the keys.
//! Owns which requests exist for the program and what a signature would be for; which key may sign what is the
//! policy's, and the keys stay with the agent. `connections` asks `classify` about every message of the program, passes on or
//! answers with `FAILURE`, and shows the program only the identities it may use.
//!
//! Adding, removing, locking and unlocking are never passed on: the agent is the user's, and outlives the session.

use sha2::{Digest, Sha256};

use super::Progress;

mod purpose;

#[cfg(test)]
mod tests;

pub use purpose::Purpose;

/// The longest message; OpenSSH's own limit.
pub const MESSAGE_MAX: usize = 256 * 1024;
/// The most identities that are read from an agent.
const IDENTITIES_MAX: usize = 2048;

const FAILURE_CODE: u8 = 5;
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const EXTENSION: u8 = 27;
const SESSION_BIND: &[u8] = b"session-bind@openssh.com";

/// The agent's way to say no, framed.
pub const FAILURE: [u8; 5] = [0, 0, 0, 1, FAILURE_CODE];

/// The first message in `buf`, without its length.
pub fn message(buf: &[u8]) -> Progress<&[u8]> {
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
pub enum Request<'a> {
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
pub struct SignRequest<'a> {
    pub key: &'a [u8],
    pub data: &'a [u8],
    pub flags: u32,
    /// What the signature would be good for.
    pub purpose: Purpose<'a>,
}

/// What one message of the program asks for, as `message` cut it out. What does not parse to its last byte is refused.
pub fn classify(message: &[u8]) -> Request<'_> {
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

/// A key that an agent holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity<'a> {
    pub key: &'a [u8],
    pub comment: &'a [u8],
}

/// The identities in an agent's answer; `None` for a failure and for what does not parse.
pub fn parse_identities(message: &[u8]) -> Option<Vec<Identity<'_>>> {
    let mut reader = Reader(message);
    if reader.u8()? != IDENTITIES_ANSWER {
        return None;
    }
    let count = usize::try_from(reader.u32()?).ok().filter(|count| *count <= IDENTITIES_MAX)?;
    let mut identities = Vec::new();
    for _ in 0..count {
        identities.push(Identity { key: reader.string()?, comment: reader.string()? });
    }
    reader.end()?;
    Some(identities)
}

/// An answer, framed, that lists these identities; for what is left after filtering.
pub fn identities_answer(identities: &[Identity<'_>]) -> Vec<u8> {
    let mut body = vec![IDENTITIES_ANSWER];
    put_length(&mut body, identities.len());
    for identity in identities {
        for part in [identity.key, identity.comment] {
            put_length(&mut body, part.len());
            body.extend_from_slice(part);
        }
    }
    let mut out = Vec::with_capacity(body.len() + 4);
    put_length(&mut out, body.len());
    out.extend_from_slice(&body);
    out
}

/// Lengths here come from messages of at most `MESSAGE_MAX`, so they fit.
fn put_length(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
}

/// A key's fingerprint, as `ssh-add -l` shows it: `SHA256:` and base64 without padding.
pub fn fingerprint(key: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digest = Sha256::digest(key);
    let mut text = String::from("SHA256:");
    for piece in digest.chunks(3) {
        let bits = piece.iter().chain([0; 2].iter()).take(3).fold(0_usize, |bits, &byte| bits << 8 | usize::from(byte));
        let letters = [18, 12, 6, 0].map(|shift| char::from(LETTERS[bits >> shift & 63]));
        text.extend(&letters[..=piece.len()]);
    }
    text
}

/// The name of a key's algorithm, such as `ssh-ed25519`, with which every key begins.
pub fn algorithm(key: &[u8]) -> Option<&str> {
    Reader(key).string().and_then(printable)
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
