//! Project quotas of a file system.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::{Result, check, done};

/// `struct fsxattr`.
#[repr(C)]
#[derive(Default)]
struct FileAttributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581fu32 as libc::Ioctl;
const FS_IOC_FSSETXATTR: libc::Ioctl = 0x401c_5820u32 as libc::Ioctl;

/// Moves a directory to a project and adds `flags` to its attributes.
pub(crate) fn set_project(directory: BorrowedFd<'_>, project: u32, flags: u32) -> Result<()> {
    let mut attributes = FileAttributes::default();
    let fd = directory.as_raw_fd();
    // SAFETY: the request reads and writes one `FileAttributes`, which outlives both calls.
    unsafe {
        check(libc::ioctl(fd, FS_IOC_FSGETXATTR, &raw mut attributes))?;
        attributes.project = project;
        attributes.flags |= flags;
        check(libc::ioctl(fd, FS_IOC_FSSETXATTR, &raw const attributes))?;
    }
    Ok(())
}

/// The parts of `struct if_dqblk` that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Quota {
    pub(crate) blocks: u64,
    pub(crate) files: u64,
    pub(crate) used: u64,
}

/// `struct if_dqblk`.
#[repr(C)]
#[derive(Default)]
struct DiskQuota {
    block_hard: u64,
    block_soft: u64,
    space: u64,
    file_hard: u64,
    file_soft: u64,
    files: u64,
    block_time: u64,
    file_time: u64,
    valid: u32,
}

const PROJECT_QUOTA: u32 = 2;
const Q_GETFMT: u32 = 0x80_0004;
const Q_GETQUOTA: u32 = 0x80_0007;
const Q_SETQUOTA: u32 = 0x80_0008;
/// Both limits are given.
const QUOTA_LIMITS: u32 = 1 | 4;

fn quotactl<T>(directory: BorrowedFd<'_>, command: u32, id: u32, argument: &mut T) -> Result<()> {
    let command = (command << 8) | PROJECT_QUOTA;
    // SAFETY: every command used here reads or writes one value of the type that its only caller passes, which is
    // borrowed for the call.
    done(unsafe { libc::syscall(libc::SYS_quotactl_fd, directory.as_raw_fd(), command, id, ptr::from_mut(argument)) })
}

pub(crate) fn quota_format(directory: BorrowedFd<'_>) -> Result<u32> {
    let mut format = 0u32;
    quotactl(directory, Q_GETFMT, 0, &mut format)?;
    Ok(format)
}

pub(crate) fn quota_get(directory: BorrowedFd<'_>, project: u32) -> Result<Quota> {
    let mut quota = DiskQuota::default();
    quotactl(directory, Q_GETQUOTA, project, &mut quota)?;
    Ok(Quota { blocks: quota.block_hard, files: quota.file_hard, used: quota.space })
}

pub(crate) fn quota_set(directory: BorrowedFd<'_>, project: u32, quota: Quota) -> Result<()> {
    let mut value =
        DiskQuota { block_hard: quota.blocks, file_hard: quota.files, valid: QUOTA_LIMITS, ..DiskQuota::default() };
    quotactl(directory, Q_SETQUOTA, project, &mut value)
}
