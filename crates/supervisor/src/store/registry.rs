//! Live sessions, as others see them: what each says of itself in `session.json`, and whether its lock is held. Owns that
//! file, finding a session by its name, and telling one to end; trusts no process number whose lock no supervisor holds.
//! Written by `launch`, read by `cli`.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_host::state::sessions_in;
use cofferdam_kernel::timing::{seconds_now, time_until};
use cofferdam_plan::LaunchPlan;
use cofferdam_wire::session::{SESSION_VERSION, Session};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Serialize;

use crate::options::Options;
use crate::store::lock::Claim;

pub(crate) const FILE: &str = "session.json";

/// Between asking and killing what runs inside, and between that and killing the supervisor.
const LAST_GRACE: Duration = Duration::from_secs(2);

/// Says of a session what it is, in its directory, which no other user may enter.
pub(crate) fn list(plan: &LaunchPlan, options: &Options, id: &str, directory: &Claim) -> Result<(), Errno> {
    let said = Session {
        version: SESSION_VERSION,
        id: id.to_owned(),
        name: options.name.clone(),
        pid: rustix::process::getpid().as_raw_nonzero().get(),
        pid_namespace: own_pid_namespace(),
        argv: plan.command.argv.clone(),
        cwd: plan.command.cwd.clone(),
        project: options.known.as_deref().and_then(|known| known.facts.project.clone()),
        mode: if plan.gate.is_some() { "dynamic" } else { "static" }.to_owned(),
        started: seconds_now(),
    };
    // A path that is no text is no reason to be absent from the list, so what cannot be said is left out.
    let text = serde_json::to_vec(&said)
        .or_else(|_| serde_json::to_vec(&Session { cwd: PathBuf::new(), project: None, ..said }));
    let text = text.map_err(|_| Errno::INVAL)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, FILE, flags, Mode::RUSR | Mode::WUSR)?;
    if rustix::io::write(&file, &text)? == text.len() { Ok(()) } else { Err(Errno::NOSPC) }
}

fn own_pid_namespace() -> String {
    let name = rustix::fs::readlink("/proc/self/ns/pid", Vec::new()).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Sessions of a state directory that live, oldest first.
pub fn live_sessions(state: &Path) -> Result<Vec<Session>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match rustix::fs::openat(CWD, sessions_in(state), flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        other => other?,
    };
    let mut sessions = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        // One that ends meanwhile is none.
        let Ok(session) = rustix::fs::openat(&directory, &name, flags, Mode::empty()) else { continue };
        if is_held(&session) {
            sessions.extend(read(&session).filter(|session| session.id == name));
        }
    }
    sessions.sort_by(|a, b| a.started.total_cmp(&b.started).then_with(|| a.id.cmp(&b.id)));
    Ok(sessions)
}

fn is_held(session: &OwnedFd) -> bool {
    rustix::fs::flock(session, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

fn read(session: &OwnedFd) -> Option<Session> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(session, FILE, flags, Mode::empty()).ok()?;
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(std::fs::File::from(file), 4 << 20), &mut text).ok()?;
    serde_json::from_slice(&text).ok().filter(|session: &Session| session.version == SESSION_VERSION)
}

/// How a session that was told to end did so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It went when it was asked to.
    WhenAsked,
    /// What runs inside had to be killed.
    Killed,
    /// So had the supervisor; the next session removes what it left.
    WithSupervisor,
}

