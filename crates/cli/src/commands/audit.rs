//! `sandbox logs` and `sandbox audit`: records as people read them, as they were written, or as OCSF; and whether the log
//! is whole. Owns choosing and rendering; reading and verification are the audit crate's. Everything that is printed of a
//! record may come from inside a sandbox, so it is escaped.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use cofferdam_audit::prune::Beginning;
use cofferdam_audit::{Entry, Event, Place, Problem, Report, Severity, Stamp, Trouble, parse_stamp, verify};
use cofferdam_host::HomeError;
use cofferdam_host::flags::FlagError;
use cofferdam_host::policy_files::text::ReadError;
use cofferdam_policy::parse_time;
use serde_json::{Value, json};
use thiserror::Error;

use crate::args::audit::{AuditArgs, AuditTask, LogsArgs};
use crate::commands::prune::{PruneError, prune};
use crate::environment::{own_home, own_state};
use crate::log::{Log, LogError, session_in_log};
use crate::render::exit::{NOT_SO, OUR_FAILURE};
use crate::render::ocsf;
use crate::render::output::{escaped, json_text, print};
use crate::render::session_log::SessionLog;

/// Why no record was shown, or the log not verified.
#[derive(Debug, Error)]
pub(crate) enum AuditError {
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Flag(#[from] FlagError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Prune(#[from] PruneError),
}

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

pub(crate) fn logs(args: &LogsArgs) -> Result<ExitCode, AuditError> {
    let state = own_state()?;
    let session = session_in_log(&state, &args.session)?;
    if args.json {
        return Ok(show(&state, &Wanted { session: Some(session), ..Wanted::default() }, Format::Json, false)?);
    }
    let mut told = SessionLog::new(&own_home()?);
    let mut text = String::new();
    let mut log = Log::open(&state)?;
    while let Some(entry) = log.try_next()? {
        if entry.session == session
            && let Some(line) = told.line(&entry)
        {
            writeln!(text, "{line}").unwrap_or_default();
        }
    }
    Ok(print(&(text + &told.summary())))
}

pub(crate) fn audit(args: &AuditArgs) -> Result<ExitCode, AuditError> {
    let state = own_state()?;
    match &args.task {
        Some(AuditTask::Verify { json, key }) => return Ok(verified(&state, *json, key.as_deref())?),
        Some(AuditTask::Prune(args)) => return Ok(prune(&state, args)?),
        None => {}
    }
    let format = match args.format.as_str() {
        "text" => Format::Text,
        "json" => Format::Json,
        "ocsf" => Format::Ocsf,
        other => return Err(FlagError::new("--format", other, "text, json or ocsf").into()),
    };
    let wanted = Wanted {
        session: args.session.as_deref().map(|name| session_in_log(&state, name)).transpose()?,
        events: args.event.iter().map(|name| event(name)).collect::<Result<_, _>>()?,
        since: args.since.as_deref().map(since).transpose()?,
    };
    Ok(show(&state, &wanted, format, args.follow)?)
}

fn event(name: &str) -> Result<Event, FlagError> {
    let names = || Event::ALL.map(Event::name).join(", ");
    Event::from_name(&name.to_ascii_uppercase())
        .ok_or_else(|| FlagError::new("--event", name, format!("one of {}", names())))
}

fn since(text: &str) -> Result<String, FlagError> {
    let ago = parse_time(text).map(|ago| {
        let micros = u64::try_from(ago.as_micros()).unwrap_or(u64::MAX);
        Stamp(Stamp::now().0.saturating_sub(micros))
    });
    let stamp = ago.or_else(|| parse_stamp(text));
    stamp
        .map(|stamp| stamp.to_string())
        .ok_or_else(|| FlagError::new("--since", text, "a time ago (10m, 2h) or a moment in UTC (2026-11-15T08:30)"))
}

fn show(state: &Path, wanted: &Wanted, format: Format, follow: bool) -> Result<ExitCode, ReadError> {
    let mut log = Log::open(state)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    loop {
        while let Some(entry) = log.try_next()? {
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
        Err(_) => Some(ExitCode::from(OUR_FAILURE)),
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

fn verified(state: &Path, json: bool, key: Option<&str>) -> Result<ExitCode, ReadError> {
    let mut report =
        verify(state).map_err(|errno| ReadError { path: cofferdam_audit::directory(state), source: errno.into() })?;
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
    if let Some(pruned) = &report.pruned {
        line(pruned_text(pruned));
    }
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

fn pruned_text(pruned: &Beginning) -> String {
    let by =
        if pruned.by == "audit.keep" { "the setting `audit.keep`" } else { "the operator, with `sandbox audit prune`" };
    let until = escaped(&pruned.until);
    format!("pruned until {until} (record {}) by {by}; signed with the key of the log", pruned.sequence)
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
        Trouble::Unannounced => "says that records were pruned, and no record of the log says so".to_owned(),
        Trouble::NoWitness => "is missing or cannot be read, so what it vouches for is not proven".to_owned(),
    }
}
