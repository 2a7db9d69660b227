//! The loop outside: waits for the end of the session while it answers notifications, passes signals on, copies the
//! terminal and watches clock and limits. Owns the life of a running session; its set-up is `launch`'s.
//!
//! ```text
//!   running --command stopped--> suspended --SIGCONT--> running
//!   running --deadline--> terminating (SIGTERM, grace) --> killed
//!   running --too many violations, a limit exceeded--> killed
//!   any --all processes but pid 1 gone--> ended (if the caller does not care for the rest)
//!   any --pid 1 gone--> ended
//! ```

mod attached;
mod checkpoints;
mod covers;
mod egress;
mod ending;
mod execs;
mod gate;
mod host_questions;
mod kept_answers;
mod limits;
mod notified_calls;
mod quarantine;
mod questions;
mod set_up;
mod startup;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use cofferdam_gate::Gate;
use cofferdam_host::quarantine::subject::Subject;
use cofferdam_kernel::best_effort;
use cofferdam_kernel::seccomp::Listener;
use cofferdam_kernel::shared::Told;
use cofferdam_kernel::signal::SignalFd;
use cofferdam_kernel::timing::{seconds_now, time_until};
use cofferdam_launcher::terminal::Outer;
use cofferdam_plan::LaunchPlan;
use cofferdam_wire::End;
use cofferdam_wire::exec::ExecId;
use cofferdam_wire::order::Lifetime;
use cofferdam_workspace::beginnings::Recording;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::approvals::Approvals;
use crate::approvals::control_socket::{self, ControlSocket};
use crate::attach::{self, AttachedCommands};
use crate::checkpoints::{self as session_checkpoints, SessionCheckpoints};
use crate::covers::Keeper as CoverKeeper;
use crate::execs::{self as session_execs, Execs};
use crate::first_process::FirstProcess;
use crate::limits::clock::Clock;
use crate::limits::monitor::Monitor;
use crate::network::Network;
use crate::network::egress_process::Egress;
use crate::network::refuser::{self, Refuser};
use crate::options::{Options, Returns};
use crate::records::log::Log;
use crate::records::retention;
use crate::records::startup::Startup;
use crate::records::summary::Summary;
use crate::set_up::SetUp;
use crate::store::held_names::Holds;
use crate::store::session_dir::SessionDir;
use crate::store::sweep::Sweep;
use crate::terminal::drain::asks_to_end;
use crate::terminal::output::Output;
use crate::terminal::relay::Relay;
use crate::terminal::standard_streams::{self, StandardStreams};

/// A set-up that says nothing for so long waits for something slow.
const SET_UP: Duration = Duration::from_millis(5);
/// Of one turn of the loop, what the files of a transaction held takes so long; and at the end of a session.
pub(crate) const RECORDING: Duration = Duration::from_millis(2);
const RECORDING_AT_END: Duration = Duration::from_millis(500);

/// The open ends of a running session.
pub(crate) struct Running<'a> {
    pub(crate) plan: &'a LaunchPlan,
    pub(crate) first: FirstProcess,
    pub(crate) set_up: SetUp,
    pub(crate) stops: Option<OwnedFd>,
    pub(crate) signals: SignalFd,
    pub(crate) listener: Option<Listener>,
    pub(crate) streams: StandardStreams,
    pub(crate) approvals: Approvals,
    pub(crate) attached: AttachedCommands,
    pub(crate) execs: Execs,
    /// The client that ordered the session has closed its end.
    is_client_gone: bool,
    pub(crate) log: Log<'a>,
    pub(crate) summary: Summary,
    pub(crate) monitor: Monitor<'a>,
    pub(crate) gate: Option<Gate>,
    pub(crate) network: Network,
    pub(crate) options: &'a Options,
    pub(crate) startup: Startup,
    /// Names that must not appear while a process inside could make them.
    pub(crate) holds: Holds,
    /// Watches covers that host programs can take off.
    pub(crate) keeper: Option<CoverKeeper>,
    /// In a transaction.
    pub(crate) checkpoints: Option<SessionCheckpoints>,
    /// What the files of a transaction held at its beginning, for moments with nothing else to do.
    pub(crate) recording: Option<Recording>,
    /// How the session sees the trees of a transaction without checkpoints.
    pub(crate) views: Vec<OwnedFd>,
    /// Seconds since 1970.
    pub(crate) started: f64,
    pub(crate) ending: Ending,
    /// What killed sessions left, for moments with nothing else to do.
    sweep: Option<Sweep>,
    /// How long records of the audit log are kept, until older ones are looked for.
    retention: Option<Duration>,
}

