//! The child of the launch: executes the plan, becomes pid 1, starts the command, reaps, forwards signals.
//! Owns the order "set up, drop everything, only then start what is not trusted". Holds no descriptor but, for a
//! terminal session, the write end of a pipe that says the command was stopped. Called by `supervisor::launch` in the child.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use cofferdam_kernel::best_effort;
use cofferdam_kernel::{process, signal, socket};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use crate::apply::apply;
use crate::inheritance::Inheritance;
use crate::marks;
use crate::report::{About, Message, StepError};
use crate::streams::{self};
use crate::terminal::{self};
use crate::workload;

/// Never returns.
pub fn run(inheritance: &Inheritance<'_>) -> ! {
    let code = match prepare(inheritance) {
        Ok(terminal) => start(inheritance, terminal.as_ref()),
        Err((step, error)) => {
            let step = u16::try_from(step).unwrap_or(u16::MAX);
            let message = Message::Failed { step, errno: error.errno.raw_os_error(), text: error.text };
            let sent = socket::send(inheritance.parent.as_fd(), &message.encode(), None);
            best_effort(sent, "the exit code tells the parent as well");
            125
        }
    };
    process::exit_now(code)
}

/// Everything that needs privilege or a way to the parent. Returns the sandbox's side of the terminal.
fn prepare(inheritance: &Inheritance<'_>) -> Result<Option<OwnedFd>, (usize, StepError)> {
    inheritance.marks.mark(marks::CHILD);
    let outside = |error| (usize::from(u16::MAX), error);
    // A caller that launches again is not dumpable any more, and its child could not write its own id maps.
    process::allow_tracing().about(|| "dumpability".to_owned()).map_err(outside)?;
    process::die_with_parent().about(|| "the parent-death signal".to_owned()).map_err(outside)?;
    // A parent that ended before that sends no signal; but the kernel closes its end of the socket first. (Its pid says
    // nothing: from a pid namespace of our own it is 0 either way.)
    if socket::is_abandoned(&inheritance.parent).about(|| "the parent".to_owned()).map_err(outside)? {
        process::exit_now(125);
    }
    signal::block_all().about(|| "signals".to_owned()).map_err(outside)?;
    // Modes in the private file systems are exact; the command gets the user's mask back.
    let umask = rustix::process::umask(Mode::empty());
    rustix::process::setsid().about(|| "the session".to_owned()).map_err(outside)?;
    hand_over_stdin(inheritance).about(|| "stdin".to_owned()).map_err(outside)?;
    let applied = apply(inheritance)?;
    rustix::process::umask(umask);
    process::forbid_tracing().about(|| "dumpability".to_owned()).map_err(outside)?;
    let parent = inheritance.parent.as_fd();
    if let Some(listener) = &applied.listener {
        let sent = socket::send(parent, &Message::Listener.encode(), Some(listener.as_fd()));
        sent.about(|| "the listener".to_owned()).map_err(outside)?;
    }
    let counts = inheritance.plan.limits.counts_processes()
        || inheritance.plan.gate.is_some()
        || inheritance.plan.watches_covers()
        || inheritance.plan.transaction.is_on();
    if counts && inheritance.plan.namespaces.pid {
        send_what_is_counted(parent).about(|| "the way to count processes".to_owned()).map_err(outside)?;
    }
    let Some(outer) = &inheritance.outer else { return Ok(None) };
    let (master, slave) = terminal::open_inside(outer).about(|| "the terminal".to_owned()).map_err(outside)?;
    let sent = socket::send(parent, &Message::Terminal.encode(), Some(master.as_fd()));
    sent.about(|| "the terminal".to_owned()).map_err(outside)?;
    Ok(Some(slave))
}

/// Before the root is changed: the file's name means something only now.
fn hand_over_stdin(inheritance: &Inheritance<'_>) -> Result<(), Errno> {
    match streams::replace_stdin(inheritance.kinds[0])? {
        Some(fd) => socket::send(inheritance.parent.as_fd(), &Message::Input.encode(), Some(fd.as_fd())),
        None => Ok(()),
    }
}

