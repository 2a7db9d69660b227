//! Opening what lies below a directory that is held open: no link is followed, nothing above it is reached, no other mount is
//! entered. Owns that one way of opening; used by everything in this crate.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use cofferdam_kernel::best_effort;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Directories in directories, as far as anything is looked for or copied: two are open for each.
pub(crate) const DEEPEST: usize = 200;

/// How often something is opened that the kernel could not follow because of a rename meanwhile.
const MOST_TRIES: usize = 100;

fn open(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    for _ in 0..MOST_TRIES {
        match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// A directory at a path relative to `root`; the empty path is `root` itself.
pub(crate) fn directory(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    open(root, path, DIRECTORY)
}

/// The directory in which a path lies, and its last name.
pub(crate) fn parent<'a>(root: BorrowedFd<'_>, path: &'a Path) -> Result<(OwnedFd, &'a OsStr), Errno> {
    let name = path.file_name().ok_or(Errno::INVAL)?;
    Ok((directory(root, path.parent().unwrap_or(Path::new("")))?, name))
}

/// A regular file for reading; never waits for a pipe that stands there.
pub(crate) fn file(directory: BorrowedFd<'_>, name: &OsStr) -> Result<std::fs::File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(open(directory, Path::new(name), flags)?.into())
}

/// A directory by its absolute path, from which everything below is reached. No link is followed at its end.
pub(crate) fn root(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())
}

/// A directory of an upper layer: the workload may have closed it to its owner, and it is opened and closed again.
pub(crate) fn closed_directory(parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    match open(parent, Path::new(name), DIRECTORY) {
        Err(Errno::ACCESS) => {}
        other => return other,
    }
    let closed = open(parent, Path::new(name), OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&closed)?.st_mode);
    // What was opened is changed, whatever has the name by now.
    let itself = format!("/proc/self/fd/{}", closed.as_raw_fd());
    rustix::fs::chmod(&itself, mode | Mode::RUSR | Mode::XUSR)?;
    let opened = open(parent, Path::new(name), DIRECTORY);
    rustix::fs::chmod(&itself, mode)?;
    opened
}

/// A directory of an upper layer that the workload closed to its owner, open until this is dropped. A process that is ended before
/// leaves it open to its owner.
#[derive(Debug)]
pub(crate) struct Unclosed {
    closed: OwnedFd,
    mode: Mode,
}

impl Drop for Unclosed {
    fn drop(&mut self) {
        best_effort(
            rustix::fs::chmod(itself(&self.closed), self.mode),
            "it is open to its owner, and to no other user",
        );
    }
}

/// A directory of an upper layer in which names can be looked up as long as what comes with it is kept.
pub(crate) fn layer_directory(parent: BorrowedFd<'_>, name: &OsStr) -> Result<(OwnedFd, Option<Unclosed>), Errno> {
    let open_and_enter = || {
        let opened = open(parent, Path::new(name), DIRECTORY)?;
        // One that can only be listed is as good as closed.
        rustix::fs::statat(&opened, ".", AtFlags::empty()).map(|_| opened)
    };
    match open_and_enter() {
        Err(Errno::ACCESS) => {}
        other => return Ok((other?, None)),
    }
    let closed = open(parent, Path::new(name), OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&closed)?.st_mode);
    rustix::fs::chmod(itself(&closed), mode | Mode::RWXU)?;
    let unclosed = Unclosed { closed, mode };
    Ok((open_and_enter()?, Some(unclosed)))
}

/// The directory of an upper layer in which a path lies, its last name, and what keeps the way there open.
pub(crate) fn layer_parent<'a>(
    root: BorrowedFd<'_>,
    path: &'a Path,
) -> Result<(OwnedFd, &'a OsStr, Vec<Unclosed>), Errno> {
    match parent(root, path) {
        Err(Errno::ACCESS) => {}
        Ok((directory, name)) => match rustix::fs::statat(&directory, ".", AtFlags::empty()) {
            Err(Errno::ACCESS) => {}
            entered => return entered.map(|_| (directory, name, Vec::new())),
        },
        Err(errno) => return Err(errno),
    }
    let (mut at, mut kept) = (directory(root, Path::new(""))?, Vec::new());
    for name in path.parent().into_iter().flat_map(Path::iter) {
        let (next, unclosed) = layer_directory(at.as_fd(), name)?;
        kept.extend(unclosed);
        at = next;
    }
    Ok((at, path.file_name().ok_or(Errno::INVAL)?, kept))
}

/// A regular file of an upper layer for reading, also one that the workload closed to its owner.
pub(crate) fn layer_file(directory: BorrowedFd<'_>, name: &OsStr) -> Result<std::fs::File, Errno> {
    match file(directory, name) {
        Err(Errno::ACCESS) => {}
        other => return other,
    }
    let mut opened = Err(Errno::ACCESS);
    with_reading(directory, name, || {
        opened = file(directory, name);
        Ok(())
    })?;
    opened
}

/// The same for a file of an upper layer, while something is done with it.
pub(crate) fn with_reading(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    read: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let closed = opened_as_path(parent, name)?;
    let stat = rustix::fs::fstat(&closed)?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let mode = Mode::from_raw_mode(stat.st_mode);
    rustix::fs::chmod(itself(&closed), mode | Mode::RUSR)?;
    let done = read();
    rustix::fs::chmod(itself(&closed), mode)?;
    done
}

/// The names in a directory, sorted.
pub(crate) fn names(directory: BorrowedFd<'_>, most: usize) -> Result<Vec<std::ffi::OsString>, Errno> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut names = Vec::new();
    let mut entries = Dir::read_from(directory)?;
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if names.len() == most {
            return Err(Errno::OVERFLOW);
        }
        names.push(OsStr::from_bytes(name).to_owned());
    }
    names.sort();
    Ok(names)
}

/// The mount that a descriptor lies on: a rename does not leave it.
pub(crate) fn mount_of(directory: impl AsFd) -> Result<(u64, u64), Errno> {
    use rustix::fs::{AtFlags, StatxFlags};
    let stat = rustix::fs::statx(directory.as_fd(), "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID | StatxFlags::INO)?;
    Ok((rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_mnt_id))
}

/// Whatever has the name, without opening it.
pub(crate) fn opened_as_path(parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    open(parent, Path::new(name), OFlags::PATH | OFlags::NOFOLLOW)
}

/// The name under which the kernel knows what a descriptor was opened on.
pub(crate) fn itself(opened: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", opened.as_raw_fd())
}
