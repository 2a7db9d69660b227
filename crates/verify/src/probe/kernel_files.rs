//! Files of /proc, /sys and /dev that describe or change the whole machine.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::FileTypeExt as _;

use rustix::fs::StatVfsMountFlags;

use super::Attempts;
use crate::answer::Answer;

/// A switch cannot be opened for writing, and not only because of its mode: the mount is read-only, or it is not there. Outside
/// /proc/sys the mode is enough for a user who is not root: there its owner is not mapped inside.
pub(super) fn switches(paths: &[&str]) -> Answer {
    let mut attempts = Attempts::default();
    for path in paths {
        let by_mode = !path.starts_with("/proc/sys/") && !rustix::process::geteuid().is_root();
        let is_read_only =
            || rustix::fs::statvfs(*path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY));
        match OpenOptions::new().write(true).open(path) {
            Ok(_) => attempts.reached.push(format!("{path} opened for writing")),
            Err(error) if error.kind() == ErrorKind::NotFound => attempts.refused.push(format!("{path} is absent")),
            Err(_) if is_read_only() => attempts.refused.push(format!("{path} is read-only")),
            Err(error) if by_mode => attempts.refused.push(format!("{path}: {error}")),
            Err(error) => attempts.reached.push(format!("{path} is closed by its mode only: {error}")),
        }
    }
    attempts.answer()
}

/// Reached if one of them is there and says something.
pub(super) fn visible(paths: &[&str]) -> Answer {
    let mut attempts = Attempts::default();
    for path in paths {
        match says_something(path) {
            Ok(true) => attempts.reached.push(format!("{path} is there")),
            Ok(false) => attempts.refused.push(format!("{path} is empty")),
            Err(error) => attempts.refused.push(format!("{path}: {error}")),
        }
    }
    attempts.answer()
}

/// A device is not opened: some do things then.
fn says_something(path: &str) -> std::io::Result<bool> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        return Ok(true);
    }
    if kind.is_dir() {
        return Ok(fs::read_dir(path)?.next().is_some());
    }
    Ok(fs::File::open(path)?.read(&mut [0; 64])? > 0)
}
