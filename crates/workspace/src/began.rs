//! What the files that git tracks held when the session began, so that a merge has a beginning that is known. Owns the list beside the
//! layers: an id for a file that is as the index says, a copy for one that is not. Written in idle moments by `supervisor`, read for
//! `commit --merge`.
//!
//! Nothing of it is made at the start. A file that was not changed since the start holds what it held then; of any other nothing is
//! known, and it is not on the list.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::diff;
use crate::entry::Time;
use crate::git_index::{self, HEADER, IndexEntry, LARGEST_INDEX};
use crate::hidden::Hidden;
use crate::state::read_file;
use crate::transaction::Manifest;
use crate::{beneath, staging};

/// In the directory of the transaction.
pub(crate) const FILE: &str = "began";
pub(crate) const COPIES: &str = "began-copies";
const PART: &str = "began.part";
/// Of what git does not know as it is, so much is copied; of the rest nothing is known.
const MOST_COPIED: u64 = 64 << 20;
const MOST_COPIES: usize = 4096;
const LARGEST_LIST: u64 = 256 << 20;
/// Lines are written down at so many bytes.
const CHUNK: usize = 64 << 10;

/// What a file held when the session began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Began {
    /// What git has under this id.
    Object(String),
    Content(Vec<u8>),
}

/// A list that is being made, or is to be made, of the transaction at a path.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    begun: Option<Begun>,
}

impl Recording {
    pub fn new(path: PathBuf) -> Self {
        Recording { path, begun: None }
    }

    /// Goes on until then. None once the list is whole, or cannot be made.
    pub fn turn(self, until: Instant) -> Option<Self> {
        let Recording { path, begun } = self;
        let begun = begun.or_else(|| Begun::begin(&path))?;
        Some(Recording { path, begun: Some(begun.turn(until)?) })
    }
}

#[derive(Debug)]
struct Begun {
    directory: OwnedFd,
    project: OwnedFd,
    /// Where the project lies.
    at: PathBuf,
    mounted: Time,
    /// Of hidden names no copies are kept.
    hidden: Hidden,
    index: Vec<u8>,
    id_length: usize,
    /// When the index was written.
    written: Time,
    /// The next entry, and how many there are from it on.
    next: usize,
    left: u32,
    lines: Vec<u8>,
    list: std::fs::File,
    copies: Option<OwnedFd>,
    copied: (usize, u64),
}

