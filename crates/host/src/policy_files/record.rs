//! The record in the audit log that what is allowed was changed. Owns its fields; the change is made before. Called by
//! `persist` and `sandbox trust`.

use std::path::Path;

use cofferdam_audit::{Actor, Event, Journal, JournalError, Record, Severity};
use serde_json::json;

use super::approvals::content_hash;

/// What was done to a policy file, with its text afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyChange<'a> {
    Edited { text: &'a str },
    Trusted { text: &'a str },
    TrustRevoked,
}

pub fn record(state: &Path, file: &Path, change: PolicyChange<'_>) -> Result<(), JournalError> {
    let (action, text) = match change {
        PolicyChange::Edited { text } => ("edited", Some(text)),
        PolicyChange::Trusted { text } => ("trusted", Some(text)),
        PolicyChange::TrustRevoked => ("trust-revoked", None),
    };
    let details = json!({ "action": action, "path": file.to_string_lossy(), "sha256": text.map(content_hash) });
    let record =
        Record { actor: Actor::Person, severity: Severity::Warning, ..Record::new(Event::PolicyChanged, "", details) };
    Journal::open(state).and_then(|mut journal| journal.append(&record)).map(|_| ())
}
