//! The text of a policy file or of a record about them. Owns how much is read, and the errors of reading and writing; knows
//! nothing of what a file says. Called by everything that reads policies.

use std::path::{Path, PathBuf};

use cofferdam_kernel::file::read_text;
use thiserror::Error;

/// More than any policy or record of approvals has; a project's files may be anything.
const MOST_BYTES: u64 = 1 << 20;

#[derive(Debug, Error)]
#[error("cannot read `{path}`", path = path.display())]
pub struct ReadError {
    pub path: PathBuf,
    #[source]
    pub source: std::io::Error,
}

#[derive(Debug, Error)]
#[error("cannot write `{path}`", path = path.display())]
pub struct WriteError {
    pub path: PathBuf,
    #[source]
    pub source: std::io::Error,
}

/// A file that is not there says nothing; one that cannot be read might have forbidden something, so that is an error.
pub fn read(path: &Path) -> Result<Option<String>, ReadError> {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    match read_text(path, MOST_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(None),
        Err(source) => Err(ReadError { path: path.to_path_buf(), source }),
    }
}
