//! The egress process of a session, from its start to its end. Owns giving up files and rights, the sockets that were made
//! inside, the clock and the order of the end; carries nothing itself. Called by the program `sandbox-egress`, which
//! `supervisor` starts.

pub(crate) mod accept;
pub(crate) mod program;
pub(crate) mod service;
