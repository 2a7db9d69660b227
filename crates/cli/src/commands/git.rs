//! The host's git, called for a project. Owns how: no hook, filter, monitor or network of the configuration, and nothing of the
//! environment. Called by `as_branch`, `kept_commits` and `merge`.

use std::io::{Read, Seek as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::MemfdFlags;
use thiserror::Error;

use crate::render::output::escaped;

#[derive(Debug, Error)]
pub(crate) enum GitError {
    #[error("git cannot be run")]
    Run(#[source] std::io::Error),
    #[error("`git {command}` failed: {said}")]
    Failed { command: String, said: String },
}

/// Without hooks, filters, monitors or a network, whatever the configuration says.
const HARDENED: [&str; 10] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.attributesFile=/dev/null",
    "-c",
    "core.splitIndex=false",
    "-c",
    "core.untrackedCache=false",
];

/// The project's repository.
pub(crate) struct Git<'a> {
    pub(crate) project: &'a Path,
    /// One that is not its own, where one is needed.
    pub(crate) index: Option<PathBuf>,
    /// Which tree of the transaction it is.
    pub(crate) which: usize,
}

impl Git<'_> {
    pub(crate) fn run(&self, arguments: &[&str], input: &mut dyn Read) -> Result<Vec<u8>, GitError> {
        let mut command = Command::new("git");
        for (variable, _) in std::env::vars_os().filter(|(variable, _)| variable.as_bytes().starts_with(b"GIT_")) {
            command.env_remove(variable);
        }
        command.args(HARDENED).arg("-C").arg(self.project).args(arguments);
        command
            .envs(self.index.iter().map(|index| ("GIT_INDEX_FILE", index)))
            .env("GIT_NO_LAZY_FETCH", "1")
            // A session may have made some.
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_TERMINAL_PROMPT", "0");
        // As a file: git may answer before it has read all, and wait for a reader of its answers.
        let memory = rustix::fs::memfd_create("input", MemfdFlags::CLOEXEC).map_err(|e| GitError::Run(e.into()))?;
        let mut memory = std::fs::File::from(memory);
        std::io::copy(input, &mut memory).and_then(|_| memory.rewind()).map_err(GitError::Run)?;
        let piped = command.stdin(memory).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = piped.spawn().and_then(Child::wait_with_output).map_err(GitError::Run)?;
        if ended.status.success() {
            return Ok(ended.stdout);
        }
        let said = escaped(String::from_utf8_lossy(&ended.stderr).trim());
        Err(GitError::Failed { command: arguments.first().copied().unwrap_or_default().to_owned(), said })
    }

    pub(crate) fn line(&self, arguments: &[&str], input: &mut dyn Read) -> Result<String, GitError> {
        Ok(String::from_utf8_lossy(&self.run(arguments, input)?).trim().to_owned())
    }
}
