//! Looking at the host, on descriptors: no link is followed that the sandbox has not followed itself. Owns the calls; used
//! by the FUSE trigger, which runs with the user's rights outside the sandbox.

pub(crate) mod late_mounts;
pub(crate) mod masked;
pub(crate) mod named;
pub(crate) mod stale;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(CWD, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
}

pub(crate) fn stat(path: &Path) -> Result<Stat, Errno> {
    rustix::fs::fstat(open(path, OFlags::PATH)?)
}

pub(crate) fn link(path: &Path) -> Result<PathBuf, Errno> {
    let target = rustix::fs::readlinkat(open(path, OFlags::PATH)?, c"", Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
}

/// A directory, for changes of its names.
pub(crate) fn directory(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, OFlags::PATH | OFlags::DIRECTORY)
}

/// A file for reading, if it is still the one with this device and inode. Never blocks on what is no plain file.
pub(crate) fn open_same(path: &Path, identity: (u64, u64)) -> Result<OwnedFd, Errno> {
    let fd = open(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
    let stat = rustix::fs::fstat(&fd)?;
    let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile;
    if !is_file {
        return Err(Errno::ACCESS);
    }
    if (stat.st_dev, stat.st_ino) == identity { Ok(fd) } else { Err(Errno::STALE) }
}

/// The names in a directory, unless there are more than `most`.
pub(crate) fn names_up_to(path: &Path, most: usize) -> Result<Option<Vec<Vec<u8>>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::new(open(path, OFlags::RDONLY | OFlags::DIRECTORY)?)? {
        names.push(entry?.file_name().to_bytes().to_vec());
        if names.len() > most {
            return Ok(None);
        }
    }
    Ok(Some(names))
}

/// The names in a directory with inode and type.
pub(crate) fn names(path: &Path) -> Result<Vec<(Vec<u8>, u64, u32)>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::new(open(path, OFlags::RDONLY | OFlags::DIRECTORY)?)? {
        let entry = entry?;
        let kind = entry.file_type().as_raw_mode() >> 12;
        names.push((entry.file_name().to_bytes().to_vec(), entry.ino(), kind));
    }
    Ok(names)
}
