//! The system call filter and its listener.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;

use super::{Result, check, done};

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SockFilter {
    pub(crate) code: u16,
    pub(crate) jt: u8,
    pub(crate) jf: u8,
    pub(crate) k: u32,
}

#[repr(C)]
struct SockFprog {
    len: u16,
    filter: *const SockFilter,
}

/// Returns the listener if `flags` asks for one.
pub(crate) fn seccomp_set_filter(program: &[SockFilter], flags: u64) -> Result<i64> {
    let program = SockFprog { len: u16::try_from(program.len()).map_err(|_| Errno::INVAL)?, filter: program.as_ptr() };
    // SAFETY: `program` points to `len` instructions that are borrowed for the call; the kernel copies them.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) })
}

/// `struct seccomp_notif`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct SeccompNotif {
    pub(crate) id: u64,
    pub(crate) pid: u32,
    pub(crate) flags: u32,
    pub(crate) nr: i32,
    pub(crate) arch: u32,
    pub(crate) instruction_pointer: u64,
    pub(crate) args: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
pub(crate) struct SeccompNotifResp {
    pub(crate) id: u64,
    pub(crate) val: i64,
    pub(crate) error: i32,
    pub(crate) flags: u32,
}

const NOTIF_RECV: u64 = 0xc050_2100;
const NOTIF_SEND: u64 = 0xc018_2101;
const NOTIF_ID_VALID: u64 = 0x4008_2102;

pub(crate) fn notif_recv(listener: BorrowedFd<'_>) -> Result<SeccompNotif> {
    let mut notif = SeccompNotif::default();
    // SAFETY: the kernel writes at most sizeof(struct seccomp_notif), 80 bytes, which is the layout above, zeroed as it demands.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_RECV as _, &raw mut notif) })?;
    Ok(notif)
}

pub(crate) fn notif_send(listener: BorrowedFd<'_>, response: &SeccompNotifResp) -> Result<()> {
    // SAFETY: the kernel reads sizeof(struct seccomp_notif_resp), 24 bytes, from a borrowed value of that layout.
    done(unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_SEND as _, ptr::from_ref(response)) })
}

pub(crate) fn notif_is_valid(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads eight bytes from a borrowed value of that size.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_ID_VALID as _, &raw const id) }).is_ok()
}
