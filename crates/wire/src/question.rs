//! What is asked and what can be answered. Owns the vocabulary; every client, the protocol and the audit log use these words.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Counts up within a session and is never given twice, so that a late answer meets no other question.
pub type QuestionId = u64;

/// What an answer gives that makes a directory, in the words of prompt and inbox.
pub const NEW_DIRECTORY: &str = "it and all in it, but names that rules protect";

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
    /// Make a file or a directory that is not there yet.
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

    /// As it stands on the wire and in the log.
    pub fn word(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::List => "list",
            Op::Exec => "exec",
            Op::Write => "write",
            Op::Create => "create",
            Op::Connect => "connect",
            Op::Sign => "sign",
        }
    }

    /// Whether an approval that reaches so far can be written to a policy: no rule gives the names of a directory alone, or what a
    /// key signs, and a group of files is for the session. A directory that is not there yet is given with what comes into it.
    pub fn can_be_kept(self, is_dir: bool, reach: Reach) -> bool {
        let is_of_files = reach == Reach::Group && self.is_about_files();
        self != Op::Sign && !is_of_files && !(is_dir && reach == Reach::File && self != Op::Create)
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
    /// What the question offers as its [`Group`].
    Group,
}

/// What one answer to a question can be about besides its path or host: a list that is complete when the question is asked, and
/// that gives what the answer about each of it would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Group {
    /// What a program usually reaches; each with its port, as policy writes it.
    Hosts { name: String, hosts: Vec<String> },
    /// Files of one directory, for the same kind of access.
    Files { directory: String, names: Vec<String> },
}

impl Group {
    /// All that it gives, for a question about `op`. Names in it can be the workload's: to be shown escaped. The directory is last, so
    /// that nothing in its name is read as a file.
    pub fn said(&self, op: Op) -> String {
        match self {
            Group::Hosts { hosts, .. } => format!("{}: {}", self.name(), hosts.join(", ")),
            Group::Files { directory, names } => {
                let verb = if op == Op::Write { "write" } else { "read" };
                format!("{verb} all {} of {} in {directory}", names.len(), names.join(", "))
            }
        }
    }

    /// The same in a few words.
    pub fn name(&self) -> String {
        match self {
            Group::Hosts { name, hosts } => format!("all {} hosts of {name}", hosts.len()),
            Group::Files { directory, names } => format!("{} files in {directory}", names.len()),
        }
    }

    /// Its files.
    pub fn paths(&self) -> Vec<PathBuf> {
        match self {
            Group::Hosts { .. } => Vec::new(),
            Group::Files { directory, names } => names.iter().map(|name| Path::new(directory).join(name)).collect(),
        }
    }
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
    /// The answer where neither a person nor a hook could be asked: this call, and nothing else.
    pub const DENY_ONCE: Verdict = Verdict::Deny { reach: Reach::File, keep: Keep::Once };

    pub fn is_allow(self) -> bool {
        matches!(self, Verdict::Allow { .. })
    }
}

/// Who or what gave an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A person through the terminal, the inbox or a command.
    Person,
    /// A program that was configured to answer.
    Hook,
    /// A rule of the policy.
    Rule,
    /// An earlier answer of this session covers it.
    Grant,
    /// Neither a person nor a hook answered in time.
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

impl Cause {
    /// As it stands on the wire and in the log.
    pub fn word(self) -> &'static str {
        match self {
            Cause::Person => "person",
            Cause::Hook => "hook",
            Cause::Rule => "rule",
            Cause::Grant => "grant",
            Cause::Timeout => "timeout",
            Cause::Budget => "budget",
            Cause::OnUnknown => "on-unknown",
            Cause::Gone => "gone",
            Cause::Failed => "failed",
        }
    }
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

/// What a question is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// Real path on the host, no link in it: what will be granted is the object that was found here.
    Path(PathBuf),
    /// A host with its port, as policy writes them.
    Host(String),
    /// A key of the user, and what is to be signed with it.
    Key(String),
}

impl Subject {
    pub fn path(&self) -> Option<&Path> {
        match self {
            Subject::Path(path) => Some(path),
            Subject::Host(_) | Subject::Key(_) => None,
        }
    }

    /// What it is called where it is told, which for a path need not be text.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Subject::Path(path) => path.as_os_str().as_bytes(),
            Subject::Host(text) | Subject::Key(text) => text.as_bytes(),
        }
    }

    /// The same as text; bytes that are none are replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.as_bytes())
    }
}

/// One question. Every call that it holds up waits for the same answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Question {
    pub id: QuestionId,
    pub op: Op,
    pub subject: Subject,
    pub is_dir: bool,
    /// Size in bytes of a file, 0 for what does not exist yet.
    pub size: u64,
    /// Flags of the call as the kernel reported them.
    pub flags: u32,
    pub asker: Asker,
    /// The known group that the path belongs to, e.g. `rust toolchain`.
    pub toolchain: Option<String>,
    /// What an answer can be about instead. It stays as it was offered first.
    pub group: Option<Group>,
    /// The question whose answer was about a group that this is one of.
    pub by: Option<QuestionId>,
    /// Other paths in the same directory that wait for the same answer.
    pub also: Vec<PathBuf>,
    /// No answer gives the directory as a whole: one that says so is about this path.
    #[serde(skip)]
    pub is_alone: bool,
    /// What may help to decide and decides nothing, because the asker could have made it up.
    pub hint: Option<String>,
    /// Calls that wait.
    pub waiting: u32,
    /// Seconds since 1970.
    pub asked: f64,
    /// Seconds since 1970 at which it will be denied.
    pub until: Option<f64>,
}

impl Question {
    /// What an answer means for this question. One that says more than can be given is about the path or host alone.
    pub fn meant(&self, verdict: Verdict) -> Verdict {
        match (verdict, &self.group) {
            (Verdict::Allow { reach: Reach::Group, keep }, group) => {
                let is_given = match group {
                    Some(Group::Hosts { .. }) => keep > Keep::Once,
                    Some(Group::Files { .. }) => keep == Keep::Session,
                    None => false,
                };
                Verdict::Allow { reach: if is_given { Reach::Group } else { Reach::File }, keep }
            }
            (Verdict::Deny { reach: Reach::Group, keep }, _) => Verdict::Deny { reach: Reach::File, keep },
            (verdict, _) => verdict,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_what_stands_on_the_wire() {
        let ops = [Op::Read, Op::List, Op::Exec, Op::Write, Op::Create, Op::Connect, Op::Sign];
        let causes = [
            Cause::Person,
            Cause::Hook,
            Cause::Rule,
            Cause::Grant,
            Cause::Timeout,
            Cause::Budget,
            Cause::OnUnknown,
            Cause::Gone,
            Cause::Failed,
        ];
        for op in ops {
            assert_eq!(serde_json::to_value(op).expect("a word"), op.word());
        }
        for cause in causes {
            assert_eq!(serde_json::to_value(cause).expect("a word"), cause.word());
        }
    }
}
