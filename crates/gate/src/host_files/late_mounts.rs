//! Mounts that the host made after the session's table of mounts was read: what they show was not compared with what is hidden,
//! so no answer gives it (decision 0037). Owns the comparison of the two tables. Asked by `gate` before each mount.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};

use cofferdam_plan::{MountFact, parse_mounts};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

const MOST_BYTES: u64 = 16 << 20;

/// A mount by everything that tells it from another with the same number.
type Key = (u32, (u32, u32), PathBuf, PathBuf);

#[derive(Debug)]
pub(crate) struct LateMounts {
    known: HashSet<Key>,
    /// The kernel says on it when the table has changed.
    table: Option<File>,
    points: Vec<PathBuf>,
}

impl LateMounts {
    /// `known` is the table that the plan was made with.
    pub(crate) fn new(known: &[MountFact]) -> Self {
        LateMounts { known: known.iter().map(key).collect(), table: None, points: Vec::new() }
    }

    /// Where something was mounted since.
    pub(crate) fn points(&mut self) -> Result<&[PathBuf], Errno> {
        let is_first = self.table.is_none();
        let table = match &mut self.table {
            Some(table) => table,
            none => none.insert(File::open("/proc/self/mountinfo").map_err(|error| errno(&error))?),
        };
        if is_first || has_changed(table)? {
            let mut text = Vec::new();
            table
                .rewind()
                .and_then(|()| table.take(MOST_BYTES + 1).read_to_end(&mut text))
                .map_err(|error| errno(&error))?;
            if u64::try_from(text.len()).unwrap_or(u64::MAX) > MOST_BYTES {
                return Err(Errno::TOOBIG);
            }
            let late = parse_mounts(&text).into_iter().filter(|mount| !self.known.contains(&key(mount)));
            self.points = late.map(|mount| mount.point).collect();
        }
        Ok(&self.points)
    }

    /// Whether a path lies on one of them.
    pub(crate) fn show(&mut self, path: &Path) -> Result<bool, Errno> {
        Ok(self.points()?.iter().any(|point| path.starts_with(point)))
    }
}

fn key(mount: &MountFact) -> Key {
    (mount.id, mount.device, mount.root.clone(), mount.point.clone())
}

fn has_changed(table: &File) -> Result<bool, Errno> {
    let mut fds = [PollFd::new(table, PollFlags::PRI)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(fds[0].revents().intersects(PollFlags::PRI | PollFlags::ERR))
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
