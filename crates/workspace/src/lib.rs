//! Workspace: what a session wrote into overlays, as changes that a person lists, reads, commits to the host or drops. Owns the
//! state of a transaction on disk, the comparison of an overlay with the tree below it, and the journal by which a commit is done
//! wholly or not at all. Refuses to own policy (what is hidden is told to it), mounts and words. Called by `supervisor` (begin,
//! seal) and `cli` (everything else).
//!
//! Both trees were written by processes that are not trusted or not known: everything is done on descriptors, no link is
//! followed, no other mount is entered.

pub mod archive;
mod attributes;
pub mod beginnings;
mod beneath;
pub mod changes;
pub mod checkpoint;
mod commit;
pub mod copied;
pub mod diff;
pub mod entry;
mod git_index;
mod hidden;
mod journal;
mod kept;
pub mod marks;
mod moves;
mod operations;
mod origins;
pub mod patch;
pub mod remove_tree;
mod sparse;
mod stages;
mod staging;
pub mod state;
mod steps;
mod sums;
pub mod transaction;
mod undo;
mod unfinished;
mod units;

pub use beginnings::{Beginning, Beginnings};
pub use changes::{Change, Changes, Conflict, Skipped, What, Why};
pub use checkpoint::Checkpoints;
pub use commit::{CommitError, Committed, Part, Parts};
pub use entry::{Entry, Kind, Time};
pub use hidden::HiddenRule;
pub use state::State;
pub use transaction::{Choice, LeftOut, Manifest, OpenError, Transaction, TreeRecord};
pub use unfinished::{Unfinished, unfinished};

/// Where tests make trees: in memory where that is possible, because making them costs a disk many times what removing
/// them does.
#[cfg(test)]
pub(crate) fn scratch() -> std::path::PathBuf {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() }
}
