//! Caches that do not exist yet, below directories that a session is given for reading. Owns making those: a session's overlay needs
//! a directory to lie on, and inside nothing can make one there. No link is followed on the way. Called by `preparation` before
//! the survey of a start.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use cofferdam_policy::{Access, FileRule, Layer, Policy};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::survey::Surroundings;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Empty, as their programs would. Where one cannot be made, the session is without it.
pub(crate) fn make_missing(policy: &Policy, around: &Surroundings) {
    let places = around.places();
    let shipped = |access: Access| {
        let is_such = move |rule: &&FileRule| {
            rule.access == access && rule.origin.layer == Layer::BuiltIn && !rule.path.is_glob()
        };
        policy.files.iter().filter(is_such).flat_map(|rule| rule.expand(&places))
    };
    let given: Vec<PathBuf> = shipped(Access::Read).filter(|path| *path != around.home).collect();
    for cache in shipped(Access::Overlay) {
        if let Some(given) = given.iter().find(|given| cache != **given && cache.starts_with(given)) {
            let _made = directory(&around.home, given, &cache);
        }
    }
}

/// Makes what is missing of `path` below `given`, which is there and the user's own.
fn directory(home: &Path, given: &Path, path: &Path) -> Result<(), Errno> {
    let mut open = rustix::fs::openat(CWD, home, DIRECTORY, Mode::empty())?;
    for name in names(home, given)? {
        open = rustix::fs::openat(&open, name, DIRECTORY, Mode::empty())?;
    }
    let is_own =
        |open: &OwnedFd| rustix::fs::fstat(open).map(|about| about.st_uid == rustix::process::geteuid().as_raw());
    for name in names(given, path)? {
        open = match rustix::fs::openat(&open, name, DIRECTORY, Mode::empty()) {
            Ok(there) => there,
            Err(Errno::NOENT) if is_own(&open)? => {
                rustix::fs::mkdirat(&open, name, Mode::from_raw_mode(0o755))?;
                rustix::fs::openat(&open, name, DIRECTORY, Mode::empty())?
            }
            Err(errno) => return Err(errno),
        };
    }
    Ok(())
}

fn names<'a>(above: &Path, path: &'a Path) -> Result<Vec<&'a Path>, Errno> {
    let parts = path.strip_prefix(above).map_err(|_| Errno::XDEV)?.components();
    let name = |part| match part {
        Component::Normal(name) => Ok(Path::new(name)),
        _ => Err(Errno::INVAL),
    };
    parts.map(name).collect()
}
