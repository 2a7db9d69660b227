//! A launch that did not happen: told as text, as an object where that was asked for, and recorded where policy refused it.
//! Owns what counts as refused; the words are `Failure`'s. Called by `main` for `run` and `learn`, and by `supervise`.

use std::process::ExitCode;

use cofferdam_supervisor::{LaunchError, Refusal, launch_refused};
use serde_json::{Value, json};

use super::Failure;
use crate::environment::own_state;
use crate::render::end::Kind;
use crate::render::exit::REFUSED;
use crate::render::output::{escaped, say};
use crate::render::report::say_json;

pub(crate) fn not_run(failure: &Failure, argv: &[String], json: bool) -> ExitCode {
    let report = recorded(failure, argv);
    let code = failure.report();
    if json {
        say_json(&report);
    }
    code
}

/// The object, once the refusal is written down.
pub(crate) fn recorded(failure: &Failure, argv: &[String]) -> Value {
    let is_refused = failure.code() == REFUSED && !matches!(failure, Failure::Launch(_));
    // Policy is read only where there is a home, and so a place for the record.
    if is_refused && let Ok(state) = own_state() {
        let origin = failure.origin().map(ToString::to_string);
        let refusal = Refusal { origin, why: failure.to_string(), exit_code: failure.code(), argv };
        if let Err(error) = launch_refused(&state, &refusal) {
            say!("sandbox: {}: {}", escaped(&error.to_string()), error.errno);
        }
    }
    failed(failure, is_refused)
}

fn failed(failure: &Failure, is_refused: bool) -> Value {
    let (end, kind) = match failure {
        _ if is_refused => ("refused", Kind::UnauthorizedAccess),
        Failure::Launch(LaunchError::Execute { .. } | LaunchError::Exec { code: 126 | 127, .. }) => {
            ("not-executed", Kind::InitializationFailed)
        }
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
