//! The note of a put-back that has not come to its end. Owns its name, its form and whether there is one; `interrupted` says what
//! becomes of it. Called by `transaction`, which opens nothing that is half put back.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::{beneath, journal};

/// In the directory of a transaction.
pub(crate) const CHECKPOINTS: &str = "checkpoints";
pub(crate) const NOTE: &str = "putting-back.json";

/// What a process was about when it was killed or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupted {
    /// The checkpoint that was to be put back.
    pub to: usize,
    /// What was there before.
    pub before: usize,
    /// Processes of the session ran since: what lies there is theirs, too.
    pub went_on: bool,
}

/// Whether the layers are neither what was there before nor what was to be put back.
pub(crate) fn is_half_put_back(directory: BorrowedFd<'_>) -> Result<bool, Errno> {
    let own = match beneath::directory(directory, Path::new(CHECKPOINTS)) {
        Err(Errno::NOENT) => return Ok(false),
        own => own?,
    };
    Ok(journal::read(own.as_fd(), NOTE)?.is_some_and(|note: Interrupted| !note.went_on))
}
