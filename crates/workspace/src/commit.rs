//! Carries operations out so that the host's trees are wholly as before or wholly as the session left them, whatever ends this
//! process or the machine in between. Owns the order of the journal, going on with one that was interrupted, and taking one
//! back. Called by `transaction`, which holds the lock.
//!
//! ```text
//!   stage          everything is put together beside its target; the host's trees are untouched
//!   syncfs         and on the disk
//!   intent         journal.json: from here on it is carried through
//!   apply          one rename for each operation; what it replaced takes the place of what was staged
//!   syncfs
//!   done           done.json, then the journal goes
//! ```
//!
//! Whether an operation was carried out is told by the inode that has the name, so that each can be tried again. One whose
//! name the host has changed since it was staged is left out: both versions are kept, and it is a conflict.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_kernel::best_effort;
use rustix::fs::{Access, AtFlags, CWD, Mode, RenameFlags};
use rustix::io::Errno;

use crate::beneath::{self, Unclosed};
use crate::entry::{Entry, Kind, PERMISSIONS};
use crate::journal::{self, Action, Below, DONE, Done, Earlier, Intent, JOURNAL, Operation, STAGING, Settled, Staging};
use crate::moves;
use crate::operations::is_opening;
use crate::remove_tree::Removal;
use crate::staging::{self, Source, copy_tree, sync_file_system};

/// How long removing a layer or what was staged may take.
const LONGEST_REMOVAL: Duration = Duration::from_mins(10);
/// As deep as changes are looked for.
const DEEPEST: usize = 200;

/// One tree of the host and the layer that lies over it.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) lower: OwnedFd,
    pub(crate) upper: OwnedFd,
    /// Keeps the layer open where the workload closed it.
    pub(crate) _unclosed: Option<Unclosed>,
}

/// What a commit did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Committed {
    /// Names that are as the session left them, by tree.
    pub taken: Vec<(usize, PathBuf)>,
    /// Names that the host changed in the last moment: left alone.
    pub left: Vec<(usize, PathBuf)>,
}

#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    #[error("cannot stage {}", path.display())]
    Stage {
        path: PathBuf,
        #[source]
        errno: Errno,
    },
    #[error("cannot write into the directory of {}", path.display())]
    NotWritable {
        path: PathBuf,
        #[source]
        errno: Errno,
    },
    #[error("cannot put {} in place", path.display())]
    Apply {
        path: PathBuf,
        #[source]
        errno: Errno,
    },
    #[error("{} has more changes than can be committed", path.display())]
    TooMany { path: PathBuf },
    #[error("cannot write the journal of the commit")]
    Journal(#[source] Errno),
}

/// Called between any two steps that change something on disk; where it fails, the commit stops as if it had been killed.
pub(crate) type Between<'a> = &'a mut dyn FnMut() -> Result<(), Errno>;

/// The directory of a transaction and its trees.
pub(crate) struct Place<'a> {
    pub(crate) directory: BorrowedFd<'a>,
    pub(crate) trees: &'a [Tree],
}

