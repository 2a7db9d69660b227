//! Verification: reads the whole chain and says whether every byte of it is as it was written, and where not. Owns the
//! judgement; trusts nothing that a writer says but what hashes and signatures show. Called by `cli` and by `xtask bench`.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use ed25519_dalek::VerifyingKey;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::checkpoint::{self, Checkpoint, Meaning};
use crate::files::{self, Lock};
use crate::head::Head;
use crate::hex;
use crate::line::{Checked, GENESIS, Hash, check, digest};
use crate::prune::Beginning;
use crate::record::Event;

/// Troubles that are listed; the rest is counted.
const MOST_LISTED: usize = 1000;

const MOST_THREADS: usize = 8;

/// Lines whose hashes take longer than starting a thread.
const LINES_WORTH_A_THREAD: usize = 4096;

/// Where something is: a line of a file, and the record that is or should be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    pub file: String,
    /// From 1 on; 0 is the file as a whole.
    pub line: u64,
    pub sequence: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trouble {
    /// Bytes are not those that were written.
    Altered,
    /// Records are not there, this many.
    Missing { records: u64 },
    /// A record stands where it does not belong: it was there before, or comes too late.
    OutOfOrder,
    /// Its number is right, but it was written after another record than the one before it.
    Replaced,
    /// The end was cut off.
    Truncated { records: u64 },
    /// The last line is not whole, and no process wrote after it yet.
    Unfinished,
    /// A writer found the end other than it had been left.
    Lost,
    /// A signature does not fit.
    BadSignature,
    /// What it needs to be checked is not there, or not readable.
    NoWitness,
    /// It says that records were pruned, and no record says so.
    Unannounced,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub at: Place,
    pub trouble: Trouble,
}

/// What verification found. Without problems, nothing was changed since the records were written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub files: u32,
    pub records: u64,
    pub last: u64,
    pub checkpoints: u64,
    /// The last record that a signature covers; what comes after is held by hashes alone.
    pub signed: u64,
    pub key: Option<String>,
    /// Where the chain begins, if records were pruned.
    pub pruned: Option<Beginning>,
    /// Records that a crash tore, and that were closed off.
    pub torn: Vec<Place>,
    pub problems: Vec<Problem>,
    /// Problems beyond those listed.
    pub more: u64,
}

