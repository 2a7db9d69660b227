//! What differs between an overlay's upper layer and the tree below it. Owns the walk, its bounds, what counts as a change and
//! what as a conflict; changes nothing. Called by `transaction`.
//!
//! Copy-up is silent and says nothing of where a file came from. So whether the host has changed a path meanwhile is told by the time
//! of its last change, which no program can set: later than the mount is a conflict, unless the content is what the
//! session made as well.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::Serialize;

use crate::attributes::{OPAQUE, attributes};
use crate::beneath::{self, DEEPEST};
use crate::copied::Copied;
use crate::entry::{Entry, Kind, Time};
use crate::journal::Earlier;
use crate::origins;
use crate::sparse;

/// More names than this are not listed: a workload may make any number.
pub(crate) const MOST_ENTRIES: usize = 1 << 20;
/// And so many bytes of their paths: a deep tree of long names costs a workload little.
const MOST_BYTES: usize = 1 << 28;
/// The kernel takes no longer path, and a commit needs some of it for the name of its stage.
pub(crate) const LONGEST_PATH: usize = 3900;
/// Apparent size of the largest file that is committed; a sparse one costs the workload nothing.
const LARGEST: u64 = 64 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    Added,
    Modified,
    Deleted,
    /// Something of another kind has the name.
    Replaced,
}

/// Why a change cannot be taken over as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conflict {
    /// The host changed it after the session began.
    Changed,
    /// The session changed what the host has removed since; or it moved something to a directory in which the host worked.
    Removed,
    /// A part of the same unit is in conflict: a database and its log, a repository in the project.
    Unit,
    /// Refs, `HEAD` or index of the project's own repository, in which the host has worked, too. Both sides have commits, so one does
    /// not take the place of the other: the session's get a branch of their own.
    Repository,
    /// A link that leads out of the tree would take the place of something.
    LeavesTree,
    /// Something in the directory stays, whatever is chosen: a hidden name, another mount, what cannot be read.
    Held,
}

/// One name that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Relative to the tree.
    pub path: PathBuf,
    pub what: What,
    #[serde(skip)]
    pub before: Option<Entry>,
    #[serde(skip)]
    pub after: Option<Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflict: Option<Conflict>,
}

impl Change {
    /// What it is now, or was.
    pub fn kind(&self) -> Kind {
        self.after.as_ref().or(self.before.as_ref()).map_or(Kind::File, |entry| entry.kind)
    }

    /// Whether a link of the session leads out of the tree.
    pub fn leaves_tree(&self) -> bool {
        self.after.as_ref().and_then(|entry| entry.target.as_deref()).is_some_and(|target| leaves(&self.path, target))
    }
}

/// Something in the upper layer that is never taken over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    pub path: PathBuf,
    pub why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    Device,
    Fifo,
    Socket,
    /// The policy hides the name from the session.
    Hidden,
    TooDeep,
    TooLarge,
    /// It cannot be read from outside.
    Unreadable,
    /// Another file system is mounted there.
    OtherMount,
    /// The host's, and not in the copy that the session worked on.
    Unseen,
    /// Of git, left by a process that has ended.
    Lock,
}

/// Everything that differs in one tree, parents before what lies in them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    pub changes: Vec<Change>,
    pub skipped: Vec<Skipped>,
    /// There are more names than are listed: nothing of this can be committed as a whole.
    pub is_cut: bool,
}

impl Changes {
    /// Whether nothing would be lost with the layer but names that are never committed. What is too large, too deep or cannot be
    /// read is work.
    pub fn is_without_work(&self) -> bool {
        let is_never_taken = |why: Why| matches!(why, Why::Hidden | Why::Device | Why::Fifo | Why::Socket | Why::Lock);
        self.changes.is_empty() && !self.is_cut && self.skipped.iter().all(|left| is_never_taken(left.why))
    }
}

