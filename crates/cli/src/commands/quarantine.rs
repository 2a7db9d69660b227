//! `sandbox quarantine`: lists what may not run since it tried to escape, and releases it. Owns the words; the list is `host`'s.

use std::fmt::Write as _;
use std::process::ExitCode;

use cofferdam_host::HomeError;
use cofferdam_host::quarantine::{self, QuarantineError};
use cofferdam_wire::session::short;
use serde_json::json;
use thiserror::Error;

use crate::args::quarantine::QuarantineCommand;
use crate::environment::own_state;
use crate::render::output::{escaped, json_text, print};

#[derive(Debug, Error)]
pub(crate) enum QuarantineCommandError {
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Quarantine(#[from] QuarantineError),
}

pub(crate) fn run(command: &QuarantineCommand) -> Result<ExitCode, QuarantineCommandError> {
    let state = own_state()?;
    let mut out = String::new();
    match command {
        QuarantineCommand::List(args) if args.json => {
            let listed = json!({ "version": 1, "quarantined": quarantine::list(&state)? });
            writeln!(out, "{}", json_text(&listed.to_string())).unwrap_or_default();
        }
        QuarantineCommand::List(_) => {
            let entries = quarantine::list(&state)?;
            if entries.is_empty() {
                out.push_str("no program is quarantined\n");
            }
            for entry in entries {
                let (path, why) = (entry.path.display().to_string(), escaped(&entry.why));
                let (hash, session) = (&entry.hash, short(&entry.session));
                writeln!(out, "{hash}  {} (session {session}: {why})", escaped(&path)).unwrap_or_default();
            }
        }
        QuarantineCommand::Release(args) => {
            let entry = quarantine::release(&state, &args.hash, &args.reason)?;
            writeln!(out, "released {} (sha256 {})", escaped(&entry.path.display().to_string()), entry.hash)
                .unwrap_or_default();
        }
    }
    Ok(print(&out))
}
