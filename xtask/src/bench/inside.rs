//! `cargo xtask bench inside`: how fast programs run in the sandbox, beside bare. Owns the list of workloads, the rounds
//! and the targets; the workloads themselves are `tasks`, and `builds` are whole commands. Called by `bench`.

pub(crate) mod builds;
pub(crate) mod tasks;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bench::Options;
use crate::bench::candidate::{Binary, Candidate};
use crate::bench::report::{Limit, Report};
use crate::bench::stage::Stage;
use crate::bench::statistics::{Samples, ratio};
use crate::bench::worker::Request;
use crate::problems::Problems;

/// Bare time over time inside, for single operations.
const SPEED: Limit = Limit::AtLeast(0.95);
/// Time inside over bare time, for tools.
const WALL: Limit = Limit::AtMost(1.05);

/// The cheapest call shows best what a filter costs.
const FLOOR: Workload = Workload::Getpid;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    OpenClose,
    Stat,
    Getpid,
    ForkExec,
    Grep,
    GitStatus,
    Gcc,
}

pub(crate) const WORKLOADS: [Workload; 7] = [
    Workload::OpenClose,
    Workload::Stat,
    Workload::Getpid,
    Workload::ForkExec,
    Workload::Grep,
    Workload::GitStatus,
    Workload::Gcc,
];

impl Workload {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Workload::OpenClose => "open-close",
            Workload::Stat => "stat",
            Workload::Getpid => "getpid",
            Workload::ForkExec => "fork-exec",
            Workload::Grep => "grep",
            Workload::GitStatus => "git-status",
            Workload::Gcc => "gcc",
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Workload::OpenClose => "open + close",
            Workload::Stat => "stat",
            Workload::Getpid => "getpid",
            Workload::ForkExec => "fork + exec",
            Workload::Grep => "grep -r, 20k files",
            Workload::GitStatus => "git status, 20k files",
            Workload::Gcc => "gcc, 100 files",
        }
    }

    pub(crate) fn is_tool(self) -> bool {
        matches!(self, Workload::Grep | Workload::GitStatus | Workload::Gcc)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) options: Options,
    /// Measure whole commands and nothing else: cargo build, npm ci, pytest, go build
    #[arg(long)]
    commands: bool,
    /// Of them this one alone; can be given several times
    #[arg(long, value_name = "COMMAND")]
    only: Vec<builds::Build>,
}

/// Loops and tools time themselves, so the start of the sandbox is in none of their figures; commands are timed from spawn to reaped.
pub(crate) fn measure(stage: &Stage, rounds: usize, args: &Args) -> Result<Report, Problems> {
    let mut report = Report::new("inside", rounds, stage.machine());
    match &args.only[..] {
        [] if args.commands => builds::measure(stage, rounds, &builds::BUILDS, &mut report),
        [] => loops_and_tools(stage, rounds, &mut report)?,
        only => builds::measure(stage, rounds, only, &mut report),
    }
    Ok(report)
}

fn loops_and_tools(stage: &Stage, rounds: usize, report: &mut Report) -> Result<(), Problems> {
    let mut worker = stage.worker()?;
    eprintln!("bench inside: making files");
    worker.ask::<()>(&Request::Prepare)?;
    let mut taken: BTreeMap<(Workload, Candidate), Samples> = BTreeMap::new();
    let mut floor = Samples::default();
    for round in 0..=rounds {
        eprintln!("bench inside: round {round} of {rounds}");
        let order =
            if round % 2 == 0 { [Candidate::Bare, Candidate::Sandbox] } else { [Candidate::Sandbox, Candidate::Bare] };
        for workload in WORKLOADS {
            for candidate in order {
                let took = worker.ask(&Request::Time { candidate, binary: Binary::This, workload })?;
                // Round 0 fills the caches.
                if round > 0 {
                    taken.entry((workload, candidate)).or_default().push(took);
                }
            }
        }
        floor.push(worker.ask(&Request::TimeUnderFilter { workload: FLOOR })?);
    }
    report_ratios(report, &taken);
    report_floor(report, &taken[&(FLOOR, Candidate::Bare)], &floor);
    Ok(())
}

fn report_ratios(report: &mut Report, taken: &BTreeMap<(Workload, Candidate), Samples>) {
    let samples = |workload, candidate| &taken[&(workload, candidate)];
    for workload in WORKLOADS {
        let (bare, inside) = (samples(workload, Candidate::Bare), samples(workload, Candidate::Sandbox));
        let name = workload.name().replace('-', "_");
        if workload.is_tool() {
            let label = format!("{}: time inside / bare", workload.label());
            report.judge(&format!("{name}_wall"), &label, ratio(inside.median(), bare.median()), WALL);
        } else {
            // A shared machine slows whole rounds by half; the best round of each is what the kernel's path costs.
            let label = format!("{}: speed inside / bare", workload.label());
            report.judge(&format!("{name}_speed"), &label, ratio(bare.best(), inside.best()), SPEED);
        }
    }
    report.section("medians");
    for workload in WORKLOADS {
        let (unit, scale) = if workload.is_tool() { ("ms", 1e6) } else { ("us", 1e3) };
        for candidate in [Candidate::Bare, Candidate::Sandbox] {
            let name = format!("{}_{}", workload.name().replace('-', "_"), candidate.name());
            let label = format!("{}, {}", workload.label(), candidate.name());
            report.samples(&name, &label, samples(workload, candidate), unit, scale);
        }
    }
}

/// The kernel's own price of having any filter, so that a miss can be told from a slow filter.
fn report_floor(report: &mut Report, bare: &Samples, floor: &Samples) {
    let speed = ratio(bare.best(), floor.best());
    report.figure(&format!("{}_one_instruction_filter_speed", FLOOR.name()), speed);
    let label = format!("{}: speed under a 1-instruction filter", FLOOR.label());
    report.section("the price of any filter, paid once per call");
    report.row(&label, &format!("{speed:>9.3}"));
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_workload_is_measured_and_has_its_own_name_on_the_command_line() {
        assert_eq!(WORKLOADS, Workload::value_variants());
        for workload in WORKLOADS {
            assert_eq!(Workload::from_str(workload.name(), false), Ok(workload));
        }
    }
}
