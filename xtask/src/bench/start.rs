//! `cargo xtask bench start`: the cold start of the shipped binary beside bare and bubblewrap. Owns the rounds and the
//! targets of the cold start; launches nothing itself. Called by `bench`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::bench::candidate::{ALL, Candidate};
use crate::bench::report::{Limit, Report, times};
use crate::bench::stage::{Stage, Worker};
use crate::bench::statistics::{Interval, Samples, paired, ratio};
use crate::bench::worker::Request;
use crate::problems::Problems;
use crate::workspace::{Workspace, read};

const MEDIAN_TO_BWRAP: Limit = Limit::AtMost(0.72);
const DYNAMIC_TO_BWRAP: Limit = Limit::AtMost(0.95);
const P95_TO_BWRAP: Limit = Limit::AtMost(1.0);
const GROWTH_MILLISECONDS: Limit = Limit::AtMost(1.5);
const RATE_TO_BWRAP: Limit = Limit::AtLeast(1.0);
const DYNAMIC_RATE_TO_BWRAP: Limit = Limit::AtLeast(0.8);

/// Processes of others on an ordinary machine.
const IDLE: usize = 400;
const EXTRA_MOUNTS: usize = 300;
/// Of a home of an ordinary size.
const HOME_NAMES: usize = 200;
const HOME_SECRETS: usize = 40;
const AT_ONCE: usize = 8;
/// Rounds of a worker before the other one has its turn.
const TURN: usize = 8;
const BREAKDOWN_RUNS: usize = 30;
const MILLISECOND: f64 = 1e6;

type ByCandidate = BTreeMap<Candidate, Samples>;

pub(crate) fn measure(stage: &Stage, rounds: usize) -> Result<Report, Problems> {
    let mut report = Report::new("start", rounds, stage.machine());
    let mut worker = stage.worker()?;
    // The first launches read the binaries from disk; they count for no figure.
    worker.ask::<ByCandidate>(&Request::Rounds { count: 8, from: 0 })?;

    eprintln!("bench start: {rounds} rounds of bare, bwrap, sandbox (static), dynamic");
    let alone: ByCandidate = worker.ask(&Request::Rounds { count: rounds, from: 0 })?;
    report_alone(&mut report, &alone);

    eprintln!("bench start: {rounds} rounds beside a live session and {IDLE} idle processes");
    worker.ask::<()>(&Request::Crowd { idle: IDLE })?;
    let crowded: ByCandidate = worker.ask(&Request::Rounds { count: rounds, from: 0 })?;
    worker.ask::<()>(&Request::Crowd { idle: 0 })?;
    report_crowded(&mut report, &crowded);

    eprintln!("bench start: {rounds} rounds at a terminal, as an operator types it");
    report_terminal(&mut report, &worker.ask(&Request::AtTerminal { count: rounds })?);

    let fewer = (rounds / 3).max(12);
    eprintln!("bench start: {fewer} rounds with and without {EXTRA_MOUNTS} more mounts");
    report_growth(&mut report, &with_and_without_mounts(stage, fewer)?);

    eprintln!("bench start: {fewer} rounds in a large project and home, and in empty ones");
    report_size(&mut report, &small_and_large(stage, fewer)?);

    let (blocks, launches) = (rounds.div_ceil(50).max(3), 100);
    eprintln!("bench start: {blocks} blocks of {launches} launches each, {AT_ONCE} at a time");
    report_rates(&mut report, &rates(&mut worker, blocks, launches)?);

    eprintln!("bench start: {BREAKDOWN_RUNS} runs of `sandbox run --timing`");
    for candidate in [Candidate::Sandbox, Candidate::Dynamic] {
        let runs: Vec<Vec<(String, f64)>> = worker.ask(&Request::Breakdown { candidate, runs: BREAKDOWN_RUNS })?;
        report_breakdown(&mut report, candidate, &runs);
    }
    Ok(report)
}

