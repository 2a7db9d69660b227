//! The kinds of stress, and what each run must do: run its command, end with the command's own exit code, or end with its
//! supervisor. Owns the processes it starts and ends only those. Called by `stress`.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::problems::Problems;
use crate::stress::ground::Ground;
use crate::stress::instances::Raised;
use crate::stress::traces::{PATIENCE, descendants, name_of, reap_orphans};

/// Longer than any run takes on a busy machine.
const LONGEST: Duration = Duration::from_secs(30);

/// Each orphan is waited for that long: after so many failures nothing more is learned.
const MOST_FAILURES: usize = 3;

/// Sessions after which nothing may be left of killed ones.
const MOST_SWEEPS: usize = 20;

/// Where this program itself, which only looks, was held up for so long, that time is not the session's.
const HELD_UP: Duration = Duration::from_millis(200);

/// Latest moment of a kill after the start.
const LATEST_KILL_MICROS: u64 = 10_000;

/// A command that cannot be ended by asking: a child, a daemon in a session of its own, and one that forked twice.
const STUBBORN: &str = "trap '' HUP INT TERM; sleep 600 & (setsid sleep 600 >/dev/null 2>&1 &); \
    (setsid sh -c '(sleep 600 &); sleep 600' >/dev/null 2>&1 &); echo ready; sleep 600";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Row,
    Crowd,
    Kill,
    /// Not here: the escape suite's runner has it.
    Egress,
    /// Not here: `orders` has it.
    Orders,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Row, Kind::Crowd, Kind::Kill];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Row => "row",
            Kind::Crowd => "crowd",
            Kind::Kill => "kill",
            Kind::Egress => "egress",
            Kind::Orders => "orders",
        }
    }

    pub(crate) fn usual_count(self) -> usize {
        match self {
            Kind::Row => 1000,
            Kind::Crowd | Kind::Kill => 200,
            Kind::Egress | Kind::Orders => 0,
        }
    }
}

/// What the runs came to.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) runs: usize,
    pub(crate) failures: Vec<String>,
    /// From a kill until the last process of the session was gone.
    pub(crate) slowest_end: Option<Duration>,
    /// Kills after which that took more than a second.
    pub(crate) late: usize,
}

pub(crate) fn run(kind: Kind, ground: &Ground, count: usize, seed: u64) -> Result<Tally, Problems> {
    let tally = match kind {
        Kind::Row => row(ground, count),
        Kind::Crowd => crowd(ground, count),
        Kind::Kill => kill(ground, count, seed),
        Kind::Egress | Kind::Orders => Ok(Tally::default()),
    };
    tally.map_err(|e| Problems::one(format!("cannot go on with {}: {e}", kind.name())))
}

/// An exit code that only this run has, as far as there are enough of them; none of those that `sandbox` uses itself.
fn code_of(index: usize) -> i32 {
    i32::try_from(index % 120).unwrap_or(0)
}

/// One after the other: each says its number and ends with its own code.
fn row(ground: &Ground, count: usize) -> std::io::Result<Tally> {
    let mut tally = Tally::default();
    for index in 0..count {
        let mut child = ground.sandbox(&format!("echo {index}; exit {}", code_of(index))).spawn()?;
        tally.check(&mut child, index, &format!("{index}\n"))?;
        reap_orphans();
    }
    Ok(tally)
}

/// All alive at the same time, each waiting for a word to end.
fn crowd(ground: &Ground, count: usize) -> std::io::Result<Tally> {
    let _raised = Raised::for_sessions(count)?;
    let mut tally = Tally::default();
    let mut children = Vec::new();
    for index in 0..count {
        let script = format!("echo ready; read word; echo $word; exit {}", code_of(index));
        children.push(ground.sandbox(&script).stdin(Stdio::piped()).spawn()?);
    }
    for (index, child) in children.iter_mut().enumerate() {
        if !says_ready(child)? {
            tally.failures.push(format!("run {index} did not start its command"));
        }
    }
    let alive = children.iter_mut().map(Child::try_wait).filter(|ended| matches!(ended, Ok(None))).count();
    if alive != count {
        tally.failures.push(format!("{alive} of {count} were alive at the same time"));
    }
    for (index, child) in children.iter_mut().enumerate() {
        let told = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(format!("{index}\n").as_bytes()));
        if let Err(error) = told {
            tally.failures.push(format!("run {index} does not read: {error}"));
        }
    }
    for (index, child) in children.iter_mut().enumerate() {
        tally.check(child, index, &format!("{index}\n"))?;
    }
    Ok(tally)
}

