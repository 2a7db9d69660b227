//! File requests of past sessions, as the audit log has them. Owns where they are read from and what of a record counts;
//! what a policy makes of them is the caller's. Called by `sandbox policy test` and `sandbox why --session`.

use std::path::{Path, PathBuf};

use cofferdam_gate::Op;
use serde::Deserialize;
use serde_json::Value;

use crate::render::Failure;

/// One decision about one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) session: String,
    pub(crate) op: Op,
    pub(crate) path: PathBuf,
    pub(crate) allowed: bool,
    /// The rule or person that decided, as the record names it.
    pub(crate) origin: Option<String>,
}

const EVENT: &str = "FILE_DECIDED";
/// More than this of one file is not looked at: a log is rotated long before.
const MOST_BYTES: u64 = 1 << 30;

/// A record of the log. Paths stand in its details, or beside the rest.
#[derive(Deserialize)]
struct Line {
    event: String,
    #[serde(alias = "sandboxId")]
    session: String,
    #[serde(default)]
    decision: Option<String>,
    #[serde(default)]
    origin: Option<String>,
    #[serde(default)]
    details: Value,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    op: Option<Op>,
}

/// Every recorded decision below a state directory, oldest first; of one session, where it is named.
pub(crate) fn read(state: &Path, session: Option<&str>) -> Result<Vec<Recorded>, Failure> {
    let mut found = Vec::new();
    for file in files(state) {
        let text = cofferdam_kernel::file::read_text(&file, MOST_BYTES)
            .map_err(|source| Failure::Read { path: file.display().to_string(), source })?;
        found.extend(text.lines().filter_map(parse));
    }
    found.retain(|one| session.is_none_or(|session| one.session == session));
    Ok(found)
}

/// The files of the log in the order in which they were written.
fn files(state: &Path) -> Vec<PathBuf> {
    let in_chain = std::fs::read_dir(chain(state)).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = in_chain.map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "ndjson"));
    files.sort();
    files.extend(Some(state.join("events.ndjson")).filter(|path| path.is_file()));
    files
}

fn chain(state: &Path) -> PathBuf {
    state.join("audit")
}

/// What is no such record is passed over.
fn parse(line: &str) -> Option<Recorded> {
    // Most lines are about something else.
    let line: Line = line.contains(EVENT).then(|| serde_json::from_str(line).ok())??;
    let detail = |name: &str| line.details.get(name).cloned();
    let text = |name: &str| detail(name).and_then(|value| value.as_str().map(str::to_owned));
    let op = line.op.or_else(|| detail("op").and_then(|op| serde_json::from_value(op).ok()))?;
    let decision = line.decision.clone().or_else(|| text("decision"))?;
    (line.event == EVENT).then_some(Recorded {
        op,
        path: PathBuf::from(line.path.clone().or_else(|| text("path"))?),
        allowed: decision == "allow",
        origin: line.origin.clone().or_else(|| text("origin")).or_else(|| text("cause")),
        session: line.session,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_both_shapes_are_read_and_the_rest_is_passed_over() {
        let chained =
            r#"{"event":"FILE_DECIDED","sandboxId":"s1","decision":"allow","details":{"path":"/a","op":"read"}}"#;
        let flat = r#"{"event":"FILE_DECIDED","session":"s1","decision":"deny","path":"/b","op":"write"}"#;
        let one = parse(chained).expect("a record");
        assert_eq!((one.path.as_path(), one.op, one.allowed), (Path::new("/a"), Op::Read, true));
        let other = parse(flat).expect("a record");
        assert_eq!((other.session.as_str(), other.op, other.allowed), ("s1", Op::Write, false));
        for junk in
            ["", "{", r#"{"event":"SYSCALL_BLOCKED","session":"s"}"#, r#"{"event":"FILE_DECIDED","session":"s"}"#]
        {
            assert_eq!(parse(junk), None, "{junk}");
        }
    }
}
