//! What was blocked: system calls that the filter reported, with number and arguments, counted.
//! Owns the record; the supervisor's loop feeds it, `cli` renders it.

use std::path::Path;

use cofferdam_kernel::seccomp::Notification;
use cofferdam_plan::seccomp::name_of;
use serde::Serialize;

use crate::session;

/// Calls of one number, with the arguments of the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Blocked {
    pub name: &'static str,
    pub number: u32,
    pub arguments: [u64; 6],
    pub count: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) blocked: Vec<Blocked>,
    pub(crate) total: u32,
    log_failed: bool,
}

impl Record {
    pub(crate) fn add(&mut self, notification: &Notification, session: &str, state: Option<&Path>) {
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
        if let Some(state) = state
            && !self.log_failed
        {
            let line = serde_json::json!({
                "version": 1, "event": "SYSCALL_BLOCKED", "session": session, "time": seconds_now(), "pid": notification.pid,
                "syscall": name, "number": notification.number, "arguments": notification.arguments,
            });
            self.log_failed = session::append(state, "events.ndjson", &format!("{line}\n")).is_err();
        }
    }

    /// The log on disk could not be written; the count in memory is right all the same.
    pub(crate) fn log_failed(&self) -> bool {
        self.log_failed
    }
}

fn seconds_now() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
