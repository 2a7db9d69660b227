//! What a session is called, and what it says of itself in the file `session.json` of its directory. An id is `<cell>-<uuid7>`: the
//! cell says where it was placed; the UUID keeps the ids of all machines apart, and within a cell they sort by start. Owns the parts
//! of an id and the fields of the file; `supervisor` makes, writes and finds them, `cli` shows them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::end::End;

/// The cell of a session that an operator started on this machine: no scheduler placed it.
pub const LOCAL_CELL: &str = "local";

/// What is shown to the operator instead of the whole id, and what the operator types: its last group, 48 random bits. The beginning
/// is the time, in which two sessions hardly differ.
#[must_use]
pub fn short(id: &str) -> &str {
    id.rsplit('-').next().unwrap_or(id)
}

pub const SESSION_VERSION: u32 = 1;

/// What a session says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    pub version: u32,
    pub id: String,
    /// What the operator called it; of the sessions that run one alone has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The supervisor's, in the pid namespace of that name.
    pub pid: i32,
    pub pid_namespace: String,
    pub argv: Vec<String>,
    pub cwd: PathBuf,
    pub project: Option<PathBuf>,
    pub mode: String,
    /// Seconds since 1970.
    pub started: f64,
}

/// How far a session is.
///
/// ```text
/// created --walls stand, measured--> initialized --command executed--> running --its first records are written--> monitoring
/// running, monitoring --> completed | timeout | error --> cleanup
/// created, initialized --could not be set up--> error --> cleanup
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LifeCycle {
    #[default]
    Created,
    Initialized,
    Running,
    Monitoring,
    /// The command ended, by itself or because it was asked to.
    Completed,
    Timeout,
    /// It could not be set up, or was ended for a limit or for safety.
    Error,
    /// What it had is taken apart.
    Cleanup,
}

impl LifeCycle {
    #[must_use]
    pub fn after(end: End) -> Self {
        match end {
            End::Exited { .. } | End::Signalled { .. } | End::Killed { .. } | End::ClientGone => LifeCycle::Completed,
            End::TimedOut => LifeCycle::Timeout,
            End::OutOfMemory
            | End::ProcessLimit
            | End::CpuTimeLimit
            | End::StorageLimit
            | End::InodeLimit
            | End::EscapeAttempt
            | End::TooManyViolations
            | End::OutputLimit
            | End::CoverFell => LifeCycle::Error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_group_stands_for_an_id() {
        assert_eq!(short("local-019a8f3c-2d10-7c3e-8a51-6b1f0e92d7c4"), "6b1f0e92d7c4");
        assert_eq!(short("last"), "last");
    }
}
