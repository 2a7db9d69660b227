//! Pruning: records at the beginning of the chain go, and a signature says up to which one (docs/decisions/0058). Owns where the
//! chain is cut and the order of the steps, so that a crash leaves the chain as it was or as it is to be; which sessions are spared
//! is the caller's to say. Called by `sandbox audit prune`, and by the supervisor for `audit.keep`.
//!
//! ```text
//!   a new file is begun, if the cut lies in the last one
//!   the record CHAIN_PRUNED, and a checkpoint over it
//!   the rest of the file that is cut, under a name of its own
//!   the file `pruned`: from here on the chain begins after the cut
//!   the file that is cut is replaced, those before it are removed
//! ```

use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::json;

use crate::checkpoint::{self, Checkpoint, Meaning};
use crate::files;
use crate::hex;
use crate::journal::{Journal, JournalError};
use crate::line::{Hash, MOST_BYTES, check};
use crate::record::{Actor, Event, Record, Severity};
use crate::tail::ending;
use crate::time::{Stamp, parse_stamp};

/// How much of a file is copied at a time.
const CHUNK: u64 = 1 << 20;

/// A retention removes whole files, so a file is closed once it holds this part of the time that is kept.
const FILES_IN_TIME: u32 = 10;

/// What is to be kept. A record goes that is older than `since`, or without which no more than `bytes` are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keep {
    pub since: Option<Stamp>,
    pub bytes: Option<u64>,
    /// What happened from here on is spared, whatever else is said.
    pub spared: Option<Stamp>,
}

/// What was pruned, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pruned {
    pub records: u64,
    pub bytes: u64,
    /// The last record that goes, and when it was written.
    pub sequence: u64,
    pub time: String,
}

/// What a prune would do. Changes nothing.
pub fn look(state: &Path, keep: &Keep) -> Result<Option<Pruned>, JournalError> {
    let path = crate::directory(state);
    let failed = |errno| JournalError { path: path.clone(), errno };
    let directory = match files::open_directory(&path) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.map_err(failed)?,
    };
    let cut = find(directory.as_fd(), keep, Precision::Record).map_err(failed)?;
    Ok(cut.filter(|cut| cut.records > 0).map(|cut| cut.pruned()))
}

/// Removes what is not to be kept, as the operator said, who was told how many problems `verify` finds.
pub fn prune(state: &Path, keep: &Keep, problems: usize) -> Result<Option<Pruned>, JournalError> {
    prune_as(state, keep, By::Operator { problems })
}

/// What the setting `audit.keep` says, in whole files: looks at the ends of files only, and is done in well under a millisecond
/// where nothing is due.
pub fn retain(state: &Path, time: Duration, spared: Option<Stamp>) -> Result<Option<Pruned>, JournalError> {
    let mut journal = Journal::open(state)?;
    journal.begin_file_after(time / FILES_IN_TIME)?;
    let keep = Keep { since: Some(Stamp::now().before(time)), bytes: None, spared };
    prune_as(state, &keep, By::Retention)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Operator { problems: usize },
    Retention,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Precision {
    Record,
    File,
}

/// Where the chain is to begin: after this record, at this place of this file.
#[derive(Debug, Clone)]
struct Cut {
    file: u32,
    offset: u64,
    sequence: u64,
    hash: Hash,
    time: Stamp,
    /// That the chain has now, and not then; none where a prune before was not finished.
    records: u64,
    bytes: u64,
}

impl Cut {
    fn pruned(&self) -> Pruned {
        Pruned { records: self.records, bytes: self.bytes, sequence: self.sequence, time: self.time.to_string() }
    }
}

fn prune_as(state: &Path, keep: &Keep, by: By) -> Result<Option<Pruned>, JournalError> {
    let path = crate::directory(state);
    let failed = |errno| JournalError { path: path.clone(), errno };
    let directory = match files::open_directory(&path) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.map_err(failed)?,
    };
    // One prune at a time: writers have a lock of their own, which is not held while files are searched.
    let alone = files::open_in_place(directory.as_fd(), files::HEAD).map_err(failed)?;
    rustix::fs::flock(&alone, FlockOperation::NonBlockingLockExclusive).map_err(failed)?;
    let precision = if by == By::Retention { Precision::File } else { Precision::Record };
    let Some(cut) = find(directory.as_fd(), keep, precision).map_err(failed)? else { return Ok(None) };
    let mut journal = Journal::open(state)?;
    let mut rest = None;
    if cut.offset > 0 {
        // What is cut is not written to any more.
        journal.close_file(cut.file)?;
        rest = Some(keep_rest(directory.as_fd(), &cut).map_err(failed)?);
    }
    if cut.records > 0 {
        announce(&mut journal, directory.as_fd(), &cut, by)?;
    }
    remove(directory.as_fd(), &cut, rest.as_deref()).map_err(failed)?;
    Ok((cut.records > 0).then(|| cut.pruned()))
}

