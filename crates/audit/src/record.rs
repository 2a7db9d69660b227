//! What can happen, and what a record says of it. Owns the vocabulary, which is also that of the files on disk: a name
//! that was written once never changes its meaning. Used by `supervisor` and `host`, which write.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Event {
    /// Policy refused it: there was no session.
    LaunchRefused,
    SandboxCreated,
    /// The walls stand.
    SandboxEntered,
    SandboxExited,
    SandboxDestroyed,
    PolicyViolation,
    EscapeAttempt,
    ResourceLimitApproached,
    ResourceLimitExceeded,
    SyscallBlocked,
    FileAccessViolation,
    FileRequested,
    FileDecided,
    ConnectionAttempt,
    ProcessCreated,
    CommandStarted,
    PolicyChanged,
    /// What a session wrote so far can be put back to this moment.
    WorkspaceCheckpoint,
    /// It was.
    WorkspaceRestored,
    /// A signature over everything before.
    ChainCheckpoint,
    /// The last record of a file; the chain goes on in the next.
    ChainRotated,
    /// The first record of every file but the first.
    ChainContinued,
    /// Bytes before this are what a crash left of a record.
    ChainTorn,
    /// The writer of this found the end of the chain other than the writer before had left it.
    ChainLost,
    /// The operator, or a retention of theirs, had records at the beginning removed.
    ChainPruned,
}

impl Event {
    pub const ALL: [Event; 25] = [
        Event::LaunchRefused,
        Event::SandboxCreated,
        Event::SandboxEntered,
        Event::SandboxExited,
        Event::SandboxDestroyed,
        Event::PolicyViolation,
        Event::EscapeAttempt,
        Event::ResourceLimitApproached,
        Event::ResourceLimitExceeded,
        Event::SyscallBlocked,
        Event::FileAccessViolation,
        Event::FileRequested,
        Event::FileDecided,
        Event::ConnectionAttempt,
        Event::ProcessCreated,
        Event::CommandStarted,
        Event::PolicyChanged,
        Event::WorkspaceCheckpoint,
        Event::WorkspaceRestored,
        Event::ChainCheckpoint,
        Event::ChainRotated,
        Event::ChainContinued,
        Event::ChainTorn,
        Event::ChainLost,
        Event::ChainPruned,
    ];

    /// As it stands in the files.
    pub fn name(self) -> &'static str {
        match self {
            Event::LaunchRefused => "LAUNCH_REFUSED",
            Event::SandboxCreated => "SANDBOX_CREATED",
            Event::SandboxEntered => "SANDBOX_ENTERED",
            Event::SandboxExited => "SANDBOX_EXITED",
            Event::SandboxDestroyed => "SANDBOX_DESTROYED",
            Event::PolicyViolation => "POLICY_VIOLATION",
            Event::EscapeAttempt => "ESCAPE_ATTEMPT",
            Event::ResourceLimitApproached => "RESOURCE_LIMIT_APPROACHED",
            Event::ResourceLimitExceeded => "RESOURCE_LIMIT_EXCEEDED",
            Event::SyscallBlocked => "SYSCALL_BLOCKED",
            Event::FileAccessViolation => "FILE_ACCESS_VIOLATION",
            Event::FileRequested => "FILE_REQUESTED",
            Event::FileDecided => "FILE_DECIDED",
            Event::ConnectionAttempt => "CONNECTION_ATTEMPT",
            Event::ProcessCreated => "PROCESS_CREATED",
            Event::CommandStarted => "COMMAND_STARTED",
            Event::PolicyChanged => "POLICY_CHANGED",
            Event::WorkspaceCheckpoint => "WORKSPACE_CHECKPOINT",
            Event::WorkspaceRestored => "WORKSPACE_RESTORED",
            Event::ChainCheckpoint => "CHAIN_CHECKPOINT",
            Event::ChainRotated => "CHAIN_ROTATED",
            Event::ChainContinued => "CHAIN_CONTINUED",
            Event::ChainTorn => "CHAIN_TORN",
            Event::ChainLost => "CHAIN_LOST",
            Event::ChainPruned => "CHAIN_PRUNED",
        }
    }

    pub fn from_name(name: &str) -> Option<Event> {
        Event::ALL.into_iter().find(|event| event.name() == name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Severity {
    Info,
    Warning,
    Error,
    Critical,
}

/// Who made it happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Actor {
    /// The sandbox itself.
    Supervisor,
    /// What runs inside.
    Workload,
    Person,
    /// A program that was configured to answer.
    Hook,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    Allow,
    Deny,
}

/// One thing that happened. Sequence, time and hashes are the journal's to add.
#[derive(Debug, Clone)]
pub struct Record<'a> {
    pub event: Event,
    pub session: &'a str,
    pub actor: Actor,
    pub severity: Severity,
    pub decision: Option<Decision>,
    /// The rule that decided, and where it stands.
    pub origin: Option<&'a str>,
    /// From the question to the answer.
    pub latency: Option<Duration>,
    pub details: Value,
}

impl<'a> Record<'a> {
    /// Something that the supervisor did and that the operator need not look at.
    pub fn new(event: Event, session: &'a str, details: Value) -> Self {
        Record {
            event,
            session,
            actor: Actor::Supervisor,
            severity: Severity::Info,
            decision: None,
            origin: None,
            latency: None,
            details,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_has_the_name_that_is_written() {
        for event in Event::ALL {
            assert_eq!(serde_json::to_value(event).expect("a name"), event.name());
            assert_eq!(Event::from_name(event.name()), Some(event));
        }
    }
}
