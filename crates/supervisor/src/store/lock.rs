//! Whether a session lives, told by a lock on a directory that is named after it: its supervisor holds the lock as long as
//! it runs, and the kernel lets go of it however the supervisor ends. No process number is ever compared, so none that
//! was given out again can deceive. Called by `session_dir` and `sweep`; a cgroup is a directory too.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// The lock on a directory, until it is dropped. No other process can claim the directory meanwhile.
#[derive(Debug)]
pub(crate) struct Claim(OwnedFd);

impl Claim {
    /// `None` if another process has it. What was claimed still has its name.
    pub(crate) fn take(parent: BorrowedFd<'_>, name: &Path) -> Result<Option<Self>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(parent, name, flags, Mode::empty())?;
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(None),
            other => other?,
        }
        // The process that had it before may have removed it between our look and our lock.
        let (ours, there) =
            (rustix::fs::fstat(&directory)?, rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?);
        if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino) {
            Ok(Some(Claim(directory)))
        } else {
            Err(Errno::NOENT)
        }
    }
}

impl AsFd for Claim {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