/// Ends a session: asks, waits, kills. `None` if it is not there any more, or not in this pid namespace.
pub fn end_session(state: &Path, session: &Session, grace: Duration) -> Result<Option<Ended>, Errno> {
    if session.pid_namespace != own_pid_namespace() {
        return Ok(None);
    }
    let Some(pid) = Pid::from_raw(session.pid) else { return Ok(None) };
    let supervisor = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(None),
        other => other?,
    };
    // The lock is held after the descriptor was opened, so the number still was its supervisor's then.
    if !live_sessions(state)?.contains(session) {
        return Ok(None);
    }
    send(&supervisor, Signal::TERM)?;
    // A stopped one sees nothing else.
    send(&supervisor, Signal::CONT)?;
    if ends_within(&supervisor, grace)? {
        return Ok(Some(Ended::WhenAsked));
    }
    for child in children_of(session.pid) {
        kill_child(child, session.pid)?;
    }
    if ends_within(&supervisor, LAST_GRACE)? {
        return Ok(Some(Ended::Killed));
    }
    send(&supervisor, Signal::KILL)?;
    ends_within(&supervisor, LAST_GRACE)?;
    Ok(Some(Ended::WithSupervisor))
}

fn send(process: &OwnedFd, signal: Signal) -> Result<(), Errno> {
    match pidfd_send_signal(process, signal) {
        Err(Errno::SRCH) => Ok(()),
        other => other,
    }
}

fn ends_within(process: &OwnedFd, patience: Duration) -> Result<bool, Errno> {
    let until = Instant::now() + patience;
    loop {
        let mut fds = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&time_until(until))) {
            Ok(0) if Instant::now() >= until => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(errno),
        }
    }
}

/// Pid 1 of the sandbox, as long as it still is the supervisor's child when there is a descriptor for it.
fn kill_child(child: i32, parent: i32) -> Result<(), Errno> {
    let Some(pid) = Pid::from_raw(child) else { return Ok(()) };
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
    if children_of(parent).contains(&child) { send(&process, Signal::KILL) } else { Ok(()) }
}

fn children_of(pid: i32) -> Vec<i32> {
    processes().into_iter().filter(|(_, process)| process.parent == pid).map(|(pid, _)| pid).collect()
}

/// What a session uses now.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct UsedNow {
    pub processes: u64,
    pub memory: u64,
    pub cpu_seconds: f64,
}

#[derive(Debug, Clone, Copy)]
struct Process {
    parent: i32,
    ticks: u64,
    pages: u64,
}

/// What the processes below each of these supervisors use, as the kernel shows it to every process.
pub fn used_now(supervisors: &[i32]) -> Vec<UsedNow> {
    let processes = processes();
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    supervisors
        .iter()
        .map(|supervisor| {
            let inside = processes.iter().filter(|(pid, _)| is_below(&processes, **pid, *supervisor));
            let (mut used, mut spent) = (UsedNow::default(), 0);
            for (_, process) in inside {
                used.processes += 1;
                used.memory += process.pages * rustix::param::page_size() as u64;
                spent += process.ticks;
            }
            used.cpu_seconds = Duration::from_millis(spent * 1000 / ticks).as_secs_f64();
            used
        })
        .collect()
}

fn is_below(processes: &BTreeMap<i32, Process>, pid: i32, ancestor: i32) -> bool {
    let mut at = pid;
    // No chain is longer than there are processes, whatever was read while they changed.
    for _ in 0..processes.len() {
        match processes.get(&at) {
            Some(process) if process.parent == ancestor => return true,
            Some(process) => at = process.parent,
            None => return false,
        }
    }
    false
}

fn processes() -> BTreeMap<i32, Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Some((pid, parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect()
}

/// proc(5): the name in parentheses may hold anything; the state follows the last one.
fn parse_stat(stat: &str) -> Option<Process> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let parent = fields.get(1)?.parse().ok()?;
    // User and system time, also of children that were waited for.
    let ticks = (11..=14).map(number).sum::<Option<u64>>()?;
    Some(Process { parent, ticks, pages: number(21)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let stat =
            "42 (a) S 1 (b)) R 7 42 42 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 99 1000 55 18446744073709551615";
        let process = parse_stat(stat).expect("a process");
        assert_eq!((process.parent, process.ticks, process.pages), (7, 100, 55));
    }

    #[test]
    fn this_process_is_below_its_parent() {
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        assert!(used_now(&[parent])[0].processes >= 1);
    }
}
