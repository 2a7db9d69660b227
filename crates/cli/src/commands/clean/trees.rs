//! Directories that are measured and removed. Owns that nothing is touched that is a link, is another user's, or lies on another
//! file system; the removal itself is `workspace::remove_tree`'s. Called by `clean`.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_workspace::remove_tree::{Progress, Removal};
use rustix::fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What is measured; deeper and longer trees are removed all the same.
const DEEPEST: usize = 64;
const MOST_ENTRIES: u64 = 1_000_000;

/// The longest that one tree is removed for. What is left is told, and goes with the next call.
const LONGEST: Duration = Duration::from_mins(5);

/// A directory of this user's own; `None` where there is none.
pub(super) fn own(path: &Path) -> io::Result<Option<OwnedFd>> {
    let open = match rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP | Errno::NOTDIR) => {
            return Err(io::Error::other("is a link or no directory: it is left as it is"));
        }
        other => other?,
    };
    let stat = rustix::fs::fstat(&open)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("belongs to another user: it is left as it is"));
    }
    if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        return Err(io::Error::other("can be written by other users: it is left as it is"));
    }
    Ok(Some(open))
}

/// Bytes on the disk of a file or a tree, as far as it is measured. No link is followed.
pub(super) fn bytes(path: &Path) -> u64 {
    let Ok(stat) = rustix::fs::lstat(path) else { return 0 };
    let below = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())
            .map_or(0, |open| below(&open, DEEPEST, &mut MOST_ENTRIES.clone())),
        _ => 0,
    };
    on_disk(&stat) + below
}

fn on_disk(stat: &rustix::fs::Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0) * 512
}

fn below(directory: &OwnedFd, depth: usize, left: &mut u64) -> u64 {
    let Ok(entries) = Dir::read_from(directory) else { return 0 };
    let mut sum = 0;
    for entry in entries.flatten() {
        let name = entry.file_name();
        if *left == 0 || matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        *left -= 1;
        let Ok(stat) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        sum += on_disk(&stat);
        if depth > 0 && FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let open = rustix::fs::openat(directory, name, DIRECTORY, Mode::empty());
            sum += open.map_or(0, |open| below(&open, depth - 1, left));
        }
    }
    sum
}

/// Empties a directory and removes it, if it is this user's own and no process has a lock on it.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let Some(top) = own(path)? else { return Ok(()) };
    match rustix::fs::flock(&top, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Err(io::Error::other("a session or another command uses it")),
        other => other?,
    }
    empty(top.as_fd())?;
    Ok(rustix::fs::rmdir(path)?)
}

fn empty(top: BorrowedFd<'_>) -> io::Result<()> {
    let top = rustix::fs::openat(top, c".", DIRECTORY, Mode::empty())?;
    match Removal::new(top, Vec::new())?.turn(Instant::now() + LONGEST) {
        Progress::Done => Ok(()),
        Progress::OutOfTime => Err(io::Error::other("there is more in it than can be removed in five minutes")),
        Progress::Stuck => Err(io::Error::other("something in it cannot be removed")),
    }
}
