//! Puts together what a commit will move into place: links to files of the upper layer where they lie on one mount with the
//! target, else copies. Owns what is taken off on the way (set-user-ID bits, attributes of overlayfs, capabilities). Called by
//! `commit`, before there is a journal.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use cofferdam_kernel::best_effort;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, Timespec, Timestamps};
use rustix::io::Errno;

use crate::attributes::{OVERLAY, attribute_names, attributes};
use crate::beneath::{self, Unclosed};
use crate::entry::{Entry, Kind, PERMISSIONS};
use crate::sparse;

/// Where what is staged comes from.
pub(crate) struct Source<'a> {
    pub(crate) upper: BorrowedFd<'a>,
    /// Whether links are possible and harmless: one mount, and no process of the session left.
    pub(crate) may_link: bool,
    /// How many names of each file are taken, where it has more than one.
    pub(crate) taken: HashMap<u64, u32>,
    /// Copies of files with more than one name.
    pub(crate) copied: HashMap<u64, PathBuf>,
    /// Files of which one name was staged as a link, which is one name more.
    pub(crate) linked: HashSet<u64>,
}

impl Source<'_> {
    /// Makes `name` in `stage` out of `path` of the upper layer and of what is taken below it.
    pub(crate) fn stage(
        &mut self,
        path: &Path,
        takes: &[PathBuf],
        stage: BorrowedFd<'_>,
        name: &str,
    ) -> Result<Entry, Errno> {
        let mut modes: Vec<(PathBuf, u32)> = Vec::new();
        // Outer directories come first, each looked at before it is opened.
        let mut kept: Vec<Unclosed> = Vec::new();
        for taken in takes {
            let relative = taken.strip_prefix(path).map_err(|_| Errno::INVAL)?;
            let to = if relative.as_os_str().is_empty() { PathBuf::from(name) } else { Path::new(name).join(relative) };
            // A name that goes with the directory in whose place something else comes.
            let (from, last, unclosed) = match beneath::layer_parent(self.upper, taken) {
                Err(Errno::NOTDIR | Errno::NOENT) => continue,
                other => other?,
            };
            kept.extend(unclosed);
            let Some(entry) = Entry::at(from.as_fd(), last)?.filter(|entry| !entry.is_whiteout) else { continue };
            let (into, new) = beneath::parent(stage, &to)?;
            match (entry.kind, entry.target.as_deref()) {
                (Kind::Directory, _) => {
                    rustix::fs::mkdirat(&into, new, Mode::RWXU)?;
                    modes.push((to, entry.mode));
                }
                (Kind::Link, Some(target)) => rustix::fs::symlinkat(target, &into, new)?,
                (Kind::File, _) => self.file(from.as_fd(), last, &entry, stage, &to)?,
                _ => return Err(Errno::INVAL),
            }
        }
        for (directory, mode) in modes.into_iter().rev() {
            let opened = beneath::directory(stage, &directory)?;
            rustix::fs::fchmod(&opened, Mode::from_raw_mode(mode))?;
        }
        Entry::at(stage, OsStr::new(name))?.ok_or(Errno::NOENT)
    }

    fn file(
        &mut self,
        from: BorrowedFd<'_>,
        name: &OsStr,
        entry: &Entry,
        stage: BorrowedFd<'_>,
        to: &Path,
    ) -> Result<(), Errno> {
        let (into, new) = beneath::parent(stage, to)?;
        // No name that stays in the layer may be a name of the host's file.
        let is_whole = || entry.links == 1 || self.taken.get(&entry.inode) == Some(&entry.links);
        if self.may_link && (self.linked.contains(&entry.inode) || is_whole() && clean(from, name)?) {
            self.linked.insert(entry.inode);
            return rustix::fs::linkat(from, name, &into, new, AtFlags::empty());
        }
        if let Some(copy) = self.copied.get(&entry.inode) {
            let (directory, last) = beneath::parent(stage, copy)?;
            return rustix::fs::linkat(&directory, last, &into, new, AtFlags::empty());
        }
        copy_closed_file((from, name), entry, into.as_fd(), new)?;
        if entry.links > 1 {
            self.copied.insert(entry.inode, to.to_path_buf());
        }
        Ok(())
    }
}

