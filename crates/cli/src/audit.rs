//! `sandbox logs` and `sandbox audit`: records as people read them, as they were written, or as OCSF; and whether the log
//! is whole. Owns choosing and rendering; reading and verification are the audit crate's. Everything that is printed of a
//! record may come from inside a sandbox, so it is escaped.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use cofferdam_audit::{
    Actor, Entry, Event, Follow, Journal, Place, Problem, Record, Report, Severity, Stamp, Trouble, entries,
    parse_stamp, to_hex, verify,
};
use cofferdam_policy::parse_time;
use rustix::io::Errno;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::args::{AuditArgs, AuditTask, LogsArgs};
use crate::ocsf;
use crate::output::{escaped, json_text, print, say};
use crate::render::{Failure, NOT_SO};
use crate::sessions::{choose, own_state};

/// How often a log that is followed is looked at.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    Json,
    Ocsf,
}

/// Which records are wanted.
#[derive(Debug, Default)]
struct Wanted {
    session: Option<String>,
    events: Vec<Event>,
    /// The text of a moment: those of records sort as they do.
    since: Option<String>,
}

impl Wanted {
    fn takes(&self, entry: &Entry) -> bool {
        self.session.as_ref().is_none_or(|session| *session == entry.session)
            && (self.events.is_empty() || self.events.iter().any(|event| event.name() == entry.event))
            && self.since.as_ref().is_none_or(|since| entry.time >= *since)
    }
}

/// Records that somebody changed what is allowed. The change is made: a log that cannot be written is told, no more.
pub(crate) fn policy_changed(state: &Path, file: &Path, action: &str, text: Option<&str>) {
    let sha256 = text.map(|text| to_hex(&Sha256::digest(text)));
    let details = json!({ "action": action, "path": file.to_string_lossy(), "sha256": sha256 });
    let record =
        Record { actor: Actor::Person, severity: Severity::Warning, ..Record::new(Event::PolicyChanged, "", details) };
    let written = Journal::open(state).and_then(|mut journal| journal.append(&record));
    if let Err(error) = written {
        say!("sandbox: {}: {}", escaped(&error.to_string()), error.errno);
    }
}

pub(crate) fn logs(args: &LogsArgs) -> Result<ExitCode, Failure> {
    let state = own_state()?;
    let session = Some(session_in_log(&state, &args.session)?);
    show(&state, &Wanted { session, ..Wanted::default() }, Format::Text, false)
}

pub(crate) fn audit(args: &AuditArgs) -> Result<ExitCode, Failure> {
    let state = own_state()?;
    if let Some(AuditTask::Verify { json, key }) = &args.task {
        return verified(&state, *json, key.as_deref());
    }
    let format = match args.format.as_str() {
        "text" => Format::Text,
        "json" => Format::Json,
        "ocsf" => Format::Ocsf,
        other => return Err(flag("--format", other, "text, json or ocsf")),
    };
    let wanted = Wanted {
        session: args.session.as_deref().map(|name| session_in_log(&state, name)).transpose()?,
        events: args.event.iter().map(|name| event(name)).collect::<Result<_, _>>()?,
        since: args.since.as_deref().map(since).transpose()?,
    };
    show(&state, &wanted, format, args.follow)
}

fn flag(flag: &'static str, value: &str, hint: impl Into<String>) -> Failure {
    Failure::Flag { flag, value: value.to_owned(), hint: hint.into() }
}

fn event(name: &str) -> Result<Event, Failure> {
    let names = || Event::ALL.map(Event::name).join(", ");
    Event::from_name(&name.to_ascii_uppercase()).ok_or_else(|| flag("--event", name, format!("one of {}", names())))
}

fn since(text: &str) -> Result<String, Failure> {
    let ago = parse_time(text).map(|ago| {
        let micros = u64::try_from(ago.as_micros()).unwrap_or(u64::MAX);
        Stamp(Stamp::now().0.saturating_sub(micros))
    });
    let stamp = ago.or_else(|| parse_stamp(text));
    stamp
        .map(|stamp| stamp.to_string())
        .ok_or_else(|| flag("--since", text, "a time ago (10m, 2h) or a moment in UTC (2026-11-15T08:30)"))
}

fn opened(state: &Path) -> Result<Follow, Failure> {
    entries(state).map_err(|errno| unreadable(state, errno))
}

fn unreadable(state: &Path, errno: Errno) -> Failure {
    Failure::Read { path: cofferdam_audit::directory(state).display().to_string(), source: errno.into() }
}

/// The session that was created last is `last`, whichever wrote last.
pub(crate) fn session_in_log(state: &Path, name: &str) -> Result<String, Failure> {
    let mut names: Vec<String> = Vec::new();
    let mut log = opened(state)?;
    while let Some(entry) = log.try_next().map_err(|errno| unreadable(state, errno))? {
        let is_meant = match name {
            "last" => entry.event == Event::SandboxCreated.name(),
            _ => !entry.session.is_empty() && entry.session.starts_with(name),
        };
        if is_meant && !names.contains(&entry.session) {
            names.push(entry.session);
        }
    }
    choose(&names.iter().map(String::as_str).collect::<Vec<_>>(), name, "recorded").map(str::to_owned)
}

