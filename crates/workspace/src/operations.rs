//! Changes that were chosen become operations: one for each name of the host's tree that has to change, however much lies below
//! it. Owns that grouping and the order; nothing is done here. Called by `transaction`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::changes::{Change, What};
use crate::entry::Kind;
use crate::journal::{Action, Operation};
use crate::units;

/// Who may write into a directory and reach what is in it: its owner.
const OWNER_MAY_CHANGE: u32 = 0o300;

/// With every choice come the new directories above it, and the rest of what it is a unit with.
pub(crate) fn complete(changes: &[Change], chosen: &mut HashSet<PathBuf>, is_repository: bool) {
    let paths: HashSet<&Path> = changes.iter().map(|change| change.path.as_path()).collect();
    let unit = |change: &Change| units::unit(change, &paths, is_repository);
    let units: HashSet<PathBuf> =
        changes.iter().filter(|change| chosen.contains(&change.path)).filter_map(unit).collect();
    let together = changes.iter().filter(|change| unit(change).is_some_and(|unit| units.contains(&unit)));
    let together: Vec<PathBuf> = together.map(|change| change.path.clone()).collect();
    chosen.extend(together);
    let new: HashSet<&Path> = changes
        .iter()
        .filter(|change| matches!(change.what, What::Added | What::Replaced) && change.kind() == Kind::Directory)
        .map(|change| change.path.as_path())
        .collect();
    let above: Vec<PathBuf> = chosen
        .iter()
        .flat_map(|path| path.ancestors().skip(1))
        .filter(|above| new.contains(above))
        .map(Path::to_path_buf)
        .collect();
    chosen.extend(above);
}

/// `changes` stand parents first, each followed by what lies below it.
pub(crate) fn operations(
    tree: usize,
    changes: &[Change],
    chosen: &HashSet<PathBuf>,
    is_repository: bool,
) -> Vec<Operation> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(change) = changes.get(at) {
        let below = changes[at + 1..].iter().take_while(|other| other.path.starts_with(&change.path)).count();
        let range = &changes[at..=at + below];
        at += 1;
        if !chosen.contains(&change.path) {
            continue;
        }
        let is_chosen = |change: &&Change| chosen.contains(&change.path);
        let (action, is_whole) = match (change.what, change.kind()) {
            (What::Deleted, Kind::Directory) if !range.iter().all(|change| is_chosen(&change)) => continue,
            (What::Deleted, _) => (Action::Remove, true),
            (What::Added, _) => (Action::Create, true),
            (What::Replaced, _) => (Action::Exchange, true),
            (What::Modified, Kind::Directory) => {
                let to = change.after.as_ref().map_or(0, |after| after.mode);
                (Action::SetMode { to }, false)
            }
            (What::Modified, _) => (Action::Exchange, false),
        };
        let takes: Vec<PathBuf> = if is_whole {
            at += below;
            range.iter().filter(is_chosen).map(|change| change.path.clone()).collect()
        } else {
            vec![change.path.clone()]
        };
        let base = change.before.clone();
        found.push(Operation { tree, path: change.path.clone(), action, base, staged: None, takes });
    }
    found.sort_by_key(|operation| (phase(operation), units::rank(&operation.path, is_repository)));
    found
}

/// A directory is opened before something is put into it, and closed afterwards.
fn phase(operation: &Operation) -> u8 {
    match operation.action {
        Action::SetMode { to } if to & OWNER_MAY_CHANGE == OWNER_MAY_CHANGE => 0,
        Action::SetMode { .. } => 2,
        Action::Create | Action::Exchange | Action::Remove => 1,
    }
}
