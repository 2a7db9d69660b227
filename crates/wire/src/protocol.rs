//! The words on the supervisor's socket: one JSON object a line, version 1. Owns parsing and rendering, strictly: an unknown
//! message, field, scope or verdict is refused, nothing is taken for true that is not exactly that. Used by `supervisor::approvals`
//! on the supervisor's side, by `cli` and `client` on the other.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::exec::{ExecEnd, ExecId, ExecRequest, ExecStatus, OutputStream};
use crate::question::{Asker, Cause, Group, Keep, Op, Program, Question, QuestionId, Reach, Settled, Verdict};
use crate::session::LifeCycle;

pub const VERSION: u32 = 1;

/// Longest line that a client takes.
pub const MOST_BYTES: usize = 1 << 20;

/// Longest line that the supervisor takes.
pub const MOST_COMMAND_BYTES: usize = 1 << 17;

/// Most bytes of output or input in one line.
pub const MOST_CHUNK_BYTES: usize = 1 << 16;

/// Most words of a command line, parents of a program and paths of a directory that a question tells of, and the most
/// bytes of each word. What is asked about is told in full.
const MOST_WORDS: usize = 64;
const MOST_PARENTS: usize = 32;
const MOST_ALSO: usize = 64;
const MOST_WORD_BYTES: usize = 1024;

/// Why a step was not put back that was looked at before: the session has written since.
pub const WENT_ON: &str = "the session has gone on since that was looked at";

/// From a client to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum Command {
    /// First on every connection.
    #[serde(rename = "hello")]
    Hello { version: u32, face: String },
    #[serde(rename = "cmd.approve")]
    Approve { id: QuestionId, scope: Reach, persist: Persist },
    #[serde(rename = "cmd.deny")]
    Deny {
        id: QuestionId,
        #[serde(default = "file")]
        scope: Reach,
        #[serde(default)]
        persist: Persist,
    },
    /// Write what this session was granted so far to the policy of a scope.
    #[serde(rename = "cmd.policy.save")]
    PolicySave { scope: PolicyScope },
    /// What the session is and uses now; answered with `event.session`.
    #[serde(rename = "cmd.status")]
    Status {},
    /// Start a further command in the session. Four descriptors come along with the line: the streams of the command, and
    /// a message socket over which the rest is said. A stream that is a terminal is replaced by one of the session's own.
    #[serde(rename = "cmd.attach")]
    Attach { argv: Vec<String>, terminal: [bool; 3] },
    /// Start a command whose output is kept; answered with `event.exec`.
    #[serde(rename = "cmd.exec")]
    Exec { request: ExecRequest },
    /// What an exec wrote from this offset on; answered with `event.output` or `event.gone`. One that follows is answered when there
    /// is something, or the exec has ended.
    #[serde(rename = "cmd.output")]
    Output { exec: ExecId, stream: OutputStream, from: u64, follow: bool },
    /// For the stdin of an exec; answered once the command's pipe has it.
    #[serde(rename = "cmd.input")]
    Input {
        exec: ExecId,
        #[serde(with = "base64")]
        data: Vec<u8>,
        /// Nothing comes after it.
        end: bool,
    },
    /// To the process group of an exec.
    #[serde(rename = "cmd.signal")]
    Signal { exec: ExecId, signal: i32 },
    /// Answered with `event.exec_end`.
    #[serde(rename = "cmd.wait")]
    Wait { exec: ExecId },
    /// Take a checkpoint of the session's transaction; answered with `ok` and its number, or none where nothing has changed.
    #[serde(rename = "cmd.checkpoint")]
    Checkpoint { label: String },
    /// Put an earlier checkpoint in the place of what is there, which becomes one itself; answered with `ok`. With `seen` only where
    /// nothing was written after that checkpoint, the last that the client has looked at.
    #[serde(rename = "cmd.put_back")]
    PutBack {
        to: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<usize>,
    },
    /// End the session.
    #[serde(rename = "cmd.kill")]
    Kill {},
}

/// Bytes as text.
mod base64 {
    use data_encoding::BASE64;
    use serde::de::{Deserialize as _, Error as _};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        BASE64.decode(String::deserialize(deserializer)?.as_bytes()).map_err(D::Error::custom)
    }
}

fn file() -> Reach {
    Reach::File
}

/// How long an answer counts: `true` is the project's policy, `false` this session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Persist {
    Flag(bool),
    Keep(Keep),
}

impl Default for Persist {
    fn default() -> Self {
        Persist::Keep(Keep::Once)
    }
}

