//! `cargo xtask bench workspace`: what a transaction costs over a project of 20,000 files: mounting it, listing and committing 2,000
//! changes, and git inside; auto beside writing directly. Owns the project and the order; every figure is one of the real command.

use std::process::Command;
use std::time::Instant;

use crate::bench::report::{Limit, Report};
use crate::bench::stage::Stage;
use crate::bench::statistics::Samples;
use crate::problems::Problems;

pub(crate) const MILLISECONDS: f64 = 1e6;

/// 200 directories of 100 files, all of them in git.
const MAKE: &str = "set -e; git init -q .; git config user.email a@b; git config user.name n; \
    for d in $(seq 200); do mkdir -p src/d$d; for f in $(seq 100); do echo \"file $d $f\" > src/d$d/f$f; done; done; \
    mkdir c; for u in $(seq 80); do echo \"int f$u(int);\" > c/u$u.h; { echo '#include <stdio.h>'; echo '#include <stdlib.h>'; \
    echo '#include <string.h>'; for h in $(seq $u); do echo \"#include \\\"u$h.h\\\"\"; done; for n in $(seq 40); do \
    echo \"static int g$n(int x) { char b[64]; snprintf(b, sizeof b, \\\"%d\\\", x); return atoi(b) + (int)strlen(b) * $n; }\"; done; \
    echo \"int f$u(int x) { return g1(x) + g40(x); }\"; } > c/u$u.c; done; git add -A; git commit -qm base";
/// Ten files in each directory: 2,000 changes.
const CHANGE: &str = "for d in $(seq 200); do for f in $(seq 10); do echo more >> src/d$d/f$f; done; done";
const PICK: &str = "set -e; rm -rf ../picked; for d in $(seq 200); do mkdir -p ../picked/d$d; \
    for f in $(seq 10); do cp -a src/d$d/f$f ../picked/d$d/; done; done";
const STATUS: &str =
    "git status --short > /dev/null; a=$(date +%s%N); git status --short > /dev/null; b=$(date +%s%N); echo $((b - a))";
/// A build: 80 files by the compiler, two at a time.
const BUILD: &str = "rm -rf out; mkdir out; ls c/*.c | xargs -P 2 -I@ sh -c 'cc -O1 -c @ -o out/$(basename @).o'";
/// The worst for an overlay: everything is opened once, and nothing is computed.
const SCAN: &str = "rm -rf out; mkdir out; for d in src/*; do cat $d/* | sha256sum > out/$(basename $d); done";
const WAYS: [&str; 3] = ["--transaction=off", "--transaction", "--transaction=auto"];