impl Report {
    pub fn is_whole(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Verifies the chain below a state directory. No chain is a whole one without records.
pub fn verify(state: &Path) -> Result<Report, Errno> {
    let directory = match files::open_directory(&crate::directory(state)) {
        Err(Errno::NOENT) => return Ok(Report::default()),
        other => other?,
    };
    let snapshot = Snapshot::take(directory.as_fd())?;
    let mut walk = Walk::new(&snapshot);
    // Files before the first may have been pruned; that no record is missing is seen at the first one that is there.
    let first = snapshot.files.first().filter(|_| walk.report.pruned.is_some()).map_or(1, |(number, _, _)| *number);
    let mut expected_number = first;
    for (number, file, size) in &snapshot.files {
        walk.begin(*number, *number != expected_number);
        expected_number = number + 1;
        let bytes = files::read_at(file.as_fd(), 0, *size)?;
        walk.file(&bytes, snapshot.files.last().is_some_and(|(last, _, _)| last == number));
    }
    Ok(walk.finish(&snapshot))
}

/// Everything as it is at one moment, while no process writes.
#[derive(Debug)]
struct Snapshot {
    files: Vec<(u32, OwnedFd, u64)>,
    head: Option<Head>,
    head_exists: bool,
    checkpoint: Option<Vec<u8>>,
    pruned: Option<Vec<u8>>,
    key_text: Option<String>,
    key: Option<VerifyingKey>,
}

impl Snapshot {
    fn take(directory: BorrowedFd<'_>) -> Result<Self, Errno> {
        let _lock = Lock::to_read(directory)?;
        let mut opened = Vec::new();
        for number in files::numbers(directory)? {
            if let Some(file) = files::open_to_read(directory, &files::name_of(number))? {
                let size = files::size_of(&file)?;
                opened.push((number, file, size));
            }
        }
        let head = files::read_small(directory, files::HEAD)?;
        let key_text = checkpoint::public_key(directory)?;
        Ok(Snapshot {
            files: opened,
            head: head.as_deref().and_then(|bytes| str::from_utf8(bytes).ok()).and_then(Head::parse),
            head_exists: head.is_some_and(|bytes| !bytes.is_empty()),
            checkpoint: files::read_small(directory, files::CHECKPOINT)?,
            pruned: files::read_small(directory, files::PRUNED)?,
            key: key_text.as_deref().and_then(checkpoint::parse_key),
            key_text,
        })
    }
}

/// Bytes between two records that are none.
#[derive(Debug, Default)]
struct Gap {
    bytes: Vec<u8>,
    line: u64,
    lines: u64,
}

#[derive(Debug)]
struct Walk<'a> {
    report: Report,
    key: Option<&'a VerifyingKey>,
    file: String,
    line: u64,
    sequence: u64,
    hash: Hash,
    /// Sequences whose hash a file outside the chain tells, with the name of that file.
    known: Vec<(u64, Hash, &'static str)>,
    gap: Option<Gap>,
    head: Option<Head>,
    last_checkpoint: u64,
    /// A record says of the last prune what its signature does.
    is_announced: bool,
    is_first: bool,
}

#[derive(Deserialize)]
struct With<T> {
    details: T,
}

#[derive(Deserialize)]
struct PrunedDetails {
    by: String,
    until: String,
    pruned: Checkpoint,
}

#[derive(Deserialize)]
struct TornDetails {
    bytes: usize,
    sha256: String,
}

impl<'a> Walk<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        let mut walk = Walk {
            report: Report { key: snapshot.key_text.clone(), ..Report::default() },
            key: snapshot.key.as_ref(),
            file: String::new(),
            line: 0,
            sequence: 0,
            hash: GENESIS,
            known: Vec::new(),
            gap: None,
            head: snapshot.head,
            last_checkpoint: 0,
            is_announced: false,
            is_first: true,
        };
        if let Some(head) = snapshot.head {
            walk.known.push((head.sequence, head.hash, files::HEAD));
        } else if snapshot.head_exists || !snapshot.files.is_empty() {
            walk.outside(files::HEAD, 0, Trouble::NoWitness);
        }
        walk.know_checkpoint(snapshot);
        if let Some((sequence, hash)) = walk.know(files::PRUNED, snapshot.pruned.as_deref(), Meaning::Pruned) {
            walk.report.pruned = Some(Beginning::new(sequence, &hash));
            (walk.sequence, walk.hash) = (sequence, hash);
        }
        walk
    }

    fn know_checkpoint(&mut self, snapshot: &Snapshot) {
        if let Some(head) = snapshot.head.filter(|head| head.checkpoint > 0 && snapshot.checkpoint.is_none()) {
            self.outside(files::CHECKPOINT, head.checkpoint, Trouble::NoWitness);
        }
        self.know(files::CHECKPOINT, snapshot.checkpoint.as_deref(), Meaning::Written);
    }

    /// The record that a file beside the chain tells of, if its signature fits.
    fn know(&mut self, file: &'static str, text: Option<&[u8]>, meaning: Meaning) -> Option<(u64, Hash)> {
        let text = text?;
        match (Checkpoint::parse(text), self.key) {
            (None, _) => self.outside(file, 0, Trouble::NoWitness),
            (_, None) => self.outside(files::PUBLIC_KEY, 0, Trouble::NoWitness),
            (Some(signed), Some(key)) => match signed.verified(meaning, key) {
                Some((sequence, hash)) => {
                    self.known.push((sequence, hash, file));
                    return Some((sequence, hash));
                }
                None => self.outside(file, signed.sequence, Trouble::BadSignature),
            },
        }
        None
    }

    fn outside(&mut self, file: &str, sequence: u64, trouble: Trouble) {
        self.report_at(Place { file: file.to_owned(), line: 0, sequence }, trouble);
    }

    fn report_at(&mut self, at: Place, trouble: Trouble) {
        if self.report.problems.len() < MOST_LISTED {
            self.report.problems.push(Problem { at, trouble });
        } else {
            self.report.more += 1;
        }
    }

    fn trouble(&mut self, sequence: u64, trouble: Trouble) {
        self.report_at(Place { file: self.file.clone(), line: self.line, sequence }, trouble);
    }

    fn begin(&mut self, number: u32, is_gap: bool) {
        self.file = files::name_of(number);
        self.line = 0;
        self.report.files += 1;
        if is_gap {
            // That records are missing is seen at the first one that is there.
            self.trouble(self.sequence + 1, Trouble::NoWitness);
        }
    }

    fn file(&mut self, bytes: &[u8], is_last: bool) {
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        for (line, checked) in lines.iter().zip(check_all(&lines)) {
            self.line += 1;
            match checked {
                Some(checked) => self.record(&line[..line.len() - 1], &checked),
                None => self.no_record(line),
            }
        }
        if let Some(gap) = self.gap.take() {
            let is_tail = is_last && gap.lines == 1 && !gap.bytes.ends_with(b"\n");
            self.report_gap(&gap, if is_tail { Trouble::Unfinished } else { Trouble::Altered });
        }
    }

    fn no_record(&mut self, line: &[u8]) {
        let gap = self.gap.get_or_insert_with(|| Gap { line: self.line, ..Gap::default() });
        gap.bytes.extend_from_slice(line);
        gap.lines += 1;
    }

    fn report_gap(&mut self, gap: &Gap, trouble: Trouble) {
        let at = Place { file: self.file.clone(), line: gap.line, sequence: self.sequence + 1 };
        self.report_at(at, trouble);
    }

    fn record(&mut self, line: &[u8], checked: &Checked<'_>) {
        let begun = self.report.pruned.as_ref().map_or(0, |pruned| pruned.sequence);
        if self.is_first && checked.sequence <= begun {
            // A prune was not finished. What is left of it has to lead to the record that was signed.
            (self.sequence, self.hash) = (checked.sequence.wrapping_sub(1), checked.previous);
        }
        self.is_first = false;
        self.report.records += u64::from(checked.sequence > begun);
        let follows = checked.sequence == self.sequence + 1 && checked.previous == self.hash;
        // An altered record is one problem, not two: that its number is missing is said already.
        let altered = match self.gap.take() {
            Some(gap) if follows && is_closed(line, checked, &gap) => {
                let at = Place { file: self.file.clone(), line: gap.line, sequence: checked.sequence };
                self.report.torn.push(at);
                0
            }
            Some(gap) => {
                self.report_gap(&gap, Trouble::Altered);
                gap.lines
            }
            None => 0,
        };
        if !follows {
            self.break_of(checked, altered);
        }
        if checked.event == Event::ChainLost.name() {
            self.trouble(checked.sequence, Trouble::Lost);
        }
        if checked.event == Event::ChainCheckpoint.name() {
            self.last_checkpoint = checked.sequence;
            self.signature(line, checked);
        }
        if checked.event == Event::ChainPruned.name() {
            self.announced(line);
        }
        self.compare_known(checked);
        let differs = |head: &Head| head.sequence == checked.sequence && head.checkpoint != self.last_checkpoint;
        if self.head.as_ref().is_some_and(differs) {
            self.outside(files::HEAD, checked.sequence, Trouble::Altered);
        }
        (self.sequence, self.hash) = (checked.sequence, checked.hash);
    }

    fn break_of(&mut self, checked: &Checked<'_>, altered: u64) {
        let expected = self.sequence + 1;
        match checked.sequence.checked_sub(expected) {
            None => self.trouble(checked.sequence, Trouble::OutOfOrder),
            Some(0) if altered == 0 => self.trouble(checked.sequence, Trouble::Replaced),
            Some(missing) if missing > altered => {
                let first = expected + altered;
                self.trouble(first, Trouble::Missing { records: missing - altered });
            }
            Some(_) => {}
        }
    }

    fn announced(&mut self, line: &[u8]) {
        let Ok(With { details }) = serde_json::from_slice::<With<PrunedDetails>>(line) else { return };
        let Some((pruned, key)) = self.report.pruned.as_mut().zip(self.key) else { return };
        let is_this = details
            .pruned
            .verified(Meaning::Pruned, key)
            .is_some_and(|(sequence, hash)| (sequence, hex::encode(&hash)) == (pruned.sequence, pruned.hash.clone()));
        if is_this {
            (pruned.until, pruned.by) = (details.until, details.by);
            self.is_announced = true;
        }
    }

    fn signature(&mut self, line: &[u8], checked: &Checked<'_>) {
        let signed = serde_json::from_slice::<With<Checkpoint>>(line).ok().map(|with| with.details);
        let verified = signed.zip(self.key).and_then(|(checkpoint, key)| checkpoint.verified(Meaning::Written, key));
        if verified == Some((checked.sequence.wrapping_sub(1), checked.previous)) {
            self.report.checkpoints += 1;
            self.report.signed = checked.sequence - 1;
        } else {
            self.trouble(checked.sequence, Trouble::BadSignature);
        }
    }

    fn compare_known(&mut self, checked: &Checked<'_>) {
        let differs =
            self.known.iter().any(|(sequence, hash, _)| *sequence == checked.sequence && *hash != checked.hash);
        if differs {
            self.trouble(checked.sequence, Trouble::Replaced);
        }
    }

    fn finish(mut self, snapshot: &Snapshot) -> Report {
        self.report.last = self.sequence;
        if let Some(pruned) = self.report.pruned.as_ref().filter(|_| !self.is_announced) {
            self.outside(files::PRUNED, pruned.sequence, Trouble::Unannounced);
        }
        // A writer that crashed may have left it one record behind, never more.
        if let Some(head) = self.head.filter(|head| head.sequence + 1 < self.sequence) {
            self.outside(files::HEAD, head.sequence, Trouble::Altered);
        }
        let furthest = self.known.iter().map(|(sequence, _, _)| *sequence).max().unwrap_or(0);
        let is_unfinished = self.report.problems.iter().any(|problem| problem.trouble == Trouble::Unfinished);
        if furthest > self.sequence {
            self.line += u64::from(!is_unfinished);
            if snapshot.files.is_empty() {
                self.file = files::name_of(1);
            }
            self.trouble(self.sequence + 1, Trouble::Truncated { records: furthest - self.sequence });
        }
        self.report
    }
}

