//! Files and directories of the rig, with errors that name them. Owns nothing else; used by every part of it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::problems::Problems;

pub(crate) fn make_dir(dir: &Path) -> Result<(), Problems> {
    fs::create_dir_all(dir).map_err(|e| cannot("make", dir, &e))
}

pub(crate) fn remove_dir(dir: &Path) -> Result<(), Problems> {
    fs::remove_dir_all(dir).map_err(|e| cannot("remove", dir, &e))
}

/// An empty directory of that name, whatever was there before.
pub(crate) fn fresh_dir(dir: PathBuf) -> Result<PathBuf, Problems> {
    if dir.exists() {
        remove_dir(&dir)?;
    }
    make_dir(&dir)?;
    Ok(dir)
}

pub(crate) fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Problems {
    Problems::one(format!("cannot {what} {}: {error}", path.display()))
}
