//! Stops every process of a session and lets it go on. Owns the two ways to do it (the cgroup's freezer, SIGSTOP) and what was
//! stopped before, which stays stopped; why and for how long is the caller's. Called by `covers` and `checkpoints`.
//!
//! SIGSTOP goes to pid 1 first: it would take the command's stop for one of job control. It is continued last, when no stop
//! can be waited for any more, and every other process before its parent for the same reason.
//!
//! A stop by signals ends with any SIGCONT, and a timer of the workload's can send one at any time. So the stop is looked at
//! once more before it ends: where a task has run meanwhile, what was done in it does not count (decision 0052).

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io::Read as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cofferdam_kernel::best_effort;
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};

use crate::limits::cgroup::SessionCgroup;

/// Between two looks.
const LOOK: Duration = Duration::from_micros(50);
/// A cgroup that is not frozen by then has a task that waits for the supervisor.
const FREEZES: Duration = Duration::from_millis(5);
/// A session that does not stop by then is ended.
const STOPS: Duration = Duration::from_secs(2);
/// A task in an uninterruptible sleep may wait for this very process; it stops before it runs again.
const SLEEPS: Duration = Duration::from_millis(20);

/// What a stop that did not hold is called where only an errno can be said.
pub(crate) const RAN: Errno = Errno::INPROGRESS;

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
    /// Every task, when none of them ran.
    still: Vec<Task>,
}

impl Session<'_> {
    pub(crate) fn stop(&self) -> Result<Halted, Errno> {
        if let Some(cgroup) = self.cgroup.filter(|_| !self.has_question)
            && freeze(cgroup)
        {
            return Ok(Halted { frozen: true, stopped: BTreeMap::new(), still: Vec::new() });
        }
        let mut halted = Halted { frozen: false, stopped: BTreeMap::new(), still: Vec::new() };
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
        let mut before = None;
        loop {
            let patience = began.elapsed();
            let still = self.stop_each(halted, patience)?;
            // A process that was seen stopped may have been continued by one that was seen later, or have a new child. Where
            // no task has run between two looks, all of them were still at one moment, and none of them runs after it.
            if let (Some(still), Some(before)) = (&still, &before)
                && still == before
            {
                halted.still.clone_from(still);
                return Ok(());
            }
            if patience > STOPS {
                return Err(Errno::TIMEDOUT);
            }
            if still.is_none() {
                std::thread::sleep(LOOK);
            }
            before = still;
        }
    }

    /// Stops every process that is not stopped, and tells the tasks of all if none of them runs.
    fn stop_each(&self, halted: &mut Halted, patience: Duration) -> Result<Option<Vec<Task>>, Errno> {
        let mut still = Some(Vec::new());
        for pid in numbers(self.processes, c".")?.into_iter().filter(|pid| *pid != 1) {
            let Some(process) = unless_gone(directory(self.processes, &pid.to_string()))? else { continue };
            let is_stopped = is_stopped(process.as_fd())?;
            if !is_stopped {
                // Each time, and before the look that counts: a peer may have taken the last one back with SIGCONT.
                send(process.as_fd(), Signal::STOP)?;
            }
            for number in tasks(process.as_fd())? {
                let Some(task) = task(process.as_fd(), number)? else { continue };
                if !is_still(process.as_fd(), &task, patience) {
                    still = None;
                } else if let Some(still) = &mut still {
                    still.push(task);
                }
            }
            if !is_stopped {
                halted.stopped.insert(pid, process);
            }
        }
        Ok(still)
    }

    /// Whether no task has run since the stop; to be asked before the end of it. Each run ends with a sleep, which is counted.
    pub(crate) fn has_held(&self, halted: &Halted) -> Result<bool, Errno> {
        self.has_held_for(halted, Task::eq)
    }

    /// The same, but for tasks that waited for a device or the supervisor: they stop when that is over, as they were told to, and
    /// what they were in the middle of is done then.
    pub(crate) fn has_held_but_for_waiting(&self, halted: &Halted) -> Result<bool, Errno> {
        self.has_held_for(halted, |before, now| {
            let has_stopped = matches!(before.state, b'D' | b'S') && now.state == b'T';
            before == now || before.number == now.number && has_stopped && now.sleeps == before.sleeps + 1
        })
    }

    fn has_held_for(&self, halted: &Halted, is_same: impl Fn(&Task, &Task) -> bool) -> Result<bool, Errno> {
        if halted.frozen {
            return Ok(self.cgroup.is_some_and(is_frozen));
        }
        let mut now = Vec::new();
        for pid in numbers(self.processes, c".")?.into_iter().filter(|pid| *pid != 1) {
            let Some(process) = unless_gone(directory(self.processes, &pid.to_string()))? else { continue };
            for number in tasks(process.as_fd())? {
                now.extend(task(process.as_fd(), number)?);
            }
        }
        Ok(halted.still.len() == now.len() && halted.still.iter().zip(&now).all(|(before, now)| is_same(before, now)))
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
        if is_frozen(cgroup) {
            return true;
        }
        std::thread::sleep(LOOK);
    }
    best_effort(cgroup.write("cgroup.freeze", "0"), "signals stop what is left");
    false
}

fn is_frozen(cgroup: &SessionCgroup) -> bool {
    cgroup.read("cgroup.events").is_some_and(|events| events.lines().any(|line| line == "frozen 1"))
}

/// A task that has not ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Task {
    number: u32,
    state: u8,
    /// How often it has gone to sleep, which every stop is.
    sleeps: u64,
}

/// The tasks of a process; the first of them may have ended long before the others.
pub(crate) fn tasks(process: BorrowedFd<'_>) -> Result<Vec<u32>, Errno> {
    Ok(unless_gone(numbers(process, c"task"))?.unwrap_or_default())
}

/// None where it has ended.
pub(crate) fn task(process: BorrowedFd<'_>, number: u32) -> Result<Option<Task>, Errno> {
    let Some(text) = unless_gone(read(process, &format!("task/{number}/status")))? else { return Ok(None) };
    let text = String::from_utf8_lossy(&text);
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let state = field("State:").and_then(|state| state.bytes().next()).ok_or(Errno::BADMSG)?;
    let sleeps = field("voluntary_ctxt_switches:").and_then(|count| count.parse().ok()).ok_or(Errno::BADMSG)?;
    Ok((!matches!(state, b'Z' | b'X')).then_some(Task { number, state, sleeps }))
}

fn is_stopped(process: BorrowedFd<'_>) -> Result<bool, Errno> {
    for number in tasks(process)? {
        if task(process, number)?.is_some_and(|task| task.state != b'T') {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a task of a process that was sent SIGSTOP does nothing any more.
fn is_still(process: BorrowedFd<'_>, task: &Task, patience: Duration) -> bool {
    match task.state {
        b'T' | b't' => true,
        b'D' if patience > SLEEPS => true,
        b'D' | b'S' => {
            let place = read(process, &format!("task/{}/wchan", task.number)).unwrap_or_default();
            let place = String::from_utf8_lossy(&place);
            QUESTIONS.iter().any(|question| place.contains(question))
        }
        _ => false,
    }
}

/// What has ended is not there, or has no process any more; anything else that cannot be looked at is an error.
pub(crate) fn unless_gone<T>(found: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match found {
        Err(Errno::NOENT | Errno::SRCH) => Ok(None),
        other => other.map(Some),
    }
}

pub(crate) fn read(directory: BorrowedFd<'_>, file: &str) -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, file, flags, Mode::empty())?;
    let mut bytes = Vec::new();
    let read = std::fs::File::from(file).read_to_end(&mut bytes);
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
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
