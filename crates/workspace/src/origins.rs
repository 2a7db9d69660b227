//! Which names of an upper layer began as copies of the tree below: where the host's directory lacks one of them, the host has removed
//! it. Overlayfs marks its own copies; a file that was put back is written anew and has no mark, so this owns a list of such names
//! beside the layers. Used by `changes`, by `checkpoint` and, when a commit is taken back, by `commit`.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use cofferdam_kernel::best_effort;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::journal::{self, path_texts};
use crate::{attributes, beneath};

/// Where the list is kept, in the directory of the transaction.
pub(crate) const FILE: &str = "origins.json";

/// By tree, in the order of the manifest.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    trees: Vec<Names>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Names {
    #[serde(with = "path_texts")]
    names: Vec<PathBuf>,
}

/// Names that were put back, for each tree.
pub(crate) type Origins = Vec<HashSet<PathBuf>>;

pub(crate) fn read(directory: BorrowedFd<'_>, trees: usize) -> Result<Origins, Errno> {
    let record: Record = journal::read(directory, FILE)?.unwrap_or_default();
    let mut origins: Origins = record.trees.into_iter().map(|tree| tree.names.into_iter().collect()).collect();
    origins.resize_with(trees, HashSet::new);
    Ok(origins)
}

/// Adds to the list, on the disk or, for a session that runs, plainly. A name too many is a conflict too many, and only where the host
/// has worked in its directory.
pub(crate) fn add(directory: BorrowedFd<'_>, new: Origins, is_durable: bool) -> Result<(), Errno> {
    if new.iter().all(HashSet::is_empty) {
        return Ok(());
    }
    let mut all = read(directory, new.len())?;
    for (known, new) in all.iter_mut().zip(new) {
        known.extend(new);
    }
    let trees = all.into_iter().map(|names| Names { names: names.into_iter().collect() });
    let record = Record { trees: trees.collect() };
    if is_durable { journal::write(directory, FILE, &record) } else { journal::write_plainly(directory, FILE, &record) }
}

/// Whether overlayfs says of something in an upper layer that it is a copy. What cannot be asked may be one.
pub(crate) fn is_marked(directory: BorrowedFd<'_>, name: &OsStr) -> bool {
    let Ok(opened) = beneath::opened_as_path(directory, name) else { return true };
    let ask = || rustix::fs::getxattr(beneath::itself(&opened), attributes::ORIGIN, &mut [0u8; 0][..]);
    let mut asked = ask();
    if asked == Err(Errno::ACCESS) {
        // The workload closed it to its owner.
        let read = || {
            asked = ask();
            Ok(())
        };
        best_effort(beneath::with_reading(directory, name, read), "what cannot be asked may be a copy");
    }
    is_mark(asked)
}

/// The same of a directory that is open.
pub(crate) fn is_marked_directory(directory: impl AsFd) -> bool {
    is_mark(rustix::fs::fgetxattr(directory, attributes::ORIGIN, &mut [0u8; 0][..]))
}

fn is_mark(asked: Result<usize, Errno>) -> bool {
    !matches!(asked, Err(Errno::NODATA | Errno::OPNOTSUPP))
}
