//! The process that measures, as the measuring user: answers one request per line. Owns the clocks and the loops around
//! commands; computes no figure. Started by `Stage` as the hidden subcommand `bench-worker`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rustix::fs::OFlags;
use rustix::pty::OpenptFlags;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bench::approvals::{self, Asked};
use crate::bench::audit;
use crate::bench::candidate::{BWRAP, Binary, Candidate};
use crate::bench::inside::{Workload, tasks};
use crate::bench::statistics::Samples;
use crate::problems::Problems;

/// One classic BPF instruction: return `SECCOMP_RET_ALLOW`.
const ALLOW_ALL: [u8; 8] = [0x06, 0, 0, 0, 0, 0, 0xff, 0x7f];
const TRUE: &[&str] = &["/bin/true"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Answer requests until there are no more
    Serve,
    /// Make mounts, become the user, and serve
    Mounts {
        #[arg(long)]
        count: usize,
        #[arg(long)]
        uid: Option<u32>,
        #[arg(long)]
        gid: Option<u32>,
        /// Hide /dev/fuse, as some containers do
        #[arg(long)]
        without_fuse: bool,
    },
    /// Open what is not approved, one after the other, and print when each call returned
    Open {
        at: PathBuf,
        #[arg(long)]
        count: usize,
    },
    /// Time a workload here, wherever here is, and print nanoseconds per operation
    Time { workload: Workload },
    /// Write and verify a chain of records below a directory
    Audit {
        #[arg(long)]
        records: u64,
        at: PathBuf,
    },
}

/// What a bench can ask of a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// `/bin/true` under each candidate, that often: nanoseconds by candidate.
    Rounds { count: usize, from: usize },
    /// `/bin/true` under one candidate, several at a time: launches per second.
    Flight { candidate: Candidate, launches: usize, at_once: usize },
    /// `/bin/true` by both binaries, one after the other, that often: nanoseconds of each.
    Pairs { candidate: Candidate, count: usize },
    /// What `sandbox run --timing` prints, that often: microseconds by step.
    Breakdown { candidate: Candidate, runs: usize },
    /// Makes the files that workloads need.
    Prepare,
    /// A workload under one candidate: nanoseconds per operation.
    Time { candidate: Candidate, binary: Binary, workload: Workload },
    /// A workload under the shortest filter there is, which allows everything: what no sandbox with a filter can beat.
    TimeUnderFilter { workload: Workload },
    /// Whether the sandbox can use a FUSE root here.
    HasFuse,
    /// From an approval until the call that waited has returned, that often: nanoseconds.
    Approvals { of: Asked, binary: Binary, count: usize },
    /// Makes a home of an ordinary size: the names of secrets, and others.
    Furnish { secrets: Vec<String>, others: usize },
    /// A live session and so many processes that do nothing, beside what is measured from now on; with none they end.
    Crowd { idle: usize },
    /// `/bin/true` bare, by bwrap and by the sandbox as an operator types it, at a terminal, that often: nanoseconds of each.
    AtTerminal { count: usize },
}

pub(crate) fn run(args: &Args) -> Result<String, Problems> {
    match &args.task {
        Task::Serve => serve(),
        Task::Mounts { count, uid, gid, without_fuse } => Err(mount_and_serve(*count, (*uid, *gid), *without_fuse)),
        Task::Open { at, count } => approvals::open_all(at, *count).map_err(Problems::one),
        Task::Audit { records, at } => audit::measure(at, *records).map(|measured| json!(measured).to_string()),
        Task::Time { workload } => tasks::time(*workload).map(|took| took.to_string()).map_err(Problems::one),
    }
}

fn serve() -> Result<String, Problems> {
    let bench = Bench::here()?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| Problems::one(format!("cannot read a request: {e}")))?;
        let request = serde_json::from_str(&line).map_err(|e| Problems::one(format!("not a request: {e}")))?;
        let reply = json!(bench.answer(&request));
        writeln!(std::io::stdout(), "{reply}").map_err(|e| Problems::one(format!("cannot answer: {e}")))?;
    }
    Ok(String::new())
}

