//! Transactions of this user, whose changes wait or were taken, and what is to be known of a change. Owns finding them and their
//! classes. Called by `commands::changes` and `render::changes`.

use std::path::{Path, PathBuf};

use cofferdam_host::obeyed::{self, ObeyedAs};
use cofferdam_host::state::{kept_in, sessions_in};
use cofferdam_policy::ObeyedClass;
use cofferdam_workspace::transaction::list;
use cofferdam_workspace::{Change, Manifest, State};

/// A transaction that was found, and whether its session still has it.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) manifest: Manifest,
    pub(crate) state: State,
}

/// Of sessions that run, too; the oldest first.
pub(crate) fn all(state: &Path) -> Vec<Found> {
    let mut found = Vec::new();
    for directory in [kept_in(state), sessions_in(state)] {
        for (name, manifest, state) in list(&directory) {
            found.push(Found { path: directory.join(name), manifest, state });
        }
    }
    // Ids of sessions sort by their start.
    found.sort_by(|one, other| one.manifest.session.cmp(&other.manifest.session));
    found
}

/// How host programs obey a changed name, where they do.
pub(crate) fn obeyed(manifest: &Manifest, tree: usize, change: &Change) -> Option<ObeyedAs> {
    let lower = &manifest.trees.get(tree)?.lower;
    // The repository of a linked worktree is a tree of its own.
    let is_repository = lower.join("HEAD").exists() && lower.join("objects").exists();
    let path = if is_repository { Path::new(".git").join(&change.path) } else { change.path.clone() };
    obeyed::obeyed_as(&path)
}

/// Whether a commit needs a word of its own for it.
pub(crate) fn is_opened(manifest: &Manifest, tree: usize, change: &Change) -> bool {
    obeyed(manifest, tree, change).is_some_and(|obeyed| obeyed.class == ObeyedClass::Opens)
}
