//! The loop outside: waits for the end of the session while it answers notifications, passes signals on, copies the
//! terminal and watches clock and limits. Owns the life of a running session; its set-up is `launch`'s.
//!
//! ```text
//!   running --command stopped--> suspended --SIGCONT--> running
//!   running --deadline--> terminating (SIGTERM, grace) --> killed
//!   running --too many violations, a limit exceeded--> killed
//!   any --everybody but pid 1 gone--> ended (if the caller does not care for the rest)
//!   any --pid 1 gone--> ended
//! ```

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cofferdam_audit as audit;
use cofferdam_gate::{Gate, News, Settled};
use cofferdam_kernel::seccomp::Listener;
use cofferdam_kernel::shared::{SharedEnd, Told};
use cofferdam_kernel::signal::SignalFd;
use cofferdam_plan::{Keeper, LaunchPlan, Limited, Trigger};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_send_signal};
use serde::Serialize;

use crate::attach::{self, Attached, JOINED};
use crate::cgroup::SessionCgroup;
use crate::desk::{self, Desk};
use crate::dialer::Dialer;
use crate::egress::Egress;
use crate::events::{Log, Record, seconds_now};
use crate::gauge::keyed;
use crate::holds::Holds;
use crate::hosts::HostQuestions;
use crate::input::{self, Input};
use crate::keeper;
use crate::keeping::Keeping;
use crate::launch::{Options, Returns};
use crate::message::{Message, best_effort};
use crate::output::{self, Output};
use crate::paperwork::{Chore, Paperwork};
use crate::patience::{Drained, Patience, asks_to_end, time_until};
use crate::relay::{self, Relay};
use crate::session::SessionDir;
use crate::sweep::Sweep;
use crate::terminal::Outer;
use crate::unrouted::Counters;
use crate::usage::{self, Usage};
use crate::watch::{Finding, FindingKind, Watch};

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// A set-up that says nothing for so long waits for something slow.
const SET_UP: Duration = Duration::from_millis(5);

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    Exited {
        code: i32,
    },
    /// A signal ended the command.
    Signalled {
        signal: i32,
    },
    TimedOut,
    /// All of it was ended for want of memory: by the kernel at the cgroup's limit, or by the supervisor.
    OutOfMemory,
    /// It stood at its process limit, as a fork bomb does.
    ProcessLimit,
    CpuTimeLimit,
    StorageLimit,
    /// More files than the policy allows.
    InodeLimit,
    /// More refused system calls than the policy tolerates.
    TooManyViolations,
    /// More written to stdout and stderr than the policy allows.
    OutputLimit,
    /// A host program took a cover off, and what it covered may be in the hands of the session.
    CoverFell,
    /// Pid 1 was killed from outside.
    Killed {
        signal: i32,
    },
}

/// A limit ended it.
const LIMIT: u8 = 124;
/// Policy refused it.
const REFUSED: u8 = 126;
/// Added to the number of the signal that ended a command, as a shell does.
const BY_SIGNAL: i32 = 128;

impl End {
    /// What a caller sees of it.
    pub fn exit_code(self) -> u8 {
        let byte = |code: i32| u8::try_from(code & 0xff).unwrap_or(u8::MAX);
        match self {
            End::Exited { code } => byte(code),
            End::TimedOut
            | End::ProcessLimit
            | End::CpuTimeLimit
            | End::StorageLimit
            | End::InodeLimit
            | End::OutputLimit => LIMIT,
            End::TooManyViolations | End::CoverFell => REFUSED,
            // As a command that the kernel ended for want of memory.
            End::OutOfMemory => byte(BY_SIGNAL + Signal::KILL.as_raw()),
            End::Signalled { signal } | End::Killed { signal } => byte(BY_SIGNAL + signal),
        }
    }
}

