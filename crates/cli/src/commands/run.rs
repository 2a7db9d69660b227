//! `sandbox run`: policy, plan, launch, and at the end the command's exit code and what was blocked.

use std::process::ExitCode;
use std::rc::Rc;
use std::time::SystemTime;

use cofferdam_host::persist;
use cofferdam_host::preparation::{PrepareError, Prepared, prepare};
use cofferdam_host::unserved;
use cofferdam_supervisor::{LaunchError, Memory, Options, Outcome, Returns};
use thiserror::Error;

use self::host_network::HostNetworkError;
use crate::args::run::RunArgs;
use crate::commands::changes::finish_interrupted;
use crate::environment::{egress_program, environment, typed};
use crate::render::output::{escaped, say};
use crate::render::saved::unrecorded;
use crate::render::session_end::{code_of, tell_of_session};
use crate::render::{denials, hints, report};

pub(crate) mod detach;
pub(crate) mod host_network;

/// Why the command did not run.
#[derive(Debug, Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    HostNetwork(#[from] HostNetworkError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, RunError> {
    let prepared = prepare(typed(&args.policy.0, &args.argv), false)?;
    let options = Options { timing: args.timing, returns: Returns::WhenAllEnded, ..options(&prepared)? };
    let start = SystemTime::now();
    let outcome = cofferdam_supervisor::run(&prepared.plan, &options)?;
    let code = code_of(&outcome);
    for line in denials::git(&unserved(&prepared.plan, &prepared.known.facts, start, code != 0)) {
        say!("sandbox: {}", escaped(&line));
    }
    tell(args, &prepared, &outcome, code);
    // Nothing is left to do; giving back memory piece by piece would only keep the caller waiting.
    std::process::exit(i32::from(code))
}

/// What every session of this user has.
pub(crate) fn options(prepared: &Prepared) -> Result<Options, HostNetworkError> {
    finish_interrupted(&prepared.around.state);
    Ok(Options {
        network_approved: host_network::approve(prepared)?,
        state: Some(prepared.around.state.clone()),
        known: Some(Rc::clone(&prepared.known)),
        memory: Some(memory(prepared)),
        egress_program: egress_program(),
        ..Options::default()
    })
}

/// Answers that are to outlive the session go to the policy of their scope.
fn memory(prepared: &Prepared) -> Memory {
    let around = prepared.around.clone();
    Memory(Rc::new(move |settled| match persist::save_answer(&around, &environment(), settled) {
        Ok(saved) => {
            // Told at the end: the terminal is the command's.
            let kept = (!saved.diff.is_empty()).then(|| format!("kept in {}:\n{}", saved.file.display(), saved.diff));
            let lines: Vec<String> = saved.unrecorded.as_ref().map(unrecorded).into_iter().chain(kept).collect();
            Ok(lines.join("\n"))
        }
        Err(error) => {
            let hint = hints::persist(&error).map_or_else(String::new, |hint| format!(" ({hint})"));
            Err(format!("{error}{hint}"))
        }
    }))
}

/// Everything goes to stderr: stdout is the command's.
fn tell(args: &RunArgs, prepared: &Prepared, outcome: &Outcome, code: u8) {
    tell_of_session(prepared, outcome);
    if code != 0 {
        for line in denials::lines(prepared, outcome) {
            say!("sandbox: {}", escaped(&line));
        }
    } else {
        for line in outcome.summary.warnings.iter().cloned().chain(denials::summary(outcome)) {
            say!("sandbox: {}", escaped(&line));
        }
    }
    if args.timing {
        for line in prepared.timing.iter().chain(&outcome.timing) {
            #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a launch fit a float")]
            let microseconds = line.nanoseconds as f64 / 1000.0;
            say!("{microseconds:>9.1} us  {}", line.step);
        }
    }
    if args.json {
        report::say_json_of_session(&report::ended(prepared, outcome, code));
    }
}
