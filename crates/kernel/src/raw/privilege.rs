//! Capabilities that are given up, and which Landlock the kernel has.

use std::ptr;

use rustix::io::Errno;

use super::{Result, check};

/// Drops capability `number` from the bounding set; `false` once the kernel knows no such capability.
pub(crate) fn drop_bounding(number: u32) -> Result<bool> {
    // SAFETY: no pointers.
    match check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) }) {
        Ok(_) => Ok(true),
        Err(Errno::INVAL) => Ok(false),
        Err(errno) => Err(errno),
    }
}

pub(crate) fn landlock_abi() -> u32 {
    const VERSION: u32 = 1;
    // SAFETY: with the version flag the kernel demands a null attribute and size 0.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0usize, VERSION) };
    u32::try_from(abi).unwrap_or(0)
}
