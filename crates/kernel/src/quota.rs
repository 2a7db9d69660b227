//! Project quotas of ext4 and xfs: a hard limit on what lies below one directory. Only root of the host may set them.
//! Owns the two kernel interfaces; which directory and how much is the caller's. Called by `supervisor`.

use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::raw::quota::{Quota, quota_format, quota_get, quota_set, set_project};

/// Below a project's directory everything new belongs to the project.
const PROJECT_INHERIT: u32 = 0x200;
/// The kernel counts in units of this many bytes.
const BLOCK: u64 = 1024;

/// Whether the file system of `directory` keeps project quotas and this process may set them.
pub fn is_available(directory: impl AsFd) -> bool {
    quota_format(directory.as_fd()).is_ok() && quota_get(directory.as_fd(), PROBE).is_ok()
}

/// A number that no project uses, to ask about.
const PROBE: u32 = 0x4356_ffff;

/// Gives the number `project` a quota on the file system of `directory`; refuses a number that is in use.
pub fn limit(directory: impl AsFd, project: u32, bytes: Option<u64>, files: Option<u64>) -> Result<(), Errno> {
    let directory = directory.as_fd();
    let present = quota_get(directory, project)?;
    if present != Quota::default() {
        return Err(Errno::EXIST);
    }
    let quota = Quota { blocks: bytes.map_or(0, |bytes| bytes.div_ceil(BLOCK)), files: files.unwrap_or(0), used: 0 };
    quota_set(directory, project, quota)
}

/// Counts `directory`, which must be empty, and all that will be made in it, for `project`.
pub fn assign(directory: impl AsFd, project: u32) -> Result<(), Errno> {
    set_project(directory.as_fd(), project, PROJECT_INHERIT)
}

/// Forgets the quota of a project; what it counted is gone by then.
pub fn lift(directory: impl AsFd, project: u32) -> Result<(), Errno> {
    quota_set(directory.as_fd(), project, Quota::default())
}
