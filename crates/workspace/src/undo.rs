//! Takes a commit back: what it replaced is beside its journal, and goes back to its place by the same renames and the same journal.
//! Owns what is taken back and what stays: a name that the host has changed since, what is a unit with one, and objects of git, which
//! other refs may name by now. Called by `transaction`, which holds the lock.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::beneath::{self, DEEPEST};
use crate::commit::{Between, CommitError, Committed, Place};
use crate::entry::Entry;
use crate::journal::{self, Action, DONE, Done, Intent, Operation, Staging, UNDONE};
use crate::stages::{numbers, own_stage};
use crate::staging::{self, copy_tree};
use crate::sums;
use crate::units;

/// Paths with the numbers of their trees.
type Names = Vec<(usize, PathBuf)>;

/// The last commit that was not taken back.
pub(crate) fn last(directory: BorrowedFd<'_>) -> Result<Option<usize>, Errno> {
    for number in numbers(directory)?.into_iter().rev() {
        let stage = beneath::directory(directory, Path::new(&own_stage(number)))?;
        let has = |name: &str| Entry::at(stage.as_fd(), OsStr::new(name));
        if has(DONE)?.is_some() && has(UNDONE)?.is_none() {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

impl Place<'_> {
    /// Names that stay because the host has changed them are in `left`.
    pub(crate) fn undo(
        &self,
        number: usize,
        is_repository: &[bool],
        between: Between<'_>,
    ) -> Result<Committed, CommitError> {
        let journal = CommitError::Journal;
        let stages = self.stages(number, &Staging::default()).map_err(journal)?;
        let done = journal::read::<Done>(stages.own.as_fd(), DONE).map_err(journal)?;
        let all = reversed(&done.ok_or(CommitError::NothingToUndo)?);
        let (mut operations, left) = self.as_put(all, stages.own.as_fd(), is_repository).map_err(journal)?;
        if operations.is_empty() {
            return Ok(Committed { left, ..Committed::default() });
        }
        self.refuse_unwritable(&operations)?;
        let worked_in = self.worked_in(&operations).map_err(journal)?;
        let staging = self.beside(&operations).map_err(journal)?;
        between().map_err(journal)?;
        let own = stages.own;
        for (tree, name) in &staging.beside {
            let beside = staging::make(self.trees[*tree].lower.as_fd(), name).map_err(journal)?;
            for (at, operation) in operations.iter().enumerate().filter(|(_, one)| one.tree == *tree) {
                let name = operation.staged_name(at);
                let (name, path) = (OsStr::new(&name), operation.path.clone());
                copy_tree(own.as_fd(), name, beside.as_fd(), name, DEEPEST)
                    .map_err(|errno| CommitError::Stage { path, errno })?;
            }
            between().map_err(journal)?;
        }
        let stages = self.stages(number, &staging).map_err(journal)?;
        for (at, operation) in operations.iter_mut().enumerate() {
            let name = operation.staged_name(at);
            operation.staged = Entry::at(stages.of(operation.tree), OsStr::new(&name)).map_err(journal)?;
        }
        self.keep(&stages, &operations, true)?;
        self.sync(&stages).map_err(journal)?;
        let intent = Intent { version: 1, number, operations, staging, is_undo: true, worked_in };
        let mut undone = self.begin(&intent, &stages, between)?;
        undone.left.extend(left);
        Ok(undone)
    }

    /// Which operations find what the commit has put there, without those that are a unit with one that does not; and the names
    /// of the others.
    fn as_put(
        &self,
        all: Vec<Operation>,
        own: BorrowedFd<'_>,
        is_repository: &[bool],
    ) -> Result<(Vec<Operation>, Names), Errno> {
        let is_of = |tree: usize| is_repository.get(tree).copied().unwrap_or(false);
        let mut all: Vec<Operation> =
            all.into_iter().filter(|one| !units::is_object(&one.path, is_of(one.tree))).collect();
        let paths: HashSet<PathBuf> = all.iter().flat_map(|one| one.takes.iter().cloned()).collect();
        let paths: HashSet<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let unit = |one: &Operation| units::unit(&one.path, &paths, is_of(one.tree)).map(|unit| (one.tree, unit));
        let mut is_free = Vec::with_capacity(all.len());
        for (at, operation) in all.iter_mut().enumerate() {
            let name = operation.staged_name(at);
            is_free.push(self.is_as_put(operation, own, &name)?);
        }
        let held: HashSet<(usize, PathBuf)> =
            all.iter().zip(&is_free).filter(|(_, free)| !**free).filter_map(|(one, _)| unit(one)).collect();
        let mut left = Vec::new();
        let mut free = Vec::new();
        for (operation, is_free) in all.into_iter().zip(is_free) {
            if is_free && unit(&operation).is_none_or(|unit| !held.contains(&unit)) {
                free.push(operation);
            } else {
                left.extend(operation.takes.iter().map(|path| (operation.tree, path.clone())));
            }
        }
        Ok((free, left))
    }

    fn is_as_put(&self, operation: &mut Operation, own: BorrowedFd<'_>, name: &str) -> Result<bool, Errno> {
        let lower = self.trees.get(operation.tree).ok_or(Errno::INVAL)?.lower.as_fd();
        let Ok((parent, last)) = beneath::parent(lower, &operation.path) else { return Ok(false) };
        let target = Entry::at(parent.as_fd(), last)?;
        let is_kept = Entry::at(own, OsStr::new(name))?.is_some();
        let found_sum = operation.base_sum.map(|_| sums::identity(parent.as_fd(), last, DEEPEST)).transpose();
        let is_base = match (&target, &operation.base) {
            (Some(now), Some(base)) if now.is_still(base) && found_sum == Ok(operation.base_sum) => true,
            // Written again as it was, by a `git status` or a `git stash` and `pop` of the host.
            (Some(now), Some(base)) if (now.kind, now.mode) == (base.kind, base.mode) => {
                let content = |_| sums::content(parent.as_fd(), last, &operation.path);
                let is_same = operation.content_sum.is_some_and(|sum| content(sum) == Some(sum));
                if is_same {
                    operation.base.clone_from(&target);
                    operation.base_sum = found_sum?;
                }
                is_same
            }
            _ => false,
        };
        Ok(match operation.action {
            Action::Create => target.is_none() && is_kept,
            Action::Exchange => is_base && is_kept,
            Action::Remove => is_base && !is_kept,
            Action::SetMode { .. } => {
                is_base && target.map(|one| one.mode) == operation.base.as_ref().map(|one| one.mode)
            }
        })
    }
}

/// What takes back what was carried out, the last first.
fn reversed(done: &Done) -> Vec<Operation> {
    let carried_out = done.operations.iter().enumerate().filter(|(at, _)| done.applied[*at]);
    let back = |(at, one): (usize, &Operation)| {
        let action = match one.action {
            Action::Create => Action::Remove,
            Action::Exchange => Action::Exchange,
            Action::Remove => Action::Create,
            Action::SetMode { .. } => Action::SetMode { to: one.base.as_ref().map_or(0, |base| base.mode) },
        };
        let base = match one.action {
            Action::SetMode { to } => one.base.clone().map(|base| Entry { mode: to, ..base }),
            Action::Remove => None,
            Action::Create | Action::Exchange => one.staged.clone(),
        };
        let (staged_sum, base_sum) = (None, one.staged_sum);
        Operation { action, base, below: None, staged: None, staged_sum, base_sum, slot: Some(at), ..one.clone() }
    };
    carried_out.rev().map(back).collect()
}
