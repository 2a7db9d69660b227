//! Namespaces of this process, and whose another one is.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::{Result, check, done, own_fd};

pub(crate) fn unshare(flags: u64) -> Result<()> {
    let flags = libc::c_int::try_from(flags).map_err(|_| Errno::INVAL)?;
    // SAFETY: unshare takes an integer; callers pass flags that share no memory of this process (namespaces).
    done(unsafe { libc::unshare(flags) })
}

const NS_GET_USERNS: libc::Ioctl = 0xb701u32 as libc::Ioctl;

pub(crate) fn owner_of_namespace(namespace: BorrowedFd<'_>) -> Result<OwnedFd> {
    // SAFETY: the request takes no argument and returns a new descriptor.
    own_fd(check(unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS) })?)
}
