//! File requests of past sessions, as the audit log has them. Owns what of a record counts; what a policy makes of it is
//! the caller's, and whether the log is whole that of `sandbox audit verify`. Called by `sandbox policy test` and
//! `sandbox why --session`.

use std::path::{Path, PathBuf};

use cofferdam_audit::{Entry, Event};
use cofferdam_gate::Op;

use crate::render::Failure;

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
pub(crate) fn read(state: &Path, session: Option<&str>) -> Result<Vec<Recorded>, Failure> {
    let directory = cofferdam_audit::directory(state).display().to_string();
    let failed = |errno: rustix::io::Errno| Failure::Read { path: directory.clone(), source: errno.into() };
    let mut entries = cofferdam_audit::entries(state).map_err(failed)?;
    let mut found = Vec::new();
    while let Some(entry) = entries.try_next().map_err(failed)? {
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
