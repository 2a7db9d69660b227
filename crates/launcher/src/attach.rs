//! A further command in a session that runs: joins its namespaces and its cgroup, takes on its limits, its filter and its
//! environment, and starts. Owns the process that does it and stays as its parent; who may ask for it is `desk`'s, the
//! other end of the channel `visit`'s. Called by the supervisor.
//!
//! ```text
//!   supervisor ── helper: joins user and pid namespace; waits; says the exit code
//!                   '- command: in the session's cgroup, joins the rest, gives up everything, executes
//! ```
//!
//! The helper holds nothing but the channel and the command's pidfd. Whoever it serves going away is a hang-up, its own end
//! is the command's.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cofferdam_kernel::namespace::Joined;
use cofferdam_kernel::process::{self, Side};
use cofferdam_kernel::seccomp::{Listener, Notification};
use cofferdam_kernel::{exec, signal, socket};
use cofferdam_plan::{LaunchPlan, Step};
use cofferdam_policy::Isolation;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, pidfd_send_signal, waitid, waitpid};

use crate::apply::{apply_to_joined, end_first};
use crate::calls::give;
use crate::desk::Wish;
use crate::message::{About, Message, StepError, best_effort};
use crate::patience::time_until;
use crate::streams::{self, Kind};
use crate::supervisor::Running;
use crate::terminal;

/// The order in which the set-up child sends its namespaces.
pub(crate) const JOINED: [Joined; 7] =
    [Joined::User, Joined::Pid, Joined::Mount, Joined::Ipc, Joined::Uts, Joined::Net, Joined::Cgroup];

/// Which of them is the mount namespace.
pub(crate) const MOUNTS: usize = 2;

pub(crate) const MOST_ATTACHED: usize = 16;

/// Between a hang-up and SIGKILL, and for the last words of a helper.
const GRACE: Duration = Duration::from_secs(2);

/// What is said over the channel; the first byte of each message.
pub(crate) mod word {
    /// Carries the master side of the command's terminal.
    pub(crate) const TERMINAL: u8 = b'T';
    /// Followed by the exit code.
    pub(crate) const ENDED: u8 = b'E';
    /// Followed by what could not be done.
    pub(crate) const FAILED: u8 = b'F';
    /// From the client, followed by the number.
    pub(crate) const SIGNAL: u8 = b'S';
}

/// The supervisor's end.
#[derive(Debug)]
pub(crate) struct Attached {
    helper: OwnedFd,
    /// Where the command's listener comes from.
    report: Option<OwnedFd>,
    listener: Option<Listener>,
    is_over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Report,
    Notification,
    Helper,
}

impl Attached {
    pub(crate) fn start(
        plan: &LaunchPlan,
        namespaces: &[OwnedFd],
        cgroup: Option<BorrowedFd<'_>>,
        wish: &Wish,
    ) -> Result<Attached, Errno> {
        let (ours, theirs) = socket::pair()?;
        match process::clone_into(0, None)? {
            Side::Child => {
                drop(ours);
                Joining { plan, namespaces, cgroup, wish, report: theirs }.help()
            }
            Side::Parent { pidfd, .. } => {
                Ok(Attached { helper: pidfd, report: Some(ours), listener: None, is_over: false })
            }
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    pub(crate) fn wanted(&self) -> Vec<(BorrowedFd<'_>, Ready)> {
        let report = self.report.as_ref().map(|fd| (fd.as_fd(), Ready::Report));
        let listener = self.listener.as_ref().map(|listener| (listener.as_fd(), Ready::Notification));
        [report, listener, Some((self.helper.as_fd(), Ready::Helper))].into_iter().flatten().collect()
    }

    /// A call that was reported.
    fn turn(&mut self, ready: Ready) -> Result<Option<Notification>, Errno> {
        match ready {
            Ready::Report => {
                let received = self.report.as_ref().map(socket::receive_now).transpose()?;
                let (bytes, mut fds) = received.unwrap_or_default();
                match (Message::decode(&bytes), fds.pop()) {
                    (Some(Message::Listener), Some(fd)) => self.listener = Some(Listener::from_fd(fd)),
                    _ => self.report = None,
                }
            }
            Ready::Notification => match self.listener.as_ref().map(Listener::receive) {
                Some(Ok(notification)) => return Ok(notification),
                // Everybody who could ask is gone.
                Some(Err(_)) | None => self.listener = None,
            },
            Ready::Helper => {
                waitid(WaitId::PidFd(self.helper.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG)?;
                self.is_over = true;
            }
        }
        Ok(None)
    }
}

impl Drop for Attached {
    /// The command ended with the session; its helper gets a moment to say so.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut fds = [PollFd::new(&self.helper, PollFlags::IN)];
        let until = time_until(Instant::now() + GRACE);
        if poll(&mut fds, Some(&until)) != Ok(1) {
            best_effort(pidfd_send_signal(&self.helper, Signal::KILL), "it may have ended meanwhile");
        }
        while matches!(waitid(WaitId::PidFd(self.helper.as_fd()), WaitIdOptions::EXITED), Err(Errno::INTR)) {}
    }
}

impl Running<'_> {
    pub(crate) fn see_to(&mut self, which: usize, ready: Ready) -> Result<(), Errno> {
        let Some(attached) = self.attached.get_mut(which) else { return Ok(()) };
        let Some(notification) = attached.turn(ready)? else { return Ok(()) };
        let answer = self.answer_to(&notification);
        if let Some(listener) = self.attached.get(which).and_then(|attached| attached.listener.as_ref()) {
            give(answer, listener, &notification)?;
        }
        self.end_past_threshold()
    }
}

/// In the helper and in the command.
struct Joining<'a> {
    plan: &'a LaunchPlan,
    namespaces: &'a [OwnedFd],
    cgroup: Option<BorrowedFd<'a>>,
    wish: &'a Wish,
    report: OwnedFd,
}

