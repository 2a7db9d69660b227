//! Which names the commits have at their root that branches, stashes and half-done commands of git lead to. Owns the forms of refs,
//! commits and trees, as far as they lead there; what it does not understand it does not find. Called by `tracked`.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use rustix::fs::{Dir, FileType, Mode, OFlags};

use super::objects::{self, Kind};
use super::reading::{Budget, WITHIN, open_file, read_at_most};

const LONGEST_REFS: u64 = 1 << 20;
/// How many are looked at; of more the first ones count.
const MOST_TIPS: usize = 256;
/// Names of branches with slashes in them.
const DEEPEST: usize = 4;
/// What a command that git has not finished is about.
const UNFINISHED: &[&str] = &["ORIG_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REBASE_HEAD", "FETCH_HEAD", "refs/stash"];

/// The first part of every path in those commits. `width` is how long a name of an object is.
pub(super) fn root_names(git: &OwnedFd, objects: &OwnedFd, width: usize, budget: &Budget) -> BTreeSet<OsString> {
    let mut tips = BTreeSet::new();
    for name in UNFINISHED {
        tips.extend(first_word(git, Path::new(name)));
    }
    loose(git, Path::new("refs/heads"), 0, &mut tips);
    let packed = open_file(git, Path::new("packed-refs")).and_then(|file| read_at_most(file, LONGEST_REFS));
    let packed = packed.unwrap_or_default();
    tips.extend(packed.split(|byte| *byte == b'\n').filter_map(word));
    let ids = tips.iter().filter_map(|hex| HEXLOWER.decode(hex).ok()).filter(|id| id.len() == width);
    let mut names = BTreeSet::new();
    for id in ids.take(MOST_TIPS) {
        names.extend(names_of(&id, objects, width, budget).into_iter().flatten());
    }
    names
}

fn word(line: &[u8]) -> Option<Vec<u8>> {
    let word = line.split(u8::is_ascii_whitespace).next()?;
    (!word.is_empty()).then(|| word.to_vec())
}

fn first_word(git: &OwnedFd, name: &Path) -> Option<Vec<u8>> {
    word(&read_at_most(open_file(git, name)?, LONGEST_REFS)?)
}

fn loose(git: &OwnedFd, directory: &Path, depth: usize, tips: &mut BTreeSet<Vec<u8>>) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(opened) = rustix::fs::openat2(git, directory, flags, Mode::empty(), WITHIN) else { return };
    let Ok(entries) = Dir::new(opened) else { return };
    for entry in entries.flatten().take(MOST_TIPS) {
        let name = entry.file_name().to_bytes();
        let path: PathBuf = directory.join(OsStr::from_bytes(name));
        match entry.file_type() {
            FileType::Directory if !matches!(name, b"." | b"..") && depth < DEEPEST => {
                loose(git, &path, depth + 1, tips);
            }
            FileType::RegularFile if tips.len() < MOST_TIPS => tips.extend(first_word(git, &path)),
            _ => {}
        }
    }
}

fn names_of(commit: &[u8], objects: &OwnedFd, width: usize, budget: &Budget) -> Option<Vec<OsString>> {
    let (_, commit) = objects::find(objects, Kind::Commit, commit, budget)?;
    let tree = HEXLOWER.decode(commit.strip_prefix(b"tree ")?.get(..2 * width)?).ok()?;
    let (_, tree) = objects::find(objects, Kind::Tree, &tree, budget)?;
    let mut names = Vec::new();
    let mut rest = tree.as_slice();
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        let name = rest[..end].splitn(2, |byte| *byte == b' ').nth(1)?;
        names.push(OsStr::from_bytes(name).to_owned());
        rest = rest.get(end + 1 + width..)?;
    }
    Some(names)
}
