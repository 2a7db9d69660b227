//! Connections of the workload, and to it: each is decided, a server is connected, and bytes are carried. Owns what one
//! connection does from its first byte to its record; accepts none of the workload's and makes no verdict. `process` hands
//! it every connection that it accepted.

pub(crate) mod context;
mod first_bytes;
pub(crate) mod flow;
mod http;
pub(crate) mod intercepted;
pub(crate) mod proxy;
pub(crate) mod published;
pub(crate) mod splice;
mod tunnel;
