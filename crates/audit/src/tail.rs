//! The end of a file of the chain: its last whole record, and what a crash left after it. Owns finding them from the end,
//! because a file may be large and the answer is wanted at every launch. Used by `journal`.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::files::read_at;
use crate::line::{Hash, MOST_BYTES, check};
use crate::record::Event;
use crate::time::{Stamp, parse_stamp};

/// Enough for the last line of nearly every file.
const NEAR: u64 = 4 << 10;

/// The last whole record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) sequence: u64,
    pub(crate) hash: Hash,
    pub(crate) time: Stamp,
    /// It says that the chain goes on in the next file.
    pub(crate) is_rotated: bool,
    pub(crate) is_checkpoint: bool,
}

/// How a file ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) tail: Option<Tail>,
    /// What comes after the last whole record, and is none.
    pub(crate) torn: Vec<u8>,
}

pub(crate) fn ending(file: BorrowedFd<'_>, size: u64) -> Result<Ending, Errno> {
    for most in [NEAR, 2 * MOST_BYTES as u64] {
        let from = size.saturating_sub(most);
        let bytes = read_at(file, from, size - from)?;
        if let Some(tail) = last_line(&bytes, from == 0).and_then(tail_of) {
            return Ok(Ending { tail: Some(tail), torn: Vec::new() });
        }
    }
    let bytes = read_at(file, 0, size)?;
    Ok(slow_ending(&bytes))
}

/// The last line, if it is whole and all of it is here.
fn last_line(bytes: &[u8], is_all: bool) -> Option<&[u8]> {
    let body = bytes.strip_suffix(b"\n")?;
    match body.iter().rposition(|byte| *byte == b'\n') {
        Some(at) => Some(&body[at + 1..]),
        None => is_all.then_some(body),
    }
}

fn tail_of(line: &[u8]) -> Option<Tail> {
    let checked = check(line)?;
    let is_rotated = checked.event == Event::ChainRotated.name();
    let is_checkpoint = checked.event == Event::ChainCheckpoint.name();
    // A time that cannot be read is late: nothing is pruned for it.
    let time = parse_stamp(checked.time).unwrap_or(Stamp(u64::MAX));
    Some(Tail { sequence: checked.sequence, hash: checked.hash, time, is_rotated, is_checkpoint })
}

fn slow_ending(bytes: &[u8]) -> Ending {
    let (mut tail, mut end, mut at) = (None, 0, 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        at += line.len();
        if let Some(found) = line.strip_suffix(b"\n").and_then(tail_of) {
            (tail, end) = (Some(found), at);
        }
    }
    Ending { tail, torn: bytes[end..].to_vec() }
}