/// The record and the signature. With the second the chain begins after the cut.
fn announce(journal: &mut Journal, directory: BorrowedFd<'_>, cut: &Cut, by: By) -> Result<(), JournalError> {
    let path = journal.path().to_path_buf();
    let failed = |errno| JournalError { path: path.clone(), errno };
    let signed = {
        let _lock = files::Lock::to_write(directory).map_err(failed)?;
        let key = checkpoint::key(directory).map_err(failed)?;
        Checkpoint::sign(&key, Meaning::Pruned, cut.sequence, &cut.hash)
    };
    let (actor, by, problems) = match by {
        By::Operator { problems } => (Actor::Person, "sandbox audit prune", Some(problems)),
        By::Retention => (Actor::Supervisor, "audit.keep", None),
    };
    let details = json!({
        "by": by, "records": cut.records, "bytes": cut.bytes, "until": cut.time.to_string(), "problems": problems,
        "pruned": signed.details(),
    });
    let record = Record { actor, severity: Severity::Warning, ..Record::new(Event::ChainPruned, "", details) };
    journal.append(&record)?;
    journal.sign()?;
    replace_durably(directory, files::PRUNED, signed.text().as_bytes()).map_err(failed)
}

/// The file that is cut is replaced by its rest, those before it go, the oldest first.
fn remove(directory: BorrowedFd<'_>, cut: &Cut, rest: Option<&str>) -> Result<(), Errno> {
    let older = files::numbers(directory)?.into_iter().filter(|number| *number < cut.file);
    for number in older {
        rustix::fs::unlinkat(directory, files::name_of(number), AtFlags::empty())?;
    }
    if let Some(rest) = rest {
        rustix::fs::renameat(directory, rest, directory, files::name_of(cut.file))?;
    }
    rustix::fs::fsync(directory)
}

/// A copy of what stays of the file that is cut, and its name.
fn keep_rest(directory: BorrowedFd<'_>, cut: &Cut) -> Result<String, Errno> {
    let name = files::name_of(cut.file);
    let file = files::open_to_read(directory, &name)?.ok_or(Errno::NOENT)?;
    let rest = format!("{name}.rest");
    let mut copy = create(directory, &rest)?;
    let mut at = cut.offset;
    loop {
        let bytes = files::read_at(file.as_fd(), at, CHUNK)?;
        if bytes.is_empty() {
            break;
        }
        at += bytes.len() as u64;
        copy.write_all(&bytes).map_err(|error| os_error(&error))?;
    }
    rustix::fs::fsync(&copy)?;
    Ok(rest)
}

fn replace_durably(directory: BorrowedFd<'_>, name: &str, content: &[u8]) -> Result<(), Errno> {
    let next = format!("{name}.new");
    let mut file = create(directory, &next)?;
    file.write_all(content).map_err(|error| os_error(&error))?;
    rustix::fs::fsync(&file)?;
    rustix::fs::renameat(directory, &next, directory, name)?;
    rustix::fs::fsync(directory)
}

