//! `sandbox commit --merge`: files that the host and a session have both changed. Owns which of them have a beginning in common, and what
//! is said of each; merging itself is `workspace`'s. Called by `changes`.

use std::path::Path;

use cofferdam_workspace::{Beginning, Beginnings, Change, Conflict, Kind, Part, Parts, Transaction, What, diff};

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
    let (trees, beginnings) = (transaction.manifest.trees.len(), transaction.beginnings());
    let mut merged = Merged { parts: vec![Parts::new(); trees], lines: Vec::new() };
    let is_file = |change: &Change| change.what == What::Modified && change.kind() == Kind::File;
    for (tree, change) in asked.iter().filter(|(_, one)| one.conflict == Some(Conflict::Changed) && is_file(one)) {
        match one(transaction, &beginnings, *tree, change) {
            Ok(content) => {
                let part = Part { content, takes_mode: false, is_whole: true };
                merged.parts[*tree].insert(change.path.clone(), part);
            }
            Err(why) => merged.lines.push(format!("{} is not merged: {why}", name(&change.path))),
        }
    }
    merged
}

fn one(transaction: &Transaction, beginnings: &Beginnings, tree: usize, change: &Change) -> Result<Vec<u8>, String> {
    let mode = |entry: &Option<cofferdam_workspace::Entry>| entry.as_ref().map(|entry| entry.mode);
    if mode(&change.before) != mode(&change.after) {
        return Err("the host's version has other permissions than the session's".to_owned());
    }
    let (host, session) = transaction.contents(tree, &change.path, diff::LARGEST);
    let (host, session) = host.zip(session).ok_or("it is too large, or cannot be read")?;
    let base = beginning(transaction, beginnings, tree, &change.path, &host)?;
    diff::merge(&base, &host, &session).ok_or_else(|| "both have changed the same lines, or it is no text".to_owned())
}

/// What the file held when the session began.
fn beginning(
    transaction: &Transaction,
    beginnings: &Beginnings,
    tree: usize,
    path: &Path,
    host: &[u8],
) -> Result<Vec<u8>, String> {
    let unknown = |why: &str| format!("what both began with is not known: {why}");
    let is_project = transaction.manifest.project() == Some(tree);
    let found = is_project.then(|| beginnings.of(path)).flatten();
    let unrecorded = "git did not track it, or the host changed it before it was recorded";
    match found.ok_or_else(|| unknown(unrecorded))? {
        Beginning::Content(content) => Ok(content),
        Beginning::Object { id, size } => {
            let git = Git { project: &transaction.manifest.trees[tree].lower, which: tree, index: None };
            let ask = |what: &str| git.run(&["cat-file", what, &id], &mut std::io::empty());
            let failed = |error: GitError| match error {
                GitError::Failed { said, .. } => unknown(&format!("git says `{said}`")),
                GitError::Run(source) => unknown(&format!("git cannot be run: {source}")),
            };
            if String::from_utf8_lossy(&ask("-s").map_err(failed)?).trim() != size.to_string() {
                return Err(unknown("git keeps it in another form than the project has it"));
            }
            let content = ask("blob").map_err(failed)?;
            if content == host {
                // By its index alone git is believed. Where that was wrong, a merge would undo what the host did.
                return Err(unknown("git says that the host has changed nothing, and the file was written since"));
            }
            Ok(content)
        }
    }
}