impl Joining<'_> {
    /// Never returns.
    fn help(&self) -> ! {
        match self.start() {
            Ok((pid, pidfd)) => self.stay(pid, &pidfd),
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&self, error: &StepError) -> ! {
        let text = format!("{}: {}", error.text, error.errno);
        self.tell(&[&[word::FAILED], text.as_bytes()].concat(), None);
        process::exit_now(125)
    }

    fn tell(&self, message: &[u8], fd: Option<BorrowedFd<'_>>) {
        best_effort(socket::send(self.wish.channel.as_fd(), message, fd), "who is gone needs no word");
    }

    fn start(&self) -> Result<(Pid, OwnedFd), StepError> {
        let about = || "the session".to_owned();
        if self.plan.steps.contains(&Step::EndFirst) {
            // Its own file in /proc belongs to root until then. Whatever it starts inherits the number.
            process::allow_tracing().about(about)?;
            end_first()?;
            process::forbid_tracing().about(about)?;
        }
        self.enter(Joined::User)?;
        self.enter(Joined::Pid)?;
        process::die_with_parent().about(about)?;
        if socket::is_abandoned(&self.report).about(about)? {
            process::exit_now(125);
        }
        match process::clone_into(0, self.cgroup).about(|| "a process in the session".to_owned())? {
            Side::Child => match self.become_command() {
                Err(error) => self.fail(&error),
                Ok(errno) => {
                    let program = self.wish.argv.first().cloned().unwrap_or_default();
                    let text = format!("cannot execute `{program}`: {errno}");
                    self.tell(&[&[word::FAILED], text.as_bytes()].concat(), None);
                    process::exit_now(if errno == Errno::NOENT { 127 } else { 126 })
                }
            },
            Side::Parent { pid, pidfd } => Ok((Pid::from_raw(pid).ok_or(Errno::SRCH).about(about)?, pidfd)),
        }
    }

    fn enter(&self, kind: Joined) -> Result<(), StepError> {
        let about = || format!("the session's {kind:?} namespace");
        let at = JOINED.iter().position(|joined| *joined == kind);
        let namespace = at.and_then(|at| self.namespaces.get(at)).ok_or(Errno::NOENT).about(about)?;
        kind.enter(namespace).about(about)
    }

    /// Returns what kept the program from being executed.
    fn become_command(&self) -> Result<Errno, StepError> {
        let about = || "the command".to_owned();
        process::die_with_parent().about(about)?;
        rustix::process::setsid().about(about)?;
        let own = self.plan.namespaces;
        for (is_own, kind) in [
            (own.ipc, Joined::Ipc),
            (own.uts, Joined::Uts),
            (own.net, Joined::Net),
            (self.plan.isolation == Isolation::Full, Joined::Cgroup),
            // Last: it has the way to nothing else.
            (own.mount, Joined::Mount),
        ] {
            if is_own {
                self.enter(kind)?;
            }
        }
        let devices = self.own_devices()?;
        let applied = apply_to_joined(self.plan, self.report.as_fd())?;
        if let Some(listener) = &applied.listener {
            let sent = socket::send(self.report.as_fd(), &Message::Listener.encode(), Some(listener.as_fd()));
            sent.about(|| "the listener".to_owned())?;
        }
        self.take_streams(&devices).about(|| "the streams".to_owned())?;
        process::close_at_exec_from(3).about(about)?;
        signal::reset().about(about)?;
        rustix::process::chdir(&self.plan.command.cwd)
            .or_else(|_| rustix::process::chdir("/"))
            .about(|| "the working directory".to_owned())?;
        Ok(self.execute())
    }

    /// What came along may not lead outside either: the client has carried what would. Devices are the session's own, opened
    /// before the filter reports that.
    fn own_devices(&self) -> Result<[Option<OwnedFd>; 3], StepError> {
        let mut own = [None, None, None];
        for (own, stream) in own.iter_mut().zip(&self.wish.streams) {
            match streams::kind_of(stream.as_fd()).about(|| "the streams".to_owned())? {
                Ok(Kind::Channel) => {}
                Ok(Kind::Device(path)) => {
                    *own = Some(streams::own_device(path, stream.as_fd()).about(|| "the streams".to_owned())?);
                }
                Ok(Kind::File | Kind::Fifo | Kind::Terminal) => {
                    return Err(StepError::new("a stream is a file, which would lead out of the sandbox", Errno::PERM));
                }
                Err(is) => {
                    let text = format!("a stream is {is}, which would lead out of the sandbox");
                    return Err(StepError::new(text, Errno::PERM));
                }
            }
        }
        Ok(own)
    }

    /// A terminal of the user's never gets in: the command has one of the session's own, and the client its other side.
    fn take_streams(&self, devices: &[Option<OwnedFd>; 3]) -> Result<(), Errno> {
        let wish = self.wish;
        let terminal = if wish.terminal.contains(&true) {
            let (master, slave) = terminal::open_for_joined()?;
            socket::send(wish.channel.as_fd(), &[word::TERMINAL], Some(master.as_fd()))?;
            Some(slave)
        } else {
            None
        };
        let stream = |at: usize| match &terminal {
            Some(terminal) if wish.terminal[at] => terminal.as_fd(),
            _ => devices[at].as_ref().unwrap_or(&wish.streams[at]).as_fd(),
        };
        rustix::stdio::dup2_stdin(stream(0))?;
        rustix::stdio::dup2_stdout(stream(1))?;
        rustix::stdio::dup2_stderr(stream(2))
    }

    fn execute(&self) -> Errno {
        let command = &self.plan.command;
        let strings = |values: Vec<String>| values.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
        let environment = command.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let (Ok(argv), Ok(environment)) = (strings(self.wish.argv.clone()), strings(environment)) else {
            return Errno::INVAL;
        };
        let path = command.environment.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value);
        exec::execute(&argv, &environment, path)
    }

    /// With the channel as stdin, the command's pidfd as stdout and nothing else.
    fn stay(&self, pid: Pid, pidfd: &OwnedFd) -> ! {
        let placed = rustix::stdio::dup2_stdin(&self.wish.channel).and_then(|()| rustix::stdio::dup2_stdout(pidfd));
        if placed.is_err() {
            process::exit_now(125);
        }
        process::without_descriptors_from(2, || serve(pid).unwrap_or(125))
    }
}

