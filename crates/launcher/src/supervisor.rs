//! The loop outside: waits for the end of the session while it answers notifications, passes signals on, copies the
//! terminal and watches the clock. Owns the life of a running session; its set-up is `launch`'s.
//!
//! ```text
//!   running --command stopped--> suspended --SIGCONT--> running
//!   running --deadline--> terminating (SIGTERM, grace) --> killed
//!   running --too many violations--> killed
//!   any --everybody but pid 1 gone--> ended (if the caller does not care for the rest)
//!   any --pid 1 gone--> ended
//! ```

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_kernel::seccomp::Listener;
use cofferdam_kernel::shared::SharedNumber;
use cofferdam_kernel::signal::SignalFd;
use cofferdam_plan::{LaunchPlan, seccomp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal};
use serde::Serialize;

use crate::events::Record;
use crate::holds::Holds;
use crate::launch::{Options, Returns};
use crate::message::{Message, best_effort};
use crate::relay::{self, Relay};
use crate::sweep::Sweep;
use crate::terminal::Outer;
use crate::unrouted::Counters;

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    Exited {
        code: i32,
    },
    TimedOut,
    /// More refused system calls than the policy tolerates.
    TooManyViolations,
    /// Pid 1 was killed from outside.
    Killed {
        signal: i32,
    },
}

/// The open ends of a running session.
pub(crate) struct Running<'a> {
    pub(crate) plan: &'a LaunchPlan,
    pid: i32,
    pub(crate) pidfd: OwnedFd,
    pub(crate) counters: Option<Counters>,
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) stops: Option<OwnedFd>,
    pub(crate) signals: SignalFd,
    code: SharedNumber,
    pub(crate) listener: Option<Listener>,
    pub(crate) relay: Option<Relay>,
    pub(crate) session: String,
    pub(crate) state: Option<&'a Path>,
    pub(crate) record: Record,
    /// Names that must not appear while somebody inside could make them.
    holds: Holds,
    /// The child's reports other than descriptors, in order.
    pub(crate) reports: Vec<Message>,
    /// The child said that its walls stand.
    pub(crate) set_up: bool,
    returns: Returns,
    deadline: Option<Instant>,
    kill_at: Option<Instant>,
    reason: Option<End>,
    /// What killed sessions left, for moments with nothing else to do.
    sweep: Option<Sweep>,
}

/// What woke the loop up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    Socket,
    Notification,
    /// Everybody under the filter is gone.
    Unfiltered,
    Terminal(relay::Ready),
    Stops,
    Signal,
    Ended,
}

pub(crate) struct Ends {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    pub(crate) socket: OwnedFd,
    pub(crate) stops: Option<OwnedFd>,
    pub(crate) code: SharedNumber,
    pub(crate) signals: SignalFd,
    pub(crate) outer: Option<Outer>,
}

impl<'a> Running<'a> {
    pub(crate) fn new(plan: &'a LaunchPlan, ends: Ends, holds: Holds, session: String, options: &'a Options) -> Self {
        Running {
            sweep: options.state.as_deref().map(|state| Sweep::new(state, &session)),
            plan,
            pid: ends.pid,
            counters: None,
            pidfd: ends.pidfd,
            socket: Some(ends.socket),
            stops: ends.stops,
            code: ends.code,
            signals: ends.signals,
            listener: None,
            relay: ends.outer.map(|outer| Relay::new(outer, plan.terminal)),
            session,
            state: options.state.as_deref(),
            returns: options.returns,
            record: Record::default(),
            holds,
            reports: Vec::new(),
            set_up: false,
            deadline: plan.timeout.map(|timeout| Instant::now() + timeout),
            kill_at: None,
            reason: None,
        }
    }

    /// Runs until pid 1 is gone.
    pub(crate) fn until_end(&mut self) -> Result<End, Errno> {
        let result = self.turn_until_end();
        if result.is_err() {
            // A session that cannot be supervised does not go on: the caller may live long after this.
            best_effort(self.signal(Signal::KILL), "it may be gone already");
        }
        if let Some(relay) = &mut self.relay {
            relay.leave_raw_mode()?;
        }
        result
    }

