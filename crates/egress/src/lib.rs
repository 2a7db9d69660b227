//! Egress by name: which hosts and ports a session may reach, and the process outside that carries the connections.
//! Owns the decision, the protocols it reads off the wire and the relay; the session's namespace is `kernel::network`'s,
//! questions and records are the supervisor's. Used by `launcher`, and by `cli` for the decision alone.
#![forbid(unsafe_code)]

pub mod address;
mod agent;
mod authority;
mod carry;
pub mod decide;
mod exchange;
mod inject;
mod limits;
mod link;
pub mod message;
pub mod names;
mod own;
mod proxy;
mod publish;
mod queries;
mod request_path;
mod resolve;
mod service;
mod terminate;
mod transparent;
mod trust;
pub mod wire;

pub use agent::AgentStart;
pub use decide::{Decided, Denial, Rules, Verdict};
pub use inject::{Injection, Secret};
pub use own::own_addresses;
pub use publish::Published;
pub use service::{PROXY, Start, Terminates, serve};
pub use trust::Trusted;
