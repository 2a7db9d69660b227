//! Marks that the set-up child leaves in an upper layer so that hidden names cannot be made inside (decision 0050). Owns taking them
//! off once the session has ended; making them is `launcher`'s. Called by `supervisor`, before it asks whether anything was written.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::beneath;
use crate::changes::MOST_ENTRIES;
use crate::entry::Entry;
use crate::hidden::Hidden;
use crate::transaction::Manifest;

/// `directory` is the session's. No work is lost: a session cannot remove a hidden name, so a whiteout under one is never its own.
pub fn remove(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    let Some(manifest) = Manifest::read(directory)? else { return Ok(()) };
    let hidden = Hidden::new(&manifest.hidden);
    for record in &manifest.trees {
        let slot = beneath::directory(directory, Path::new(&record.slot.to_string()))?;
        let (upper, _unclosed) = beneath::layer_directory(slot.as_fd(), "upper".as_ref())?;
        for name in beneath::names(upper.as_fd(), MOST_ENTRIES)? {
            let is_mark = hidden.is_hidden(&record.lower.join(&name))
                && Entry::at(upper.as_fd(), &name)?.is_some_and(|entry| entry.is_whiteout);
            if is_mark {
                rustix::fs::unlinkat(&upper, &name, AtFlags::empty())?;
            }
        }
    }
    Ok(())
}
