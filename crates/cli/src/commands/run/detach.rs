//! `sandbox run --detach`: the command in a supervisor of its own that outlives this process. Owns the order and what is said of its
//! start; the other end is `supervise`'s.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode, Stdio};

use cofferdam_wire::order::{KEPT_BYTES, Lifetime, Order};
use cofferdam_wire::protocol::{Event, MOST_BYTES};
use serde_json::{Value, json};
use thiserror::Error;

use crate::args::run::RunArgs;
use crate::environment::typed;
use crate::render::exit::OUR_FAILURE;
use crate::render::output::{escaped, print, print_json, say};
use crate::render::report::say_json;

/// How long the output of a command that has ended can be read.
const LINGER_SECONDS: u64 = 600;

/// Why there is no supervisor.
#[derive(Debug, Error)]
pub(crate) enum DetachError {
    #[error("cannot enter the working directory")]
    WorkingDirectory(#[source] std::io::Error),
    #[error("what was typed cannot be handed over: {why}")]
    NoText { why: String },
    #[error("cannot start a supervisor")]
    Start(#[source] std::io::Error),
    #[error("the supervisor ended without a word")]
    Silent,
    #[error("the supervisor did not take the order: {why}")]
    Refused { why: String },
}

pub(crate) fn detach(args: &RunArgs) -> Result<ExitCode, DetachError> {
    let order = Order {
        cwd: Some(std::env::current_dir().map_err(DetachError::WorkingDirectory)?),
        lifetime: Lifetime::WithFirstExec { linger_seconds: LINGER_SECONDS },
        // There is no terminal to ask at; `--on-unknown ask` leaves questions to `sandbox inbox`.
        can_ask: false,
        kept_bytes: KEPT_BYTES,
        ..typed(&args.policy.0, args.chosen(), &args.argv)
    };
    let document = order.document().map_err(|why| DetachError::NoText { why })?;
    let (ours, theirs) = UnixStream::pair().map_err(DetachError::Start)?;
    let mut supervisor = Command::new("/proc/self/exe");
    supervisor.args(["supervise", "--order-fd", "0"]).stdin(Stdio::from(OwnedFd::from(theirs)));
    supervisor.stdout(Stdio::null()).stderr(Stdio::null());
    supervisor.spawn().map_err(DetachError::Start)?;
    // This process's copy of their end.
    drop(supervisor);
    match (&ours).write_all(&document) {
        // What it has to say comes first.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(DetachError::Start(error)),
        _ => {}
    }
    let mut answer = Vec::new();
    BufReader::new(ours.take(MOST_BYTES as u64)).read_until(b'\n', &mut answer).map_err(DetachError::Start)?;
    match serde_json::from_slice(&answer) {
        Ok(Event::Started { session, .. }) if args.json => Ok(print_json(&json!({ "version": 1, "session": session }))),
        Ok(Event::Started { session, .. }) => Ok(print(&format!("{session}\n"))),
        Ok(Event::Report { report }) => Ok(not_started(&report, args.json)),
        Ok(Event::Refused { message }) => Err(DetachError::Refused { why: message }),
        _ => Err(DetachError::Silent),
    }
}

/// As this process would have told it.
fn not_started(report: &Value, json: bool) -> ExitCode {
    let error = &report["error"];
    let text = |value: &Value| value.as_str().map(escaped);
    say!("error: {}", text(&error["message"]).unwrap_or_default());
    for cause in error["causes"].as_array().into_iter().flatten().filter_map(text) {
        say!("  caused by: {cause}");
    }
    if let Some(hint) = text(&error["hint"]) {
        say!("hint: {hint}");
    }
    if json {
        say_json(report);
    }
    ExitCode::from(report["exit_code"].as_u64().and_then(|code| u8::try_from(code).ok()).unwrap_or(OUR_FAILURE))
}
