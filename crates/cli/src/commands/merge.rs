//! `sandbox commit --merge`: files that the host and a session have both changed. Owns which of them have a beginning in common, and what
//! is said of the others; merging itself is `workspace`'s, the git that is called `as_branch`'s. Called by `changes`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use cofferdam_workspace::{Change, Conflict, Kind, Transaction, What};

use crate::commands::as_branch::{Git, project_of};
use crate::render::changes::name;

/// What became of a merge.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    names: HashSet<(usize, PathBuf)>,
    /// Why others were not merged.
    pub(crate) lines: Vec<String>,
}

impl Merged {
    pub(crate) fn has(&self, tree: usize, path: &Path) -> bool {
        self.names.contains(&(tree, path.to_path_buf()))
    }
}

/// Merges what can be: the session's versions of those files hold both afterwards.
pub(crate) fn merge(transaction: &Transaction, asked: &[(usize, &Change)]) -> Merged {
    let mut merged = Merged::default();
    let is_file = |change: &Change| change.what == What::Modified && change.kind() == Kind::File;
    for (tree, change) in asked.iter().filter(|(_, one)| one.conflict == Some(Conflict::Changed) && is_file(one)) {
        let why = match beginning(transaction, *tree, &change.path) {
            Err(why) => why,
            Ok(base) => match transaction.merge(*tree, change, &base) {
                Ok(true) => {
                    merged.names.insert((*tree, change.path.clone()));
                    continue;
                }
                Ok(false) => "both have changed the same lines, or it is no text".to_owned(),
                Err(errno) => errno.to_string(),
            },
        };
        merged.lines.push(format!("{} is not merged: {why}", name(&change.path)));
    }
    merged
}

/// As it was in the commit that the project was at when the session began. Lines that were changed since and not committed are the
/// same in both versions.
fn beginning(transaction: &Transaction, tree: usize, path: &Path) -> Result<Vec<u8>, String> {
    let unknown =
        || "what both began with is not known: the project had no commit of git when the session began".to_owned();
    let is_project = project_of(&transaction.manifest) == Some(tree);
    let record = &transaction.manifest.trees[tree];
    let head = record.head.as_deref().filter(|_| is_project).ok_or_else(unknown)?;
    let path = path.to_str().ok_or_else(unknown)?;
    let git = Git { project: &record.lower, which: tree, index: None };
    git.run(&["cat-file", "blob", &format!("{head}:{path}")], &mut std::io::empty())
        .map_err(|_| format!("what both began with is not known: it was not in commit {}", &head[..12]))
}
