//! Sessions whose supervisor was killed leave their directories: the next session finishes them as they would have
//! (docs/decisions/0016). Owns finding them and going on in small slices while there is nothing else to do. Called by the
//! supervisor's loop, never before the child builds its root.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_host::state::sessions_in;
use rustix::fs::{CWD, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::store::lock::Claim;
use crate::store::session_dir::Ending;
use cofferdam_workspace::remove_tree::Progress;

/// The longest that whatever the loop waits for has to wait.
const SLICE: Duration = Duration::from_micros(500);

/// The longest that one session works for others.
const MOST: Duration = Duration::from_secs(2);

/// Leftovers of other sessions, as far as they were found.
#[derive(Debug)]
pub(crate) struct Sweep {
    state: PathBuf,
    /// The session that sweeps: no leftover.
    own: String,
    spent: Duration,
    at: At,
}

#[derive(Debug)]
enum At {
    Beginning,
    Looking(Sessions),
    Ending(Sessions, Box<Ending>),
}

/// The list of sessions. Its lock keeps away every other supervisor that would sweep: many sessions start at the same time.
#[derive(Debug)]
struct Sessions {
    _lock: OwnedFd,
    entries: Dir,
}

impl Sweep {
    pub(crate) fn new(state: &Path, own: &str) -> Self {
        Sweep { state: state.to_path_buf(), own: own.to_owned(), spent: Duration::ZERO, at: At::Beginning }
    }

    /// Goes on for a moment; `None` when there is nothing more to do. What goes wrong is left for the next session.
    /// What was finished is told to `finished`.
    pub(crate) fn turn(mut self, finished: &mut dyn FnMut(&Path)) -> Option<Self> {
        let started = Instant::now();
        while started.elapsed() < SLICE {
            self.at = self.step(started + SLICE, finished)?;
        }
        self.spent += started.elapsed();
        (self.spent < MOST).then_some(self)
    }

    fn step(&mut self, until: Instant, finished: &mut dyn FnMut(&Path)) -> Option<At> {
        match std::mem::replace(&mut self.at, At::Beginning) {
            At::Beginning => Sessions::open(&self.state).ok().map(At::Looking),
            At::Looking(mut sessions) => {
                let id = sessions.next(&self.own)?;
                let claim = Claim::take(sessions.entries.fd().ok()?.as_fd(), &id);
                // One that lives, or that ended a moment ago.
                let Ok(Some(claim)) = claim else { return Some(At::Looking(sessions)) };
                Some(match Ending::begin(&self.state, id, claim) {
                    Ok(ending) => At::Ending(sessions, Box::new(ending)),
                    Err(_) => At::Looking(sessions),
                })
            }
            At::Ending(sessions, mut ending) => Some(match ending.turn(until) {
                Ok(Progress::OutOfTime) => At::Ending(sessions, ending),
                Ok(Progress::Done) => {
                    finished(ending.id());
                    At::Looking(sessions)
                }
                Ok(Progress::Stuck) | Err(_) => At::Looking(sessions),
            }),
        }
    }
}

/// Finishes what killed sessions left, for a client that wants to work on it now.
pub fn finish_killed(state: &Path) {
    let mut sweep = Some(Sweep::new(state, ""));
    while let Some(going) = sweep {
        sweep = going.turn(&mut |_| ());
    }
}

impl Sessions {
    fn open(state: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(CWD, sessions_in(state), flags, Mode::empty())?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let entries = Dir::new(rustix::fs::openat(&lock, c".", flags, Mode::empty())?)?;
        Ok(Sessions { _lock: lock, entries })
    }

    fn next(&mut self, own: &str) -> Option<PathBuf> {
        loop {
            let entry = self.entries.read()?.ok()?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") && name != own.as_bytes() {
                return Some(PathBuf::from(OsStr::from_bytes(name)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
