//! `cargo xtask journeys`: what a developer does in the first hour, typed at a terminal in fresh homes, and what it asks of them. Owns
//! the options and the order; the walks, their targets and other sandboxes are below. Called by people.

mod agents;
mod home;
mod jobs;
mod others;
mod plain;
mod report;
mod run;
mod walk;

use std::path::PathBuf;

use serde_json::json;

use crate::journeys::agents::{AGENTS, Agent};
use crate::journeys::home::{Ground, Home};
use crate::journeys::jobs::{JOBS, Job};
use crate::journeys::others::Other;
use crate::journeys::report::Report;
use crate::journeys::walk::Manner;
use crate::problems::Problems;
use crate::shipped;
use crate::workspace::{Workspace, read};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Walk these alone (npm, cargo, go, pip, cmake, java, claude, codex, gemini, opencode, aider)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Compare with these alone; `none` compares with nothing
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum)]
    against: Vec<Other>,
    /// The key that answers questions, where it is offered; else it is `s`
    #[arg(long, value_name = "KEY", default_value = "p")]
    answer: char,
    /// Walk as this user (needs root); as root, `cofferdam-test` if it exists
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Walk with this binary instead of building the shipped one
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Build nothing: use what an earlier run built
    #[arg(long)]
    no_build: bool,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<String, Problems> {
    if !args.no_build && args.binary.is_none() {
        shipped::build()?;
    }
    let sandbox = args.binary.clone().unwrap_or_else(|| shipped::path(workspace, shipped::COMMAND));
    let ground = Ground::set_up(args.user.as_deref(), &sandbox)?;
    let mut report = Report { machine: machine(&ground), ..Report::default() };
    let (jobs, agents) = chosen(&args.only)?;
    let manner = Manner { answer: args.answer };
    let others = if jobs.is_empty() { Vec::new() } else { others(&ground, &args.against, &mut report)? };
    for job in jobs {
        let programs = job.programs.iter().chain(job.needs_rust.then_some(&"cargo"));
        if let Some(reason) = missing(&walk::prepared(&ground, job)?, programs) {
            report.skipped.push(format!("{}: {reason}", job.name));
            continue;
        }
        match walk::walk(&ground, job, manner) {
            Ok(rows) => report.rows.extend(rows),
            Err(problems) => {
                report.skipped.push(format!("{}: {}", job.name, problems.to_string().trim()));
                continue;
            }
        }
        for other in &others {
            match other.walk(&ground, job) {
                Ok(rows) => report.compared.extend(rows),
                Err(problems) => report.skipped.push(format!("{}: {}", job.name, problems.to_string().trim())),
            }
        }
    }
    for agent in agents {
        let found = match missing(&ground.home()?, [agent.name, "git"].iter()) {
            Some(reason) => Err(Problems::one(reason)),
            None => agents::walk(&ground, agent, manner),
        };
        match found {
            Ok(row) => report.rows.push(row),
            Err(problems) => report.skipped.push(format!("{}: {}", agent.name, problems.to_string().trim())),
        }
    }
    drop(ground);
    println!("{}", if args.json { report.json() } else { report.table() });
    let mut problems = Problems::default();
    report.all_missed().into_iter().for_each(|missed| problems.add(missed));
    if report.rows.is_empty() {
        problems.add("nothing was walked");
    }
    problems.or("")
}

type Chosen = (Vec<&'static Job>, Vec<&'static Agent>);

fn chosen(only: &[String]) -> Result<Chosen, Problems> {
    let names: Vec<&str> = JOBS.iter().map(|job| job.name).chain(AGENTS.iter().map(|agent| agent.name)).collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(Problems::one(format!("there is no journey `{unknown}`: {}", names.join(", "))));
    }
    let is_chosen = |name: &str| only.is_empty() || only.iter().any(|one| one == name);
    let jobs = JOBS.iter().filter(|job| is_chosen(job.name)).collect();
    Ok((jobs, AGENTS.iter().filter(|agent| is_chosen(agent.name)).collect()))
}

/// Which of the others there are.
fn others(ground: &Ground, named: &[Other], report: &mut Report) -> Result<Vec<Other>, Problems> {
    let wanted = if named.is_empty() { Other::ALL.to_vec() } else { named.to_vec() };
    let mut there = Vec::new();
    for other in wanted.into_iter().filter(|other| *other != Other::None) {
        match other.missing(ground)? {
            Some(missing) => report.skipped.push(missing),
            None => there.push(other),
        }
    }
    Ok(there)
}

fn missing<'a>(home: &Home<'_>, programs: impl Iterator<Item = &'a &'a str>) -> Option<String> {
    let mut programs = programs;
    let absent = programs.find(|program| home.outside(&format!("command -v {program}")).is_err());
    absent.map(|program| format!("`{program}` is not installed"))
}

/// Facts that explain a figure.
fn machine(ground: &Ground) -> serde_json::Value {
    let load = read(std::path::Path::new("/proc/loadavg")).unwrap_or_default();
    json!({
        "user": ground.user.name,
        "kernel": rustix::system::uname().release().to_string_lossy(),
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "load": load.split(' ').next(),
    })
}