/// Returns only on failure. The mounts are seen by this mount namespace only, and end with it.
fn mount_and_serve(count: usize, (uid, gid): (Option<u32>, Option<u32>), without_fuse: bool) -> Problems {
    let failed = |what: String| Problems::one(format!("cannot make {count} mounts: {what}"));
    let bench = match Bench::here() {
        Ok(bench) => bench,
        Err(problems) => return problems,
    };
    if let Err(e) = make_mounts(&bench.dir.join("mounts"), count) {
        return failed(e.to_string());
    }
    if without_fuse && let Err(e) = hide_fuse(&bench.dir.join("devices")) {
        return Problems::one(format!("cannot hide /dev/fuse: {e}"));
    }
    let mut command = Command::new(bench.dir.join("xtask"));
    command.args(["bench-worker", "serve"]);
    if let (Some(uid), Some(gid)) = (uid, gid) {
        command.uid(uid).gid(gid);
    }
    failed(command.exec().to_string())
}

fn make_mounts(at: &Path, count: usize) -> std::io::Result<()> {
    if count == 0 {
        return Ok(());
    }
    fs::create_dir(at)?;
    rustix::mount::mount("none", at, "tmpfs", rustix::mount::MountFlags::empty(), None)?;
    for index in 0..count {
        let dir = at.join(index.to_string());
        fs::create_dir(&dir)?;
        rustix::mount::mount_bind(&dir, &dir)?;
    }
    Ok(())
}

/// A /dev without it: a process that is root in a user namespace could open a file of any mode.
fn hide_fuse(at: &Path) -> std::io::Result<()> {
    let flags = rustix::mount::MountFlags::empty();
    fs::create_dir(at)?;
    rustix::mount::mount("none", at, "tmpfs", flags, None)?;
    for name in ["null", "zero", "full", "random", "urandom", "tty"] {
        fs::File::create(at.join(name))?;
        rustix::mount::mount_bind(Path::new("/dev").join(name), at.join(name))?;
    }
    for name in ["pts", "shm"] {
        fs::create_dir(at.join(name))?;
        rustix::mount::mount_bind(Path::new("/dev").join(name), at.join(name))?;
    }
    std::os::unix::fs::symlink("/proc/self/fd", at.join("fd"))?;
    rustix::mount::mount_bind_recursive(at, "/dev")?;
    Ok(())
}

struct Bench {
    dir: PathBuf,
    sandbox: PathBuf,
    crowd: Mutex<Crowd>,
}

/// Processes beside what is measured.
#[derive(Default)]
struct Crowd(Vec<Child>);

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Asked, not killed: a session removes what it made.
            let pid = rustix::process::Pid::from_child(child);
            if rustix::process::kill_process(pid, rustix::process::Signal::TERM).is_ok() {
                child.wait().ok();
            }
        }
    }
}

impl Bench {
    /// The directory that this binary was copied to.
    fn here() -> Result<Self, Problems> {
        let own = std::env::current_exe().map_err(|e| Problems::one(format!("cannot find myself: {e}")))?;
        let dir = own.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(Bench { sandbox: dir.join("sandbox"), dir, crowd: Mutex::default() })
    }

    fn answer(&self, request: &Request) -> Result<Value, String> {
        match request {
            Request::Rounds { count, from } => self.rounds(*from, *count).map(|r| json!(r)),
            Request::Flight { candidate, launches, at_once } => {
                self.flight(*candidate, *launches, *at_once).map(|r| json!(r))
            }
            Request::Breakdown { candidate, runs } => self.breakdown(*candidate, *runs).map(|r| json!(r)),
            Request::HasFuse => Ok(json!(fs::File::options().read(true).write(true).open("/dev/fuse").is_ok())),
            Request::Approvals { of, binary, count } => {
                approvals::measure(&self.dir, *of, *binary, *count).map(|r| json!(r))
            }
            Request::Furnish { secrets, others } => furnish(secrets, *others).map(|()| Value::Null),
            Request::Crowd { idle } => self.crowd(*idle).map(|()| Value::Null),
            Request::AtTerminal { count } => Terminal::open()?.rounds(&self.sandbox, *count).map(|r| json!(r)),
            Request::Pairs { candidate, count } => self.pairs(*candidate, *count).map(|r| json!(r)),
            Request::Prepare => tasks::prepare(Path::new(".")).map(|()| Value::Null),
            Request::Time { candidate, binary, workload } => {
                self.time(*candidate, *binary, *workload).map(|r| json!(r))
            }
            Request::TimeUnderFilter { workload } => self.time_under_filter(*workload).map(|r| json!(r)),
        }
    }

