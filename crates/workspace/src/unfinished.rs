//! What a killed process left half done in transactions: a commit, a checkpoint that is put back. Owns finding both in one look, which
//! every command begins with; finishing them is `transaction`'s and `checkpoint`'s. Called by `cli`.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::AtFlags;

use crate::beneath;
use crate::checkpoint::note::{CHECKPOINTS, NOTE};
use crate::journal::{JOURNAL, STAGING};

/// Something half done, and the transaction that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfinished {
    Commit(PathBuf),
    PutBack(PathBuf),
}

/// In all transactions of a directory; commits first.
pub fn unfinished(directory: &Path) -> Vec<Unfinished> {
    let Ok(opened) = beneath::root(directory) else { return Vec::new() };
    let names = beneath::names(opened.as_fd(), 1 << 16).unwrap_or_default();
    let with = |any_of: &[&Path]| -> Vec<PathBuf> {
        let has =
            |name: &Path, file: &Path| rustix::fs::statat(&opened, name.join(file), AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let found = names.iter().filter(|name| any_of.iter().any(|file| has(Path::new(name), file)));
        found.map(|name| directory.join(name)).collect()
    };
    let commits = with(&[Path::new(JOURNAL), Path::new(STAGING)]).into_iter().map(Unfinished::Commit);
    let put_backs = with(&[&Path::new(CHECKPOINTS).join(NOTE)]).into_iter().map(Unfinished::PutBack);
    commits.chain(put_backs).collect()
}
