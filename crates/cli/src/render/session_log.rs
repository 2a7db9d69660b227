//! One session's records as a person reads them: a line for each in local time, and what came of them at the end. Owns the words and what is
//! left out (hashes, walls as they stand); which records there are is the audit crate's. Called by `sandbox logs`.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_audit::{Entry, Event, Severity, parse_stamp};
use cofferdam_gate::shown;
use cofferdam_kernel::timing::{Local, local};
use cofferdam_wire::session::short;
use serde_json::Value;

use crate::render::output::{bytes, escaped};

/// Told one by one in the summary up to here.
const MOST_TOLD: usize = 5;

/// What the records of one session told so far.
#[derive(Debug, Default)]
pub(crate) struct SessionLog {
    home: PathBuf,
    day: String,
    asked: usize,
    denied: Vec<String>,
    allowed: Vec<String>,
    reached: Vec<String>,
    refused: Vec<String>,
    calls: Vec<String>,
    end: Option<String>,
}

impl SessionLog {
    pub(crate) fn new(home: &Path) -> Self {
        SessionLog { home: home.to_path_buf(), ..SessionLog::default() }
    }

    /// The line about a record; none for one that only says that the walls stand, or that all was removed.
    pub(crate) fn line(&mut self, entry: &Entry) -> Option<String> {
        let text = self.text(entry)?;
        let mark = match entry.severity {
            Severity::Info | Severity::Warning => "",
            Severity::Error => "ERROR ",
            Severity::Critical => "CRITICAL ",
        };
        let moment = parse_stamp(&entry.time).and_then(|stamp| local(stamp.0 / 1_000_000));
        let Some(Local { day, time }) = moment else { return Some(format!("{} {mark}{}", entry.time, escaped(&text))) };
        let mut line = String::new();
        if day != self.day {
            writeln!(line, "{day}").unwrap_or_default();
            self.day = day;
        }
        write!(line, "{time} {mark}{}", escaped(&text)).unwrap_or_default();
        Some(line)
    }

    fn text(&mut self, entry: &Entry) -> Option<String> {
        let details = &entry.details;
        let word = |name: &str| details[name].as_str().unwrap_or_default();
        let Some(event) = Event::from_name(&entry.event) else { return Some(rest(entry)) };
        Some(match event {
            Event::SandboxEntered => return None,
            Event::SandboxDestroyed if !details["why"].is_null() => {
                format!("removed by a later session: {}", word("why"))
            }
            Event::SandboxDestroyed if details["leftBehind"].is_null() => return None,
            Event::SandboxCreated => {
                let place = self.short_path(word("cwd"));
                let network = if word("network") == "own" { "none" } else { word("network") };
                let how = format!("{}, isolation {}, network {network}", word("mode"), word("isolation"));
                format!("session {} in {place} ({how})", short(&entry.session))
            }
            Event::LaunchRefused => format!("not started: {}", word("why")),
            Event::CommandStarted => {
                let how = if details["attached"] == true { "attached" } else { "started" };
                format!("{how} {}", details["command"]["text"].as_str().unwrap_or_default())
            }
            Event::FileRequested => self.asked(details),
            Event::FileDecided => self.decided(entry),
            Event::FileAccessViolation if details["op"] == "cover-fell" => {
                format!("lost its cover: {}", self.short_path(word("path")))
            }
            Event::FileAccessViolation => {
                let object = self.object(details);
                note(&mut self.denied, &object);
                format!("denied {object}{}, {}{}", asker(details), word("description"), rule(entry))
            }
            Event::ConnectionAttempt => self.connection(entry),
            Event::SyscallBlocked | Event::EscapeAttempt if !word("syscall").is_empty() => {
                note(&mut self.calls, word("syscall"));
                let count = details["count"].as_u64().map_or_else(String::new, |count| format!(" {count} times"));
                format!("denied system call {}{count}: {}{}", word("syscall"), word("description"), rule(entry))
            }
            Event::EscapeAttempt => format!("attempt to escape: {}", word("description")),
            Event::PolicyViolation if !word("warning").is_empty() => format!("warning: {}", word("warning")),
            Event::ResourceLimitApproached | Event::ResourceLimitExceeded => {
                let verb = if event == Event::ResourceLimitExceeded { "exceeded" } else { "came near" };
                let used = details["used"].as_u64().map_or_else(String::new, |used| format!("{used} of "));
                format!("{verb} the limit of {}: {used}{}", word("limit"), details["allowed"])
            }
            Event::PolicyChanged if !word("change").is_empty() => {
                format!("kept an answer: {}", word("change").lines().next().unwrap_or_default())
            }
            Event::WorkspaceCheckpoint => format!("checkpoint {} {}", details["checkpoint"], word("label")),
            Event::WorkspaceRestored => format!("put back to checkpoint {}", details["checkpoint"]),
            Event::SandboxExited => {
                let end = ended(details);
                self.end = Some(format!("{end}{}", usage(&details["usage"])));
                format!("ended: {end}")
            }
            _ => rest(entry),
        })
    }