/// The helper's life: passes signals on, ends the command when the client is gone, says how it ended.
fn serve(pid: Pid) -> Result<i32, Errno> {
    let (channel, command) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    let mut is_heard = true;
    let mut kill_at = None;
    loop {
        let mut fds = [PollFd::new(&command, PollFlags::IN), PollFd::new(&channel, PollFlags::IN)];
        let wanted = if is_heard { &mut fds[..] } else { &mut fds[..1] };
        match poll(wanted, kill_at.map(time_until).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let (has_ended, is_said) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
        if has_ended {
            return end(pid, channel);
        }
        if is_heard && is_said && !obey(pid, channel)? {
            is_heard = false;
            kill_at = Some(Instant::now() + GRACE);
            best_effort(rustix::process::kill_process_group(pid, Signal::HUP), "it may have ended");
            best_effort(rustix::process::kill_process_group(pid, Signal::CONT), "it may have ended");
        }
        if kill_at.is_some_and(|at| Instant::now() >= at) {
            kill_at = None;
            best_effort(rustix::process::kill_process(pid, Signal::KILL), "it may have ended");
        }
    }
}

/// Whether the client is still there.
fn obey(pid: Pid, channel: BorrowedFd<'_>) -> Result<bool, Errno> {
    let (bytes, _) = socket::receive(channel)?;
    if let [word::SIGNAL, number] = bytes.as_slice()
        && let Some(signal) = Signal::from_named_raw(i32::from(*number))
    {
        best_effort(rustix::process::kill_process_group(pid, signal), "it may have ended");
    }
    Ok(!bytes.is_empty())
}

fn end(pid: Pid, channel: BorrowedFd<'_>) -> Result<i32, Errno> {
    let status = loop {
        match waitpid(Some(pid), WaitOptions::empty()) {
            Err(Errno::INTR) => {}
            other => break other?.map(|(_, status)| status),
        }
    };
    let code = status.and_then(|s| s.exit_status().or_else(|| s.terminating_signal().map(|signal| 128 + signal)));
    let code = u8::try_from(code.unwrap_or(125) & 0xff).unwrap_or(u8::MAX);
    best_effort(socket::send(channel, &[word::ENDED, code], None), "who is gone needs no word");
    Ok(i32::from(code))
}
