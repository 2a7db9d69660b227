//! `sandbox why`: which rule decides about a path, a host or a system call, here and now, and the smallest change that
//! would turn the answer around. Owns telling the three apart; the wording about each is in its own module.

mod call;
mod host;
mod path;
mod variable;

use std::path::PathBuf;
use std::process::ExitCode;

use cofferdam_host::Surroundings;
use cofferdam_host::preparation::{PrepareError, policy_in_force};
use cofferdam_plan::seccomp::number_of;
use cofferdam_policy::Circumstances;
use thiserror::Error;

use crate::args::policy::WhyArgs;
use crate::environment::environment;
use crate::log::{self, LogError, session_in_log};
use crate::render::output::{escaped, print};

/// Why there is no answer.
#[derive(Debug, Error)]
pub(crate) enum WhyError {
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("`{target}` is no path that exists, no host, no system call and no variable that is set")]
    Unknown { target: String },
}

pub(crate) fn why(args: &WhyArgs) -> Result<ExitCode, WhyError> {
    let environment = environment();
    let chosen = args.chosen.chosen();
    let around = Surroundings::chosen(&environment, &chosen).map_err(PrepareError::from)?;
    if let Some(session) = &args.session {
        return in_session(args, session, &around);
    }
    // Whether or not a question could be answered now.
    let circumstances = Some(Circumstances { can_ask: true });
    let policy = policy_in_force(&args.policy.0, &chosen, &around, &environment, circumstances)?;
    let lines = match subject(args, &around, &environment)? {
        Subject::Path(path) => path::about(&policy, &around, environment, &path, args.write),
        Subject::Variable(name) => variable::about(&name, &policy, &environment),
        Subject::Call => call::about(&args.target, &policy)?,
        Subject::Host => host::about(&args.target, &policy)?,
    };
    Ok(tell(&lines))
}

fn tell(lines: &[String]) -> ExitCode {
    let lines: Vec<String> = lines.iter().map(|line| escaped(line) + "\n").collect();
    print(&lines.concat())
}

enum Subject {
    Path(PathBuf),
    Variable(String),
    Call,
    Host,
}

/// What has a slash or exists is a path; then come the names of calls, then what looks like a host, then variables.
fn subject(args: &WhyArgs, around: &Surroundings, environment: &[(String, String)]) -> Result<Subject, WhyError> {
    let target = args.target.as_str();
    if let Some(name) = target.strip_prefix("env:") {
        return Ok(Subject::Variable(name.to_owned()));
    }
    let path = match target.strip_prefix("~/") {
        Some(rest) => around.home.join(rest),
        None if target == "~" => around.home.clone(),
        None => around.cwd.join(target.trim_start_matches("./")),
    };
    let is_path = target.contains('/') || target.starts_with(['~', '.']) || path.symlink_metadata().is_ok();
    if is_path {
        return Ok(Subject::Path(resolved(path)));
    }
    if number_of(target).is_some() {
        return Ok(Subject::Call);
    }
    let is_host = target.contains('.') || target.contains(':') || target == "localhost";
    let is_set = environment.iter().any(|(name, _)| name == target);
    let looks_like_one = |c: u8| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'_';
    let is_variable = is_set || target.bytes().all(looks_like_one) && target.bytes().any(|c| c.is_ascii_uppercase());
    if is_host {
        Ok(Subject::Host)
    } else if is_variable {
        Ok(Subject::Variable(target.to_owned()))
    } else if args.write {
        // A name that is to be made.
        Ok(Subject::Path(resolved(path)))
    } else {
        Err(WhyError::Unknown { target: target.to_owned() })
    }
}

/// Where a path really is; of one that is not there, where it would be.
fn resolved(path: PathBuf) -> PathBuf {
    for above in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (above.canonicalize(), path.strip_prefix(above)) {
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    path
}

fn in_session(args: &WhyArgs, session: &str, around: &Surroundings) -> Result<ExitCode, WhyError> {
    let subject = subject(args, around, &environment())?;
    let session = &session_in_log(&around.state, session)?;
    if matches!(subject, Subject::Host) {
        return Ok(tell(&host::in_session(&args.target, host::place(&args.target)?, session, &around.state)?));
    }
    let found = log::requests(&around.state, Some(session))?;
    let Subject::Path(path) = subject else {
        return Ok(tell(&["decisions about paths and hosts are recorded, not about calls and variables".to_owned()]));
    };
    let mut lines: Vec<String> = found
        .iter()
        .filter(|one| one.path.starts_with(&path) && one.op.is_write() == args.write)
        .map(|one| {
            let word = if one.allowed { "allowed" } else { "denied" };
            let by = one.cause.as_ref().map_or_else(String::new, |cause| format!(" [{cause}]"));
            format!("{word} {} {}{by}", one.op.word(), one.path.display())
        })
        .collect();
    if lines.is_empty() {
        lines.push(format!("session {session} never asked about {}", path.display()));
    }
    Ok(tell(&lines))
}
