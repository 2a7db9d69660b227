//! `cargo xtask bench audit`: what a record costs to append, and how long a long chain takes to verify. Owns making the
//! chain, in a directory that is removed afterwards; needs no sandbox. Called by `bench`, with optimisations through
//! `bench-worker`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use cofferdam_audit::{Actor, Decision, Event, Journal, Record, Severity, verify};
use serde_json::json;

use crate::bench::report::{Limit, Report};
use crate::problems::Problems;
use crate::workspace::{Workspace, cargo};

const MOST_SECONDS: f64 = 5.0;
const MOST_MICROSECONDS: f64 = 30.0;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// How long the chain is
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) records: u64,
    /// Where to make it (about 500 bytes a record)
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) at: Option<PathBuf>,
    /// Fail when a target is missed
    #[arg(long)]
    pub(crate) check: bool,
}

/// Builds this program with optimisations and lets it measure.
pub(crate) fn run(args: &Args) -> Result<String, Problems> {
    cargo(&["build", "--profile", "fast", "--package", "xtask"])?;
    let worker = Workspace::load()?.target.join("fast/xtask");
    let at = args.at.clone().unwrap_or_else(std::env::temp_dir);
    let mut command = std::process::Command::new(worker);
    command.args(["bench-worker", "audit", "--records", &args.records.to_string()]).arg(at);
    let output = command.output().map_err(|e| Problems::one(format!("cannot measure: {e}")))?;
    if !output.status.success() {
        return Err(Problems::one(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let measured: Measured = serde_json::from_slice(&output.stdout)
        .map_err(|e| Problems::one(format!("the worker's figures are no JSON: {e}")))?;
    let report = measured.report(args.records)?;
    let text = if args.json { report.json() } else { report.table() };
    if args.check && !report.passes() {
        println!("{text}");
        let mut problems = Problems::default();
        report.missed().into_iter().for_each(|missed| problems.add(missed));
        return problems.or("");
    }
    Ok(text)
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Measured {
    append_microseconds: f64,
    open_microseconds: f64,
    bytes: u64,
    verify_seconds: f64,
    /// Of all threads together: what a machine with other things to do would take without them.
    verify_cpu_seconds: f64,
    is_whole: bool,
}

impl Measured {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn report(&self, records: u64) -> Result<Report, Problems> {
        if !self.is_whole {
            return Err(Problems::one("the chain that was just written does not verify".to_owned()));
        }
        let mut report = Report::new("audit", usize::try_from(records).unwrap_or(usize::MAX), json!({}));
        let seconds = self.verify_seconds;
        report.judge("verify_seconds", &format!("verify {records} records, s"), seconds, Limit::AtMost(MOST_SECONDS));
        let label = "append one record, us (mean)";
        report.judge("append_microseconds", label, self.append_microseconds, Limit::AtMost(MOST_MICROSECONDS));
        report.figure("verify_cpu_seconds", self.verify_cpu_seconds);
        report.row("CPU time of the verification, s", &format!("{:>9.3}", self.verify_cpu_seconds));
        report.row("bytes of a record", &format!("{:>9.0}", self.bytes as f64 / records as f64));
        report.figure("appends_per_second", 1e6 / self.append_microseconds);
        report.figure("open_and_first_append_microseconds", self.open_microseconds);
        report.figure("bytes_per_record", self.bytes as f64 / records as f64);
        Ok(report)
    }
}

/// Writes and verifies a chain below `at`.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub(crate) fn measure(at: &Path, records: u64) -> Result<Measured, Problems> {
    let state = at.join(format!("cofferdam-bench-audit-{}", std::process::id()));
    let failed = |what: &str, error: &dyn std::fmt::Display| Problems::one(format!("cannot {what}: {error}"));
    let began = Instant::now();
    let mut journal = Journal::open(&state).map_err(|e| failed("open", &e))?;
    journal.append(&record(0)).map_err(|e| failed("append", &e))?;
    let opened = began.elapsed();
    let began = Instant::now();
    for number in 1..records {
        journal.append(&record(number)).map_err(|e| failed("append", &e))?;
    }
    let appended = began.elapsed();
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let report = verify(&state).map_err(|e| failed("verify", &e))?;
    let (verified, cpu) = (began.elapsed(), cpu_seconds() - cpu);
    let files = cofferdam_audit::directory(&state).read_dir().into_iter().flatten().flatten();
    let bytes = files.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum();
    std::fs::remove_dir_all(&state).map_err(|e| failed("remove", &e))?;
    Ok(Measured {
        append_microseconds: appended.as_secs_f64() * 1e6 / (records.max(2) - 1) as f64,
        open_microseconds: opened.as_secs_f64() * 1e6,
        bytes,
        verify_seconds: verified.as_secs_f64(),
        verify_cpu_seconds: cpu,
        is_whole: report.is_whole() && report.records >= records,
    })
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn cpu_seconds() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

fn record(number: u64) -> Record<'static> {
    let details = json!({ "pid": number, "syscall": "keyctl", "number": 250, "arguments": [number, 0, 0, 0, 0, 0] });
    Record {
        actor: Actor::Workload,
        severity: Severity::Warning,
        decision: Some(Decision::Deny),
        ..Record::new(Event::SyscallBlocked, "019a86f3c00-1f3a", details)
    }
}
