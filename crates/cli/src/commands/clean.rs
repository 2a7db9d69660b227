//! `sandbox clean`: what Cofferdam left for this user, and removing what is of no more use, or all of it. Owns the questions and the
//! order of steps; what is of use is `found`'s to say, leaving for good is `leave`'s. Nothing is removed that is a link, another
//! user's, or in use.

mod found;
mod leave;
mod trees;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cofferdam_audit::prune;
use cofferdam_host::HomeError;
use cofferdam_host::policy_files::approvals::Approvals;
use cofferdam_host::policy_files::lock::Lock;
use cofferdam_supervisor::finish_killed;
use cofferdam_workspace::transaction;
use serde_json::json;
use thiserror::Error;

use crate::args::clean::CleanArgs;
use crate::commands::clean::found::{Fate, Item, Way, look};
use crate::confirm::is_confirmed;
use crate::environment::{has_terminal, own_state};
use crate::render::exit::{NOTHING, OUR_FAILURE};
use crate::render::output::{bytes, escaped, print, print_json, say};

/// Why nothing was cleaned.
#[derive(Debug, Error)]
pub(crate) enum CleanError {
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error("`{}` is not cleaned", path.display())]
    State {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("sessions still run: {}", sessions.join(", "))]
    Runs { sessions: Vec<String> },
    #[error("changes of {} sessions wait: {}", sessions.len(), sessions.join(", "))]
    Waits { sessions: Vec<String> },
}

pub(crate) fn clean(args: &CleanArgs) -> Result<ExitCode, CleanError> {
    let state = own_state()?;
    let there = trees::own(&state).map_err(|source| CleanError::State { path: state.clone(), source })?.is_some();
    if args.all {
        return leave::leave(&state, args);
    }
    if there && !args.dry_run {
        // As the next session would: what was work of a killed one waits afterwards.
        finish_killed(&state);
    }
    let items = if there { look(&state) } else { Vec::new() };
    let goes = |item: &&Item| item.fate == Fate::Goes || (args.transactions && item.fate == Fate::Work);
    let chosen: Vec<&Item> = items.iter().filter(goes).collect();
    if !args.json {
        print(&table(&state, &items, args.transactions));
    }
    let agreed = !chosen.is_empty() && !args.dry_run && (args.yes || (can_ask(args) && is_agreed(&chosen)));
    let failures = if agreed { remove(&state, &chosen) } else { Vec::new() };
    if args.json {
        let listed = json!({ "version": 1, "state": state, "items": items, "removed": agreed, "failures": failures });
        print_json(&listed);
    } else if agreed {
        let removed = chosen.len() - failures.len();
        print(&format!("removed {removed} of {}\n", chosen.len()));
    } else if !chosen.is_empty() && !can_ask(args) {
        say!("sandbox: nothing was removed; `sandbox clean --yes` removes what goes");
    }
    for failure in failures.iter().filter(|_| !args.json) {
        say!("sandbox: {}", escaped(failure));
    }
    Ok(match (failures.is_empty(), agreed || chosen.is_empty()) {
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(NOTHING),
        (false, _) => ExitCode::from(OUR_FAILURE),
    })
}

fn can_ask(args: &CleanArgs) -> bool {
    has_terminal() && !args.json && !args.dry_run
}

fn is_agreed(chosen: &[&Item]) -> bool {
    let work = chosen.iter().filter(|item| item.fate == Fate::Work).count();
    // What was never committed is asked about by itself.
    let drops = work == 0 || is_confirmed(&format!("drop the uncommitted changes of these {work} for good?"));
    drops && is_confirmed("remove what goes?")
}

fn table(state: &Path, items: &[Item], with_work: bool) -> String {
    let mut out = format!("in {}\n", escaped(&state.display().to_string()));
    if items.is_empty() {
        out.push_str("nothing is there\n");
    }
    for item in items {
        let (word, why) = match &item.fate {
            Fate::Goes => ("goes", String::new()),
            Fate::Work if with_work => ("GOES", " (not committed)".to_owned()),
            Fate::Work => ("stays", " (not committed: `--transactions` drops it)".to_owned()),
            Fate::Stays(why) => ("stays", format!(" ({why})")),
        };
        let what = escaped(&item.what);
        writeln!(out, "  {word:<5} {:>10}  {}: {what}{why}", bytes(item.bytes), item.kind).unwrap_or_default();
    }
    out
}

/// Each by itself: what cannot be removed keeps nothing else. What went wrong, in words.
fn remove(state: &Path, chosen: &[&Item]) -> Vec<String> {
    let mut failures = Vec::new();
    for item in chosen {
        let done = match &item.way {
            Way::RollBack => transaction::roll_back(&item.path).map_err(|error| error.to_string()),
            Way::Prune => transaction::prune(&item.path).map(drop).map_err(|error| error.to_string()),
            Way::Tree => trees::remove(&item.path).map_err(|error| error.to_string()),
            Way::File => std::fs::remove_file(&item.path).map_err(|error| error.to_string()),
            Way::Finish if item.path.exists() => Err("could not be finished yet: try again".to_owned()),
            Way::Finish | Way::Approval => Ok(()),
            Way::Audit(keep) => prune::prune(state, keep, 0).map(drop).map_err(|error| error.to_string()),
        };
        failures.extend(done.err().map(|why| format!("{}: {why}", item.path.display())));
    }
    let gone: BTreeSet<&Path> =
        chosen.iter().filter(|item| matches!(item.way, Way::Approval)).map(|item| item.path.as_path()).collect();
    if !gone.is_empty() {
        failures.extend(forget(state, &gone).err());
    }
    failures
}

fn forget(state: &Path, gone: &BTreeSet<&Path>) -> Result<(), String> {
    let _lock = Lock::of_user(state).map_err(|error| error.to_string())?;
    let mut approvals = Approvals::load(state).map_err(|error| error.to_string())?;
    for file in gone {
        approvals.revoke(file);
    }
    approvals.save(state).map_err(|error| error.to_string())
}
