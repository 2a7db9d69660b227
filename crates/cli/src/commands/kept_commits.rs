//! Commits of git that a session made on a branch which the host has moved meanwhile: they get a branch of their own, and the host's
//! stays where it is. Owns which refs those are and what the new ones are called; the git that is called is `as_branch`'s. Called after a
//! commit, when the objects are in the repository.

use std::collections::BTreeMap;
use std::path::Path;

use cofferdam_wire::session::short;
use cofferdam_workspace::head::id;
use cofferdam_workspace::{Change, Kind, Transaction};

use crate::commands::as_branch::{BranchError, Git, project_of};
use crate::render::output::escaped;

/// A list of refs of some ten thousand branches.
const LARGEST: u64 = 4 << 20;
/// A workload makes any number of refs; each is a call of git.
const MOST: usize = 64;
const HEADS: &str = "refs/heads/";

/// Gives every branch of the session that waits because of the host a name of its own, and a line for each.
pub(crate) fn keep(transaction: &Transaction, asked: &[(usize, &Change)]) -> Vec<String> {
    let branches = branches(transaction, asked);
    let Some(which) = project_of(&transaction.manifest).filter(|_| !branches.is_empty()) else { return Vec::new() };
    let git = Git { project: &transaction.manifest.trees[which].lower, which, index: None };
    let mut lines = Vec::new();
    // All are looked at before one is made: what one leads to may be what another is.
    let asked = branches.iter().take(MOST).map(|(branch, id)| (branch, id, is_unknown(&git, id)));
    for (branch, id, is_unknown) in asked.collect::<Vec<_>>() {
        let name = format!("cofferdam/{}/{branch}", short(transaction.id()));
        let kept = is_unknown.and_then(|unknown| if unknown { keep_one(&git, &name, id) } else { Ok(false) });
        match kept {
            Ok(false) => {}
            Ok(true) => lines.push(format!(
                "the session's commits on {} are on branch {name}: `git merge {name}` takes them over",
                escaped(branch),
                name = escaped(&name)
            )),
            Err(error) => lines.push(format!("the session's commits on {} wait: {error}", escaped(branch))),
        }
    }
    if branches.len() > MOST {
        lines.push(format!("{} more branches of the session wait", branches.len() - MOST));
    }
    lines
}

/// Whether no ref of the repository leads to a commit.
fn is_unknown(git: &Git<'_>, id: &str) -> Result<bool, BranchError> {
    let first = git.line(&["rev-list", "--max-count=1", id, "--not", "--all", "--"], &mut std::io::empty())?;
    Ok(!first.is_empty())
}

fn keep_one(git: &Git<'_>, name: &str, id: &str) -> Result<bool, BranchError> {
    let none = || std::io::empty();
    // Nothing that it leads to is missing.
    git.run(&["rev-list", "--objects", "--quiet", id, "--not", "--all", "--"], &mut none())?;
    // Only where there is none of this name.
    git.run(&["update-ref", &format!("{HEADS}{name}"), id, &"0".repeat(id.len())], &mut none())?;
    Ok(true)
}

/// Branches of the project's repository that the session made or moved and that cannot be taken as they are.
fn branches(transaction: &Transaction, asked: &[(usize, &Change)]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let waiting = asked.iter().filter(|(_, change)| change.conflict.is_some() && change.kind() == Kind::File);
    for (tree, change) in waiting {
        let is_repository = transaction.manifest.trees[*tree].is_repository;
        let inside = if is_repository { Ok(change.path.as_path()) } else { change.path.strip_prefix(".git") };
        let Some(inside) = inside.ok().and_then(Path::to_str) else { continue };
        if inside == "packed-refs" {
            let (before, after) = transaction.contents(*tree, &change.path, LARGEST);
            let before = packed(&before.unwrap_or_default());
            for (branch, id) in packed(&after.unwrap_or_default()) {
                if before.get(&branch) != Some(&id) {
                    // A file of its own counts before the list.
                    found.entry(branch).or_insert(id);
                }
            }
        } else if let Some(branch) = inside.strip_prefix(HEADS).or((inside == "HEAD").then_some("HEAD")) {
            let (_, after) = transaction.contents(*tree, &change.path, LARGEST);
            if let Some(id) = after.and_then(|text| id(std::str::from_utf8(&text).ok()?)) {
                found.insert(branch.to_owned(), id);
            }
        }
    }
    found
}

fn packed(text: &[u8]) -> BTreeMap<String, String> {
    let line = |line: &str| {
        let (value, name) = line.split_once(' ')?;
        Some((name.strip_prefix(HEADS)?.to_owned(), id(value)?))
    };
    String::from_utf8_lossy(text).lines().filter_map(line).collect()
}
