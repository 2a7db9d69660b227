//! The project's repositories and what of them matters to rules. Owns the roles of git directories; reading repositories is the
//! `host` crate's. Part of `HostFacts`.

use std::path::PathBuf;

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GitRole {
    /// `.git` of the project, or the bare repository that the project is.
    Main,
    /// The repository that a linked worktree belongs to; the link was verified in both directions.
    Common,
    /// The project's own entry under `worktrees/` of the common directory.
    ThisWorktree,
    /// An entry of another worktree.
    OtherWorktree,
    Submodule,
    /// `modules` or `worktrees` with more in it than is looked at one by one.
    Whole,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GitDir {
    pub path: PathBuf,
    pub role: GitRole,
    /// What git reads besides, because the repository's configuration says so: files that it includes, and the file in a
    /// submodule's working tree that leads to it. As they are written there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<PathBuf>,
}

impl GitDir {
    pub fn new(path: PathBuf, role: GitRole) -> Self {
        GitDir { path, role, reads: Vec::new() }
    }
}

/// A file that a shipped list hides and that git's index names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrackedFile {
    pub path: PathBuf,
    /// The file of the object store that holds the same bytes as the object that the index names, if there is one.
    pub object: Option<PathBuf>,
}
