//! `cargo build`, `npm ci`, `pytest` and `go build` outside and inside, in turn: whole commands, the start and the end of the session
//! included, in the default mode. Owns those projects and what an earlier round leaves; part of `cargo xtask bench inside`, after the
//! loops and tools. A program that is not installed leaves its row out, with the reason.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::inside::WALL;
use crate::bench::report::Report;
use crate::bench::stage::{PATH, Stage};
use crate::bench::statistics::{Interval, Samples, paired};
use crate::bench::transaction::{run, sandbox, shell, time};
use crate::problems::Problems;

const SECONDS: f64 = 1e9;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Build {
    Cargo,
    Npm,
    Pytest,
    Go,
}

pub(crate) const BUILDS: [Build; 4] = [Build::Cargo, Build::Npm, Build::Pytest, Build::Go];

/// A way to run the command: its name, and the preset if what the caches get is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Outside,
    /// The default: what is written to a cache lies in an overlay that goes with the session.
    Inside,
    Kept(&'static str),
}

impl Build {
    fn name(self) -> &'static str {
        match self {
            Build::Cargo => "cargo",
            Build::Npm => "npm",
            Build::Pytest => "pytest",
            Build::Go => "go",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Build::Cargo => "cargo build",
            Build::Npm => "npm ci",
            Build::Pytest => "pytest",
            Build::Go => "go build",
        }
    }

    /// `pytest` uses no cache that a preset keeps.
    fn ways(self) -> Vec<Way> {
        let preset = match self {
            Build::Cargo => Some("cargo"),
            Build::Npm => Some("node"),
            Build::Pytest => None,
            Build::Go => Some("go"),
        };
        [Way::Outside, Way::Inside].into_iter().chain(preset.map(Way::Kept)).collect()
    }

    /// Makes the project and fills the caches of `$HOME`, as the user who runs the bench: their configuration reaches the registries.
    fn make(self) -> &'static str {
        match self {
            Build::Cargo => {
                "mkdir src; echo 'fn main() {}' > src/main.rs; printf '[workspace]\\n[package]\\nname = \"p\"\\nversion = \"0.1.0\"\\n\
                 edition = \"2021\"\\n[dependencies]\\nserde = { version = \"1\", features = [\"derive\"] }\\nserde_json = \"1\"\\n\
                 regex = \"1\"\\n' > Cargo.toml; CARGO_HOME=$MADE/.cargo cargo fetch --quiet"
            }
            Build::Npm => {
                "echo '{\"name\":\"p\",\"version\":\"1.0.0\",\"private\":true}' > package.json; npm install --ignore-scripts --no-audit \
                 --no-fund --silent --cache $MADE/.npm express typescript eslint vite webpack"
            }
            Build::Pytest => {
                "pytest --version; for f in $(seq 60); do cat > test_$f.py <<'END'
import json, subprocess, sys
import pytest

@pytest.mark.parametrize('n', range(12))
def test_file(n, tmp_path):
    path = tmp_path / 'values.json'
    path.write_text(json.dumps(list(range(2000 + n))))
    assert len(json.loads(path.read_text())) == 2000 + n

@pytest.mark.parametrize('n', range(12))
def test_sum(n):
    assert sum(i * i for i in range(20000)) > n

@pytest.mark.parametrize('n', range(2))
def test_program(n):
    subprocess.run([sys.executable, '-S', '-c', 'pass'], check=True)
END
done"
            }
            Build::Go => {
                "go version; printf 'module p\\n\\ngo 1.19\\n' > go.mod; for p in $(seq 40); do mkdir p$p; { echo \"package p$p\"; \
                 echo 'import (\"fmt\"; \"strings\")'; for f in $(seq 80); do echo \"type S$f struct { A []int; B string }\"; \
                 echo \"func (s S$f) F(x int) string { return strings.Repeat(fmt.Sprint(s.A, s.B, x), $f) }\"; done; } > p$p/p.go; done; \
                 { echo 'package main'; echo 'import (\"encoding/json\"; \"net/http\"; \"os\"'; for p in $(seq 40); do echo \"\\\"p/p$p\\\"\"; done; \
                 echo '); func main() { http.NotFoundHandler()'; for p in $(seq 40); do echo \"json.NewEncoder(os.Stdout).Encode(p$p.S1{}.F(1))\"; done; \
                 echo '}'; } > main.go"
            }
        }
    }

    /// Before each run, as the measuring user: what the run before has made.
    fn reset(self) -> &'static str {
        match self {
            Build::Cargo => "rm -rf target",
            Build::Npm => "rm -rf node_modules",
            Build::Pytest => "rm -rf .pytest_cache __pycache__",
            Build::Go => "rm -rf out ~/.cache/go-build; mkdir -p ~/.cache/go-build",
        }
    }

    fn command(self) -> &'static str {
        match self {
            Build::Cargo => "cargo build --offline --quiet",
            Build::Npm => "npm ci --offline --ignore-scripts --no-audit --no-fund --silent",
            Build::Pytest => "pytest --quiet",
            Build::Go => "go build -o out .",
        }
    }
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Outside => "outside",
            Way::Inside => "inside",
            Way::Kept(_) => "kept",
        }
    }

    fn label(self) -> String {
        match self {
            Way::Outside => "outside".to_owned(),
            Way::Inside => "inside".to_owned(),
            Way::Kept(preset) => format!("inside, --preset {preset}"),
        }
    }
}

