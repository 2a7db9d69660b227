//! Host: what a session has to know of the machine and of the user's files, before it starts and after it has ended. Owns the
//! survey, preparing a plan of an order, the search for names to hide, what git's directories hold, which stand-ins are ours, what programs of the host obey,
//! and the policy files with their approvals; makes no process and no mount, decides nothing and prints nothing. Called by
//! `cli` before a launch and for the commands about policies, and by `supervisor`.
#![forbid(unsafe_code)]

mod caches;
pub mod cgroup_home;
pub mod flags;
pub mod git;
pub mod home_directories;
mod homes;
mod memory;
pub mod names;
pub mod obeyed;
pub mod persist;
pub mod policy_files;
pub mod preparation;
pub mod quarantine;
mod search;
pub mod stand_ins;
pub mod state;
mod survey;
mod tracked;
pub mod user_namespaces;
pub mod written;

pub use homes::{HomeError, Homes};
pub use survey::{Surroundings, SurveyError, survey};
pub use tracked::{Shown, Unmet, Unserved, unserved};
