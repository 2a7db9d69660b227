//! `cargo xtask bench gate`: what dynamic mode costs a program. An approved tree bare, in static mode and under both
//! triggers, and the time from an approval to the return of the call that waited for it. Owns the rounds and the targets.

use std::collections::BTreeMap;

use crate::bench::approvals::Asked;
use crate::bench::candidate::{Binary, Candidate};
use crate::bench::inside::Workload;
use crate::bench::report::{Limit, Report};
use crate::bench::stage::{Stage, Worker};
use crate::bench::statistics::{Samples, ratio};
use crate::bench::worker::Request;
use crate::problems::Problems;

/// Bare time over time inside, for single operations.
const SPEED: Limit = Limit::AtLeast(0.93);
/// Time inside over bare time, for tools.
const WALL: Limit = Limit::AtMost(1.08);
const APPROVAL_MILLISECONDS: Limit = Limit::AtMost(1.0);
/// By one session of each kind.
const APPROVALS: usize = 200;
/// Loops are short, and a shared machine slows whole rounds: they are timed more often than tools.
const LOOPS: usize = 5;
const MILLISECOND: f64 = 1e6;

pub(crate) const WORKLOADS: [Workload; 5] =
    [Workload::OpenClose, Workload::Stat, Workload::Grep, Workload::GitStatus, Workload::Gcc];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Column {
    Bare,
    /// Without a gate: what it costs is the filter and the mounts.
    Static,
    /// Dynamic mode on a FUSE root; the approved tree is a native bind on it.
    Fuse,
    /// Dynamic mode by reported calls.
    Calls,
}

const COLUMNS: [Column; 4] = [Column::Bare, Column::Static, Column::Fuse, Column::Calls];
const GATED: [Column; 2] = [Column::Fuse, Column::Calls];

impl Column {
    fn name(self) -> &'static str {
        match self {
            Column::Bare => "bare",
            Column::Static => "static",
            Column::Fuse => "fuse",
            Column::Calls => "calls",
        }
    }

    fn candidate(self) -> Candidate {
        match self {
            Column::Bare => Candidate::Bare,
            Column::Static => Candidate::Sandbox,
            Column::Fuse | Column::Calls => Candidate::Dynamic,
        }
    }
}

/// The worker that sees /dev/fuse, and the one that does not.
pub(crate) struct Workers {
    pub(crate) fuse: Worker,
    pub(crate) calls: Worker,
}

impl Workers {
    pub(crate) fn start(stage: &Stage) -> Result<Self, Problems> {
        let mut workers = Workers { fuse: stage.worker()?, calls: stage.worker_without_fuse()? };
        for (column, wanted) in [(Column::Fuse, true), (Column::Calls, false)] {
            if workers.of(column).ask::<bool>(&Request::HasFuse)? != wanted {
                let state = if wanted { "cannot be opened by the measuring user" } else { "cannot be hidden" };
                return Err(Problems::one(format!("/dev/fuse {state}: the two triggers cannot be told apart")));
            }
        }
        Ok(workers)
    }

    fn of(&mut self, column: Column) -> &mut Worker {
        if column == Column::Calls { &mut self.calls } else { &mut self.fuse }
    }
}

type Taken = BTreeMap<(Workload, Column), Samples>;

pub(crate) fn measure(stage: &Stage, rounds: usize) -> Result<Report, Problems> {
    let mut report = Report::new("gate", rounds, stage.machine());
    let mut workers = Workers::start(stage)?;
    eprintln!("bench gate: making files");
    workers.fuse.ask::<()>(&Request::Prepare)?;
    let taken = approved_tree(&mut workers, rounds)?;
    report_fuse(&mut report, &taken);
    let approvals = approvals(&mut workers)?;
    for (column, of, samples) in &approvals {
        let name = format!("approval_{}_{}_median_ms", of.name(), column.name());
        let label = format!("approval of {}, {}: median, ms", of.name(), column.name());
        report.judge(&name, &label, samples.median() / MILLISECOND, APPROVAL_MILLISECONDS);
    }
    report_columns(&mut report, &taken);
    report.section(&format!("from the answer to the return of the call, {APPROVALS} approvals each"));
    for (column, of, samples) in &approvals {
        let name = format!("approvals_{}_{}", of.name(), column.name());
        report.samples(&name, &format!("{}, {}", of.name(), column.name()), samples, "ms", MILLISECOND);
    }
    Ok(report)
}

