//! The unsafe calls, by the area of the kernel. Owns nothing else: each function wraps one system call, and says why its
//! pointers are good. This file has what they share: the error of a call, and a descriptor that one returned.
//! Called by the safe modules of this crate only.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;

pub(crate) mod attempt;
pub(crate) mod memory;
pub(crate) mod mount;
pub(crate) mod namespace;
pub(crate) mod privilege;
pub(crate) mod process;
pub(crate) mod quota;
pub(crate) mod seccomp;
pub(crate) mod signal;
pub(crate) mod socket;
pub(crate) mod timing;

type Result<T> = std::result::Result<T, Errno>;

fn check(ret: impl Into<libc::c_long>) -> Result<libc::c_long> {
    let ret = ret.into();
    if ret < 0 { Err(last_errno()) } else { Ok(ret) }
}

/// For calls that return nothing but whether they failed.
fn done(ret: impl Into<libc::c_long>) -> Result<()> {
    check(ret).map(drop)
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

pub(crate) fn own_fd(fd: i64) -> Result<OwnedFd> {
    let fd = RawFd::try_from(fd).map_err(|_| Errno::BADF)?;
    // SAFETY: called only with a descriptor that a system call has just returned to this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