    fn rounds(&self, from: usize, count: usize) -> Result<BTreeMap<Candidate, Samples>, String> {
        let mut taken: BTreeMap<Candidate, Samples> = BTreeMap::new();
        for round in from..from + count {
            for candidate in Candidate::order(round) {
                let took = candidate.launch(&self.sandbox, TRUE).map_err(|e| self.explain(candidate, e))?;
                taken.entry(candidate).or_default().push(took.as_secs_f64() * 1e9);
            }
        }
        Ok(taken)
    }

    fn crowd(&self, idle: usize) -> Result<(), String> {
        let mut crowd = Crowd::default();
        if idle > 0 {
            let mut session = Command::new(&self.sandbox);
            session.args(["run", "--mode", "static", "--", "sh", "-c", "echo; exec sleep 3600"]).stdin(Stdio::null());
            let mut session = session.stdout(Stdio::piped()).spawn().map_err(|e| format!("a session: {e}"))?;
            let mut said = [0];
            let read = session.stdout.take().map(|mut out| out.read_exact(&mut said));
            crowd.0.push(session);
            read.ok_or("a session without output")?.map_err(|e| format!("a session: {e}"))?;
        }
        for _ in 0..idle {
            let sleep = Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn();
            crowd.0.push(sleep.map_err(|e| format!("sleep: {e}"))?);
        }
        self.crowd.lock().map(|mut now| *now = crowd).map_err(|e| e.to_string())
    }

    /// What a failing candidate says for itself: measurements throw its output away.
    fn explain(&self, candidate: Candidate, failure: String) -> String {
        match candidate.command(&self.sandbox, TRUE).stdin(Stdio::null()).output() {
            Ok(output) => format!("{failure}; {}", String::from_utf8_lossy(&output.stderr).trim()),
            Err(_) => failure,
        }
    }

    fn flight(&self, candidate: Candidate, launches: usize, at_once: usize) -> Result<f64, String> {
        let started = AtomicUsize::new(0);
        let failure = Mutex::new(None);
        let before = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    while started.fetch_add(1, Ordering::Relaxed) < launches {
                        if let Err(e) = candidate.launch(&self.sandbox, TRUE) {
                            started.store(launches, Ordering::Relaxed);
                            failure.lock().map(|mut failure| failure.insert(e).len()).ok();
                        }
                    }
                });
            }
        });
        let took = before.elapsed().as_secs_f64();
        match failure.into_inner() {
            Ok(None) => Ok(as_number(launches) / took),
            Ok(Some(failure)) => Err(self.explain(candidate, failure)),
            Err(e) => Err(e.to_string()),
        }
    }

    /// One list per run; the last row, `wall`, is the whole from spawn to reaped.
    fn breakdown(&self, candidate: Candidate, runs: usize) -> Result<Vec<Vec<(String, f64)>>, String> {
        (0..runs)
            .map(|_| {
                let mode = if candidate == Candidate::Dynamic { "dynamic" } else { "static" };
                let mut command = Command::new(&self.sandbox);
                command.args(["run", "--mode", mode, "--timing", "--"]).args(TRUE).stdin(Stdio::null());
                let before = Instant::now();
                let output = command.output().map_err(|e| format!("sandbox run --timing: {e}"))?;
                let wall = before.elapsed().as_secs_f64() * 1e6;
                let steps = String::from_utf8_lossy(&output.stderr);
                Ok(steps.lines().filter_map(timing_line).chain([("wall".to_owned(), wall)]).collect())
            })
            .collect()
    }

    fn pairs(&self, candidate: Candidate, count: usize) -> Result<[Samples; 2], String> {
        let mut taken = [Samples::default(), Samples::default()];
        for round in 0..count {
            for binary in Binary::order(round) {
                let path = self.dir.join(binary.file_name());
                let took = candidate.launch(&path, TRUE).map_err(|e| format!("{}: {e}", path.display()))?;
                taken[binary as usize].push(took.as_secs_f64() * 1e9);
            }
        }
        Ok(taken)
    }

    fn time(&self, candidate: Candidate, binary: Binary, workload: Workload) -> Result<f64, String> {
        let sandbox = self.dir.join(binary.file_name());
        let own = self.dir.join("xtask");
        let own = own.to_str().ok_or("the directory's name is not UTF-8")?;
        let argv = ["bench-worker", "time", workload.name()];
        let mut command = match candidate {
            Candidate::Dynamic => Candidate::gated(&sandbox, "deny", own, &argv),
            _ => candidate.command(&sandbox, &[&[own], &argv[..]].concat()),
        };
        printed_number(command.stdin(Stdio::null()), candidate.name())
    }

    fn time_under_filter(&self, workload: Workload) -> Result<f64, String> {
        let file = self.dir.join("allow-all.bpf");
        let filter = fs::write(&file, ALLOW_ALL).and_then(|()| fs::File::open(&file)).map_err(|e| e.to_string())?;
        let mut command = Command::new("/usr/bin/bwrap");
        command.args(["--dev-bind", "/", "/", "--seccomp", "0", "--"]);
        command.arg(self.dir.join("xtask")).args(["bench-worker", "time", workload.name()]);
        printed_number(command.stdin(filter), "bwrap --seccomp")
    }
}