/// The open ends of a running session.
pub(crate) struct Running<'a> {
    pub(crate) plan: &'a LaunchPlan,
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    pub(crate) counters: Option<Counters>,
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) stops: Option<OwnedFd>,
    pub(crate) signals: SignalFd,
    told: SharedEnd,
    pub(crate) listener: Option<Listener>,
    pub(crate) relay: Option<Relay>,
    pub(crate) output: Option<Output>,
    /// A stdin that did not go in itself.
    input: Option<Input>,
    /// Where questions are answered, if there can be any.
    pub(crate) desk: Option<Desk>,
    /// What a further command joins.
    pub(crate) namespaces: Option<Vec<OwnedFd>>,
    pub(crate) attached: Vec<Attached>,
    /// A further command was started at some time: it has a filter of its own, so the end of the session's first filter is
    /// not the end of every process inside.
    pub(crate) was_joined: bool,
    pub(crate) log: Log<'a>,
    pub(crate) record: Record,
    pub(crate) cgroup: Option<SessionCgroup>,
    pub(crate) watch: Watch<'a>,
    pub(crate) gate: Option<Gate>,
    pub(crate) egress: Option<Egress>,
    pub(crate) hosts: HostQuestions,
    /// Who connects to published ports.
    dialer: Option<Dialer>,
    /// What was granted for this session, to be kept on request.
    pub(crate) granted: Vec<Settled>,
    /// Answers on their way to a policy.
    pub(crate) keeping: Keeping,
    pub(crate) options: &'a Options,
    /// The session's directory, made where no overlay needed it before the clone.
    pub(crate) directory: Option<SessionDir>,
    /// Whether others find this session.
    pub(crate) is_listed: bool,
    pub(crate) paperwork: Paperwork,
    /// Names that must not appear while somebody inside could make them.
    pub(crate) holds: Holds,
    /// Watches covers that host programs can take off.
    pub(crate) keeper: Option<keeper::Keeper>,
    /// Seconds since 1970.
    pub(crate) started: f64,
    /// The child's reports other than descriptors, in order.
    pub(crate) reports: Vec<Message>,
    /// The child said that its walls stand.
    pub(crate) set_up: bool,
    returns: Returns,
    deadline: Option<Instant>,
    /// When to tell that the deadline comes near.
    near_deadline: Option<Instant>,
    kill_at: Option<Instant>,
    pub(crate) reason: Option<End>,
    /// What asked this process, and through it the command, to end.
    asked_to_end: Option<Signal>,
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
    Output(output::Ready),
    Input(input::Ready),
    Desk(desk::Ready),
    Attached(usize, attach::Ready),
    Stops,
    Signal,
    Gate(cofferdam_gate::Ready),
    Egress,
    /// The process that writes answers to a policy.
    Writer,
    Keeper,
    Ended,
}

pub(crate) struct Ends {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    pub(crate) socket: OwnedFd,
    pub(crate) stops: Option<OwnedFd>,
    pub(crate) told: SharedEnd,
    pub(crate) cgroup: Option<SessionCgroup>,
    pub(crate) signals: SignalFd,
    pub(crate) outer: Option<Outer>,
    pub(crate) output: Option<Output>,
}

impl<'a> Running<'a> {
    pub(crate) fn new(
        plan: &'a LaunchPlan,
        ends: Ends,
        holds: Holds,
        gate: Option<Gate>,
        (session, directory): (String, Option<SessionDir>),
        options: &'a Options,
    ) -> Self {
        let allowance = ends.output.as_ref().map(|output| output.allowance.clone());
        Running {
            sweep: options.state.as_deref().map(|state| Sweep::new(state, &session)),
            plan,
            pid: ends.pid,
            counters: None,
            pidfd: ends.pidfd,
            socket: Some(ends.socket),
            stops: ends.stops,
            told: ends.told,
            cgroup: ends.cgroup,
            watch: Watch::new(&plan.limits),
            signals: ends.signals,
            listener: None,
            relay: ends.outer.map(|outer| Relay::new(outer, plan.terminal, allowance)),
            output: ends.output,
            input: None,
            desk: None,
            namespaces: None,
            attached: Vec::new(),
            was_joined: false,
            started: seconds_now(),
            log: Log::new(session, options.state.as_deref()),
            returns: options.returns,
            record: Record::default(),
            holds,
            keeper: None,
            gate,
            egress: None,
            hosts: HostQuestions::default(),
            dialer: None,
            granted: Vec::new(),
            keeping: Keeping::default(),
            options,
            directory,
            is_listed: true,
            paperwork: Paperwork::at_start(),
            reports: Vec::new(),
            set_up: false,
            deadline: plan.timeout.map(|timeout| Instant::now() + timeout),
            near_deadline: plan.timeout.map(|timeout| Instant::now() + timeout / 5 * 4),
            kill_at: None,
            reason: None,
            asked_to_end: None,
        }
    }

