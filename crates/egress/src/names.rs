//! Names of hosts: the server that answers programs inside, the addresses that stand for names there, and the resolver
//! outside. Owns tables, cache and rate; which names may be looked up is decided by `session::rules`. The DNS server is
//! started by `process`; `connections` looks names up before it connects.

pub(crate) mod dns_server;
pub(crate) mod lookups;
pub(crate) mod resolve;
mod synthetic;
