//! Commands that end, written directly and with `--transaction=auto`, in turn: `npm ci`, `cargo build`, `git checkout` between two branches; and
//! how long a program inside takes to notice a save by an editor outside. Owns those projects; part of `cargo xtask bench workspace`,
//! after `transaction`. A program that is not installed leaves its row out, with the reason.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::bench::report::Report;
use crate::bench::stage::Stage;
use crate::bench::statistics::Samples;
use crate::bench::transaction::{MILLISECONDS, run, sandbox, shell, time};
use crate::problems::Problems;

const WAYS: [(&str, &str); 2] = [("direct", "--transaction=off"), ("auto", "--transaction=auto")];
/// How long a save is waited for.
const PATIENCE: &str = "2";

/// A command, in a directory of its own below the project's.
struct Task {
    name: &'static str,
    /// Makes the project once. What fails there is no failure of the sandbox.
    make: &'static str,
    /// Before each round.
    reset: &'static str,
    command: &'static str,
}

const TASKS: [Task; 3] = [
    Task {
        name: "npm",
        make: "echo '{\"name\":\"p\",\"version\":\"1.0.0\",\"private\":true}' > package.json; \
               npm install --ignore-scripts --no-audit --no-fund --cache .cache express typescript eslint vite webpack",
        reset: "rm -rf node_modules; sync -f .",
        command: "npm ci --offline --ignore-scripts --no-audit --no-fund --cache .cache",
    },
    Task {
        name: "cargo",
        make: "cargo --version; printf '[workspace]\\nresolver = \"2\"\\nmembers = [\"c*\"]\\n' > Cargo.toml; for c in 1 2 3 4 5 6; do \
               mkdir -p c$c/src; printf '[package]\\nname = \"c%s\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n' $c > c$c/Cargo.toml; \
               for i in $(seq 60); do echo \"#[derive(Debug, Clone, PartialEq)] pub struct S$i { pub a: Vec<u32>, pub b: String }\"; done \
               > c$c/src/lib.rs; done",
        reset: "rm -rf target; sync -f .",
        command: "cargo build --offline --quiet",
    },
    Task {
        name: "checkout",
        make: "git init -q -b one .; git config user.email a@b; git config user.name n; \
               for d in $(seq 100); do mkdir -p s/$d; for f in $(seq 100); do echo $d $f > s/$d/$f; done; done; git add -A; git commit -qm one; \
               git checkout -qb two; for d in $(seq 50); do for f in $(seq 100); do echo $d $f two > s/$d/$f; done; done; git rm -rq s/100; \
               git add -A; git commit -qm two",
        reset: "git checkout -qf one; git clean -qfd; sync -f .",
        command: "git checkout -q two",
    },
];

/// Says when it began to watch, and when it noticed the save: by inotify, or by asking for the file again and again.
const WATCH: &str = "import ctypes, os, select, sys, time
name, way, limit = 'page', sys.argv[1], float(sys.argv[2])
before = open(name).read()
libc = ctypes.CDLL(None)
fd = libc.inotify_init1(0)
libc.inotify_add_watch(fd, b'.', 0x2 | 0x8 | 0x80 | 0x100)
print('up', flush=True)
end = time.time() + limit
while time.time() < end:
    if way == 'inotify':
        if not select.select([fd], [], [], end - time.time())[0]: break
        print(time.time_ns(), flush=True); sys.exit()
    if open(name).read() != before:
        print(time.time_ns(), flush=True); sys.exit()
    time.sleep(0.001)
print('never', flush=True)";

pub(crate) fn measure(stage: &Stage, rounds: usize, report: &mut Report) -> Result<(), Problems> {
    report.section("commands that end: written directly, and applied at the end");
    for task in TASKS {
        let within = |script: &str| format!("set -e; mkdir -p {0}; cd {0}; {script}", task.name);
        if let Err(problem) = run(shell(stage, &within(task.make))) {
            eprintln!("bench workspace: no row for {}: {problem:?}", task.name);
            continue;
        }
        let mut samples = [Samples::default(), Samples::default()];
        for _ in 0..rounds {
            for ((_, flag), samples) in WAYS.iter().zip(&mut samples) {
                run(shell(stage, &within(task.reset)))?;
                let inside = ["run", "--mode", "static", flag, "--", "sh", "-c", &within(task.command)];
                samples.push(time(sandbox(stage, &inside))?);
            }
        }
        for ((way, _), samples) in WAYS.iter().zip(&samples) {
            let (key, label) = (format!("{}_{way}_ms", task.name), format!("{}, {way}", task.name));
            report.samples(&key, &label, samples, "ms", MILLISECONDS);
        }
    }
    report.section("a save outside, until a program inside notices it");
    for (way, flag) in WAYS {
        for saved in ["in-place", "renamed"] {
            for watch in ["inotify", "asking"] {
                saves(stage, rounds, (way, flag), saved, watch, report)?;
            }
        }
    }
    Ok(())
}

/// One way to save, one way to watch.
fn saves(
    stage: &Stage,
    rounds: usize,
    (way, flag): (&str, &str),
    saved: &str,
    watch: &str,
    report: &mut Report,
) -> Result<(), Problems> {
    let (mut samples, mut missed) = (Samples::default(), 0);
    for round in 0..rounds {
        run(shell(stage, "echo before > page"))?;
        let inside = ["run", "--mode", "static", flag, "--", "python3", "-c", WATCH, watch, PATIENCE];
        let mut command = sandbox(stage, &inside);
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = spawned.map_err(|e| Problems::one(format!("{command:?}: {e}")))?;
        let mut lines = BufReader::new(child.stdout.take().ok_or_else(|| Problems::one("no pipe"))?).lines();
        let mut line = || lines.next().and_then(Result::ok).ok_or_else(|| Problems::one("the watching program ended"));
        line()?;
        let save = match saved {
            "in-place" => format!("echo {round} > page"),
            _ => format!("echo {round} > page.new; mv page.new page"),
        };
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        run(shell(stage, &save))?;
        match line()?.parse::<u64>() {
            Ok(noticed) => {
                #[expect(clippy::cast_precision_loss, reason = "two seconds in nanoseconds fit a float")]
                samples.push(Duration::from_nanos(noticed).saturating_sub(began).as_nanos() as f64);
            }
            Err(_) => missed += 1,
        }
        child.wait().map_err(|e| Problems::one(format!("the session: {e}")))?;
    }
    let label = format!("{way}, saved {saved}, noticed by {watch} ({missed} of {rounds} never)");
    if missed < rounds {
        report.samples(&format!("save_{way}_{saved}_{watch}_ms"), &label, &samples, "ms", MILLISECONDS);
    } else {
        report.row(&label, "never");
    }
    Ok(())
}