impl Begun {
    /// None where the project has no repository of its own with an index that is understood.
    fn begin(path: &Path) -> Option<Self> {
        let directory = beneath::root(path).ok()?;
        let manifest = Manifest::read(directory.as_fd()).ok()??;
        let tree = manifest.trees.get(manifest.project()?)?;
        let project = beneath::root(&tree.lower).ok()?;
        let repository = beneath::directory(project.as_fd(), Path::new(".git")).ok()?;
        let file = beneath::file(repository.as_fd(), "index".as_ref()).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let mut index = Vec::new();
        (&file).take(LARGEST_INDEX + 1).read_to_end(&mut index).ok()?;
        let (left, id_length) = (git_index::count_of(&index)?, git_index::id_length(&index)?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let list = rustix::fs::openat(&directory, PART, flags, Mode::RUSR | Mode::WUSR).ok()?.into();
        let covered = [&manifest.hidden[..], &manifest.masked].concat();
        Some(Begun {
            at: tree.lower.clone(),
            mounted: tree.mounted,
            hidden: Hidden::new(&covered),
            written: modified(&stat),
            directory,
            project,
            index,
            id_length,
            next: HEADER,
            left,
            lines: Vec::new(),
            list,
            copies: None,
            copied: (0, 0),
        })
    }

    fn turn(mut self, until: Instant) -> Option<Self> {
        while self.left > 0 {
            if Instant::now() >= until {
                return Some(self);
            }
            let index = std::mem::take(&mut self.index);
            let entry = IndexEntry::at(&index, self.next, self.id_length)?;
            (self.next, self.left) = (entry.next, self.left - 1);
            self.record(&entry);
            if self.lines.len() >= CHUNK {
                self.list.write_all(&std::mem::take(&mut self.lines)).ok()?;
            }
            self.index = index;
        }
        self.list.write_all(&self.lines).ok()?;
        rustix::fs::renameat(&self.directory, PART, &self.directory, FILE).ok()?;
        None
    }

    fn record(&mut self, entry: &IndexEntry<'_>) {
        let name = Path::new(std::ffi::OsStr::from_bytes(entry.name));
        let known = if !entry.is_plain() {
            None
        } else if self.is_as_entered(name, entry).unwrap_or(false) {
            Some(git_index::id_text(entry.id))
        } else {
            self.copy(name).map(|copy| format!("={copy}"))
        };
        if let Some(known) = known {
            self.lines.extend_from_slice(known.as_bytes());
            self.lines.push(b' ');
            self.lines.extend_from_slice(entry.name);
            self.lines.push(0);
        }
    }

    /// By what git compares, and by its rule that a file that is as young as the index may differ all the same.
    fn is_as_entered(&self, name: &Path, entry: &IndexEntry<'_>) -> Result<bool, Errno> {
        let stat = rustix::fs::statat(&self.project, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)?;
        let number =
            |at: usize| entry.stat.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
        let (changed, modified) = (changed(&stat), modified(&stat));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "git keeps the lower halves")]
        let fields = [
            changed.0 as u32,
            changed.1 as u32,
            modified.0 as u32,
            modified.1 as u32,
            stat.st_ino as u32,
            stat.st_size as u32,
        ];
        let is_same = [0, 4, 8, 12, 20, 36].into_iter().map(number).eq(fields.into_iter().map(Some));
        Ok(self.is_from_before(&stat) && is_same && modified < self.written)
    }

    fn is_from_before(&self, stat: &Stat) -> bool {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && !self.mounted.is_before(changed(stat))
    }

    /// The number of the copy.
    fn copy(&mut self, name: &Path) -> Option<usize> {
        let (number, bytes) = self.copied;
        if number >= MOST_COPIES || self.hidden.is_hidden(&self.at.join(name)) {
            return None;
        }
        let (parent, last) = beneath::parent(self.project.as_fd(), name).ok()?;
        let file = beneath::file(parent.as_fd(), last).ok()?;
        let most = diff::LARGEST.min(MOST_COPIED.saturating_sub(bytes));
        let mut content = Vec::new();
        (&file).take(most + 1).read_to_end(&mut content).ok()?;
        // After the reading: what was written meanwhile shows.
        if content.len() as u64 > most || !self.is_from_before(&rustix::fs::fstat(&file).ok()?) {
            return None;
        }
        if self.copies.is_none() {
            self.copies = staging::make(self.directory.as_fd(), COPIES).ok();
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let copy = rustix::fs::openat(self.copies.as_ref()?, number.to_string(), flags, mode).ok()?;
        std::fs::File::from(copy).write_all(&content).ok()?;
        self.copied = (number + 1, bytes + content.len() as u64);
        Some(number)
    }
}

/// What is known of a file of the project.
pub(crate) fn of(directory: BorrowedFd<'_>, path: &Path) -> Option<Began> {
    let list = read_file(directory, FILE, LARGEST_LIST).ok()?;
    let name = path.as_os_str().as_bytes();
    let mut lines = list
        .split(|byte| *byte == 0)
        .filter_map(|line| line.split_at_checked(line.iter().position(|byte| *byte == b' ')?));
    let (known, _) = lines.find(|(_, of)| of.strip_prefix(b" ") == Some(name))?;
    let known = std::str::from_utf8(known).ok()?;
    let Some(number) = known.strip_prefix('=') else { return Some(Began::Object(known.to_owned())) };
    let copies = beneath::directory(directory, Path::new(COPIES)).ok()?;
    read_file(copies.as_fd(), number, diff::LARGEST).ok().map(Began::Content)
}

fn changed(stat: &Stat) -> Time {
    Time(stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or(i64::MAX))
}

fn modified(stat: &Stat) -> Time {
    Time(stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(i64::MAX))
}
