//! Rows about resources: what one session can take from the machine and from its neighbours. Who keeps a limit differs from
//! host to host (cgroup, rlimit, the supervisor's eye); a row accepts what that keeper is documented to do and nothing else.

use std::fs;
use std::path::Path;
use std::process::{ChildStderr, ChildStdout, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cofferdam_host::cgroup_home::cgroup_home;
use cofferdam_plan::{CgroupHome, Keeper, LaunchPlan, Limited, Resource, Step};
use cofferdam_policy::Ruled;
use cofferdam_testkit::{Launched, Place, edit, memory};
use cofferdam_wire::End;

use crate::limits::{CPU_SECONDS, DESCRIPTORS, FILE_SIZE, MEMORY, OUTPUT, PROCESSES, ROOM, STORAGE, named};
use crate::raw;
use crate::row::{Finding, Off, ROW, Row, Trial, Walls};

fn bytes(value: usize) -> Option<Ruled<u64>> {
    u64::try_from(value).ok().map(named)
}

pub(super) const NO_LIMITS: Off = Off::Edit(|plan, _| edit::drop_limits(plan));

impl Trial {
    /// Launches each check; contained if each session was ended for this reason, with this code.
    fn ended(&self, checks: &[&str], end: End, code: i32) -> Finding {
        let first = Finding::Contained(String::new());
        let finding = checks.iter().fold(first, |so_far, check| so_far.and_then(|| self.ended_one(check, end, code)));
        match finding {
            Finding::Contained(how) => Finding::Contained(how.trim_start_matches("; ").to_owned()),
            other => other,
        }
    }

    fn ended_one(&self, check: &str, end: End, code: i32) -> Finding {
        self.was_ended(&self.launch(check), check, end, code)
    }

    /// Contained if the session was ended for this reason; else what the probe has to say.
    fn was_ended(&self, launched: &Launched, check: &str, end: End, code: i32) -> Finding {
        let report = &launched.report;
        if report.end != Some(end) || launched.hung {
            self.answer(launched)
        } else if report.code == code {
            Finding::Contained(format!("{check}: {end:?}, {code}"))
        } else {
            Finding::Open(format!("{check}: {end:?}, but code {}", report.code))
        }
    }
}

pub(crate) static D01: Row = Row {
    what: "more processes or threads than allowed",
    control: "pids.max, RLIMIT_NPROC in the user namespace, or the supervisor's count",
    policy: |policy, _| policy.process.max = Some(named(PROCESSES)),
    run: |trial| many(trial, "d01").and_then(|| many(trial, "d01-threads")),
    off: NO_LIMITS,
    ..ROW
};

/// The kernel says no where it keeps the limit; where the supervisor has to count, the session ends.
fn many(trial: &Trial, check: &str) -> Finding {
    let launched = trial.launch(check);
    match launched.report.keeper(Limited::Processes) {
        Some(Keeper::Watched) => trial.was_ended(&launched, check, End::ProcessLimit, 124),
        _ => trial.answer(&launched),
    }
}

pub(crate) static D01_BOMB: Row = Row {
    what: "a fork bomb",
    control: "a session that stays at its process limit is ended",
    policy: |policy, _| policy.process.max = Some(named(PROCESSES)),
    run: |trial| {
        let mut helper = trial.start("d01-bomb", Stdio::null());
        match helper.wait_for(&trial.project().join("forks"), Duration::from_secs(30)) {
            Ok(true) => {}
            other => return Finding::Broken(format!("no bomb: {other:?}, {:?}", helper.finish())),
        }
        let neighbour = trial.neighbour();
        let launched = match helper.finish() {
            Ok(launched) => launched,
            Err(error) => return Finding::Broken(error.to_string()),
        };
        trial.was_ended(&launched, "bomb", End::ProcessLimit, 124).and_then(|| served(neighbour))
    },
    off: NO_LIMITS,
    ..ROW
};

/// What a session that started meanwhile had to wait for.
fn served(neighbour: Result<Duration, String>) -> Finding {
    // The policy does not limit the CPUs here; how long it takes beside an attack is measured by `neighbour`.
    const AT_MOST: Duration = Duration::from_secs(20);
    match neighbour {
        Ok(took) if took <= AT_MOST => Finding::Contained("a neighbour was served".to_owned()),
        Ok(took) => Finding::Open(format!("a neighbour had to wait for {} ms", took.as_millis())),
        Err(why) => Finding::Open(format!("a neighbour could not start: {why}")),
    }
}

pub(crate) static D02: Row = Row {
    what: "more memory than allowed",
    control: "memory.max with oom.group, or the supervisor's eye",
    policy: |policy, _| policy.limits.memory = bytes(MEMORY),
    run: |trial| {
        trial.ended(&["d02", "d02-many"], End::OutOfMemory, 137).and_then(|| {
            // Within the limit no process is ended, and none gets out of the kernel's reach.
            trial.answer(&trial.launch("d02-shared")).and_then(|| trial.answer(&trial.launch("d02-score")))
        })
    },
    off: NO_LIMITS,
    ..ROW
};

pub(crate) static D02_FILES: Row = Row {
    what: "files that are memory",
    control: "memory.max, or small private file systems and the supervisor's eye",
    policy: |policy, _| policy.limits.memory = bytes(MEMORY),
    run: |trial| {
        let files = ["d02-mapping", "d02-memfd", "d02-segments", "d02-private"];
        let first = Finding::Contained("within the limit".to_owned());
        files.into_iter().fold(first, |so_far, check| {
            so_far.and_then(|| {
                // Without a cgroup a private file system is full before the limit is reached.
                trial.ended_one(check, End::OutOfMemory, 137)
            })
        })
    },
    off: NO_LIMITS,
    ..ROW
};

pub(crate) static D03: Row = Row {
    what: "realtime scheduling",
    control: "no capability, and no realtime priority whatever the user may have",
    // As for a user of a machine that is set up for audio, where this one may raise it.
    before: |_, _| {
        let limit = [99u64, 99];
        let wanted = [0, RLIMIT_RTPRIO, (&raw const limit) as usize, 0, 0, 0];
        match raw::syscall(libc::SYS_prlimit64, wanted) {
            Ok(_) | Err(libc::EPERM) => Ok(()),
            Err(errno) => Err(format!("RLIMIT_RTPRIO: errno {errno}")),
        }
    },
    run: |trial| match (trial.walls, trial.probe()) {
        (Walls::Open, Finding::Contained(_)) => {
            Finding::Skipped("this user has no realtime priority outside either".to_owned())
        }
        (_, finding) => finding,
    },
    ..ROW
};

const RLIMIT_RTPRIO: usize = 14;

fn drop_rlimit(plan: &mut LaunchPlan, which: Resource) {
    edit::drop_steps(plan, |step| matches!(step, Step::Limit { resource, .. } if *resource == which));
}

pub(crate) static D03_CPUS: Row = Row {
    what: "more CPUs than allowed",
    control: "cpu.max, or pinning with sched_setaffinity refused",
    policy: |policy, _| policy.limits.cpu_millis = Some(named(1000)),
    run: |trial| {
        if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
            return Finding::Skipped("this machine has one CPU".to_owned());
        }
        // Where no cgroup counts CPU time, the processes are pinned: a busy machine cannot hide that.
        let by_pinning = matches!(cgroup_home(&[]), CgroupHome::None { .. });
        let pinned = || trial.answer(&trial.launch("d03-pinned"));
        if by_pinning { pinned().and_then(|| shares(trial)) } else { shares(trial) }
    },
    off: NO_LIMITS,
    ..ROW
};