/// What a walk has to know besides the two trees.
pub(crate) struct Walk<'a> {
    pub(crate) mounted: Time,
    /// Paths that the policy hides.
    pub(crate) hidden: &'a dyn Fn(&Path) -> bool,
    pub(crate) earlier: &'a Earlier,
    /// Where the layer began as a copy.
    copied: Option<&'a Copied>,
    found: Changes,
    seen: usize,
    bytes: usize,
    /// Files of the upper layer with several names that are as below: they count where another of their names does.
    unchanged: Vec<(u64, Change)>,
}

/// A directory of both layers.
struct Pair<'a> {
    upper: BorrowedFd<'a>,
    lower: Option<BorrowedFd<'a>>,
    /// What the lower layer has here cannot be seen through.
    is_opaque: bool,
    /// The host may have removed names here after the mount.
    may_lack: bool,
    depth: usize,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(mounted: Time, hidden: &'a dyn Fn(&Path) -> bool, earlier: &'a Earlier) -> Self {
        let (found, unchanged) = (Changes::default(), Vec::new());
        Walk { mounted, hidden, earlier, copied: None, found, seen: 0, bytes: 0, unchanged }
    }

    pub(crate) fn of_copy(mut self, copied: Option<&'a Copied>) -> Self {
        self.copied = copied;
        self
    }

    /// Whether the host has a name that the session never saw, because it was not copied.
    fn is_unseen(&self, path: &Path) -> bool {
        self.copied.is_some_and(|copied| !copied.has(path))
    }

    pub(crate) fn all(mut self, upper: BorrowedFd<'_>, lower: BorrowedFd<'_>) -> Result<Changes, Errno> {
        let is_opaque = is_opaque(upper);
        let may_lack = self.may_lack(Path::new(""), lower)?;
        self.directory(Path::new(""), &Pair { upper, lower: Some(lower), is_opaque, may_lack, depth: 0 })?;
        let linked: HashSet<u64> =
            self.found.changes.iter().filter_map(|change| Some(change.after.as_ref()?.inode)).collect();
        let unchanged = std::mem::take(&mut self.unchanged).into_iter();
        self.found.changes.extend(unchanged.filter(|(inode, _)| linked.contains(inode)).map(|(_, change)| change));
        // By their parts: each is followed by what lies below it.
        self.found.changes.sort_by(|one, other| one.path.cmp(&other.path));
        if self.copied.is_none() {
            self.pair_renames(upper, lower);
        }
        self.carry_down();
        Ok(self.found)
    }

    /// A file that the session renamed, told by its content: the host has it under its old name, so it did not remove it; and where the
    /// new name waits, so does the old one, or the file would have neither. Of a new name that waits and has another content any
    /// removed file may be the old one, unless there are as many other copies.
    fn pair_renames(&mut self, upper: BorrowedFd<'_>, lower: BorrowedFd<'_>) {
        let waits = |one: &Change| matches!(one.conflict, Some(Conflict::Removed | Conflict::Changed));
        let is_file = |entry: &Option<Entry>| entry.as_ref().is_some_and(|entry| entry.kind == Kind::File);
        let changes = &mut self.found.changes;
        let all = 0..changes.len();
        if !changes.iter().any(|one| waits(one) && is_file(&one.after)) {
            return;
        }
        let is_new = |one: &Change| (waits(one) || one.what == What::Added) && is_file(&one.after);
        let new: Vec<usize> = all.clone().filter(|at| is_new(&changes[*at])).collect();
        let is_old = |one: &Change| one.what == What::Deleted && is_file(&one.before);
        let mut old: Vec<usize> = all.filter(|at| is_old(&changes[*at])).collect();
        let (mut is_any_unpaired, mut elsewhere) = (false, 0);
        for new in new {
            let is_pair = |old: usize, changes: &[Change]| {
                let (one, other) = (&changes[new], &changes[old]);
                let size = |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.size).filter(|size| *size > 0);
                let same = || {
                    let (above, name, _unclosed) = beneath::layer_parent(upper, &one.path)?;
                    let (below, old) = beneath::parent(lower, &other.path)?;
                    Ok::<bool, Errno>(is_same_file((above.as_fd(), name), (below.as_fd(), old)))
                };
                size(&one.after).is_some() && size(&one.after) == size(&other.before) && same().unwrap_or(false)
            };
            match old.iter().position(|old| is_pair(*old, changes)).map(|at| old.swap_remove(at)) {
                Some(old) if changes[new].conflict == Some(Conflict::Removed) => {
                    changes[new].conflict = changes[old].conflict.and(Some(Conflict::Unit));
                }
                Some(old) if changes[new].conflict.is_some() => {
                    changes[old].conflict = changes[old].conflict.or(Some(Conflict::Unit));
                }
                Some(_) => {}
                None if changes[new].conflict.is_none() => {
                    let parent = beneath::layer_parent(upper, &changes[new].path);
                    elsewhere +=
                        usize::from(parent.is_ok_and(|(above, name, _)| origins::is_marked(above.as_fd(), name)));
                }
                None => is_any_unpaired |= changes[new].conflict == Some(Conflict::Removed),
            }
        }
        let is_unclear = is_any_unpaired && old.len() > elsewhere;
        for old in old.into_iter().filter(|_| is_unclear) {
            changes[old].conflict = changes[old].conflict.or(Some(Conflict::Unit));
        }
    }

    /// Where nothing takes the place of a directory, what is in it does not go; where no directory does, nothing comes into it.
    fn carry_down(&mut self) {
        let mut above: Option<PathBuf> = None;
        for change in &mut self.found.changes {
            if above.as_ref().is_some_and(|above| change.path.starts_with(above)) {
                change.conflict = change.conflict.or(Some(Conflict::Unit));
            } else if change.what == What::Replaced && change.conflict.is_some() {
                above = Some(change.path.clone());
            }
        }
    }

    fn skip(&mut self, path: PathBuf, why: Why) {
        self.found.skipped.push(Skipped { path, why });
    }

    fn add(
        &mut self,
        path: PathBuf,
        what: What,
        before: Option<Entry>,
        after: Option<Entry>,
        conflict: Option<Conflict>,
    ) {
        if !self.earlier.taken.contains(&path) {
            self.found.changes.push(Change { path, what, before, after, conflict });
        }
    }

    /// Whether the host touched this after the mount.
    fn is_touched(&self, path: &Path, entry: &Entry) -> bool {
        let is_by_us = self.earlier.directories.get(path) == Some(&entry.changed);
        self.mounted.is_before(entry.changed) && !is_by_us
    }

    /// A name that goes changes its directory.
    fn may_lack(&self, at: &Path, lower: BorrowedFd<'_>) -> Result<bool, Errno> {
        Ok(self.is_touched(at, &Entry::of(&rustix::fs::fstat(lower)?)))
    }

    /// Whether something of the upper layer began as a copy of the lower one.
    fn was_below(&self, path: &Path, pair: &Pair<'_>, name: &OsStr, kind: Kind) -> bool {
        self.earlier.origins.contains(path) || kind != Kind::Link && origins::is_marked(pair.upper, name)
    }

    fn is_full(&mut self, at: &Path) -> bool {
        self.seen += 1;
        self.bytes += at.as_os_str().len();
        self.found.is_cut |= self.seen > MOST_ENTRIES || self.bytes > MOST_BYTES;
        self.found.is_cut
    }

    fn directory(&mut self, at: &Path, pair: &Pair<'_>) -> Result<(), Errno> {
        if pair.depth > DEEPEST {
            self.skip(at.to_path_buf(), Why::TooDeep);
            return Ok(());
        }
        let mut names = beneath::names(pair.upper, MOST_ENTRIES)?;
        if let (true, Some(lower)) = (pair.is_opaque, pair.lower) {
            // What the kernel no longer shows of the lower layer was removed.
            names.extend(beneath::names(lower, MOST_ENTRIES)?);
            names.sort();
            names.dedup();
        }
        for name in names {
            if self.is_full(at) {
                return Ok(());
            }
            let path = at.join(&name);
            if (self.hidden)(&path) {
                if Entry::at(pair.upper, &name)?.is_some_and(|entry| !entry.is_whiteout) {
                    self.skip(path, Why::Hidden);
                }
                continue;
            }
            let upper = Entry::at(pair.upper, &name)?;
            let lower = pair.lower.map(|lower| Entry::at(lower, &name)).transpose()?.flatten();
            match upper.filter(|upper| !upper.is_whiteout) {
                None => self.removed(&path, &name, pair, lower)?,
                Some(upper) => self.present(path, &name, pair, upper, lower)?,
            }
        }
        Ok(())
    }

    /// A name that the lower layer may have and the upper one hides.
    fn removed(&mut self, path: &Path, name: &OsStr, pair: &Pair<'_>, lower: Option<Entry>) -> Result<(), Errno> {
        let (Some(lower), Some(directory)) = (lower, pair.lower) else { return Ok(()) };
        if self.is_unseen(path) {
            return Ok(());
        }
        let kind = lower.kind;
        let is_touched = self.is_touched(path, &lower);
        let begin = self.found.changes.len();
        self.add(path.to_path_buf(), What::Deleted, Some(lower), None, is_touched.then_some(Conflict::Changed));
        if kind == Kind::Directory {
            self.all_removed(path, directory, name, pair.depth + 1)?;
            self.carry_up(begin);
        }
        Ok(())
    }

    /// A directory cannot go while something in it stays: it shares the conflicts of what lies in it.
    fn carry_up(&mut self, begin: usize) {
        let Some((first, below)) = self.found.changes.get_mut(begin..).and_then(<[Change]>::split_first_mut) else {
            return;
        };
        let has =
            |conflict: Conflict| below.iter().any(|one| one.what == What::Deleted && one.conflict == Some(conflict));
        if has(Conflict::Held) {
            first.conflict = Some(Conflict::Held);
        } else if has(Conflict::Changed) {
            first.conflict = first.conflict.or(Some(Conflict::Changed));
        }
    }

    /// Everything in a directory of the lower layer is gone.
    fn all_removed(&mut self, at: &Path, parent: BorrowedFd<'_>, name: &OsStr, depth: usize) -> Result<(), Errno> {
        let opened = match beneath::directory(parent, Path::new(name)) {
            Ok(opened) if depth <= DEEPEST => opened,
            refused => {
                let why = match refused {
                    Ok(_) => Why::TooDeep,
                    Err(Errno::XDEV) => Why::OtherMount,
                    Err(_) => Why::Unreadable,
                };
                self.stays(at, why);
                return Ok(());
            }
        };
        for name in beneath::names(opened.as_fd(), MOST_ENTRIES)? {
            if self.is_full(at) {
                return Ok(());
            }
            let path = at.join(&name);
            if (self.hidden)(&path) {
                self.stays(at, Why::Hidden);
                continue;
            }
            let Some(entry) = Entry::at(opened.as_fd(), &name)? else { continue };
            if self.is_unseen(&path) {
                self.stays(at, Why::Unseen);
                continue;
            }
            let kind = entry.kind;
            let is_touched = self.is_touched(&path, &entry);
            let begin = self.found.changes.len();
            self.add(path.clone(), What::Deleted, Some(entry), None, is_touched.then_some(Conflict::Changed));
            if kind == Kind::Directory {
                self.all_removed(&path, opened.as_fd(), &name, depth + 1)?;
                self.carry_up(begin);
            }
        }
        Ok(())
    }

    /// A directory that the session removed and that cannot go: its entry, which came before, is a conflict.
    fn stays(&mut self, at: &Path, why: Why) {
        if let Some(change) = self.found.changes.iter_mut().rev().find(|change| change.path == at) {
            change.conflict = Some(Conflict::Held);
        }
        self.skip(at.to_path_buf(), why);
    }

    fn present(
        &mut self,
        path: PathBuf,
        name: &OsStr,
        pair: &Pair<'_>,
        upper: Entry,
        lower: Option<Entry>,
    ) -> Result<(), Errno> {
        match upper.kind {
            _ if path.as_os_str().len() > LONGEST_PATH => self.skip(path, Why::TooDeep),
            Kind::Device => self.skip(path, Why::Device),
            Kind::Fifo => self.skip(path, Why::Fifo),
            Kind::Socket => self.skip(path, Why::Socket),
            Kind::File if upper.size > LARGEST => self.skip(path, Why::TooLarge),
            Kind::Directory => return self.directories(path, name, pair, upper, lower),
            Kind::File | Kind::Link => return self.leaf(path, name, pair, upper, lower),
        }
        Ok(())
    }

    /// A file or a link of the session.
    fn leaf(
        &mut self,
        path: PathBuf,
        name: &OsStr,
        pair: &Pair<'_>,
        upper: Entry,
        lower: Option<Entry>,
    ) -> Result<(), Errno> {
        if self.copied.is_some_and(|copied| copied.is_untouched(&path, &upper)) {
            return Ok(());
        }
        let Some((lower, directory)) = lower.zip(pair.lower) else {
            let is_lost = match self.copied {
                Some(copied) => copied.has(&path),
                None => pair.may_lack && self.was_below(&path, pair, name, upper.kind),
            };
            self.add(path, What::Added, None, Some(upper), is_lost.then_some(Conflict::Removed));
            return Ok(());
        };
        if lower.kind == upper.kind && is_same(pair.upper, directory, name, &upper, &lower) {
            if upper.links > 1 && !self.earlier.taken.contains(&path) {
                let conflict = self.is_touched(&path, &lower).then_some(Conflict::Changed);
                let (inode, what, before, after) = (upper.inode, What::Modified, Some(lower), Some(upper));
                self.unchanged.push((inode, Change { path, what, before, after, conflict }));
            }
            return Ok(());
        }
        let what = if lower.kind == upper.kind { What::Modified } else { What::Replaced };
        let is_directory = lower.kind == Kind::Directory;
        let is_out = upper.target.as_deref().is_some_and(|target| leaves(&path, target));
        let touched = self.is_touched(&path, &lower).then_some(Conflict::Changed);
        let conflict = touched.or((is_out && what == What::Replaced).then_some(Conflict::LeavesTree));
        let begin = self.found.changes.len();
        self.add(path.clone(), what, Some(lower), Some(upper), conflict);
        if is_directory {
            self.all_removed(&path, directory, name, pair.depth + 1)?;
            self.carry_up(begin);
        }
        Ok(())
    }

    fn directories(
        &mut self,
        path: PathBuf,
        name: &OsStr,
        pair: &Pair<'_>,
        upper: Entry,
        lower: Option<Entry>,
    ) -> Result<(), Errno> {
        let Ok((opened, _unclosed)) = beneath::layer_directory(pair.upper, name) else {
            self.skip(path, Why::Unreadable);
            return Ok(());
        };
        let is_opaque = pair.is_opaque || is_opaque(opened.as_fd());
        let below: Option<OwnedFd> = match (&lower, pair.lower) {
            (Some(entry), Some(directory)) if entry.kind == Kind::Directory => {
                match beneath::directory(directory, Path::new(name)) {
                    Ok(below) => Some(below),
                    Err(errno) => {
                        self.skip(path, if errno == Errno::XDEV { Why::OtherMount } else { Why::Unreadable });
                        return Ok(());
                    }
                }
            }
            _ => None,
        };
        let is_lost = lower.is_none() && pair.may_lack && self.was_below(&path, pair, name, upper.kind);
        let is_as_copied = self.copied.is_some_and(|copied| copied.has_mode(&path, &upper));
        match lower {
            None if is_as_copied => return self.removed_by_host(path, opened.as_fd(), upper, pair.depth + 1),
            None => self.add(path.clone(), What::Added, None, Some(upper), is_lost.then_some(Conflict::Removed)),
            Some(lower) if lower.kind != Kind::Directory => {
                let conflict = self.is_touched(&path, &lower).then_some(Conflict::Changed);
                self.add(path.clone(), What::Replaced, Some(lower), Some(upper), conflict);
            }
            Some(lower) if lower.mode != upper.mode && !is_as_copied => {
                // The layer has the mode of the time when something was first written below; the host may have changed it since.
                let conflict = self.is_touched(&path, &lower).then_some(Conflict::Changed);
                self.add(path.clone(), What::Modified, Some(lower), Some(upper), conflict);
            }
            Some(_) => {}
        }
        let lower = below.as_ref().map(|below| below.as_fd());
        let may_lack = lower.map_or(Ok(is_lost), |lower| self.may_lack(&path, lower))?;
        self.directory(&path, &Pair { upper: opened.as_fd(), lower, is_opaque, may_lack, depth: pair.depth + 1 })
    }
}

