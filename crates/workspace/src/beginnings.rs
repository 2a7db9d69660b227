//! What the files that git tracks held when a session began, so that a merge has a beginning that is known. Owns the list beside the
//! layers: git's object for a file that is as its index says, a copy of one that is not. Written by `supervisor`, in the first moment of a
//! session and in idle ones; read for `commit --merge`.
//!
//! Nothing of it is made before the start. A file that was not changed since, in directories that were not changed since, holds what it
//! held then; of any other nothing is known. What is not on the list is not known either, so a part of the list is one.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::Instant;

use crate::changes::LONGEST_PATH;
use crate::diff;
use crate::entry::{Entry, Kind, Time};
use crate::git_index::{Entries, IndexEntry, LARGEST_INDEX, id_text};
use crate::hidden::Hidden;
use crate::state::{create_anew, read_file};
use crate::transaction::Manifest;
use crate::{beneath, staging};

/// In the directory of the transaction.
pub(crate) const FILE: &str = "beginnings";
pub(crate) const COPIES: &str = "beginnings-copies";
/// An index of a hundred thousand files; what a larger one tracks is not known.
const LARGEST: u64 = 16 << 20;
/// Of what git does not know as it is, so much is copied.
const MOST_COPIED: u64 = 64 << 20;
const MOST_COPIES: usize = 4096;
/// Lines are written down at so many bytes.
const CHUNK: usize = 64 << 10;

/// What a file held when the session began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beginning {
    /// What git has under this id, where that is as long as the file was: filters of git may keep it in another form.
    Object {
        id: String,
        size: u64,
    },
    Content(Vec<u8>),
}

/// A list that is being made, or is to be made, of the transaction at a path.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    may_copy: bool,
    begun: Option<(Entries, List)>,
}

impl Recording {
    /// Copies would count against a limit of what the session may write.
    pub fn new(path: PathBuf, may_copy: bool) -> Self {
        Recording { path, may_copy, begun: None }
    }

    /// Goes on until then. None once the list is whole, or cannot be made.
    pub fn turn(self, until: Instant) -> Option<Self> {
        let Recording { path, may_copy, begun } = self;
        let (mut entries, mut list) = begun.or_else(|| begin(&path, may_copy))?;
        loop {
            if Instant::now() >= until {
                return Some(Recording { path, may_copy, begun: Some((entries, list)) });
            }
            let Some(entry) = entries.next() else { break };
            list.add(&entry);
            if list.lines.len() >= CHUNK {
                list.write()?;
            }
        }
        list.write()?;
        None
    }

    /// What there was no moment for, where the session has changed something.
    pub fn end(self, until: Instant) {
        let layers = || {
            let directory = beneath::root(&self.path).ok()?;
            let trees = Manifest::read(directory.as_fd()).ok()??.trees;
            let upper = |slot: usize| beneath::directory(directory.as_fd(), Path::new(&format!("{slot}/upper")));
            Some(trees.iter().any(|tree| !upper(tree.slot).is_ok_and(|upper| beneath::names(upper.as_fd(), 0).is_ok())))
        };
        if layers() == Some(true)
            && let Some(Recording { begun: Some((_, mut list)), .. }) = self.turn(until)
        {
            list.write();
        }
    }
}

/// None where the project has no repository of its own with an index that is understood.
fn begin(path: &Path, may_copy: bool) -> Option<(Entries, List)> {
    let directory = beneath::root(path).ok()?;
    let manifest = Manifest::read(directory.as_fd()).ok()??;
    let tree = manifest.trees.get(manifest.project()?)?;
    let project = beneath::root(&tree.lower).ok()?;
    let repository = beneath::directory(project.as_fd(), Path::new(".git")).ok()?;
    let file = beneath::file(repository.as_fd(), OsStr::new("index")).ok()?;
    let written = Entry::of(&rustix::fs::fstat(&file).ok()?).modified;
    let index = read_at_most(&file, LARGEST.min(LARGEST_INDEX))?;
    let list = List {
        file: create_anew(directory.as_fd(), FILE).ok()?,
        lines: Vec::new(),
        at: tree.lower.clone(),
        mounted: tree.mounted,
        written,
        hidden: Hidden::new(&[&manifest.hidden[..], &manifest.masked].concat()),
        parent: None,
        copies: None,
        copied: (if may_copy { 0 } else { MOST_COPIES }, 0),
        directory,
        project,
    };
    Some((Entries::open(index)?, list))
}

#[derive(Debug)]
struct List {
    directory: OwnedFd,
    project: OwnedFd,
    /// Where the project lies.
    at: PathBuf,
    mounted: Time,
    /// When the index was written.
    written: Time,
    /// Of hidden names no copies are kept.
    hidden: Hidden,
    /// The last directory, none where it is not known to be the one of the start. Names of an index are sorted.
    parent: Option<(PathBuf, Option<OwnedFd>)>,
    file: std::fs::File,
    lines: Vec<u8>,
    copies: Option<OwnedFd>,
    copied: (usize, u64),
}

