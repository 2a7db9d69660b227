//! A further command in a session that runs: joins its namespaces and its cgroup, takes on its limits, its filter and its
//! environment, and executes. Owns the helper, which stays as its parent, and the command until exec; refuses to own who may
//! ask for one. Called by `supervisor` in the helper's process.
//!
//! ```text
//!   supervisor ── helper: joins user and pid namespace; waits; says the exit code
//!                   '- command: in the session's cgroup, joins the rest, gives up everything, executes
//! ```
//!
//! The helper holds nothing but the channel and the command's pidfd. A client that goes away is a hang-up; the helper's own
//! end is the command's.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cofferdam_kernel::best_effort;
use cofferdam_kernel::namespace::Joined;
use cofferdam_kernel::process::{self, Side};
use cofferdam_kernel::timing::time_until;
use cofferdam_kernel::{exec, signal, socket};
use cofferdam_plan::{LaunchPlan, Step};
use cofferdam_policy::Isolation;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitOptions, getrlimit, setrlimit, waitpid};

use crate::apply::{apply_to_joined, end_first};
use crate::report::{About, JOINED, Message, StepError};
use crate::streams::{self, Kind};
use crate::terminal;

/// Between a hang-up and SIGKILL, and for a tracer to let go of a command that has ended.
const GRACE: Duration = Duration::from_secs(2);

/// Bytes of a program's name, and of all that is said of a failure.
const MOST_SHOWN: usize = 256;
const MOST_TEXT: usize = 2048;

/// The exit code of a command that was killed.
const KILLED: i32 = 137;

/// What is said over the channel; the first byte of each message.
pub mod word {
    /// Carries the master side of the command's terminal.
    pub const TERMINAL: u8 = b'T';
    /// Followed by the exit code.
    pub const ENDED: u8 = b'E';
    /// Followed by what could not be done.
    pub const FAILED: u8 = b'F';
    /// From the client, followed by the number.
    pub const SIGNAL: u8 = b'S';
}

/// A command that a client wants to start in the session.
#[derive(Debug)]
pub struct JoinRequest {
    pub argv: Vec<String>,
    /// Where it must start; without one where the session did, or at the root.
    pub cwd: Option<PathBuf>,
    /// Beside and instead of the session's variables.
    pub environment: Vec<(String, String)>,
    /// More limits of its processes; none is widened.
    pub limits: Vec<(Resource, u64)>,
    /// Which of the streams are to be a terminal.
    pub terminal: [bool; 3],
    pub streams: [OwnedFd; 3],
    /// Where the client hears of it.
    pub channel: OwnedFd,
}

/// In the helper and in the command.
#[derive(Debug)]
pub struct Joining<'a> {
    pub plan: &'a LaunchPlan,
    pub namespaces: &'a [OwnedFd],
    pub cgroup: Option<BorrowedFd<'a>>,
    pub request: &'a JoinRequest,
    pub report: OwnedFd,
}

