//! A transaction whose upper layer begins as a copy of the project, for programs that rename directories (decision 0053). Owns making
//! the copy, its bounds, and the record of it by which `changes` tells what the session has touched. Called by `supervisor` before
//! the session begins and when it has ended.
//!
//! No process inside can set the time of a file's last change: what has the same number and the same such time at the same path as
//! when the copy was made was not written, renamed or given another mode since.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::attributes::OPAQUE;
use crate::beneath::{self, DEEPEST};
use crate::entry::{Entry, Kind, Time};
use crate::hidden::{Hidden, HiddenRule};
use crate::journal::{self, path_text};
use crate::staging::{copy_file_within, make};

/// In the slot, beside the layer.
const RECORD: &str = "copied.json";
/// A larger project is none that is copied at each start.
const MOST_NAMES: usize = 1 << 18;
/// Bytes that are written where the file system cannot share them between two files.
pub const MOST_BYTES: u64 = 4 << 30;

/// One name as the copy had it.
#[derive(Debug, Serialize, Deserialize)]
struct Name {
    #[serde(with = "path_text")]
    path: PathBuf,
    inode: u64,
    changed: Time,
    mode: u32,
}

/// What the layer was when the session began.
#[derive(Debug, Default)]
pub(crate) struct Copied(HashMap<PathBuf, Name>);

impl Copied {
    pub(crate) fn read(slot: BorrowedFd<'_>) -> Result<Self, Errno> {
        let names: Vec<Name> = journal::read(slot, RECORD)?.ok_or(Errno::NOENT)?;
        Ok(Copied(names.into_iter().map(|name| (name.path.clone(), name)).collect()))
    }

    pub(crate) fn has(&self, path: &Path) -> bool {
        self.0.contains_key(path)
    }

    pub(crate) fn is_untouched(&self, path: &Path, entry: &Entry) -> bool {
        self.0.get(path).is_some_and(|name| (name.inode, name.changed) == (entry.inode, entry.changed))
    }

    /// Of a directory: names in it come and go, and change its time.
    pub(crate) fn has_mode(&self, path: &Path, entry: &Entry) -> bool {
        self.0.get(path).is_some_and(|name| (name.inode, name.mode) == (entry.inode, entry.mode))
    }
}

struct Copying {
    hidden: Hidden,
    place: PathBuf,
    names: Vec<Name>,
    bytes: u64,
    shares: bool,
}

/// Fills the layer of a slot of this session with what lies at `place`. A name that the policy hides is there, empty, for its cover. What
/// this user cannot read, pipes, sockets, devices and other mounts are left out, and so is what lies deeper than changes are looked for.
pub fn fill(session: BorrowedFd<'_>, slot: usize, place: &Path, hidden: &[HiddenRule]) -> Result<(), Errno> {
    let slot = slot.to_string();
    let (lower, empty) = (beneath::root(place)?, beneath::directory(session, &Path::new(&slot).join("upper"))?);
    // Put in place as a whole: a part of a copy would look like a session that removed the rest.
    let name = format!("copying-{slot}");
    let whole = make(session, &name)?;
    let upper = make(whole.as_fd(), "upper")?;
    make(whole.as_fd(), "work")?;
    // What is not in the layer was removed: nothing shows through it.
    rustix::fs::fsetxattr(&upper, OPAQUE, b"y", XattrFlags::empty())?;
    let (hidden, place) = (Hidden::new(hidden), place.to_path_buf());
    let mut copying = Copying { hidden, place, names: Vec::new(), bytes: 0, shares: false };
    copying.directory(lower.as_fd(), upper.as_fd(), Path::new(""), 0)?;
    rustix::fs::fchmod(&upper, Mode::from_raw_mode(rustix::fs::fstat(&empty)?.st_mode))?;
    journal::write_plainly(whole.as_fd(), RECORD, &copying.names)?;
    rustix::fs::renameat_with(session, &name, session, &slot, RenameFlags::EXCHANGE)
}

