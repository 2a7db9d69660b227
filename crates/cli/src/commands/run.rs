//! `sandbox run`: policy, plan, launch, and at the end the command's exit code and what was blocked.

use std::process::ExitCode;
use std::rc::Rc;
use std::time::SystemTime;

use cofferdam_host::flags::FlagError;
use cofferdam_host::names::{Name, NameError};
use cofferdam_host::persist;
use cofferdam_host::preparation::{PrepareError, Prepared, prepare_start};
use cofferdam_host::unserved;
use cofferdam_reach::start::PROGRAM;
use cofferdam_supervisor::{LaunchError, Memory, Options, Outcome, Returns};
use thiserror::Error;

use self::host_network::HostNetworkError;
use crate::args::run::RunArgs;
use crate::commands::changes::{ChangesError, finish_interrupted};
use crate::environment::{environment, program_beside, typed};
use crate::render::output::{escaped, say};
use crate::render::saved::unrecorded;
use crate::render::session_end::{TransactionEnd, code_of, tell_of_session};
use crate::render::{denials, end, hints, report};

pub(crate) mod detach;
pub(crate) mod host_network;
mod offer;
mod passed;

/// Why the command did not run.
#[derive(Debug, Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    HostNetwork(#[from] HostNetworkError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Flag(#[from] FlagError),
    #[error(transparent)]
    Name(#[from] NameError),
}

/// What a person asked for at the end and that failed is told by `report`: the exit code is the command's.
pub(crate) fn run(args: &RunArgs, report: impl FnOnce(ChangesError)) -> Result<ExitCode, RunError> {
    passed::check(&args.descriptors)?;
    let prepared = prepare_start(typed(&args.policy.0, args.chosen(), &args.argv), false)?;
    let name = args.name.as_deref().map(|name| Name::claim(&prepared.around.state, name)).transpose()?;
    let options = Options {
        name: name.as_ref().map(Name::text),
        descriptors: args.descriptors.clone(),
        timing: args.timing,
        returns: Returns::WhenAllEnded,
        ..options(&prepared)?
    };
    let start = SystemTime::now();
    let outcome = cofferdam_supervisor::run(&prepared.plan, &options)?;
    let code = code_of(&outcome);
    for line in denials::git(&unserved(&prepared.plan, &prepared.known.facts, start, code != 0)) {
        say!("sandbox: {}", escaped(&line));
    }
    let transaction = tell(args, &prepared, &outcome, code);
    if transaction.is_open && !args.json {
        offer::offer(&outcome.session, outcome.end).unwrap_or_else(report);
    }
    // Nothing is left to do; giving back memory piece by piece would only keep the caller waiting.
    std::process::exit(i32::from(code))
}

/// What every session of this user has.
pub(crate) fn options(prepared: &Prepared) -> Result<Options, HostNetworkError> {
    finish_interrupted(&prepared.around.state);
    Ok(Options {
        network_approved: host_network::approve(prepared)?,
        state: Some(prepared.around.state.clone()),
        subject: prepared.subject.clone(),
        known: Some(Rc::clone(&prepared.known)),
        memory: Some(memory(prepared)),
        egress_program: program_beside(PROGRAM),
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
fn tell(args: &RunArgs, prepared: &Prepared, outcome: &Outcome, code: u8) -> TransactionEnd {
    let mut lines = if code == 0 {
        let told = outcome.summary.warnings.iter().cloned().chain(denials::summary(outcome));
        told.chain(denials::sandbox_inside(&prepared.plan, outcome)).collect()
    } else {
        denials::lines(prepared, outcome)
    };
    // Why it was ended comes before what follows from that.
    lines.extend(passed::missed(args).filter(|_| code != 0));
    let is_ended = code != 0 && end::line(prepared, outcome).is_some();
    let rest = lines.split_off(usize::from(is_ended).min(lines.len()));
    let say_all = |lines: &[String]| lines.iter().for_each(|line| say!("sandbox: {}", escaped(line)));
    say_all(&lines);
    let transaction = tell_of_session(prepared, outcome);
    say_all(&rest);
    if args.timing {
        for line in prepared.timing.iter().chain(&outcome.timing) {
            #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a launch fit a float")]
            let microseconds = line.nanoseconds as f64 / 1000.0;
            say!("{microseconds:>9.1} us  {}", line.step);
        }
    }
    if args.json {
        report::say_json_of_session(&report::ended(prepared, outcome, code, transaction.counts.as_ref()));
    }
    transaction
}