    fn turn_until_end(&mut self) -> Result<End, Errno> {
        loop {
            let ready = self.wait()?;
            if ready.is_empty() {
                self.sweep = self.sweep.take().and_then(Sweep::turn);
            }
            for ready in ready {
                match ready {
                    Ready::Socket => self.take_report()?,
                    Ready::Notification => self.answer()?,
                    Ready::Unfiltered => {
                        // Nobody inside runs any more: stand-ins can go while the kernel takes the namespaces apart.
                        self.listener = None;
                        self.holds = Holds::default();
                        if let (Returns::WhenEverybodyEnded, Some(code)) = (self.returns, self.code.get()) {
                            return self.finish_early(code);
                        }
                    }
                    Ready::Terminal(ready) => self.relay.as_mut().map_or(Ok(()), |relay| relay.turn(ready))?,
                    Ready::Stops => self.suspend()?,
                    Ready::Signal => self.pass_signals()?,
                    Ready::Ended => return self.finish(),
                }
            }
            self.check_clock()?;
        }
    }

    /// In the order in which they are to be handled; the end comes last.
    fn wait(&self) -> Result<Vec<Ready>, Errno> {
        let mut watched: Vec<(BorrowedFd<'_>, PollFlags, Ready)> = Vec::with_capacity(8);
        let own = [
            (self.socket.as_ref().map(AsFd::as_fd), Ready::Socket),
            (self.listener.as_ref().map(AsFd::as_fd), Ready::Notification),
            (self.stops.as_ref().map(AsFd::as_fd), Ready::Stops),
            (Some(self.signals.as_fd()), Ready::Signal),
            (Some(self.pidfd.as_fd()), Ready::Ended),
        ];
        let relayed = self.relay.iter().flat_map(Relay::wanted);
        watched.extend(relayed.map(|(fd, flags, ready)| (fd, flags, Ready::Terminal(ready))));
        watched.extend(own.into_iter().filter_map(|(fd, ready)| Some((fd?, PollFlags::IN, ready))));
        let mut fds: Vec<PollFd<'_>> =
            watched.iter().map(|(fd, flags, _)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let at_once = self.sweep.is_some().then(Instant::now);
        let timeout = at_once.or_else(|| self.next_deadline()).map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let ready = fds.iter().zip(&watched).filter(|(fd, _)| !fd.revents().is_empty());
        Ok(ready
            .map(|(fd, (_, _, ready))| match ready {
                Ready::Notification if !fd.revents().contains(PollFlags::IN) => Ready::Unfiltered,
                other => *other,
            })
            .collect())
    }

    fn next_deadline(&self) -> Option<Instant> {
        [self.deadline, self.kill_at, self.relay.as_ref().and_then(Relay::deadline)].into_iter().flatten().min()
    }

    fn check_clock(&mut self) -> Result<(), Errno> {
        let now = Instant::now();
        if let Some(relay) = &mut self.relay {
            relay.check_clock(now)?;
        }
        if self.deadline.is_some_and(|at| now >= at) {
            self.deadline = None;
            self.reason.get_or_insert(End::TimedOut);
            self.kill_at = Some(now + GRACE);
            self.signal(Signal::TERM)?;
            // A stopped command would not see the request to end.
            self.signal(Signal::CONT)?;
        }
        if self.kill_at.is_some_and(|at| now >= at) {
            self.kill_at = None;
            self.signal(Signal::KILL)?;
        }
        Ok(())
    }

    /// Sends a signal to pid 1, which passes it on. Gone is fine: the end is noticed elsewhere.
    fn signal(&self, signal: Signal) -> Result<(), Errno> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Err(Errno::SRCH) => Ok(()),
            other => other,
        }
    }

