//! What a session wrote into an overlay, found by looking into its upper directory. Owns the walk: bounded, no link followed,
//! names only. Called by `launch` at the end of a session that learns.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_wire::Changed;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// More names than a person would look at; the command may have made any number.
const MOST: usize = 1 << 14;
/// Deeper than any tree that was not made to be deep.
const DEEPEST: usize = 64;

/// What differs from the host's tree, by the upper directory of an overlay on `/`.
pub(crate) fn below(upper: &Path) -> Vec<Changed> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::new()];
    while let Some(relative) = left.pop() {
        let Ok(names) = open(&upper.join(&relative)).and_then(names) else { continue };
        for (name, kind) in names {
            let relative = relative.join(&name);
            let path = Path::new("/").join(&relative);
            let is_new = path.symlink_metadata().is_err();
            let is_dir = kind == FileType::Directory;
            if is_dir && !is_new {
                if relative.components().count() < DEEPEST {
                    left.push(relative);
                }
            } else {
                found.push(Changed { path, is_new, is_dir });
            }
            if found.len() + left.len() >= MOST {
                return found;
            }
        }
    }
    found.sort();
    found
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

fn names(directory: OwnedFd) -> Result<Vec<(PathBuf, FileType)>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::new(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push((PathBuf::from(OsStr::from_bytes(name)), entry.file_type()));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_and_what_was_changed_is_told_apart_from_the_way_to_it() {
        let upper = std::env::temp_dir().join(format!("cofferdam-changes-{}", std::process::id()));
        std::fs::create_dir_all(upper.join("etc/of-nobody/below")).expect("the fixture is made");
        std::fs::write(upper.join("etc/passwd"), "").expect("the fixture is made");
        std::os::unix::fs::symlink("/etc", upper.join("etc/also-of-nobody")).expect("the fixture is made");
        let found = below(&upper);
        std::fs::remove_dir_all(&upper).expect("the fixture is made");
        let changed = |path: &str, is_new, is_dir| Changed { path: path.into(), is_new, is_dir };
        assert_eq!(
            found,
            [
                changed("/etc/also-of-nobody", true, false),
                changed("/etc/of-nobody", true, true),
                changed("/etc/passwd", false, false),
            ]
        );
    }
}
