//! Changes that were chosen become operations: one for each name of the host's tree that has to change, however much lies below
//! it. Owns that grouping and the order; nothing is done here. Called by `transaction`.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::changes::{Change, What};
use crate::entry::{Kind, Time};
use crate::journal::{Action, Below, Operation};
use crate::units;

/// Who may write into a directory and reach what is in it: its owner.
const OWNER_MAY_CHANGE: u32 = 0o300;

/// With every choice come the new directories above it, and the rest of what it is a unit with. Where one of those may not be taken,
/// neither is the choice.
pub(crate) fn complete(
    changes: &[Change],
    chosen: &mut HashSet<PathBuf>,
    allowed: &HashSet<PathBuf>,
    is_repository: bool,
) {
    let paths: HashSet<&Path> = changes.iter().map(|change| change.path.as_path()).collect();
    let mut units: HashMap<PathBuf, Vec<&Path>> = HashMap::new();
    for change in changes {
        if let Some(unit) = units::unit(&change.path, &paths, is_repository) {
            units.entry(unit).or_default().push(&change.path);
        }
    }
    for members in units.values() {
        if !members.iter().any(|path| chosen.contains(*path)) {
            continue;
        }
        let is_allowed = members.iter().all(|path| allowed.contains(*path));
        for path in members {
            if is_allowed {
                chosen.insert(path.to_path_buf());
            } else {
                chosen.remove(*path);
            }
        }
    }
    let new: HashSet<&Path> = changes
        .iter()
        .filter(|change| matches!(change.what, What::Added | What::Replaced) && change.kind() == Kind::Directory)
        .map(|change| change.path.as_path())
        .collect();
    let above = |path: &PathBuf| -> Vec<PathBuf> {
        path.ancestors().skip(1).filter(|above| new.contains(above)).map(Path::to_path_buf).collect()
    };
    chosen.retain(|path| above(path).iter().all(|above| allowed.contains(above)));
    let needed: Vec<PathBuf> = chosen.iter().flat_map(above).collect();
    chosen.extend(needed);
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
            // What is in a directory goes with it.
            (What::Replaced, _) if range.iter().any(|one| one.what == What::Deleted && !is_chosen(&one)) => continue,
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
        let gone: Vec<Time> = range[1..]
            .iter()
            .filter(|one| is_whole && one.what == What::Deleted)
            .filter_map(|one| Some(one.before.as_ref()?.changed))
            .collect();
        let is_directory = base.as_ref().is_some_and(|base| base.kind == Kind::Directory);
        let below = (is_whole && is_directory).then(|| Below { names: gone.len(), newest: gone.into_iter().max() });
        found.push(Operation {
            tree,
            path: change.path.clone(),
            action,
            base,
            below,
            staged: None,
            staged_sum: None,
            base_sum: None,
            takes,
            is_part: false,
            is_whole: false,
            part_mode: None,
            content_sum: None,
            slot: None,
        });
    }
    found.sort_by_key(|operation| {
        let depth = operation.path.components().count();
        // A directory is closed after those in it.
        let inner = if phase(operation) == 2 { usize::MAX - depth } else { 0 };
        (phase(operation), units::rank(&operation.path, is_repository), inner)
    });
    found
}

/// A directory is opened before something is put into it, and closed afterwards.
fn phase(operation: &Operation) -> u8 {
    match operation.action {
        Action::SetMode { .. } if is_opening(operation) => 0,
        Action::SetMode { .. } => 2,
        Action::Create | Action::Exchange | Action::Remove => 1,
    }
}

/// Whether it lets the owner of a directory change what is in it.
pub(crate) fn is_opening(operation: &Operation) -> bool {
    matches!(operation.action, Action::SetMode { to } if to & OWNER_MAY_CHANGE == OWNER_MAY_CHANGE)
}