    fn asked(&mut self, details: &Value) -> String {
        self.asked += 1;
        format!("asked {}{}", self.object(details), asker(details))
    }

    fn decided(&mut self, entry: &Entry) -> String {
        let details = &entry.details;
        let object = self.object(details);
        let is_allowed = entry.decision.as_deref() == Some("allow");
        note(if is_allowed { &mut self.allowed } else { &mut self.denied }, &object);
        let why = match details["cause"].as_str().unwrap_or_default() {
            "person" => "answered by the operator".to_owned(),
            "hook" => "answered by the hook".to_owned(),
            "grant" => "an earlier answer of this session".to_owned(),
            "timeout" => "no answer came in time".to_owned(),
            "budget" => "too many questions in a minute".to_owned(),
            "on-unknown" => "not approved, and this session asks nothing".to_owned(),
            "gone" => "the program that asked had ended".to_owned(),
            "failed" => "it was not there any more, or could not be given".to_owned(),
            _ => String::new(),
        };
        let keep = match details["persist"].as_str().unwrap_or_default() {
            "session" => " for the session",
            "project" => " for the project",
            "user" => " for the user",
            "org" => " for the organisation",
            _ => "",
        };
        let after = entry.latency.filter(|latency| *latency >= 100_000);
        let after = after.map_or_else(String::new, |latency| format!(" after {}", seconds(latency)));
        let verb = if is_allowed { "allowed" } else { "denied" };
        let why = if why.is_empty() { why } else { format!(", {why}{keep}{after}") };
        format!("{verb} {object}{}{why}{}", asker(details), rule(entry))
    }

    fn connection(&mut self, entry: &Entry) -> String {
        let details = &entry.details;
        let word = |name: &str| details[name].as_str().unwrap_or_default();
        let outcome = word("outcome");
        if outcome.is_empty() && !details["question"].is_null() {
            return if entry.decision.is_some() { self.decided(entry) } else { self.asked(details) };
        }
        let verb = if outcome == "allowed" && !word("host").is_empty() { "reached" } else { outcome };
        if let Some(count) = details["unrouted"].as_u64() {
            note(&mut self.refused, "connections: there is no network inside");
            return format!("denied {count} connections: {}", word("description"));
        }
        if !word("query").is_empty() {
            return format!("{verb} look-up of {} ({})", word("query"), word("kind"));
        }
        if !word("key").is_empty() {
            return format!("{verb} a signature with the key {}", word("key"));
        }
        let place = format!("{}:{}", word("host"), details["port"]);
        note(if outcome == "allowed" { &mut self.reached } else { &mut self.refused }, &place);
        let carried = match (details["up"].as_u64().unwrap_or(0), details["down"].as_u64().unwrap_or(0)) {
            (0, 0) => String::new(),
            (up, down) => format!(" ({} up, {} down)", bytes(up), bytes(down)),
        };
        let why = if outcome == "allowed" { String::new() } else { format!(", {}", word("rule")) };
        format!("{verb} {place}{carried}{why}{}", rule(entry))
    }

    /// What was done to what.
    fn object(&self, details: &Value) -> String {
        let word = |name: &str| details[name].as_str();
        let of = |object: Option<&str>| object.map(str::to_owned);
        let object =
            word("path").map(|path| self.short_path(path)).or_else(|| of(word("host"))).or_else(|| of(word("key")));
        format!("{} {}", word("op").unwrap_or("use"), object.unwrap_or_default())
    }