fn show(state: &Path, wanted: &Wanted, format: Format, follow: bool) -> Result<ExitCode, Failure> {
    let mut log = opened(state)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    loop {
        while let Some(entry) = log.try_next().map_err(|errno| unreadable(state, errno))? {
            if !wanted.takes(&entry) {
                continue;
            }
            let line = match format {
                Format::Text => text(&entry, wanted.session.is_none()),
                Format::Json => json_text(&entry.line),
                Format::Ocsf => json_text(&ocsf::event(&entry).to_string()),
            };
            if let Some(code) = ended(writeln!(out, "{line}")) {
                return Ok(code);
            }
        }
        if let Some(code) = ended(out.flush()) {
            return Ok(code);
        }
        if !follow {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(PAUSE);
    }
}

/// A reader that went away is no error.
fn ended(written: std::io::Result<()>) -> Option<ExitCode> {
    match written {
        Ok(()) => None,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Some(ExitCode::SUCCESS),
        Err(_) => Some(ExitCode::from(crate::render::OUR_FAILURE)),
    }
}

fn text(entry: &Entry, with_session: bool) -> String {
    // Microseconds and the zone's letter are for machines.
    let time = entry.time.get(..19).unwrap_or(&entry.time).replace('T', " ");
    let severity = match entry.severity {
        Severity::Info => "INFO",
        Severity::Warning => "WARNING",
        Severity::Error => "ERROR",
        Severity::Critical => "CRITICAL",
    };
    let mut line = format!("{} {severity:<8} {:<25}", escaped(&time), escaped(&entry.event));
    let mut word = |name: &str, value: &str| write!(line, " {name}={}", escaped(value)).unwrap_or_default();
    if with_session && !entry.session.is_empty() {
        word("session", &entry.session);
    }
    if entry.actor != "supervisor" {
        word("by", &entry.actor);
    }
    if let Some(decision) = &entry.decision {
        word("decision", decision);
    }
    if let Some(origin) = &entry.origin {
        word("rule", &json!(origin).to_string());
    }
    if let Some(latency) = entry.latency {
        word("after", &format!("{}ms", latency / 1000));
    }
    details("", &entry.details, &mut word);
    line
}

/// `name=value`, with the names of objects in front of those in them.
fn details(name: &str, value: &Value, word: &mut impl FnMut(&str, &str)) {
    match value {
        Value::Null => {}
        // What every layer does is in the JSON; a line for people has no room for it.
        Value::Array(_) if name == "posture" => {}
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
                details(&name, value, word);
            }
        }
        other => word(name, &other.to_string()),
    }
}

fn verified(state: &Path, json: bool, key: Option<&str>) -> Result<ExitCode, Failure> {
    let mut report = verify(state).map_err(|errno| unreadable(state, errno))?;
    if key.is_some_and(|key| report.key.as_deref() != Some(key)) {
        let at = Place { file: "key.pub".to_owned(), line: 0, sequence: report.signed };
        report.problems.push(Problem { at, trouble: Trouble::BadSignature });
    }
    let text = if json {
        let directory = cofferdam_audit::directory(state);
        let report = json!({ "version": 1, "whole": report.is_whole(), "directory": directory, "report": report });
        json_text(&report.to_string()) + "\n"
    } else {
        report_text(&report, &cofferdam_audit::directory(state))
    };
    let printed = print(&text);
    Ok(if report.is_whole() { printed } else { ExitCode::from(NOT_SO) })
}

fn report_text(report: &Report, directory: &Path) -> String {
    let mut text = String::new();
    let mut line = |words: String| writeln!(text, "{words}").unwrap_or_default();
    for problem in &report.problems {
        line(format!("broken: {}: {}", place(&problem.at), trouble(&problem.trouble)));
    }
    if report.more > 0 {
        line(format!("broken: {} more", report.more));
    }
    for at in &report.torn {
        line(format!("torn by a crash, and closed off: {}", place(at)));
    }
    let verdict = if report.is_whole() { "whole" } else { "NOT whole" };
    line(format!(
        "{}: {verdict}; {} records in {} files, {} checkpoints, signed up to record {}",
        directory.display(),
        report.records,
        report.files,
        report.checkpoints,
        report.signed
    ));
    if let Some(key) = &report.key {
        line(format!("key: {}", escaped(key)));
    }
    text
}

fn place(at: &Place) -> String {
    let file = escaped(&at.file);
    if at.line == 0 {
        format!("{file} (record {})", at.sequence)
    } else {
        format!("{file}:{} (record {})", at.line, at.sequence)
    }
}

fn trouble(trouble: &Trouble) -> String {
    match trouble {
        Trouble::Altered => "is not as it was written".to_owned(),
        Trouble::Missing { records: 1 } => "this record is missing before the line".to_owned(),
        Trouble::Missing { records } => format!("{records} records are missing before the line"),
        Trouble::OutOfOrder => "stands where it does not belong, or twice".to_owned(),
        Trouble::Replaced => "is not the record that was written here".to_owned(),
        Trouble::Truncated { records: 1 } => "the last record was cut off".to_owned(),
        Trouble::Truncated { records } => format!("the last {records} records were cut off"),
        Trouble::Unfinished => "is not whole: cut, or torn by a crash that no session has closed off yet".to_owned(),
        Trouble::Lost => "its writer found the end of the log other than it had been left".to_owned(),
        Trouble::BadSignature => "the signature does not fit".to_owned(),
        Trouble::NoWitness => "is missing or cannot be read, so what it vouches for is not proven".to_owned(),
    }
}
