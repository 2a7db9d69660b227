//! The audit log: an append-only chain of records with signed checkpoints (docs/decisions/0018). Owns the format, writing,
//! reading and verification; knows nothing of sandboxes but the names of what can happen to them. Called by `supervisor`
//! (writes) and `cli` (reads).
//!
//! ```text
//!   audit/00000001.ndjson  one record a line; the lines of all files are one chain
//!   audit/head             sequence and hash of the last record, written after it: a cut tail is found
//!   audit/checkpoint       the latest signature over sequence and hash
//!   audit/pruned           a signature over the last record that was pruned, where one was
//!   audit/key, key.pub     what signs, and what every reader may know of it
//! ```
#![forbid(unsafe_code)]

mod checkpoint;
mod files;
mod head;
mod hex;
mod journal;
mod line;
pub mod prune;
mod read;
mod record;
pub mod statement;
mod tail;
mod time;
mod verify;

pub use hex::encode as to_hex;
pub use journal::{Journal, JournalError, Settings};
pub use read::{Entry, Follow, entries};
pub use record::{Actor, Decision, Event, Record, Severity};
pub use time::{Stamp, parse_stamp};
pub use verify::{Place, Problem, Report, Trouble, verify};

/// Where the chain is below a state directory.
pub fn directory(state: &std::path::Path) -> std::path::PathBuf {
    state.join("audit")
}
