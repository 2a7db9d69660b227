//! What this process was started with. Owns which variables come along, the order that was typed, where this user's state is, and
//! the second program. Called by the commands.

use std::ffi::OsString;
use std::path::PathBuf;

use cofferdam_host::state::state_dir;
use cofferdam_host::{HomeError, Homes};
use cofferdam_wire::exec::ExecRequest;
use cofferdam_wire::order::{Chosen, Given, Lifetime, ORDER_VERSION, Order};
use rustix::stdio::{stderr, stdin};
use rustix::termios::isatty;

/// The caller's variables. One that is no text cannot be judged by name or value, so it does not come along.
pub(crate) fn environment() -> Vec<(String, String)> {
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    std::env::vars_os().filter_map(text).collect()
}

/// What was typed here, for this process itself.
pub(crate) fn typed(flags: &[Given], chosen: Chosen, argv: &[String]) -> Order {
    Order {
        version: ORDER_VERSION,
        cwd: None,
        environment: environment(),
        flags: flags.to_vec(),
        chosen,
        exec: Some(ExecRequest { argv: argv.to_vec(), ..ExecRequest::default() }),
        lifetime: Lifetime::WithFirstExec { linger_seconds: 0 },
        can_ask: can_ask(),
        kept_bytes: 0,
    }
}

/// Whether a person can be asked by the session: keys come from stdin. Where output goes into a file the panel is shown on the terminal all
/// the same, if it is this job's; in a pipeline a line says how to answer.
fn can_ask() -> bool {
    let is_ours = || rustix::termios::tcgetpgrp(stdin()).is_ok_and(|group| group == rustix::process::getpgrp());
    isatty(stdin()) && (isatty(stderr()) || is_ours())
}

/// Whether this command itself can ask: on stderr, answered on stdin.
pub(crate) fn has_terminal() -> bool {
    isatty(stdin()) && isatty(stderr())
}

/// A further program of this build: beside this one, as the kernel knows it. Neither a variable nor PATH can name another.
pub(crate) fn program_beside(name: &str) -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.join(name))
}

pub(crate) fn own_home() -> Result<PathBuf, HomeError> {
    Ok(Homes::look(&environment())?.first)
}

/// Where this user's sessions and logs are.
pub(crate) fn own_state() -> Result<PathBuf, HomeError> {
    let environment = environment();
    let variable = environment.iter().find(|(name, _)| name == "XDG_STATE_HOME").map(|(_, value)| value.as_str());
    Ok(state_dir(&Homes::look(&environment)?.first, variable))
}
