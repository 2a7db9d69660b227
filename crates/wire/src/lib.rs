//! Wire: what is said to and by a session, as versioned data: the order it begins with, its commands, questions and their answers,
//! the protocol of the control socket, why a path was denied and how a session ended. Owns the words and their strict parsing; does no I/O and decides nothing.
//! Used by `gate`, `host`, `supervisor` and `cli`.
#![forbid(unsafe_code)]

mod denied;
mod end;
pub mod exec;
pub mod order;
pub mod protocol;
mod question;
pub mod session_id;

pub use denied::{Denial, Denied};
pub use end::End;
pub use question::{Asker, Cause, Keep, Op, Program, Question, QuestionId, Reach, Settled, Subject, Verdict};
