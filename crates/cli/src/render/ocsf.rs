//! A record as an event of the Open Cybersecurity Schema Framework 1.3 (<https://schema.ocsf.io>). Owns the mapping; the chain
//! stays the record, this is a copy for other people's tools, with what has no place in the schema under `unmapped`.
//! Called by `audit`.

use cofferdam_audit::{Entry, Event, Severity, parse_stamp};
use serde_json::{Value, json};

const SCHEMA: &str = "1.3.0";

/// Class and activity, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Class {
    uid: u32,
    name: &'static str,
    activity: u32,
    activity_name: &'static str,
}

const fn class(uid: u32, name: &'static str, activity: u32, activity_name: &'static str) -> Class {
    Class { uid, name, activity, activity_name }
}

const FILE: u32 = 1001;
const KERNEL: u32 = 1003;
const PROCESS: u32 = 1007;
const EVENT_LOG: u32 = 1008;
const FINDING: u32 = 2004;
const ENTITY: u32 = 3004;
const NETWORK: u32 = 4001;
const LIFECYCLE: u32 = 6002;

pub(crate) fn event(entry: &Entry) -> Value {
    let class = class_of(entry);
    let (severity_id, severity) = match entry.severity {
        Severity::Info => (1, "Informational"),
        Severity::Warning => (3, "Medium"),
        Severity::Error => (4, "High"),
        Severity::Critical => (5, "Critical"),
    };
    let mut event = json!({
        "activity_id": class.activity,
        "activity_name": class.activity_name,
        "category_uid": class.uid / 1000,
        "class_uid": class.uid,
        "class_name": class.name,
        "type_uid": class.uid * 100 + class.activity,
        "severity_id": severity_id,
        "severity": severity,
        "time": parse_stamp(&entry.time).map_or(0, |stamp| stamp.0 / 1000),
        "metadata": {
            "version": SCHEMA,
            "product": { "name": "cofferdam", "vendor_name": "Cofferdam", "version": env!("CARGO_PKG_VERSION") },
            "uid": entry.event_id,
            "event_code": entry.event,
            "sequence": entry.sequence,
            "correlation_uid": entry.session,
            "original_time": entry.time,
            "profiles": if entry.decision.is_some() { json!(["host", "security_control"]) } else { json!(["host"]) },
        },
        "device": { "type_id": 0, "hostname": hostname() },
        "actor": actor(entry),
        "unmapped": { "actor": entry.actor, "details": entry.details },
    });
    let mut put = |name: &str, value: Value| {
        if let Some(event) = event.as_object_mut() {
            event.insert(name.to_owned(), value);
        }
    };
    for (name, value) in decided(entry).into_iter().chain(object(entry, class.uid)) {
        put(name, value);
    }
    if let Some(latency) = entry.latency {
        put("duration", json!(latency / 1000));
    }
    event
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn class_of(entry: &Entry) -> Class {
    use Event as E;
    match Event::from_name(&entry.event) {
        Some(E::SandboxCreated) => class(LIFECYCLE, "Application Lifecycle", 3, "Start"),
        Some(E::SandboxDestroyed) => class(LIFECYCLE, "Application Lifecycle", 4, "Stop"),
        Some(E::SandboxEntered) => class(LIFECYCLE, "Application Lifecycle", 99, "Other"),
        Some(E::CommandStarted | E::ProcessCreated | E::LaunchRefused) => {
            class(PROCESS, "Process Activity", 1, "Launch")
        }
        Some(E::SandboxExited) => class(PROCESS, "Process Activity", 2, "Terminate"),
        Some(E::FileRequested | E::FileDecided | E::FileAccessViolation) => file_class(entry),
        Some(E::SyscallBlocked) => class(KERNEL, "Kernel Activity", 4, "Invoke"),
        Some(E::ConnectionAttempt) => class(NETWORK, "Network Activity", 1, "Open"),
        Some(E::PolicyChanged | E::WorkspaceCheckpoint | E::WorkspaceRestored) => {
            class(ENTITY, "Entity Management", 3, "Update")
        }
        Some(E::PolicyViolation | E::EscapeAttempt | E::ResourceLimitApproached | E::ResourceLimitExceeded) => {
            class(FINDING, "Detection Finding", 1, "Create")
        }
        Some(E::ChainPruned) => class(EVENT_LOG, "Event Log Activity", 2, "Delete"),
        Some(E::ChainRotated) => class(EVENT_LOG, "Event Log Activity", 5, "Rotate"),
        Some(E::ChainCheckpoint | E::ChainContinued | E::ChainTorn | E::ChainLost) => {
            class(EVENT_LOG, "Event Log Activity", 99, "Other")
        }
        None => class(0, "Base Event", 99, "Other"),
    }
}

fn file_class(entry: &Entry) -> Class {
    let (activity, name) = match entry.details["op"].as_str() {
        Some("create") => (1, "Create"),
        Some("read" | "list") => (2, "Read"),
        Some("write") => (3, "Update"),
        Some("exec") => (14, "Open"),
        _ => (99, "Other"),
    };
    class(FILE, "File System Activity", activity, name)
}

/// Who did it: a process inside where one is known, else the sandbox itself.
fn actor(entry: &Entry) -> Value {
    let details = &entry.details;
    match details["pid"].as_u64() {
        Some(pid) => json!({ "process": { "pid": pid, "name": details["program"].as_str().unwrap_or("unknown") } }),
        None => json!({ "app_name": "sandbox" }),
    }
}

/// What the profile `security_control` asks for.
fn decided(entry: &Entry) -> Vec<(&'static str, Value)> {
    let Some(decision) = entry.decision.as_deref() else { return Vec::new() };
    let (id, action, disposition) =
        if decision == "allow" { (1, "Allowed", "Allowed") } else { (2, "Denied", "Blocked") };
    let mut fields = vec![
        ("action_id", json!(id)),
        ("action", json!(action)),
        ("disposition_id", json!(id)),
        ("disposition", json!(disposition)),
        ("status_id", json!(id)),
    ];
    fields.extend(entry.origin.as_ref().map(|origin| ("policy", json!({ "name": origin }))));
    fields
}

/// The object that a class requires.
fn object(entry: &Entry, class: u32) -> Vec<(&'static str, Value)> {
    let details = &entry.details;
    match class {
        FILE => {
            let path = details["path"].as_str().unwrap_or_default();
            let name = path.rsplit('/').find(|name| !name.is_empty()).unwrap_or("/");
            let type_id = if details["isDirectory"] == true { 2 } else { 1 };
            vec![("file", json!({ "name": name, "path": path, "type_id": type_id }))]
        }
        KERNEL => {
            let name = details["syscall"].as_str().unwrap_or("unknown");
            vec![("kernel", json!({ "name": name, "type_id": 2, "type": "System Call", "system_call": name }))]
        }
        PROCESS => {
            let command = details["command"]["text"].as_str();
            let name = command.and_then(|text| text.split(' ').next()).unwrap_or("command");
            let mut fields = vec![("process", json!({ "name": name, "cmd_line": command, "uid": entry.session }))];
            fields.extend(details["exitCode"].as_i64().map(|code| ("exit_code", json!(code))));
            fields.extend(details["durationMillis"].as_u64().map(|millis| ("duration", json!(millis))));
            fields
        }
        NETWORK => vec![("dst_endpoint", json!({ "hostname": details["host"], "port": details["port"] }))],
        ENTITY => vec![("entity", json!({ "name": details["path"], "type": "policy" }))],
        FINDING => {
            let info = json!({ "title": entry.event, "uid": entry.event_id, "types": [entry.event] });
            vec![("finding_info", info), ("is_alert", json!(entry.severity >= Severity::Error))]
        }
        EVENT_LOG => vec![("log_name", json!("cofferdam audit"))],
        LIFECYCLE => vec![(
            "app",
            json!({ "name": "cofferdam sandbox", "vendor_name": "Cofferdam", "uid": entry.session, "version": env!("CARGO_PKG_VERSION") }),
        )],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(event: &str, decision: Option<&str>, details: &Value) -> Entry {
        serde_json::from_value(json!({
            "sequence": 5, "eventId": "id", "sandboxId": "s", "time": "1970-01-01T00:00:01.500000Z", "event": event,
            "actor": "workload", "severity": "WARNING", "decision": decision, "details": details,
        }))
        .expect("a record")
    }

    #[test]
    fn every_event_has_a_class_with_what_the_class_requires() {
        for event in Event::ALL {
            let made = super::event(&entry(event.name(), None, &json!({})));
            let uid = made["class_uid"].as_u64().expect("a number");
            assert_eq!(made["type_uid"].as_u64(), Some(uid * 100 + made["activity_id"].as_u64().expect("a number")));
            assert_eq!((made["category_uid"].as_u64(), made["time"].as_u64()), (Some(uid / 1000), Some(1500)));
            for name in ["metadata", "severity_id", "device", "actor"] {
                assert!(!made[name].is_null(), "{event:?} has no {name}");
            }
            let required = match uid {
                1001 => "file",
                1003 => "kernel",
                1007 => "process",
                1008 => "log_name",
                2004 => "finding_info",
                3004 => "entity",
                4001 => "dst_endpoint",
                6002 => "app",
                other => panic!("{event:?} has the class {other}"),
            };
            assert!(!made[required].is_null(), "{event:?} has no {required}");
        }
    }

    #[test]
    fn a_denied_read_is_file_activity_that_was_blocked() {
        let details = json!({ "op": "read", "path": "/home/a/.ssh/id", "pid": 9, "program": "/bin/cat" });
        let made = super::event(&entry("FILE_DECIDED", Some("deny"), &details));
        assert_eq!((made["type_uid"].as_u64(), made["disposition"].as_str()), (Some(100_102), Some("Blocked")));
        assert_eq!((&made["file"]["name"], &made["actor"]["process"]["pid"]), (&json!("id"), &json!(9)));
    }
}