fn shares(trial: &Trial) -> Finding {
    let before = machine_busy();
    let began = Instant::now();
    let launched = trial.launch("d03-cpus");
    let wall = began.elapsed().as_secs_f64();
    let busy = machine_busy().saturating_sub(before).as_secs_f64() / wall;
    let own = Duration::from_micros(launched.report.usage.cpu_micros).as_secs_f64() / wall;
    match (trial.walls, trial.answer(&launched)) {
        // A trial that others kept from using two CPUs proves nothing, in either direction.
        (Walls::Open, Finding::Contained(how)) if busy - own > 0.5 => {
            Finding::Skipped(format!("others use {:.1} CPUs of this machine: {how}", busy - own))
        }
        (_, finding) => finding,
    }
}

/// CPU time that all processes on this machine have used.
fn machine_busy() -> Duration {
    const TICK: Duration = Duration::from_millis(10);
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields =
        text.lines().next().unwrap_or("").split_whitespace().skip(1).map(|field| field.parse::<u32>().unwrap_or(0));
    // user nice system idle iowait irq softirq steal
    let busy: u32 =
        fields.take(8).enumerate().filter(|(index, _)| ![3, 4].contains(index)).map(|(_, ticks)| ticks).sum();
    TICK * busy
}

pub(crate) static D03_TIME: Row = Row {
    what: "CPU time in small pieces",
    control: "the supervisor adds up the CPU time of the session",
    policy: |policy, _| policy.limits.cpu_seconds = Some(named(CPU_SECONDS)),
    run: |trial| {
        let launched = trial.launch("d03-time");
        trial.was_ended(&launched, "d03-time", End::CpuTimeLimit, 124).and_then(|| match launched.report.cgroup {
            Some(_) => trial.ended_one("d03-ignored", End::CpuTimeLimit, 124),
            None => Finding::Contained("no cgroup that would count processes whose end is ignored".to_owned()),
        })
    },
    off: NO_LIMITS,
    ..ROW
};

