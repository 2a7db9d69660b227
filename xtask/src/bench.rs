//! `cargo xtask bench start|density|inside|gate|workspace|egress|audit`: what the sandbox costs, against bare and against bubblewrap, in one run.
//! Owns the order (build, stage, measure, report); holds no expected result but the targets. Called by people and `.ci/run`.

mod against;
mod approvals;
mod audit;
mod candidate;
mod checkpoint;
mod commands;
mod density;
mod egress;
mod gate;
mod inside;
mod report;
mod stage;
mod start;
mod statistics;
mod transaction;
pub(crate) mod worker;

use std::path::PathBuf;

use crate::bench::report::Report;
use crate::bench::stage::Stage;
use crate::problems::Problems;
use crate::shipped;
use crate::workspace::{Workspace, cargo};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, clap::Subcommand)]
enum Bench {
    /// How long `sandbox run -- /bin/true` takes, beside bare and bwrap; also in company, at a terminal, with 300 mounts, and 8 at a time
    Start(Options),
    /// What a session that does nothing keeps of the memory; `--rounds` is how many run (needs root)
    Density(Options),
    /// How fast programs run inside, beside bare; and cargo build, npm ci, pytest and go build, with caches thrown away and kept
    Inside(inside::Args),
    /// What dynamic mode costs: an approved tree by either trigger, and the time from an approval to the call's return
    Gate(Options),
    /// What a transaction costs over 20,000 files: mount, diff, commit, git and a build inside; auto beside writing directly
    Workspace(Options),
    /// How fast connections by name are, beside loopback, slirp4netns, pasta and, for the proxy, squid
    Egress(Options),
    /// What a record of the audit log costs, and how long a long log takes to verify
    Audit(audit::Args),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// How often each candidate is measured (start: 200, density: 100 sessions, inside: 7, gate: 7, workspace: 5, egress: 5; with --against 400)
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..))]
    rounds: Option<u32>,
    /// Measure as this user (needs root); as root, `cofferdam-test` if it exists
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Measure this binary instead of building the shipped one
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Measure nothing but this tree's binary beside that one, in pairs (start, inside, gate): is it no slower?
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,
    /// Build nothing: measure what an earlier run built
    #[arg(long)]
    no_build: bool,
    /// Fail when a target is missed
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result<String, Problems> {
    let (options, default_rounds) = match &args.bench {
        Bench::Start(options) => (options, 200),
        Bench::Density(options) => (options, 100),
        Bench::Inside(args) => (&args.options, 7),
        Bench::Gate(options) => (options, 7),
        Bench::Workspace(options) => (options, 5),
        Bench::Egress(options) => (options, 5),
        Bench::Audit(args) => return audit::run(args),
    };
    let rounds = options.rounds.map(|rounds| rounds as usize);
    let (sandbox, worker) = binaries(options)?;
    let stage = Stage::set_up(options.user.as_deref(), &sandbox, &worker)?;
    let report = if let Some(other) = &options.against {
        let pairs = match &args.bench {
            Bench::Start(_) => against::Pairs::Start,
            Bench::Inside(_) => against::Pairs::Inside,
            Bench::Gate(_) => against::Pairs::Gate,
            _ => return Err(Problems::one("--against is for start, inside and gate".to_owned())),
        };
        against::measure(&stage, pairs, other, rounds.unwrap_or(against::ROUNDS))?
    } else {
        let rounds = rounds.unwrap_or(default_rounds);
        match &args.bench {
            Bench::Density(_) => density::measure(&stage, rounds)?,
            Bench::Inside(args) => inside::measure(&stage, rounds, args)?,
            Bench::Gate(_) => gate::measure(&stage, rounds)?,
            Bench::Workspace(_) => {
                let mut report = transaction::measure(&stage, rounds)?;
                checkpoint::measure(&stage, rounds, &mut report)?;
                commands::measure(&stage, rounds, &mut report)?;
                report
            }
            Bench::Egress(options) => egress::measure(&stage, &load(options)?, rounds)?,
            _ => start::measure(&stage, rounds)?,
        }
    };
    stage.clear()?;
    finish(options, &report)
}

fn finish(options: &Options, report: &Report) -> Result<String, Problems> {
    let text = if options.json { report.json() } else { report.table() };
    if options.check && !report.passes() {
        println!("{text}");
        let mut problems = Problems::default();
        report.missed().into_iter().for_each(|missed| problems.add(missed));
        return problems.or("");
    }
    Ok(text)
}

/// The program for both ends of a connection.
fn load(options: &Options) -> Result<PathBuf, Problems> {
    if !options.no_build {
        cargo(&["build", "--profile", "fast", "--package", "cofferdam-testkit", "--bin", "egress-load"])?;
    }
    Ok(Workspace::load()?.target.join("fast/egress-load"))
}

/// The shipped binary, and this program with optimisations: a loop around a system call must not cost more than the call.
fn binaries(options: &Options) -> Result<(PathBuf, PathBuf), Problems> {
    let workspace = Workspace::load()?;
    if !options.no_build {
        if options.binary.is_none() {
            shipped::build()?;
        }
        cargo(&["build", "--profile", "fast", "--package", "xtask"])?;
    }
    let command = || shipped::path(&workspace, shipped::COMMAND);
    Ok((options.binary.clone().unwrap_or_else(command), workspace.target.join("fast/xtask")))
}
