//! The client's side of a command that joined a session: its terminal, its signals, its exit code. Owns the loop in the
//! client's process; the other end of the channel is `attach`'s. Called by `cli`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use cofferdam_kernel::signal::{self, SignalFd};
use cofferdam_kernel::socket;
use cofferdam_plan::Terminal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::attach::word;
use crate::message::best_effort;
use crate::patience::{Patience, time_until};
use crate::relay::{self, Relay};
use crate::terminal::Outer;

/// How it went.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VisitEnd {
    /// None where the session ended first and nobody was left to say.
    pub code: Option<u8>,
    /// What could not be done.
    pub failure: Option<String>,
}

/// A command that is to be started in a session.
#[derive(Debug)]
pub struct Visit {
    channel: OwnedFd,
    descriptors: [OwnedFd; 4],
    terminal: Terminal,
}

/// What woke the loop up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    Signal,
    Channel,
    Terminal(relay::Ready),
}

impl Visit {
    /// With the streams of this process. A terminal is never handed over.
    pub fn new() -> Result<Visit, Errno> {
        let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let [stdin, stdout, stderr] = streams.map(rustix::termios::isatty);
        let (channel, theirs) = socket::pair()?;
        let hand_over = |stream: BorrowedFd<'_>, is_terminal: bool| {
            if is_terminal {
                let flags = OFlags::RDWR | OFlags::CLOEXEC;
                return rustix::fs::openat(CWD, c"/dev/null", flags, Mode::empty());
            }
            rustix::io::fcntl_dupfd_cloexec(stream, 3)
        };
        let [input, output, error] = streams;
        let descriptors = [hand_over(input, stdin)?, hand_over(output, stdout)?, hand_over(error, stderr)?, theirs];
        Ok(Visit { channel, descriptors, terminal: Terminal { stdin, stdout, stderr } })
    }

    /// Which streams are to be a terminal of the session's own.
    pub fn terminal(&self) -> [bool; 3] {
        [self.terminal.stdin, self.terminal.stdout, self.terminal.stderr]
    }

    /// What goes along with the request.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 4] {
        self.descriptors.each_ref().map(AsFd::as_fd)
    }

    /// Once it was taken: until the command has ended.
    pub fn stay(self) -> Result<VisitEnd, Errno> {
        drop(self.descriptors);
        signal::block_all()?;
        let signals = SignalFd::new()?;
        let outer = Outer::look(self.terminal)?;
        let relay = outer.clone().map(|outer| Relay::new(outer, self.terminal, None));
        let mut staying = Staying { channel: self.channel, signals, outer, relay, end: VisitEnd::default() };
        let result = staying.until_end();
        if let Some(relay) = &mut staying.relay {
            relay.leave_raw_mode()?;
        }
        result.map(|()| staying.end)
    }
}

struct Staying {
    channel: OwnedFd,
    signals: SignalFd,
    outer: Option<Outer>,
    relay: Option<Relay>,
    end: VisitEnd,
}

impl Staying {
    fn until_end(&mut self) -> Result<(), Errno> {
        loop {
            for ready in self.wait()? {
                match ready {
                    Ready::Signal => self.pass_signals()?,
                    Ready::Terminal(ready) => self.relay.as_mut().map_or(Ok(()), |relay| relay.turn(ready))?,
                    Ready::Channel if self.hear()? => {}
                    Ready::Channel => return self.finish(),
                }
            }
            if let Some(relay) = &mut self.relay {
                relay.check_clock(std::time::Instant::now())?;
            }
        }
    }

    /// The end comes last: what the command wrote is fetched first.
    fn wait(&self) -> Result<Vec<Ready>, Errno> {
        let mut watched = vec![(self.signals.as_fd(), PollFlags::IN, Ready::Signal)];
        let relayed = self.relay.iter().flat_map(Relay::wanted);
        watched.extend(relayed.map(|(fd, flags, ready)| (fd, flags, Ready::Terminal(ready))));
        watched.push((self.channel.as_fd(), PollFlags::IN, Ready::Channel));
        let mut fds: Vec<PollFd<'_>> =
            watched.iter().map(|(fd, flags, _)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let until = self.relay.as_ref().and_then(Relay::deadline).map(time_until);
        match poll(&mut fds, until.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let ready = fds.iter().zip(&watched).filter(|(fd, _)| !fd.revents().is_empty());
        Ok(ready.map(|(_, (_, _, ready))| *ready).collect())
    }

    /// Whether there is more to come.
    fn hear(&mut self) -> Result<bool, Errno> {
        let (bytes, mut fds) = socket::receive_all(&self.channel)?;
        match bytes.split_first() {
            Some((&word::TERMINAL, [])) => {
                if let (Some(master), Some(outer), Some(relay)) = (fds.pop(), &self.outer, &mut self.relay) {
                    outer.pass_on_to(master.as_fd())?;
                    relay.open(master)?;
                }
                Ok(true)
            }
            Some((&word::FAILED, text)) => {
                self.end.failure = Some(String::from_utf8_lossy(text).into_owned());
                Ok(true)
            }
            Some((&word::ENDED, [code])) => {
                self.end.code = Some(*code);
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    fn pass_signals(&mut self) -> Result<(), Errno> {
        while let Some(number) = self.signals.read()? {
            match (Signal::from_named_raw(number), &mut self.relay) {
                (None | Some(Signal::CHILD | Signal::PIPE), _) | (Some(Signal::WINCH), None) => {}
                (Some(Signal::WINCH), Some(relay)) => relay.resize()?,
                (Some(Signal::CONT), Some(relay)) => relay.resume()?,
                (Some(_), _) => {
                    let number = u8::try_from(number).unwrap_or(0);
                    let sent = socket::send(self.channel.as_fd(), &[word::SIGNAL, number], None);
                    best_effort(sent, "it may have ended");
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Errno> {
        const LAST_WORDS: Duration = Duration::from_secs(2);
        if let Some(relay) = &mut self.relay {
            relay.drain(&self.signals, Patience::WhileRead(LAST_WORDS))?;
        }
        Ok(())
    }
}
