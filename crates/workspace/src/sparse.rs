//! Where a file holds something: a workload makes a file of any size without writing to it, and what is not there must cost neither
//! memory nor disk when it is copied or archived. Owns the walk over data and holes. Used by `staging`, `changes` and
//! `archive`.

use std::fs::File;
use std::ops::Range;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// The parts of the first `size` bytes that were written to, in order. Moves the position of the file.
pub(crate) fn data(file: &File, size: u64) -> impl Iterator<Item = Result<Range<u64>, Errno>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let found = if at < size { next(file, at, size).transpose()? } else { return None };
        at = found.as_ref().map_or(size, |part| part.end);
        Some(found)
    })
}

/// Where the first byte at or after `at` lies that was written to; `size` where none does.
pub(crate) fn next_data(file: &File, at: u64, size: u64) -> Result<u64, Errno> {
    match seek(file, SeekFrom::Data(at)) {
        // Nothing follows, or the file became shorter.
        Err(Errno::NXIO) => Ok(size),
        // A file system that cannot tell.
        Err(Errno::INVAL) => Ok(at),
        other => Ok(other?.min(size)),
    }
}

fn next(file: &File, at: u64, size: u64) -> Result<Option<Range<u64>>, Errno> {
    let start = next_data(file, at, size)?;
    if start >= size {
        return Ok(None);
    }
    let end = match seek(file, SeekFrom::Hole(start)) {
        Err(Errno::NXIO | Errno::INVAL) => size,
        other => other?.min(size),
    };
    Ok(Some(start..end.max(start + 1)))
}
