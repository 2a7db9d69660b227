//! Egress by name: the process outside that reads protocols, resolves, dials and carries the connections.
//! Owns the protocols it reads off the wire and the connections; the session's namespace is `kernel::network`'s,
//! questions and records are the supervisor's, the decision is `reach`'s. Used by its own program, `sandbox-egress`.
//!
//! In order; each uses only those before it:
//!
//! - `wire` is pure: bytes to values.
//! - `session` is what one session has: its rules, limits, and the link to the supervisor.
//! - `names`, `tls` and `ssh_agent` are what programs use on the way: name lookups, TLS that ends here, signatures.
//! - `connections` carries what was allowed.
//! - `process` starts all of it, accepts connections and ends.
#![forbid(unsafe_code)]

mod connections;
mod names;
mod process;
mod session;
mod ssh_agent;
mod tls;
mod wire;

pub use process::program::{NotStarted, run};