/// Checks each line by itself, on all processors: whether they follow from each other is the walk's to see.
fn check_all<'a>(lines: &[&'a [u8]]) -> Vec<Option<Checked<'a>>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let share = lines.len().div_ceil(threads).max(LINES_WORTH_A_THREAD);
    let check_share = |part: &[&'a [u8]]| -> Vec<Option<Checked<'a>>> {
        part.iter().map(|line| line.strip_suffix(b"\n").and_then(check)).collect()
    };
    if lines.len() <= share {
        return check_share(lines);
    }
    std::thread::scope(|scope| {
        let parts: Vec<_> = lines.chunks(share).map(|part| (part, scope.spawn(move || check_share(part)))).collect();
        // What could not be checked counts as altered.
        let joined = parts.into_iter().flat_map(|(part, thread)| thread.join().unwrap_or(vec![None; part.len()]));
        joined.collect()
    })
}

/// Whether a record says of the bytes before it that a crash left them.
fn is_closed(line: &[u8], checked: &Checked<'_>, gap: &Gap) -> bool {
    // The newline after them is the closing record's.
    let Some(bytes) = gap.bytes.strip_suffix(b"\n") else { return false };
    checked.event == Event::ChainTorn.name()
        && serde_json::from_slice::<With<TornDetails>>(line)
            .is_ok_and(|with| with.details.bytes == bytes.len() && with.details.sha256 == hex::encode(&digest(bytes)))
}

#[cfg(test)]
mod tests;
