//! Notices when a single file that was granted is replaced on the host, as editors do: its mount still shows the old one.
//! Owns the watches. Used by `Gate`.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_kernel::watches::Watches;
use rustix::fs::inotify::{self, Reader, WatchFlags};
use rustix::io::Errno;

#[derive(Debug, Default)]
pub(crate) struct Stale {
    inotify: Option<Watches>,
    directories: HashMap<i32, PathBuf>,
    files: HashSet<PathBuf>,
}

impl Stale {
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    /// Where no watch can be had the file stays what it was when it was granted.
    pub(crate) fn watch(&mut self, file: &Path) {
        if self.inotify.is_none() {
            self.inotify = Watches::new().ok();
        }
        let (Some(inotify), Some(directory)) = (&self.inotify, file.parent()) else { return };
        let events = WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM | WatchFlags::CREATE | WatchFlags::DELETE;
        if let Ok(watch) = inotify::add_watch(inotify, directory, events | WatchFlags::ONLYDIR) {
            self.directories.insert(watch, directory.to_path_buf());
            self.files.insert(file.to_path_buf());
        }
    }

    /// Watched files whose name stands for something else now.
    pub(crate) fn read(&mut self) -> Result<Vec<PathBuf>, Errno> {
        let Some(inotify) = &self.inotify else { return Ok(Vec::new()) };
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut reader = Reader::new(inotify, &mut buffer);
        let mut found = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => {
                    let directory = self.directories.get(&event.wd());
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                    if let (Some(directory), Some(name)) = (directory, name) {
                        let path = directory.join(name);
                        if self.files.contains(&path) && !found.contains(&path) {
                            found.push(path);
                        }
                    }
                }
                Err(Errno::AGAIN) => return Ok(found),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}
