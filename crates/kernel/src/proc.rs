//! Writing to the real procfs, and reading what is read before. Owns the check that `/proc` is procfs and not something planted there.
//! Called by `launcher::apply` before the root is changed.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use thiserror::Error;

const PROC_SUPER_MAGIC: u64 = 0x9fa0;

/// Longer than most of the files that are read whole.
const FIRST_READ: usize = 8192;

#[derive(Debug, Error)]
pub enum ProcError {
    #[error("`/proc` is not a procfs: refusing to use it")]
    Fake,
    #[error("there is no openat2 here: the kernel is older than 5.6, or this runs inside a sandbox already")]
    NoOpenat2,
    #[error("cannot read `/proc/{file}`")]
    Read {
        file: String,
        #[source]
        errno: Errno,
    },
    #[error("cannot write `/proc/{file}`")]
    Write {
        file: String,
        #[source]
        errno: Errno,
    },
}

/// A handle on the host's procfs.
#[derive(Debug)]
pub struct Proc(OwnedFd);

impl AsFd for Proc {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Proc {
    pub fn open() -> Result<Self, ProcError> {
        let open = || -> Result<(OwnedFd, u64), Errno> {
            let fd = rustix::fs::openat2(
                CWD,
                c"/proc",
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
                ResolveFlags::NO_SYMLINKS,
            )?;
            let magic = rustix::fs::fstatfs(&fd)?.f_type;
            Ok((fd, magic.cast_unsigned()))
        };
        match open() {
            Ok((fd, PROC_SUPER_MAGIC)) => Ok(Proc(fd)),
            Err(Errno::NOSYS) => Err(ProcError::NoOpenat2),
            Ok(_) | Err(_) => Err(ProcError::Fake),
        }
    }

    /// The beginning of a short file.
    pub fn read(&self, file: &str) -> Result<String, ProcError> {
        let read = || -> Result<String, Errno> {
            let fd = self.open_file(file, OFlags::RDONLY)?;
            let mut buffer = [0u8; 256];
            let length = rustix::io::read(&fd, &mut buffer)?;
            Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
        };
        read().map_err(|errno| ProcError::Read { file: file.to_owned(), errno })
    }

    /// A file of any length; none where it is longer than this.
    pub fn read_whole(&self, file: &str, most: usize) -> Result<Option<Vec<u8>>, ProcError> {
        // Each read of such a file begins it anew in the kernel: few large ones.
        let mut content = Vec::with_capacity(most.min(FIRST_READ));
        let mut read = || -> Result<usize, Errno> {
            let fd = File::from(self.open_file(file, OFlags::RDONLY)?);
            let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
            fd.take(limit).read_to_end(&mut content).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        let length = read().map_err(|errno| ProcError::Read { file: file.to_owned(), errno })?;
        Ok((length <= most).then_some(content))
    }

    fn open_file(&self, file: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::openat2(
            self.0.as_fd(),
            Path::new(file),
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS,
        )
    }

    /// Writes `text` to a file of procfs in one call, never crossing into another mount.
    pub fn write(&self, file: &str, text: &str) -> Result<(), ProcError> {
        let write = || -> Result<(), Errno> {
            let fd = self.open_file(file, OFlags::WRONLY)?;
            let written = rustix::io::write(&fd, text.as_bytes())?;
            if written == text.len() { Ok(()) } else { Err(Errno::IO) }
        };
        write().map_err(|errno| ProcError::Write { file: file.to_owned(), errno })
    }
}