impl Place<'_> {
    pub(crate) fn commit(
        &self,
        number: usize,
        mut operations: Vec<Operation>,
        between: Between<'_>,
    ) -> Result<Committed, CommitError> {
        let journal = CommitError::Journal;
        self.refuse_unwritable(&operations)?;
        let staging = self.make_stages(number, &operations, between).map_err(journal)?;
        let stages = Stages::open(self, number, &staging).map_err(journal)?;
        self.stage_all(&stages, &mut operations, between)?;
        self.sync(&stages).map_err(journal)?;
        let intent = Intent { version: 1, number, operations, staging };
        between().map_err(journal)?;
        journal::write(self.directory, JOURNAL, &intent).map_err(journal)?;
        best_effort(rustix::fs::unlinkat(self.directory, STAGING, AtFlags::empty()), "the journal says it too");
        between().map_err(journal)?;
        self.carry_through(&intent, &stages, between)
    }

    /// Goes on with what a process before has begun.
    pub(crate) fn recover(&self, between: Between<'_>) -> Result<Option<Committed>, CommitError> {
        let error = CommitError::Journal;
        if let Some(intent) = journal::read::<Intent>(self.directory, JOURNAL).map_err(error)? {
            let stages = Stages::open(self, intent.number, &intent.staging).map_err(error)?;
            let is_done = journal::read::<Done>(stages.own.as_fd(), DONE).map_err(error)?;
            if let Some(done) = is_done {
                self.finish(&intent, &stages, &done, between)?;
                return Ok(Some(committed(&done)));
            }
            return self.carry_through(&intent, &stages, between).map(Some);
        }
        self.unstage().map_err(error)?;
        Ok(None)
    }

    /// What was staged without an intent is given up.
    fn unstage(&self) -> Result<(), Errno> {
        if let Some(staging) = journal::read::<Staging>(self.directory, STAGING)? {
            for (tree, name) in &staging.beside {
                if let Some(tree) = self.trees.get(*tree) {
                    remove(tree.lower.as_fd(), name)?;
                }
            }
            rustix::fs::unlinkat(self.directory, STAGING, AtFlags::empty())?;
        }
        for number in numbers(self.directory)? {
            let name = own_stage(number);
            let directory = beneath::directory(self.directory, Path::new(&name))?;
            if Entry::at(directory.as_fd(), OsStr::new(DONE))?.is_none() {
                remove(self.directory, &name)?;
            }
        }
        Ok(())
    }

    fn refuse_unwritable(&self, operations: &[Operation]) -> Result<(), CommitError> {
        let opened: HashSet<(usize, &Path)> =
            operations.iter().filter(|one| is_opening(one)).map(|one| (one.tree, one.path.as_path())).collect();
        let mut last: Option<(usize, &Path)> = None;
        for operation in operations.iter().filter(|operation| !matches!(operation.action, Action::SetMode { .. })) {
            let above = operation.path.parent().unwrap_or(Path::new(""));
            if last.replace((operation.tree, above)) == Some((operation.tree, above))
                || opened.contains(&(operation.tree, above))
            {
                continue;
            }
            let tree = self.trees.get(operation.tree).ok_or(CommitError::Journal(Errno::INVAL))?;
            let may = beneath::directory(tree.lower.as_fd(), above).and_then(|directory| {
                rustix::fs::accessat(&directory, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
            });
            may.map_err(|errno| CommitError::NotWritable { path: operation.path.clone(), errno })?;
        }
        Ok(())
    }

    /// Which trees need a place of their own, written down before it exists.
    fn make_stages(&self, number: usize, operations: &[Operation], between: Between<'_>) -> Result<Staging, Errno> {
        let ours = beneath::mount_of(self.directory)?;
        let mut staging = Staging::default();
        for (index, tree) in self.trees.iter().enumerate() {
            let is_used = operations.iter().any(|operation| operation.tree == index);
            if is_used && beneath::mount_of(&tree.lower)? != ours {
                staging.beside.push((index, staging::unknown_name()?));
            }
        }
        if !staging.beside.is_empty() {
            journal::write(self.directory, STAGING, &staging)?;
        }
        between()?;
        rustix::fs::mkdirat(self.directory, own_stage(number), Mode::RWXU)?;
        for (tree, name) in &staging.beside {
            staging::make(self.trees[*tree].lower.as_fd(), name)?;
            between()?;
        }
        Ok(staging)
    }

    fn stage_all(
        &self,
        stages: &Stages,
        operations: &mut [Operation],
        between: Between<'_>,
    ) -> Result<(), CommitError> {
        let mut sources: Vec<Source<'_>> = Vec::new();
        for (index, tree) in self.trees.iter().enumerate() {
            let taken = names_of_files(tree, operations.iter().filter(|operation| operation.tree == index));
            let may_link = !stages.beside.contains_key(&index);
            let (copied, linked) = (HashMap::new(), HashSet::new());
            sources.push(Source { upper: tree.upper.as_fd(), may_link, taken, copied, linked });
        }
        for (number, operation) in operations.iter_mut().enumerate() {
            if matches!(operation.action, Action::Create | Action::Exchange) {
                let source = sources.get_mut(operation.tree).ok_or(CommitError::Journal(Errno::INVAL))?;
                let stage = stages.of(operation.tree);
                let staged = source.stage(&operation.path, &operation.takes, stage, &number.to_string());
                let path = || operation.path.clone();
                operation.staged = Some(staged.map_err(|errno| CommitError::Stage { path: path(), errno })?);
                between().map_err(CommitError::Journal)?;
            }
        }
        Ok(())
    }

    fn sync(&self, stages: &Stages) -> Result<(), Errno> {
        sync_file_system(self.directory)?;
        for tree in stages.beside.keys() {
            sync_file_system(&self.trees[*tree].lower)?;
        }
        Ok(())
    }

    /// From the intent to the end. Where a rename fails for a reason that has nothing to do with what is there, what was done is
    /// taken back.
    fn carry_through(&self, intent: &Intent, stages: &Stages, between: Between<'_>) -> Result<Committed, CommitError> {
        let journal = CommitError::Journal;
        let mut applied = Vec::with_capacity(intent.operations.len());
        for (number, operation) in intent.operations.iter().enumerate() {
            match self.apply(operation, stages.of(operation.tree), &number.to_string()) {
                Ok(was_applied) => applied.push(was_applied),
                Err(errno) => {
                    let path = operation.path.clone();
                    self.take_back(intent, stages, &applied)?;
                    return Err(CommitError::Apply { path, errno });
                }
            }
            between().map_err(journal)?;
        }
        self.sync(stages).map_err(journal)?;
        between().map_err(journal)?;
        let directories = self.directories(&intent.operations, &applied).map_err(journal)?;
        let done = Done { operations: intent.operations.clone(), applied, directories };
        self.finish(intent, stages, &done, between)?;
        Ok(committed(&done))
    }

    /// As this commit leaves them.
    fn directories(&self, operations: &[Operation], applied: &[bool]) -> Result<Vec<Settled>, Errno> {
        let mut settled: Vec<Settled> = Vec::new();
        let mut seen = HashSet::new();
        for (operation, _) in operations.iter().zip(applied).filter(|(_, applied)| **applied) {
            // The mode of a directory is its own time's, a name that of the directory it lies in.
            let path = match operation.action {
                Action::SetMode { .. } => operation.path.as_path(),
                _ => operation.path.parent().unwrap_or(Path::new("")),
            };
            if seen.insert((operation.tree, path)) {
                let lower = self.trees.get(operation.tree).ok_or(Errno::INVAL)?.lower.as_fd();
                let Ok(directory) = beneath::directory(lower, path) else { continue };
                let changed = Entry::of(&rustix::fs::fstat(&directory)?).changed;
                settled.push(Settled { tree: operation.tree, path: path.to_path_buf(), changed });
            }
        }
        Ok(settled)
    }

    fn finish(&self, intent: &Intent, stages: &Stages, done: &Done, between: Between<'_>) -> Result<(), CommitError> {
        self.finish_on_disk(intent, stages, done, between).map_err(CommitError::Journal)
    }

    fn finish_on_disk(&self, intent: &Intent, stages: &Stages, done: &Done, between: Between<'_>) -> Result<(), Errno> {
        if Entry::at(stages.own.as_fd(), OsStr::new(DONE))?.is_none() {
            for beside in stages.beside.values() {
                keep_replaced(beside.as_fd(), stages.own.as_fd())?;
            }
            between()?;
            journal::write(stages.own.as_fd(), DONE, done)?;
            between()?;
        }
        // Only now: the copy of what was replaced is whole.
        for (tree, name) in &intent.staging.beside {
            remove(self.trees[*tree].lower.as_fd(), name)?;
            between()?;
        }
        // From now on these files are the host's alone.
        for (operation, _) in done.operations.iter().zip(&done.applied).filter(|(_, applied)| **applied) {
            let upper = self.trees[operation.tree].upper.as_fd();
            for path in &operation.takes {
                let gone = beneath::layer_parent(upper, path)
                    .and_then(|(parent, name, _unclosed)| rustix::fs::unlinkat(&parent, name, AtFlags::empty()));
                best_effort(gone, "directories stay, and what was removed is a mark that means nothing now");
            }
        }
        between()?;
        rustix::fs::unlinkat(self.directory, JOURNAL, AtFlags::empty())?;
        rustix::fs::fsync(self.directory)
    }

    /// Reverses what was carried out, last first, and ends the commit. What the host has changed since stays, and is recorded as
    /// committed, so that what it replaced is kept.
    fn take_back(&self, intent: &Intent, stages: &Stages, applied: &[bool]) -> Result<(), CommitError> {
        let mut left = applied.to_vec();
        left.resize(intent.operations.len(), false);
        for (number, operation) in intent.operations.iter().enumerate().rev() {
            if left[number] {
                let back = self.reverse(operation, stages.of(operation.tree), &number.to_string());
                left[number] = !back.map_err(|errno| CommitError::Apply { path: operation.path.clone(), errno })?;
            }
        }
        self.sync(stages).map_err(CommitError::Journal)?;
        if left.contains(&true) {
            let directories = self.directories(&intent.operations, &left).map_err(CommitError::Journal)?;
            let done = Done { operations: intent.operations.clone(), applied: left, directories };
            return self.finish(intent, stages, &done, &mut || Ok(()));
        }
        let end = || {
            journal::write(self.directory, STAGING, &intent.staging)?;
            rustix::fs::unlinkat(self.directory, JOURNAL, AtFlags::empty())?;
            self.unstage()
        };
        end().map_err(CommitError::Journal)
    }

    /// `false` where the host has changed what has the name.
    fn apply(&self, operation: &Operation, stage: BorrowedFd<'_>, number: &str) -> Result<bool, Errno> {
        let lower = self.trees.get(operation.tree).ok_or(Errno::INVAL)?.lower.as_fd();
        let (parent, name) = match beneath::parent(lower, &operation.path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(false),
            other => other?,
        };
        let (place, waits) = ((parent.as_fd(), name), (stage, OsStr::new(number)));
        let target = Entry::at(parent.as_fd(), name)?;
        let staged = operation.staged.as_ref();
        let is_ours = |entry: &Entry| staged.is_some_and(|staged| is_same_inode(entry, staged));
        let is_base = |entry: &Entry| operation.base.as_ref().is_some_and(|base| entry.is_still(base));
        let waiting = Entry::at(stage, OsStr::new(number))?;
        match &operation.action {
            Action::Create => match (&target, &waiting) {
                (Some(target), None) if is_ours(target) => moves::settle(place, staged).map(|()| true),
                (None, Some(_)) => match moves::rename(waits, place, RenameFlags::NOREPLACE) {
                    Err(Errno::EXIST) => Ok(false),
                    other => other.map(|()| true),
                },
                _ => Ok(false),
            },
            Action::Exchange => match &target {
                Some(target) if is_ours(target) => moves::settle(place, staged).map(|()| true),
                Some(target) if is_base(target) => {
                    let exchange = || moves::rename(waits, place, RenameFlags::EXCHANGE);
                    exchange()?;
                    // What came out is looked at: it may have been put there after the look before.
                    let is_right = Entry::at(stage, OsStr::new(number))?.as_ref().is_some_and(is_base)
                        && has_only(stage, number, operation.below)?;
                    if !is_right {
                        exchange()?;
                    }
                    Ok(is_right)
                }
                _ => Ok(false),
            },
            Action::Remove => match (&target, &waiting) {
                (None, _) => Ok(true),
                (Some(_), Some(_)) => Ok(false),
                (Some(target), None) if is_base(target) => {
                    match moves::rename(place, waits, RenameFlags::NOREPLACE) {
                        // Something is mounted there.
                        Err(Errno::BUSY | Errno::XDEV) => return Ok(false),
                        other => other?,
                    }
                    let is_right = Entry::at(stage, OsStr::new(number))?.as_ref().is_some_and(is_base)
                        && has_only(stage, number, operation.below)?;
                    if !is_right {
                        moves::rename(waits, place, RenameFlags::NOREPLACE)?;
                    }
                    Ok(is_right)
                }
                _ => Ok(false),
            },
            Action::SetMode { to } => set_mode(&parent, name, target, operation.base.as_ref(), *to),
        }
    }

    /// Undoes one operation that was carried out, where what it put in place is still there.
    fn reverse(&self, operation: &Operation, stage: BorrowedFd<'_>, number: &str) -> Result<bool, Errno> {
        let lower = self.trees.get(operation.tree).ok_or(Errno::INVAL)?.lower.as_fd();
        let (parent, name) = match beneath::parent(lower, &operation.path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(false),
            other => other?,
        };
        let (place, waits) = ((parent.as_fd(), name), (stage, OsStr::new(number)));
        let target = Entry::at(parent.as_fd(), name)?;
        let waiting = Entry::at(stage, OsStr::new(number))?;
        let is_ours = target
            .as_ref()
            .zip(operation.staged.as_ref())
            .is_some_and(|(target, staged)| is_same_inode(target, staged));
        match (&operation.action, &target, &waiting) {
            (Action::Create, Some(_), None) if is_ours => {
                moves::rename(place, waits, RenameFlags::NOREPLACE)?;
                Ok(true)
            }
            (Action::Exchange, Some(_), Some(_)) if is_ours => {
                moves::rename(waits, place, RenameFlags::EXCHANGE)?;
                Ok(true)
            }
            (Action::Remove, None, Some(_)) => {
                moves::rename(waits, place, RenameFlags::NOREPLACE)?;
                Ok(true)
            }
            (Action::Remove, None, None) => Ok(true),
            (Action::SetMode { to }, Some(now), _) => {
                let from = Entry { mode: *to, ..now.clone() };
                let back = operation.base.as_ref().map_or(*to, |base| base.mode);
                set_mode(&parent, name, target.clone(), Some(&from), back)
            }
            _ => Ok(false),
        }
    }
}

