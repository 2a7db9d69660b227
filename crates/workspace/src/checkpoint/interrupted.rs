//! A put-back that has not come to its end: written down before the first name is touched, and gone after the last. Owns that note and
//! what a later process does about it where no process of the session has run since; in a session that went on, a further
//! put-back ends it. Called by `restore`, `supervisor` and `cli`.

use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::note::{Interrupted, NOTE};
use super::taking::Checkpoints;
use crate::journal;
use crate::transaction::OpenError;

impl Checkpoints {
    pub fn interrupted(&self) -> Result<Option<Interrupted>, Errno> {
        journal::read(self.own.as_fd(), NOTE)
    }

    /// Once the layers are a checkpoint.
    pub(super) fn begin_put_back(&self, to: usize) -> Result<(), Errno> {
        let note = Interrupted { to, before: self.last(), went_on: false };
        journal::write_plainly(self.own.as_fd(), NOTE, &note)
    }

    pub(super) fn end_put_back(&self) -> Result<(), Errno> {
        match rustix::fs::unlinkat(&self.own, NOTE, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => other,
        }
    }

    /// The session is about to go on with what an interrupted put-back left.
    pub fn go_on(&self) -> Result<Option<Interrupted>, Errno> {
        let Some(note) = self.interrupted()? else { return Ok(None) };
        let note = Interrupted { went_on: true, ..note };
        // Without it, what the session does from here on would be taken back: on a full disk the note goes.
        journal::write_plainly(self.own.as_fd(), NOTE, &note).or_else(|_| self.end_put_back())?;
        Ok(Some(note))
    }
}

/// After the session: what was there before is there again. None where processes of the session have gone on since.
pub fn take_back(path: &Path) -> Result<Option<Interrupted>, OpenError> {
    let mut all = Checkpoints::open_sealed(path)?;
    let note = all.interrupted().map_err(OpenError::Records)?.filter(|note| !note.went_on);
    if let Some(note) = note {
        all.put_back_sealed(note.before).map_err(OpenError::Records)?;
    }
    Ok(note)
}
