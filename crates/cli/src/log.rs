//! The audit log as commands read it: which sessions it has, and their requests for files and hosts. Owns what of a record
//! counts; what a policy makes of it is the caller's, and whether the log is whole that of `sandbox audit verify`. Called by
//! `audit`, `why`, `policy test` and the commands about changes.

use std::path::{Path, PathBuf};

use cofferdam_audit::{Entry, Event, Follow};
use cofferdam_host::policy_files::text::ReadError;
use cofferdam_wire::Op;
use rustix::io::Errno;
use thiserror::Error;

use crate::session_name::{SessionKind, SessionNameError, can_mean, choose};

/// Why the log does not tell what was asked of it.
#[derive(Debug, Error)]
pub(crate) enum LogError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Name(#[from] SessionNameError),
    #[error("no file request of a session `{session}` is recorded")]
    NoRequests { session: String },
}

/// The log, from its beginning.
pub(crate) struct Log {
    entries: Follow,
    directory: PathBuf,
}

impl Log {
    pub(crate) fn open(state: &Path) -> Result<Self, ReadError> {
        let directory = cofferdam_audit::directory(state);
        match cofferdam_audit::entries(state) {
            Ok(entries) => Ok(Log { entries, directory }),
            Err(errno) => Err(ReadError { path: directory, source: errno.into() }),
        }
    }

    /// The next record; none where the log ends for now.
    pub(crate) fn try_next(&mut self) -> Result<Option<Entry>, ReadError> {
        let failed = |errno: Errno| ReadError { path: self.directory.clone(), source: errno.into() };
        self.entries.try_next().map_err(failed)
    }
}

/// The session that was created last is `last`, whichever wrote last.
pub(crate) fn session_in_log(state: &Path, name: &str) -> Result<String, LogError> {
    let mut names: Vec<String> = Vec::new();
    let mut log = Log::open(state)?;
    while let Some(entry) = log.try_next()? {
        let is_meant = match name {
            "last" => entry.event == Event::SandboxCreated.name(),
            _ => !entry.session.is_empty() && can_mean(name, &entry.session),
        };
        if is_meant && !names.contains(&entry.session) {
            names.push(entry.session);
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Ok(choose(&names, name, SessionKind::Recorded)?.to_owned())
}

/// What a session tried that it was ended for, where it was.
pub(crate) fn attempt(state: &Path, session: &str) -> Result<Option<String>, ReadError> {
    let mut log = Log::open(state)?;
    let mut tried = None;
    while let Some(entry) = log.try_next()? {
        if entry.session != session || entry.event != Event::EscapeAttempt.name() {
            continue;
        }
        let text = |name: &str| entry.details.get(name).and_then(|value| value.as_str()).unwrap_or_default();
        if text("consequence") == "ended" {
            tried = Some(text("description").to_owned());
        }
    }
    Ok(tried)
}

/// One decision about one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) session: String,
    pub(crate) op: Op,
    pub(crate) path: PathBuf,
    pub(crate) allowed: bool,
    /// Who or what decided, as the record names it.
    pub(crate) cause: Option<String>,
}

/// Every recorded decision below a state directory, oldest first; of one session, where it is named.
pub(crate) fn requests(state: &Path, session: Option<&str>) -> Result<Vec<Recorded>, LogError> {
    let mut log = Log::open(state)?;
    let mut found = Vec::new();
    while let Some(entry) = log.try_next()? {
        if session.is_none_or(|session| entry.session == session) {
            found.extend(decision(&entry));
        }
    }
    Ok(found)
}

/// What the record says, if it is about a file.
fn decision(entry: &Entry) -> Option<Recorded> {
    if entry.event != Event::FileDecided.name() {
        return None;
    }
    let text = |name: &str| entry.details.get(name).and_then(|value| value.as_str()).map(str::to_owned);
    Some(Recorded {
        session: entry.session.clone(),
        op: serde_json::from_value(entry.details.get("op")?.clone()).ok()?,
        path: PathBuf::from(text("path")?),
        allowed: entry.decision.as_deref()? == "allow",
        cause: entry.origin.clone().or_else(|| text("cause")),
    })
}

/// What a session did about one host and port, or about a name that it looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordedHost {
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    /// allowed, denied, failed
    pub(crate) outcome: String,
    pub(crate) rule: Option<String>,
    pub(crate) origin: Option<String>,
    pub(crate) count: u64,
    pub(crate) up: u64,
    pub(crate) down: u64,
}

/// What was decided about hosts in a session, equal things put together, in the order of their first record.
pub(crate) fn hosts(state: &Path, session: &str) -> Result<Vec<RecordedHost>, LogError> {
    let mut log = Log::open(state)?;
    let mut found: Vec<RecordedHost> = Vec::new();
    let mut is_known = false;
    while let Some(entry) = log.try_next()? {
        if entry.session != session {
            continue;
        }
        is_known = true;
        let Some(one) = about_host(&entry) else { continue };
        let same = |known: &&mut RecordedHost| {
            (&known.host, known.port, &known.outcome, &known.rule) == (&one.host, one.port, &one.outcome, &one.rule)
        };
        match found.iter_mut().find(same) {
            Some(known) => {
                known.count += one.count;
                known.up += one.up;
                known.down += one.down;
            }
            None => found.push(one),
        }
    }
    if is_known { Ok(found) } else { Err(LogError::NoRequests { session: session.to_owned() }) }
}

fn about_host(entry: &Entry) -> Option<RecordedHost> {
    if entry.event != Event::ConnectionAttempt.name() {
        return None;
    }
    let text = |name: &str| entry.details.get(name).and_then(|value| value.as_str()).map(str::to_owned);
    let number = |name: &str| entry.details.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let is_query = entry.details.get("query").is_some();
    Some(RecordedHost {
        host: text(if is_query { "query" } else { "host" })?,
        port: u16::try_from(number("port")).ok().filter(|_| !is_query),
        outcome: text("outcome")?,
        rule: text("rule"),
        origin: entry.origin.clone(),
        count: if is_query { number("count") } else { number("connections") },
        up: number("up"),
        down: number("down"),
    })
}
