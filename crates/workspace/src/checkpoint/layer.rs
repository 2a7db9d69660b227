//! What an upper layer holds, name by name, and how it is looked at: what is as it was at the look before is not read again. Owns the
//! form in which a layer is remembered and the bounds of a look. Used by `checkpoint`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::beneath::{self, DEEPEST};
use crate::changes::{MOST_ENTRIES, is_opaque, is_same_file};
use crate::entry::{Entry, Kind, Time};
use crate::journal::path_text;
use crate::origins;
use crate::staging::copy_file_within;

/// Content that one checkpoint copies; a session that changes more between two of them has none of it.
pub(super) const MOST_BYTES: u64 = 4 << 30;
/// A time of change says nothing about writes in the same tick of the clock. No kernel has slower ones.
const TICK_NANOSECONDS: i64 = 20_000_000;

/// Names of a layer, and bytes of their paths, all of which the supervisor remembers: a layer with more has no checkpoints.
const MOST_NAMES: usize = 1 << 17;
const MOST_TEXT: usize = 1 << 25;

/// Bytes of a path below which nothing is looked at.
const LONGEST: usize = 3_500;
/// Apparent size of a file that is in no checkpoint: a sparse one costs the workload nothing.
const LARGEST: u64 = 1 << 30;

/// The copy of a file: the checkpoint that made it, and its number there.
pub(crate) type Copy = (usize, usize);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Held {
    File {
        copy: Copy,
        mode: u32,
        inode: u64,
        changed: Time,
        /// No later write can have this time.
        is_settled: bool,
        /// It began as a copy of what the tree below has.
        #[serde(default)]
        was_below: bool,
    },
    Link {
        #[serde(with = "path_text")]
        target: PathBuf,
    },
    Directory {
        mode: u32,
        is_opaque: bool,
        #[serde(default)]
        was_below: bool,
    },
    Whiteout,
}

impl Held {
    pub(crate) fn copy(&self) -> Option<Copy> {
        match self {
            Held::File { copy, .. } => Some(*copy),
            _ => None,
        }
    }

    /// Whether the host has removed what the tree below does not have.
    pub(crate) fn was_below(&self) -> bool {
        matches!(self, Held::File { was_below: true, .. } | Held::Directory { was_below: true, .. })
    }

    /// Whether both put the same in place.
    pub(crate) fn is_like(&self, other: &Held) -> bool {
        match (self, other) {
            (Held::File { copy, mode, .. }, Held::File { copy: of, mode: with, .. }) => (copy, mode) == (of, with),
            (Held::Directory { mode, is_opaque, .. }, Held::Directory { mode: with, is_opaque: hides, .. }) => {
                (mode, is_opaque) == (with, hides)
            }
            _ => self == other,
        }
    }
}

pub(crate) type Layer = BTreeMap<PathBuf, Held>;

/// For a look that copies nothing: whether anything may have changed.
pub(super) fn is_alike(before: &Layer, now: &Layer) -> bool {
    before.len() == now.len() && before.iter().zip(now).all(|((path, held), (at, now))| path == at && held.is_like(now))
}

/// Where content is copied to.
pub(super) struct Copies<'a> {
    pub(super) store: BorrowedFd<'a>,
    pub(super) part: BorrowedFd<'a>,
    pub(super) number: usize,
    pub(super) next: usize,
    pub(super) bytes: u64,
    pub(super) most: u64,
}

/// Stands for content that was not copied.
const NOT_COPIED: Copy = (usize::MAX, 0);

pub(super) struct Scan<'a> {
    before: &'a Layer,
    is_hidden: &'a dyn Fn(&Path) -> bool,
    /// Names that were put back and began as copies of what the tree below has.
    origins: &'a HashSet<PathBuf>,
    pub(super) copies: Option<Copies<'a>>,
    pub(super) found: Layer,
    /// Files with several names that were met.
    linked: HashMap<u64, Held>,
    /// Nothing that changed after it is settled.
    settled: Time,
    text: usize,
}

impl<'a> Scan<'a> {
    pub(super) fn new(before: &'a Layer, is_hidden: &'a dyn Fn(&Path) -> bool, origins: &'a HashSet<PathBuf>) -> Self {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let nanoseconds = now.tv_nsec - TICK_NANOSECONDS;
        let settled = if nanoseconds < 0 {
            Time(now.tv_sec - 1, nanoseconds + 1_000_000_000)
        } else {
            Time(now.tv_sec, nanoseconds)
        };
        let (found, linked) = (Layer::new(), HashMap::new());
        Scan { before, is_hidden, origins, copies: None, found, linked, settled, text: 0 }
    }

    pub(super) fn all(&mut self, upper: BorrowedFd<'_>, copies: Option<Copies<'a>>) -> Result<(), Errno> {
        self.copies = copies;
        self.directory(upper, Path::new(""), 0)
    }

