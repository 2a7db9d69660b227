//! The one JSON object about a run, for every outcome: ended, ended by a limit, refused, not started. Owns its fields and the
//! kinds of failures; the words for people are `render`'s and `limits`'s. Called by `run`, `learn` and `main`.

use std::ffi::OsString;
use std::process::ExitCode;

use cofferdam_launcher::{End, LaunchError, Outcome, Refusal, launch_refused};
use serde::Serialize;
use serde_json::{Value, json};

use crate::denials::COVER_FELL;
use crate::limits;
use crate::output::{escaped, json_text, say};
use crate::render::{Failure, REFUSED};
use crate::run::Prepared;
use crate::sessions::own_state;

/// What went wrong, for a program that has to choose what to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Kind {
    ResourceLimitExceeded,
    /// Policy refuses what was asked for.
    UnauthorizedAccess,
    ExecutionTimeout,
    /// Ended for what it tried, or for what it may have got hold of.
    SecurityViolation,
    /// The command did not run.
    InitializationFailed,
}

pub(crate) fn say_json(value: &Value) {
    say!("{}", json_text(&value.to_string()));
}

/// A session that ran.
pub(crate) fn ended(prepared: &Prepared, outcome: &Outcome, code: u8) -> Value {
    json!({
        "version": 1, "session": outcome.session, "end": outcome.end, "exit_code": code, "error": error_of(prepared, outcome),
        "blocked": outcome.blocked, "probed": outcome.probed, "denied": outcome.denied, "hosts": outcome.hosts, "fallen": outcome.fallen, "warnings": outcome.warnings, "obeyed": outcome.obeyed,
        "violations": outcome.violations, "kept": outcome.kept, "left_behind": outcome.left_behind,
        "unrouted": outcome.unrouted, "posture": prepared.plan.posture, "usage": outcome.usage, "timing": outcome.timing,
    })
}

fn error_of(prepared: &Prepared, outcome: &Outcome) -> Option<Value> {
    let violation = match outcome.end {
        End::TooManyViolations => Some("ended: more system calls were refused than the policy tolerates"),
        End::CoverFell => Some(COVER_FELL),
        _ => None,
    };
    if let Some(message) = violation {
        return Some(json!({ "kind": Kind::SecurityViolation, "message": message }));
    }
    let exceeded = limits::exceeded(prepared, outcome)?;
    let kind = if outcome.end == End::TimedOut { Kind::ExecutionTimeout } else { Kind::ResourceLimitExceeded };
    Some(json!({
        "kind": kind, "resource": exceeded.resource, "origin": exceeded.origin, "message": exceeded.line,
    }))
}

/// A launch that did not happen: told as text, as an object where that was asked for, and recorded where policy refused it.
pub(crate) fn not_run(failure: &Failure, argv: &[String], json: bool) -> ExitCode {
    let is_refused = failure.code() == REFUSED && !matches!(failure, Failure::Launch(_));
    // Policy is read only where there is a home, and so a place for the record.
    if is_refused && let Ok(state) = own_state() {
        let origin = failure.origin().map(ToString::to_string);
        let refusal = Refusal { origin, why: failure.to_string(), exit_code: failure.code(), argv };
        if let Err(error) = launch_refused(&state, &refusal) {
            say!("sandbox: {}: {}", escaped(&error.to_string()), error.errno);
        }
    }
    let code = failure.report();
    if json {
        say_json(&failed(failure, is_refused));
    }
    code
}

fn failed(failure: &Failure, is_refused: bool) -> Value {
    let (end, kind) = match failure {
        _ if is_refused => ("refused", Kind::UnauthorizedAccess),
        Failure::Launch(LaunchError::Execute { .. }) => ("not-executed", Kind::InitializationFailed),
        _ => ("not-started", Kind::InitializationFailed),
    };
    json!({
        "version": 1, "session": Value::Null, "end": end, "exit_code": failure.code(),
        "error": {
            "kind": kind, "message": failure.to_string(), "causes": failure.causes(),
            "origin": failure.origin().map(ToString::to_string), "hint": failure.hint(),
        },
    })
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
