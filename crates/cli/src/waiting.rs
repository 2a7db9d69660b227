//! Transactions of this user, whose changes wait or were taken, and what is to be known of a change. Owns finding them and their
//! classes. Called by `commands::changes` and `render::changes`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use cofferdam_host::git::changes::is_continued;
use cofferdam_host::obeyed::{self, ObeyedAs};
use cofferdam_host::state::{kept_in, sessions_in};
use cofferdam_policy::ObeyedClass;
use cofferdam_workspace::transaction::list;
use cofferdam_workspace::{Change, Kind, Manifest, State, Transaction, What};

/// A transaction that was found.
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

/// Whether the changes of another session wait for one of the directories of this one: it has to be named then.
pub(crate) fn others_wait(state: &Path, session: &str) -> bool {
    let waiting: Vec<Found> = all(state).into_iter().filter(|one| one.state.waits()).collect();
    let lowers = |one: &Found| one.manifest.trees.iter().map(|tree| tree.lower.clone()).collect::<Vec<_>>();
    let (own, others): (Vec<Found>, Vec<Found>) = waiting.into_iter().partition(|one| one.manifest.session == session);
    let own: Vec<PathBuf> = own.iter().flat_map(lowers).collect();
    others.iter().flat_map(lowers).any(|lower| own.contains(&lower))
}

/// Names that make the project itself a repository, with a configuration that the host's git obeys.
const OF_REPOSITORY: [&str; 2] = ["objects", "refs"];

/// Names without which a directory is no repository any more.
const ESSENTIAL: [&str; 3] = [".git", ".git/HEAD", ".git/refs"];

/// Directories of a repository that hold those of submodules and of linked worktrees.
const OF_REPOSITORIES: [&str; 2] = ["modules", "worktrees"];

/// What a path below those may be called in the repository that it is part of.
fn repositories_within(path: &Path) -> impl Iterator<Item = PathBuf> + '_ {
    let parts: Vec<&OsStr> = path.iter().collect();
    let is_one = |pair: &[&OsStr]| {
        pair[0].eq_ignore_ascii_case(".git") && OF_REPOSITORIES.iter().any(|name| pair[1].eq_ignore_ascii_case(name))
    };
    let begin = parts.windows(2).position(is_one).map_or(parts.len(), |at| at + 3);
    (begin..parts.len()).map(move |at| Path::new(".git").join(parts[at..].iter().collect::<PathBuf>()))
}

/// How host programs obey what was changed in the trees of a transaction.
pub(crate) struct Classes<'a> {
    transaction: &'a Transaction,
    /// What names that they obey lead to, by tree.
    links: Vec<Vec<(PathBuf, ObeyedAs)>>,
}

/// Of a longer list it is not known what it replaces.
const LARGEST_LIST: u64 = 4 << 20;
const REPLACE: &str = "refs/replace";

/// Those lines of a list of refs that replace objects.
fn replaced(list: Option<&[u8]>) -> Vec<&[u8]> {
    let lines = list.unwrap_or_default().split(|byte| *byte == b'\n');
    lines.filter(|line| line.windows(REPLACE.len()).any(|part| part == REPLACE.as_bytes())).collect()
}

/// Where a path lies in a repository, whichever that is.
fn within_git(path: &Path) -> Option<PathBuf> {
    let mut parts = path.iter();
    parts.find(|part| part.eq_ignore_ascii_case(".git")).map(|_| parts.collect())
}

fn is_replacing(path: &Path) -> bool {
    let is_one = |inside: &Path| inside.ends_with("info/grafts") || inside.ancestors().any(|up| up.ends_with(REPLACE));
    within_git(path).is_some_and(|inside| is_one(&inside) && !inside.starts_with("logs"))
}

/// An object of this repository, of a submodule or of a repository in the project; no branch that is called so.
fn is_object_of_any(path: &Path) -> bool {
    let Some(inside) = within_git(path) else { return false };
    let is_of_refs = inside.starts_with("refs") || inside.starts_with("logs");
    !is_of_refs && inside.iter().any(|part| part == "objects")
}

impl<'a> Classes<'a> {
    pub(crate) fn of(transaction: &'a Transaction) -> Self {
        let manifest = &transaction.manifest;
        let links = manifest.trees.iter().map(|tree| obeyed::behind_links(&tree.lower)).collect();
        Classes { transaction, links }
    }

    /// Whether the session's list of refs, of whichever repository, has replacements that the host's has not, or cannot be read.
    fn lists_replacements(&self, tree: usize, change: &Change) -> bool {
        let (before, after) = self.transaction.contents(tree, &change.path, LARGEST_LIST);
        let Some(after) = after else { return change.after.is_some() };
        let before = replaced(before.as_deref());
        replaced(Some(&after)).iter().any(|line| !before.contains(line))
    }

    /// How host programs obey a changed name, where they do.
    pub(crate) fn obeyed(&self, tree: usize, change: &Change) -> Option<ObeyedAs> {
        let record = self.transaction.manifest.trees.get(tree)?;
        let path = if record.is_repository { Path::new(".git").join(&change.path) } else { change.path.clone() };
        let opens = |why| Some(ObeyedAs { class: ObeyedClass::Opens, why });
        let first = change.path.iter().next()?.to_str().unwrap_or_default();
        let makes_repository = OF_REPOSITORY.iter().any(|name| name.eq_ignore_ascii_case(first));
        if makes_repository && !record.is_repository && record.lower.join(first).symlink_metadata().is_err() {
            return opens("would make the project itself a repository with a configuration made inside");
        }
        let is_gone = matches!(change.what, What::Deleted | What::Replaced);
        if is_gone && ESSENTIAL.iter().any(|name| path == Path::new(name)) {
            return opens("takes the repository away");
        }
        if change.what != What::Added && is_object_of_any(&path) {
            return opens("takes away what the repository holds");
        }
        let is_list = within_git(&path).is_some_and(|inside| inside.ends_with("packed-refs"));
        if is_replacing(&path) || is_list && self.lists_replacements(tree, change) {
            return opens("has git show other content for what was committed before (refs/replace, grafts)");
        }
        let behind = self.links.get(tree)?.iter().find(|(target, _)| change.path.starts_with(target));
        let is_link = change.kind() == Kind::Link;
        let of_project = behind.map(|(_, obeyed)| *obeyed).or_else(|| obeyed::obeyed_as(&path, is_link));
        // A repository in the repository may have any name: whatever could be one of its names counts as one.
        let within = || repositories_within(&path).find_map(|inner| obeyed::obeyed_as(&inner, is_link));
        let continued =
            || opens("says what git goes on with, and which programs it runs then").filter(|_| is_continued(&path));
        of_project.or_else(within).or_else(continued)
    }

    /// Whether a commit needs a word of its own for it.
    pub(crate) fn is_opened(&self, tree: usize, change: &Change) -> bool {
        self.obeyed(tree, change).is_some_and(|obeyed| obeyed.class == ObeyedClass::Opens)
    }
}
