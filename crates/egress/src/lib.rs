//! Egress by name: which hosts and ports a session may reach, and the process outside that carries the connections.
//! Owns the decision, the protocols it reads off the wire and the connections; the session's namespace is `kernel::network`'s,
//! questions and records are the supervisor's. Used by `supervisor`, and by `cli` for the decision alone.
//!
//! In order; each uses only those before it:
//!
//! - [`wire`] and [`decide`] are pure: bytes to values, and values to verdicts.
//! - `session` is what one session has: its rules, limits, and the link to the supervisor.
//! - [`names`], `tls` and `ssh_agent` are what programs use on the way: name lookups, TLS that ends here, signatures.
//! - `connections` carries what was allowed.
//! - `process` starts all of it, accepts connections and ends.
#![forbid(unsafe_code)]

mod connections;
pub mod decide;
pub mod names;
mod process;
mod session;
mod ssh_agent;
mod tls;
pub mod wire;

pub use connections::published::Published;
pub use decide::address;
pub use decide::{Decided, Denial, Rules, Verdict};
pub use process::accept::PROXY;
pub use process::own_addresses::own_addresses;
pub use process::service::{Start, Terminates, serve};
pub use session::message;
pub use ssh_agent::AgentStart;
pub use tls::ca_bundle::Trusted;
pub use tls::credentials::{Injection, Secret};
