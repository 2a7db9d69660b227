//! The gate: first access to an unknown path blocks until a person decides. Owns the triggers that notice such an access,
//! the docket of open questions, the broker that mounts what was granted, and the words that questions and answers are
//! exchanged in. Refuses to own policy (rules come in the plan) and people (faces are `launcher::desk`'s and `cli`'s).
//! Driven by `launcher::supervisor`, in its one thread.
#![forbid(unsafe_code)]

mod asker;
mod broker;
mod coverer;
mod docket;
mod fuse;
mod gate;
mod host;
mod judge;
mod late_mounts;
mod ledger;
mod masked;
mod named;
mod notify;
mod orders;
pub mod protocol;
mod question;
mod shown;
mod stale;
mod trigger;

pub use coverer::Coverer;
pub use gate::{Gate, Given, News, Ready, Trees};
pub use judge::RulesInHome;
pub use masked::masked_at;
pub use orders::How;
pub use question::{Asker, Cause, Keep, Op, Program, Question, QuestionId, Reach, Settled, Verdict};
pub use shown::{columns, folded, folded_short, shown, shown_short, shown_words};
