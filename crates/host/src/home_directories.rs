//! Directories that are made in the home. Owns that no link is followed on the way to them, and that they are made in directories
//! of this user's alone. Called by `caches`, and by `sandbox setup` of `cli`.

use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Makes what is missing of a directory below the home, each part readable for its owner and writable for no other user.
pub fn make(home: &Path, path: &Path) -> Result<OwnedFd, Errno> {
    let below = path.strip_prefix(home).map_err(|_| Errno::XDEV)?;
    let mut open = rustix::fs::openat(CWD, home, DIRECTORY, Mode::empty())?;
    for part in below.components() {
        let Component::Normal(name) = part else { return Err(Errno::INVAL) };
        open = match rustix::fs::openat(&open, name, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => made(&open, Path::new(name))?,
            there => there?,
        };
    }
    Ok(open)
}

fn made(above: &OwnedFd, name: &Path) -> Result<OwnedFd, Errno> {
    if rustix::fs::fstat(above)?.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::PERM);
    }
    match rustix::fs::mkdirat(above, name, Mode::from_raw_mode(0o755)) {
        // Another start made it meanwhile.
        Ok(()) | Err(Errno::EXIST) => rustix::fs::openat(above, name, DIRECTORY, Mode::empty()),
        Err(errno) => Err(errno),
    }
}