fn report_alone(report: &mut Report, alone: &ByCandidate) {
    let (sandbox, bwrap) = (&alone[&Candidate::Sandbox], &alone[&Candidate::Bwrap]);
    report.judge("sandbox_to_bwrap_median", "sandbox / bwrap, median", times(sandbox, bwrap), MEDIAN_TO_BWRAP);
    let p95 = ratio(sandbox.percentile(95), bwrap.percentile(95));
    report.judge("sandbox_to_bwrap_p95", "sandbox / bwrap, p95", p95, P95_TO_BWRAP);
    let dynamic = &alone[&Candidate::Dynamic];
    report.judge("dynamic_to_bwrap_median", "dynamic / bwrap, median", times(dynamic, bwrap), DYNAMIC_TO_BWRAP);
    let p95 = ratio(dynamic.percentile(95), bwrap.percentile(95));
    report.judge("dynamic_to_bwrap_p95", "dynamic / bwrap, p95", p95, P95_TO_BWRAP);
    report.figure("dynamic_to_sandbox_median", times(dynamic, sandbox));
    report.figure("sandbox_to_bare_median", times(sandbox, &alone[&Candidate::Bare]));
    report.section("/bin/true, from spawn to reaped");
    for candidate in ALL {
        report.samples(candidate.name(), candidate.name(), &alone[&candidate], "ms", MILLISECOND);
    }
    report.row("sandbox / bare", &format!("{:>9.3}", times(sandbox, &alone[&Candidate::Bare])));
    report.row("dynamic / sandbox", &format!("{:>9.3}", times(dynamic, sandbox)));
}

fn report_crowded(report: &mut Report, crowded: &ByCandidate) {
    let bwrap = &crowded[&Candidate::Bwrap];
    for (candidate, limit) in [(Candidate::Sandbox, MEDIAN_TO_BWRAP), (Candidate::Dynamic, DYNAMIC_TO_BWRAP)] {
        let name = candidate.name();
        let label = format!("{name} / bwrap, a session and {IDLE} processes");
        report.judge(&format!("crowded_{name}_to_bwrap_median"), &label, times(&crowded[&candidate], bwrap), limit);
    }
    report.section(&format!("the same beside a live session and {IDLE} idle processes"));
    for candidate in ALL {
        let (name, samples) = (candidate.name(), &crowded[&candidate]);
        report.samples(&format!("crowded_{name}"), name, samples, "ms", MILLISECOND);
    }
}

fn report_terminal(report: &mut Report, [bare, bwrap, sandbox]: &[Samples; 3]) {
    report.judge("terminal_to_bwrap_median", "at a terminal, default / bwrap", times(sandbox, bwrap), DYNAMIC_TO_BWRAP);
    report.figure("terminal_to_bare_median", times(sandbox, bare));
    report.section("at a terminal: `sandbox run -- /bin/true` (dynamic, its own terminal, egress), all behind setsid");
    for (name, samples) in [("bare", bare), ("bwrap", bwrap), ("sandbox", sandbox)] {
        report.samples(&format!("terminal_{name}"), name, samples, "ms", MILLISECOND);
    }
    let Interval { ratio, low, high } = paired(sandbox, bwrap);
    report.row("sandbox / bwrap, 95 % interval", &format!("{ratio:>9.3}   [{low:.3}, {high:.3}]"));
    report.row("sandbox / bare", &format!("{:>9.3}", times(sandbox, bare)));
}

/// The same launches in two mount namespaces of the same kind, turn by turn.
fn with_and_without_mounts(stage: &Stage, rounds: usize) -> Result<[ByCandidate; 2], Problems> {
    in_turns([stage.worker_with_mounts(0)?, stage.worker_with_mounts(EXTRA_MOUNTS)?], rounds)
}

/// The same launches in an empty project with an empty home, and in ones of an ordinary size, turn by turn.
fn small_and_large(stage: &Stage, rounds: usize) -> Result<[ByCandidate; 2], Problems> {
    let mut workers = [stage.worker_apart_in("small")?, stage.worker_apart_in("large")?];
    workers[1].ask::<()>(&Request::Prepare)?;
    let listed = read(&Workspace::load()?.root.join("profiles/secrets.toml"))?;
    let secrets = made_up_secrets(&listed).map_err(|e| Problems::one(format!("profiles/secrets.toml: {e}")))?;
    let others = HOME_NAMES - HOME_SECRETS;
    workers[1].ask::<()>(&Request::Furnish { secrets, others })?;
    in_turns(workers, rounds)
}

