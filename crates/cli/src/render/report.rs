//! The one JSON object about a run, for every outcome: ended, ended by a limit, refused, not started. Owns the
//! fields of a session that ran and the kinds of failures; a launch that failed is `failure::not_run`'s. Called by `run`, `learn` and
//! `generate`.

use std::ffi::OsString;

use cofferdam_host::preparation::Prepared;
use cofferdam_supervisor::Outcome;
use serde_json::{Value, json};

use crate::render::end::{self, Kind};
use crate::render::output::{json_text, say};

/// On a line of its own, also where the workload's last line has no end: what it writes there must not be taken for this.
pub(crate) fn say_json_of_session(value: &Value) {
    say!("\n{}", json_text(&value.to_string()));
}

pub(crate) fn say_json(value: &Value) {
    say!("{}", json_text(&value.to_string()));
}

/// A session that ran, with counts of what it changed in a transaction.
pub(crate) fn ended(prepared: &Prepared, outcome: &Outcome, code: u8, changes: Option<&Value>) -> Value {
    json!({
        "version": 1, "session": outcome.session, "end": outcome.end, "exit_code": code, "error": error_of(prepared, outcome),
        "blocked": outcome.summary.blocked, "probed": outcome.summary.probed, "denied": outcome.summary.denied, "hosts": outcome.summary.hosts, "fallen": outcome.fallen, "warnings": outcome.summary.warnings, "obeyed": outcome.obeyed,
        "violations": outcome.summary.violations, "indicators": outcome.summary.indicators, "attempt": outcome.summary.attempt, "quarantined": outcome.summary.quarantined, "kept": outcome.kept, "thrown_away": outcome.thrown_away, "left_behind": outcome.left_behind,
        "unrouted": outcome.unrouted, "changes": changes, "posture": prepared.plan.posture, "usage": outcome.usage, "timing": outcome.timing,
    })
}

fn error_of(prepared: &Prepared, outcome: &Outcome) -> Option<Value> {
    let reason = end::reason(prepared, outcome)?;
    let mut error = json!({ "kind": reason.kind, "origin": reason.origin, "message": reason.line });
    if let Some(resource) = reason.resource {
        error["resource"] = json!(resource);
    }
    Some(error)
}

/// The object for a command line that was not understood, if it asks for one.
pub(crate) fn misused(words: &[OsString], error: &clap::Error, code: u8) -> Option<Value> {
    let own = words.iter().skip(1).take_while(|word| *word != "--");
    let is_run = words.get(1).is_some_and(|word| word == "run" || word == "learn");
    (is_run && own.into_iter().any(|word| word == "--json")).then(|| {
        let text = error.render().to_string();
        let message = text.lines().next().unwrap_or_default();
        let message = message.strip_prefix("error: ").unwrap_or(message);
        json!({
            "version": 1, "session": Value::Null, "end": "not-started", "exit_code": code,
            "error": { "kind": Kind::InitializationFailed, "message": message, "causes": [], "origin": Value::Null, "hint": "sandbox run --help" },
        })
    })
}
