//! Policy files on disk: replaced as a whole, through no link of a repository. Owns modes and renames; knows nothing of what the files say. Called by `persist`.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

use crate::policy_files::text::{self, ReadError, WriteError};

/// Why a policy file cannot be edited in its place.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error("`{file}` is a link", file = file.display())]
    Link { file: PathBuf },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Whose directory a policy file lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Of a repository: a link in its place may lead anywhere.
    Repository,
    /// The user's or the administrator's own.
    Own,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The text of the file, if there is one.
pub(super) fn read(file: &Path, place: Place) -> Result<Option<String>, StoreError> {
    refuse_links(file, place)?;
    Ok(text::read(file)?)
}

fn refuse_links(file: &Path, place: Place) -> Result<(), StoreError> {
    let directory = file.parent().filter(|_| place == Place::Repository);
    for path in directory.into_iter().chain([file]) {
        let is_link = rustix::fs::lstat(path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink());
        if is_link {
            return Err(StoreError::Link { file: path.to_path_buf() });
        }
    }
    Ok(())
}

/// Replaces the file: a reader sees the old one or the new one.
pub(super) fn write(file: &Path, place: Place, text: &str) -> Result<(), StoreError> {
    refuse_links(file, place)?;
    let failed = |source: std::io::Error| WriteError { path: file.to_path_buf(), source };
    let directory = open_directory(file, place).map_err(failed)?;
    let Some(name) = file.file_name().and_then(|name| name.to_str()) else { return Ok(()) };
    replace(&directory, name, text).map_err(|errno| failed(errno.into()))?;
    // A local policy is this user's alone; what the repository says about it stays.
    let ignore = ".gitignore";
    let is_missing =
        || rustix::fs::statat(&directory, ignore, AtFlags::SYMLINK_NOFOLLOW).is_err_and(|errno| errno == Errno::NOENT);
    if place == Place::Repository && is_missing() {
        replace(&directory, ignore, &format!("/{ignore}\n/{name}\n")).map_err(|errno| failed(errno.into()))?;
    }
    Ok(())
}

fn open_directory(file: &Path, place: Place) -> Result<OwnedFd, std::io::Error> {
    let directory = file.parent().unwrap_or(Path::new("/"));
    if place == Place::Own {
        std::fs::create_dir_all(directory)?;
        return Ok(rustix::fs::openat(CWD, directory, DIRECTORY, Mode::empty())?);
    }
    // Below the project nothing is followed.
    let (above, name) = (directory.parent().unwrap_or(directory), directory.file_name().unwrap_or_default());
    let above = rustix::fs::openat(CWD, above, DIRECTORY, Mode::empty())?;
    match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(rustix::fs::openat(&above, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?)
}

fn replace(directory: &OwnedFd, name: &str, text: &str) -> Result<(), Errno> {
    let mode = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Mode::from_raw_mode(stat.st_mode & 0o777),
        Err(_) => Mode::from_raw_mode(0o644),
    };
    let new = format!(".{name}.{}", std::process::id());
    let written = write_new(directory, &new, text, mode)
        .and_then(|()| rustix::fs::renameat(directory, &new, directory, name))
        .and_then(|()| rustix::fs::fsync(directory));
    if written.is_err() && rustix::fs::unlinkat(directory, &new, AtFlags::empty()).is_err() {
        // It was never made, or has its new name by now.
    }
    written
}

fn write_new(directory: &OwnedFd, name: &str, text: &str, mode: Mode) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR);
    let file = open().or_else(|errno| match errno {
        // Of a process with the same number that was killed: the lock says that it is not at work.
        Errno::EXIST => rustix::fs::unlinkat(directory, name, AtFlags::empty()).and_then(|()| open()),
        errno => Err(errno),
    })?;
    let mut file = File::from(file);
    let os_error = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    file.write_all(text.as_bytes()).map_err(os_error)?;
    rustix::fs::fchmod(&file, mode)?;
    rustix::fs::fsync(&file)
}