    /// Runs until pid 1 is gone.
    pub(crate) fn until_end(&mut self) -> Result<End, Errno> {
        let result = self.turn_until_end();
        if result.is_err() {
            // A session that cannot be supervised does not go on: the caller may live long after this.
            best_effort(self.kill(), "it may be gone already");
            // Held names are freed next: no process inside may live then.
            best_effort(self.reap().map(drop), "then there is nothing to wait for");
        }
        self.let_names_go();
        if let Some(gate) = &mut self.gate {
            gate.end()?;
        }
        self.pass_news()?;
        if let Some(relay) = &mut self.relay {
            relay.leave_raw_mode()?;
        }
        result
    }

    fn turn_until_end(&mut self) -> Result<End, Errno> {
        loop {
            let ready = self.wait()?;
            if ready.is_empty() {
                self.use_idle_moment()?;
            }
            for ready in ready {
                match ready {
                    Ready::Socket => self.take_reports()?,
                    Ready::Notification => self.answer()?,
                    Ready::Unfiltered => {
                        // First of all: whoever lets go of the namespaces last takes them apart, and pid 1 has time.
                        self.let_go()?;
                        self.listener = None;
                        if self.was_joined {
                            // Pid 1 is reaped after every process of its namespace: the names are held until then.
                            continue;
                        }
                        // No process runs inside any more: stand-ins can go while the kernel takes the namespaces apart.
                        self.let_names_go();
                        // A cgroup can be removed only once pid 1 has left it.
                        if let (Returns::WhenEverybodyEnded, None, Some(told)) =
                            (self.returns, &self.cgroup, self.told.get())
                        {
                            return self.finish_early(told);
                        }
                    }
                    Ready::Terminal(ready) => self.relay.as_mut().map_or(Ok(()), |relay| relay.turn(ready))?,
                    Ready::Output(ready) => self.output.as_mut().map_or(Ok(()), |output| output.turn(ready))?,
                    Ready::Input(ready) => self.input.as_mut().map_or(Ok(()), |input| input.turn(ready))?,
                    Ready::Desk(ready) => self.hear(ready)?,
                    Ready::Attached(which, ready) => self.see_to(which, ready)?,
                    Ready::Stops => self.suspend()?,
                    Ready::Signal => self.pass_signals()?,
                    Ready::Gate(ready) => {
                        // What the set-up said came before: by it the gate knows who asks.
                        self.take_reports()?;
                        self.gate.as_mut().map_or(Ok(()), |gate| gate.turn(ready))?;
                    }
                    Ready::Egress => self.hear_egress()?,
                    Ready::Writer => self.hear_writer()?,
                    Ready::Keeper => self.keep_covers()?,
                    Ready::Ended => return self.finish(),
                }
            }
            self.attached.retain(|attached| !attached.is_over());
            self.check_clock()?;
            self.take_answers()?;
            self.pass_news()?;
            self.check_output()?;
        }
    }

    /// No process of the session runs any more.
    fn let_names_go(&mut self) {
        for text in self.holds.clear() {
            self.log().warned(&text);
            self.record.warnings.push(text);
        }
        self.holds = Holds::default();
    }

    fn use_idle_moment(&mut self) -> Result<(), Errno> {
        match &self.gate {
            Some(gate) if gate.has_to_learn() => gate.learn(),
            _ if !self.paperwork.is_done() => self.do_one_chore()?,
            _ => {
                let log = &mut self.log;
                self.sweep = self.sweep.take().and_then(|sweep| sweep.turn(&mut |session| log.swept(session)));
            }
        }
        Ok(())
    }

