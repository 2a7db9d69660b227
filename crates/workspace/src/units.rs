//! Changes that only make sense together: a repository of git, a database and its log. Owns which those are and in which order
//! the files of a repository are put in place; called by `transaction` after the walk and by `operations`.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::changes::{Change, Conflict};
use crate::entry::Kind;

/// What SQLite keeps beside a database; the database without them, or they without it, is another database.
const OF_DATABASE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// What git changes with a commit, a checkout, a fetch and a merge. What it goes on with in a rebase is code that it executes, and
/// waits for a word of its own.
const OF_REPOSITORY: [&str; 20] = [
    "HEAD",
    "index",
    "refs",
    "packed-refs",
    "reftable",
    "shallow",
    "logs",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "MERGE_HEAD",
    "MERGE_MODE",
    "MERGE_MSG",
    "MERGE_RR",
    "MERGE_AUTOSTASH",
    "AUTO_MERGE",
    "SQUASH_MSG",
    "COMMIT_EDITMSG",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
];

fn is_of_repository(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| OF_REPOSITORY.contains(&name) || name.starts_with("sharedindex."))
}

/// The database that a file belongs to.
fn database(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let stem = OF_DATABASE.iter().find_map(|suffix| name.strip_suffix(suffix))?;
    Some(path.with_file_name(stem))
}

/// The directory of a repository that a path lies in and its name there, where it is not only one of its objects: those are named by
/// what they hold and are never in the way. Linked worktrees share refs with their repository and are part of it; submodules are
/// repositories of their own.
fn repository(path: &Path, is_repository: bool) -> Option<(PathBuf, PathBuf)> {
    let components: Vec<&OsStr> = path.iter().collect();
    let top = if is_repository { 0 } else { components.iter().position(|name| *name == ".git")? + 1 };
    let (top, at) = match components.get(top).and_then(|name| name.to_str()) {
        Some("worktrees") => (top, top + 2),
        // A submodule's name has any number of parts.
        Some("modules") => {
            let at = components.iter().skip(top + 2).position(|name| is_of_repository(name))? + top + 2;
            (at, at)
        }
        _ => (top, top),
    };
    let inside = components.get(at..)?;
    let is_of_it = is_of_repository(inside.first()?);
    is_of_it.then(|| (components[..top].iter().collect(), inside.iter().collect()))
}

/// What a change belongs to: changes with the same unit are committed together or not at all.
pub(crate) fn unit(path: &Path, paths: &HashSet<&Path>, is_repository: bool) -> Option<PathBuf> {
    if let Some((repository, _)) = repository(path, is_repository) {
        return Some(repository.join("HEAD"));
    }
    let database = database(path);
    match database {
        Some(database) if paths.contains(database.as_path()) => Some(database),
        Some(_) => None,
        None => {
            let beside = |suffix: &str| {
                let mut name = path.file_name().unwrap_or_default().to_owned();
                name.push(suffix);
                paths.contains(path.with_file_name(name).as_path())
            };
            OF_DATABASE.iter().any(|suffix| beside(suffix)).then(|| path.to_path_buf())
        }
    }
}

/// The list of refs is the host's, and has changed: a ref that the session made beside it is one that the host may have moved, or
/// stands in the way of one. `list` is what it holds now.
pub(crate) fn hold_listed(changes: &mut [Change], list: &[u8], is_repository: bool) {
    let listed: HashSet<PathBuf> = list
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.get(line.iter().position(|byte| *byte == b' ')? + 1..))
        .map(|name| PathBuf::from(OsStr::from_bytes(name)))
        .collect();
    let above: HashSet<&Path> = listed.iter().flat_map(|name| name.ancestors().skip(1)).collect();
    let own = Path::new(if is_repository { "" } else { ".git" });
    for change in changes.iter_mut().filter(|change| change.conflict.is_none() && change.kind() != Kind::Directory) {
        let Ok(name) = change.path.strip_prefix(own) else { continue };
        if name.starts_with("refs") && (name.ancestors().any(|above| listed.contains(above)) || above.contains(name)) {
            change.conflict = Some(Conflict::Changed);
        }
    }
}

/// A unit with one conflict is in conflict as a whole.
pub(crate) fn carry_conflicts(changes: &mut [Change], is_repository: bool) {
    let paths: HashSet<PathBuf> = changes.iter().map(|change| change.path.clone()).collect();
    let paths: HashSet<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let units: Vec<Option<PathBuf>> = changes.iter().map(|change| unit(&change.path, &paths, is_repository)).collect();
    let in_conflict: HashSet<PathBuf> = changes
        .iter()
        .zip(&units)
        .filter(|(change, _)| change.conflict.is_some())
        .filter_map(|(_, unit)| unit.clone())
        .collect();
    for (change, unit) in changes.iter_mut().zip(&units) {
        let Some(unit) = unit.as_ref().filter(|unit| in_conflict.contains(*unit)) else { continue };
        let is_own = unit == Path::new(if is_repository { "HEAD" } else { ".git/HEAD" });
        match change.conflict {
            None | Some(Conflict::Changed | Conflict::Removed) if is_own => {
                change.conflict = Some(Conflict::Repository);
            }
            None => change.conflict = Some(Conflict::Unit),
            Some(_) => {}
        }
    }
}

/// Whether a name is a lock of git, which means a process that works on what it is called after: where that one has ended before it, and
/// in another tree, it would only keep git from working.
pub(crate) fn is_lock(path: &Path, is_repository: bool) -> bool {
    let is_inside = || is_repository || path.parent().is_some_and(|above| above.iter().any(|name| name == ".git"));
    path.extension().is_some_and(|extension| extension == "lock") && is_inside()
}

/// Whether a path lies among the objects of a repository.
pub(crate) fn is_object(path: &Path, is_repository: bool) -> bool {
    let mut components = path.iter();
    let is_inside = is_repository || components.any(|name| name == ".git");
    is_inside && components.any(|name| name == "objects")
}

/// Objects before what names them, and last what a reader begins with.
pub(crate) fn rank(path: &Path, is_repository: bool) -> u8 {
    match repository(path, is_repository) {
        None => 0,
        Some((_, inside)) => {
            if inside == Path::new("HEAD") || inside == Path::new("index") {
                2
            } else {
                1
            }
        }
    }
}

/// Whether a file is called as an index of git is; what it holds says whether it is one.
pub(crate) fn is_named_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "index")
}
