//! `sandbox ps` and `sandbox kill`: sessions that run now, of all terminals of this user. Owns finding one by the beginning
//! of its name, and the table; what lives is `supervisor::store`'s to know.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cofferdam_host::HomeError;
use cofferdam_host::flags::FlagError;
use cofferdam_host::policy_files::text::ReadError;
use cofferdam_host::state::sessions_in;
use cofferdam_kernel::timing::seconds_now;
use cofferdam_policy::parse_time;
use cofferdam_supervisor::{Ended, UsedNow, end_session, live_sessions, used_now};
use cofferdam_wire::session::{LifeCycle, Session, short};
use serde_json::json;
use thiserror::Error;

use crate::args::sessions::{KillArgs, PsArgs};
use crate::client::Connection;
use crate::session_name::{SessionKind, SessionNameError, choose};

/// Why a session was not listed, found or ended.
#[derive(Debug, Error)]
pub(crate) enum SessionError {
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Flag(#[from] FlagError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Name(#[from] SessionNameError),
    #[error("session {id} runs where it cannot be reached from")]
    Unreachable { id: String },
    #[error("cannot end session {id}")]
    End {
        id: String,
        #[source]
        source: std::io::Error,
    },
}
use crate::environment::own_state;
use crate::render::output::{bytes, escaped, print, print_json};

fn live(state: &Path) -> Result<Vec<Session>, ReadError> {
    live_sessions(state).map_err(|errno| ReadError { path: sessions_in(state), source: errno.into() })
}

fn one(state: &Path, name: &str) -> Result<Session, SessionError> {
    let sessions = live(state)?;
    if let Some(called) = sessions.iter().find(|session| session.name.as_deref() == Some(name)) {
        return Ok(called.clone());
    }
    let names: Vec<&str> = sessions.iter().map(|session| session.id.as_str()).collect();
    let id = choose(&names, name, SessionKind::Live)?.to_owned();
    let found = sessions.into_iter().find(|session| session.id == id);
    Ok(found.ok_or(SessionNameError::Unknown { kind: SessionKind::Live, name: id })?)
}

/// Where this user's sessions are, and which of them is meant.
pub(crate) fn own_session(name: &str) -> Result<(PathBuf, Session), SessionError> {
    let state = own_state()?;
    let session = one(&state, name)?;
    Ok((state, session))
}

/// Whether a session has ended and its supervisor is there for its output alone.
pub(crate) fn keeps_output(id: &str) -> bool {
    own_session(id)
        .is_ok_and(|(_, session)| used_now(&[session.pid]).first().is_some_and(|used| state_of(*used) == ENDED))
}

pub(crate) fn list(args: &PsArgs) -> Result<ExitCode, SessionError> {
    let state = own_state()?;
    let sessions = match &args.session {
        Some(name) => vec![one(&state, name)?],
        None => live(&state)?,
    };
    let supervisors: Vec<i32> = sessions.iter().map(|session| session.pid).collect();
    let used = used_now(&supervisors);
    let now = seconds_now();
    if args.json {
        let sessions: Vec<_> = sessions
            .iter()
            .zip(&used)
            .map(|(session, used)| {
                json!({
                    "session": session.id, "name": session.name, "pid": session.pid, "argv": session.argv, "cwd": session.cwd,
                    "project": session.project, "mode": session.mode, "started": session.started,
                    "age": (now - session.started).max(0.0), "state": state_of(*used), "usage": used,
                    "lifecycle": life_cycle(&state, session, *used),
                    "open_questions": open_questions(&state, session),
                })
            })
            .collect();
        return Ok(print_json(&json!({ "version": 1, "sessions": sessions })));
    }
    let waiting: Vec<u32> = sessions.iter().map(|session| open_questions(&state, session)).collect();
    Ok(print(&table(&sessions, &used, &waiting, now)))
}

/// No process is left: its supervisor keeps what it wrote.
const ENDED: &str = "ended";

fn state_of(used: UsedNow) -> &'static str {
    if used.processes == 0 { ENDED } else { "running" }
}

/// How many questions of a session wait for an answer; none where its supervisor says nothing.
fn open_questions(state: &Path, session: &Session) -> u32 {
    let said = Connection::open(&sessions_in(state), &session.id, "ps").and_then(Connection::status);
    said.map_or(0, |status| status.open_questions)
}

/// As its supervisor says it; one that keeps what an ended session wrote does not, nor does one that is stopped.
fn life_cycle(state: &Path, session: &Session, used: UsedNow) -> Option<LifeCycle> {
    let said = Connection::open(&sessions_in(state), &session.id, "ps").and_then(Connection::status);
    let ended = (used.processes == 0).then_some(LifeCycle::Completed);
    said.ok().and_then(|status| status.state).or(ended)
}

fn table(sessions: &[Session], used: &[UsedNow], waiting: &[u32], now: f64) -> String {
    if sessions.is_empty() {
        return "no session runs\n".to_owned();
    }
    let mut text = format!(
        "{:<12} {:>8} {:>8} {:>6} {:>10} {:>8}  {:<16} {}\n",
        "SESSION", "PID", "AGE", "PROCS", "MEMORY", "CPU", "PROJECT", "COMMAND"
    );
    for ((session, used), waiting) in sessions.iter().zip(used).zip(waiting) {
        let project = session.project.as_ref().and_then(|project| project.file_name());
        let project: String = project.map_or("-".into(), |name| name.to_string_lossy()).chars().take(16).collect();
        let mut command: String = session.argv.join(" ").chars().take(60).collect();
        if let Some(name) = &session.name {
            command = format!("{name}: {command}");
        }
        if state_of(*used) == ENDED {
            command.push_str(" (ended; `sandbox output` has what it wrote)");
        }
        match waiting {
            0 => {}
            1 => command.push_str(" (a question waits: `sandbox inbox`)"),
            count => write!(command, " ({count} questions wait: `sandbox inbox`)").unwrap_or_default(),
        }
        writeln!(
            text,
            "{:<12} {:>8} {:>8} {:>6} {:>10} {:>7.1}s  {:<16} {}",
            escaped(short(&session.id)),
            session.pid,
            age(now - session.started),
            used.processes,
            bytes(used.memory),
            used.cpu_seconds,
            escaped(&project),
            escaped(&command)
        )
        .unwrap_or_default();
    }
    text
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an age in seconds, not below zero")]
pub(crate) fn age(seconds: f64) -> String {
    match seconds.max(0.0) as u64 {
        seconds @ 0..100 => format!("{seconds}s"),
        seconds @ 100..6000 => format!("{}m", seconds / 60),
        seconds @ 6000..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

pub(crate) fn kill(args: &KillArgs) -> Result<ExitCode, SessionError> {
    let grace =
        parse_time(&args.grace).ok_or_else(|| FlagError::new("--grace", &args.grace, "a time such as 5s or 1m"))?;
    let (state, session) = own_session(&args.session)?;
    let ended = end_session(&state, &session, grace)
        .map_err(|errno| SessionError::End { id: session.id.clone(), source: errno.into() })?;
    let words = match ended {
        Some(Ended::WhenAsked) => "ended",
        Some(Ended::Killed) => "killed",
        Some(Ended::WithSupervisor) => "killed with its supervisor; the next session removes what it left",
        // It ended by itself meanwhile, or it is out of reach.
        None if live(&state)?.contains(&session) => return Err(SessionError::Unreachable { id: session.id }),
        None => "had ended already",
    };
    Ok(print(&format!("session {} {words}\n", escaped(&session.id))))
}