    /// In the order in which they are to be handled; the end comes last.
    fn wait(&self) -> Result<Vec<Ready>, Errno> {
        let mut watched: Vec<(BorrowedFd<'_>, PollFlags, Ready)> = Vec::with_capacity(8);
        let own = [
            (self.socket.as_ref().map(AsFd::as_fd), Ready::Socket),
            (self.listener.as_ref().map(AsFd::as_fd), Ready::Notification),
            (self.stops.as_ref().map(AsFd::as_fd), Ready::Stops),
            (self.egress.as_ref().and_then(Egress::wanted), Ready::Egress),
            (self.keeping.wanted(), Ready::Writer),
            (self.keeper.as_ref().and_then(keeper::Keeper::wanted), Ready::Keeper),
            (Some(self.signals.as_fd()), Ready::Signal),
            (Some(self.pidfd.as_fd()), Ready::Ended),
        ];
        let relayed = self.relay.iter().flat_map(Relay::wanted);
        let copied = self.output.iter().flat_map(Output::wanted);
        let gated = self.gate.iter().flat_map(Gate::wanted);
        watched.extend(gated.map(|(fd, ready)| (fd, PollFlags::IN, Ready::Gate(ready))));
        watched.extend(relayed.map(|(fd, flags, ready)| (fd, flags, Ready::Terminal(ready))));
        watched.extend(copied.map(|(fd, flags, ready)| (fd, flags, Ready::Output(ready))));
        let fed = self.input.iter().filter_map(Input::wanted);
        watched.extend(fed.map(|(fd, flags, ready)| (fd, flags, Ready::Input(ready))));
        let asked = self.desk.iter().flat_map(Desk::wanted);
        watched.extend(asked.map(|(fd, flags, ready)| (fd, flags, Ready::Desk(ready))));
        let joined = self.attached.iter().enumerate();
        let joined = joined.flat_map(|(at, one)| one.wanted().into_iter().map(move |(fd, ready)| (at, fd, ready)));
        watched.extend(joined.map(|(at, fd, ready)| (fd, PollFlags::IN, Ready::Attached(at, ready))));
        watched.extend(own.into_iter().filter_map(|(fd, ready)| Some((fd?, PollFlags::IN, ready))));
        let mut fds: Vec<PollFd<'_>> =
            watched.iter().map(|(fd, flags, _)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let has_to_learn = self.gate.as_ref().is_some_and(Gate::has_to_learn);
        let has_work = has_to_learn || self.sweep.is_some() || !self.paperwork.is_done();
        let patience = if has_to_learn { Duration::ZERO } else { self.patience() };
        let idle = has_work.then(|| Instant::now() + patience);
        let timeout = idle.into_iter().chain(self.next_deadline()).min().map(time_until);
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

    /// How long nothing has to happen until other work is done. The child and whoever makes its network need both of two
    /// CPUs while they build the walls.
    fn patience(&self) -> Duration {
        let is_set_up = self.set_up || !self.plan.namespaces.pid;
        if is_set_up { Duration::ZERO } else { SET_UP }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let look = self.set_up.then(|| self.watch.next_look());
        let relay = self.relay.as_ref().and_then(Relay::deadline);
        let desk = self.desk.as_ref().and_then(Desk::deadline);
        let gate = self.gate.as_ref().and_then(Gate::deadline);
        let hosts = self.hosts.deadline();
        [self.deadline, self.near_deadline, self.kill_at, look, relay, desk, gate, hosts].into_iter().flatten().min()
    }

    fn check_clock(&mut self) -> Result<(), Errno> {
        let now = Instant::now();
        if let Some(relay) = &mut self.relay {
            relay.check_clock(now)?;
        }
        if let Some(desk) = &mut self.desk {
            desk.check_clock(now);
        }
        if let Some(gate) = &mut self.gate {
            gate.check_clock(now)?;
        }
        self.check_hosts(now)?;
        if self.set_up && now >= self.watch.next_look() {
            self.look(now)?;
        }
        let seconds = self.plan.timeout.unwrap_or_default().as_secs();
        if self.near_deadline.is_some_and(|at| now >= at) {
            self.near_deadline = None;
            self.log().named_limit(audit::Event::ResourceLimitApproached, "timeout", seconds);
        }
        if self.deadline.is_some_and(|at| now >= at) {
            self.deadline = None;
            self.reason.get_or_insert(End::TimedOut);
            self.log().named_limit(audit::Event::ResourceLimitExceeded, "timeout", seconds);
            self.kill_at = Some(now + GRACE);
            self.signal(Signal::TERM)?;
            // A stopped command would not see the request to end.
            self.signal(Signal::CONT)?;
        }
        if self.kill_at.is_some_and(|at| now >= at) {
            self.kill_at = None;
            self.kill()?;
        }
        Ok(())
    }

    fn look(&mut self, now: Instant) -> Result<(), Errno> {
        for finding in self.watch.look(now, self.cgroup.as_ref())? {
            let end = match finding.what {
                Limited::Memory | Limited::MemoryHigh => End::OutOfMemory,
                Limited::CpuTime => End::CpuTimeLimit,
                Limited::Storage | Limited::Io => End::StorageLimit,
                Limited::Inodes => End::InodeLimit,
                Limited::Processes | Limited::Cpus | Limited::CpuSet => End::ProcessLimit,
            };
            // It is on its way out for this, and that is recorded.
            if self.reason == Some(end) {
                continue;
            }
            self.log().limit(finding);
            if finding.kind == FindingKind::Over {
                self.end(end)?;
            }
        }
        Ok(())
    }

    fn check_output(&mut self) -> Result<(), Errno> {
        let Some(output) = &mut self.output else { return Ok(()) };
        let (news, is_exceeded) = (output.news(), output.allowance.is_exceeded());
        if let Some((event, limit)) = news {
            self.log().named_limit(event, "output", limit);
        }
        if is_exceeded && self.reason.is_none() {
            self.end(End::OutputLimit)?;
        }
        Ok(())
    }

    /// Nobody is left inside who could ask or be counted.
    fn let_go(&mut self) -> Result<(), Errno> {
        self.namespaces = None;
        self.end_hosts()?;
        // It is in the session's network, which is taken apart next.
        self.dialer = None;
        if let Some(gate) = &mut self.gate {
            gate.end()?;
        }
        self.pass_news()?;
        if let Some(gate) = self.gate.take() {
            gate.let_go();
        }
        self.watch.let_go();
        Ok(())
    }

    /// Ends the session now; the first reason is the one that is told.
    pub(crate) fn end(&mut self, reason: End) -> Result<(), Errno> {
        self.reason.get_or_insert(reason);
        self.kill()
    }

    fn kill(&self) -> Result<(), Errno> {
        if let Some(cgroup) = &self.cgroup {
            // Kernels before 5.14 have no such file; pid 1 takes everybody along as well.
            best_effort(cgroup.kill(), "the signal below does the same");
        }
        self.signal(Signal::KILL)
    }

    /// Sends a signal to pid 1, which passes it on. Gone is fine: the end is noticed elsewhere.
    fn signal(&self, signal: Signal) -> Result<(), Errno> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Err(Errno::SRCH) => Ok(()),
            other => other,
        }
    }

    pub(crate) fn take_reports(&mut self) -> Result<(), Errno> {
        while self.socket.is_some() && readable(self.socket.as_ref())? {
            self.take_report()?;
        }
        Ok(())
    }

    /// The set-up child reports; it closes its end once the command runs.
    fn take_report(&mut self) -> Result<(), Errno> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let (bytes, mut fds) = match cofferdam_kernel::socket::receive_now(socket) {
            // It was taken earlier in this turn.
            Err(Errno::AGAIN) => return Ok(()),
            other => other?,
        };
        if bytes == Message::Namespaces.encode() {
            self.counters = fds.drain(JOINED.len().min(fds.len())..).next().map(Counters::of);
            if let Some(way) = self.egress.as_mut().and_then(|egress| egress.dials.take()) {
                self.dialer = Some(Dialer::start(&way, &fds)?);
            }
            self.namespaces = Some(fds);
            return Ok(());
        }
        match (Message::decode(&bytes), fds.pop()) {
            (None, _) => {
                self.socket = None;
                let is_set_up = self.set_up || !self.plan.namespaces.pid;
                if is_set_up && self.reports.is_empty() {
                    self.paperwork.add(Chore::Started);
                }
            }
            (Some(Message::Listener), Some(fd)) => {
                self.set_up = true;
                if let Some(gate) = &mut self.gate {
                    gate.listen(Listener::from_fd(rustix::io::fcntl_dupfd_cloexec(&fd, 3)?));
                }
                self.listener = Some(Listener::from_fd(fd));
                self.paperwork.add(Chore::Entered);
                if self.relay.is_some() {
                    // Whoever answers on the terminal has to be there before the first output.
                    self.do_all_chores()?;
                }
            }
            (Some(Message::Processes), Some(fd)) => {
                if let Some(gate) = &mut self.gate {
                    // A reported call comes with the number that its process has out here.
                    let reported = self.plan.gate.as_ref().is_some_and(|gate| gate.trigger == Trigger::Notify);
                    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                    gate.know(if reported {
                        rustix::fs::open("/proc", flags, Mode::empty())?
                    } else {
                        rustix::io::fcntl_dupfd_cloexec(&fd, 3)?
                    });
                }
                if let Some(keeper) = &mut self.keeper {
                    keeper.know(rustix::io::fcntl_dupfd_cloexec(&fd, 3)?);
                }
                if self.plan.limits.counts_processes() {
                    self.watch.count_in(fd);
                }
            }
            (Some(Message::Gate), Some(fd)) => {
                match (&mut self.gate, self.plan.gate.as_ref().map(|gate| gate.trigger)) {
                    (Some(gate), Some(Trigger::Fuse)) => gate.serve(fd),
                    (Some(gate), Some(Trigger::Notify)) => gate.serve_calls(fd)?,
                    _ => {}
                }
            }
            (Some(Message::Mounts), Some(fd)) => {
                if let Some(gate) = &mut self.gate {
                    gate.mount_in(fd);
                }
            }
            (Some(Message::Tree), Some(fd)) => {
                if let Some(keeper) = &mut self.keeper {
                    keeper.enter(fd)?;
                }
            }
            (Some(Message::Segments), Some(fd)) => self.watch.count_segments(fd),
            (Some(Message::Terminal), Some(fd)) => {
                if let Some(relay) = &mut self.relay {
                    relay.open(fd)?;
                }
            }
            (Some(Message::Input), Some(fd)) => self.input = Some(Input::new(fd)?),
            (Some(message), _) => self.reports.push(message),
        }
        Ok(())
    }

