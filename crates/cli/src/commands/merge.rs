//! `sandbox commit --merge`: files that the host and a session have both changed. Owns which of them have a beginning in common, and what
//! is said of each; merging itself is `workspace`'s. Called by `changes`.

use std::path::Path;

use cofferdam_workspace::{Change, Conflict, Kind, Part, Parts, Transaction, What, diff};

use crate::commands::git::{Git, GitError, project_of};
use crate::render::changes::name;

/// What a merge makes, for the commit to take; the session's own versions stay as they are until then.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// By tree; none where nothing was to be merged.
    pub(crate) parts: Vec<Parts>,
    /// Why others were not merged.
    pub(crate) lines: Vec<String>,
}

impl Merged {
    pub(crate) fn has(&self, tree: usize, path: &Path) -> bool {
        self.parts.get(tree).is_some_and(|parts| parts.contains_key(path))
    }
}

pub(crate) fn merge(transaction: &Transaction, asked: &[(usize, &Change)]) -> Merged {
    let trees = transaction.manifest.trees.len();
    let mut merged = Merged { parts: vec![Parts::new(); trees], lines: Vec::new() };
    let is_file = |change: &Change| change.what == What::Modified && change.kind() == Kind::File;
    for (tree, change) in asked.iter().filter(|(_, one)| one.conflict == Some(Conflict::Changed) && is_file(one)) {
        match one(transaction, *tree, change) {
            Ok(content) => {
                let part = Part { content, takes_mode: false, is_whole: true };
                merged.parts[*tree].insert(change.path.clone(), part);
            }
            Err(why) => merged.lines.push(format!("{} is not merged: {why}", name(&change.path))),
        }
    }
    merged
}

fn one(transaction: &Transaction, tree: usize, change: &Change) -> Result<Vec<u8>, String> {
    let mode = |entry: &Option<cofferdam_workspace::Entry>| entry.as_ref().map(|entry| entry.mode);
    if mode(&change.before) != mode(&change.after) {
        return Err("the host's version has other permissions than the session's".to_owned());
    }
    let (host, session) = transaction.contents(tree, &change.path, diff::LARGEST);
    let (host, session) = host.zip(session).ok_or("it is too large, or cannot be read")?;
    let base = beginning(transaction, tree, &change.path)?;
    if host == base {
        // Uncommitted lines that both began with: the host has taken them back, and a merge would bring them again.
        return Err(
            "the host's version is that of the commit, so what it took back cannot be told from what the session added"
                .to_owned(),
        );
    }
    diff::merge(&base, &host, &session).ok_or_else(|| "both have changed the same lines, or it is no text".to_owned())
}

/// As it was in the commit that the project was at when the session began.
fn beginning(transaction: &Transaction, tree: usize, path: &Path) -> Result<Vec<u8>, String> {
    let record = &transaction.manifest.trees[tree];
    let unknown = |why: &str| format!("what both began with is not known: {why}");
    let head = record.head.as_deref().filter(|_| project_of(&transaction.manifest) == Some(tree));
    let head = head.ok_or_else(|| unknown("the project has no commit of git, or it is a linked worktree"))?;
    let path = path.to_str().ok_or_else(|| unknown("its name is no UTF-8"))?;
    let git = Git { project: &record.lower, which: tree, index: None };
    git.run(&["cat-file", "blob", &format!("{head}:{path}")], &mut std::io::empty()).map_err(|error| match error {
        GitError::Failed { said, .. } => unknown(&format!("git says `{said}`")),
        GitError::Run(source) => unknown(&format!("git cannot be run: {source}")),
    })
}
