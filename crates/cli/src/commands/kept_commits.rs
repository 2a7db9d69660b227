//! Commits of git that a session made where the host has worked in the repository, too: the host's refs stay where they are, and the
//! session's are kept under names of their own. Owns which refs those are and what the new ones are called. Called after a commit, when
//! the objects are in the repository.

use std::collections::BTreeMap;
use std::path::Path;

use cofferdam_wire::session::short;
use cofferdam_workspace::{Change, Kind, Transaction, patch};

use crate::commands::git::{Git, GitError};
use crate::render::changes::name;
use crate::render::output::escaped;

/// A list of refs of some ten thousand branches.
const LARGEST: u64 = 4 << 20;
/// A workload makes any number of refs; each is a call of git.
const MOST: usize = 64;
const REFS: &str = "refs/";
const HEADS: &str = "refs/heads/";

/// Gives every ref of the session that waits because of the host a name of its own, and a line for each.
pub(crate) fn keep(transaction: &Transaction, asked: &[(usize, &Change)]) -> Vec<String> {
    let refs = refs(transaction, asked);
    let mut lines = Vec::new();
    let reftable = |change: &Change| change.conflict.is_some() && change.path.iter().any(|name| name == "reftable");
    if asked.iter().any(|(_, change)| reftable(change)) {
        lines.push("the session's refs are in a `reftable`, which is not read: its commits wait; `sandbox commit --as-branch NAME` makes one of its files".to_owned());
    }
    let is_long = |(tree, change): &&(usize, &Change)| {
        let is_list = change.conflict.is_some() && change.after.is_some() && change.path.ends_with("packed-refs");
        is_list && transaction.contents(*tree, &change.path, LARGEST).1.is_none()
    };
    if asked.iter().any(|one| is_long(&one)) {
        lines.push("the session's list of refs is too long to be read: commits that it alone names wait".to_owned());
    }
    let Some(which) = transaction.manifest.project().filter(|_| !refs.is_empty()) else { return lines };
    let git = Git { project: &transaction.manifest.trees[which].lower, which, index: None };
    // All are looked at before one is made: what one leads to may be what another is.
    let asked = refs.iter().take(MOST).map(|(name, id)| (name, id, is_unknown(&git, name, id)));
    for (name, id, is_unknown) in asked.collect::<Vec<_>>() {
        let new = new_name(short(transaction.id()), name);
        let kept = is_unknown.and_then(|unknown| if unknown { keep_one(&git, &new, id) } else { Ok(false) });
        match kept {
            Ok(false) => {}
            Ok(true) => lines.push(told(name, &new)),
            Err(error) => lines.push(format!("the session's commits on {} wait: {error}", shown(name))),
        }
    }
    if refs.len() > MOST {
        lines.push(format!("{} more refs of the session wait", refs.len() - MOST));
    }
    lines
}

/// A line for each of these files that waits, and whose content is in the repository all the same: a commit of the session holds it.
pub(crate) fn held<'a>(transaction: &Transaction, waiting: impl Iterator<Item = (usize, &'a Path)>) -> Vec<String> {
    let Some(which) = transaction.manifest.project() else { return Vec::new() };
    let git = Git { project: &transaction.manifest.trees[which].lower, which, index: None };
    let held = waiting.filter(|(tree, _)| *tree == which).take(MOST).filter(|(tree, path)| {
        let (_, after) = transaction.contents(*tree, path, patch::LARGEST);
        let id = after.map(|content| patch::blob_id(&content));
        id.is_some_and(|id| git.run(&["cat-file", "-e", &id], &mut std::io::empty()).is_ok())
    });
    held.map(|(_, path)| {
        format!(
            "{} waits, but commits of the session contain it: `git checkout`, `stash` or `merge` of such a commit writes it",
            name(path)
        )
    })
    .collect()
}

/// Branches are branches; others lead to objects that no branch can have, and are kept from being collected.
fn new_name(session: &str, name: &str) -> String {
    match name.strip_prefix(HEADS).or((!name.starts_with(REFS)).then_some("HEAD")) {
        Some(branch) => format!("{HEADS}cofferdam/{session}/{branch}"),
        None => format!("{REFS}cofferdam/{session}/{}", &name[REFS.len()..]),
    }
}