fn approved_tree(workers: &mut Workers, rounds: usize) -> Result<Taken, Problems> {
    let mut taken = Taken::new();
    for round in 0..=rounds {
        eprintln!("bench gate: round {round} of {rounds}");
        for workload in WORKLOADS {
            let times = if workload.is_tool() { 1 } else { LOOPS };
            for turn in 0..COLUMNS.len() * times {
                let column = COLUMNS[(turn + round) % COLUMNS.len()];
                // Far from any target, and slow: once is enough.
                if column == Column::Calls && turn >= COLUMNS.len() {
                    continue;
                }
                let request = Request::Time { candidate: column.candidate(), binary: Binary::This, workload };
                let took = workers.of(column).ask(&request)?;
                // Round 0 fills the caches.
                if round > 0 {
                    taken.entry((workload, column)).or_default().push(took);
                }
            }
        }
    }
    Ok(taken)
}

/// Loops by their best round, tools by their median, as in `bench inside`.
fn against_bare(taken: &Taken, workload: Workload, column: Column) -> f64 {
    let (bare, inside) = (&taken[&(workload, Column::Bare)], &taken[&(workload, column)]);
    if workload.is_tool() { ratio(inside.median(), bare.median()) } else { ratio(bare.best(), inside.best()) }
}

fn report_fuse(report: &mut Report, taken: &Taken) {
    for workload in WORKLOADS {
        let (what, limit) =
            if workload.is_tool() { ("time inside / bare", WALL) } else { ("speed inside / bare", SPEED) };
        let name = format!("{}_fuse", workload.name().replace('-', "_"));
        let label = format!("{}: {what}", workload.label());
        report.judge(&name, &label, against_bare(taken, workload, Column::Fuse), limit);
    }
}

fn report_columns(report: &mut Report, taken: &Taken) {
    report
        .section("against bare: static (the floor: filter and mounts), fuse (root that asks), calls (second trigger)");
    for workload in WORKLOADS {
        let row = [Column::Static, Column::Fuse, Column::Calls].map(|column| {
            let value = against_bare(taken, workload, column);
            report.figure(&format!("{}_{}", workload.name().replace('-', "_"), column.name()), value);
            format!("{value:>9.3}")
        });
        let what = if workload.is_tool() { "time" } else { "speed" };
        report.row(&format!("{}: {what}", workload.label()), &row.concat());
    }
    report.section("medians");
    for workload in WORKLOADS {
        let (unit, scale) = if workload.is_tool() { ("ms", MILLISECOND) } else { ("us", 1e3) };
        for column in COLUMNS {
            let name = format!("{}_{}", workload.name().replace('-', "_"), column.name());
            let label = format!("{}, {}", workload.label(), column.name());
            report.samples(&name, &label, &taken[&(workload, column)], unit, scale);
        }
    }
}

/// Sessions take turns, as everything does.
fn approvals(workers: &mut Workers) -> Result<Vec<(Column, Asked, Samples)>, Problems> {
    let mut taken = Vec::new();
    for of in [Asked::Files, Asked::Directories] {
        for column in GATED {
            eprintln!("bench gate: {APPROVALS} approvals of {}, {}", of.name(), column.name());
            taken.push((
                column,
                of,
                workers.of(column).ask(&Request::Approvals { of, binary: Binary::This, count: APPROVALS })?,
            ));
        }
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_speeds_and_tools_are_times() {
        let mut taken = Taken::new();
        for workload in [Workload::Stat, Workload::Grep] {
            taken.insert((workload, Column::Bare), [2.0, 1.0, 9.0].into_iter().collect());
            taken.insert((workload, Column::Fuse), [4.0, 2.0, 3.0].into_iter().collect());
        }
        assert!((against_bare(&taken, Workload::Stat, Column::Fuse) - 0.5).abs() < 1e-9);
        assert!((against_bare(&taken, Workload::Grep, Column::Fuse) - 1.5).abs() < 1e-9);
    }
}
