//! The FUSE device and a file system on it, made with the new mount API. Owns opening and mounting; what is said over the
//! device is `gate`'s. Called by `launcher::apply` inside the sandbox's user namespace, as the kernel demands.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::mount::{Attributes, new_filesystem};

pub const DEVICE: &str = "/dev/fuse";

/// Whether this process could open the device. The answer may differ once it is tried.
pub fn is_available() -> bool {
    rustix::fs::access(DEVICE, rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK).is_ok()
}

pub fn open() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, DEVICE, flags, Mode::empty())
}

/// A detached file system whose requests arrive at `device`. File modes count as on any other; no other user sees it.
pub fn new_tree(device: BorrowedFd<'_>, uid: u32, gid: u32, exec: bool) -> Result<OwnedFd, Errno> {
    let (fd, uid, gid) = (device.as_raw_fd().to_string(), uid.to_string(), gid.to_string());
    let options = [
        ("source", "gate"),
        ("fd", fd.as_str()),
        ("rootmode", "40000"),
        ("user_id", &uid),
        ("group_id", &gid),
        ("default_permissions", ""),
    ];
    // Writable, so that a write is asked for instead of refused at once; what is written through it is `gate`'s to decide.
    new_filesystem("fuse", &options, Attributes { write: true, exec, devices: false })
}
