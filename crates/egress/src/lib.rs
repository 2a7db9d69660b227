//! Egress by name: which hosts and ports a session may reach, and the process outside that carries the connections.
//! Owns the decision, the protocols it reads off the wire and the relay; the session's namespace is `kernel::network`'s,
//! questions and records are the supervisor's. Used by `launcher`, and by `cli` for the decision alone.
#![forbid(unsafe_code)]

pub mod address;
pub mod decide;
pub mod names;
mod request_path;
pub mod wire;

pub use decide::{Decided, Denial, Rules, Verdict};