/// When the session ends, and why.
pub(crate) struct Ending {
    /// The first reason is the one that is told.
    pub(crate) reason: Option<End>,
    /// The file that an attempt to escape came from.
    pub(crate) subject: Option<Rc<Subject>>,
    /// What asked this process, and through it the command, to end.
    asked_to_end: Option<Signal>,
    clock: Clock,
    returns: Returns,
}

/// What woke the loop up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    Socket,
    Notification,
    /// Every process under the filter is gone.
    Unfiltered,
    Stream(standard_streams::Ready),
    Control(control_socket::Ready),
    Attached(usize, attach::Ready),
    Exec((ExecId, session_execs::Ready)),
    OrderClient,
    Stops,
    Signal,
    Gate(cofferdam_gate::Ready),
    Egress,
    Refuser(refuser::Ready),
    /// The process that writes answers to a policy.
    Writer,
    Keeper,
    Checkpoints(session_checkpoints::Ready),
    Ended,
}

pub(crate) struct Ends {
    pub(crate) first: FirstProcess,
    pub(crate) socket: OwnedFd,
    pub(crate) stops: Option<OwnedFd>,
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
        let transaction = directory.as_ref().filter(|_| plan.transaction.is_on() && !plan.copies);
        let transaction = transaction.map(|one| one.path.clone());
        Running {
            recording: None,
            checkpoints: transaction.map(SessionCheckpoints::new),
            views: Vec::new(),
            retention: options.known.as_deref().and_then(|known| known.policy.audit_keep.value.time()),
            sweep: options.state.as_deref().map(|state| Sweep::new(state, &session)),
            plan,
            first: ends.first,
            set_up: SetUp::heard_at(ends.socket),
            stops: ends.stops,
            monitor: Monitor::new(&plan.limits),
            signals: ends.signals,
            listener: None,
            streams: StandardStreams {
                relay: ends.outer.map(|outer| Relay::new(outer, plan.terminal, allowance)),
                output: ends.output,
                input: None,
            },
            attached: AttachedCommands::default(),
            execs: Execs::new(options.ordered.as_ref().map_or(0, |ordered| ordered.kept_bytes), plan.limits.output),
            is_client_gone: false,
            started: seconds_now(),
            log: Log::new(session, options.state.as_deref()),
            summary: Summary::default(),
            holds,
            keeper: None,
            gate,
            network: Network::default(),
            approvals: Approvals::default(),
            options,
            startup: Startup::at_start(directory),
            ending: Ending {
                reason: None,
                subject: None,
                asked_to_end: None,
                clock: Clock::start(plan.timeout),
                returns: options.returns,
            },
        }
    }

    /// Runs until pid 1 is gone.
    pub(crate) fn until_end(&mut self) -> Result<End, Errno> {
        let result = self.turn_until_end();
        if result.is_err() {
            // A session that cannot be supervised does not go on: the caller may live long after this.
            best_effort(self.first.kill(), "it may be gone already");
            // A process that waits for an answer does not end before it has one.
            best_effort(self.gate.as_mut().map_or(Ok(()), Gate::end), "then there is nothing to wait for");
            // Held names are freed next: no process inside may live then.
            best_effort(self.first.reap().map(drop), "then there is nothing to wait for");
        }
        self.tell_last_falls();
        self.let_names_go();
        if let Some(recording) = self.recording.take() {
            recording.end(Instant::now() + RECORDING_AT_END);
        }
        let gated = self.gate.as_mut().map_or(Ok(()), Gate::end).and_then(|()| self.pass_news());
        // An error is told on the terminal.
        let left = self.streams.leave_raw_mode();
        result.and_then(|end| gated.and(left).map(|()| end))
    }

    fn turn_until_end(&mut self) -> Result<End, Errno> {
        loop {
            let ready = self.wait()?;
            if ready.is_empty() {
                self.use_idle_moment()?;
            }
            if let Some(reason) = self.ending.reason {
                self.execs.session_ends(reason);
            }
            for ready in ready {
                match ready {
                    Ready::Socket => self.take_reports()?,
                    Ready::Notification => self.answer()?,
                    Ready::Unfiltered => {
                        if let Some(told) = self.all_ended()? {
                            return self.finish_early(told);
                        }
                    }
                    Ready::Stream(ready) => self.streams.turn(ready)?,
                    Ready::Control(ready) => self.hear(ready)?,
                    Ready::Attached(which, ready) => self.see_to(which, ready)?,
                    Ready::Exec(ready) => self.execs.turn(ready)?,
                    Ready::OrderClient => self.hear_order_client(),
                    Ready::Stops => self.suspend()?,
                    Ready::Signal => self.pass_signals()?,
                    Ready::Gate(ready) => {
                        // What the set-up said came before: by it the gate knows who asks.
                        self.take_reports()?;
                        self.gate.as_mut().map_or(Ok(()), |gate| gate.turn(ready))?;
                    }
                    Ready::Egress => self.hear_egress()?,
                    Ready::Refuser(ready) => self.refuse(ready),
                    Ready::Writer => self.hear_writer()?,
                    Ready::Keeper => self.keep_covers()?,
                    Ready::Checkpoints(ready) => self.hear_checkpoints(ready)?,
                    Ready::Ended => return self.finish(),
                }
            }
            self.attached.forget_ended();
            self.check_clock()?;
            self.take_answers()?;
            self.pass_news()?;
            self.check_output()?;
            self.see_to_execs()?;
            self.save_after_execs();
        }
    }

    /// No process under the filter is left. What pid 1 told, where nothing is left to wait for.
    fn all_ended(&mut self) -> Result<Option<Told>, Errno> {
        self.tell_last_falls();
        // First of all: the process that lets go of the namespaces last takes them apart, and pid 1 has time.
        self.let_go()?;
        self.listener = None;
        if self.attached.was_joined() {
            // Pid 1 is reaped after every process of its namespace: the names are held until then.
            return Ok(None);
        }
        // No process runs inside any more: stand-ins can go while the kernel takes the namespaces apart.
        self.let_names_go();
        // A cgroup can be removed only once pid 1 has left it.
        let returns = self.ending.returns == Returns::WhenAllEnded && self.first.cgroup.is_none();
        Ok(self.first.told().filter(|_| returns))
    }

    /// No process of the session runs any more.
    fn let_names_go(&mut self) {
        for text in self.holds.clear() {
            self.warn(text);
        }
        self.holds = Holds::default();
    }

    /// Something is weaker than it should be.
    fn warn(&mut self, text: String) {
        self.log().warned(&text);
        self.summary.warnings.push(text);
    }

    /// What the files of a transaction held.
    pub(crate) fn record(&mut self, time: Duration) {
        self.recording = self.recording.take().and_then(|recording| recording.turn(Instant::now() + time));
    }

    fn use_idle_moment(&mut self) -> Result<(), Errno> {
        match &self.gate {
            Some(gate) if gate.has_to_learn() => gate.learn(),
            _ if !self.startup.is_done() => self.do_startup_task()?,
            _ if self.keeper.as_ref().is_some_and(CoverKeeper::has_to_look) => self.keep_covers()?,
            _ if self.recording.is_some() => self.record(RECORDING),
            _ if self.sweep.is_some() => {
                let log = &mut self.log;
                self.sweep = self.sweep.take().and_then(|sweep| sweep.turn(&mut |session| log.swept(session)));
            }
            _ => {
                if let Some((state, time)) = self.options.state.as_deref().zip(self.retention.take()) {
                    retention::retain(state, time);
                }
            }
        }
        Ok(())
    }

    /// In the order in which they are to be handled; the end comes last.
    fn wait(&self) -> Result<Vec<Ready>, Errno> {
        let mut watched: Vec<(BorrowedFd<'_>, PollFlags, Ready)> = Vec::with_capacity(8);
        let own = [
            (self.set_up.wanted(), Ready::Socket),
            (self.listener.as_ref().map(AsFd::as_fd), Ready::Notification),
            (self.stops.as_ref().map(AsFd::as_fd), Ready::Stops),
            (self.approvals.keeping.wanted(), Ready::Writer),
            (self.keeper.as_ref().filter(|_| !self.is_putting_back()).and_then(CoverKeeper::wanted), Ready::Keeper),
            (Some(self.signals.as_fd()), Ready::Signal),
            (Some(self.first.as_fd()), Ready::Ended),
        ];
        let gated = self.gate.iter().flat_map(Gate::wanted);
        watched.extend(gated.map(|(fd, ready)| (fd, PollFlags::IN, Ready::Gate(ready))));
        watched.extend(self.streams.wanted().map(|(fd, flags, ready)| (fd, flags, Ready::Stream(ready))));
        let asked = self.approvals.control.iter().flat_map(ControlSocket::wanted);
        watched.extend(asked.map(|(fd, flags, ready)| (fd, flags, Ready::Control(ready))));
        watched.extend(self.attached.wanted().map(|(fd, at, ready)| (fd, PollFlags::IN, Ready::Attached(at, ready))));
        watched.extend(self.execs.wanted().map(|(fd, flags, ready)| (fd, flags, Ready::Exec(ready))));
        let ordered = self.options.ordered.iter().filter(|ordered| ordered.lifetime == Lifetime::WithClient);
        let client = ordered.filter(|_| !self.is_client_gone).map(|ordered| ordered.client.as_fd());
        watched.extend(client.map(|client| (client, PollFlags::IN, Ready::OrderClient)));
        let saved = self.checkpoints.iter().flat_map(SessionCheckpoints::wanted);
        watched.extend(saved.map(|(fd, ready)| (fd, PollFlags::IN, Ready::Checkpoints(ready))));
        let egress = self.network.egress.as_ref().and_then(Egress::wanted);
        watched.extend(egress.map(|(fd, flags)| (fd, flags, Ready::Egress)));
        let refuses = self.network.refuser.iter().flat_map(Refuser::wanted);
        watched.extend(refuses.map(|(fd, ready)| (fd, PollFlags::IN, Ready::Refuser(ready))));
        watched.extend(own.into_iter().filter_map(|(fd, ready)| Some((fd?, PollFlags::IN, ready))));
        let mut fds: Vec<PollFd<'_>> =
            watched.iter().map(|(fd, flags, _)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let has_to_learn = self.gate.as_ref().is_some_and(Gate::has_to_learn);
        let has_to_look = !self.is_putting_back() && self.keeper.as_ref().is_some_and(CoverKeeper::has_to_look);
        let has_later = self.sweep.is_some() || self.recording.is_some() || self.retention.is_some();
        let has_work = has_to_learn || has_to_look || has_later || !self.startup.is_done();
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
                // Asked for a call then, a kernel before 6.11 would wait for ever.
                Ready::Attached(at, attach::Ready::Notification) if !fd.revents().contains(PollFlags::IN) => {
                    Ready::Attached(*at, attach::Ready::Unfiltered)
                }
                other => *other,
            })
            .collect())
    }

    /// How long nothing has to happen until other work is done. The child and the process that makes its network need both of two
    /// CPUs while they build the walls.
    fn patience(&self) -> Duration {
        if self.set_up.is_done(self.plan) { Duration::ZERO } else { SET_UP }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let look = self.set_up.stands.then(|| self.monitor.next_look());
        let control = self.approvals.control.as_ref().and_then(ControlSocket::deadline);
        let gate = self.gate.as_ref().and_then(Gate::deadline);
        let hosts = self.approvals.hosts.deadline();
        let execs = self.execs.deadline();
        let checkpoints = self.checkpoints.as_ref().and_then(SessionCheckpoints::deadline);
        [self.ending.clock.next(), look, self.streams.deadline(), control, gate, hosts, execs, checkpoints]
            .into_iter()
            .flatten()
            .min()
    }

    fn check_clock(&mut self) -> Result<(), Errno> {
        let now = Instant::now();
        self.streams.check_clock(now)?;
        if let Some(control) = &mut self.approvals.control {
            control.check_clock(now);
        }
        if let Some(gate) = &mut self.gate {
            gate.check_clock(now)?;
        }
        if self.execs.check_clock(now)? {
            self.first.kill()?;
        }
        self.check_hosts(now)?;
        self.check_checkpoints(now)?;
        if self.set_up.stands && now >= self.monitor.next_look() {
            self.look(now)?;
        }
        self.ending.clock.check(now).into_iter().try_for_each(|struck| self.hear_clock(struck))
    }

    /// No process is left inside that could ask or be counted.
    fn let_go(&mut self) -> Result<(), Errno> {
        self.attached.namespaces = None;
        // What is there at the end needs no copy.
        self.checkpoints = None;
        self.end_hosts()?;
        // It is in the session's network, which is taken apart next.
        self.network.dialer = None;
        if let Some(gate) = &mut self.gate {
            gate.end()?;
        }
        self.pass_news()?;
        if let Some(gate) = self.gate.take() {
            gate.let_go();
        }
        self.monitor.let_go();
        Ok(())
    }

    /// Ends the session now; the first reason is the one that is told.
    pub(crate) fn end(&mut self, reason: End) -> Result<(), Errno> {
        self.ending.reason.get_or_insert(reason);
        self.first.kill()
    }

    /// The command was stopped: so are we, and the signal that continues us continues it.
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
        self.streams.pause()?;
        // Returns after SIGCONT.
        rustix::process::kill_process(rustix::process::getpid(), Signal::STOP)?;
        self.resume()
    }

    fn resume(&mut self) -> Result<(), Errno> {
        if let Some(relay) = &mut self.streams.relay {
            relay.resume()?;
        }
        // What host programs did meanwhile comes before the session goes on.
        self.keep_covers()?;
        self.first.signal(Signal::CONT)
    }

    fn pass_signals(&mut self) -> Result<(), Errno> {
        while let Some(number) = self.signals.read()? {
            let Some(signal) = Signal::from_named_raw(number) else { continue };
            match signal {
                // SIGPIPE is about what this process wrote: the command's own comes from its own pipe.
                Signal::CHILD | Signal::PIPE => {}
                Signal::WINCH => {
                    if let Some(relay) = &mut self.streams.relay {
                        relay.resize()?;
                    }
                }
                Signal::CONT => self.resume()?,
                // The terminal's stop key when it is not in raw mode: stop the command, whose stop then stops us.
                Signal::TSTP if self.streams.relay.is_none() => {
                    self.first.signal(Signal::TSTP)?;
                    rustix::process::kill_process(rustix::process::getpid(), Signal::STOP)?;
                }
                other => {
                    self.ending.asked_to_end =
                        self.ending.asked_to_end.or(Some(other).filter(|signal| asks_to_end(*signal)));
                    if !(asks_to_end(other) && self.end_order(other)) {
                        self.first.signal(other)?;
                    }
                }
            }
        }
        Ok(())
    }
}
