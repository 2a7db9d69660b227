//! Why a session ended, and what its caller sees of that as an exit code. Told by `supervisor`, rendered by `cli`.

use serde::{Deserialize, Serialize};

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    Exited {
        code: i32,
    },
    /// A signal ended the command.
    Signalled {
        signal: i32,
    },
    TimedOut,
    /// All of it was ended for want of memory: by the kernel at the cgroup's limit, or by the supervisor.
    OutOfMemory,
    /// It stood at its process limit, as a fork bomb does.
    ProcessLimit,
    CpuTimeLimit,
    StorageLimit,
    /// More files than the policy allows.
    InodeLimit,
    /// It made a call that no harmless program makes in here.
    EscapeAttempt,
    /// More refused system calls, or more signs of an escape, than the policy tolerates.
    TooManyViolations,
    /// More written to stdout and stderr than the policy allows.
    OutputLimit,
    /// A host program took a cover off, and what it covered may be in the hands of the session.
    CoverFell,
    /// The client that it was to end with is gone.
    ClientGone,
    /// Pid 1 was killed from outside.
    Killed {
        signal: i32,
    },
}

/// A limit ended it.
const LIMIT: u8 = 124;
/// Policy refused it.
const REFUSED: u8 = 126;
/// Added to the number of the signal that ended a command, as a shell does.
const BY_SIGNAL: i32 = 128;
const SIGKILL: i32 = 9;
const SIGHUP: i32 = 1;

impl End {
    /// Whether it was ended for what it tried, or for what it may have got hold of. What it wrote is then not taken over unseen.
    pub fn is_for_safety(self) -> bool {
        matches!(self, End::EscapeAttempt | End::TooManyViolations | End::CoverFell)
    }

    /// What a caller sees of it.
    pub fn exit_code(self) -> u8 {
        let byte = |code: i32| u8::try_from(code & 0xff).unwrap_or(u8::MAX);
        match self {
            End::Exited { code } => byte(code),
            End::TimedOut
            | End::ProcessLimit
            | End::CpuTimeLimit
            | End::StorageLimit
            | End::InodeLimit
            | End::OutputLimit => LIMIT,
            End::EscapeAttempt | End::TooManyViolations | End::CoverFell => REFUSED,
            // As a command that the kernel ended for want of memory, and one whose terminal is gone.
            End::ClientGone => byte(BY_SIGNAL + SIGHUP),
            End::OutOfMemory => byte(BY_SIGNAL + SIGKILL),
            End::Signalled { signal } | End::Killed { signal } => byte(BY_SIGNAL + signal),
        }
    }
}