pub(crate) fn measure(stage: &Stage, rounds: usize, builds: &[Build], report: &mut Report) {
    report.section("whole commands, inside / outside, median by median, and the 95 % interval of their ratio");
    for build in builds {
        if let Err(problem) = prepare(stage, *build) {
            report.note(&format!("no row for {}: {problem:?}", build.label()));
        } else if let Err(problem) = one(stage, rounds, *build, report) {
            // What fails inside is no missing program: a target without a figure is missed.
            report.note(&format!("{}: {problem:?}", build.label()));
            report.judge(
                &format!("{}_low", build.name()),
                &format!("{}: no figure", build.label()),
                f64::INFINITY,
                WALL,
            );
        }
    }
}

fn one(stage: &Stage, rounds: usize, build: Build, report: &mut Report) -> Result<(), Problems> {
    let ways = build.ways();
    let mut taken = vec![Samples::default(); ways.len()];
    for round in 0..=rounds {
        eprintln!("bench inside: {}, round {round} of {rounds}", build.label());
        for turn in 0..ways.len() {
            let at = (round + turn) % ways.len();
            run(tools(stage, shell(stage, &within(build, &format!("{}; sync -f .", build.reset())))))?;
            let took = time(command(stage, build, ways[at]))?;
            // Round 0 fills the caches.
            if round > 0 {
                taken[at].push(took);
            }
        }
    }
    for (way, samples) in ways.iter().zip(&taken).skip(1) {
        judge(report, build, *way, samples, &taken[0]);
    }
    Ok(())
}

/// Missed is what even the lower end of the interval misses: seven rounds beside other programs show no less.
fn judge(report: &mut Report, build: Build, way: Way, inside: &Samples, outside: &Samples) {
    let Interval { ratio, low, high } = paired(inside, outside);
    let (name, label) = (format!("{}_{}", build.name(), way.name()), format!("{}, {}", build.label(), way.label()));
    report.figure(&format!("{name}_ratio"), ratio);
    report.figure(&format!("{name}_high"), high);
    report.judge(&format!("{name}_low"), &format!("{label}: lower end"), low, WALL);
    let medians = [inside, outside].map(|samples| samples.median() / SECONDS);
    let value = format!("{ratio:>9.3}   [{low:.3}, {high:.3}]   {:.2} s / {:.2} s", medians[0], medians[1]);
    report.row(&label, &value);
    if !WALL.met_by(ratio) && WALL.met_by(low) {
        report.note(&format!("{label}: {ratio:.3} is above the target, and noise can be why: more rounds, less load"));
    }
}

fn command(stage: &Stage, build: Build, way: Way) -> Command {
    let script = within(build, build.command());
    let command = if way == Way::Outside {
        shell(stage, &script)
    } else {
        let toolchain = stage.toolchain();
        let toolchain = toolchain.to_string_lossy();
        let mut arguments = vec!["run"];
        if build == Build::Cargo {
            arguments.extend(["--ro", &toolchain]);
        }
        if let Way::Kept(preset) = way {
            arguments.extend(["--preset", preset]);
        }
        arguments.extend(["--", "sh", "-c", &script]);
        sandbox(stage, &arguments)
    };
    tools(stage, command)
}

/// With the toolchain of this project in front.
fn tools(stage: &Stage, mut command: Command) -> Command {
    command.env("PATH", format!("{}/bin:{PATH}", stage.toolchain().display()));
    command
}

fn within(build: Build, script: &str) -> String {
    format!("set -e; cd {}; {script}", build.name())
}

fn prepare(stage: &Stage, build: Build) -> Result<(), Problems> {
    eprintln!("bench inside: making a project for {}", build.label());
    if build == Build::Cargo {
        link_toolchain(&stage.toolchain())?;
    }
    let project = stage.project().join(build.name());
    std::fs::create_dir(&project).map_err(|e| Problems::one(format!("cannot make {}: {e}", project.display())))?;
    let mut command = Command::new("sh");
    command.args(["-ec", build.make()]).current_dir(&project).env("MADE", stage.home());
    run(command)?;
    stage.give_tree(&project)?;
    stage.give_tree(&stage.home())
}

/// The toolchain that builds this project, where the measuring user can read it: root's home is closed. Hard links where the file system
/// allows, for it is a gigabyte.
fn link_toolchain(to: &Path) -> Result<(), Problems> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "sysroot"]);
    let sysroot = PathBuf::from(run(rustc)?.0.trim());
    let copy = |flags: &str| {
        let mut command = Command::new("cp");
        command.arg(flags).args([&sysroot, to]);
        run(command).map(drop)
    };
    copy("-al").or_else(|_| {
        std::fs::remove_dir_all(to).ok();
        copy("-a")
    })?;
    let open = std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o755));
    open.map_err(|e| Problems::one(format!("cannot open {}: {e}", to.display())))
}
