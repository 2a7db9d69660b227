//! Directories in which the sandbox has file systems of its own. Owns the list and the question whether a path lies in one; what
//! is mounted there is `system`'s. Called by `alias`, `mounts`, `system` and the survey.

use std::path::Path;

/// Private file systems that cover what the host has there.
pub(crate) const PRIVATE: &[&str] = &["/tmp", "/var/tmp", "/run"];
pub(crate) const OWN: &[&str] = &["/proc", "/sys", "/dev"];

/// What programs read in /sys to size themselves; the rest of it describes the host.
pub(crate) const SYS_SHOWN: &[&str] = &["/sys/devices/system/cpu", "/sys/devices/system/node"];

/// Directories in which the sandbox has a file system of its own.
pub fn own_areas() -> impl Iterator<Item = &'static str> {
    PRIVATE.iter().chain(OWN).copied()
}

/// Whether the host's names mean nothing there, because the sandbox has its own. By parts: a workload or a user may have
/// written the path.
pub fn is_in_own_area(path: &Path) -> bool {
    own_areas().any(|area| path.starts_with(area))
}

/// Paths whose existence the survey reports in `HostFacts::system`.
pub fn system_candidates() -> impl Iterator<Item = &'static str> {
    own_areas().chain(SYS_SHOWN.iter().copied())
}