/// Anew: what a killed process left under this name goes.
fn create(directory: BorrowedFd<'_>, name: &str) -> Result<std::fs::File, Errno> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

fn os_error(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The last record that was pruned before, as the file `pruned` says. Whether it may say so is `verify`'s to find.
pub(crate) fn begun(directory: BorrowedFd<'_>) -> Result<u64, Errno> {
    let said = files::read_small(directory, files::PRUNED)?;
    Ok(said.and_then(|text| Checkpoint::parse(&text)).map_or(0, |said| said.sequence))
}

/// A file of the chain, as far as it is written now.
struct Known {
    number: u32,
    file: OwnedFd,
    size: u64,
}

/// What tells whether a record goes.
struct Judge {
    /// The last one that went before.
    begun: u64,
    /// Before this it goes for its age, and from this on it stays.
    old: Stamp,
    spared: Stamp,
    /// Bytes from the beginning that go for the size.
    excess: u64,
}

impl Judge {
    /// `start` is where it lies, counted over all files.
    fn goes(&self, sequence: u64, time: Stamp, start: u64) -> bool {
        sequence <= self.begun || (time < self.spared && (time < self.old || start < self.excess))
    }
}

fn find(directory: BorrowedFd<'_>, keep: &Keep, precision: Precision) -> Result<Option<Cut>, Errno> {
    let mut known = Vec::new();
    for number in files::numbers(directory)? {
        if let Some(file) = files::open_to_read(directory, &files::name_of(number))? {
            let size = files::size_of(&file)?;
            known.push(Known { number, file, size });
        }
    }
    let total: u64 = known.iter().map(|one| one.size).sum();
    let judge = Judge {
        begun: begun(directory)?,
        old: keep.since.unwrap_or(Stamp(0)),
        spared: keep.spared.unwrap_or(Stamp(u64::MAX)),
        excess: keep.bytes.map_or(0, |bytes| total.saturating_sub(bytes)),
    };
    let (mut cut, mut before) = (None, 0);
    for (at, one) in known.iter().enumerate() {
        let is_last = at + 1 == known.len();
        let tail = ending(one.file.as_fd(), one.size)?.tail;
        let goes = tail.filter(|tail| judge.goes(tail.sequence, tail.time, before + one.size - 1));
        let Some(tail) = goes.filter(|_| !is_last) else {
            if precision == Precision::Record {
                cut = within(one, before, &judge)?.or(cut);
            }
            break;
        };
        before += one.size;
        let file = known.get(at + 1).map_or(one.number, |next| next.number);
        cut = Some(Cut { file, ..cut_after(tail.sequence, tail.hash, tail.time, 0, before, &judge) });
    }
    // Where nothing is left of what was pruned before, there is nothing to do.
    Ok(cut.filter(|cut| cut.bytes > 0))
}

fn cut_after(sequence: u64, hash: Hash, time: Stamp, offset: u64, bytes: u64, judge: &Judge) -> Cut {
    Cut { file: 0, offset, sequence, hash, time, records: sequence.saturating_sub(judge.begun), bytes }
}

/// The last record of this file that goes, with all before it.
fn within(one: &Known, before: u64, judge: &Judge) -> Result<Option<Cut>, Errno> {
    let bytes = files::read_at(one.file.as_fd(), 0, one.size)?;
    let (mut end, mut cut) = (0u64, None);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let start = before + end;
        end += line.len() as u64;
        // What is no record is what a crash left, and goes with the record that closes it off.
        let Some(checked) = line.strip_suffix(b"\n").and_then(check) else { continue };
        let time = parse_stamp(checked.time).unwrap_or(Stamp(u64::MAX));
        if !judge.goes(checked.sequence, time, start) {
            break;
        }
        let found = cut_after(checked.sequence, checked.hash, time, end, before + end, judge);
        cut = Some(Cut { file: one.number, ..found });
    }
    Ok(cut)
}

impl Journal {
    /// Ends this file of the chain, if it is the one that is written to.
    fn close_file(&mut self, number: u32) -> Result<(), JournalError> {
        self.rotate_if(|journal| Ok(journal.number() == number))
    }

    /// Ends the file that is written to, if its first record is older.
    fn begin_file_after(&mut self, age: Duration) -> Result<(), JournalError> {
        let limit = Stamp::now().before(age);
        self.rotate_if(|journal| {
            let bytes = files::read_at(journal.file(), 0, MOST_BYTES as u64)?;
            let first = bytes.split(|byte| *byte == b'\n').next().and_then(check);
            Ok(first.and_then(|first| parse_stamp(first.time)).is_some_and(|time| time < limit))
        })
    }
}

/// As `verify` tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Beginning {
    /// The last record that was pruned.
    pub sequence: u64,
    pub hash: String,
    /// When it was written, and what pruned it: `sandbox audit prune` or `audit.keep`; as the record of the prune says.
    pub until: String,
    pub by: String,
}

impl Beginning {
    pub(crate) fn new(sequence: u64, hash: &Hash) -> Self {
        Beginning { sequence, hash: hex::encode(hash), until: String::new(), by: String::new() }
    }
}

#[cfg(test)]
mod tests;
