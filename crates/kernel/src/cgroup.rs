//! A cgroup of the unified hierarchy (v2) as a directory of small files. Owns opening, making, reading, writing and
//! removing; knows no limit and no layout. Called by `supervisor`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;
/// Longer than any file that is read here; the kernel's own files end long before.
const MOST: usize = 1 << 16;

/// An open cgroup directory; everything goes through its descriptor.
#[derive(Debug)]
pub struct Cgroup(OwnedFd);

impl Cgroup {
    /// Opens a directory, if it is one of cgroup v2 and not something planted there.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        Self::checked(rustix::fs::openat2(CWD, path, DIRECTORY, Mode::empty(), ResolveFlags::NO_MAGICLINKS)?)
    }

    pub fn open_below(&self, name: &str) -> Result<Self, Errno> {
        Self::checked(rustix::fs::openat2(&self.0, name, DIRECTORY, Mode::empty(), BELOW)?)
    }

    fn checked(fd: OwnedFd) -> Result<Self, Errno> {
        let magic = rustix::fs::fstatfs(&fd)?.f_type;
        if magic.cast_unsigned() == CGROUP2_SUPER_MAGIC { Ok(Cgroup(fd)) } else { Err(Errno::NOTSUP) }
    }

    /// Makes a cgroup below this one.
    pub fn create(&self, name: &str) -> Result<Self, Errno> {
        rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o755))?;
        self.open_below(name)
    }

    /// Removes a cgroup below this one. It must be empty: no process, no cgroup.
    pub fn remove(&self, name: &str) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)
    }

    /// In one call, as the kernel wants it.
    pub fn write(&self, file: &str, text: &str) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat2(&self.0, file, flags, Mode::empty(), BELOW)?;
        let written = rustix::io::write(&fd, text.as_bytes())?;
        if written == text.len() { Ok(()) } else { Err(Errno::IO) }
    }

    pub fn read(&self, file: &str) -> Result<String, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat2(&self.0, file, flags, Mode::empty(), BELOW)?;
        let mut text = Vec::new();
        let mut buffer = [0u8; 4096];
        loop {
            match rustix::io::read(&fd, &mut buffer) {
                Ok(0) => break,
                Ok(_) if text.len() >= MOST => return Err(Errno::FBIG),
                Ok(count) => text.extend_from_slice(&buffer[..count]),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        String::from_utf8(text).map_err(|_| Errno::ILSEQ)
    }

    /// Ends every process in it and below it, at once.
    pub fn kill(&self) -> Result<(), Errno> {
        self.write("cgroup.kill", "1")
    }
}

impl AsFd for Cgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const BELOW: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);