    /// The set-up child reports; it closes its end once the command runs.
    fn take_report(&mut self) -> Result<(), Errno> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let (bytes, fd) = cofferdam_kernel::socket::receive(socket)?;
        match (Message::decode(&bytes), fd) {
            (None, _) => self.socket = None,
            (Some(Message::Listener), Some(fd)) => {
                self.set_up = true;
                // Only now is pid 1 in the network namespace whose counters these are.
                self.counters = self.plan.namespaces.net.then(|| Counters::of(self.pid)).flatten();
                self.listener = Some(Listener::from_fd(fd));
            }
            (Some(Message::Terminal), Some(fd)) => {
                if let Some(relay) = &mut self.relay {
                    relay.open(fd)?;
                }
            }
            (Some(message), _) => self.reports.push(message),
        }
        Ok(())
    }

    fn answer(&mut self) -> Result<(), Errno> {
        let Some(listener) = &self.listener else { return Ok(()) };
        let notification = match listener.receive() {
            Ok(Some(notification)) => notification,
            Ok(None) => return Ok(()),
            Err(_) => {
                // Everybody who could ask is gone.
                self.listener = None;
                return Ok(());
            }
        };
        self.record.add(&notification, &self.session, self.state);
        listener.refuse(&notification, seccomp::refusal(notification.number))?;
        if self.record.total > self.plan.max_violations && self.reason.is_none() {
            self.reason = Some(End::TooManyViolations);
            self.signal(Signal::KILL)?;
        }
        Ok(())
    }

    /// The command was stopped: so are we, and whoever continues us continues it.
    fn suspend(&mut self) -> Result<(), Errno> {
        let Some(stops) = &self.stops else { return Ok(()) };
        let mut buffer = [0u8; 64];
        match rustix::io::read(stops, &mut buffer) {
            Ok(0) => {
                self.stops = None;
                return Ok(());
            }
            Err(Errno::INTR | Errno::AGAIN) => return Ok(()),
            Err(errno) => return Err(errno),
            Ok(_) => {}
        }
        if let Some(relay) = &mut self.relay {
            // What was written before the stop, such as the echo of the stop key, belongs before the shell's next words.
            relay.turn(relay::Ready::Inner)?;
            relay.leave_raw_mode()?;
        }
        // Returns after SIGCONT.
        rustix::process::kill_process(rustix::process::getpid(), Signal::STOP)?;
        self.resume()
    }

    fn resume(&mut self) -> Result<(), Errno> {
        if let Some(relay) = &mut self.relay {
            relay.resume()?;
        }
        self.signal(Signal::CONT)
    }

    fn pass_signals(&mut self) -> Result<(), Errno> {
        while let Some(number) = self.signals.read()? {
            let Some(signal) = Signal::from_named_raw(number) else { continue };
            match signal {
                Signal::CHILD => {}
                Signal::WINCH => {
                    if let Some(relay) = &self.relay {
                        relay.resize()?;
                    }
                }
                Signal::CONT => self.resume()?,
                // The terminal's stop key when it is not in raw mode: stop the command, whose stop then stops us.
                Signal::TSTP if self.relay.is_none() => {
                    self.signal(Signal::TSTP)?;
                    rustix::process::kill_process(rustix::process::getpid(), Signal::STOP)?;
                }
                other => self.signal(other)?,
            }
        }
        Ok(())
    }

    /// What the command wrote last, and what the set-up said last, may still lie in the buffers.
    fn take_what_is_left(&mut self) -> Result<(), Errno> {
        while self.socket.is_some() && readable(self.socket.as_ref())? {
            self.take_report()?;
        }
        match &mut self.relay {
            Some(relay) => relay.drain(&self.signals),
            None => Ok(()),
        }
    }

    /// Everybody inside has ended but pid 1, which the kernel is taking apart.
    fn finish_early(&mut self, code: u32) -> Result<End, Errno> {
        self.take_what_is_left()?;
        Ok(self.reason.unwrap_or(End::Exited { code: code.cast_signed() }))
    }

    fn finish(&mut self) -> Result<End, Errno> {
        self.take_what_is_left()?;
        let status = loop {
            match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        let ended = match status.as_ref().map(|s| (s.exit_status(), s.terminating_signal())) {
            Some((Some(code), _)) => End::Exited { code },
            Some((_, Some(signal))) => End::Killed { signal },
            _ => End::Killed { signal: 0 },
        };
        Ok(self.reason.unwrap_or(ended))
    }
}

fn readable(fd: Option<&impl AsFd>) -> Result<bool, Errno> {
    let Some(fd) = fd else { return Ok(false) };
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(!fds[0].revents().is_empty())
}
