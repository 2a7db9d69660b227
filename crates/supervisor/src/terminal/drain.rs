//! Waiting for a reader of the session's last words, when every process inside is gone already. Owns how long, and what ends
//! the wait besides; whose words they are is `output`'s and `relay`'s business.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use cofferdam_kernel::signal::SignalFd;
use cofferdam_kernel::timing::time_until;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;

/// How long the end of a session waits for a reader of its last words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As any program waits: until the session's time is over, if that is limited.
    Until(Option<Instant>),
    /// The session was to end already: only while something is read.
    WhileRead(Duration),
}

/// Whether the last words were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drained {
    All,
    OutOfTime,
    /// The user or another process asked this one to end.
    Asked(Signal),
}

/// Waiting at the end of a session, with its clock and its signals.
pub(crate) struct Waiting {
    patience: Patience,
    until: Option<Instant>,
}

impl Waiting {
    pub(crate) fn new(patience: Patience) -> Self {
        let mut waiting = Waiting { patience, until: None };
        waiting.moved();
        waiting
    }

    /// Something was read.
    pub(crate) fn moved(&mut self) {
        self.until = match self.patience {
            Patience::Until(until) => until,
            Patience::WhileRead(pause) => Some(Instant::now() + pause),
        };
    }

    /// Waits until one of the sinks has room; else says why not.
    pub(crate) fn for_room(&self, sinks: &[BorrowedFd<'_>], signals: &SignalFd) -> Result<Option<Drained>, Errno> {
        let mut fds = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        fds.extend(sinks.iter().map(|sink| PollFd::from_borrowed_fd(*sink, PollFlags::OUT)));
        match poll(&mut fds, self.until.map(time_until).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        if fds[1..].iter().any(|fd| !fd.revents().is_empty()) {
            return Ok(None);
        }
        if !fds[0].revents().is_empty()
            && let Some(signal) = asked_to_end(signals)?
        {
            return Ok(Some(Drained::Asked(signal)));
        }
        let is_late = self.until.is_some_and(|until| Instant::now() >= until);
        Ok(is_late.then_some(Drained::OutOfTime))
    }
}

pub(crate) fn asks_to_end(signal: Signal) -> bool {
    matches!(signal, Signal::TERM | Signal::HUP | Signal::INT | Signal::QUIT)
}

fn asked_to_end(signals: &SignalFd) -> Result<Option<Signal>, Errno> {
    let mut asked = None;
    while let Some(number) = signals.read()? {
        asked = asked.or(Signal::from_named_raw(number).filter(|signal| asks_to_end(*signal)));
    }
    Ok(asked)
}
