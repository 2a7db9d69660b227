//! The directories in which a commit puts things together and keeps what it replaced: one in the transaction, and one beside each
//! tree that lies on another mount. Owns their names, opening them and removing them. Called by `commit` and `undo`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use crate::beneath;
use crate::journal::Staging;
use crate::remove_tree::Removal;

/// How long removing a layer or what was staged may take.
const LONGEST_REMOVAL: Duration = Duration::from_mins(10);

pub(crate) fn own_stage(number: usize) -> String {
    format!("commit-{number}")
}

/// The commits of a transaction so far, finished or not.
pub(crate) fn numbers(directory: BorrowedFd<'_>) -> Result<Vec<usize>, Errno> {
    let names = beneath::names(directory, 1 << 16)?;
    let number = |name: &std::ffi::OsString| name.to_str()?.strip_prefix("commit-")?.parse().ok();
    let mut numbers: Vec<usize> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Where operations find what was staged for them.
pub(crate) struct Stages {
    pub(crate) own: OwnedFd,
    pub(crate) beside: HashMap<usize, OwnedFd>,
}

impl Stages {
    pub(crate) fn open(
        directory: BorrowedFd<'_>,
        lowers: &[BorrowedFd<'_>],
        number: usize,
        staging: &Staging,
    ) -> Result<Self, Errno> {
        let own = beneath::directory(directory, Path::new(&own_stage(number)))?;
        let mut beside = HashMap::new();
        for (tree, name) in &staging.beside {
            let lower = lowers.get(*tree).ok_or(Errno::INVAL)?;
            match beneath::directory(*lower, Path::new(name)) {
                // It was removed when everything was done.
                Err(Errno::NOENT) => {}
                opened => {
                    beside.insert(*tree, opened?);
                }
            }
        }
        Ok(Stages { own, beside })
    }

    pub(crate) fn of(&self, tree: usize) -> BorrowedFd<'_> {
        self.beside.get(&tree).unwrap_or(&self.own).as_fd()
    }
}

pub(crate) fn remove_any(parent: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => remove(parent, name),
        other => other,
    }
}

/// Removes a directory with all that lies in it.
pub(crate) fn remove(parent: BorrowedFd<'_>, name: impl AsRef<Path>) -> Result<(), Errno> {
    let name = name.as_ref();
    let closed = match beneath::opened_as_path(parent, name.as_os_str()) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let stat = rustix::fs::fstat(&closed)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory && stat.st_mode & 0o700 != 0o700 {
        // It goes, also where a session closed it.
        rustix::fs::chmod(beneath::itself(&closed), Mode::RWXU)?;
    }
    let top = beneath::directory(parent, name)?;
    Removal::new(top, Vec::new())?.turn(Instant::now() + LONGEST_REMOVAL);
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
