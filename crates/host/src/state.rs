//! The directory where everything is kept that outlives a process: sessions, approvals, records, memories. Owns where it is and
//! making directories in it. Called by everything that writes there.

use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;

/// `$XDG_STATE_HOME/cofferdam`, where sessions, approvals and logs are kept.
pub fn state_dir(home: &Path, variable: Option<&str>) -> PathBuf {
    match variable {
        Some(dir) if dir.starts_with('/') => Path::new(dir).join("cofferdam"),
        _ => home.join(".local/state/cofferdam"),
    }
}

/// Where the directories of sessions are.
pub fn sessions_in(state: &Path) -> PathBuf {
    state.join("sessions")
}

/// Where the directories of ended sessions are whose overlays wait for a person.
pub fn kept_in(state: &Path) -> PathBuf {
    state.join("kept")
}

/// A directory and those above it, the owner's alone.
pub fn make_all(path: &Path) -> Result<(), Errno> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOENT) => {
            make_all(path.parent().ok_or(Errno::NOENT)?)?;
            match rustix::fs::mkdir(path, Mode::RWXU) {
                // Another first session started at the same time.
                Err(Errno::EXIST) => Ok(()),
                other => other,
            }
        }
        Err(errno) => Err(errno),
    }
}