impl Walk<'_> {
    /// A directory of the copy that the host has removed since: a change only where the session has worked in it.
    fn removed_by_host(
        &mut self,
        path: PathBuf,
        opened: BorrowedFd<'_>,
        upper: Entry,
        depth: usize,
    ) -> Result<(), Errno> {
        let begin = self.found.changes.len();
        let pair = Pair { upper: opened, lower: None, is_opaque: true, may_lack: true, depth };
        self.directory(&path, &pair)?;
        if self.found.changes.len() > begin {
            for change in &mut self.found.changes[begin..] {
                change.conflict = change.conflict.or(Some(Conflict::Removed));
            }
            self.add(path, What::Added, None, Some(upper), Some(Conflict::Removed));
        }
        Ok(())
    }
}

pub(crate) fn is_opaque(directory: BorrowedFd<'_>) -> bool {
    let mut value = [0u8; 2];
    matches!(rustix::fs::fgetxattr(directory, OPAQUE, &mut value), Ok(length) if value[..length] == *b"y")
}

/// Whether a link at `path` leads out of the tree, by its text.
pub(crate) fn leaves(path: &Path, target: &Path) -> bool {
    use std::path::Component;
    let mut depth = path.components().count().saturating_sub(1);
    let mut has_name = false;
    for component in target.components() {
        match component {
            Component::RootDir | Component::Prefix(_) => return true,
            // What comes before may be a link itself, and lead anywhere.
            Component::ParentDir if depth == 0 || has_name => return true,
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => has_name = true,
            Component::CurDir => {}
        }
    }
    false
}

