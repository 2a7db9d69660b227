//! What a commit replaces, and what an undo takes off the host again, is kept in the transaction. Across mounts that is a copy: it is
//! made before the intent, so that one that cannot be whole refuses the commit while nothing has changed. Owns those copies and their
//! way back to the layer; called by `commit` and `undo`.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

use crate::beneath::{self, DEEPEST};
use crate::commit::{CommitError, Place};
use crate::entry::{Entry, Kind};
use crate::journal::{Action, Done, Intent, Operation};
use crate::origins;
use crate::stages::{Stages, remove_any};
use crate::staging::copy_tree;

/// Of what an undo takes off the host, until the host's own version has left its place beside the journal.
fn taken_off(name: &str) -> String {
    format!("{name}.taken")
}

impl Place<'_> {
    /// Copies what the operations of trees on other mounts will replace or remove. That it is what comes out is looked at when it does.
    pub(crate) fn keep(&self, stages: &Stages, operations: &[Operation], is_undo: bool) -> Result<(), CommitError> {
        for (at, operation) in operations.iter().enumerate() {
            let is_replaced = matches!(operation.action, Action::Exchange | Action::Remove);
            if !is_replaced || !stages.beside.contains_key(&operation.tree) {
                continue;
            }
            let staged = operation.staged_name(at);
            let name = if is_undo { taken_off(&staged) } else { staged };
            self.copy_current(operation, stages.own.as_fd(), &name)
                .map_err(|errno| CommitError::Keep { path: operation.path.clone(), errno })?;
        }
        Ok(())
    }

    fn copy_current(&self, operation: &Operation, own: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
        let lower = self.trees.get(operation.tree).ok_or(Errno::INVAL)?.lower.as_fd();
        let (parent, last) = match beneath::parent(lower, &operation.path) {
            // The host has changed it: the operation will be left out.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(()),
            other => other?,
        };
        // Of a process before that did not come to the intent.
        remove_any(own, OsStr::new(name))?;
        copy_tree(parent.as_fd(), last, own, OsStr::new(name), DEEPEST)
    }

    /// Names that the layer gets again and the host has: the layer's began as copies of these, for all that follows.
    pub(crate) fn on_host(&self, undone: &Done) -> Result<origins::Origins, Errno> {
        let mut found: origins::Origins = self.trees.iter().map(|_| HashSet::new()).collect();
        for (operation, _) in undone.operations.iter().zip(&undone.applied).filter(|(_, applied)| **applied) {
            let lower = self.trees[operation.tree].lower.as_fd();
            for path in &operation.takes {
                let Ok((parent, name)) = beneath::parent(lower, path) else { continue };
                if Entry::at(parent.as_fd(), name)?.is_some() {
                    found[operation.tree].insert(path.clone());
                }
            }
        }
        Ok(found)
    }
}

/// After everything was carried out: of what was not, no copy is kept, and what an undo took off the host stands in the place of
/// what it put back. Can be done again.
pub(crate) fn settle_kept(intent: &Intent, stages: &Stages, applied: &[bool]) -> Result<(), Errno> {
    let own = stages.own.as_fd();
    for (at, operation) in intent.operations.iter().enumerate() {
        if !intent.staging.beside.iter().any(|(tree, _)| *tree == operation.tree) {
            continue;
        }
        let name = operation.staged_name(at);
        let taken = taken_off(&name);
        match (intent.is_undo, applied.get(at) == Some(&true)) {
            (false, true) => {}
            (false, false) => remove_any(own, OsStr::new(&name))?,
            (true, false) => remove_any(own, OsStr::new(&taken))?,
            (true, true) => {
                let is_kept = Entry::at(own, OsStr::new(&taken))?.is_some();
                let is_put_back = matches!(operation.action, Action::Create);
                if is_kept || is_put_back {
                    remove_any(own, OsStr::new(&name))?;
                }
                if is_kept {
                    rustix::fs::renameat(own, &taken, own, &name)?;
                }
            }
        }
    }
    rustix::fs::syncfs(own)
}

/// What a commit that is taken back had put in place is the layer's again, and waits.
pub(crate) fn give_back(upper: BorrowedFd<'_>, operation: &Operation, at: usize, stages: &Stages) -> Result<(), Errno> {
    let top = PathBuf::from(operation.staged_name(at));
    for path in &operation.takes {
        // The workload may have closed what leads to it, in the layer and in what was kept.
        let (into, name, _unclosed) = match beneath::layer_parent(upper, path) {
            Err(Errno::NOENT | Errno::NOTDIR) => continue,
            other => other?,
        };
        let below = path.strip_prefix(&operation.path).map_err(|_| Errno::INVAL)?;
        let from = if below.as_os_str().is_empty() { top.clone() } else { top.join(below) };
        let kept = match beneath::layer_parent(stages.own.as_fd(), &from) {
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            other => {
                let (parent, last, unclosed) = other?;
                Entry::at(parent.as_fd(), last)?.map(|entry| (parent, last, entry, unclosed))
            }
        };
        let is_there = Entry::at(into.as_fd(), name)?.is_some();
        match kept {
            Some((parent, last, entry, _unclosed)) if entry.kind != Kind::Directory => {
                rustix::fs::renameat(&parent, last, &into, name)?;
            }
            Some((_, _, entry, _)) if !is_there => {
                rustix::fs::mkdirat(&into, name, Mode::RWXU)?;
                let made = beneath::opened_as_path(into.as_fd(), name)?;
                rustix::fs::chmod(beneath::itself(&made), Mode::from_raw_mode(entry.mode))?;
            }
            // How overlayfs says that a name was removed.
            None if !is_there => rustix::fs::mknodat(&into, name, FileType::CharacterDevice, Mode::empty(), 0)?,
            _ => {}
        }
    }
    Ok(())
}
