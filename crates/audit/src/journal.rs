//! The writer: appends records to the chain, one `write` each, under a lock that all sessions of a user share. Owns where
//! the chain ends; closes off what a crash left, starts new files, signs checkpoints. Never alters what is there, but for
//! taking back its own half record when the disk is full. Called by `supervisor`.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::io::Errno;
use serde_json::json;
use thiserror::Error;
use uuid::Builder;

use crate::checkpoint::{self, Checkpoint, Meaning};
use crate::files::{self, Lock};
use crate::head::Head;
use crate::hex;
use crate::line::{GENESIS, Hash, Position, digest, seal};
use crate::record::{Event, Record, Severity};
use crate::tail::{Tail, ending};
use crate::time::Stamp;

#[derive(Debug, Error)]
#[error("cannot write the audit log in `{path}`")]
pub struct JournalError {
    pub path: PathBuf,
    #[source]
    pub errno: Errno,
}

/// When files and checkpoints are begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Bytes after which a new file begins.
    pub rotate_at: u64,
    /// Records after which an append signs a checkpoint.
    pub checkpoint_every: u64,
    /// Records after which [`Journal::settle`] does.
    pub checkpoint_at_end: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { rotate_at: 64 << 20, checkpoint_every: 1024, checkpoint_at_end: 128 }
    }
}

/// An open chain.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    directory: Rc<OwnedFd>,
    head_file: OwnedFd,
    file: OwnedFd,
    number: u32,
    /// How long the file was after our last look, and what we know since then.
    seen: Option<Seen>,
    ids: EventIds,
    settings: Settings,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    size: u64,
    head: Head,
}

impl Journal {
    /// The chain below a state directory, made where there is none.
    pub fn open(state: &Path) -> Result<Self, JournalError> {
        Journal::open_with(state, Settings::default())
    }

    pub fn open_with(state: &Path, settings: Settings) -> Result<Self, JournalError> {
        let path = crate::directory(state);
        Journal::try_open(&path, settings).map_err(|errno| JournalError { path, errno })
    }

    fn try_open(path: &Path, settings: Settings) -> Result<Self, Errno> {
        let directory = files::make_directory(path)?;
        let number = files::numbers(directory.as_fd())?.last().copied().unwrap_or(1);
        Ok(Journal {
            path: path.to_path_buf(),
            head_file: files::open_in_place(directory.as_fd(), files::HEAD)?,
            file: files::open_to_append(directory.as_fd(), number)?,
            directory: Rc::new(directory),
            number,
            seen: None,
            ids: EventIds::new()?,
            settings,
        })
    }

    /// Adds a record and returns its sequence.
    pub fn append(&mut self, record: &Record<'_>) -> Result<u64, JournalError> {
        self.locked(|journal| {
            let sequence = journal.add(record)?;
            journal.checkpoint_after(journal.settings.checkpoint_every)?;
            Ok(sequence)
        })
    }

    /// Signs what was written, if it has become much. For moments when the workload does not wait.
    pub fn settle(&mut self) -> Result<(), JournalError> {
        let enough = self.settings.checkpoint_at_end;
        if self.seen.is_some_and(|seen| seen.head.sequence - seen.head.checkpoint < enough) {
            return Ok(());
        }
        self.locked(|journal| journal.checkpoint_after(enough))
    }

    /// Signs what was written, however little it is.
    pub(crate) fn sign(&mut self) -> Result<(), JournalError> {
        self.locked(|journal| journal.checkpoint_after(1))
    }

