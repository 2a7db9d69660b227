//! The gate: first access to an unknown path blocks until a person decides. Owns the triggers that notice such an access,
//! the open questions, and the broker that mounts what was granted. Refuses to own policy (rules come in the plan), hosts and keys
//! (those are asked about in `supervisor`), and people (those are met in `supervisor::approvals` and `cli`). Driven by
//! `supervisor::event_loop`, in its one thread.
#![forbid(unsafe_code)]

mod broker;
mod gate;
mod host_files;
mod open_questions;
mod path_rules;
mod requester;
mod session_answers;
mod shown;
mod siblings;
mod triggers;

pub use broker::coverer::Coverer;
pub use broker::orders::How;
pub use gate::{Gate, Given, News, Ready, Trees};
pub use host_files::masked::masked_at;
pub use path_rules::RulesInHome;
pub use requester::asker;
pub use shown::{columns, folded, folded_short, shown, shown_short, shown_words};
