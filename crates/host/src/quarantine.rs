//! Programs that may not run any more because a session of theirs was ended for an attempt to escape. Owns the list of them in
//! the state directory (a file for each, named by the hash of its content) and the look into it before a command is started; what
//! of a command counts is `subject`'s, what is an attempt `supervisor`'s. No wall: content that differs by a byte is another
//! program.

pub mod subject;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use cofferdam_audit::{Actor, Event, Journal, JournalError, Record, Severity};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::json;
use thiserror::Error;

use crate::quarantine::subject::Subject;
use crate::state::make_all;

/// Of a file of the list.
const MOST_ENTRY: u64 = 64 << 10;
/// Entries that are looked at.
const MOST_ENTRIES: usize = 4096;

/// A program that may not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    pub version: u32,
    /// SHA-256 of its content.
    pub hash: String,
    pub size: u64,
    /// Where it lay.
    pub path: PathBuf,
    /// The session that was ended, and for what.
    pub session: String,
    pub why: String,
    /// Seconds since 1970.
    pub since: u64,
}

#[derive(Debug, Error)]
pub enum QuarantineError {
    #[error("`{}` is quarantined since session {} was ended for an attempt to escape (sha256 {})", .0.path.display(), .0.session, .0.hash)]
    Refused(Box<Quarantined>),
    #[error("the list of quarantined programs in {} cannot be read", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        errno: Errno,
    },
    #[error("`{}` changes while it is looked at, and something of its size is quarantined", path.display())]
    Changing { path: PathBuf },
    #[error("nothing with the hash `{hash}` is quarantined")]
    Unknown { hash: String },
    #[error("`{hash}` is the beginning of several hashes")]
    Several { hash: String },
    #[error("a release needs a reason")]
    NoReason,
    #[error("the release could not be recorded, so `{hash}` stays quarantined")]
    Unrecorded {
        hash: String,
        #[source]
        source: JournalError,
    },
}

fn directory(state: &Path) -> PathBuf {
    state.join("quarantine")
}

/// Refuses a command that came from what is quarantined. Without a list this is one call that finds none.
pub fn check(state: &Path, subject: Option<&Subject>) -> Result<(), QuarantineError> {
    let listed = list(state)?;
    let Some(subject) = subject.filter(|one| listed.iter().any(|entry| entry.size == one.size || entry.size == 0))
    else {
        return Ok(());
    };
    let changed = || QuarantineError::Changing { path: subject.path.clone() };
    let hash = subject.hash().ok_or_else(changed)?;
    match listed.into_iter().find(|entry| entry.hash == hash) {
        Some(entry) => Err(QuarantineError::Refused(Box::new(Quarantined { path: subject.path.clone(), ..entry }))),
        None => Ok(()),
    }
}

/// All that may not run, in the order of their hashes.
pub fn list(state: &Path) -> Result<Vec<Quarantined>, QuarantineError> {
    let path = directory(state);
    let unreadable = |error: std::io::Error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        QuarantineError::Unreadable { path: path.clone(), errno }
    };
    let entries = match std::fs::read_dir(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(unreadable)?,
    };
    let mut found = Vec::new();
    for entry in entries.take(MOST_ENTRIES) {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // What a killed writer left has another name.
        if name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            found.push(read_entry(&entry.path(), name));
        }
    }
    found.sort_by(|one, other| one.hash.cmp(&other.hash));
    Ok(found)
}

/// The name is what counts: an entry that cannot be read is still one.
fn read_entry(path: &Path, hash: String) -> Quarantined {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MOST_ENTRY).read_to_string(&mut text));
    let parsed = read.ok().and_then(|_| serde_json::from_str::<Quarantined>(&text).ok());
    let unknown = Quarantined {
        version: 1,
        hash: hash.clone(),
        size: 0,
        path: PathBuf::from("?"),
        session: "?".to_owned(),
        why: String::new(),
        since: 0,
    };
    Quarantined { hash, ..parsed.unwrap_or(unknown) }
}

/// Puts what a command came from into quarantine; nothing where its content of then is not known any more.
pub fn add(
    state: &Path,
    subject: &Subject,
    (session, why): (&str, &str),
    now: f64,
) -> Result<Option<Quarantined>, Errno> {
    let Some(hash) = subject.hash() else { return Ok(None) };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole seconds since 1970")]
    let entry = Quarantined {
        version: 1,
        hash,
        size: subject.size,
        path: subject.path.clone(),
        session: session.to_owned(),
        why: why.to_owned(),
        since: now as u64,
    };
    let (directory, text) = (directory(state), json!(entry).to_string());
    make_all(&directory)?;
    let (next, last) = (directory.join(format!(".{session}")), directory.join(&entry.hash));
    let written =
        File::create(&next).and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    let put = written.and_then(|()| std::fs::rename(&next, &last));
    put.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(Some(entry))
}

/// Lets a program run again. It stays where it is unless the release is recorded.
pub fn release(state: &Path, hash: &str, reason: &str) -> Result<Quarantined, QuarantineError> {
    if reason.trim().is_empty() {
        return Err(QuarantineError::NoReason);
    }
    let mut meant = list(state)?.into_iter().filter(|entry| hash.len() >= 6 && entry.hash.starts_with(hash));
    let entry = match (meant.next(), meant.next()) {
        (Some(entry), None) => entry,
        (None, _) => return Err(QuarantineError::Unknown { hash: hash.to_owned() }),
        (Some(_), Some(_)) => return Err(QuarantineError::Several { hash: hash.to_owned() }),
    };
    let details = json!({
        "action": "quarantine-released", "path": entry.path.to_string_lossy(), "sha256": entry.hash, "reason": reason,
    });
    let record =
        Record { actor: Actor::Person, severity: Severity::Warning, ..Record::new(Event::PolicyChanged, "", details) };
    Journal::open(state)
        .and_then(|mut journal| journal.append(&record))
        .map_err(|source| QuarantineError::Unrecorded { hash: entry.hash.clone(), source })?;
    std::fs::remove_file(directory(state).join(&entry.hash)).map_err(|error| QuarantineError::Unreadable {
        path: directory(state),
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    })?;
    Ok(entry)
}
