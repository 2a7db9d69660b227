//! One writer of policies at a time. Owns the lock file and how long a writer waits for it. Called by `persist` and
//! `sandbox trust`.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

use super::text::WriteError;

/// In the state directory.
const LOCK: &str = "policy.lock";
const LOCK_STEP: Duration = Duration::from_millis(20);
const LOCK_STEPS: u32 = 500;

#[derive(Debug, Error)]
pub enum LockError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("another process has been writing policies for too long")]
    Busy,
}

/// Held until dropped.
#[derive(Debug)]
pub struct Lock {
    _file: OwnedFd,
}

impl Lock {
    /// For what this user approves and writes. It lies in the state directory, which nothing inside a sandbox can open.
    pub fn of_user(state: &Path) -> Result<Self, LockError> {
        Lock::take(&state.join(LOCK))
    }

    /// For the organisation's file. It lies beside the file and is readable for its owner alone: a process that can hold a
    /// lock can keep others waiting.
    pub fn beside(file: &Path) -> Result<Self, LockError> {
        Lock::take(&file.with_file_name(".policy.lock"))
    }

    fn take(path: &Path) -> Result<Self, LockError> {
        let failed = |source: std::io::Error| WriteError { path: path.to_path_buf(), source };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR).map_err(|errno| failed(errno.into()))?;
        for _ in 0..LOCK_STEPS {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(LOCK_STEP),
                Err(errno) => return Err(failed(errno.into()).into()),
            }
        }
        Err(LockError::Busy)
    }
}
