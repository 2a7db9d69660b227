//! Which hosts a session may reach, and what its supervisor and its egress process say to each other. Owns the decision about
//! hosts, addresses, ports and requests, and the words between the two programs; carries, resolves and reads nothing. Used by
//! `egress`, by `supervisor`, and by `cli` for the decision and the name of the second program.
//!
//! It is apart from `egress` so that the command `sandbox` has neither an event loop nor TLS in it (docs/decisions/0047).
#![forbid(unsafe_code)]

pub mod decide;
pub mod message;
pub mod start;

pub use decide::address;
pub use decide::{Decided, Denial, Rules, Verdict};
