//! `sandbox commit --as-branch`: what a session changed as one commit on a new branch. Owns the order of the calls of git, none of
//! which reads or writes `HEAD`'s branch, the index or the working tree. Called by `commands::changes`.

use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cofferdam_workspace::{Change, Kind, Transaction, What, patch};
use thiserror::Error;

use crate::commands::git::{Git, GitError};
use crate::environment::own_state;
use crate::render::changes::name;
use crate::render::exit::NOT_SO;
use crate::render::output::{escaped, print, say};
use crate::waiting::Classes;

/// Why there is no such branch.
#[derive(Debug, Error)]
pub(crate) enum BranchError {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("a place for an index cannot be made")]
    Index(#[source] std::io::Error),
    #[error("nothing that was named can be in a commit")]
    Empty,
    #[error("that is no name that git takes for a branch")]
    Name,
    #[error("there is a branch of that name already; it is not moved")]
    Exists,
    #[error("{} is in no repository of git", project.display())]
    NoRepository { project: PathBuf },
}

/// Named one by one; the rest is counted.
const MOST_NAMED: usize = 12;

/// Names that the project's git does not track.
type Ignored = std::collections::HashSet<PathBuf>;

pub(crate) fn commit(
    transaction: &Transaction,
    asked: &[(usize, &Change)],
    branch: &str,
    opens: bool,
) -> Result<ExitCode, BranchError> {
    let directory = own_state().map_err(|error| BranchError::Index(std::io::Error::other(error)))?;
    let directory = directory.join(format!("branch-{}", std::process::id()));
    std::fs::create_dir(&directory).map_err(BranchError::Index)?;
    let which = transaction.manifest.project().ok_or(BranchError::Empty)?;
    let git = Git { project: &transaction.manifest.trees[which].lower, which, index: Some(directory.join("index")) };
    let made = make(&git, transaction, asked, branch, opens);
    std::fs::remove_dir_all(&directory).map_err(BranchError::Index)?;
    let Made { commit, count, left, untracked } = made?;
    let names = if count == 1 { "1 name is".to_owned() } else { format!("{count} names are") };
    print(&format!("{names} commit {} on branch {}; the changes still wait\n", &commit[..12], escaped(branch)));
    for line in untracked.iter().chain(&left) {
        say!("sandbox: {line}");
    }
    Ok(if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NOT_SO) })
}

/// What git would refuse in words of its own.
fn check(git: &Git<'_>, branch: &str) -> Result<(), BranchError> {
    let is_so = |arguments: &[&str]| match git.run(arguments, &mut std::io::empty()) {
        Ok(_) => Ok(true),
        Err(GitError::Failed { .. }) => Ok(false),
        Err(error) => Err(error),
    };
    if !is_so(&["rev-parse", "--git-dir"])? {
        return Err(BranchError::NoRepository { project: git.project.to_path_buf() });
    }
    if !is_so(&["check-ref-format", "--branch", branch])? {
        return Err(BranchError::Name);
    }
    if is_so(&["show-ref", "--verify", "--quiet", &format!("refs/heads/{branch}")])? {
        return Err(BranchError::Exists);
    }
    Ok(())
}

/// What became of the names that were asked for.
struct Made {
    commit: String,
    count: usize,
    /// Not in it, although git would track them: they need a word, or cannot be read.
    left: Vec<String>,
    /// Not in it, because no commit of this repository holds such names.
    untracked: Vec<String>,
}

/// Names that are in no commit, in one line for each reason.
fn untracked(git: &Git<'_>, transaction: &Transaction, asked: &[(usize, &Change)], ignored: &Ignored) -> Vec<String> {
    let of = |is_one: &dyn Fn(usize, &Change) -> bool, why: &str| {
        let names: Vec<&Path> = asked
            .iter()
            .filter(|(tree, change)| change.kind() != Kind::Directory && is_one(*tree, change))
            .map(|(_, change)| change.path.as_path())
            .collect();
        let shown: Vec<String> = names.iter().take(MOST_NAMED).map(|path| name(path)).collect();
        let more =
            if names.len() > shown.len() { format!(" and {} more", names.len() - shown.len()) } else { String::new() };
        (!names.is_empty()).then(|| format!("not in it, {why}: {}{more}", shown.join(", ")))
    };
    let is_of_project = |tree: usize, change: &Change| tree == git.which && !patch::is_refused_by_git(change);
    let mut lines: Vec<String> = Vec::new();
    lines.extend(of(&|tree, change| is_of_project(tree, change) && ignored.contains(&change.path), "git ignores them"));
    lines.extend(of(&|tree, change| tree == git.which && patch::is_refused_by_git(change), "git tracks no such names"));
    for (other, record) in transaction.manifest.trees.iter().enumerate().filter(|(other, _)| *other != git.which) {
        lines.extend(of(&|tree, _| tree == other, &format!("they lie in {}", name(&record.lower))));
    }
    lines
}