    fn pass_news(&mut self) -> Result<(), Errno> {
        self.keep_trees()?;
        // An answer makes news of its own.
        loop {
            let news = self.gate.as_mut().map(Gate::news).unwrap_or_default();
            if news.is_empty() {
                return Ok(());
            }
            for news in news {
                self.record.news(&news);
                self.log().news(&news);
                match &news {
                    News::Asked(question) => self.ask(question)?,
                    News::Settled(settled) => self.settled(settled)?,
                    News::Refused { .. } | News::Hidden { .. } | News::OverBudget => {}
                }
            }
        }
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
            relay.pause_prompt()?;
            relay.turn(relay::Ready::Output)?;
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
        // What host programs did meanwhile comes before the session goes on.
        self.keep_covers()?;
        self.signal(Signal::CONT)
    }

    fn pass_signals(&mut self) -> Result<(), Errno> {
        while let Some(number) = self.signals.read()? {
            let Some(signal) = Signal::from_named_raw(number) else { continue };
            match signal {
                // SIGPIPE is about what this process wrote: the command's own comes from its own pipe.
                Signal::CHILD | Signal::PIPE => {}
                Signal::WINCH => {
                    if let Some(relay) = &mut self.relay {
                        relay.resize()?;
                    }
                }
                Signal::CONT => self.resume()?,
                // The terminal's stop key when it is not in raw mode: stop the command, whose stop then stops us.
                Signal::TSTP if self.relay.is_none() => {
                    self.signal(Signal::TSTP)?;
                    rustix::process::kill_process(rustix::process::getpid(), Signal::STOP)?;
                }
                other => {
                    self.asked_to_end = self.asked_to_end.or(Some(other).filter(|signal| asks_to_end(*signal)));
                    self.signal(other)?;
                }
            }
        }
        Ok(())
    }

