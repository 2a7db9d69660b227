//! Mounts by descriptor, with the new mount API only. Owns clone, attributes, attach, new file systems and pivot_root;
//! paths are resolved by the caller into descriptors (see `open_in_root`, `open_source`). Called by `launcher::apply`.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};

use crate::raw::mount::{MountAttr, mount_setattr};

const AT_RECURSIVE: u32 = 0x8000;
const AT_EMPTY_PATH: u32 = 0x1000;
const MS_PRIVATE: u64 = 1 << 18;

const RDONLY: u64 = 1;
const NOSUID: u64 = 2;
const NODEV: u64 = 4;
const NOEXEC: u64 = 8;

/// What a mount forbids. Set-user-ID bits never count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    pub write: bool,
    pub exec: bool,
    pub devices: bool,
}

impl Attributes {
    pub const READ_ONLY: Attributes = Attributes { write: false, exec: false, devices: false };

    fn bits(self) -> u64 {
        let unless = |allowed: bool, bit: u64| if allowed { 0 } else { bit };
        NOSUID | unless(self.write, RDONLY) | unless(self.exec, NOEXEC) | unless(self.devices, NODEV)
    }
}

/// Opens a host path without following any symbolic link, for use as the source of a mount.
pub fn open_source(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(
        CWD,
        path,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
}

/// The same for a directory, whose names are to be looked at; a link is `LOOP`, also at the end.
pub fn open_source_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)
}

/// Opens a path below `root`, which stands for `/`; links cannot lead out of it.
pub fn open_in_root(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(
        root,
        path,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
}

/// Device and inode of an open file.
pub fn identity(fd: BorrowedFd<'_>) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Device number of a character device, or `None` for anything else.
pub fn character_device(fd: BorrowedFd<'_>) -> Result<Option<(u32, u32)>, Errno> {
    let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?;
    let is_character =
        rustix::fs::FileType::from_raw_mode(stat.stx_mode.into()) == rustix::fs::FileType::CharacterDevice;
    Ok(is_character.then_some((stat.stx_rdev_major, stat.stx_rdev_minor)))
}

/// A detached, private copy of the mounts at `source` and below.
pub fn clone_tree(source: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    rustix::mount::open_tree(
        source,
        c"",
        OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::AT_EMPTY_PATH,
    )
}

/// Restricts a whole tree of mounts and cuts it off from propagation: without the latter a mount that the host makes
/// later would appear inside, writable.
pub fn restrict_tree(tree: BorrowedFd<'_>, attributes: Attributes) -> Result<(), Errno> {
    let attr = MountAttr { attr_set: attributes.bits(), attr_clr: 0, propagation: MS_PRIVATE, userns_fd: 0 };
    mount_setattr(tree, AT_EMPTY_PATH | AT_RECURSIVE, &attr)
}

/// Cuts a whole tree of mounts off from propagation: what is mounted elsewhere from now on does not arrive.
pub fn cut_off(tree: BorrowedFd<'_>) -> Result<(), Errno> {
    let attr = MountAttr { attr_set: 0, attr_clr: 0, propagation: MS_PRIVATE, userns_fd: 0 };
    mount_setattr(tree, AT_EMPTY_PATH | AT_RECURSIVE, &attr)
}

/// Whether this kernel has `mount_setattr`. Asks for no change, of a descriptor that need not be a mount.
pub fn offers_attributes(fd: BorrowedFd<'_>) -> bool {
    let attr = MountAttr { attr_set: 0, attr_clr: 0, propagation: 0, userns_fd: 0 };
    mount_setattr(fd, AT_EMPTY_PATH, &attr) != Err(Errno::NOSYS)
}

/// Makes one mount read-only and leaves what is mounted on it.
pub fn seal(mount: BorrowedFd<'_>) -> Result<(), Errno> {
    let attr = MountAttr { attr_set: RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    mount_setattr(mount, AT_EMPTY_PATH, &attr)
}

/// Attaches a detached tree on top of an open mount point.
pub fn attach(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::mount::move_mount(
        tree,
        c"",
        target,
        c"",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
    )
}

/// Attaches a detached tree at a path below `root`. Only for paths whose every component the caller made itself:
/// links on the way would be followed.
pub fn attach_at(tree: BorrowedFd<'_>, root: BorrowedFd<'_>, path: &Path) -> Result<(), Errno> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    rustix::mount::move_mount(tree, c"", root, relative, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// A new file system of a type with options, detached.
pub fn new_filesystem(kind: &str, options: &[(&str, &str)], attributes: Attributes) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        if value.is_empty() {
            rustix::mount::fsconfig_set_flag(context.as_fd(), *key)?;
        } else {
            rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?;
        }
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    let bits = u32::try_from(attributes.bits()).unwrap_or(u32::MAX);
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::from_bits_retain(bits))
}

/// Mounts that may be stacked on the new root after a change of roots: the old root and what the set-up laid on it.
const MOST_STACKED: usize = 8;

/// Makes `root` the root of this mount namespace and lets go of the old one, with everything that is stacked on it.
pub fn pivot_into(root: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::process::fchdir(root)?;
    // Old and new root may be the same directory: the old one is then stacked on top of the new one.
    rustix::process::pivot_root(c".", c".")?;
    rustix::process::chdir(c"/")?;
    // `/` starts below such a stack, but `/..` ends on top of it: a process that asks for `/..` would stand in the old root.
    // Unmounting takes the topmost mount only, and the set-up has left one on the old root.
    for _ in 0..MOST_STACKED {
        if mount_id(c"/..")? == mount_id(c"/")? {
            return Ok(());
        }
        rustix::mount::unmount(c"/..", UnmountFlags::DETACH)?;
    }
    Err(Errno::BUSY)
}

fn mount_id(path: &CStr) -> Result<u64, Errno> {
    number_of(&rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID)?)
}

/// The number of the mount that a descriptor is on, as the table of mounts has it.
pub fn id_of(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    number_of(&rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?)
}

fn number_of(stat: &Statx) -> Result<u64, Errno> {
    // A kernel that does not say so cannot be checked.
    if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 { Err(Errno::NOSYS) } else { Ok(stat.stx_mnt_id) }
}
