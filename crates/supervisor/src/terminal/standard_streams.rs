//! The session's three streams together: the relay of a terminal, output that is copied, input that is fed. Owns which of them
//! there are and the order at the end; each copies its own bytes. Driven by the loop.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use cofferdam_kernel::best_effort;
use cofferdam_kernel::signal::SignalFd;
use cofferdam_plan::Terminal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::stdio::stderr;

use crate::terminal::drain::{Drained, Patience};
use crate::terminal::input::{self, Input};
use crate::terminal::output::{self, Output};
use crate::terminal::relay::{self, Relay};

/// A pipe with room for a line takes it whole; a reader that is so far behind that there is none does not hold up the session.
fn tell_on_stderr(line: &str) {
    let mut fds = [PollFd::from_borrowed_fd(stderr(), PollFlags::OUT)];
    let ready = poll(&mut fds, Some(&Timespec::default()));
    if !matches!(ready, Ok(1)) || !fds[0].revents().contains(PollFlags::OUT) {
        return;
    }
    best_effort(rustix::io::write(stderr(), format!("{line}\n").as_bytes()), "a stream that is closed takes no line");
}

#[derive(Default)]
pub(crate) struct StandardStreams {
    pub(crate) relay: Option<Relay>,
    pub(crate) output: Option<Output>,
    /// A stdin that did not go in itself.
    pub(crate) input: Option<Input>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Terminal(relay::Ready),
    Output(output::Ready),
    Input(input::Ready),
}

impl StandardStreams {
    pub(crate) fn wanted(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags, Ready)> {
        let relayed = self.relay.iter().flat_map(Relay::wanted);
        let copied = self.output.iter().flat_map(Output::wanted);
        let fed = self.input.iter().filter_map(Input::wanted);
        let relayed = relayed.map(|(fd, flags, ready)| (fd, flags, Ready::Terminal(ready)));
        let copied = copied.map(|(fd, flags, ready)| (fd, flags, Ready::Output(ready)));
        relayed.chain(copied).chain(fed.map(|(fd, flags, ready)| (fd, flags, Ready::Input(ready))))
    }

    pub(crate) fn turn(&mut self, ready: Ready) -> Result<(), Errno> {
        match ready {
            Ready::Terminal(ready) => self.relay.as_mut().map_or(Ok(()), |relay| relay.turn(ready)),
            Ready::Output(ready) => self.output.as_mut().map_or(Ok(()), |output| output.turn(ready)),
            Ready::Input(ready) => self.input.as_mut().map_or(Ok(()), |input| input.turn(ready)),
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.relay.as_ref().and_then(Relay::deadline)
    }

    pub(crate) fn check_clock(&mut self, now: Instant) -> Result<(), Errno> {
        self.relay.as_mut().map_or(Ok(()), |relay| relay.check_clock(now))
    }

    /// A line for the operator, where errors go.
    pub(crate) fn tell(&mut self, line: &str, terminal: Terminal) -> Result<(), Errno> {
        match &mut self.relay {
            Some(relay) if terminal.stderr => relay.tell(line),
            _ => {
                tell_on_stderr(line);
                Ok(())
            }
        }
    }

    /// The user's terminal is as it was.
    pub(crate) fn leave_raw_mode(&mut self) -> Result<(), Errno> {
        self.relay.as_mut().map_or(Ok(()), Relay::leave_raw_mode)
    }

    /// Before this process stops with the command: what was written before, such as the echo of the stop key, belongs before
    /// the shell's next words.
    pub(crate) fn pause(&mut self) -> Result<(), Errno> {
        let Some(relay) = &mut self.relay else { return Ok(()) };
        relay.turn(relay::Ready::Inner)?;
        relay.pause_prompt()?;
        relay.turn(relay::Ready::Output)?;
        relay.leave_raw_mode()
    }

    /// No process inside reads any more.
    pub(crate) fn finish_input(&mut self) {
        if let Some(mut input) = self.input.take() {
            best_effort(input.finish(), "the caller's descriptor stays where it was");
        }
    }

    /// Passes on what lies in the buffers; what kept some of it from being read.
    pub(crate) fn drain(&mut self, signals: &SignalFd, patience: Patience) -> Result<Option<Drained>, Errno> {
        let shown = self.relay.as_mut().map(|relay| relay.drain(signals, patience)).transpose()?;
        let copied = self.output.as_mut().map(|output| output.drain(signals, patience)).transpose()?;
        Ok([shown, copied].into_iter().flatten().find(|drained| *drained != Drained::All))
    }

    /// Says on the streams that the rest was dropped, where the limit of output was exceeded.
    pub(crate) fn mark_dropped(&mut self) -> Result<bool, Errno> {
        let Some(output) = self.output.as_mut().filter(|output| output.allowance.is_exceeded()) else {
            return Ok(false);
        };
        if !output.mark()
            && let Some(relay) = &mut self.relay
        {
            relay.mark()?;
        }
        Ok(true)
    }
}
