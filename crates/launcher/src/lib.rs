//! Launcher: executes a `LaunchPlan` on the real kernel and stays as the supervisor until the session ends.
//! Owns the host survey, the set-up child, pid 1 inside, and the loop outside; makes no choices (those are in `plan`).
//! Single-threaded, no async runtime. Called by `cli` and by the tests.
#![forbid(unsafe_code)]

mod apply;
mod attach;
mod bus;
mod calls;
mod cgroup;
mod changes;
mod claim;
mod desk;
mod dialer;
mod egress;
mod events;
mod faces;
mod gauge;
mod git;
mod git_changes;
mod git_config;
mod git_links;
mod git_root;
mod holds;
mod homes;
mod hosts;
mod indicator;
mod init;
mod input;
mod keeper;
mod keeping;
mod launch;
mod listings;
mod memory;
mod message;
mod mounts;
mod obeyed;
mod output;
mod paperwork;
mod patience;
mod prompt;
mod quota;
mod redact;
mod relay;
mod removal;
mod roster;
mod scope;
mod search;
mod secrets;
mod session;
mod shared_memory;
mod sink;
mod stand_ins;
mod streams;
mod supervisor;
mod survey;
mod sweep;
mod terminal;
mod tracked;
mod unrouted;
mod usage;
mod visit;
mod watch;
mod workload;

pub use cgroup::cgroup_home;
pub use changes::Changed;
pub use cofferdam_egress::message::Outcome as NetworkOutcome;
pub use events::{Allowed, Blocked, Denied, Probed, Reached, Refusal, launch_refused};
pub use homes::{HomeError, Homes};
pub use indicator::Level;
pub use keeper::{Fallen, Grounds, May};
pub use launch::{Decide, Decider, KeepAnswer, Known, LaunchError, Memory, Options, Outcome, Returns, TimingLine, run};
pub use obeyed::{Obeyed, ObeyedFile, Unseen};
pub use roster::{Ended, Session, UsedNow, end_session, live_sessions, used_now};
pub use secrets::SecretError;
pub use session::state_dir;
pub use supervisor::End;
pub use survey::{Surroundings, SurveyError, survey};
pub use tracked::{Unmet, Unserved, unserved};
pub use unrouted::Unrouted;
pub use usage::Usage;
pub use visit::{Visit, VisitEnd, VisitError};

/// Where tests make trees: in memory where that is possible, because making them costs a disk many times what removing
/// them does.
#[cfg(test)]
pub(crate) fn scratch() -> std::path::PathBuf {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() }
}