/// Whether a directory that came out holds what was looked at, and nothing that the host wrote there since.
fn has_only(stage: BorrowedFd<'_>, number: &str, below: Option<Below>) -> Result<bool, Errno> {
    let Some(below) = below else { return Ok(true) };
    let mut left = vec![beneath::directory(stage, Path::new(number))?];
    let mut names = 0;
    while let Some(directory) = left.pop() {
        for name in beneath::names(directory.as_fd(), 1 << 20)? {
            let Some(entry) = Entry::at(directory.as_fd(), &name)? else { continue };
            names += 1;
            if names > below.names || below.newest.is_none_or(|newest| entry.changed > newest) {
                return Ok(false);
            }
            if entry.kind == Kind::Directory {
                left.push(beneath::directory(directory.as_fd(), Path::new(&name))?);
            }
        }
    }
    Ok(names == below.names)
}

fn set_mode(
    parent: &OwnedFd,
    name: &OsStr,
    target: Option<Entry>,
    base: Option<&Entry>,
    to: u32,
) -> Result<bool, Errno> {
    let (Some(target), Some(base)) = (target, base) else { return Ok(false) };
    if target.kind != Kind::Directory || !is_same_inode(&target, base) {
        return Ok(false);
    }
    if target.mode == to {
        return Ok(true);
    }
    if target.mode != base.mode {
        return Ok(false);
    }
    let directory = beneath::opened_as_path(parent.as_fd(), name)?;
    // Set-group-ID and sticky are the host's to set and to keep.
    let kept = rustix::fs::fstat(&directory)?.st_mode & 0o7777 & !PERMISSIONS;
    let mode = Mode::from_raw_mode(to & PERMISSIONS | kept);
    rustix::fs::chmodat(CWD, beneath::itself(&directory), mode, AtFlags::empty())?;
    Ok(true)
}

