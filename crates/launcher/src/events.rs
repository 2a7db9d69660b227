//! What happened to a session, for the log on disk and for the end: system calls that the filter reported, limits that
//! came near or were exceeded. Owns the records; the supervisor's loop feeds them, `cli` renders them.

use std::path::Path;

use cofferdam_gate::News;
use cofferdam_kernel::seccomp::Notification;
use cofferdam_plan::seccomp::name_of;
use serde::Serialize;
use serde_json::{Value, json};

use crate::session;
use crate::watch::{Finding, FindingKind};

/// Appends to the log, until that fails once.
#[derive(Debug)]
pub(crate) struct Log<'a> {
    session: String,
    state: Option<&'a Path>,
    pub(crate) failed: bool,
}

impl<'a> Log<'a> {
    pub(crate) fn new(session: String, state: Option<&'a Path>) -> Self {
        Log { session, state, failed: false }
    }

    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    fn add(&mut self, event: &str, details: Value) {
        let Some(state) = self.state.filter(|_| !self.failed) else { return };
        let mut line = json!({ "version": 1, "event": event, "session": self.session, "time": seconds_now() });
        if let (Some(line), Value::Object(details)) = (line.as_object_mut(), details) {
            line.extend(details);
        }
        self.failed = session::append(state, "events.ndjson", &format!("{line}\n")).is_err();
    }

    pub(crate) fn limit(&mut self, finding: Finding) {
        let event = match finding.kind {
            FindingKind::Near => "RESOURCE_LIMIT_APPROACHED",
            FindingKind::Over => "RESOURCE_LIMIT_EXCEEDED",
        };
        self.add(event, json!({ "limit": finding.what, "used": finding.used, "allowed": finding.limit }));
    }

    /// A limit that is not one of the plan's bounds.
    pub(crate) fn named_limit(&mut self, event: &str, name: &str, allowed: u64) {
        self.add(event, json!({ "limit": name, "allowed": allowed }));
    }
}

/// Calls of one number, with the arguments of the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Blocked {
    pub name: &'static str,
    pub number: u32,
    pub arguments: [u64; 6],
    pub count: u32,
}

/// A path that was not given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Denied {
    pub op: String,
    pub path: String,
    /// Why: a rule, a person, time, the budget, or that nobody was asked.
    pub why: String,
}

#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) denied: Vec<Denied>,
    pub(crate) blocked: Vec<Blocked>,
    pub(crate) total: u32,
}

impl Record {
    pub(crate) fn news(&mut self, news: &News) {
        let denied = match news {
            News::Settled(settled) if !settled.verdict.is_allow() => {
                let question = &settled.question;
                (word(&question.op), &question.path, word(&settled.cause))
            }
            News::Refused { what, path, .. } => ((*what).to_owned(), path, "cannot be asked".to_owned()),
            News::Hidden { path, rule, .. } => ("find".to_owned(), path, rule.origin.to_string()),
            News::Settled(_) | News::Asked(_) | News::OverBudget => return,
        };
        let (op, path, why) = denied;
        self.denied.push(Denied { op, path: path.to_string_lossy().into_owned(), why });
    }

    pub(crate) fn add(&mut self, notification: &Notification, log: &mut Log<'_>) {
        self.total += 1;
        let name = name_of(notification.number).unwrap_or("unknown");
        match self.blocked.iter_mut().find(|b| b.number == notification.number) {
            Some(blocked) => blocked.count += 1,
            None => self.blocked.push(Blocked {
                name,
                number: notification.number,
                arguments: notification.arguments,
                count: 1,
            }),
        }
        let details = json!({
            "pid": notification.pid, "syscall": name, "number": notification.number, "arguments": notification.arguments,
        });
        log.add("SYSCALL_BLOCKED", details);
    }
}

/// The word that stands for a value on the wire.
fn word<T: Serialize>(value: &T) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

pub(crate) fn seconds_now() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
