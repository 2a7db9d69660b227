//! What lies at a name, as far as two trees are compared by it. Owns reading it off a descriptor and a name; a link is itself and
//! never what it leads to. Used by everything in this crate.

use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Set-user-ID, set-group-ID and sticky: never carried over to the host.
pub(crate) const PERMISSIONS: u32 = 0o777;

/// Seconds and nanoseconds since 1970, as the kernel stamps files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time(pub i64, pub i64);

impl Time {
    /// Whether a file that was changed then was changed after this. A file system that keeps whole seconds cannot tell more.
    pub fn is_before(self, changed: Time) -> bool {
        if changed.1 == 0 { changed.0 >= self.0 } else { changed > self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    File,
    Directory,
    Link,
    Fifo,
    Socket,
    /// Character and block devices. Character device 0:0 is how overlayfs says that a name was removed.
    Device,
}

/// One name of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub kind: Kind,
    pub mode: u32,
    pub size: u64,
    pub device: u64,
    pub inode: u64,
    pub links: u32,
    pub modified: Time,
    pub changed: Time,
    #[serde(skip)]
    pub is_whiteout: bool,
    /// Where a link leads to.
    #[serde(skip)]
    pub target: Option<PathBuf>,
}

impl Entry {
    /// `None` where there is no such name.
    pub fn at(directory: BorrowedFd<'_>, name: &OsStr) -> Result<Option<Self>, Errno> {
        let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            other => other?,
        };
        let mut entry = Entry::of(&stat);
        if entry.kind == Kind::Link {
            let target = rustix::fs::readlinkat(directory, name, Vec::new())?;
            entry.target = Some(OsString::from_vec(target.into_bytes()).into());
        }
        Ok(Some(entry))
    }

    pub(crate) fn of(stat: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Link,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => Kind::Device,
        };
        let time = |seconds: i64, nanoseconds: u64| Time(seconds, i64::try_from(nanoseconds).unwrap_or(i64::MAX));
        Entry {
            kind,
            mode: stat.st_mode & PERMISSIONS,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            device: stat.st_dev,
            inode: stat.st_ino,
            links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            modified: time(stat.st_mtime, stat.st_mtime_nsec),
            changed: time(stat.st_ctime, stat.st_ctime_nsec),
            is_whiteout: FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0,
            target: None,
        }
    }

    /// Whether this is what `base` was, for all that can be told: a rename changes the time of the last change and nothing else.
    pub(crate) fn is_still(&self, base: &Entry) -> bool {
        // The number of a device may be another one after a start of the machine; no other mount is entered.
        let is_same = (self.kind, self.inode) == (base.kind, base.inode);
        let is_untouched = (self.size, self.modified, self.mode) == (base.size, base.modified, base.mode);
        // What lies in a directory is looked at by itself.
        is_same && (is_untouched || self.kind == Kind::Directory)
    }
}
