//! `sandbox commit --merge`: files that the host and a session have both changed. Owns which of them have a beginning in common, and what
//! is said of each; merging itself is `workspace`'s. Called by `changes`.

use std::path::Path;

use cofferdam_workspace::{Began, Change, Conflict, Kind, Part, Parts, Transaction, What, diff};

use crate::commands::git::{Git, GitError};
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
    diff::merge(&base, &host, &session).ok_or_else(|| "both have changed the same lines, or it is no text".to_owned())
}

/// What the file held when the session began.
fn beginning(transaction: &Transaction, tree: usize, path: &Path) -> Result<Vec<u8>, String> {
    let unknown = |why: &str| format!("what both began with is not known: {why}");
    let is_project = transaction.manifest.project() == Some(tree);
    let began = is_project.then(|| transaction.began(path)).flatten();
    match began.ok_or_else(|| unknown("it was no file that git tracks in this project, or changed too early"))? {
        Began::Content(content) => Ok(content),
        Began::Object(id) => {
            let git = Git { project: &transaction.manifest.trees[tree].lower, which: tree, index: None };
            git.run(&["cat-file", "blob", &id], &mut std::io::empty()).map_err(|error| match error {
                GitError::Failed { said, .. } => unknown(&format!("git says `{said}`")),
                GitError::Run(source) => unknown(&format!("git cannot be run: {source}")),
            })
        }
    }
}