/// Files at the first names of the list that are fixed names in a home, every other one in a directory of that name.
fn made_up_secrets(listed: &str) -> Result<Vec<String>, String> {
    let listed: toml::Table = listed.parse().map_err(|e: toml::de::Error| e.to_string())?;
    let entries = listed.get("secret").and_then(toml::Value::as_array).ok_or("no list of secrets")?;
    let mut names: Vec<&str> = Vec::new();
    for name in entries.iter().filter_map(|entry| entry.get("path")?.as_str()?.strip_prefix("~/")) {
        let overlaps = |known: &&str| Path::new(known).starts_with(name) || Path::new(name).starts_with(known);
        if names.len() < HOME_SECRETS && !name.contains(['*', '?', '[', '$']) && !names.iter().any(overlaps) {
            names.push(name);
        }
    }
    if names.len() < HOME_SECRETS {
        return Err(format!("only {} names for a home", names.len()));
    }
    let made =
        |(index, name): (usize, &&str)| if index % 2 == 0 { format!("{name}/inside") } else { (*name).to_owned() };
    Ok(names.iter().enumerate().map(made).collect())
}

fn in_turns(mut workers: [Worker; 2], rounds: usize) -> Result<[ByCandidate; 2], Problems> {
    let mut taken = [ByCandidate::new(), ByCandidate::new()];
    for from in (0..rounds).step_by(TURN) {
        for (worker, taken) in workers.iter_mut().zip(&mut taken) {
            let more: ByCandidate = worker.ask(&Request::Rounds { count: TURN.min(rounds - from), from })?;
            for (candidate, samples) in more {
                taken.entry(candidate).or_default().extend(&samples);
            }
        }
    }
    Ok(taken)
}

fn report_growth(report: &mut Report, [without, with]: &[ByCandidate; 2]) {
    let growth = |c: Candidate| (with[&c].median() - without[&c].median()) / MILLISECOND;
    let label = format!("growth with {EXTRA_MOUNTS} more mounts, ms");
    report.judge("growth_sandbox_ms", &label, growth(Candidate::Sandbox), GROWTH_MILLISECONDS);
    report.section(&format!("growth of the median with {EXTRA_MOUNTS} more mounts"));
    for candidate in ALL {
        report.figure(&format!("growth_{}_ms", candidate.name()), growth(candidate));
        let medians = [without, with].map(|taken| taken[&candidate].median() / MILLISECOND);
        let value = format!("{:>9.3} ms   from {:.3} to {:.3} ms", growth(candidate), medians[0], medians[1]);
        report.row(candidate.name(), &value);
    }
}

fn report_size(report: &mut Report, [small, large]: &[ByCandidate; 2]) {
    report.section(&format!(
        "growth of the median with 20,000 files, {HOME_NAMES} names at home, {HOME_SECRETS} secrets"
    ));
    for candidate in [Candidate::Sandbox, Candidate::Dynamic] {
        let medians = [small, large].map(|taken| taken[&candidate].median() / MILLISECOND);
        let growth = medians[1] - medians[0];
        let label = format!("large project and home, {}, ms", candidate.name());
        report.judge(&format!("size_{}_ms", candidate.name()), &label, growth, GROWTH_MILLISECONDS);
        let value = format!("{growth:>9.3} ms   from {:.3} to {:.3} ms", medians[0], medians[1]);
        report.row(candidate.name(), &value);
    }
}

fn rates(worker: &mut Worker, blocks: usize, launches: usize) -> Result<ByCandidate, Problems> {
    let mut taken = ByCandidate::new();
    for block in 0..blocks {
        for candidate in Candidate::order(block) {
            let rate = worker.ask(&Request::Flight { candidate, launches, at_once: AT_ONCE })?;
            taken.entry(candidate).or_default().push(rate);
        }
    }
    Ok(taken)
}

fn report_rates(report: &mut Report, rates: &ByCandidate) {
    let ratio = times(&rates[&Candidate::Sandbox], &rates[&Candidate::Bwrap]);
    let label = format!("sandbox / bwrap, launches/s, {AT_ONCE} in flight");
    report.judge("rate_sandbox_to_bwrap", &label, ratio, RATE_TO_BWRAP);
    let ratio = times(&rates[&Candidate::Dynamic], &rates[&Candidate::Bwrap]);
    let label = format!("dynamic / bwrap, launches/s, {AT_ONCE} in flight");
    report.judge("rate_dynamic_to_bwrap", &label, ratio, DYNAMIC_RATE_TO_BWRAP);
    report.section(&format!("launches per second, {AT_ONCE} in flight"));
    for candidate in ALL {
        report.figure(&format!("{}_launches_per_second", candidate.name()), rates[&candidate].median());
        report.row(candidate.name(), &format!("{:>9.0}", rates[&candidate].median()));
    }
}

