//! One record as a line: JSON whose last field is the hash of every byte before it. Owns sealing and checking, so that
//! what is written and what is accepted are the same. Used by `journal`, `tail` and `verify`.

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::hex;
use crate::record::{Decision, Record};
use crate::time::Stamp;

pub(crate) const VERSION: u32 = 1;

/// Longest line that is written; of a longer one the details are left out.
pub(crate) const MOST_BYTES: usize = 64 << 10;

pub(crate) type Hash = [u8; 32];

/// What the first record follows.
pub(crate) const GENESIS: Hash = [0; 32];

const BEFORE_HASH: &[u8] = b",\"hash\":\"";
const AFTER_HASH: &[u8] = b"\"}";
const BEFORE_SEQUENCE: &str = "{\"version\":1,\"sequence\":";
const BEFORE_PREVIOUS: &str = ",\"previous\":\"";
const BEFORE_TIME: &str = ",\"time\":\"";
const BEFORE_EVENT: &str = ",\"event\":\"";
const SEAL_LENGTH: usize = BEFORE_HASH.len() + 64 + AFTER_HASH.len();

/// The fields in their order; the hash comes after them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    version: u32,
    sequence: u64,
    previous: &'a str,
    event_id: &'a str,
    sandbox_id: &'a str,
    time: &'a str,
    event: &'a str,
    actor: crate::Actor,
    severity: crate::Severity,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<Decision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<&'a str>,
    /// Microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<u64>,
    details: &'a Value,
}

/// Where in the chain a record stands, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position<'a> {
    pub(crate) sequence: u64,
    pub(crate) previous: Hash,
    pub(crate) event_id: &'a str,
    pub(crate) time: Stamp,
}

/// The line with its newline, and its hash.
pub(crate) fn seal(position: Position<'_>, record: &Record<'_>) -> (Vec<u8>, Hash) {
    let mut line = unsealed(position, record, &record.details);
    if line.len() > MOST_BYTES {
        line = unsealed(position, record, &json!({ "omitted": line.len() }));
    }
    // The brace that closes the object comes after the hash.
    line.pop();
    let hash = digest(&line);
    line.extend_from_slice(BEFORE_HASH);
    line.extend_from_slice(hex::encode(&hash).as_bytes());
    line.extend_from_slice(AFTER_HASH);
    line.push(b'\n');
    (line, hash)
}

fn unsealed(position: Position<'_>, record: &Record<'_>, details: &Value) -> Vec<u8> {
    let written = Written {
        version: VERSION,
        sequence: position.sequence,
        previous: &hex::encode(&position.previous),
        event_id: position.event_id,
        sandbox_id: record.session,
        time: &position.time.to_string(),
        event: record.event.name(),
        actor: record.actor,
        severity: record.severity,
        decision: record.decision,
        origin: record.origin,
        latency: record.latency.map(|latency| u64::try_from(latency.as_micros()).unwrap_or(u64::MAX)),
        details,
    };
    let mut line = Vec::with_capacity(768);
    // Every key is text and a vector takes every byte, so there is nothing to fail on.
    serde_json::to_writer(&mut line, &written).unwrap_or_default();
    line
}

pub(crate) fn digest(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// What verification needs of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checked<'a> {
    pub(crate) sequence: u64,
    pub(crate) previous: Hash,
    pub(crate) time: &'a str,
    pub(crate) event: &'a str,
    pub(crate) hash: Hash,
}

/// A whole line without its newline; `None` if a single byte of it is not as it was written.
pub(crate) fn check(line: &[u8]) -> Option<Checked<'_>> {
    let (body, seal) = line.split_at_checked(line.len().checked_sub(SEAL_LENGTH)?)?;
    let hash = digest(body);
    let written = seal.strip_prefix(BEFORE_HASH)?.strip_suffix(AFTER_HASH)?;
    if hex::decode(str::from_utf8(written).ok()?) != Some(hash) {
        return None;
    }
    let text = str::from_utf8(body).ok()?;
    let (sequence, rest) = text.strip_prefix(BEFORE_SEQUENCE)?.split_once(BEFORE_PREVIOUS)?;
    let (previous, rest) = rest.split_once('"')?;
    // A quote within a value is escaped, so these are the fields and not parts of a value; the details come after them.
    let (time, rest) = rest.split_once(BEFORE_TIME)?.1.split_once('"')?;
    let (event, _) = rest.split_once(BEFORE_EVENT)?.1.split_once('"')?;
    Some(Checked { sequence: sequence.parse().ok()?, previous: hex::decode(previous)?, time, event, hash })
}