pub(crate) fn measure(stage: &Stage, rounds: usize) -> Result<Report, Problems> {
    let mut report = Report::new("workspace", rounds, stage.machine());
    eprintln!("bench workspace: a project of 20,000 files");
    script(stage, MAKE)?;
    let [mut mount, mut diff, mut commit, mut copy] = [(); 4].map(|()| Samples::default());
    let [mut bare, mut inside] = [(); 2].map(|()| Samples::default());
    let [mut builds, mut scans] = [(); 2].map(|()| [(); 3].map(|()| Samples::default()));
    for round in 0..rounds {
        eprintln!("bench workspace: round {} of {rounds}", round + 1);
        let timing = run(sandbox(stage, &["run", "--mode", "static", "--timing", "--transaction", "--", "true"]))?.1;
        mount.push(mount_of(stage, &timing)?);
        run(sandbox(stage, &["run", "--mode", "static", "--transaction", "--", "sh", "-c", CHANGE]))?;
        diff.push(time(sandbox(stage, &["diff", "--stat"]))?);
        // What is copied beside lies in the cache, as what is committed does.
        script(stage, PICK)?;
        copy.push(time(shell(stage, "set -e; rm -rf ../copied; cp -a ../picked ../copied; sync -f ../copied"))?);
        commit.push(time(sandbox(stage, &["commit"]))?);
        script(stage, "git checkout -q . && git clean -qfd")?;
        let nanoseconds = |text: &str| text.trim().parse::<f64>().map_err(|e| Problems::one(format!("{text:?}: {e}")));
        bare.push(nanoseconds(&run(shell(stage, STATUS))?.0)?);
        let status = sandbox(stage, &["run", "--mode", "static", "--transaction", "--", "sh", "-c", STATUS]);
        inside.push(nanoseconds(&run(status)?.0)?);
        for (script_inside, samples) in [(BUILD, &mut builds), (SCAN, &mut scans)] {
            for (flag, samples) in WAYS.iter().zip(samples) {
                script(stage, "git checkout -q . && git clean -qfd")?;
                samples
                    .push(time(sandbox(stage, &["run", "--mode", "static", flag, "--", "sh", "-c", script_inside]))?);
                if *flag == "--transaction" {
                    run(sandbox(stage, &["rollback"]))?;
                }
            }
        }
    }
    let at = |samples: &Samples| samples.median() / MILLISECONDS;
    report.judge("mount_ms", "mounting the overlay, ms", at(&mount), Limit::AtMost(20.0));
    report.judge("diff_ms", "listing 2,000 changes, ms", at(&diff), Limit::AtMost(200.0));
    report.judge(
        "commit",
        "committing 2,000 files / cp -a and sync -f",
        commit.median() / copy.median(),
        Limit::AtMost(2.0),
    );
    let [direct, build, auto] = builds;
    report.judge("build", "a build inside / directly", build.median() / direct.median(), Limit::AtMost(1.1));
    report.judge(
        "status",
        "git status inside, after the first / bare",
        inside.median() / bare.median(),
        Limit::AtMost(1.3),
    );
    report.section("medians");
    for (name, label, samples) in [
        ("commit_ms", "commit", &commit),
        ("copy_ms", "cp -a and sync -f", &copy),
        ("status_bare_ms", "git status, bare", &bare),
        ("status_inside_ms", "git status, inside", &inside),
        ("build_direct_ms", "build, written directly", &direct),
        ("build_review_ms", "build, in a transaction", &build),
        ("build_auto_ms", "build, applied at the end", &auto),
        ("scan_direct_ms", "20,000 files opened once, directly", &scans[0]),
        ("scan_review_ms", "the same in a transaction", &scans[1]),
        ("scan_auto_ms", "the same, applied at the end", &scans[2]),
    ] {
        report.samples(name, label, samples, "ms", MILLISECONDS);
    }
    Ok(report)
}

pub(crate) fn sandbox(stage: &Stage, arguments: &[&str]) -> Command {
    let mut command = stage.user_command(&stage.sandbox());
    command.args(arguments);
    command
}

pub(crate) fn shell(stage: &Stage, script: &str) -> Command {
    let mut command = stage.user_command(std::path::Path::new("/bin/sh"));
    command.args(["-c", script]);
    command
}

fn script(stage: &Stage, script: &str) -> Result<(), Problems> {
    run(shell(stage, script)).map(drop)
}

pub(crate) fn time(command: Command) -> Result<f64, Problems> {
    let began = Instant::now();
    run(command)?;
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a command fit a float")]
    Ok(began.elapsed().as_nanos() as f64)
}

/// What it wrote to both streams.
pub(crate) fn run(mut command: Command) -> Result<(String, String), Problems> {
    let ran = command.output().map_err(|e| Problems::one(format!("{command:?}: {e}")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !ran.status.success() {
        return Err(Problems::one(format!("{command:?}: {}\n{}{}", ran.status, text(&ran.stdout), text(&ran.stderr))));
    }
    Ok((text(&ran.stdout), text(&ran.stderr)))
}

/// What `--timing` says of the mount over the project, in nanoseconds.
fn mount_of(stage: &Stage, timing: &str) -> Result<f64, Problems> {
    let step = format!("mount {}", stage.project().display());
    let line = timing.lines().find(|line| line.trim_end().ends_with(&step));
    let microseconds = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    microseconds.map(|time| time * 1000.0).ok_or_else(|| Problems::one(format!("no step `{step}` in\n{timing}")))
}