fn is_same_inode(one: &Entry, other: &Entry) -> bool {
    (one.kind, one.inode) == (other.kind, other.inode)
}

fn committed(done: &Done) -> Committed {
    let mut committed = Committed::default();
    for (operation, applied) in done.operations.iter().zip(&done.applied) {
        let names = operation.takes.iter().map(|path| (operation.tree, path.clone()));
        if *applied {
            committed.taken.extend(names);
        } else {
            committed.left.extend(names);
        }
    }
    committed
}

pub(crate) fn earlier(directory: BorrowedFd<'_>, trees: usize) -> Result<Vec<Earlier>, Errno> {
    let mut all: Vec<Earlier> = (0..trees).map(|_| Earlier::default()).collect();
    for number in numbers(directory)? {
        let stage = beneath::directory(directory, Path::new(&own_stage(number)))?;
        let Some(done) = journal::read::<Done>(stage.as_fd(), DONE)? else { continue };
        for (tree, path) in committed(&done).taken {
            all.get_mut(tree).ok_or(Errno::INVAL)?.taken.insert(path);
        }
        for settled in done.directories {
            all.get_mut(settled.tree).ok_or(Errno::INVAL)?.directories.insert(settled.path, settled.changed);
        }
    }
    Ok(all)
}

/// The commits of a transaction so far, finished or not.
pub(crate) fn numbers(directory: BorrowedFd<'_>) -> Result<Vec<usize>, Errno> {
    let names = beneath::names(directory, 1 << 16)?;
    let number = |name: &std::ffi::OsString| name.to_str()?.strip_prefix("commit-")?.parse().ok();
    let mut numbers: Vec<usize> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn own_stage(number: usize) -> String {
    format!("commit-{number}")
}

/// How many names of each file with several are taken.
fn names_of_files<'a>(tree: &Tree, operations: impl Iterator<Item = &'a Operation>) -> HashMap<u64, u64> {
    let mut found = HashMap::new();
    for path in operations.flat_map(|operation| &operation.takes) {
        let entry = beneath::layer_parent(tree.upper.as_fd(), path)
            .and_then(|(parent, name, _unclosed)| Entry::at(parent.as_fd(), name));
        if let Ok(Some(entry)) = entry
            && entry.kind == Kind::File
            && entry.links > 1
        {
            *found.entry(entry.inode).or_insert(0) += 1;
        }
    }
    found
}

