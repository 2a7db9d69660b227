//! Writing to the real procfs. Owns the check that `/proc` is procfs and not something planted there.
//! Called by `launcher::apply` before the root is changed.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use thiserror::Error;

const PROC_SUPER_MAGIC: u64 = 0x9fa0;

#[derive(Debug, Error)]
pub enum ProcError {
    #[error("`/proc` is not a procfs: refusing to write to it")]
    Fake,
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
            Ok(_) | Err(_) => Err(ProcError::Fake),
        }
    }

    /// Writes `text` to a file of procfs in one call, never crossing into another mount.
    pub fn write(&self, file: &str, text: &str) -> Result<(), ProcError> {
        let write = || -> Result<(), Errno> {
            let fd = rustix::fs::openat2(
                self.0.as_fd(),
                Path::new(file),
                OFlags::WRONLY | OFlags::CLOEXEC,
                Mode::empty(),
                ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS,
            )?;
            let written = rustix::io::write(&fd, text.as_bytes())?;
            if written == text.len() { Ok(()) } else { Err(Errno::IO) }
        };
        write().map_err(|errno| ProcError::Write { file: file.to_owned(), errno })
    }
}