fn shown(name: &str) -> String {
    escaped(name.strip_prefix(HEADS).unwrap_or(name))
}

fn told(name: &str, new: &str) -> String {
    let Some(branch) = new.strip_prefix(HEADS) else {
        return format!("the session's {} is kept as {}", escaped(name), escaped(new));
    };
    // A workload chose the name: one that a shell could take for more is in no command to copy.
    let is_plain = branch.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    let merge = if is_plain {
        format!(": `git merge {branch}` takes them over, once what you have in these files is committed or stashed")
    } else {
        String::new()
    };
    format!("the session's commits on {} are on branch {}{merge}", shown(name), escaped(branch))
}

/// Whether no ref of the repository leads to it. What is no branch is an object of its own, and is always kept.
fn is_unknown(git: &Git<'_>, name: &str, id: &str) -> Result<bool, GitError> {
    if name.starts_with(REFS) && !name.starts_with(HEADS) {
        return Ok(true);
    }
    let first = git.line(&["rev-list", "--max-count=1", id, "--not", "--all", "--"], &mut std::io::empty())?;
    Ok(!first.is_empty())
}

/// `false` where it was kept before.
fn keep_one(git: &Git<'_>, name: &str, id: &str) -> Result<bool, GitError> {
    let none = || std::io::empty();
    if git.line(&["rev-parse", "--verify", "--quiet", name], &mut none()).is_ok_and(|now| now == id) {
        return Ok(false);
    }
    // Nothing that it leads to is missing.
    git.run(&["rev-list", "--objects", "--quiet", id, "--not", "--all", "--"], &mut none())?;
    // Only where there is none of this name.
    git.run(&["update-ref", name, id, &"0".repeat(id.len())], &mut none())?;
    Ok(true)
}

/// Refs of the project's repository that the session made or moved and that cannot be taken as they are, by their whole names; `HEAD`
/// where it names a commit itself.
fn refs(transaction: &Transaction, asked: &[(usize, &Change)]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let waiting = asked.iter().filter(|(_, change)| change.conflict.is_some() && change.kind() == Kind::File);
    for (tree, change) in waiting {
        let is_repository = transaction.manifest.trees[*tree].is_repository;
        let inside = if is_repository { Ok(change.path.as_path()) } else { change.path.strip_prefix(".git") };
        let Some(inside) = inside.ok().and_then(Path::to_str) else { continue };
        if inside == "packed-refs" {
            let (before, after) = transaction.contents(*tree, &change.path, LARGEST);
            let before = packed(&before.unwrap_or_default());
            for (name, id) in packed(&after.unwrap_or_default()) {
                if before.get(&name) != Some(&id) {
                    // A file of its own counts before the list.
                    found.entry(name).or_insert(id);
                }
            }
        } else if inside.starts_with(REFS) || is_head(inside) {
            let (_, after) = transaction.contents(*tree, &change.path, LARGEST);
            if let Some(id) = after.and_then(|text| id(std::str::from_utf8(&text).ok()?)) {
                found.insert(inside.to_owned(), id);
            }
        }
    }
    found
}

/// Also that of a linked worktree.
fn is_head(inside: &str) -> bool {
    let parts: Vec<&str> = inside.split('/').collect();
    matches!(parts[..], ["HEAD"] | ["worktrees", _, "HEAD"])
}

fn packed(text: &[u8]) -> BTreeMap<String, String> {
    let line = |line: &str| {
        let (value, name) = line.split_once(' ')?;
        Some((name.strip_prefix(REFS).map(|_| name.to_owned())?, id(value)?))
    };
    String::from_utf8_lossy(text).lines().filter_map(line).collect()
}

/// The id of an object, and nothing that git could take for something else.
fn id(text: &str) -> Option<String> {
    let text = text.trim_end();
    let is_id = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| text.to_owned())
}
