//! Renaming between a stage and the host's tree. Owns what a user needs for it besides the two directories: the kernel lets an owner
//! move a directory to another one only while it may be written to, and a session may have left one that may not. Called by `steps`.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use cofferdam_kernel::best_effort;
use rustix::fs::{FileType, Mode, RenameFlags};
use rustix::io::Errno;

use crate::beneath;
use crate::entry::{Entry, Kind};

/// A name in a directory.
pub(crate) type At<'a> = (BorrowedFd<'a>, &'a OsStr);

/// As `renameat2`.
pub(crate) fn rename(from: At<'_>, to: At<'_>, flags: RenameFlags) -> Result<(), Errno> {
    let moved = || rustix::fs::renameat_with(from.0, from.1, to.0, to.1, flags);
    match moved() {
        Err(Errno::ACCESS) => {}
        other => return other,
    }
    let mut opened: Vec<(OwnedFd, Mode)> = Vec::new();
    for at in [from, to] {
        match beneath::opened_as_path(at.0, at.1) {
            Err(Errno::NOENT) => {}
            other => opened.extend(allow_writing(other?)?),
        }
    }
    let done = moved();
    for (directory, mode) in &opened {
        // It is what it was, wherever it lies now.
        let closed = rustix::fs::chmod(beneath::itself(directory), *mode);
        best_effort(closed, "one that has its place gets its mode again when the commit is gone on with");
    }
    done
}

fn allow_writing(directory: OwnedFd) -> Result<Option<(OwnedFd, Mode)>, Errno> {
    let stat = rustix::fs::fstat(&directory)?;
    let mode = Mode::from_raw_mode(stat.st_mode);
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory || mode.contains(Mode::WUSR) {
        return Ok(None);
    }
    rustix::fs::chmod(beneath::itself(&directory), mode | Mode::WUSR)?;
    Ok(Some((directory, mode)))
}

/// A directory that has its place keeps the mode with which it was staged, also where a process ended between two steps of `rename`.
pub(crate) fn settle(at: At<'_>, staged: Option<&Entry>) -> Result<(), Errno> {
    let Some(staged) = staged.filter(|staged| staged.kind == Kind::Directory) else { return Ok(()) };
    let directory = beneath::opened_as_path(at.0, at.1)?;
    let now = Entry::of(&rustix::fs::fstat(directory.as_fd())?);
    if now.inode == staged.inode && now.mode != staged.mode {
        rustix::fs::chmod(beneath::itself(&directory), Mode::from_raw_mode(staged.mode))?;
    }
    Ok(())
}