/// Both ends of a pseudo-terminal.
struct Terminal {
    screen: OwnedFd,
    inside: OwnedFd,
}

impl Terminal {
    fn open() -> Result<Self, String> {
        let failed = |errno: rustix::io::Errno| format!("no terminal: {errno}");
        let screen =
            rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).map_err(failed)?;
        rustix::pty::grantpt(&screen).and_then(|()| rustix::pty::unlockpt(&screen)).map_err(failed)?;
        let name = rustix::pty::ptsname(&screen, Vec::new()).map_err(failed)?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let inside = rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).map_err(failed)?;
        rustix::io::ioctl_fionbio(&screen, true).map_err(failed)?;
        Ok(Terminal { screen, inside })
    }

    /// Bare, bwrap, the sandbox: with a program around each that makes this its terminal.
    fn rounds(&self, sandbox: &Path, count: usize) -> Result<[Samples; 3], String> {
        let mut taken = [(); 3].map(|()| Samples::default());
        for round in 0..count {
            for at in if round.is_multiple_of(2) { [0, 1, 2] } else { [2, 1, 0] } {
                let mut command = Command::new("setsid");
                command.args(["--ctty", "--wait"]);
                match at {
                    0 => command.args(TRUE),
                    1 => command.arg("/usr/bin/bwrap").args(BWRAP).args(TRUE),
                    _ => command.arg(sandbox).args(["run", "--"]).args(TRUE),
                };
                let end = || self.inside.try_clone().map_err(|e| e.to_string());
                command.stdin(end()?).stdout(end()?).stderr(end()?);
                let before = Instant::now();
                let status = command.status().map_err(|e| format!("setsid: {e}"))?;
                taken[at].push(before.elapsed().as_secs_f64() * 1e9);
                let shown = self.shown();
                if !status.success() {
                    return Err(format!("at a terminal: {status}: {}", shown.trim()));
                }
            }
        }
        Ok(taken)
    }

    fn shown(&self) -> String {
        let mut text = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = rustix::io::read(&self.screen, &mut buffer) {
            text.extend_from_slice(&buffer[..length]);
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// In the home of this process, which the stage made for it.
fn furnish(secrets: &[String], others: usize) -> Result<(), String> {
    let home = std::env::var_os("HOME").map(PathBuf::from).ok_or("no home")?;
    let others = (0..others).map(|index| format!("name-{index}"));
    for name in secrets.iter().cloned().chain(others) {
        let path = home.join(name);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, "made up\n"));
        made.map_err(|e| format!("cannot make {}: {e}", path.display()))?;
    }
    Ok(())
}

fn printed_number(command: &mut Command, name: &str) -> Result<f64, String> {
    let output = command.output().map_err(|e| format!("{name}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    text.trim().parse().map_err(|_| format!("{name}: {}: {}", output.status, error.trim()))
}

/// `   851.5 us  clone3`, as `sandbox run --timing` prints it.
fn timing_line(line: &str) -> Option<(String, f64)> {
    let (number, step) = line.trim_start().split_once(" us ")?;
    Some((step.trim().to_owned(), number.parse().ok()?))
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
pub(crate) fn as_number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timing_lines_are_read_and_other_lines_are_not() {
        assert_eq!(
            timing_line("   851.5 us  clone3 (until the child runs)"),
            Some(("clone3 (until the child runs)".to_owned(), 851.5))
        );
        assert_eq!(timing_line("error: it took 3 us to fail"), None);
    }
}
