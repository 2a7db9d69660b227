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

use cofferdam_kernel::best_effort;
use rustix::fs::{Access, AtFlags, Mode};
use rustix::io::Errno;

use crate::beneath::{self, DEEPEST, Unclosed};
use crate::entry::{Entry, Kind, Time};
use crate::journal::{
    self, Action, DONE, Done, Earlier, Intent, JOURNAL, Operation, STAGING, Settled, Staging, UNDONE,
};
use crate::kept::{give_back, settle_kept};
use crate::operations::is_opening;
use crate::origins;
use crate::stages::{Stages, numbers, own_stage, remove};
use crate::staging::{self, Source, sync_file_system};
use crate::sums;

/// What a file is to hold where that is not the session's version, which stays in the layer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    pub content: Vec<u8>,
    /// The session's permissions come with it; else those of the host stay.
    pub takes_mode: bool,
    /// The session's version is in it as a whole: nothing of the file waits any more.
    pub is_whole: bool,
}

/// Files of a tree that are taken in such a way.
pub type Parts = HashMap<PathBuf, Part>;

/// One tree of the host and the layer that lies over it.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Before the session began, by the clock of its files.
    pub(crate) mounted: Time,
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
    /// Files of which some hunks were taken.
    pub parts: Vec<(usize, PathBuf)>,
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
    #[error("cannot keep a copy of what would be replaced: {}", path.display())]
    Keep {
        path: PathBuf,
        #[source]
        errno: Errno,
    },
    #[error("nothing was committed that could be taken back")]
    NothingToUndo,
    #[error("{} cannot be taken in part", path.display())]
    NoPart { path: PathBuf },
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
        parts: &[Parts],
        between: Between<'_>,
    ) -> Result<Committed, CommitError> {
        let journal = CommitError::Journal;
        self.refuse_unwritable(&operations)?;
        let worked_in = self.worked_in(&operations).map_err(journal)?;
        let staging = self.make_stages(number, &operations, between).map_err(journal)?;
        let stages = self.stages(number, &staging).map_err(journal)?;
        self.stage_all(&stages, &mut operations, parts, between)?;
        self.keep(&stages, &operations, false)?;
        self.sync(&stages).map_err(journal)?;
        let intent = Intent { version: 1, number, operations, staging, is_undo: false, worked_in };
        self.begin(&intent, &stages, between)
    }

    /// Writes the intent, and carries it through.
    pub(crate) fn begin(
        &self,
        intent: &Intent,
        stages: &Stages,
        between: Between<'_>,
    ) -> Result<Committed, CommitError> {
        let journal = CommitError::Journal;
        between().map_err(journal)?;
        journal::write(self.directory, JOURNAL, intent).map_err(journal)?;
        best_effort(rustix::fs::unlinkat(self.directory, STAGING, AtFlags::empty()), "the journal says it too");
        between().map_err(journal)?;
        self.carry_through(intent, stages, between)
    }

    pub(crate) fn stages(&self, number: usize, staging: &Staging) -> Result<Stages, Errno> {
        let lowers: Vec<BorrowedFd<'_>> = self.trees.iter().map(|tree| tree.lower.as_fd()).collect();
        Stages::open(self.directory, &lowers, number, staging)
    }

    /// Goes on with what a process before has begun.
    pub(crate) fn recover(&self, between: Between<'_>) -> Result<Option<Committed>, CommitError> {
        let error = CommitError::Journal;
        if let Some(intent) = journal::read::<Intent>(self.directory, JOURNAL).map_err(error)? {
            let stages = self.stages(intent.number, &intent.staging).map_err(error)?;
            let is_done = journal::read::<Done>(stages.own.as_fd(), intent.record()).map_err(error)?;
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
    pub(crate) fn unstage(&self) -> Result<(), Errno> {
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

    pub(crate) fn refuse_unwritable(&self, operations: &[Operation]) -> Result<(), CommitError> {
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
    pub(crate) fn beside(&self, operations: &[Operation]) -> Result<Staging, Errno> {
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
        Ok(staging)
    }

    fn make_stages(&self, number: usize, operations: &[Operation], between: Between<'_>) -> Result<Staging, Errno> {
        let staging = self.beside(operations)?;
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
        parts: &[Parts],
        between: Between<'_>,
    ) -> Result<(), CommitError> {
        let mut sources: Vec<Source<'_>> = Vec::new();
        for (index, tree) in self.trees.iter().enumerate() {
            let taken = names_of_files(tree, operations.iter().filter(|one| one.tree == index && !one.is_part));
            let may_link = !stages.beside.contains_key(&index);
            let (copied, linked) = (HashMap::new(), HashSet::new());
            sources.push(Source { upper: tree.upper.as_fd(), may_link, taken, copied, linked });
        }
        for (number, operation) in operations.iter_mut().enumerate() {
            if matches!(operation.action, Action::Create | Action::Exchange) {
                let source = sources.get_mut(operation.tree).ok_or(CommitError::Journal(Errno::INVAL))?;
                let stage = stages.of(operation.tree);
                let failed = |errno| CommitError::Stage { path: operation.path.clone(), errno };
                let name = number.to_string();
                let staged = if operation.is_part {
                    self.stage_part(operation, parts, stage, &name)
                } else {
                    source.stage(&operation.path, &operation.takes, stage, &name)
                };
                let staged = staged.map_err(failed)?;
                if staged.kind == Kind::Directory {
                    operation.staged_sum = Some(sums::identity(stage, OsStr::new(&name), DEEPEST).map_err(failed)?);
                }
                operation.content_sum = sums::content(stage, OsStr::new(&name), &operation.path);
                operation.staged = Some(staged);
                between().map_err(CommitError::Journal)?;
            }
        }
        Ok(())
    }

    /// A file of the host with what was chosen.
    fn stage_part(
        &self,
        operation: &Operation,
        parts: &[Parts],
        stage: BorrowedFd<'_>,
        name: &str,
    ) -> Result<Entry, Errno> {
        let part = parts.get(operation.tree).and_then(|parts| parts.get(&operation.path)).ok_or(Errno::INVAL)?;
        let tree = self.trees.get(operation.tree).ok_or(Errno::INVAL)?;
        let (parent, last) = beneath::parent(tree.lower.as_fd(), &operation.path)?;
        staging::write_part((parent.as_fd(), last), &part.content, operation.part_mode, stage, name)
    }

    pub(crate) fn sync(&self, stages: &Stages) -> Result<(), Errno> {
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
            match self.apply(operation, stages.of(operation.tree), &operation.staged_name(number)) {
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
        let directories = self.settled(intent, &applied).map_err(journal)?;
        let done = Done { operations: intent.operations.clone(), applied, directories };
        self.finish(intent, stages, &done, between)?;
        Ok(committed(&done))
    }

    /// Directories in which the host has worked before, of those in which something is put in place.
    pub(crate) fn worked_in(&self, operations: &[Operation]) -> Result<Vec<Settled>, Errno> {
        let mounted: Vec<Time> = self.trees.iter().map(|tree| tree.mounted).collect();
        let earlier = earlier(self.directory, &mounted)?;
        let mut worked_in: Vec<Settled> = Vec::new();
        let mut seen = HashSet::new();
        for operation in operations {
            let path = operation.path.parent().unwrap_or(Path::new(""));
            let tree = self.trees.get(operation.tree).ok_or(Errno::INVAL)?;
            if !seen.insert((operation.tree, path)) {
                continue;
            }
            let Ok(directory) = beneath::directory(tree.lower.as_fd(), path) else { continue };
            let changed = Entry::of(&rustix::fs::fstat(&directory)?).changed;
            let is_by_us = earlier.get(operation.tree).and_then(|one| one.directories.get(path)) == Some(&changed);
            if tree.mounted.is_before(changed) && !is_by_us {
                worked_in.push(Settled { tree: operation.tree, path: path.to_path_buf(), changed });
            }
        }
        Ok(worked_in)
    }

    /// Names as this commit leaves them: directories in which it put something, and files of which the layer has another version.
    fn settled(&self, intent: &Intent, applied: &[bool]) -> Result<Vec<Settled>, Errno> {
        let mut settled: Vec<Settled> = Vec::new();
        let mut seen = HashSet::new();
        for (operation, _) in intent.operations.iter().zip(applied).filter(|(_, applied)| **applied) {
            let lower = self.trees.get(operation.tree).ok_or(Errno::INVAL)?.lower.as_fd();
            // The mode of a directory is its own time's, a name that of the directory it lies in.
            let path = match operation.action {
                Action::SetMode { .. } => operation.path.as_path(),
                _ => operation.path.parent().unwrap_or(Path::new("")),
            };
            // Where the host has worked before, what it may have removed stays a conflict.
            let has_worked = intent.worked_in.iter().any(|one| one.tree == operation.tree && one.path == path);
            if seen.insert((operation.tree, path)) && !has_worked {
                let Ok(directory) = beneath::directory(lower, path) else { continue };
                let changed = Entry::of(&rustix::fs::fstat(&directory)?).changed;
                settled.push(Settled { tree: operation.tree, path: path.to_path_buf(), changed });
            }
            if operation.is_part || intent.is_undo {
                self.settle_below(operation, &mut settled)?;
            }
        }
        Ok(settled)
    }

    /// What an operation has put in place, unless the host has changed it since.
    fn settle_below(&self, operation: &Operation, settled: &mut Vec<Settled>) -> Result<(), Errno> {
        let lower = self.trees.get(operation.tree).ok_or(Errno::INVAL)?.lower.as_fd();
        let mut left = vec![operation.path.clone()];
        while let Some(path) = left.pop() {
            let Ok((parent, name)) = beneath::parent(lower, &path) else { continue };
            let Some(entry) = Entry::at(parent.as_fd(), name)? else { continue };
            let is_top = path == operation.path;
            if is_top && operation.staged.as_ref().is_some_and(|staged| !entry.is_still(staged)) {
                return Ok(());
            }
            if entry.kind == Kind::Directory && !matches!(operation.action, Action::SetMode { .. }) {
                let directory = beneath::directory(parent.as_fd(), Path::new(name))?;
                left.extend(beneath::names(directory.as_fd(), 1 << 20)?.iter().map(|name| path.join(name)));
            }
            settled.push(Settled { tree: operation.tree, path, changed: entry.changed });
        }
        Ok(())
    }

    fn finish(&self, intent: &Intent, stages: &Stages, done: &Done, between: Between<'_>) -> Result<(), CommitError> {
        self.finish_on_disk(intent, stages, done, between).map_err(CommitError::Journal)
    }

    fn finish_on_disk(&self, intent: &Intent, stages: &Stages, done: &Done, between: Between<'_>) -> Result<(), Errno> {
        if Entry::at(stages.own.as_fd(), OsStr::new(intent.record()))?.is_none() {
            settle_kept(intent, stages, &done.applied)?;
            between()?;
            journal::write(stages.own.as_fd(), intent.record(), done)?;
            between()?;
        }
        // What was replaced was copied before the intent.
        for (tree, name) in &intent.staging.beside {
            remove(self.trees[*tree].lower.as_fd(), name)?;
            between()?;
        }
        if intent.is_undo {
            origins::add(self.directory, self.on_host(done)?, true)?;
        }
        // From now on these files are the host's alone, or the layer's again.
        for (at, operation) in done.operations.iter().enumerate().filter(|(at, _)| done.applied[*at]) {
            let upper = self.trees[operation.tree].upper.as_fd();
            if operation.is_part {
                continue;
            }
            if intent.is_undo {
                best_effort(give_back(upper, operation, at, stages), "the session's version stays beside the journal");
                continue;
            }
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
                let back = self.reverse(operation, stages.of(operation.tree), &operation.staged_name(number));
                left[number] = !back.map_err(|errno| CommitError::Apply { path: operation.path.clone(), errno })?;
            }
        }
        self.sync(stages).map_err(CommitError::Journal)?;
        if left.contains(&true) {
            let directories = self.settled(intent, &left).map_err(CommitError::Journal)?;
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
}

fn committed(done: &Done) -> Committed {
    let mut committed = Committed::default();
    for (operation, applied) in done.operations.iter().zip(&done.applied) {
        let names = operation.takes.iter().map(|path| (operation.tree, path.clone()));
        if *applied && operation.is_part && !operation.is_whole {
            committed.parts.extend(names);
        } else if *applied {
            committed.taken.extend(names);
        } else {
            committed.left.extend(names);
        }
    }
    committed
}

/// `mounted` is when each tree was.
pub(crate) fn earlier(directory: BorrowedFd<'_>, mounted: &[Time]) -> Result<Vec<Earlier>, Errno> {
    let origins = origins::read(directory, mounted.len())?.into_iter();
    let mut all: Vec<Earlier> = origins.map(|origins| Earlier { origins, ..Earlier::default() }).collect();
    for number in numbers(directory)? {
        let stage = beneath::directory(directory, Path::new(&own_stage(number)))?;
        let Some(mut done) = journal::read::<Done>(stage.as_fd(), DONE)? else { continue };
        let undone = journal::read::<Done>(stage.as_fd(), UNDONE)?;
        for (at, operation) in undone.iter().flat_map(|undone| undone.operations.iter().enumerate()) {
            let is_undone = undone.as_ref().is_some_and(|undone| undone.applied.get(at) == Some(&true));
            if let (true, Some(applied)) = (is_undone, operation.slot.and_then(|slot| done.applied.get_mut(slot))) {
                *applied = false;
            }
        }
        for (tree, path) in committed(&done).taken {
            all.get_mut(tree).ok_or(Errno::INVAL)?.taken.insert(path);
        }
        // What the commit took although the host had changed it is a conflict again.
        let is_overwritten = |one: &&Operation| {
            let base = one.base.as_ref().map(|base| base.changed);
            let known = all.get(one.tree).and_then(|earlier| earlier.directories.get(&one.path));
            base.is_some_and(|base| mounted.get(one.tree).is_some_and(|at| at.is_before(base)) && known != Some(&base))
        };
        let overwritten = done.operations.iter().filter(is_overwritten).map(|one| (one.tree, one.path.clone()));
        let overwritten: HashSet<(usize, PathBuf)> = overwritten.collect();
        let put_back = undone.into_iter().flat_map(|undone| undone.directories);
        let put_back = put_back.filter(|one| !overwritten.contains(&(one.tree, one.path.clone())));
        for settled in done.directories.into_iter().chain(put_back) {
            let known = &mut all.get_mut(settled.tree).ok_or(Errno::INVAL)?.directories;
            let last = known.entry(settled.path).or_insert(settled.changed);
            *last = settled.changed.max(*last);
        }
    }
    Ok(all)
}

/// How many names of each file with several are taken.
fn names_of_files<'a>(tree: &Tree, operations: impl Iterator<Item = &'a Operation>) -> HashMap<u64, u32> {
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
