//! Empties a directory that a hostile workload filled: a tree of any depth, any number of files, any modes. Owns the walk:
//! descriptors and stack are bounded, no link is followed, and it can stop at any time and go on later, because all its
//! progress is on disk. Called by `session_dir` at the end of a session and by `sweep` for sessions that were killed.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Directories open at a time. What lies deeper is moved up to the top first.
const DEEPEST: usize = 16;

/// How far a removal got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is left but what was spared.
    Done,
    /// The time was up; there is more to do.
    OutOfTime,
    /// Everything was tried, and something could not be removed.
    Stuck,
}

/// A directory that is being emptied.
#[derive(Debug)]
pub struct Removal {
    /// The way from the top to where the walk is; the first is the top itself.
    open: Vec<Level>,
    device: u64,
    /// Names in the top that stay.
    spared: Vec<CString>,
    /// How many subtrees were moved up to the top so far.
    moved: u64,
    /// The same when the present pass over the top began: a pass that moved something is followed by another.
    moved_before: u64,
    stuck: bool,
}

#[derive(Debug)]
struct Level {
    directory: Dir,
    /// In the directory above; empty for the top.
    name: CString,
}

impl Removal {
    /// `top` is emptied but for the names in `spared`; it stays itself.
    pub fn new(top: OwnedFd, spared: Vec<CString>) -> Result<Self, Errno> {
        let device = rustix::fs::fstat(&top)?.st_dev;
        let top = Level { directory: Dir::new(top)?, name: CString::default() };
        Ok(Removal { open: vec![top], device, spared, moved: 0, moved_before: 0, stuck: false })
    }

    /// Goes on until everything is gone or it is `until`.
    pub fn turn(&mut self, until: Instant) -> Progress {
        while let Some(level) = self.open.last_mut() {
            match level.directory.read() {
                Some(Ok(entry)) => self.remove(entry.file_name(), entry.file_type()),
                Some(Err(_)) => {
                    self.stuck = true;
                    self.leave();
                }
                None => self.leave(),
            }
            if Instant::now() >= until && !self.open.is_empty() {
                return Progress::OutOfTime;
            }
        }
        if self.stuck { Progress::Stuck } else { Progress::Done }
    }

    /// Removes one entry of the directory where the walk is, or descends into it.
    fn remove(&mut self, name: &CStr, kind: FileType) {
        let is_spared = self.open.len() == 1 && self.spared.iter().any(|spared| spared.as_c_str() == name);
        if is_spared || matches!(name.to_bytes(), b"." | b"..") {
            return;
        }
        let removed = match kind {
            FileType::Directory => Err(Errno::ISDIR),
            _ => self.unlink(name, AtFlags::empty()),
        };
        let removed = match removed {
            // Most are empty, and then there is nothing to descend into.
            Err(Errno::ISDIR) => match self.unlink(name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY | Errno::EXIST) => self.descend(name),
                other => other,
            },
            other => other,
        };
        self.stuck |= !matches!(removed, Ok(()) | Err(Errno::NOENT));
    }

    fn unlink(&self, name: &CStr, flags: AtFlags) -> Result<(), Errno> {
        rustix::fs::unlinkat(self.here()?, name, flags)
    }

    fn here(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.open.last().ok_or(Errno::BADF)?.directory.fd()
    }

    fn descend(&mut self, name: &CStr) -> Result<(), Errno> {
        let directory = open_for_removal(self.here()?, name)?;
        if rustix::fs::fstat(&directory)?.st_dev != self.device {
            // Another process's mount: not part of the tree.
            return Err(Errno::XDEV);
        }
        if self.open.len() < DEEPEST {
            self.open.push(Level { directory: Dir::new(directory)?, name: name.to_owned() });
            return Ok(());
        }
        drop(directory);
        self.move_up(name)
    }

    /// Moves a subtree to the top, where the walk finds it in this pass or in the next.
    fn move_up(&mut self, name: &CStr) -> Result<(), Errno> {
        let (Some(top), Some(here)) = (self.open.first(), self.open.last()) else { return Err(Errno::BADF) };
        let (top, here) = (top.directory.fd()?, here.directory.fd()?);
        loop {
            self.moved += 1;
            match rustix::fs::renameat(here, name, top, format!("deep-{}", self.moved)) {
                // Left by a removal that was cut short.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                other => return other,
            }
        }
    }

    /// The directory where the walk is has been read to its end.
    fn leave(&mut self) {
        if self.open.len() == 1 && self.moved != self.moved_before {
            self.moved_before = self.moved;
            self.open[0].directory.rewind();
            return;
        }
        let Some(left) = self.open.pop() else { return };
        if let Some(parent) = self.open.last() {
            let removed = parent.directory.fd().and_then(|fd| rustix::fs::unlinkat(fd, &left.name, AtFlags::REMOVEDIR));
            self.stuck |= !matches!(removed, Ok(()) | Err(Errno::NOENT));
        }
    }
}

/// overlayfs leaves directories of mode 000, and so may the command: each is opened up before it is emptied or moved.
fn open_for_removal(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(parent, name, flags | OFlags::RDONLY, Mode::empty());
    let directory = match open() {
        Err(Errno::ACCESS) => {
            let closed = rustix::fs::openat(parent, name, flags | OFlags::PATH, Mode::empty())?;
            // What was opened is changed, whatever has the name by now.
            rustix::fs::chmod(format!("/proc/self/fd/{}", closed.as_fd().as_raw_fd()), Mode::RWXU)?;
            open()?
        }
        other => other?,
    };
    if !Mode::from_raw_mode(rustix::fs::fstat(&directory)?.st_mode).contains(Mode::RWXU) {
        rustix::fs::fchmod(&directory, Mode::RWXU)?;
    }
    Ok(directory)
}

#[cfg(test)]
mod tests;
