//! A command of a session with an order: what is asked of it, how it ended, what is kept of its output. Sent by clients of the
//! control socket, carried out by `supervisor::execs`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::end::End;

/// Numbered from 1 in each session.
pub type ExecId = u64;

/// What is to be executed in the session's view, limits and filter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    pub argv: Vec<String>,
    /// As it is called inside; the session's own where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// Beside and instead of the session's variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<(String, String)>,
    /// Ended after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_millis: Option<u64>,
    /// Beside the session's own, of which none is widened.
    #[serde(default, skip_serializing_if = "ExecLimits::is_none")]
    pub limits: ExecLimits,
    /// Whether a client will write to its stdin, which is empty otherwise.
    #[serde(default)]
    pub has_input: bool,
}

/// What each process of an exec may use; a number that is larger than the session's changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecLimits {
    /// Seconds of CPU time; the kernel ends a process that used more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
    /// Bytes of memory that it can map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_space: Option<u64>,
    /// Bytes of a file that it writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
}

impl ExecLimits {
    fn is_none(&self) -> bool {
        *self == ExecLimits::default()
    }
}

impl ExecRequest {
    /// Why it can be no command.
    pub fn check(&self) -> Result<(), String> {
        let texts = self.argv.iter().chain(self.environment.iter().flat_map(|(name, value)| [name, value]));
        if self.argv.first().is_none_or(String::is_empty) {
            return Err("no command".to_owned());
        }
        if self.cwd.as_ref().is_some_and(|cwd| !cwd.is_absolute()) {
            return Err("`cwd` must be an absolute path".to_owned());
        }
        if texts.into_iter().any(|text| text.contains('\0')) {
            return Err("a word with a zero byte".to_owned());
        }
        if self.environment.iter().any(|(name, _)| name.is_empty() || name.contains('=')) {
            return Err("a variable without a name".to_owned());
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecEnd {
    /// By itself or by a signal: its exit code, as a shell says it.
    Ended {
        code: u8,
    },
    TimedOut,
    /// A limit of the session, or what was tried or fell in it, ended all of it.
    WithSession {
        end: End,
    },
    NotStarted {
        why: String,
        code: u8,
    },
}

impl ExecEnd {
    /// What a caller sees of it.
    pub fn exit_code(&self) -> u8 {
        match self {
            ExecEnd::Ended { code } | ExecEnd::NotStarted { code, .. } => *code,
            ExecEnd::TimedOut => End::TimedOut.exit_code(),
            ExecEnd::WithSession { end } => end.exit_code(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

impl OutputStream {
    pub const BOTH: [OutputStream; 2] = [OutputStream::Stdout, OutputStream::Stderr];
}

/// An exec as it is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecStatus {
    pub exec: ExecId,
    pub argv: Vec<String>,
    /// Seconds since 1970.
    pub started: f64,
    /// None while it runs.
    pub end: Option<ExecEnd>,
    /// Of stdout and stderr: the offset of the first byte that is kept, and that after the last one written.
    pub kept: [(u64, u64); 2],
}