/// What only this side of the namespaces can open: the sandbox's /proc, and the list of its segments.
fn send_what_is_counted(parent: BorrowedFd<'_>) -> Result<(), Errno> {
    let open = |path: &str, more| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | more, Mode::empty());
    let proc = open("/proc", OFlags::DIRECTORY)?;
    socket::send(parent, &Message::Processes.encode(), Some(proc.as_fd()))?;
    match open("/proc/sysvipc/shm", OFlags::NOFOLLOW) {
        Ok(list) => socket::send(parent, &Message::Segments.encode(), Some(list.as_fd())),
        // This kernel has no segments.
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Starts the command and stays as pid 1.
fn start(inheritance: &Inheritance<'_>, terminal: Option<&OwnedFd>) -> ! {
    if !inheritance.plan.namespaces.pid {
        // Without a pid namespace there is no pid 1 to be: this process becomes the command.
        workload::become_command(inheritance, terminal, || {});
    }
    if !inheritance.has_command {
        process::without_descriptors_from(0, reap_for_ever);
    }
    let is_bare = AtomicBool::new(false);
    let wait = || {
        while !is_bare.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    };
    process::spawn(&mut || workload::become_command(inheritance, terminal, wait), |command| {
        stay(inheritance, command, &is_bare)
    })
}

/// The command starts once this process has nothing that the command could want.
fn stay(inheritance: &Inheritance<'_>, command: Result<i32, Errno>, is_bare: &AtomicBool) -> i32 {
    let command = match command {
        Ok(pid) => pid,
        Err(errno) => return not_started(inheritance, errno),
    };
    let Some(command) = Pid::from_raw(command) else { return 125 };
    let has_stops = inheritance.stops.is_some();
    if let Some(stops) = &inheritance.stops
        && rustix::stdio::dup2_stdin(stops).is_err()
    {
        return 125;
    }
    process::without_descriptors_from(u32::from(has_stops), || {
        is_bare.store(true, Ordering::Release);
        let ended = reap(command, has_stops);
        inheritance.marks.mark(marks::REAPED);
        end_all_others();
        inheritance.told.tell(ended.code, ended.signalled);
        i32::from(ended.code)
    })
}

/// Without this word the end of a session that never began would look like a command that ended with 125.
fn not_started(inheritance: &Inheritance<'_>, errno: Errno) -> i32 {
    let text = "the command's process".to_owned();
    let message = Message::Failed { step: u16::MAX, errno: errno.raw_os_error(), text };
    best_effort(
        socket::send(inheritance.parent.as_fd(), &message.encode(), None),
        "the exit code tells the parent as well",
    );
    125
}

/// Nothing outlives the command; once this returns no process but pid 1 is left in the namespace.
fn end_all_others() {
    best_effort(process::kill_all_others(), "the other processes may have ended already");
    while !matches!(rustix::process::wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
}

/// The life of a pid 1 whose commands join from outside: the supervisor tells each of them to end, and kills this process last.
fn reap_for_ever() -> i32 {
    while signal::wait().is_ok() {
        while matches!(rustix::process::wait(WaitOptions::NOHANG), Ok(Some(_)) | Err(Errno::INTR)) {}
    }
    125
}

/// How the command ended, as a shell would say it.
struct Ended {
    code: u8,
    signalled: bool,
}

impl Ended {
    const FAILED: Ended = Ended { code: 125, signalled: false };
}

fn byte(code: i32) -> u8 {
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
}

/// Pid 1's life: collect the dead, pass on what comes from outside, end with the command.
fn reap(command: Pid, has_stops: bool) -> Ended {
    loop {
        let Ok(received) = signal::wait() else { return Ended::FAILED };
        if received.signal == Signal::CHILD.as_raw() {
            if let Some(ended) = collect(command, has_stops) {
                return ended;
            }
        } else if received.sender == 0
            && let Some(signal) = Signal::from_named_raw(received.signal)
        {
            // From outside this pid namespace: for the command's process group, which the command makes itself. What came
            // before is for its process, where it waits until the command starts.
            let sent = match rustix::process::kill_process_group(command, signal) {
                Err(Errno::SRCH) => rustix::process::kill_process(command, signal),
                other => other,
            };
            best_effort(sent, "it may be gone already");
        }
    }
}

fn collect(command: Pid, has_stops: bool) -> Option<Ended> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) if pid == command => {
                if let Some(code) = status.exit_status() {
                    return Some(Ended { code: byte(code), signalled: false });
                }
                if let Some(signal) = status.terminating_signal() {
                    return Some(Ended { code: byte(128 + signal), signalled: true });
                }
                if has_stops && status.stopped() {
                    let told = rustix::io::write(rustix::stdio::stdin(), b"S");
                    best_effort(told, "without a supervisor to suspend the command just stays stopped");
                }
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return None,
            Err(_) => return Some(Ended::FAILED),
        }
    }
}