impl Joining<'_> {
    /// Never returns.
    pub fn help(&self) -> ! {
        match self.start() {
            Ok((pid, pidfd)) => self.stay(pid, &pidfd),
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&self, error: &StepError) -> ! {
        self.tell_failure(&format!("{}: {}", error.text, error.errno));
        process::exit_now(125)
    }

    fn tell(&self, message: &[u8], fd: Option<BorrowedFd<'_>>) {
        best_effort(socket::send(self.request.channel.as_fd(), message, fd), "who is gone needs no word");
    }

    /// Far below what a message can have, whatever the command line was.
    fn tell_failure(&self, text: &str) {
        let text = &text[..text.floor_char_boundary(MOST_TEXT)];
        self.tell(&[&[word::FAILED], text.as_bytes()].concat(), None);
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
                    let program = self.request.argv.first().cloned().unwrap_or_default();
                    let shown = &program[..program.floor_char_boundary(MOST_SHOWN)];
                    let more = if shown.len() < program.len() { "..." } else { "" };
                    self.tell_failure(&format!("cannot execute `{shown}{more}`: {errno}"));
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
        self.limit().about(|| "the command's limits".to_owned())?;
        self.take_streams(&devices).about(|| "the streams".to_owned())?;
        process::close_at_exec_from(3).about(about)?;
        signal::reset().about(about)?;
        let entered = match &self.request.cwd {
            Some(cwd) => rustix::process::chdir(cwd),
            None => rustix::process::chdir(&self.plan.command.cwd).or_else(|_| rustix::process::chdir("/")),
        };
        entered.about(|| "the working directory".to_owned())?;
        Ok(self.execute())
    }

    fn limit(&self) -> Result<(), Errno> {
        for (resource, most) in &self.request.limits {
            let session = getrlimit(*resource);
            let lowered = |limit: Option<u64>| Some(limit.map_or(*most, |limit| limit.min(*most)));
            let both = Rlimit { current: lowered(session.current), maximum: lowered(session.maximum) };
            setrlimit(*resource, both)?;
        }
        Ok(())
    }

    /// What came along may not lead outside either: the client has carried what would. Devices are the session's own, opened
    /// before the filter reports that.
    fn own_devices(&self) -> Result<[Option<OwnedFd>; 3], StepError> {
        let mut own = [None, None, None];
        for (own, stream) in own.iter_mut().zip(&self.request.streams) {
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
        let request = self.request;
        let terminal = if request.terminal.contains(&true) {
            let (master, slave) = terminal::open_for_joined()?;
            socket::send(request.channel.as_fd(), &[word::TERMINAL], Some(master.as_fd()))?;
            Some(slave)
        } else {
            None
        };
        let stream = |at: usize| match &terminal {
            Some(terminal) if request.terminal[at] => terminal.as_fd(),
            _ => devices[at].as_ref().unwrap_or(&request.streams[at]).as_fd(),
        };
        rustix::stdio::dup2_stdin(stream(0))?;
        rustix::stdio::dup2_stdout(stream(1))?;
        rustix::stdio::dup2_stderr(stream(2))
    }

    fn execute(&self) -> Errno {
        let strings = |values: Vec<String>| values.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
        let own = &self.request.environment;
        let is_replaced = |name: &str| own.iter().any(|(own, _)| own == name);
        let inherited = self.plan.command.environment.iter().filter(|(name, _)| !is_replaced(name));
        let variables: Vec<&(String, String)> = inherited.chain(own).collect();
        let environment = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let (Ok(argv), Ok(environment)) = (strings(self.request.argv.clone()), strings(environment)) else {
            return Errno::INVAL;
        };
        let path = variables.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value);
        exec::execute(&argv, &environment, path)
    }

    /// With the channel as stdin, the command's pidfd as stdout and nothing else.
    fn stay(&self, pid: Pid, pidfd: &OwnedFd) -> ! {
        let placed = rustix::stdio::dup2_stdin(&self.request.channel).and_then(|()| rustix::stdio::dup2_stdout(pidfd));
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
        // Its group is made after it is started.
        let sent = match rustix::process::kill_process_group(pid, signal) {
            Err(Errno::SRCH) => rustix::process::kill_process(pid, signal),
            other => other,
        };
        best_effort(sent, "it may have ended");
    }
    Ok(!bytes.is_empty())
}

fn end(pid: Pid, channel: BorrowedFd<'_>) -> Result<i32, Errno> {
    // It has ended; what traces it hears of that first, and one that never listens does not keep it from being told.
    let until = Instant::now() + GRACE;
    let status = loop {
        match waitpid(Some(pid), WaitOptions::NOHANG) {
            Err(Errno::INTR) => {}
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            other => break other?.map(|(_, status)| status),
        }
    };
    let code = status.and_then(|s| s.exit_status().or_else(|| s.terminating_signal().map(|signal| 128 + signal)));
    let code = u8::try_from(code.unwrap_or(KILLED) & 0xff).unwrap_or(u8::MAX);
    best_effort(socket::send(channel, &[word::ENDED, code], None), "who is gone needs no word");
    Ok(i32::from(code))
}
