//! `sandbox audit prune`: removes the oldest records. Owns what is asked and told; the cut is the audit crate's, which records have to
//! stay `supervisor`'s. Called by `commands::audit`; `sandbox clean` says what this would do.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cofferdam_audit::prune::{self, Keep, Pruned};
use cofferdam_audit::{JournalError, Stamp, verify};
use cofferdam_host::flags::FlagError;
use cofferdam_host::policy_files::text::ReadError;
use cofferdam_policy::{parse_size, parse_time};
use cofferdam_supervisor::{Spared, oldest_spared};
use cofferdam_wire::session::short;
use serde_json::json;
use thiserror::Error;

use crate::args::audit::PruneArgs;
use crate::confirm::is_confirmed;
use crate::environment::has_terminal;
use crate::render::exit::NOT_SO;
use crate::render::output::{bytes, print, print_json, say};

#[derive(Debug, Error)]
pub(crate) enum PruneError {
    #[error(transparent)]
    Flag(#[from] FlagError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("cannot prune the audit log")]
    Journal(#[from] JournalError),
    #[error("the audit log in `{}` is not whole ({problems} problems), and what shows that may go", directory.display())]
    NotWhole { directory: PathBuf, problems: usize },
    #[error("this removes records for good, and there is no terminal to ask at")]
    Unasked,
}

pub(crate) fn prune(state: &Path, args: &PruneArgs) -> Result<ExitCode, PruneError> {
    let directory = cofferdam_audit::directory(state);
    let unread = |errno: rustix::io::Errno| ReadError { path: directory.clone(), source: errno.into() };
    let spared = oldest_spared(state).map_err(unread)?;
    let keep = keep(args, spared.as_ref())?;
    let Some(found) = prune::look(state, &keep)? else {
        if args.json {
            return Ok(print_json(&json!({ "version": 1, "pruned": null, "spared": spared_json(spared.as_ref()) })));
        }
        return Ok(print(&format!(
            "nothing to prune in {}\n{}",
            directory.display(),
            spared_text(&keep, spared.as_ref())
        )));
    };
    let report = verify(state).map_err(unread)?;
    if !report.is_whole() && !args.force {
        return Err(PruneError::NotWhole { directory, problems: report.problems.len() });
    }
    if !args.json {
        let would = if args.dry_run { "would remove" } else { "removes" };
        print(&format!("{would} {}\n{}", words(&found), spared_text(&keep, spared.as_ref())));
    }
    if !(args.dry_run || args.yes) {
        if args.json || !has_terminal() {
            return Err(PruneError::Unasked);
        }
        if !is_confirmed("Remove them for good?") {
            say!("nothing was removed");
            return Ok(ExitCode::from(NOT_SO));
        }
    }
    let pruned = if args.dry_run { Some(found) } else { prune::prune(state, &keep, report.problems.len())? };
    if args.json {
        let spared = spared_json(spared.as_ref());
        return Ok(print_json(&json!({ "version": 1, "dry_run": args.dry_run, "pruned": pruned, "spared": spared })));
    }
    match pruned.filter(|_| !args.dry_run) {
        Some(pruned) => {
            Ok(print(&format!("removed {} records; `sandbox audit verify` says until when\n", pruned.records)))
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

fn keep(args: &PruneArgs, spared: Option<&Spared>) -> Result<Keep, FlagError> {
    let since = args.keep.as_deref().map(|text| {
        // A bare number would be seconds: a forgotten unit, and records do not come back.
        let time = parse_time(text).filter(|_| !text.ends_with(|last: char| last.is_ascii_digit()));
        time.map(|time| Stamp::now().before(time))
            .ok_or_else(|| FlagError::new("--keep", text, "a time such as `90d` or `36h`"))
    });
    let size = args.keep_size.as_deref().map(|text| {
        parse_size(text).ok_or_else(|| FlagError::new("--keep-size", text, "a size such as `1G` or `512M`"))
    });
    Ok(Keep { since: since.transpose()?, bytes: size.transpose()?, spared: spared.map(|spared| spared.since) })
}

pub(crate) fn words(pruned: &Pruned) -> String {
    let time = pruned.time.get(..19).unwrap_or(&pruned.time).replace('T', " ");
    format!("{} records of the audit log, up to {time} UTC ({})", pruned.records, bytes(pruned.bytes))
}

/// Why less goes than was asked for.
fn spared_text(keep: &Keep, spared: Option<&Spared>) -> String {
    let is_older = |spared: &&Spared| keep.bytes.is_some() || keep.since.is_some_and(|since| spared.since < since);
    spared.filter(is_older).map_or_else(String::new, |spared| {
        let why = if spared.runs { "it runs" } else { "its changes wait (`sandbox changes`)" };
        format!("records since the beginning of session {} stay: {why}\n", short(&spared.session))
    })
}

fn spared_json(spared: Option<&Spared>) -> serde_json::Value {
    spared.map_or(
        serde_json::Value::Null,
        |spared| json!({ "since": spared.since.to_string(), "session": spared.session, "runs": spared.runs }),
    )
}