/// Whether two entries of the same kind say the same. What cannot be read is taken to differ.
fn is_same(upper: BorrowedFd<'_>, lower: BorrowedFd<'_>, name: &OsStr, ours: &Entry, theirs: &Entry) -> bool {
    match ours.kind {
        Kind::Link => ours.target == theirs.target,
        Kind::File if (ours.size, ours.mode) != (theirs.size, theirs.mode) => false,
        Kind::File => is_same_file((upper, name), (lower, name)),
        _ => false,
    }
}

/// Whether two files, each a name in a directory, have the same content and attributes.
pub(crate) fn is_same_file(one: (BorrowedFd<'_>, &OsStr), other: (BorrowedFd<'_>, &OsStr)) -> bool {
    let opened = |(directory, name)| beneath::file(directory, name);
    opened(one)
        .and_then(|one| Ok((one, opened(other)?)))
        .is_ok_and(|(one, other)| is_same_content(&one, &other).unwrap_or(false))
}

fn is_same_content(ours: &std::fs::File, theirs: &std::fs::File) -> Result<bool, std::io::Error> {
    if attributes(ours)? != attributes(theirs)? {
        return Ok(false);
    }
    // The same file under both names: what was committed is a link to it.
    let (one, other) = (ours.metadata()?, theirs.metadata()?);
    if one.len() != other.len() {
        return Ok(false);
    }
    if (one.dev(), one.ino()) == (other.dev(), other.ino()) {
        return Ok(true);
    }
    let (size, mut at) = (one.len(), 0);
    let (mut a, mut b) = (vec![0u8; 1 << 16], vec![0u8; 1 << 16]);
    loop {
        // What neither has ever been written to is the same.
        at = sparse::next_data(ours, at, size)?.min(sparse::next_data(theirs, at, size)?);
        let length = usize::try_from(size - at).map_or(a.len(), |left| left.min(a.len()));
        if length == 0 {
            return Ok(true);
        }
        ours.read_exact_at(&mut a[..length], at)?;
        theirs.read_exact_at(&mut b[..length], at)?;
        if a[..length] != b[..length] {
            return Ok(false);
        }
        at += length as u64;
    }
}
