//! What is asked and what can be answered. Owns the vocabulary; every face, the protocol and the audit log use these words.
//! Read by everybody in this crate, by `launcher` and by `cli`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Counts up within a session and is never given twice, so that a late answer meets no other question.
pub type QuestionId = u64;

/// What a program wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    Read,
    /// The names in a directory.
    List,
    Exec,
    /// Change what is there.
    Write,
    /// Make a file that is not there yet.
    Create,
    /// Reach a host.
    Connect,
    /// Have something signed with a key of the user.
    Sign,
}

impl Op {
    pub fn is_write(self) -> bool {
        matches!(self, Op::Write | Op::Create)
    }

    /// Whether it is about a path.
    pub fn is_about_files(self) -> bool {
        !matches!(self, Op::Connect | Op::Sign)
    }
}

/// How much of the tree an answer is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// The path itself; of a directory only the list of its names.
    File,
    /// The directory (of a file: the one it lies in) and everything below it but what is hidden.
    Dir,
    /// The known group that the path belongs to, e.g. all places of a Rust toolchain.
    Toolchain,
}

/// How long an answer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// For this one call.
    Once,
    Session,
    /// Written to the project's local policy.
    Project,
    /// Written to the user's policy.
    User,
    /// Written to the organisation's policy; for administrators.
    Org,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    Allow { reach: Reach, keep: Keep },
    Deny { reach: Reach, keep: Keep },
}

impl Verdict {
    /// The answer where nobody could be asked: this call, and nothing else.
    pub const DENY_ONCE: Verdict = Verdict::Deny { reach: Reach::File, keep: Keep::Once };

    pub fn is_allow(self) -> bool {
        matches!(self, Verdict::Allow { .. })
    }
}

/// Who or what gave an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Somebody through the terminal, the inbox or a command.
    Person,
    /// A program that was configured to answer.
    Hook,
    /// A rule of the policy.
    Rule,
    /// An earlier answer of this session covers it.
    Grant,
    /// Nobody answered in time.
    Timeout,
    /// Too many questions in a short time.
    Budget,
    /// The session does not ask (`--on-unknown deny` or `allow-and-log`).
    OnUnknown,
    /// Who asked is gone.
    Gone,
    /// What was asked about is not there any more, or could not be given.
    Failed,
}

/// A program and what it was started with. Everything here is what the kernel says of a process that may lie about itself:
/// to be shown escaped, never to be decided by.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Program {
    /// As seen inside.
    pub pid: u32,
    pub exe: String,
    pub argv: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Asker {
    pub program: Program,
    pub cwd: String,
    /// From the parent upwards, until pid 1 of the sandbox.
    pub parents: Vec<Program>,
}

/// One question. Every call that it holds up waits for the same answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Question {
    pub id: QuestionId,
    pub op: Op,
    /// Real path on the host, no link in it: what will be granted is the object that was found here. Of a connection it is
    /// the host and the port as policy writes them, of a signature the key and what is signed.
    pub path: PathBuf,
    pub is_dir: bool,
    /// Size in bytes of a file, 0 for what does not exist yet.
    pub size: u64,
    /// Flags of the call as the kernel reported them.
    pub flags: u32,
    pub asker: Asker,
    /// The known group that the path belongs to, e.g. `rust toolchain`.
    pub toolchain: Option<String>,
    /// Other paths in the same directory that wait for the same answer.
    pub also: Vec<PathBuf>,
    /// What may help to decide and decides nothing, because the asker could have made it up.
    pub hint: Option<String>,
    /// Calls that wait.
    pub waiting: u32,
    /// Seconds since 1970.
    pub asked: f64,
    /// Seconds since 1970 at which it will be denied.
    pub until: Option<f64>,
}

/// How a question ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    pub question: Question,
    pub verdict: Verdict,
    pub cause: Cause,
    /// What was opened up, where something was: the path and everything below it, or the file alone.
    pub granted: Vec<PathBuf>,
    /// From the question to its end.
    pub waited: std::time::Duration,
}