/// Where the time goes, so that a developer who misses a target knows what to look at.
fn report_breakdown(report: &mut Report, candidate: Candidate, runs: &[Vec<(String, f64)>]) {
    let name = candidate.name();
    report.section(&format!("where the time of {name} goes (medians; parent and child overlap)"));
    let prefix = if candidate == Candidate::Sandbox { "step".to_owned() } else { format!("step_{name}") };
    let mut groups: Vec<(&str, Samples)> = Vec::new();
    for run in runs {
        for (group, microseconds) in grouped(run) {
            match groups.iter_mut().find(|(known, _)| *known == group) {
                Some((_, samples)) => samples.push(microseconds),
                None => groups.push((group, [microseconds].into_iter().collect())),
            }
        }
    }
    for (group, samples) in &groups {
        report.figure(&format!("{prefix}_{}_us", group.replace(|c: char| !c.is_alphanumeric(), "_")), samples.median());
        report.row(group, &format!("{:>9.1} us", samples.median()));
    }
    let outside: Samples = runs.iter().filter_map(|run| Some(of(run, "wall")? - of(run, "total")?)).collect();
    report.figure(&format!("{prefix}_outside_us"), outside.median());
    report.row("outside: exec, policy, survey, plan, exit", &format!("{:>9.1} us", outside.median()));
}

fn of(run: &[(String, f64)], name: &str) -> Option<f64> {
    run.iter().find(|(step, _)| step == name).map(|(_, microseconds)| *microseconds)
}

/// One run's steps by group, in the order in which the groups first appear.
fn grouped(run: &[(String, f64)]) -> Vec<(&str, f64)> {
    let mut groups: Vec<(&str, f64)> = Vec::new();
    for (step, microseconds) in run {
        let group = group_of(step);
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, sum)) => *sum += microseconds,
            None => groups.push((group, *microseconds)),
        }
    }
    groups
}

fn group_of(step: &str) -> &str {
    let Some((_, path)) = step.split_once(" /") else { return step };
    if !["mount", "link", "directory"].iter().any(|word| step.starts_with(word)) {
        return step;
    }
    match path.split('/').next().unwrap_or_default() {
        "proc" => "mounts of /proc",
        "sys" => "mounts of /sys",
        "dev" => "mounts of /dev",
        "tmp" | "run" => "private file systems",
        _ if path == "var/tmp" => "private file systems",
        _ => "masks, grants and stand-ins",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_made_up_home_has_files_and_directories_of_the_shipped_list() {
        let listed = include_str!("../../../profiles/secrets.toml");
        let made = made_up_secrets(listed).expect("enough names");
        assert_eq!(made.len(), HOME_SECRETS);
        assert_eq!(made[0], ".ssh/inside");
        assert!(made.iter().any(|name| !name.ends_with("/inside")));
        assert!(made_up_secrets("secret = []").is_err());
    }

    #[test]
    fn steps_of_one_kind_are_added_up() {
        let run: Vec<(String, f64)> = [
            ("clone3 (until the child runs)", 500.0),
            ("mount /proc", 20.0),
            ("mount /proc/sys", 10.0),
            ("link /dev/fd", 5.0),
            ("mount /var/tmp", 8.0),
            ("mount /etc/shadow", 7.0),
            ("mount /dev", 10.0),
            ("pivot_root", 60.0),
        ]
        .map(|(step, time)| (step.to_owned(), time))
        .to_vec();
        let expected = [
            ("clone3 (until the child runs)", 500.0),
            ("mounts of /proc", 30.0),
            ("mounts of /dev", 15.0),
            ("private file systems", 8.0),
            ("masks, grants and stand-ins", 7.0),
            ("pivot_root", 60.0),
        ];
        assert_eq!(grouped(&run), expected);
    }
}