    /// What the command wrote last, and what the set-up said last, may still lie in the buffers.
    fn take_what_is_left(&mut self) -> Result<(), Errno> {
        self.take_reports()?;
        if let Some(mut input) = self.input.take() {
            best_effort(input.finish(), "the caller's descriptor stays where it was");
        }
        let drained = self.drain()?;
        // What was written last may have been too much.
        self.check_output()?;
        let Some(output) = self.output.as_mut().filter(|output| drained && output.allowance.is_exceeded()) else {
            return Ok(());
        };
        if !output.mark()
            && let Some(relay) = &mut self.relay
        {
            relay.mark()?;
        }
        self.drain()?;
        Ok(())
    }

    /// Whether all that was written could be passed on.
    fn drain(&mut self) -> Result<bool, Errno> {
        let is_over = self.asked_to_end.is_some() || self.reason == Some(End::TimedOut);
        let patience = if is_over { Patience::WhileRead(GRACE) } else { Patience::Until(self.deadline) };
        let shown = self.relay.as_mut().map(|relay| relay.drain(&self.signals, patience)).transpose()?;
        let copied = self.output.as_mut().map(|output| output.drain(&self.signals, patience)).transpose()?;
        let given_up = [shown, copied].into_iter().flatten().find_map(|drained| match (drained, self.asked_to_end) {
            (Drained::All, _) => None,
            (Drained::Asked(signal), _) | (Drained::OutOfTime, Some(signal)) => {
                Some(End::Killed { signal: signal.as_raw() })
            }
            (Drained::OutOfTime, None) => Some(End::TimedOut),
        });
        self.reason = self.reason.or(given_up);
        Ok(given_up.is_none())
    }

