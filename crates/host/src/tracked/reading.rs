//! Reading what a session may have made: regular files below one directory, so many bytes, so much time.

use std::cell::Cell;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

/// Longest file that is compared; settings are a page or two.
pub(super) const LONGEST_FILE: u64 = 1 << 16;
/// So long a start or an end waits for the answers about all files. What is not answered by then counts as not tracked.
pub(super) const LONGEST_WAIT: Duration = Duration::from_millis(200);
/// So many bytes are read and made however long it takes: a busy machine must not hide what a quiet one shows.
pub(super) const LEAST_WORK: usize = 16 << 20;

/// What may be spent on one repository: a session can make one whose objects take minutes to put together.
#[derive(Debug)]
pub(super) struct Budget {
    begin: Instant,
    pub(super) spent: Cell<usize>,
}

impl Budget {
    pub(super) fn new() -> Self {
        Budget { begin: Instant::now(), spent: Cell::new(0) }
    }

    /// `None` where it is used up.
    pub(super) fn spend(&self, bytes: usize) -> Option<()> {
        self.spent.set(self.spent.get().saturating_add(bytes));
        (!self.is_spent()).then_some(())
    }

    pub(super) fn is_spent(&self) -> bool {
        self.spent.get() > LEAST_WORK && self.begin.elapsed() > LONGEST_WAIT
    }
}

pub(super) const WITHIN: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// A regular file below a directory, through no link and on no other mount; never waits.
pub(super) fn open_file(directory: &OwnedFd, name: &Path) -> Option<std::fs::File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    regular(rustix::fs::openat2(directory, name, flags, Mode::empty(), WITHIN).ok()?)
}

pub(super) fn regular(file: OwnedFd) -> Option<std::fs::File> {
    let stat = rustix::fs::fstat(&file).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| file.into())
}

/// The content of a short regular file.
pub(super) fn read_file(path: &Path) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = regular(rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve).ok()?)?;
    read_at_most(file, LONGEST_FILE)
}

/// All of it, if it is no longer than `most`.
pub(super) fn read_at_most(file: impl std::io::Read, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}
