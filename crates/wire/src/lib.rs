//! Wire: what is said to and by a session, as versioned data: the order it begins with, its commands, questions and their answers,
//! the protocol of the control socket, what a session says of itself, why a path was denied, how a session ended and what is told of it. Owns the words and their strict parsing; does no I/O and decides nothing.
//! Used by `gate`, `egress`, `host`, `supervisor`, `client` and `cli`.
#![forbid(unsafe_code)]

mod denied;
mod end;
pub mod exec;
pub mod order;
mod outcome;
pub mod protocol;
mod question;
pub mod session;

pub use denied::{Denial, Denied};
pub use end::End;
pub use outcome::{
    Allowed, Attempt, Blocked, Changed, Indicators, Level, NetworkOutcome, Probed, Reached, TimingLine, Unrouted,
    Usage, Wall,
};
pub use question::{
    Asker, Cause, Group, Keep, NEW_DIRECTORY, Op, Program, Question, QuestionId, Reach, Settled, Subject, Verdict,
};
