//! Trees that sessions of this user were given for writing, from the first one on: a link that lies in one of them may be a session's.
//! Owns the file in the state directory, outside of every session's reach. Written at a start and at an answer that gives a
//! directory; read by `survey`, by the choice of a project and of policy files.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use cofferdam_kernel::best_effort;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::state::make_all;

const FILE: &str = "written-trees";
/// Past it those that are gone are forgotten.
const MOST: usize = 4096;
const LONGEST_FILE: u64 = 16 << 20;

/// By their real paths. Where there is no state there are none; an error that says nothing about that is one.
pub(crate) fn trees(state: &Path) -> Result<Vec<PathBuf>, Error> {
    match open(state, false).and_then(|file| read(&file)) {
        Err(error) if is_without_state(error.kind()) => Ok(Vec::new()),
        read => read,
    }
}

fn is_without_state(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied)
}

/// Remembers the directories among these. A home that cannot be written has no memory, and its sessions leave nothing in it.
pub fn remember<'a>(state: &Path, paths: impl Iterator<Item = &'a Path>) {
    // Of a list that cannot be read each is new, and adding says the same again.
    let known = trees(state).unwrap_or_default();
    let is_new = |path: &&Path| !known.iter().any(|tree| tree == path) && is_directory(path);
    let new: BTreeSet<&Path> = paths.filter(is_new).collect();
    if !new.is_empty() {
        let kept = add(state, &new).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
        best_effort(kept, "where there is no state, nothing is remembered");
    }
}

fn add(state: &Path, new: &BTreeSet<&Path>) -> Result<(), Error> {
    make_all(state)?;
    let mut file = locked(state)?;
    let mut known = read(&file)?;
    // With an end on both sides: a write that a full disk cut short spoils no other.
    let text = |paths: &mut dyn Iterator<Item = &Path>| {
        paths.flat_map(|path| [b"\0", path.as_os_str().as_bytes(), b"\0"].concat()).collect::<Vec<u8>>()
    };
    let added = text(&mut new.iter().copied().filter(|path| !known.iter().any(|tree| tree == path)));
    if known.len() + new.len() <= MOST {
        return file.write_all(&added);
    }
    known.retain(|tree| is_directory(tree));
    // Readers see the old list or the new one.
    let whole = state.join(format!("{FILE}.new"));
    std::fs::write(&whole, [text(&mut known.iter().map(PathBuf::as_path)), added].concat())?;
    std::fs::rename(&whole, state.join(FILE))
}

/// The list, for one writer. One that was replaced while this one waited is no more the list.
fn locked(state: &Path) -> Result<File, Error> {
    loop {
        let file = open(state, true)?;
        flock(&file, FlockOperation::LockExclusive)?;
        let (held, there) = (file.metadata()?, state.join(FILE).symlink_metadata()?);
        if (held.dev(), held.ino()) == (there.dev(), there.ino()) {
            return Ok(file);
        }
    }
}

fn open(state: &Path, writes: bool) -> Result<File, Error> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).append(writes).create(writes).mode(0o600).custom_flags(flags).open(state.join(FILE))
}

fn read(file: &File) -> Result<Vec<PathBuf>, Error> {
    let mut bytes = Vec::new();
    file.take(LONGEST_FILE).read_to_end(&mut bytes)?;
    let paths = bytes.split(|byte| *byte == 0).map(|path| Path::new(std::ffi::OsStr::from_bytes(path)));
    Ok(paths.filter(|path| path.is_absolute()).map(Path::to_path_buf).collect())
}

fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|about| about.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_remembered_once_and_those_that_are_gone_make_room() {
        let scene = crate::memory::tests::scene("written");
        let (state, one, two) = (scene.join("state"), scene.join("one"), scene.join("a\nb"));
        let file = scene.join("file");
        std::fs::create_dir(&one).and_then(|()| std::fs::create_dir(&two)).expect("ours");
        std::fs::write(&file, "").expect("ours");
        for _ in 0..2 {
            remember(&state, [one.as_path(), &file, &two].into_iter());
        }
        assert_eq!(trees(&state).expect("readable"), [two.clone(), one.clone()]);
        let gone: Vec<u8> = (0..MOST).flat_map(|n| format!("/gone/{n}\0").into_bytes()).collect();
        let mut list = OpenOptions::new().append(true).open(state.join(FILE)).expect("it was written");
        list.write_all(&gone).expect("ours");
        let three = scene.join("three");
        std::fs::create_dir(&three).expect("ours");
        remember(&state, [three.as_path()].into_iter());
        assert_eq!(trees(&state).expect("readable"), [two, one, three]);
        // What cannot be read is no empty list.
        std::fs::remove_file(state.join(FILE)).and_then(|()| std::fs::create_dir(state.join(FILE))).expect("ours");
        assert!(trees(&state).is_err());
        std::fs::remove_dir_all(scene).expect("ours");
    }

    #[test]
    fn a_state_that_cannot_be_made_is_no_error() {
        let scene = crate::memory::tests::scene("written-not");
        let file = scene.join("file");
        std::fs::write(&file, "").expect("ours");
        remember(&file.join("state"), [scene.as_path()].into_iter());
        assert!(trees(&file.join("state")).expect("none").is_empty());
        std::fs::remove_dir_all(scene).expect("ours");
    }
}
