//! A hard limit on what the session's overlays take, by project quota, where this process may set one. Owns the number and
//! lifting it again. Called by `launch`.

use std::os::fd::OwnedFd;
use std::path::Path;

use cofferdam_kernel::best_effort;
use cofferdam_kernel::quota;
use cofferdam_plan::QuotaPlan;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Numbers from here on are ours; two sessions that meet in one are told so by the kernel's account of it.
const FIRST: u32 = 0x4356_0000;
const NUMBERS: u32 = 0x8000;

/// Lifted when dropped.
#[derive(Debug)]
pub(crate) struct Quota {
    directory: OwnedFd,
    project: u32,
}

impl Quota {
    /// Puts a session's directory, with all that is in it so far, under its quota.
    pub(crate) fn put(directory: &Path, plan: QuotaPlan) -> Result<Self, Errno> {
        let fd = open(directory)?;
        let first = rustix::process::getpid().as_raw_nonzero().get().cast_unsigned() % NUMBERS;
        let numbers = (0..16).map(|more| FIRST + (first + more) % NUMBERS);
        let mut limited = numbers.map(|project| (project, quota::limit(&fd, project, plan.bytes, plan.files)));
        let (project, result) =
            limited.find(|(_, result)| *result != Err(Errno::EXIST)).unwrap_or((FIRST, Err(Errno::EXIST)));
        result?;
        let quota = Quota { directory: fd, project };
        quota.assign(directory)?;
        Ok(quota)
    }

    /// The directories were made a moment ago, by us, and are few.
    fn assign(&self, path: &Path) -> Result<(), Errno> {
        quota::assign(open(path)?, self.project)?;
        let entries = std::fs::read_dir(path).map_err(|_| Errno::IO)?;
        entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .try_for_each(|entry| self.assign(&entry.path()))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        best_effort(quota::lift(&self.directory, self.project), "a number without files limits no session");
    }
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}
