//! What taking the last commit of a transaction back would do, name by name, to be looked at before. Owns that list alone; taking it
//! back is `undo`'s. Called by the command.

use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::io::Errno;

use crate::checkpoint::restore::{Difference, Would};
use crate::journal::{self, Action, DONE, Done, Operation};
use crate::stages::own_stage;
use crate::transaction::Manifest;
use crate::{beneath, undo, units};

/// All names but those that stay whatever the host does; one that the host has changed since stays, too. None where there is no commit.
pub fn before_commit(path: &Path, manifest: &Manifest) -> Result<Vec<Difference>, Errno> {
    let directory = beneath::root(path)?;
    let Some(number) = undo::last(directory.as_fd())? else { return Ok(Vec::new()) };
    let stage = beneath::directory(directory.as_fd(), Path::new(&own_stage(number)))?;
    let done = journal::read::<Done>(stage.as_fd(), DONE)?.ok_or(Errno::NOENT)?;
    let carried_out = done.operations.iter().zip(&done.applied).filter(|(_, is_applied)| **is_applied);
    let mut names: Vec<Difference> = carried_out.flat_map(|(one, _)| of(one, manifest)).collect();
    names.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(names)
}

fn of(one: &Operation, manifest: &Manifest) -> Vec<Difference> {
    let Some(record) = manifest.trees.get(one.tree) else { return Vec::new() };
    let would = match one.action {
        Action::Create => Would::Go,
        Action::Remove => Would::ComeBack,
        Action::Exchange | Action::SetMode { .. } => Would::Change,
    };
    // Of a file that was taken in part no name counts as taken.
    let paths = if one.takes.is_empty() { std::slice::from_ref(&one.path) } else { one.takes.as_slice() };
    // Other refs may name an object by now.
    let back = paths.iter().filter(|path| !units::is_object(path, record.is_repository));
    back.map(|path| Difference { path: record.lower.join(path), would }).collect()
}
