//! What operators call their sessions. Owns which names there can be, and that of the sessions that run one alone has a name: a lock for
//! each, held as long as the session. Called by `cli` before a launch.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

use crate::state::make_all;

const LONGEST: usize = 64;

#[derive(Debug, Error)]
pub enum NameError {
    #[error("`{name}` can be no session's name")]
    NoName { name: String },
    #[error("a session called `{name}` runs already")]
    Taken { name: String },
    #[error("cannot keep the session's name in `{path}`", path = path.display())]
    Keep {
        path: PathBuf,
        #[source]
        source: Errno,
    },
}

/// Held until dropped, and by no other process than this one.
#[derive(Debug)]
pub struct Name {
    text: String,
    _lock: OwnedFd,
}

impl Name {
    pub fn claim(state: &Path, name: &str) -> Result<Name, NameError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        // `last` means the newest, and ids begin with their cell.
        // What could be the end of another session's id would be found before it.
        let is_id = name.len() >= 6 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_reserved = is_id || name == "last" || name.starts_with(['.', '-']) || name.starts_with("local-");
        if name.is_empty() || name.len() > LONGEST || is_reserved || !name.chars().all(is_plain) {
            return Err(NameError::NoName { name: name.to_owned() });
        }
        let directory = state.join("names");
        let path = directory.join(name);
        let failed = |source| NameError::Keep { path: path.clone(), source };
        make_all(&directory).map_err(failed)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(CWD, &path, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Name { text: name.to_owned(), _lock: lock }),
            Err(Errno::WOULDBLOCK) => Err(NameError::Taken { name: name.to_owned() }),
            Err(errno) => Err(failed(errno)),
        }
    }

    pub fn text(&self) -> String {
        self.text.clone()
    }
}
