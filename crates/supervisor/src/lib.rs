//! Supervisor: one session from outside, one process for each. Launches a `LaunchPlan` and stays until the session ends: answers
//! it, limits it, records it, keeps its covers. Makes no policy choice (those are in `policy` and `plan`); what runs inside is
//! `launcher`'s. Single-threaded, no async runtime. Called by `cli` and by the tests.
#![forbid(unsafe_code)]

mod approvals;
mod attach;
mod attach_client;
mod checkpoints;
mod covers;
mod error;
mod event_loop;
mod execs;
mod first_process;
mod halt;
mod launch;
mod limits;
mod network;
mod options;
mod records;
mod response;
mod set_up;
mod store;
mod terminal;
mod user_program;

pub use attach_client::{Visit, VisitEnd, VisitError};
pub use cofferdam_launcher::streams::why_not_passed;
pub use covers::{Fallen, Grounds, May};
pub use error::LaunchError;
pub use launch::finish::Outcome;
pub use launch::run;
pub use network::credentials::SecretError;
pub use network::egress_process::is_trusted;
pub use options::{Decide, Decider, KeepAnswer, Memory, NetworkApproval, Options, Ordered, Returns};
pub use records::log::{Refusal, launch_refused};
pub use records::retention::{Spared, oldest_spared};
pub use records::summary::Summary;
pub use store::held_names::release_killed;
pub use store::registry::{Ended, UsedNow, end_session, live_sessions, used_now};
pub use store::sweep::finish_killed;

/// A module as the test harness names it, for tests that start themselves again.
#[cfg(test)]
pub(crate) fn own_module(path: &'static str) -> &'static str {
    path.split_once("::").map_or(path, |(_, module)| module)
}

/// Where tests make trees: in memory where that is possible, because making them costs a disk many times what removing
/// them does.
#[cfg(test)]
pub(crate) fn scratch() -> std::path::PathBuf {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() }
}
