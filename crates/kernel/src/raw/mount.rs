//! Attributes of mounts.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::{Result, done};

#[repr(C)]
pub(crate) struct MountAttr {
    pub(crate) attr_set: u64,
    pub(crate) attr_clr: u64,
    pub(crate) propagation: u64,
    pub(crate) userns_fd: u64,
}

pub(crate) fn mount_setattr(mount: BorrowedFd<'_>, flags: u32, attr: &MountAttr) -> Result<()> {
    // SAFETY: the path is an empty C string, `attr` is borrowed for the call and its size is passed.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    })
}