impl Copying {
    fn directory(&mut self, from: BorrowedFd<'_>, into: BorrowedFd<'_>, at: &Path, depth: usize) -> Result<(), Errno> {
        for name in beneath::names(from, MOST_NAMES)? {
            let path = at.join(&name);
            // Gone since it was listed.
            let Some(entry) = Entry::at(from, &name)? else { continue };
            let is_hidden = self.hidden.is_hidden(&self.place.join(&path));
            let is_made = match entry.kind {
                Kind::Directory if is_hidden => rustix::fs::mkdirat(into, &name, Mode::empty()).map(|()| true)?,
                _ if is_hidden => stand_in(into, &name).map(|()| true)?,
                Kind::Directory if depth < DEEPEST => self.below(from, into, &name, &path, (&entry, depth))?,
                Kind::File => self.file(from, into, &name, &entry)?,
                Kind::Link => {
                    let target = entry.target.as_deref().ok_or(Errno::INVAL)?;
                    rustix::fs::symlinkat(target, into, &name).map(|()| true)?
                }
                _ => false,
            };
            if is_made {
                self.note(path, into, &name)?;
            }
        }
        Ok(())
    }

    fn below(
        &mut self,
        from: BorrowedFd<'_>,
        into: BorrowedFd<'_>,
        name: &OsStr,
        path: &Path,
        (entry, depth): (&Entry, usize),
    ) -> Result<bool, Errno> {
        let source = match beneath::directory(from, Path::new(name)) {
            Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(false),
            other => other?,
        };
        rustix::fs::mkdirat(into, name, Mode::RWXU)?;
        let copy = beneath::directory(into, Path::new(name))?;
        self.directory(source.as_fd(), copy.as_fd(), path, depth + 1)?;
        let time = Timespec { tv_sec: entry.modified.0, tv_nsec: entry.modified.1 };
        rustix::fs::futimens(&copy, &Timestamps { last_access: time, last_modification: time })?;
        rustix::fs::fchmod(&copy, Mode::from_raw_mode(entry.mode)).map(|()| true)
    }

    fn file(&mut self, from: BorrowedFd<'_>, into: BorrowedFd<'_>, name: &OsStr, entry: &Entry) -> Result<bool, Errno> {
        // The first file with content tells whether the file system shares it.
        let most = if self.shares { u64::MAX } else { MOST_BYTES.saturating_sub(self.bytes) };
        match copy_file_within(from, name, into, name, most) {
            Ok(is_shared) if entry.size > 0 => {
                self.shares = is_shared;
                self.bytes += if is_shared { 0 } else { entry.size };
                Ok(true)
            }
            Ok(_) => Ok(true),
            Err(Errno::ACCESS | Errno::NOENT | Errno::LOOP | Errno::INVAL) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn note(&mut self, path: PathBuf, into: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
        if self.names.len() == MOST_NAMES {
            return Err(Errno::FBIG);
        }
        let made = Entry::at(into, name)?.ok_or(Errno::NOENT)?;
        self.names.push(Name { path, inode: made.inode, changed: made.changed, mode: made.mode });
        Ok(())
    }
}

fn stand_in(into: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(into, name, flags, Mode::empty()).map(drop)
}

/// Whether the session has touched anything in the copy.
pub fn is_touched(slot: BorrowedFd<'_>) -> Result<bool, Errno> {
    let copied = Copied::read(slot)?;
    let (upper, _unclosed) = beneath::layer_directory(slot, "upper".as_ref())?;
    let mut count = 0;
    Ok(has_other(&copied, upper.as_fd(), Path::new(""), 0, &mut count)? || count != copied.0.len())
}

/// Whether there is something that was not copied, or is not as it was.
fn has_other(
    copied: &Copied,
    directory: BorrowedFd<'_>,
    at: &Path,
    depth: usize,
    count: &mut usize,
) -> Result<bool, Errno> {
    for name in beneath::names(directory, 1 << 20)? {
        let path = at.join(&name);
        let Some(entry) = Entry::at(directory, &name)? else { continue };
        let is_as_before = match entry.kind {
            Kind::Directory => copied.has_mode(&path, &entry),
            _ => copied.is_untouched(&path, &entry),
        };
        if !is_as_before || depth > DEEPEST {
            return Ok(true);
        }
        *count += 1;
        if entry.kind == Kind::Directory {
            let (opened, _unclosed) = beneath::layer_directory(directory, &name)?;
            if has_other(copied, opened.as_fd(), &path, depth + 1, count)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
