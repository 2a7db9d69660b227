//! The client's side of a command that joined a session: its terminal, its signals, its exit code. Owns the loop in the
//! client's process; the other end of the channel is `attach`'s. Called by `cli`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use cofferdam_kernel::best_effort;
use cofferdam_kernel::signal::{self, SignalFd};
use cofferdam_kernel::socket;
use cofferdam_kernel::timing::time_until;
use cofferdam_launcher::join::word;
use cofferdam_launcher::streams::{self, Kind, Kinds, Refused};
use cofferdam_launcher::terminal::Outer;
use cofferdam_plan::Terminal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use thiserror::Error;

use crate::terminal::drain::Patience;
use crate::terminal::input::{self, Input};
use crate::terminal::output::{self, Output};
use crate::terminal::relay::{self, Relay};

/// How it went.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VisitEnd {
    /// None where the session ended first and no helper was left to say.
    pub code: Option<u8>,
    /// What could not be done.
    pub failure: Option<String>,
}

/// Why no command can be started with the streams of this process.
#[derive(Debug, Error)]
pub enum VisitError {
    #[error("{stream} is {is}, which would lead out of the sandbox")]
    Stream { stream: &'static str, is: &'static str },
    #[error("cannot hand over the standard streams")]
    Streams(#[source] Errno),
}

/// A command that is to be started in a session.
#[derive(Debug)]
pub struct Visit {
    channel: OwnedFd,
    descriptors: [OwnedFd; 4],
    terminal: Terminal,
    /// Streams that stay here, and whose bytes are carried.
    input: Option<Input>,
    output: Option<Output>,
}

/// What woke the loop up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    Signal,
    Channel,
    Terminal(relay::Ready),
    Input(input::Ready),
    Output(output::Ready),
}

impl Visit {
    /// With the streams of this process. Neither a terminal nor a file is ever handed over.
    pub fn new() -> Result<Visit, VisitError> {
        let looked = streams::look().map_err(VisitError::Streams)?;
        let kinds = looked.map_err(|Refused { stream, is }| VisitError::Stream { stream, is })?;
        Visit::with(kinds).map_err(VisitError::Streams)
    }

    fn with(kinds: Kinds) -> Result<Visit, Errno> {
        let [stdin, stdout, stderr] = kinds.map(|kind| kind == Kind::Terminal);
        let (channel, theirs) = socket::pair()?;
        let (output, writers) = output::open(None, &kinds)?;
        let (reader, input) = if kinds[0].is_carried() {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            (Some(reader), Some(Input::new(writer)?))
        } else {
            (None, None)
        };
        let hand_over = |stream: BorrowedFd<'_>, instead: Option<BorrowedFd<'_>>, is_terminal: bool| {
            if is_terminal {
                let flags = OFlags::RDWR | OFlags::CLOEXEC;
                return rustix::fs::openat(CWD, c"/dev/null", flags, Mode::empty());
            }
            rustix::io::fcntl_dupfd_cloexec(instead.unwrap_or(stream), 3)
        };
        let [of_stdout, of_stderr] = writers.descriptors();
        let descriptors = [
            hand_over(rustix::stdio::stdin(), reader.as_ref().map(AsFd::as_fd), stdin)?,
            hand_over(rustix::stdio::stdout(), of_stdout, stdout)?,
            hand_over(rustix::stdio::stderr(), of_stderr, stderr)?,
            theirs,
        ];
        Ok(Visit { channel, descriptors, terminal: Terminal { stdin, stdout, stderr }, input, output })
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
        let (input, output, end) = (self.input, self.output, VisitEnd::default());
        let mut staying = Staying { channel: self.channel, signals, outer, relay, input, output, end };
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
    input: Option<Input>,
    output: Option<Output>,
    end: VisitEnd,
}

impl Staying {
    fn until_end(&mut self) -> Result<(), Errno> {
        loop {
            for ready in self.wait()? {
                match ready {
                    Ready::Signal => self.pass_signals()?,
                    Ready::Terminal(ready) => self.relay.as_mut().map_or(Ok(()), |relay| relay.turn(ready))?,
                    Ready::Input(ready) => self.input.as_mut().map_or(Ok(()), |input| input.turn(ready))?,
                    Ready::Output(ready) => self.output.as_mut().map_or(Ok(()), |output| output.turn(ready))?,
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
        let fed = self.input.iter().filter_map(Input::wanted);
        watched.extend(fed.map(|(fd, flags, ready)| (fd, flags, Ready::Input(ready))));
        let copied = self.output.iter().flat_map(Output::wanted);
        watched.extend(copied.map(|(fd, flags, ready)| (fd, flags, Ready::Output(ready))));
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
        if let Some(mut input) = self.input.take() {
            best_effort(input.finish(), "the caller's descriptor stays where it was");
        }
        if let Some(relay) = &mut self.relay {
            relay.drain(&self.signals, Patience::WhileRead(LAST_WORDS))?;
        }
        if let Some(output) = &mut self.output {
            output.drain(&self.signals, Patience::WhileRead(LAST_WORDS))?;
            if let Some(errno) = output.failure() {
                self.end.failure =
                    self.end.failure.take().or(Some(format!("not all output could be written: {errno}")));
            }
        }
        Ok(())
    }
}
