//! What is known about this host before a launch. Plain data, gathered by `host::survey`; nothing here asks the kernel.
//! Read by the rest of this crate.

pub(crate) mod cgroup;
pub(crate) mod git;
pub(crate) mod host;
pub(crate) mod mount_table;
pub(crate) mod path;
pub(crate) mod search;
