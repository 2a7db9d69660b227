//! Supervisor: one session from outside, one process for each. Launches a `LaunchPlan` and stays until the session ends: answers
//! it, limits it, records it, keeps its covers. Makes no policy choice (those are in `policy` and `plan`); what runs inside is
//! `launcher`'s. Single-threaded, no async runtime. Called by `cli` and by the tests.
#![forbid(unsafe_code)]

mod approvals;
mod attach;
mod attach_client;
mod covers;
mod error;
mod event_loop;
mod execs;
mod first_process;
mod launch;
mod limits;
mod network;
mod options;
mod records;
mod store;
mod terminal;

pub use attach_client::{Visit, VisitEnd, VisitError};
pub use cofferdam_egress::message::Outcome as NetworkOutcome;
pub use covers::{Fallen, Grounds, May};
pub use error::LaunchError;
pub use launch::{Outcome, TimingLine, run};
pub use limits::usage::Usage;
pub use network::credentials::SecretError;
pub use network::no_route::Unrouted;
pub use options::{Decide, Decider, KeepAnswer, Known, Memory, Options, Ordered, Returns};
pub use records::indicator::Level;
pub use records::log::{Allowed, Blocked, Probed, Reached, Refusal, launch_refused};
pub use store::overlay_changes::Changed;
pub use store::registry::{Ended, Session, UsedNow, end_session, live_sessions, used_now};

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