impl List {
    fn write(&mut self) -> Option<()> {
        self.file.write_all(&std::mem::take(&mut self.lines)).ok()
    }

    fn add(&mut self, entry: &IndexEntry<'_>) {
        if let Some(known) = self.known(entry) {
            self.lines.extend_from_slice(known.as_bytes());
            self.lines.push(b' ');
            self.lines.extend_from_slice(entry.name);
            self.lines.push(0);
        }
    }

    fn known(&mut self, entry: &IndexEntry<'_>) -> Option<String> {
        let name = Path::new(OsStr::from_bytes(entry.name));
        if !entry.is_plain() || !is_name(name) {
            return None;
        }
        let (parent, last) = (name.parent()?, name.file_name()?);
        if self.parent.as_ref().is_none_or(|(known, _)| known != parent) {
            self.parent = Some((parent.to_path_buf(), self.unchanged_directory(parent)));
        }
        let (_, Some(parent)) = self.parent.as_ref()? else { return None };
        let file = Entry::at(parent.as_fd(), last).ok()??;
        if !self.is_from_before(&file) || file.size > diff::LARGEST {
            return None;
        }
        // git's rule: a file that is as young as the index may differ all the same.
        if entry.is_of(&file) && file.modified < self.written {
            return Some(format!("{}:{}", id_text(entry.id), file.size));
        }
        let content = self.content(parent.as_fd(), last, name, &file)?;
        self.copy(&content).map(|number| format!("={number}"))
    }

    /// None where something was put into one of those on the way, or in the place of one.
    fn unchanged_directory(&self, path: &Path) -> Option<OwnedFd> {
        let mut directory = beneath::directory(self.project.as_fd(), Path::new("")).ok()?;
        for name in [OsStr::new("")].into_iter().chain(path.iter()) {
            if !name.is_empty() {
                directory = beneath::directory(directory.as_fd(), Path::new(name)).ok()?;
            }
            let found = Entry::of(&rustix::fs::fstat(&directory).ok()?);
            if self.mounted.is_before(found.changed) {
                return None;
            }
        }
        Some(directory)
    }

    fn is_from_before(&self, file: &Entry) -> bool {
        file.kind == Kind::File && !self.mounted.is_before(file.changed)
    }

    fn content(&self, parent: BorrowedFd<'_>, last: &OsStr, name: &Path, known: &Entry) -> Option<Vec<u8>> {
        let (number, bytes) = self.copied;
        if number >= MOST_COPIES || bytes + known.size > MOST_COPIED || self.hidden.is_hidden(&self.at.join(name)) {
            return None;
        }
        let file = beneath::file(parent, last).ok()?;
        let content = read_at_most(&file, known.size)?;
        // After the reading: what was written meanwhile shows.
        let now = Entry::of(&rustix::fs::fstat(&file).ok()?);
        (self.is_from_before(&now) && now.inode == known.inode).then_some(content)
    }

    /// The number of the copy.
    fn copy(&mut self, content: &[u8]) -> Option<usize> {
        if self.copies.is_none() {
            self.copies = staging::make(self.directory.as_fd(), COPIES).ok();
        }
        let number = self.copied.0;
        self.copied = (number + 1, self.copied.1 + content.len() as u64);
        create_anew(self.copies.as_ref()?.as_fd(), &number.to_string()).ok()?.write_all(content).ok()?;
        Some(number)
    }
}

/// As git writes them; others may lead elsewhere, or take long to be looked up.
fn is_name(name: &Path) -> bool {
    let parts = || name.components();
    let is_plain = parts().all(|part| matches!(part, Component::Normal(_)));
    name.as_os_str().len() <= LONGEST_PATH && is_plain && parts().collect::<PathBuf>().as_os_str() == name.as_os_str()
}

fn read_at_most(file: &std::fs::File, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

/// What is known of the files of a project.
#[derive(Debug)]
pub struct Beginnings {
    known: HashMap<Vec<u8>, String>,
    copies: Option<OwnedFd>,
}

impl Beginnings {
    pub(crate) fn read(directory: BorrowedFd<'_>) -> Self {
        let list = read_file(directory, FILE, LARGEST_INDEX).unwrap_or_default();
        let mut known = HashMap::new();
        // The last line may have been torn.
        for line in list.split_inclusive(|byte| *byte == 0).filter_map(|line| line.strip_suffix(&[0])) {
            if let Some(space) = line.iter().position(|byte| *byte == b' ') {
                known.insert(line[space + 1..].to_vec(), String::from_utf8_lossy(&line[..space]).into_owned());
            }
        }
        Beginnings { known, copies: beneath::directory(directory, Path::new(COPIES)).ok() }
    }

    pub fn of(&self, path: &Path) -> Option<Beginning> {
        let known = self.known.get(path.as_os_str().as_bytes())?;
        if let Some(number) = known.strip_prefix('=') {
            let content = read_file(self.copies.as_ref()?.as_fd(), number, diff::LARGEST);
            return content.ok().map(Beginning::Content);
        }
        let (id, size) = known.split_once(':')?;
        Some(Beginning::Object { id: id.to_owned(), size: size.parse().ok()? })
    }
}