    fn directory(&mut self, directory: BorrowedFd<'_>, at: &Path, depth: usize) -> Result<(), Errno> {
        if depth > DEEPEST || at.as_os_str().len() > LONGEST {
            // As in a listing: what lies there stays as it is.
            return Ok(());
        }
        for name in beneath::names(directory, MOST_ENTRIES)? {
            let path = at.join(&name);
            if (self.is_hidden)(&path) {
                continue;
            }
            self.text += path.as_os_str().len();
            if self.found.len() >= MOST_NAMES || self.text > MOST_TEXT {
                return Err(Errno::OVERFLOW);
            }
            // Gone since it was listed: the next look does not find it either.
            let Some(entry) = Entry::at(directory, &name)? else { continue };
            match entry.kind {
                _ if entry.is_whiteout => drop(self.found.insert(path, Held::Whiteout)),
                Kind::Link => {
                    let target = entry.target.unwrap_or_default();
                    self.found.insert(path, Held::Link { target });
                }
                Kind::File if entry.size > LARGEST => {}
                Kind::File => {
                    if let Some(held) = self.file(directory, &name, &path, &entry)? {
                        self.found.insert(path, held);
                    }
                }
                Kind::Directory => {
                    let (opened, _unclosed) = match beneath::layer_directory(directory, &name) {
                        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                        other => other?,
                    };
                    let was_below = self.origins.contains(&path) || origins::is_marked_directory(&opened);
                    let held = Held::Directory { mode: entry.mode, is_opaque: is_opaque(opened.as_fd()), was_below };
                    self.found.insert(path.clone(), held);
                    self.directory(opened.as_fd(), &path, depth + 1)?;
                }
                // Pipes, sockets and devices mean something to running processes only.
                Kind::Device | Kind::Fifo | Kind::Socket => {}
            }
        }
        Ok(())
    }

    fn file(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &OsStr,
        path: &Path,
        entry: &Entry,
    ) -> Result<Option<Held>, Errno> {
        if let Some(held) = self.linked.get(&entry.inode).filter(|_| entry.links > 1) {
            return Ok(Some(held.clone()));
        }
        let before = match self.before.get(path) {
            Some(Held::File { copy, mode, inode, changed, is_settled, was_below }) => {
                // Another file of the same content may have had another name besides.
                (*inode == entry.inode).then_some((*copy, *mode, *changed == entry.changed && *is_settled, *was_below))
            }
            _ => None,
        };
        let was_below = match before {
            Some((_, _, true, was_below)) => was_below,
            _ => self.origins.contains(path) || origins::is_marked(directory, name),
        };
        let is_settled = entry.changed < self.settled;
        let held = |copy: Copy| {
            let (mode, inode, changed) = (entry.mode, entry.inode, entry.changed);
            Held::File { copy, mode, inode, changed, is_settled, was_below }
        };
        let held = match before {
            Some((copy, _, true, _)) => held(copy),
            // Without reading it cannot be told.
            _ if self.copies.is_none() => held(NOT_COPIED),
            Some((copy, mode, _, _)) if mode == entry.mode && self.is_stored(directory, name, copy) => held(copy),
            _ => match self.copied(directory, name, entry) {
                // Gone, or another thing by now.
                Err(Errno::NOENT | Errno::LOOP | Errno::INVAL) => return Ok(None),
                other => {
                    let (copy, changed) = other?;
                    // One that was opened for it may have been written to meanwhile.
                    let is_settled = is_settled && changed == entry.changed;
                    let (mode, inode) = (entry.mode, entry.inode);
                    Held::File { copy, mode, inode, changed, is_settled, was_below }
                }
            },
        };
        if entry.links > 1 {
            self.linked.insert(entry.inode, held.clone());
        }
        Ok(Some(held))
    }

    fn is_stored(&self, directory: BorrowedFd<'_>, name: &OsStr, copy: Copy) -> bool {
        let Some(copies) = &self.copies else { return false };
        copies.open(copy).is_ok_and(|(stored, number)| is_same_file((directory, name), (stored.as_fd(), &number)))
    }

    fn copied(&mut self, directory: BorrowedFd<'_>, name: &OsStr, entry: &Entry) -> Result<(Copy, Time), Errno> {
        let copies = self.copies.as_mut().ok_or(Errno::INVAL)?;
        if entry.size > copies.most.saturating_sub(copies.bytes) {
            return Err(Errno::FBIG);
        }
        let number = copies.next;
        copies.next += 1;
        let into = number.to_string();
        let most = copies.most.saturating_sub(copies.bytes);
        let copy = || copy_file_within(directory, name, copies.part, OsStr::new(&into), most).map(drop);
        let changed = match copy() {
            // The workload closed it to its owner.
            Err(Errno::ACCESS) => {
                beneath::with_reading(directory, name, copy)?;
                // Opening it was a change.
                Entry::at(directory, name)?.ok_or(Errno::NOENT)?.changed
            }
            other => other.map(|()| entry.changed)?,
        };
        // What it was is in the record; the copy is read again.
        rustix::fs::chmodat(copies.part, &into, Mode::RUSR | Mode::WUSR, AtFlags::empty())?;
        copies.bytes += Entry::at(copies.part, OsStr::new(&into))?.map_or(0, |copy| copy.size);
        Ok(((copies.number, number), changed))
    }
}

impl Copies<'_> {
    fn open(&self, (checkpoint, file): Copy) -> Result<(std::os::fd::OwnedFd, std::ffi::OsString), Errno> {
        let directory = if checkpoint == self.number {
            rustix::fs::openat(
                self.part,
                ".",
                rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
                Mode::empty(),
            )?
        } else {
            beneath::directory(self.store, Path::new(&checkpoint.to_string()))?
        };
        Ok((directory, file.to_string().into()))
    }
}
