//! Stand-ins for names that must not come into being while a session runs (docs/decisions/0003). Owns making, sharing and
//! removing them on the host; what covers them inside is a mount of the plan. Called by `launch`.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::message::best_effort;
use cofferdam_kernel::mount::open_source;
use cofferdam_plan::{Hold, HoldKind};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// Sticky, for the owner's eyes only and not writable: nobody else makes an empty directory like that, so it is
/// recognised as ours. Programs of the host that look for a file in it find none, as if the directory were missing.
const DIRECTORY_MARK: u32 = 0o1500;
const FILE_MARK: u32 = 0o1400;

/// The name is held until this is dropped. The shared lock tells other sessions of the project that somebody needs it.
#[derive(Debug)]
struct Held {
    parent: OwnedFd,
    name: OsString,
    lock: OwnedFd,
    is_directory: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Holds(Vec<Held>);

impl Holds {
    pub(crate) fn take(holds: &[Hold]) -> Result<Self, (PathBuf, Errno)> {
        let mut taken = Holds::default();
        for hold in holds {
            taken.0.push(take(hold).map_err(|errno| (hold.path.clone(), errno))?);
        }
        Ok(taken)
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        for held in self.0.drain(..) {
            // Somebody else's shared lock means that the stand-in is still needed: the last session removes it.
            if rustix::fs::flock(&held.lock, FlockOperation::NonBlockingLockExclusive).is_ok() && is_still_ours(&held) {
                let flags = if held.is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                let removed = rustix::fs::unlinkat(&held.parent, &held.name, flags);
                best_effort(removed, "a directory that somebody filled from outside stays, and that is right");
            }
        }
    }
}

fn is_still_ours(held: &Held) -> bool {
    let ours = rustix::fs::fstat(&held.lock);
    let there = rustix::fs::statat(&held.parent, &held.name, AtFlags::SYMLINK_NOFOLLOW);
    matches!((ours, there), (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
}

fn take(hold: &Hold) -> Result<Held, Errno> {
    let (Some(parent), Some(name)) = (hold.path.parent(), hold.path.file_name()) else { return Err(Errno::INVAL) };
    let parent = open_source(parent)?;
    // A session that ends removes the stand-in between our look and our lock; then it is made anew.
    for _ in 0..16 {
        let made = match &hold.kind {
            HoldKind::Directory => rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(DIRECTORY_MARK)),
            HoldKind::File(text) => make_file(&parent, Path::new(name), text),
        };
        if let Err(errno) = made
            && errno != Errno::EXIST
        {
            return Err(errno);
        }
        let is_directory = hold.kind == HoldKind::Directory;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let lock = match rustix::fs::openat(&parent, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        rustix::fs::flock(&lock, FlockOperation::LockShared)?;
        let candidate =
            Held { parent: rustix::io::fcntl_dupfd_cloexec(&parent, 3)?, name: name.to_owned(), lock, is_directory };
        if is_still_ours(&candidate) {
            return Ok(candidate);
        }
    }
    Err(Errno::BUSY)
}

/// Appears under its name complete, or not at all.
fn make_file(parent: &OwnedFd, name: &Path, text: &str) -> Result<(), Errno> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, c".", flags, Mode::from_raw_mode(FILE_MARK))?;
    rustix::io::write(&file, text.as_bytes())?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(FILE_MARK))?;
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    rustix::fs::linkat(rustix::fs::CWD, path, parent, name, AtFlags::SYMLINK_FOLLOW)
}

/// Whether what is at a path is a stand-in that a session left or still uses: it then counts as missing.
pub(crate) fn is_stand_in(stat: &rustix::fs::Stat) -> bool {
    let mode = stat.st_mode & 0o7777;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => mode == DIRECTORY_MARK,
        FileType::RegularFile => mode == FILE_MARK && stat.st_size <= 64,
        _ => false,
    }
}