/// Supervisors are killed: while they start, while a stubborn command runs, and around the end of a short one. What
/// they left is then swept by further sessions: one may end before it is through.
fn kill(ground: &Ground, count: usize, seed: u64) -> std::io::Result<Tally> {
    let mut tally = Tally::default();
    let mut moments = Moments(seed | 1);
    for index in 0..count {
        let script = if index % 3 == 2 { "exit 0" } else { STUBBORN };
        let mut command = ground.sandbox(script);
        if index % 2 == 1 {
            // No project, so nothing is held, and the child does not wait for the supervisor.
            command.current_dir(ground.home());
        }
        let mut child = command.stderr(Stdio::null()).spawn()?;
        if index % 3 == 1 {
            if !says_ready(&mut child)? {
                tally.failures.push(format!("run {index} did not start its command"));
            }
        } else {
            std::thread::sleep(moments.next());
        }
        // Still our child, so no other process can have its pid.
        child.kill()?;
        let killed = Instant::now();
        child.wait()?;
        tally.runs += 1;
        let Aftermath { orphans, held_up } = after(killed);
        let took = killed.elapsed();
        tally.slowest_end = tally.slowest_end.max(Some(took));
        if !orphans.is_empty() {
            let names: Vec<String> = orphans.iter().map(|pid| format!("{pid} {}", name_of(*pid))).collect();
            tally.failures.push(format!("run {index} left orphans: {}", names.join("; ")));
            end(&orphans);
        } else if took.saturating_sub(held_up) > PATIENCE {
            tally.late += 1;
            tally.failures.push(format!("run {index} was alive for {} ms after the kill", took.as_millis()));
        }
        if tally.failures.len() >= MOST_FAILURES {
            break;
        }
    }
    for _ in 0..MOST_SWEEPS {
        let mut child = ground.sandbox("sleep 0.5; echo swept").spawn()?;
        tally.check(&mut child, 0, "swept\n")?;
        tally.runs -= 1;
        if is_swept(ground)? {
            break;
        }
    }
    Ok(tally)
}

fn is_swept(ground: &Ground) -> std::io::Result<bool> {
    match std::fs::read_dir(ground.state().join("sessions")) {
        Ok(mut left) => Ok(left.next().is_none()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// What was seen after a kill.
struct Aftermath {
    /// Those that live on.
    orphans: Vec<u32>,
    /// How long this program itself could not look.
    held_up: Duration,
}

/// On a machine with more to do than it can, even the end of a process takes its time.
fn after(killed: Instant) -> Aftermath {
    let mut looked = killed;
    let mut held_up = Duration::ZERO;
    loop {
        reap_orphans();
        let orphans = descendants();
        held_up += Some(looked.elapsed()).filter(|gap| *gap >= HELD_UP).unwrap_or_default();
        looked = Instant::now();
        if orphans.is_empty() || killed.elapsed() >= LONGEST {
            return Aftermath { orphans, held_up };
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Ends what a failed run has left: descendants of ours, through descriptors that cannot come to mean another process.
fn end(orphans: &[u32]) {
    let open = |pid: &u32| pidfd_open(Pid::from_raw(i32::try_from(*pid).ok()?)?, PidfdFlags::empty()).ok();
    let opened: Vec<(u32, OwnedFd)> = orphans.iter().filter_map(|pid| Some((*pid, open(pid)?))).collect();
    let still = descendants();
    for (pid, fd) in opened.iter().filter(|(pid, _)| still.contains(pid)) {
        if let Err(errno) = pidfd_send_signal(fd, Signal::KILL) {
            eprintln!("cannot end the orphan {pid}: {errno}");
        }
    }
}

/// Reads the line `ready`, as long as that can sensibly take.
fn says_ready(child: &mut Child) -> std::io::Result<bool> {
    let Some(stdout) = child.stdout.as_mut() else { return Ok(false) };
    let end = Instant::now() + LONGEST;
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let mut byte = [0u8];
        if !is_ready(stdout.as_fd(), end)? || stdout.read(&mut byte)? == 0 {
            return Ok(false);
        }
        line.push(byte[0]);
    }
    Ok(line == b"ready\n")
}

/// Whether a descriptor can be read before `end`.
fn is_ready(fd: std::os::fd::BorrowedFd<'_>, end: Instant) -> std::io::Result<bool> {
    let left = end.saturating_duration_since(Instant::now());
    let timeout = Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(0), tv_nsec: left.subsec_nanos().into() };
    Ok(poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout))? > 0)
}

fn ends_in_time(child: &Child) -> std::io::Result<bool> {
    is_ready(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?.as_fd(), Instant::now() + LONGEST)
}

impl Tally {
    /// Waits for the end of a run, and compares its code and what it printed.
    fn check(&mut self, child: &mut Child, index: usize, expected: &str) -> std::io::Result<()> {
        self.runs += 1;
        // What ended before may have been waited for, and its pid is then free for others.
        let ended = child.try_wait()?.is_some() || ends_in_time(child)?;
        if !ended {
            child.kill()?;
            self.failures.push(format!("run {index} did not end"));
        }
        let status = child.wait()?;
        let (mut stdout, mut stderr) = (String::new(), String::new());
        child.stdout.take().map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut stdout))?;
        child.stderr.take().map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut stderr))?;
        if ended && (status.code() != Some(code_of(index)) || stdout != expected) {
            let said = stderr.trim();
            self.failures.push(format!("run {index} ended with {status}, printed {stdout:?}, said {said:?}"));
        }
        Ok(())
    }
}

/// Moments after a start, spread evenly: xorshift, so that a seed gives the same ones again.
struct Moments(u64);

impl Moments {
    fn next(&mut self) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_micros(self.0 % LATEST_KILL_MICROS)
    }
}