/// Where operations find what was staged for them.
struct Stages {
    own: OwnedFd,
    beside: HashMap<usize, OwnedFd>,
}

impl Stages {
    fn open(place: &Place<'_>, number: usize, staging: &Staging) -> Result<Self, Errno> {
        let own = beneath::directory(place.directory, Path::new(&own_stage(number)))?;
        let mut beside = HashMap::new();
        for (tree, name) in &staging.beside {
            let lower = place.trees.get(*tree).ok_or(Errno::INVAL)?.lower.as_fd();
            match beneath::directory(lower, Path::new(name)) {
                // It was removed when everything was done.
                Err(Errno::NOENT) => {}
                opened => {
                    beside.insert(*tree, opened?);
                }
            }
        }
        Ok(Stages { own, beside })
    }

    fn of(&self, tree: usize) -> BorrowedFd<'_> {
        self.beside.get(&tree).unwrap_or(&self.own).as_fd()
    }
}

/// What was replaced is kept where no program of the host meets it. What cannot be copied is not kept: the commit is done.
fn keep_replaced(beside: BorrowedFd<'_>, own: BorrowedFd<'_>) -> Result<(), Errno> {
    for number in beneath::names(beside, 1 << 20)? {
        // A process before this one may not have come to the end of it.
        remove_any(own, &number)?;
        best_effort(copy_tree(beside, &number, own, &number, DEEPEST), "the host's tree is as it should be without it");
    }
    Ok(())
}

fn remove_any(parent: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => remove(parent, name),
        other => other,
    }
}

/// Removes a directory with all that lies in it.
pub(crate) fn remove(parent: BorrowedFd<'_>, name: impl AsRef<Path>) -> Result<(), Errno> {
    let name = name.as_ref();
    let top = match beneath::directory(parent, name) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    Removal::new(top, Vec::new())?.turn(Instant::now() + LONGEST_REMOVAL);
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