    fn short_path(&self, path: &str) -> String {
        match Path::new(path).strip_prefix(&self.home) {
            Ok(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
            Ok(rest) => format!("~/{}", shown(rest.as_os_str().as_bytes())),
            Err(_) => shown(path.as_bytes()),
        }
    }

    /// What came of it all.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::from("\n");
        let mut row = |label: &str, what: &str| writeln!(text, "{label:<9} {}", escaped(what)).unwrap_or_default();
        row("denied", &list(&self.denied, "nothing"));
        row("asked", &format!("{} {}", self.asked, if self.asked == 1 { "question" } else { "questions" }));
        row("allowed", &list(&self.allowed, "nothing beyond the policy"));
        row("reached", &list(&self.reached, "no host"));
        if !self.refused.is_empty() {
            row("refused", &list(&self.refused, ""));
        }
        if !self.calls.is_empty() {
            row("calls", &list(&self.calls, ""));
        }
        row("ended", self.end.as_deref().unwrap_or("not yet: it runs, or its supervisor was killed"));
        text
    }
}

fn note(list: &mut Vec<String>, what: &str) {
    if !list.iter().any(|known| known == what) {
        list.push(what.to_owned());
    }
}

fn list(all: &[String], none: &str) -> String {
    let more = all.len().saturating_sub(MOST_TOLD);
    let first = all.iter().take(MOST_TOLD).cloned().collect::<Vec<_>>().join(", ");
    match (all.len(), more) {
        (0, _) => none.to_owned(),
        (_, 0) => first,
        _ => format!("{first} and {more} more"),
    }
}

/// `(cc1 < make)`: the program and those that started it.
fn asker(details: &Value) -> String {
    let name = |value: &Value| value.as_str().and_then(|path| path.rsplit('/').next()).map(str::to_owned);
    let parents = details["parents"].as_array().into_iter().flatten();
    let names: Vec<String> = std::iter::once(&details["program"]).chain(parents).filter_map(name).collect();
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(" < ")) }
}

fn rule(entry: &Entry) -> String {
    entry.origin.as_ref().map_or_else(String::new, |origin| format!(", rule {origin}"))
}

fn ended(details: &Value) -> String {
    let ran = details["durationMillis"].as_u64().unwrap_or(0);
    let how = match &details["end"] {
        Value::String(word) => word.replace('-', " "),
        Value::Object(map) if map.contains_key("exited") => format!("exit code {}", details["exitCode"]),
        Value::Object(map) => map.keys().next().map_or_else(String::new, |key| {
            let signal = details["end"][key]["signal"].as_u64();
            signal
                .map_or_else(|| key.replace('-', " "), |signal| format!("{} by signal {signal}", key.replace('-', " ")))
        }),
        _ => format!("exit code {}", details["exitCode"]),
    };
    let why = details["why"].as_str().map_or_else(String::new, |why| format!(", {why}"));
    format!("{how}{why} after {}", seconds(ran * 1000))
}

fn usage(usage: &Value) -> String {
    let number = |name: &str| usage[name].as_u64();
    let cpu = number("cpu_user_micros").zip(number("cpu_system_micros")).map(|(user, system)| user + system);
    let told = [
        cpu.map(|micros| format!("{} of CPU time", seconds(micros))),
        number("memory_peak").map(|peak| format!("{} of memory at most", bytes(peak))),
        number("processes_peak").map(|peak| format!("{peak} processes at most")),
        number("written_bytes").map(|written| format!("{} written", bytes(written))),
    ];
    told.into_iter().flatten().fold(String::new(), |text, part| format!("{text}; {part}"))
}

#[expect(clippy::cast_precision_loss, reason = "a time that a person reads")]
fn seconds(micros: u64) -> String {
    format!("{:.1} s", micros as f64 / 1e6)
}

/// A record that has no words of its own: its name, and what is in it but hashes.
fn rest(entry: &Entry) -> String {
    let mut text = entry.event.to_lowercase().replace('_', " ");
    for (name, value) in entry.details.as_object().into_iter().flatten() {
        if !value.is_null() && name != "sha256" && name != "posture" {
            write!(text, " {name}={value}").unwrap_or_default();
        }
    }
    text
}
