//! What keeps a session within its limits, and what it used: a cgroup of its own where there is one, looking at it otherwise.
//! What the limits are is `plan`'s; ending a session is the loop's.

pub(crate) mod cgroup;
pub(crate) mod clock;
pub(crate) mod dbus;
pub(crate) mod monitor;
pub(crate) mod project_quota;
pub(crate) mod sample;
pub(crate) mod shared_memory;
pub(crate) mod systemd_scope;
pub(crate) mod usage;