pub(crate) static D04: Row = Row {
    what: "output without end",
    control: "the supervisor counts what is written, and holds little of it",
    policy: |policy, _| policy.limits.output = bytes(OUTPUT),
    run: flood,
    off: NO_LIMITS,
    ..ROW
};

/// Reads what comes, as fast as it comes, and how large the supervisor gets meanwhile.
fn flood(trial: &Trial) -> Finding {
    const MARKER: usize = 256;
    const AT_MOST: u64 = 8 << 20;
    let mut helper = trial.start("d04", Stdio::null());
    let (out, err) = (helper.child.stdout.take().map(count_stdout), helper.child.stderr.take().map(count_stderr));
    let mut peak = 0;
    while matches!(helper.wait(Duration::from_millis(5)), Ok(None)) {
        peak = peak.max(memory::own_peak(helper.child.id()).unwrap_or(0));
    }
    let count = |reader: Option<JoinHandle<usize>>| reader.and_then(|reader| reader.join().ok()).unwrap_or(0);
    let came = count(out) + count(err);
    match helper.finish() {
        Ok(launched) if came > OUTPUT + MARKER => {
            Finding::Open(format!("{came} bytes came out, the session ended with {:?}", launched.report.end))
        }
        Ok(_) if peak > AT_MOST => Finding::Open(format!("the supervisor took {peak} bytes of memory")),
        Ok(launched) => trial
            .was_ended(&launched, "flood", End::OutputLimit, 124)
            .and_then(|| Finding::Contained(format!("{came} bytes came out, supervisor at {} KiB", peak >> 10))),
        Err(error) => Finding::Broken(error.to_string()),
    }
}

fn count_stdout(stream: ChildStdout) -> JoinHandle<usize> {
    std::thread::spawn(move || count(stream))
}

fn count_stderr(stream: ChildStderr) -> JoinHandle<usize> {
    std::thread::spawn(move || count(stream))
}

fn count(mut stream: impl std::io::Read) -> usize {
    let mut buffer = vec![0u8; 1 << 16];
    let mut total = 0;
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        total += read;
    }
    total
}

pub(crate) static D05: Row = Row {
    what: "bytes and names in private file systems",
    control: "size and number of files of each tmpfs",
    policy: |policy, _| {
        policy.limits.tmp_size = bytes(ROOM.bytes);
        policy.limits.tmp_inodes = bytes(ROOM.files);
    },
    off: NO_LIMITS,
    ..ROW
};

pub(crate) static D05_STORAGE: Row = Row {
    what: "the host's disk",
    control: "the supervisor watches free space and ends the session",
    policy: |policy, _| policy.limits.storage = bytes(STORAGE),
    run: |trial| trial.ended(&["d05-plain", "d05-allocated", "d05-nameless"], End::StorageLimit, 124),
    off: NO_LIMITS,
    ..ROW
};

pub(super) fn ended_by_storage(trial: &Trial, check: &str) -> Finding {
    trial.ended(&[check], End::StorageLimit, 124)
}

pub(crate) static D06: Row = Row {
    what: "sparse files of a tebibyte",
    control: "RLIMIT_FSIZE",
    policy: |policy, _| policy.limits.file_size = Some(named(FILE_SIZE)),
    off: Off::Edit(|plan, _| drop_rlimit(plan, Resource::FileSize)),
    ..ROW
};

pub(crate) static D07: Row = Row {
    what: "descriptors and instances of inotify",
    control: "RLIMIT_NOFILE, and the counts of the user namespace",
    policy: |policy, _| policy.limits.open_files = bytes(DESCRIPTORS),
    off: NO_LIMITS,
    ..ROW
};

pub(crate) static D10: Row = Row {
    what: "a flood of refused calls",
    control: "the session ends past the threshold",
    run: |trial| {
        let helper = trial.start("d10", Stdio::null());
        let neighbour = trial.neighbour();
        let launched = match helper.finish() {
            Ok(launched) => launched,
            Err(error) => return Finding::Broken(error.to_string()),
        };
        trial
            .was_ended(&launched, "flood", End::TooManyViolations, 126)
            .and_then(|| small_log(&trial.scene))
            .and_then(|| served(neighbour))
    },
    off: Off::Edit(|plan, _| plan.max_violations = u32::MAX),
    ..ROW
};

/// One line for each call up to the threshold, and few more.
fn small_log(place: &Place) -> Finding {
    const AT_MOST: usize = 100;
    let log = fs::read_to_string(log_of(place)).unwrap_or_default();
    match log.lines().count() {
        0 => Finding::Open("nothing was logged".to_owned()),
        lines if lines <= AT_MOST => Finding::Contained(format!("{lines} lines in the log")),
        lines => Finding::Open(format!("{lines} lines in the log")),
    }
}

fn log_of(place: &Place) -> impl AsRef<Path> {
    place.home().join(".local/state/cofferdam/audit/00000001.ndjson")
}