impl Persist {
    pub fn keep(self) -> Keep {
        match self {
            Persist::Flag(true) => Keep::Project,
            Persist::Flag(false) => Keep::Session,
            Persist::Keep(keep) => keep,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyScope {
    User,
    Project,
    Org,
}

/// From the supervisor to a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Event {
    #[serde(rename = "hello")]
    Hello { version: u32, session: String },
    /// A question, open from now until its `event.audit`.
    #[serde(rename = "event.fs_request")]
    FsRequest(Box<FsRequest>),
    /// How a question ended.
    #[serde(rename = "event.audit")]
    Audit {
        id: QuestionId,
        decision: Decision,
        /// Of a group `file`, which every client knows: `group` has the rest.
        scope: Reach,
        persist: Keep,
        cause: Cause,
        path: String,
        ts: f64,
        /// What was opened up.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        granted: Vec<String>,
        /// What the answer was about, where that is a group.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<Group>,
        /// The question whose answer was about a group that this is one of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<QuestionId>,
    },
    /// The answer to a command that was taken.
    #[serde(rename = "ok")]
    Done {
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
    /// The answer to a command that was not; nothing has changed.
    #[serde(rename = "error")]
    Refused { message: String },
    #[serde(rename = "event.session")]
    Session(Box<SessionStatus>),
    /// To the client whose order it was: the session runs, and its socket is in this directory.
    #[serde(rename = "event.started")]
    Started { session: String, directory: PathBuf },
    /// To the client whose order it was: it did not start, or how it went; the object of `sandbox run --json`.
    #[serde(rename = "event.report")]
    Report { report: serde_json::Value },
    #[serde(rename = "event.exec")]
    Exec { exec: ExecId },
    #[serde(rename = "event.output")]
    Output {
        exec: ExecId,
        stream: OutputStream,
        from: u64,
        #[serde(with = "base64")]
        data: Vec<u8>,
        /// The exec has ended, and nothing came after this so far.
        ended: bool,
    },
    /// What was asked for is not kept any more.
    #[serde(rename = "event.gone")]
    Gone { exec: ExecId, stream: OutputStream, first_kept: u64 },
    #[serde(rename = "event.exec_end")]
    ExecEnd { exec: ExecId, end: ExecEnd },
    /// The session has ended.
    #[serde(rename = "event.end")]
    End {},
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    Allow,
    Deny,
}

/// A question as it stands on the wire. The first fields are those that R1.22 names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FsRequest {
    pub id: QuestionId,
    pub pid: u32,
    pub exe: String,
    pub cwd: String,
    pub op: Op,
    /// Bytes that are no text are replaced; `path_bytes` then has the truth in hexadecimal.
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    pub flags: u32,
    pub is_dir: bool,
    pub size: u64,
    pub asker: Asker,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toolchain: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
    /// No answer gives the whole directory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_alone: bool,
    pub also: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    pub waiting: u32,
    pub ts: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<f64>,
}

impl From<&Question> for FsRequest {
    fn from(question: &Question) -> Self {
        let bytes = question.subject.as_bytes();
        let hex = || {
            bytes.iter().fold(String::new(), |mut hex, byte| {
                hex.extend([byte >> 4, byte & 15].map(|half| char::from_digit(half.into(), 16).unwrap_or_default()));
                hex
            })
        };
        FsRequest {
            id: question.id,
            pid: question.asker.program.pid,
            exe: question.asker.program.exe.clone(),
            cwd: question.asker.cwd.clone(),
            op: question.op,
            path: question.subject.text().into_owned(),
            path_bytes: std::str::from_utf8(bytes).is_err().then(hex),
            flags: question.flags,
            is_dir: question.is_dir,
            size: question.size,
            asker: shortened(&question.asker),
            toolchain: question.toolchain.clone(),
            group: question.group.clone(),
            is_alone: question.is_alone,
            also: question.also.iter().take(MOST_ALSO).map(|path| path.to_string_lossy().into_owned()).collect(),
            hint: question.hint.clone(),
            waiting: question.waiting,
            ts: question.asked,
            until: question.until,
        }
    }
}

/// A program that was started with megabytes of arguments must not make a line that no client takes.
fn shortened(asker: &Asker) -> Asker {
    Asker {
        program: shortened_program(&asker.program),
        cwd: asker.cwd.clone(),
        parents: asker.parents.iter().take(MOST_PARENTS).map(shortened_program).collect(),
    }
}

fn shortened_program(program: &Program) -> Program {
    let word = |word: &String| match word.get(..word.floor_char_boundary(MOST_WORD_BYTES)) {
        Some(kept) if kept.len() < word.len() => format!("{kept}...({} more bytes)", word.len() - kept.len()),
        _ => word.clone(),
    };
    let mut argv: Vec<String> = program.argv.iter().take(MOST_WORDS).map(word).collect();
    if program.argv.len() > MOST_WORDS {
        argv.push(format!("...({} more words)", program.argv.len() - MOST_WORDS));
    }
    Program { pid: program.pid, exe: program.exe.clone(), argv }
}

impl Event {
    /// How a question was settled; `ts` is the time of day, in seconds since 1970.
    pub fn settled(settled: &Settled, ts: f64) -> Self {
        let (decision, scope, persist) = match settled.verdict {
            Verdict::Allow { reach, keep } => (Decision::Allow, reach, keep),
            Verdict::Deny { reach, keep } => (Decision::Deny, reach, keep),
        };
        let is_group = scope == Reach::Group;
        Event::Audit {
            id: settled.question.id,
            decision,
            scope: if is_group { Reach::File } else { scope },
            persist,
            cause: settled.cause,
            path: settled.question.subject.text().into_owned(),
            ts,
            granted: settled.granted.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
            group: settled.question.group.clone().filter(|_| is_group),
            by: settled.question.by,
        }
    }
}

impl Command {
    /// Which question is answered, and how.
    pub fn verdict(&self) -> Option<(QuestionId, Verdict)> {
        match *self {
            Command::Approve { id, scope, persist } => {
                Some((id, Verdict::Allow { reach: scope, keep: persist.keep() }))
            }
            Command::Deny { id, scope, persist } => Some((id, Verdict::Deny { reach: scope, keep: persist.keep() })),
            _ => None,
        }
    }

    /// The command that says so.
    pub fn of(id: QuestionId, verdict: Verdict) -> Self {
        match verdict {
            Verdict::Allow { reach, keep } => Command::Approve { id, scope: reach, persist: Persist::Keep(keep) },
            Verdict::Deny { reach, keep } => Command::Deny { id, scope: reach, persist: Persist::Keep(keep) },
        }
    }
}

/// What a session is and uses.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SessionStatus {
    pub session: String,
    pub pid: u32,
    pub argv: Vec<String>,
    pub cwd: String,
    pub started: f64,
    /// Processes, bytes of memory and CPU seconds, where they are known.
    pub processes: Option<u64>,
    pub memory: Option<u64>,
    pub cpu_seconds: Option<f64>,
    pub open_questions: u32,
    /// How far it is; a supervisor before this was told says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<LifeCycle>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub execs: Vec<ExecStatus>,
}

/// A line from a client, or why it is none: one that is refused decides nothing.
pub fn command(line: &[u8]) -> Result<Command, String> {
    serde_json::from_slice(line).map_err(|error| error.to_string())
}

/// One line, with its newline.
pub fn line<T: Serialize>(message: &T) -> Vec<u8> {
    // These types have no map with other keys than text, so there is nothing to fail on.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_taken_only_as_it_is_defined() {
        let good = br#"{"type":"cmd.approve","id":7,"scope":"dir","persist":false}"#;
        let expected = Command::Approve { id: 7, scope: Reach::Dir, persist: Persist::Flag(false) };
        assert_eq!(command(good), Ok(expected));
        for bad in [
            &br#"{"type":"cmd.approve","id":7,"scope":"dir"}"#[..],
            br#"{"type":"cmd.approve","id":7,"scope":"everything","persist":false}"#,
            br#"{"type":"cmd.approve","id":7,"scope":"dir","persist":1}"#,
            br#"{"type":"cmd.approve","id":7,"scope":"dir","persist":"yes"}"#,
            br#"{"type":"cmd.approve","id":"7","scope":"dir","persist":false}"#,
            br#"{"type":"cmd.approve","id":7,"scope":"dir","persist":false,"force":true}"#,
            br#"{"type":"cmd.yes","id":7}"#,
            br#"{"type":"cmd.approve","id":7,"id":8,"scope":"dir","persist":false}"#,
            br#"{"type":"cmd.approve","id":-7,"scope":"dir","persist":false}"#,
            br#"{"type":"cmd.approve","id":7.0,"scope":"dir","persist":false}"#,
            br#"{"type":"cmd.approve","id":7,"scope":"dir","persist":null}"#,
            br#"{"type":"cmd.deny","type":"cmd.approve","id":7,"scope":"dir","persist":false}"#,
            br#"{"type":"cmd.deny","id":7,"approve":true}"#,
            br#"{"type":"cmd.kill","really":true}"#,
            br#"{"type":"cmd.status","id":1}"#,
            br#"{"type":"cmd.deny","id":7} {"type":"cmd.approve"}"#,
            br"true",
            b"",
        ] {
            assert!(command(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
