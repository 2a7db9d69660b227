//! Numbers by which something is known again: by what it is (inodes, times), or by what it holds. Owns what counts in each. Called by
//! `commit`, `steps`, `undo` and `transaction`.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::io::Errno;

use crate::beneath::{self, DEEPEST};
use crate::entry::{Entry, Kind};
use crate::git_index::{self, LARGEST_INDEX};
use crate::units::is_named_index;

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a.
fn fnv(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum: u64, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What an index of git says, but for what it knows of the files' times.
pub(crate) fn of_index(index: &[u8]) -> Option<u64> {
    git_index::said(index).map(|kept| fnv(FNV_BASIS, &kept))
}

/// Everything that lies in a directory: another one where a name came, went or was written.
pub(crate) fn identity(parent: BorrowedFd<'_>, name: &OsStr, depth: usize) -> Result<u64, Errno> {
    let mut sum = FNV_BASIS;
    let mut add = |bytes: &[u8]| sum = fnv(sum, bytes);
    let (directory, _unclosed) = beneath::layer_directory(parent, name)?;
    for name in beneath::names(directory.as_fd(), 1 << 20)? {
        let Some(entry) = Entry::at(directory.as_fd(), &name)? else { continue };
        add(name.as_bytes());
        add(&[0]);
        add(&entry.inode.to_le_bytes());
        add(&entry.mode.to_le_bytes());
        if entry.kind != Kind::Directory {
            add(&entry.size.to_le_bytes());
            add(&entry.modified.0.to_le_bytes());
            add(&entry.modified.1.to_le_bytes());
        } else if depth > 0 {
            add(&identity(directory.as_fd(), &name, depth - 1)?.to_le_bytes());
        } else {
            return Err(Errno::OVERFLOW);
        }
    }
    Ok(sum)
}

/// What is read of one name, and below it, to be known again by its content.
const MOST_READ: u64 = 4 << 20;
const MOST_NAMES: usize = 4096;

/// The content of a file, a link or everything in a directory; of an index of git without what it knows of the times of
/// files. None where that is too much to read.
pub(crate) fn content(parent: BorrowedFd<'_>, name: &OsStr, path: &Path) -> Option<u64> {
    let index = || {
        let mut bytes = Vec::new();
        beneath::file(parent, name).ok()?.take(LARGEST_INDEX).read_to_end(&mut bytes).ok()?;
        of_index(&bytes)
    };
    if is_named_index(path)
        && let Some(said) = index()
    {
        return Some(said);
    }
    let mut content = Content { sum: FNV_BASIS, bytes: MOST_READ, names: MOST_NAMES };
    content.add(parent, name, DEEPEST)?;
    Some(content.sum)
}

struct Content {
    sum: u64,
    /// What may still be read.
    bytes: u64,
    names: usize,
}

impl Content {
    fn add(&mut self, parent: BorrowedFd<'_>, name: &OsStr, depth: usize) -> Option<()> {
        let entry = Entry::at(parent, name).ok()??;
        self.sum = fnv(self.sum, &entry.mode.to_le_bytes());
        match entry.kind {
            Kind::File => {
                self.bytes = self.bytes.checked_sub(entry.size)?;
                let mut content = Vec::new();
                beneath::file(parent, name).ok()?.take(entry.size + 1).read_to_end(&mut content).ok()?;
                self.sum = fnv(fnv(fnv(self.sum, b"file\0"), &entry.size.to_le_bytes()), &content);
            }
            Kind::Link => self.sum = fnv(fnv(self.sum, b"link\0"), entry.target?.as_os_str().as_bytes()),
            Kind::Directory if depth > 0 => {
                let (directory, _unclosed) = beneath::layer_directory(parent, name).ok()?;
                let names = beneath::names(directory.as_fd(), self.names).ok()?;
                self.names = self.names.checked_sub(names.len())?;
                for name in names {
                    self.sum = fnv(fnv(fnv(self.sum, b"name\0"), name.as_bytes()), &[0]);
                    self.add(directory.as_fd(), &name, depth - 1)?;
                }
                self.sum = fnv(self.sum, b"end\0");
            }
            _ => return None,
        }
        Some(())
    }
}