    /// Begins a new file, if this is so once no other process writes.
    pub(crate) fn rotate_if(&mut self, is_due: impl FnOnce(&Self) -> Result<bool, Errno>) -> Result<(), JournalError> {
        self.locked(|journal| {
            journal.catch_up()?;
            if is_due(journal)? {
                journal.rotate()?;
            }
            Ok(())
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Of the file that is written to.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn locked<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, Errno>) -> Result<T, JournalError> {
        let directory = Rc::clone(&self.directory);
        let done = Lock::to_write(directory.as_fd()).and_then(|_lock| act(self));
        done.map_err(|errno| {
            self.seen = None;
            JournalError { path: self.path.clone(), errno }
        })
    }

    fn add(&mut self, record: &Record<'_>) -> Result<u64, Errno> {
        let mut seen = self.catch_up()?;
        if seen.size >= self.settings.rotate_at {
            seen = self.rotate()?;
        }
        self.write(record, seen, seen.head.sequence + 1, seen.head.hash, &[])
    }

    /// One record after the given one, in one write; `before` closes what is open.
    fn write(
        &mut self,
        record: &Record<'_>,
        seen: Seen,
        sequence: u64,
        previous: Hash,
        before: &[u8],
    ) -> Result<u64, Errno> {
        let time = Stamp::now();
        let event_id = self.ids.next(time);
        let (line, hash) = seal(Position { sequence, previous, event_id: &event_id, time }, record);
        let bytes = [before, &line].concat();
        self.write_whole(&bytes, seen.size)?;
        let checkpoint = if record.event == Event::ChainCheckpoint { sequence } else { seen.head.checkpoint };
        let head = Head { sequence, hash, checkpoint };
        head.write(&self.head_file)?;
        self.seen = Some(Seen { size: seen.size + bytes.len() as u64, head });
        Ok(sequence)
    }

    fn write_whole(&self, bytes: &[u8], size: u64) -> Result<(), Errno> {
        let written = loop {
            match rustix::io::write(&self.file, bytes) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        if written == bytes.len() {
            return Ok(());
        }
        // Half of it does not help a reader. If it cannot be taken back, the next writer closes it off.
        rustix::fs::ftruncate(&self.file, size).unwrap_or_default();
        Err(Errno::NOSPC)
    }

    /// Where the chain ends now: as we left it, or as others did.
    fn catch_up(&mut self) -> Result<Seen, Errno> {
        let size = files::size_of(&self.file)?;
        match self.seen {
            Some(seen) if seen.size == size => Ok(seen),
            _ => self.look(),
        }
    }

    fn look(&mut self) -> Result<Seen, Errno> {
        loop {
            let size = files::size_of(&self.file)?;
            let end = ending(self.file.as_fd(), size)?;
            if end.tail.is_some_and(|tail| tail.is_rotated) && end.torn.is_empty() {
                // The file after this one may have been pruned, if this is open for so long.
                let numbers = files::numbers(self.directory.as_fd())?;
                let next = numbers.into_iter().find(|number| *number > self.number);
                self.open_file(next.unwrap_or(self.number + 1))?;
                continue;
            }
            let tail = match end.tail {
                Some(tail) => Some(tail),
                None => self.tail_of_file_before()?,
            };
            return self.agree(size, tail, &end.torn);
        }
    }

    /// Compares the end of the file with what its last writer said, and writes down where they differ.
    fn agree(&mut self, size: u64, tail: Option<Tail>, torn: &[u8]) -> Result<Seen, Errno> {
        let said = Head::read(&self.head_file)?;
        let begins = tail.is_none() && torn.is_empty() && self.number == 1 && files::size_of(&self.head_file)? == 0;
        if begins {
            let head = Head { sequence: 0, hash: GENESIS, checkpoint: 0 };
            head.write(&self.head_file)?;
            return Ok(Seen { size, head });
        }
        let (sequence, hash) = tail.map_or((0, GENESIS), |tail| (tail.sequence, tail.hash));
        // A writer that was killed after its checkpoint, and before it could say so.
        let unsaid = tail.filter(|tail| tail.is_checkpoint).map(|tail| tail.sequence);
        let checkpoint = unsaid.unwrap_or_else(|| said.map_or(0, |said| said.checkpoint.min(sequence)));
        let found = Head { sequence, hash, checkpoint };
        let is_lost = match said {
            None => true,
            Some(said) => said.sequence > sequence || (said.sequence == sequence && said.hash != hash),
        };
        // Where records are missing, their numbers stay free.
        let last = sequence.max(said.map_or(0, |said| said.sequence));
        let mut seen = Seen { size, head: found };
        if !torn.is_empty() {
            let details = json!({ "bytes": torn.len(), "sha256": hex::encode(&digest(torn)) });
            seen = self.note(Event::ChainTorn, details, seen, last, b"\n")?;
        }
        if is_lost {
            let said = said.map(|said| json!({ "sequence": said.sequence, "hash": hex::encode(&said.hash) }));
            let details = json!({ "found": { "sequence": sequence, "hash": hex::encode(&hash) }, "expected": said });
            let last = seen.head.sequence.max(last);
            seen = self.note(Event::ChainLost, details, seen, last, b"")?;
        }
        self.seen = Some(seen);
        Ok(seen)
    }

    fn note(
        &mut self,
        event: Event,
        details: serde_json::Value,
        seen: Seen,
        last: u64,
        before: &[u8],
    ) -> Result<Seen, Errno> {
        let record = Record { severity: Severity::Error, ..Record::new(event, "", details) };
        self.write(&record, seen, last + 1, seen.head.hash, before)?;
        self.seen.ok_or(Errno::IO)
    }

    /// A file without a record is one whose writer got no further.
    fn tail_of_file_before(&self) -> Result<Option<Tail>, Errno> {
        let Some(before) = self.number.checked_sub(1).filter(|number| *number > 0) else { return Ok(None) };
        let Some(file) = files::open_to_read(self.directory.as_fd(), &files::name_of(before))? else { return Ok(None) };
        Ok(ending(file.as_fd(), files::size_of(&file)?)?.tail)
    }

    fn open_file(&mut self, number: u32) -> Result<(), Errno> {
        self.file = files::open_to_append(self.directory.as_fd(), number)?;
        self.number = number;
        Ok(())
    }

    fn rotate(&mut self) -> Result<Seen, Errno> {
        let seen = self.catch_up()?;
        let next = json!({ "next": files::name_of(self.number + 1) });
        let record = Record::new(Event::ChainRotated, "", next);
        self.write(&record, seen, seen.head.sequence + 1, seen.head.hash, &[])?;
        let Some(end) = self.seen.map(|seen| seen.head) else { return Err(Errno::IO) };
        let from = json!({ "from": files::name_of(self.number), "hash": hex::encode(&end.hash) });
        self.open_file(self.number + 1)?;
        let record = Record::new(Event::ChainContinued, "", from);
        let seen = Seen { size: files::size_of(&self.file)?, head: end };
        self.write(&record, seen, end.sequence + 1, end.hash, &[])?;
        self.seen.ok_or(Errno::IO)
    }

    fn checkpoint_after(&mut self, records: u64) -> Result<(), Errno> {
        let seen = self.catch_up()?;
        if seen.head.sequence - seen.head.checkpoint < records {
            return Ok(());
        }
        let key = checkpoint::key(self.directory.as_fd())?;
        let signed = Checkpoint::sign(&key, Meaning::Written, seen.head.sequence, &seen.head.hash);
        // The file first: what it says is true also if nothing comes after it.
        files::replace(self.directory.as_fd(), files::CHECKPOINT, signed.text().as_bytes())?;
        let record = Record::new(Event::ChainCheckpoint, "", signed.details());
        self.write(&record, seen, seen.head.sequence + 1, seen.head.hash, &[])?;
        Ok(())
    }
}

/// Names for records that no other writer gives: version 7 UUIDs, with the same random part for one writer.
#[derive(Debug)]
struct EventIds {
    random: u64,
    count: u16,
}

impl EventIds {
    fn new() -> Result<Self, Errno> {
        let mut bytes = [0; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        Ok(EventIds { random: u64::from_ne_bytes(bytes), count: 0 })
    }

    fn next(&mut self, time: Stamp) -> String {
        self.count = self.count.wrapping_add(1);
        // The random part moves on as well: the count comes round after 4096 records.
        self.random = self.random.wrapping_add(1);
        let mut rest = [0; 10];
        rest[..2].copy_from_slice(&self.count.to_be_bytes());
        rest[2..].copy_from_slice(&self.random.to_be_bytes());
        Builder::from_unix_timestamp_millis(time.0 / 1000, &rest).into_uuid().to_string()
    }
}

#[cfg(test)]
pub(crate) mod tests;
