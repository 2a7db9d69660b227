//! What this process was started with. Owns which variables come along, and where this user's state is. Called by the
//! commands.

use std::ffi::OsString;
use std::path::PathBuf;

use cofferdam_host::state::state_dir;
use cofferdam_host::{HomeError, Homes};

/// The caller's variables. One that is no text cannot be judged by name or value, so it does not come along.
pub(crate) fn environment() -> Vec<(String, String)> {
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    std::env::vars_os().filter_map(text).collect()
}

/// Where this user's sessions and logs are.
pub(crate) fn own_state() -> Result<PathBuf, HomeError> {
    let environment = environment();
    let variable = environment.iter().find(|(name, _)| name == "XDG_STATE_HOME").map(|(_, value)| value.as_str());
    Ok(state_dir(&Homes::look(&environment)?.first, variable))
}
