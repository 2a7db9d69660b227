//! Stops every process of a session and lets it go on. Owns the two ways to do it (the cgroup's freezer, SIGSTOP) and what was
//! stopped before, which stays stopped; why and for how long is the keeper's. Called by `keeper`.
//!
//! SIGSTOP goes to pid 1 first: it would take the command's stop for one of job control. It is continued last, when no stop
//! can be waited for any more, and every other process before its parent for the same reason.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};

use crate::cgroup::SessionCgroup;
use crate::message::best_effort;

/// Between two looks.
const LOOK: Duration = Duration::from_micros(50);
/// A cgroup that is not frozen by then has a task that waits for the supervisor.
const FREEZES: Duration = Duration::from_millis(5);
/// A session that does not stop by then is ended.
const STOPS: Duration = Duration::from_secs(2);
/// A task in an uninterruptible sleep may wait for this very process; it stops before it runs again.
const SLEEPS: Duration = Duration::from_millis(20);

/// What the kernel calls the places in which a task waits for the supervisor's answer.
const QUESTIONS: &[&str] = &["fuse", "request_wait_answer", "seccomp"];

/// The ends that are needed to stop a session.
pub(crate) struct Session<'a> {
    /// The sandbox's /proc.
    pub(crate) processes: BorrowedFd<'a>,
    /// Pid 1 of it.
    pub(crate) first: BorrowedFd<'a>,
    pub(crate) cgroup: Option<&'a SessionCgroup>,
    /// A task that waits in one cannot be frozen.
    pub(crate) has_question: bool,
}

/// A session in which no task runs.
#[must_use]
pub(crate) struct Halted {
    frozen: bool,
    /// Those that ran, by their number inside.
    stopped: BTreeMap<u32, OwnedFd>,
}

impl Session<'_> {
    pub(crate) fn stop(&self) -> Result<Halted, Errno> {
        if let Some(cgroup) = self.cgroup.filter(|_| !self.has_question)
            && freeze(cgroup)
        {
            return Ok(Halted { frozen: true, stopped: BTreeMap::new() });
        }
        let mut halted = Halted { frozen: false, stopped: BTreeMap::new() };
        match self.stop_all(&mut halted) {
            Ok(()) => Ok(halted),
            Err(errno) => {
                self.resume(&halted);
                Err(errno)
            }
        }
    }

    fn stop_all(&self, halted: &mut Halted) -> Result<(), Errno> {
        send(self.first, Signal::STOP)?;
        let began = Instant::now();
        let mut before = Vec::new();
        loop {
            let mut is_quiet = true;
            for pid in numbers(self.processes, c".")?.into_iter().filter(|pid| *pid != 1) {
                if before.contains(&pid) || halted.stopped.contains_key(&pid) {
                    continue;
                }
                let Ok(process) = directory(self.processes, &pid.to_string()) else { continue };
                match state(process.as_fd(), "stat") {
                    Some(b'T') => before.push(pid),
                    Some(b'Z' | b'X') | None => {}
                    Some(_) => {
                        send(process.as_fd(), Signal::STOP)?;
                        halted.stopped.insert(pid, process);
                        is_quiet = false;
                    }
                }
            }
            let patience = began.elapsed();
            if is_quiet && halted.stopped.values().all(|process| is_still(process.as_fd(), patience)) {
                return Ok(());
            }
            if patience > STOPS {
                return Err(Errno::TIMEDOUT);
            }
            if !is_quiet || patience > Duration::from_micros(200) {
                std::thread::sleep(LOOK);
            }
        }
    }

    /// A process that was stopped before stays so.
    pub(crate) fn resume(&self, halted: &Halted) {
        if halted.frozen {
            let thawed = self.cgroup.map_or(Ok(()), |cgroup| cgroup.write("cgroup.freeze", "0"));
            return best_effort(thawed, "a cgroup that cannot be written to any more is gone");
        }
        for process in halted.stopped.values().rev() {
            best_effort(send(process.as_fd(), Signal::CONT), "it may have been killed");
        }
        best_effort(send(self.first, Signal::CONT), "it may have been killed");
    }
}

/// Gone is as good as stopped.
fn send(process: BorrowedFd<'_>, signal: Signal) -> Result<(), Errno> {
    match pidfd_send_signal(process, signal) {
        Err(Errno::SRCH) => Ok(()),
        other => other,
    }
}

fn freeze(cgroup: &SessionCgroup) -> bool {
    if cgroup.write("cgroup.freeze", "1").is_err() {
        return false;
    }
    let until = Instant::now() + FREEZES;
    while Instant::now() < until {
        if cgroup.read("cgroup.events").is_some_and(|events| events.lines().any(|line| line == "frozen 1")) {
            return true;
        }
        std::thread::sleep(LOOK);
    }
    best_effort(cgroup.write("cgroup.freeze", "0"), "signals stop what is left");
    false
}

/// Whether no thread of a process runs.
fn is_still(process: BorrowedFd<'_>, patience: Duration) -> bool {
    let Ok(tasks) = numbers(process, c"task") else { return true };
    tasks.into_iter().all(|task| match state(process, &format!("task/{task}/stat")) {
        Some(b'T' | b't' | b'Z' | b'X') | None => true,
        Some(b'D') if patience > SLEEPS => true,
        Some(b'D' | b'S') => {
            let place = read(process, &format!("task/{task}/wchan")).unwrap_or_default();
            let place = String::from_utf8_lossy(&place);
            QUESTIONS.iter().any(|question| place.contains(question))
        }
        Some(_) => false,
    })
}

/// The state letter of a `stat` file; the name before it may hold anything.
fn state(process: BorrowedFd<'_>, file: &str) -> Option<u8> {
    let text = read(process, file).ok()?;
    let after = text.iter().rposition(|byte| *byte == b')')?;
    text.get(after + 2).copied()
}

pub(crate) fn read(directory: BorrowedFd<'_>, file: &str) -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(directory, file, flags, Mode::empty())?;
    let mut bytes = vec![0; 1024];
    let length = rustix::io::read(&fd, &mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

pub(crate) fn directory(at: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

/// The entries of a directory of /proc that are numbers.
pub(crate) fn numbers(at: BorrowedFd<'_>, name: &CStr) -> Result<Vec<u32>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = rustix::fs::openat(at, name, flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(listed, &mut buffer);
    let mut found = Vec::new();
    while let Some(entry) = entries.next() {
        found.extend(entry?.file_name().to_str().ok().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(found)
}