/// Takes off what is not for the host. `false` where something cannot be taken off, and a copy has to do.
fn clean(directory: BorrowedFd<'_>, name: &OsStr) -> Result<bool, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mode = rustix::fs::fstat(&file)?.st_mode & 0o7777;
    if mode & !PERMISSIONS != 0 {
        rustix::fs::chmod(&itself, Mode::from_raw_mode(mode & PERMISSIONS))?;
    }
    for attribute in attribute_names(|buffer| rustix::fs::listxattr(&itself, buffer))? {
        let is_ours = attribute.starts_with(b"user.") && !attribute.starts_with(OVERLAY.as_bytes());
        let is_of_host = attribute.starts_with(b"system.posix_acl") || attribute == *b"security.selinux";
        if !is_ours && !is_of_host && rustix::fs::removexattr(&itself, attribute.as_slice()).is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Content, permissions, time of the last write and the attributes that programs set.
pub(crate) fn copy_file(from: BorrowedFd<'_>, name: &OsStr, into: BorrowedFd<'_>, new: &OsStr) -> Result<(), Errno> {
    copy_file_within(from, name, into, new, u64::MAX).map(drop)
}

/// The same of a file that a workload may have closed to its owner, and so is the copy then.
fn copy_closed_file(
    (from, name): (BorrowedFd<'_>, &OsStr),
    entry: &Entry,
    into: BorrowedFd<'_>,
    new: &OsStr,
) -> Result<(), Errno> {
    let copy = || copy_file(from, name, into, new);
    match copy() {
        Err(Errno::ACCESS) => {
            beneath::with_reading(from, name, copy)?;
            let made = beneath::opened_as_path(into, new)?;
            rustix::fs::chmod(beneath::itself(&made), Mode::from_raw_mode(entry.mode))
        }
        other => other,
    }
}

/// The same of a file that may grow meanwhile: what it was when it was opened, and no more than `most`. Whether both share their content
/// on the disk, where the file system can.
pub(crate) fn copy_file_within(
    from: BorrowedFd<'_>,
    name: &OsStr,
    into: BorrowedFd<'_>,
    new: &OsStr,
    most: u64,
) -> Result<bool, Errno> {
    let source = beneath::file(from, name)?;
    let stat = rustix::fs::fstat(&source)?;
    let entry = Entry::of(&stat);
    if entry.kind != Kind::File {
        return Err(Errno::INVAL);
    }
    if entry.size > most {
        return Err(Errno::FBIG);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let copy = std::fs::File::from(rustix::fs::openat(into, new, flags, Mode::RUSR | Mode::WUSR)?);
    let is_shared = rustix::fs::ioctl_ficlone(&copy, &source).is_ok();
    if is_shared {
        rustix::fs::ftruncate(&copy, entry.size)?;
    } else {
        copy_content(&source, &copy, entry.size)?;
    }
    for (attribute, value) in attributes(&source)? {
        let set = rustix::fs::fsetxattr(&copy, attribute.as_slice(), &value, rustix::fs::XattrFlags::empty());
        best_effort(set, "a file system without attributes keeps the content");
    }
    let time = Timespec { tv_sec: entry.modified.0, tv_nsec: entry.modified.1 };
    rustix::fs::futimens(&copy, &Timestamps { last_access: time, last_modification: time })?;
    rustix::fs::fchmod(&copy, Mode::from_raw_mode(entry.mode))?;
    Ok(is_shared)
}

/// The first `size` bytes of a file, without what was never written: a workload makes holes of any size for nothing.
fn copy_content(source: &std::fs::File, copy: &std::fs::File, size: u64) -> Result<(), Errno> {
    use std::io::Read as _;
    for data in sparse::data(source, size) {
        let Range { start, end } = data?;
        rustix::fs::seek(source, SeekFrom::Start(start))?;
        rustix::fs::seek(copy, SeekFrom::Start(start))?;
        // The kernel copies, and shares blocks where the file system can.
        std::io::copy(&mut source.take(end - start), &mut { copy })
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    }
    rustix::fs::ftruncate(copy, size)
}

/// A file of the host with other content: the attributes that programs set stay, and its permissions where no others are given.
pub(crate) fn write_part(
    (from, name): (BorrowedFd<'_>, &OsStr),
    content: &[u8],
    mode: Option<u32>,
    into: BorrowedFd<'_>,
    new: &str,
) -> Result<Entry, Errno> {
    use std::io::Write as _;
    let source = beneath::file(from, name)?;
    let owner = rustix::fs::fstat(&source)?;
    let entry = Entry::of(&owner);
    if entry.kind != Kind::File {
        return Err(Errno::INVAL);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = std::fs::File::from(rustix::fs::openat(into, new, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(content).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    for (attribute, value) in attributes(&source)? {
        let set = rustix::fs::fsetxattr(&file, attribute.as_slice(), &value, rustix::fs::XattrFlags::empty());
        best_effort(set, "a file system without attributes keeps the content");
    }
    let own = rustix::fs::fstat(&file)?;
    if (own.st_uid, own.st_gid) != (owner.st_uid, owner.st_gid) {
        let (user, group) = (rustix::fs::Uid::from_raw(owner.st_uid), rustix::fs::Gid::from_raw(owner.st_gid));
        best_effort(rustix::fs::fchown(&file, Some(user), Some(group)), "a user can give files to no other");
    }
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode.unwrap_or(entry.mode) & PERMISSIONS))?;
    Entry::at(into, OsStr::new(new))?.ok_or(Errno::NOENT)
}

/// Copies whatever has the name, with all that lies below it, or fails.
pub(crate) fn copy_tree(
    from: BorrowedFd<'_>,
    name: &OsStr,
    into: BorrowedFd<'_>,
    new: &OsStr,
    depth: usize,
) -> Result<(), Errno> {
    let Some(entry) = Entry::at(from, name)? else { return Ok(()) };
    match (entry.kind, entry.target.as_deref()) {
        (Kind::File, _) => copy_closed_file((from, name), &entry, into, new),
        (Kind::Link, Some(target)) => rustix::fs::symlinkat(target, into, new),
        (Kind::Directory, _) if depth > 0 => {
            rustix::fs::mkdirat(into, new, Mode::RWXU)?;
            let (source, _unclosed) = beneath::layer_directory(from, name)?;
            let copy = beneath::directory(into, Path::new(new))?;
            for name in beneath::names(source.as_fd(), 1 << 20)? {
                copy_tree(source.as_fd(), &name, copy.as_fd(), &name, depth - 1)?;
            }
            rustix::fs::fchmod(&copy, Mode::from_raw_mode(entry.mode))
        }
        (Kind::Directory, _) => Err(Errno::OVERFLOW),
        (Kind::Fifo, _) => rustix::fs::mknodat(into, new, FileType::Fifo, Mode::from_raw_mode(entry.mode), 0),
        (Kind::Socket, _) => rustix::fs::mknodat(into, new, FileType::Socket, Mode::from_raw_mode(entry.mode), 0),
        // A copy without it would not be whole.
        (Kind::Device | Kind::Link, _) => Err(Errno::NODEV),
    }
}

/// A directory that did not exist before, for its owner alone.
pub(crate) fn make(parent: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::mkdirat(parent, name, Mode::RWXU)?;
    beneath::directory(parent, Path::new(name))
}

/// A name that no other process can know before it exists.
pub(crate) fn unknown_name() -> Result<String, Errno> {
    use std::fmt::Write as _;
    let mut bytes = [0u8; 16];
    let length = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if length != bytes.len() {
        return Err(Errno::IO);
    }
    let mut name = String::from(".cofferdam-commit-");
    for byte in bytes {
        write!(name, "{byte:02x}").map_err(|_| Errno::IO)?;
    }
    Ok(name)
}

/// Everything below a path of the file system that it lies on is on the disk afterwards.
pub(crate) fn sync_file_system(directory: impl AsFd) -> Result<(), Errno> {
    rustix::fs::syncfs(directory)
}
