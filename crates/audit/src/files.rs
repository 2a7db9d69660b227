//! The directory of the chain: names, how files in it are opened, and its lock. Owns no content. Used by every
//! module that reads or writes here. Files belong to the user alone; no link is followed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

pub(crate) const HEAD: &str = "head";
pub(crate) const CHECKPOINT: &str = "checkpoint";
pub(crate) const PRUNED: &str = "pruned";
pub(crate) const KEY: &str = "key";
pub(crate) const PUBLIC_KEY: &str = "key.pub";

/// Longest wait for another process's append. A process that was stopped in the middle of one holds up no other for ever.
const PATIENCE: Duration = Duration::from_secs(2);

const SAFE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

pub(crate) fn name_of(number: u32) -> String {
    format!("{number:08}.ndjson")
}

fn number_of(name: &[u8]) -> Option<u32> {
    let digits = str::from_utf8(name).ok()?.strip_suffix(".ndjson")?;
    let number = digits.parse().ok()?;
    (name_of(number).as_bytes() == name).then_some(number)
}

pub(crate) fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | SAFE, Mode::empty())
}

/// The same, made where it is not there yet.
pub(crate) fn make_directory(path: &Path) -> Result<OwnedFd, Errno> {
    match open_directory(path) {
        Err(Errno::NOENT) => {
            if let Some(parent) = path.parent() {
                make_directory(parent)?;
            }
            match rustix::fs::mkdir(path, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => open_directory(path),
                Err(errno) => Err(errno),
            }
        }
        other => other,
    }
}

/// The numbers of the files of the chain, in order.
pub(crate) fn numbers(directory: BorrowedFd<'_>) -> Result<Vec<u32>, Errno> {
    let mut numbers = Vec::new();
    for entry in Dir::read_from(directory)? {
        numbers.extend(number_of(entry?.file_name().to_bytes()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

pub(crate) fn open_to_append(directory: BorrowedFd<'_>, number: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | SAFE;
    rustix::fs::openat(directory, name_of(number), flags, Mode::RUSR | Mode::WUSR)
}

/// Opened to be written in place; made where it is not there.
pub(crate) fn open_in_place(directory: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | SAFE;
    rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)
}

/// `None` if there is no such file.
pub(crate) fn open_to_read(directory: BorrowedFd<'_>, name: &str) -> Result<Option<OwnedFd>, Errno> {
    match rustix::fs::openat(directory, name, OFlags::RDONLY | SAFE, Mode::empty()) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// A small file, if it is there.
pub(crate) fn read_small(directory: BorrowedFd<'_>, name: &str) -> Result<Option<Vec<u8>>, Errno> {
    let Some(file) = open_to_read(directory, name)? else { return Ok(None) };
    read_at(file.as_fd(), 0, 64 << 10).map(Some)
}

/// Puts a file in place as a whole.
pub(crate) fn replace(directory: BorrowedFd<'_>, name: &str, content: &[u8]) -> Result<(), Errno> {
    let new = format!("{name}.new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | SAFE;
    let file = rustix::fs::openat(directory, &new, flags, Mode::RUSR | Mode::WUSR)?;
    if rustix::io::write(&file, content)? != content.len() {
        return Err(Errno::NOSPC);
    }
    rustix::fs::renameat(directory, &new, directory, name)
}

/// Up to `most` bytes from `offset` on.
pub(crate) fn read_at(file: BorrowedFd<'_>, offset: u64, most: u64) -> Result<Vec<u8>, Errno> {
    let most = usize::try_from(most).map_err(|_| Errno::FBIG)?;
    let mut bytes = vec![0; most];
    let mut filled = 0;
    while filled < most {
        match rustix::io::pread(file, &mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

pub(crate) fn size_of(file: impl AsFd) -> Result<u64, Errno> {
    Ok(u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0))
}

pub(crate) fn exists(directory: BorrowedFd<'_>, name: &str) -> bool {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// The lock on the chain, until dropped.
#[derive(Debug)]
pub(crate) struct Lock<'a>(BorrowedFd<'a>);

impl<'a> Lock<'a> {
    pub(crate) fn to_write(directory: BorrowedFd<'a>) -> Result<Self, Errno> {
        Lock::take(directory, FlockOperation::NonBlockingLockExclusive)
    }

    pub(crate) fn to_read(directory: BorrowedFd<'a>) -> Result<Self, Errno> {
        Lock::take(directory, FlockOperation::NonBlockingLockShared)
    }

    fn take(directory: BorrowedFd<'a>, operation: FlockOperation) -> Result<Self, Errno> {
        let mut pause = Duration::from_micros(20);
        let mut began = None;
        loop {
            match rustix::fs::flock(directory, operation) {
                Ok(()) => return Ok(Lock(directory)),
                Err(Errno::WOULDBLOCK) => {}
                Err(errno) => return Err(errno),
            }
            if began.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return Err(Errno::TIMEDOUT);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // Cannot fail on a descriptor that is open; closing it would do the same.
        rustix::fs::flock(self.0, FlockOperation::Unlock).unwrap_or_default();
    }
}