fn make(
    git: &Git<'_>,
    transaction: &Transaction,
    asked: &[(usize, &Change)],
    branch: &str,
    opens: bool,
) -> Result<Made, BranchError> {
    let none = || std::io::empty();
    check(git, branch)?;
    // As long as the ids of this repository are.
    let no_object = "0".repeat(git.line(&["hash-object", "--stdin"], &mut none())?.len());
    let head = git.line(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], &mut none()).ok();
    if let Some(head) = &head {
        git.run(&["read-tree", head], &mut none())?;
    }
    let classes = Classes::of(transaction);
    let mut left = Vec::new();
    let of_project = asked.iter().filter(|(tree, change)| *tree == git.which && !patch::is_refused_by_git(change));
    let of_project: Vec<&Change> = of_project.map(|(_, change)| *change).collect();
    let ignored = ignored(git, &of_project)?;
    let untracked = untracked(git, transaction, asked, &ignored);
    // Removals first: a directory may come where a file was.
    let (mut removed, mut added, mut count) = (Vec::new(), Vec::new(), 0);
    for change in of_project.into_iter().filter(|change| !ignored.contains(&change.path)) {
        if classes.is_opened(git.which, change) && !opens {
            left.push(format!("{} is not in it: it needs --opens", name(&change.path)));
            continue;
        }
        let is_leaf = |kind: Kind| matches!(kind, Kind::File | Kind::Link);
        let path = change.path.as_os_str().as_bytes();
        match blob(git, transaction, change)? {
            Some((mode, id)) => added.extend([format!("{mode} {id}\t").as_bytes(), path, b"\0"].concat()),
            None if change.what == What::Deleted && is_leaf(change.kind()) => {}
            None if change.after.as_ref().is_some_and(|after| is_leaf(after.kind)) => {
                left.push(format!("{} is not in it: it cannot be read", name(&change.path)));
                continue;
            }
            None => continue,
        }
        if change.before.as_ref().is_some_and(|before| is_leaf(before.kind)) {
            removed.extend([format!("0 {no_object}\t").as_bytes(), path, b"\0"].concat());
        }
        count += 1;
    }
    if count == 0 {
        return Err(BranchError::Empty);
    }
    removed.extend(added);
    git.run(&["update-index", "-z", "--index-info"], &mut removed.as_slice())?;
    let tree = git.line(&["write-tree"], &mut none())?;
    let mut message = format!("Changes of sandbox session {}\n\n", transaction.id());
    // Writing to a string does not fail.
    writeln!(message, "Command: {}", escaped(&transaction.manifest.command.join(" "))).unwrap_or_default();
    let mut arguments = vec!["commit-tree", tree.as_str()];
    arguments.extend(head.iter().flat_map(|head| ["-p", head.as_str()]));
    let commit = git.line(&arguments, &mut message.as_bytes())?;
    // Only where there is none of this name.
    git.run(&["update-ref", &format!("refs/heads/{branch}"), &commit, &no_object], &mut none())?;
    Ok(Made { commit, count, left, untracked })
}

/// New files that the project's git does not track: caches, build output.
fn ignored(git: &Git<'_>, changes: &[&Change]) -> Result<Ignored, BranchError> {
    let input: Vec<u8> = changes.iter().flat_map(|one| [one.path.as_os_str().as_bytes(), b"\0"].concat()).collect();
    let told = match git.run(&["check-ignore", "-z", "--stdin"], &mut input.as_slice()) {
        // None is: that is how it says so.
        Err(GitError::Failed { said, .. }) if said.is_empty() => Vec::new(),
        other => other?,
    };
    let names = told.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name))).collect())
}

/// What a file or a link is after the session, as an object of git.
fn blob(
    git: &Git<'_>,
    transaction: &Transaction,
    change: &Change,
) -> Result<Option<(&'static str, String)>, BranchError> {
    let Some(after) = &change.after else { return Ok(None) };
    let hash = |input: &mut dyn Read| git.line(&["hash-object", "-w", "--no-filters", "--stdin"], input);
    match (after.kind, after.target.as_deref()) {
        (Kind::Link, Some(target)) => Ok(Some(("120000", hash(&mut target.as_os_str().as_bytes())?))),
        (Kind::File, _) => {
            let Some((mut file, _)) = transaction.changed_file(git.which, &change.path) else { return Ok(None) };
            let mode = if after.mode & 0o100 == 0 { "100644" } else { "100755" };
            Ok(Some((mode, hash(&mut file)?)))
        }
        _ => Ok(None),
    }
}
