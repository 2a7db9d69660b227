//! Where a transaction stands. Owns the states, which of them may follow which, and the file that says so; what is done on
//! the way is `transaction`'s.
//!
//! ```text
//!            the session ended           a process looks            a commit begins           nothing is left
//!   open ────────────────────> sealed ────────────────> reviewing ─────────────────> committing ───────────> committed
//!    │                         │  ^                         │                            │
//!    │ the machine went        │  └─────────────────────────┴── something is left ───────┘
//!    │ down meanwhile          │ dropped
//!    v                         v
//!   lost                   rolled-back       (a commit that is taken back: from committed or sealed to reviewing)
//! ```
//!
//! What is written into an overlay is not made durable while the session runs (`volatile`). So a transaction is `sealed` only by
//! this file, which is written after everything else has reached the disk; one that was open when the machine went
//! down is lost, and says so. The host's tree is untouched in every state but the last but one, where the journal says what was done.

use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

const FILE: &str = "state";
const NEXT: &str = "state.next";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Open,
    Sealed,
    Reviewing,
    Committing,
    Committed,
    RolledBack,
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The session has ended, and everything that it wrote is on the disk.
    Seal,
    /// The machine went down before that.
    Lose,
    Review,
    /// The review, or the commit, is over and there is something left.
    Leave,
    Commit,
    /// Nothing is left to commit.
    Complete,
    /// A commit is to be taken back.
    Undo,
    Drop,
}

impl State {
    /// `None` where that cannot happen in this state.
    pub fn after(self, event: Event) -> Option<State> {
        match (self, event) {
            (State::Open, Event::Seal) => Some(State::Sealed),
            (State::Open, Event::Lose) => Some(State::Lost),
            (State::Sealed | State::Reviewing, Event::Review) => Some(State::Reviewing),
            (State::Sealed | State::Reviewing | State::Committed, Event::Undo) => Some(State::Reviewing),
            (State::Reviewing, Event::Commit) => Some(State::Committing),
            (State::Reviewing | State::Committing, Event::Leave) => Some(State::Sealed),
            (State::Committing, Event::Complete) => Some(State::Committed),
            (State::Sealed | State::Reviewing | State::Lost, Event::Drop) => Some(State::RolledBack),
            _ => None,
        }
    }

    /// Whether something in it waits for a person.
    pub fn waits(self) -> bool {
        matches!(self, State::Open | State::Sealed | State::Reviewing | State::Committing | State::Lost)
    }

    pub fn name(self) -> &'static str {
        match self {
            State::Open => "open",
            State::Sealed => "sealed",
            State::Reviewing => "reviewing",
            State::Committing => "committing",
            State::Committed => "committed",
            State::RolledBack => "rolled-back",
            State::Lost => "lost",
        }
    }

    fn named(name: &str) -> Option<State> {
        use State::{Committed, Committing, Lost, Open, Reviewing, RolledBack, Sealed};
        [Open, Sealed, Reviewing, Committing, Committed, RolledBack, Lost]
            .into_iter()
            .find(|state| state.name() == name)
    }

    /// What the directory of a transaction says. Without a word of its own it is open.
    pub(crate) fn read(directory: BorrowedFd<'_>) -> Result<State, Errno> {
        let text = match read_file(directory, FILE, 64) {
            Err(Errno::NOENT) => return Ok(State::Open),
            other => other?,
        };
        let name = std::str::from_utf8(&text).map_err(|_| Errno::INVAL)?;
        State::named(name.trim()).ok_or(Errno::INVAL)
    }

    pub(crate) fn write(self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        write_durably(directory, NEXT, FILE, format!("{}\n", self.name()).as_bytes())
    }
}

/// A file that is there as a whole or not at all, whatever ends this process or the machine.
pub(crate) fn write_durably(directory: BorrowedFd<'_>, next: &str, name: &str, text: &[u8]) -> Result<(), Errno> {
    let mut file = create_anew(directory, next)?;
    file.write_all(text).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    rustix::fs::fsync(&file)?;
    rustix::fs::renameat(directory, next, directory, name)?;
    rustix::fs::fsync(directory.as_fd())
}

/// A file that did not exist: what had the name goes, unless it is a directory. Never opens what another process has put there, which
/// may be a pipe that no process reads.
pub(crate) fn create_anew(directory: BorrowedFd<'_>, name: &str) -> Result<std::fs::File, Errno> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// A file of our own; more than `most` bytes are none.
pub(crate) fn read_file(directory: BorrowedFd<'_>, name: &str, most: u64) -> Result<Vec<u8>, Errno> {
    use std::io::Read as _;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::openat(directory, name, flags, Mode::empty())?);
    if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let mut text = Vec::new();
    file.take(most + 1).read_to_end(&mut text).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    if text.len() as u64 > most { Err(Errno::FBIG) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 7] = [
        State::Open,
        State::Sealed,
        State::Reviewing,
        State::Committing,
        State::Committed,
        State::RolledBack,
        State::Lost,
    ];
    const EVENTS: [Event; 8] = [
        Event::Seal,
        Event::Lose,
        Event::Review,
        Event::Leave,
        Event::Commit,
        Event::Complete,
        Event::Undo,
        Event::Drop,
    ];

    #[test]
    fn what_ended_stays_ended_and_nothing_is_committed_without_a_review() {
        for state in STATES {
            for event in EVENTS {
                let next = state.after(event);
                if matches!(state, State::Committed | State::RolledBack) {
                    let is_undone = (state, event) == (State::Committed, Event::Undo);
                    assert_eq!(next, is_undone.then_some(State::Reviewing), "{state:?} {event:?}");
                }
                if next == Some(State::Committing) {
                    assert_eq!(state, State::Reviewing);
                }
                if state == State::Lost {
                    assert!(next.is_none() || next == Some(State::RolledBack));
                }
            }
        }
    }

    #[test]
    fn every_state_is_read_as_it_was_written() {
        for state in STATES {
            assert_eq!(State::named(state.name()), Some(state));
        }
    }
}
