//! `sandbox ps` and `sandbox kill`: sessions that run now, of all terminals of this user. Owns finding one by the beginning
//! of its name, and the table; what lives is the launcher's to know.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use cofferdam_launcher::{
    Ended, Homes, Session, SurveyError, UsedNow, end_session, live_sessions, state_dir, used_now,
};
use cofferdam_policy::parse_time;
use serde_json::json;

use crate::args::{KillArgs, PsArgs};
use crate::output::{bytes, escaped, print, print_json};
use crate::policy_files::environment;
use crate::render::Failure;

/// Where this user's sessions and logs are.
pub(crate) fn own_state() -> Result<PathBuf, Failure> {
    let homes = Homes::look(&environment()).map_err(SurveyError::from)?;
    Ok(state_dir(&homes.first, std::env::var("XDG_STATE_HOME").ok().as_deref()))
}

fn live(state: &Path) -> Result<Vec<Session>, Failure> {
    let failed = |errno: rustix::io::Errno| Failure::Read {
        path: state.join("sessions").display().to_string(),
        source: errno.into(),
    };
    live_sessions(state).map_err(failed)
}

/// The one session that is meant.
pub(crate) fn choose<'a>(names: &[&'a str], name: &str, kind: &'static str) -> Result<&'a str, Failure> {
    if name == "last" {
        return names.last().copied().ok_or(Failure::NoSession { kind, name: name.to_owned() });
    }
    if let Some(whole) = names.iter().find(|id| **id == name) {
        return Ok(whole);
    }
    let meant: Vec<&str> = names.iter().copied().filter(|id| id.starts_with(name)).collect();
    match meant.as_slice() {
        [one] => Ok(one),
        [] => Err(Failure::NoSession { kind, name: name.to_owned() }),
        _ => Err(Failure::SeveralSessions { name: name.to_owned(), sessions: meant.join(", ") }),
    }
}

pub(crate) fn one(state: &Path, name: &str) -> Result<Session, Failure> {
    let sessions = live(state)?;
    let names: Vec<&str> = sessions.iter().map(|session| session.id.as_str()).collect();
    let id = choose(&names, name, "live")?.to_owned();
    sessions.into_iter().find(|session| session.id == id).ok_or(Failure::NoSession { kind: "live", name: id })
}

pub(crate) fn list(args: &PsArgs) -> Result<ExitCode, Failure> {
    let state = own_state()?;
    let sessions = match &args.session {
        Some(name) => vec![one(&state, name)?],
        None => live(&state)?,
    };
    let supervisors: Vec<i32> = sessions.iter().map(|session| session.pid).collect();
    let used = used_now(&supervisors);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    if args.json {
        let sessions: Vec<_> = sessions
            .iter()
            .zip(&used)
            .map(|(session, used)| {
                json!({
                    "session": session.id, "pid": session.pid, "argv": session.argv, "cwd": session.cwd,
                    "project": session.project, "mode": session.mode, "started": session.started,
                    "age": (now - session.started).max(0.0), "usage": used,
                })
            })
            .collect();
        return Ok(print_json(&json!({ "version": 1, "sessions": sessions })));
    }
    Ok(print(&table(&sessions, &used, now)))
}

fn table(sessions: &[Session], used: &[UsedNow], now: f64) -> String {
    if sessions.is_empty() {
        return "no session runs\n".to_owned();
    }
    let mut text = format!(
        "{:<20} {:>8} {:>8} {:>6} {:>10} {:>8}  {}\n",
        "SESSION", "PID", "AGE", "PROCS", "MEMORY", "CPU", "COMMAND"
    );
    for (session, used) in sessions.iter().zip(used) {
        let command: String = session.argv.join(" ").chars().take(60).collect();
        writeln!(
            text,
            "{:<20} {:>8} {:>8} {:>6} {:>10} {:>7.1}s  {}",
            escaped(&session.id),
            session.pid,
            age(now - session.started),
            used.processes,
            bytes(used.memory),
            used.cpu_seconds,
            escaped(&command)
        )
        .unwrap_or_default();
    }
    text
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an age in seconds, not below zero")]
fn age(seconds: f64) -> String {
    match seconds.max(0.0) as u64 {
        seconds @ 0..100 => format!("{seconds}s"),
        seconds @ 100..6000 => format!("{}m", seconds / 60),
        seconds @ 6000..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

pub(crate) fn kill(args: &KillArgs) -> Result<ExitCode, Failure> {
    let grace = parse_time(&args.grace).ok_or_else(|| Failure::Flag {
        flag: "--grace",
        value: args.grace.clone(),
        hint: "a time such as 5s or 1m".to_owned(),
    })?;
    let state = own_state()?;
    let session = one(&state, &args.session)?;
    let ended = end_session(&state, &session, grace)
        .map_err(|errno| Failure::Write { path: format!("session {}", session.id), source: errno.into() })?;
    let words = match ended {
        Some(Ended::WhenAsked) => "ended",
        Some(Ended::Killed) => "killed",
        Some(Ended::WithSupervisor) => "killed with its supervisor; the next session removes what it left",
        // It ended by itself meanwhile, or it is out of reach.
        None if live(&state)?.contains(&session) => return Err(Failure::Unreachable { id: session.id }),
        None => "had ended already",
    };
    Ok(print(&format!("session {} {words}\n", escaped(&session.id))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_meant_by_the_beginning_of_its_name_if_that_is_clear() {
        let names = ["aa1", "aa2", "b", "bb"];
        assert_eq!(choose(&names, "aa2", "live").ok(), Some("aa2"));
        assert_eq!(choose(&names, "b", "live").ok(), Some("b"));
        assert_eq!(choose(&names, "last", "live").ok(), Some("bb"));
        assert!(matches!(choose(&names, "aa", "live"), Err(Failure::SeveralSessions { .. })));
        assert!(matches!(choose(&names, "c", "live"), Err(Failure::NoSession { .. })));
        assert!(matches!(choose(&[], "last", "live"), Err(Failure::NoSession { .. })));
    }
}
