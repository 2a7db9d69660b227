//! Kernel: safe wrappers around the interfaces that a launch needs and rustix does not offer, each checked against the kernel's rules.
//! Owns every line of unsafe code (in `raw` only); refuses to own policy or order, and knows no sibling crate.
//! Called by `launcher`, `supervisor`, `gate`, `host` and `egress`, by `cli` for `doctor`, and by the tests.

mod raw;

pub mod attempt;
pub mod bound;
pub mod cgroup;
pub mod datagram;
pub mod exec;
pub mod file;
pub mod filtered;
pub mod fuse;
pub mod landlock;
pub mod memory;
pub mod mount;
pub mod namespace;
mod netlink;
pub mod network;
pub mod own_addresses;
pub mod privilege;
pub mod proc;
pub mod process;
pub mod quota;
pub mod seccomp;
pub mod shared;
pub mod signal;
pub mod socket;
pub mod timing;
pub mod watches;

pub use rustix::io::Errno;

/// For calls whose failure changes nothing that matters; `why` says why.
pub fn best_effort<T>(_result: Result<T, Errno>, _why: &'static str) {}
