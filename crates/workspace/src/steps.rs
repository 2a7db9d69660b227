//! One operation of a commit: a rename, or the mode of a directory. Owns how it is told whether the operation was carried out
//! already and whether the host has changed what it is about, and how it is reversed. Called by `commit`, which keeps the journal.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, RenameFlags};
use rustix::io::Errno;

use crate::beneath::{self, DEEPEST};
use crate::commit::Place;
use crate::entry::{Entry, Kind, PERMISSIONS};
use crate::journal::{Action, Below, Operation};
use crate::moves;
use crate::sums;

impl Place<'_> {
    /// `false` where the host has changed what has the name.
    pub(crate) fn apply(&self, operation: &Operation, stage: BorrowedFd<'_>, number: &str) -> Result<bool, Errno> {
        let lower = self.trees.get(operation.tree).ok_or(Errno::INVAL)?.lower.as_fd();
        let (parent, name) = match beneath::parent(lower, &operation.path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(false),
            other => other?,
        };
        let (place, waits) = ((parent.as_fd(), name), (stage, OsStr::new(number)));
        let target = Entry::at(parent.as_fd(), name)?;
        let staged = operation.staged.as_ref();
        let is_ours = |entry: &Entry| staged.is_some_and(|staged| is_same_inode(entry, staged));
        let is_base = |entry: &Entry| operation.base.as_ref().is_some_and(|base| entry.is_still(base));
        let waiting = Entry::at(stage, OsStr::new(number))?;
        match &operation.action {
            Action::Create => match (&target, &waiting) {
                (Some(target), None) if is_ours(target) => moves::settle(place, staged).map(|()| true),
                (None, Some(_)) => match moves::rename(waits, place, RenameFlags::NOREPLACE) {
                    Err(Errno::EXIST) => Ok(false),
                    other => other.map(|()| true),
                },
                _ => Ok(false),
            },
            Action::Exchange => match &target {
                Some(target) if is_ours(target) => moves::settle(place, staged).map(|()| true),
                Some(target) if is_base(target) => {
                    let exchange = || moves::rename(waits, place, RenameFlags::EXCHANGE);
                    exchange()?;
                    // What came out is looked at: it may have been put there after the look before.
                    let is_right = Entry::at(stage, OsStr::new(number))?.as_ref().is_some_and(is_base)
                        && has_only(stage, number, operation.below)?
                        && has_sum(stage, number, operation.base_sum)?;
                    if !is_right {
                        exchange()?;
                    }
                    Ok(is_right)
                }
                _ => Ok(false),
            },
            Action::Remove => match (&target, &waiting) {
                (None, _) => Ok(true),
                (Some(_), Some(_)) => Ok(false),
                (Some(target), None) if is_base(target) => {
                    match moves::rename(place, waits, RenameFlags::NOREPLACE) {
                        // Something is mounted there.
                        Err(Errno::BUSY | Errno::XDEV) => return Ok(false),
                        other => other?,
                    }
                    let is_right = Entry::at(stage, OsStr::new(number))?.as_ref().is_some_and(is_base)
                        && has_only(stage, number, operation.below)?
                        && has_sum(stage, number, operation.base_sum)?;
                    if !is_right {
                        moves::rename(waits, place, RenameFlags::NOREPLACE)?;
                    }
                    Ok(is_right)
                }
                _ => Ok(false),
            },
            Action::SetMode { to } => set_mode(&parent, name, target, operation.base.as_ref(), *to),
        }
    }

    /// Undoes one operation that was carried out, where what it put in place is still there.
    pub(crate) fn reverse(&self, operation: &Operation, stage: BorrowedFd<'_>, number: &str) -> Result<bool, Errno> {
        let lower = self.trees.get(operation.tree).ok_or(Errno::INVAL)?.lower.as_fd();
        let (parent, name) = match beneath::parent(lower, &operation.path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(false),
            other => other?,
        };
        let (place, waits) = ((parent.as_fd(), name), (stage, OsStr::new(number)));
        let target = Entry::at(parent.as_fd(), name)?;
        let waiting = Entry::at(stage, OsStr::new(number))?;
        let is_ours = target
            .as_ref()
            .zip(operation.staged.as_ref())
            .is_some_and(|(target, staged)| is_same_inode(target, staged));
        match (&operation.action, &target, &waiting) {
            (Action::Create, Some(_), None) if is_ours => {
                moves::rename(place, waits, RenameFlags::NOREPLACE)?;
                Ok(true)
            }
            (Action::Exchange, Some(_), Some(_)) if is_ours => {
                moves::rename(waits, place, RenameFlags::EXCHANGE)?;
                Ok(true)
            }
            (Action::Remove, None, Some(_)) => {
                moves::rename(waits, place, RenameFlags::NOREPLACE)?;
                Ok(true)
            }
            (Action::Remove, None, None) => Ok(true),
            (Action::SetMode { to }, Some(now), _) => {
                let from = Entry { mode: *to, ..now.clone() };
                let back = operation.base.as_ref().map_or(*to, |base| base.mode);
                set_mode(&parent, name, target.clone(), Some(&from), back)
            }
            _ => Ok(false),
        }
    }
}

/// Whether a directory that came out holds what was looked at, and nothing that the host wrote there since.
fn has_only(stage: BorrowedFd<'_>, number: &str, below: Option<Below>) -> Result<bool, Errno> {
    let Some(below) = below else { return Ok(true) };
    let mut left = vec![beneath::directory(stage, Path::new(number))?];
    let mut names = 0;
    while let Some(directory) = left.pop() {
        for name in beneath::names(directory.as_fd(), 1 << 20)? {
            let Some(entry) = Entry::at(directory.as_fd(), &name)? else { continue };
            names += 1;
            if names > below.names || below.newest.is_none_or(|newest| entry.changed > newest) {
                return Ok(false);
            }
            if entry.kind == Kind::Directory {
                left.push(beneath::directory(directory.as_fd(), Path::new(&name))?);
            }
        }
    }
    Ok(names == below.names)
}

/// Whether a directory holds what a commit has put there.
fn has_sum(parent: BorrowedFd<'_>, name: &str, sum: Option<u64>) -> Result<bool, Errno> {
    let Some(sum) = sum else { return Ok(true) };
    Ok(sums::identity(parent, OsStr::new(name), DEEPEST)? == sum)
}

fn set_mode(
    parent: &OwnedFd,
    name: &OsStr,
    target: Option<Entry>,
    base: Option<&Entry>,
    to: u32,
) -> Result<bool, Errno> {
    let (Some(target), Some(base)) = (target, base) else { return Ok(false) };
    if target.kind != Kind::Directory || !is_same_inode(&target, base) {
        return Ok(false);
    }
    if target.mode == to {
        return Ok(true);
    }
    if target.mode != base.mode {
        return Ok(false);
    }
    let directory = beneath::opened_as_path(parent.as_fd(), name)?;
    // Set-group-ID and sticky are the host's to set and to keep.
    let kept = rustix::fs::fstat(&directory)?.st_mode & 0o7777 & !PERMISSIONS;
    let mode = Mode::from_raw_mode(to & PERMISSIONS | kept);
    rustix::fs::chmodat(CWD, beneath::itself(&directory), mode, AtFlags::empty())?;
    Ok(true)
}

fn is_same_inode(one: &Entry, other: &Entry) -> bool {
    (one.kind, one.inode) == (other.kind, other.inode)
}
