//! `cargo xtask bench start|inside|gate --against PATH`: this tree's binary beside another one, in pairs. Owns the rounds
//! and the demand 'no slower'; what is timed is what the benches time. Called by `bench`.

use std::path::Path;

use crate::bench::approvals::Asked;
use crate::bench::candidate::{Binary, Candidate};
use crate::bench::gate::{self, Workers};
use crate::bench::inside::{self, Workload};
use crate::bench::report::{Limit, Report};
use crate::bench::stage::{Stage, Worker};
use crate::bench::statistics::{Interval, Samples, paired};
use crate::bench::worker::Request;
use crate::problems::Problems;

pub(crate) const ROUNDS: usize = 400;
/// Of the upper end of the interval.
const NO_SLOWER: Limit = Limit::AtMost(1.05);
/// Tools take seconds: they get this part of the rounds.
const TOOLS_PART: usize = 10;
/// Approvals by one session.
const APPROVALS: usize = 50;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Pairs {
    Start,
    Inside,
    Gate,
}

type Taken = [Samples; 2];

pub(crate) fn measure(stage: &Stage, pairs: Pairs, other: &Path, rounds: usize) -> Result<Report, Problems> {
    stage.bring_command(other, Binary::Other.file_name())?;
    let name = match pairs {
        Pairs::Start => "start",
        Pairs::Inside => "inside",
        Pairs::Gate => "gate",
    };
    let mut report = Report::new(name, rounds, stage.machine());
    report.section("this / other, median by median, and the 95 % interval of their ratio");
    match pairs {
        Pairs::Start => start(stage, &mut report, rounds)?,
        Pairs::Inside => inside(stage, &mut report, rounds)?,
        Pairs::Gate => gate(stage, &mut report, rounds)?,
    }
    Ok(report)
}

fn start(stage: &Stage, report: &mut Report, rounds: usize) -> Result<(), Problems> {
    let mut worker = stage.worker_at_home()?;
    for candidate in [Candidate::Sandbox, Candidate::Dynamic] {
        // The first launches read the binaries from disk.
        worker.ask::<Taken>(&Request::Pairs { candidate, count: 8 })?;
        eprintln!("bench start: {rounds} pairs of {}", candidate.name());
        let taken: Taken = worker.ask(&Request::Pairs { candidate, count: rounds })?;
        judge(report, candidate.name(), &taken);
    }
    Ok(())
}

fn inside(stage: &Stage, report: &mut Report, rounds: usize) -> Result<(), Problems> {
    let mut worker = stage.worker()?;
    worker.ask::<()>(&Request::Prepare)?;
    for workload in inside::WORKLOADS {
        let taken = time(&mut worker, Candidate::Sandbox, workload, rounds)?;
        judge(report, workload.name(), &taken);
    }
    Ok(())
}

fn gate(stage: &Stage, report: &mut Report, rounds: usize) -> Result<(), Problems> {
    let mut workers = Workers::start(stage)?;
    workers.fuse.ask::<()>(&Request::Prepare)?;
    for workload in gate::WORKLOADS {
        let taken = time(&mut workers.fuse, Candidate::Dynamic, workload, rounds)?;
        judge(report, &format!("{} fuse", workload.name()), &taken);
        // Reported calls make a tool ten times as slow; its calls are those of the loops.
        if !workload.is_tool() {
            let taken = time(&mut workers.calls, Candidate::Dynamic, workload, rounds)?;
            judge(report, &format!("{} calls", workload.name()), &taken);
        }
    }
    for of in [Asked::Files, Asked::Directories] {
        for (trigger, worker) in [("fuse", &mut workers.fuse), ("calls", &mut workers.calls)] {
            judge(report, &format!("approval of {} {trigger}", of.name()), &approvals(worker, of, rounds)?);
        }
    }
    Ok(())
}

fn time(worker: &mut Worker, candidate: Candidate, workload: Workload, rounds: usize) -> Result<Taken, Problems> {
    let rounds = if workload.is_tool() { (rounds / TOOLS_PART).max(3) } else { rounds };
    eprintln!("{rounds} pairs of {} in {}", workload.name(), candidate.name());
    let mut taken = Taken::default();
    // Round 0 fills the caches.
    for round in 0..=rounds {
        for binary in Binary::order(round) {
            let took = worker.ask(&Request::Time { candidate, binary, workload })?;
            if round > 0 {
                taken[binary as usize].push(took);
            }
        }
    }
    Ok(taken)
}

/// Sessions of both binaries take turns, each with some approvals.
fn approvals(worker: &mut Worker, of: Asked, rounds: usize) -> Result<Taken, Problems> {
    eprintln!("{rounds} pairs of approvals of {}", of.name());
    let mut taken = Taken::default();
    for turn in 0..rounds.div_ceil(APPROVALS) {
        for binary in Binary::order(turn) {
            let more: Samples = worker.ask(&Request::Approvals { of, binary, count: APPROVALS })?;
            taken[binary as usize].extend(&more);
        }
    }
    Ok(taken)
}

fn judge(report: &mut Report, label: &str, [this, other]: &Taken) {
    let Interval { ratio, low, high } = paired(this, other);
    let name = label.replace([' ', '-'], "_");
    for (figure, value) in [("ratio", ratio), ("low", low), ("pairs", crate::bench::worker::as_number(this.len()))] {
        report.figure(&format!("{name}_{figure}"), value);
    }
    report.judge(&format!("{name}_high"), &format!("{label}: upper end of the interval"), high, NO_SLOWER);
    let medians = [this, other].map(|samples| samples.median() / 1e3);
    report.row(
        label,
        &format!(
            "{ratio:>7.3}  [{low:.3}, {high:.3}]   {:.2} / {:.2} us, {} pairs",
            medians[0],
            medians[1],
            this.len()
        ),
    );
}
