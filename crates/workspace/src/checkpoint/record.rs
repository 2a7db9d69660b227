//! What is written down of a checkpoint: who made it, and how each layer differs from the checkpoint before. Owns that file; what the
//! layers hold is `layer`'s. Used by `checkpoint`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::layer::{Copy, Held, Layer};
use crate::journal::{self, path_text, path_texts};
use crate::state::read_file;
use crate::{beneath, git_index, units};

/// What is being made.
pub(super) const PART: &str = "part";
pub(super) const RECORD: &str = "record.json";
const CHANGES: &str = "changes.json";
/// A workload chooses the label.
const MOST_LABEL: usize = 200;
/// Names that a listing tells of.
const MOST_NAMES: usize = 8;

/// What asked for a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// A command of the session ended.
    Exec,
    /// The workload said so, over its one-way pipe.
    Workload,
    /// A child of the session's command ended.
    Child,
    /// An operator.
    Operator,
    /// What was there before another one was put back.
    Undo,
}

/// One checkpoint, for a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub number: usize,
    /// Seconds since 1970.
    pub made: u64,
    pub by: By,
    pub label: String,
    /// It puts this one back.
    pub of: Option<usize>,
    /// Names that differ from the one before.
    pub names: usize,
    /// The first of them.
    #[serde(with = "path_texts")]
    pub first: Vec<PathBuf>,
    /// Content that was copied for it.
    pub bytes: u64,
    /// Names that could not be put back, on the host.
    #[serde(default, with = "path_texts")]
    pub stayed: Vec<PathBuf>,
    /// Earlier ones were merged into it.
    #[serde(default)]
    pub is_squashed: bool,
}

impl Record {
    pub(super) fn new(number: usize, by: By, label: &str, of: Option<usize>, bytes: u64, deltas: &[Delta]) -> Self {
        let made = u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0);
        let is_leaf = |name: &&Name| !matches!(name.held, Held::Directory { .. });
        let leaves =
            deltas.iter().flat_map(|delta| delta.now.iter().filter(is_leaf).map(|name| &name.path).chain(&delta.gone));
        let mut all: Vec<&PathBuf> = leaves.collect();
        if all.is_empty() {
            all = deltas.iter().flat_map(Delta::names).collect();
        }
        let (names, first) = (all.len(), all.into_iter().take(MOST_NAMES).cloned().collect());
        let mut record = Record {
            number,
            made,
            by,
            label: String::new(),
            of,
            names,
            first,
            bytes,
            stayed: Vec::new(),
            is_squashed: false,
        };
        record.label_as(by, label);
        record
    }

    pub(super) fn label_as(&mut self, by: By, label: &str) {
        self.by = by;
        self.label = label.chars().filter(|letter| !letter.is_control()).take(MOST_LABEL).collect();
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Name {
    #[serde(with = "path_text")]
    pub(super) path: PathBuf,
    pub(super) held: Held,
}

/// How a layer differs from that of the checkpoint before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Delta {
    pub(super) now: Vec<Name>,
    #[serde(with = "path_texts")]
    pub(super) gone: Vec<PathBuf>,
}

impl Delta {
    pub(super) fn between(before: &Layer, after: &Layer) -> Self {
        let differs = |(path, held): &(&PathBuf, &Held)| before.get(*path).is_none_or(|old| !old.is_like(held));
        let now = after.iter().filter(differs).map(|(path, held)| Name { path: path.clone(), held: held.clone() });
        let gone = before.keys().filter(|path| !after.contains_key(*path)).cloned();
        Delta { now: now.collect(), gone: gone.collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.now.is_empty() && self.gone.is_empty()
    }

    pub(super) fn apply(self, layer: &mut Layer) {
        for path in &self.gone {
            layer.remove(path);
        }
        layer.extend(self.now.into_iter().map(|name| (name.path, name.held)));
    }

    /// Both, one after the other.
    pub(super) fn then(self, later: Delta) -> Delta {
        let mut now: BTreeMap<PathBuf, Held> = self.now.into_iter().map(|name| (name.path, name.held)).collect();
        let mut gone: BTreeSet<PathBuf> = self.gone.into_iter().collect();
        for path in later.gone {
            now.remove(&path);
            gone.insert(path);
        }
        now.extend(later.now.into_iter().map(|name| (name.path, name.held)));
        gone.retain(|path| !now.contains_key(path));
        let now = now.into_iter().map(|(path, held)| Name { path, held });
        Delta { now: now.collect(), gone: gone.into_iter().collect() }
    }

    fn names(&self) -> impl Iterator<Item = &PathBuf> {
        self.now.iter().map(|name| &name.path).chain(&self.gone)
    }

    pub(super) fn copies(&self) -> impl Iterator<Item = Copy> {
        self.now.iter().filter_map(|name| name.held.copy())
    }
}

pub(super) fn differences(before: &[Layer], after: &[Layer]) -> Vec<Delta> {
    before.iter().zip(after).map(|(before, after)| Delta::between(before, after)).collect()
}

/// Whether nothing differs but indexes of git that were read again, which `git status` does.
pub(super) fn is_noise(own: BorrowedFd<'_>, before: &[Layer], after: &[Layer], deltas: &[Delta]) -> bool {
    let is_refreshed = |which: usize, path: &PathBuf| {
        let content = |layer: &Layer| match layer.get(path) {
            Some(Held::File { copy: (checkpoint, file), .. }) => {
                // That of the part that has no number yet lies there.
                let numbered = beneath::directory(own, Path::new(&checkpoint.to_string()));
                let directory = numbered.or_else(|_| beneath::directory(own, Path::new(PART))).ok()?;
                read_file(directory.as_fd(), &file.to_string(), git_index::LARGEST_INDEX).ok()
            }
            _ => None,
        };
        units::is_named_index(path)
            && content(&before[which])
                .zip(content(&after[which]))
                .is_some_and(|(one, other)| git_index::is_only_refreshed(&one, &other))
    };
    let mut names = deltas.iter().enumerate().flat_map(|(which, delta)| delta.names().map(move |path| (which, path)));
    deltas.iter().any(|delta| !delta.is_empty()) && names.all(|(which, path)| is_refreshed(which, path))
}

pub(super) fn write(directory: BorrowedFd<'_>, record: &Record, deltas: &[Delta]) -> Result<(), Errno> {
    // Not on the disk at once: what the machine loses of a running session, it loses with it.
    journal::write_plainly(directory, CHANGES, &deltas)?;
    write_record(directory, record)
}

pub(super) fn write_record(directory: BorrowedFd<'_>, record: &Record) -> Result<(), Errno> {
    journal::write_plainly(directory, RECORD, record)
}

pub(super) fn deltas(own: BorrowedFd<'_>, number: usize) -> Result<Vec<Delta>, Errno> {
    let directory = beneath::directory(own, Path::new(&number.to_string()))?;
    journal::read(directory.as_fd(), CHANGES)?.ok_or(Errno::NOENT)
}

/// Oldest first.
pub(super) fn list(own: BorrowedFd<'_>) -> Result<Vec<Record>, Errno> {
    let names = beneath::names(own, 1 << 16)?;
    let mut numbers: Vec<usize> = names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    let mut records = Vec::new();
    for number in numbers {
        let directory = beneath::directory(own, Path::new(&number.to_string()))?;
        // Of one that was merged only copies are left, for later ones.
        records.extend(journal::read(directory.as_fd(), RECORD)?.into_iter().collect::<Vec<Record>>());
    }
    Ok(records)
}