    /// Everybody inside has ended but pid 1, which the kernel is taking apart.
    fn finish_early(&mut self, told: Told) -> Result<End, Errno> {
        self.take_what_is_left()?;
        Ok(self.reason.unwrap_or_else(|| self.end_of(told)))
    }

    /// How the command ended. What the eye keeps may be stopped by an rlimit before the eye has seen it.
    fn end_of(&mut self, told: Told) -> End {
        let cpu_seconds = told.user_micros.saturating_add(told.system_micros) / 1_000_000;
        if told.code != 0 && self.went_over(Limited::Memory, told.memory_peak) {
            return End::OutOfMemory;
        }
        if told.signalled && self.went_over(Limited::CpuTime, cpu_seconds) {
            return End::CpuTimeLimit;
        }
        let code = i32::from(told.code);
        if told.signalled { End::Signalled { signal: code - 128 } } else { End::Exited { code } }
    }

    /// Whether a limit that the eye keeps was reached without its seeing it; what it would have written is written now.
    fn went_over(&mut self, what: Limited, used: u64) -> bool {
        let bound = self.plan.limits.bound(what).filter(|bound| bound.by == Keeper::Watched && used >= bound.value);
        let Some(limit) = bound.map(|bound| bound.value) else { return false };
        self.log().limit(Finding { kind: FindingKind::Over, what, used, limit });
        true
    }

    /// Whether the kernel ended processes of the session at its memory limit. With them it ends pid 1.
    fn was_out_of_memory(&mut self) -> bool {
        let events = self.cgroup.as_ref().and_then(|cgroup| cgroup.read("memory.events"));
        let killed = events.as_deref().and_then(|text| keyed(text, "oom_kill")).is_some_and(|count| count > 0);
        if killed {
            let allowed = self.plan.limits.bound(Limited::Memory).map_or(0, |bound| bound.value);
            self.log().named_limit(audit::Event::ResourceLimitExceeded, "memory", allowed);
        }
        killed
    }

    pub(crate) fn usage(&self, wall: Duration) -> Usage {
        match &self.cgroup {
            Some(cgroup) => usage::of_cgroup(cgroup, self.watch.peak, wall),
            None => usage::of_processes(self.told.get(), self.watch.last, self.watch.peak, wall),
        }
    }

    /// Waits until pid 1 is gone, and with it every process of its namespace.
    fn reap(&self) -> Result<Option<WaitIdStatus>, Errno> {
        loop {
            match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED) {
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }

    fn finish(&mut self) -> Result<End, Errno> {
        self.take_what_is_left()?;
        let status = self.reap()?;
        if let Some(reason) = self.reason {
            return Ok(reason);
        }
        Ok(match status.as_ref().map(|s| (s.exit_status(), s.terminating_signal())) {
            Some((Some(code), _)) => match self.told.get() {
                Some(told) => self.end_of(told),
                None => End::Exited { code },
            },
            Some((_, Some(signal))) if self.was_out_of_memory() => {
                debug_assert_eq!(signal, Signal::KILL.as_raw());
                End::OutOfMemory
            }
            Some((_, Some(signal))) => End::Killed { signal },
            _ => End::Killed { signal: 0 },
        })
    }
}

fn readable(fd: Option<&impl AsFd>) -> Result<bool, Errno> {
    let Some(fd) = fd else { return Ok(false) };
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(!fds[0].revents().is_empty())
}
