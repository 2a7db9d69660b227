//! `cargo xtask stress`: many sandboxes in a row, many at once, and supervisors killed at any moment; afterwards nothing
//! may be left. Owns the order and the report; how runs are made is `runs`' and `orders`', what is compared is `traces`'. Called by
//! people and `.ci/run`.

mod ground;
mod instances;
mod orders;
mod runs;
mod traces;

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::account::{User, users};
use crate::problems::Problems;
use crate::runner;
use crate::shipped;
use crate::stress::ground::Ground;
use crate::stress::runs::{Kind, Tally};
use crate::stress::traces::Traces;
use crate::workspace::Workspace;

/// Failures and leaks that are told in words; of the rest, how many there are.
const MOST_TOLD: usize = 12;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to do: row (1000 one after the other), crowd (200 at once), kill (200 supervisors killed); else these three. Alone:
    /// egress (floods of one session's network), orders (200 sessions at once and 2,000 in a row by the client's library, 100
    /// clients killed; runs as the calling user)
    kinds: Vec<Kind>,
    /// How many sandboxes, instead of the usual number
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Print one JSON object as the last line: figures, targets, pass
    #[arg(long)]
    json: bool,
    /// Run as this user (needs root); else as the caller, and for root as `cofferdam-test` as well if it exists
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Use this binary instead of building the shipped one
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Where the random moments of a kill start from, to have the same ones again
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(args: &Args) -> Result<String, Problems> {
    let workspace = Workspace::load()?;
    if args.kinds == [Kind::Egress] {
        let flags = args.json.then(|| "--json".to_owned());
        let arguments: Vec<String> = std::iter::once("storm".to_owned()).chain(flags).collect();
        return runner::run(&workspace, &users(args.user.as_deref())?, &arguments);
    }
    if args.kinds.len() > 1 && args.kinds.iter().any(|kind| !Kind::ALL.contains(kind)) {
        return Err(Problems::one("`egress` and `orders` cannot be combined with other kinds".to_owned()));
    }
    let is_shaped = args.count.is_some() || args.json || args.user.is_some() || args.seed.is_some();
    if args.kinds == [Kind::Orders] && is_shaped {
        return Err(Problems::one("`orders` takes no option but --binary".to_owned()));
    }
    if args.binary.is_none() {
        shipped::build()?;
    }
    let command = || shipped::path(&workspace, shipped::COMMAND);
    let binary = args.binary.clone().unwrap_or_else(command);
    if args.kinds == [Kind::Orders] {
        return orders::run(&binary);
    }
    // A process that loses its parent becomes our child: so everything that comes from a run can be found by descent.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|errno| Problems::one(format!("cannot adopt orphans: {errno}")))?;
    let kinds = if args.kinds.is_empty() { Kind::ALL.to_vec() } else { args.kinds.clone() };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = args.seed.unwrap_or_else(|| now.as_secs() ^ u64::from(now.subsec_nanos()));

    let mut problems = Problems::default();
    let mut figures = serde_json::Map::new();
    for user in users(args.user.as_deref())? {
        for kind in &kinds {
            let result = one(*kind, args, &user, &binary, seed)?;
            println!("{} as {}: {result}", kind.name(), user.name);
            for problem in result.told() {
                problems.add(format!("{} as {}: {problem}", kind.name(), user.name));
            }
            figures.insert(format!("{}_as_{}", kind.name(), user.name), result.figures());
        }
    }
    let summary = problems.or(String::new());
    if args.json {
        let pass = summary.is_ok();
        println!("{}", json!({"figures": figures, "targets": {"failures": 0, "leaks": 0}, "seed": seed, "pass": pass}));
    }
    summary
}

/// What a kind of stress came to.
struct Outcome {
    tally: Tally,
    leaks: Vec<String>,
    seconds: f64,
}

fn one(kind: Kind, args: &Args, user: &User, binary: &Path, seed: u64) -> Result<Outcome, Problems> {
    let count = args.count.map_or(kind.usual_count(), |count| count as usize);
    let ground = Ground::set_up(user, binary)?;
    let before = Traces::look(&ground);
    let started = Instant::now();
    let tally = runs::run(kind, &ground, count, seed)?;
    let seconds = started.elapsed().as_secs_f64();
    let mut leaks = before.left(&ground);
    leaks.extend(log_problems(&ground));
    ground.clear()?;
    Ok(Outcome { tally, leaks, seconds })
}

/// A process that is killed while it writes leaves a log that the next writer closes off, and that verifies.
fn log_problems(ground: &Ground) -> Option<String> {
    match cofferdam_audit::verify(&ground.state()) {
        Ok(report) if report.is_whole() && report.records > 0 => None,
        Ok(report) => Some(format!("the audit log is not whole: {:?}", report.problems)),
        Err(errno) => Some(format!("the audit log cannot be read: {errno}")),
    }
}

impl Outcome {
    fn told(&self) -> Vec<String> {
        let all = self.tally.failures.iter().chain(&self.leaks);
        let more = (self.tally.failures.len() + self.leaks.len()).saturating_sub(MOST_TOLD);
        let more = (more > 0).then(|| format!("and {more} more"));
        all.take(MOST_TOLD).cloned().chain(more).collect()
    }

    fn figures(&self) -> Value {
        json!({
            "runs": self.tally.runs, "failures": self.tally.failures.len(), "leaks": self.leaks.len(),
            "late": self.tally.late, "seconds": self.seconds, "slowest_end_ms": self.tally.slowest_end.map(|took| took.as_secs_f64() * 1e3),
        })
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outcome { tally, leaks, seconds } = self;
        write!(f, "{} runs, {} failures, {} leaks", tally.runs, tally.failures.len(), leaks.len())?;
        write!(f, " ({seconds:.1} s")?;
        if let Some(took) = tally.slowest_end {
            write!(f, "; everybody gone at most {:.1} ms after a kill", took.as_secs_f64() * 1e3)?;
            write!(f, ", after more than a second {} times", tally.late)?;
        }
        write!(f, ")")
    }
}
