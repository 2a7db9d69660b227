//! The egress process of a session, from its start to its end. Owns giving up files and rights, the sockets that were made
//! inside, the clock and the order of the end; carries nothing itself. Started by `supervisor` in a process of its own.

pub(crate) mod accept;
pub(crate) mod own_addresses;
pub(crate) mod service;
