//! The history of the inbox: what was answered and still counts, of sessions that run and of the files that answers are kept in. Owns
//! reading it, the list and what a key does in it; revoking is `revoke`'s, drawing `screen`'s. Called by the inbox's loop and model.

use std::path::Path;

use cofferdam_audit::{Entry, Event};
use cofferdam_supervisor::live_sessions;
use cofferdam_wire::session::short;
use ratatui::crossterm::event::KeyCode;

use crate::commands::revoke::{KeptAnswer, kept_everywhere};
use crate::log::Log;

/// What is told of an answer for a session.
const UNTIL_THE_END: &str =
    "counts until the session ends: what it opened is mounted there and is not taken back before";

/// An answer that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) what: String,
    /// For whom: `session 6b1f0e92d7c4`, `project /home/you/p`, `user`.
    pub(super) scope: String,
    pub(super) details: Vec<String>,
    /// What can be revoked.
    pub(super) kept: Option<KeptAnswer>,
}

/// The list, and where the selection is in it.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) answers: Vec<Answered>,
    pub(super) at: usize,
    /// The key was pressed once for the selected answer.
    pub(super) is_asked: bool,
    pub(super) message: String,
}

/// What a key leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    Back,
    Revoke(Box<KeptAnswer>),
}

impl History {
    /// Takes the list as it is now; the selection stays at its line.
    pub(super) fn show(&mut self, answers: Vec<Answered>) {
        self.at = self.at.min(answers.len().saturating_sub(1));
        self.answers = answers;
        self.is_asked = false;
    }

    pub(super) fn selected(&self) -> Option<&Answered> {
        self.answers.get(self.at)
    }

    pub(super) fn key(&mut self, key: KeyCode) -> Step {
        let was_asked = std::mem::take(&mut self.is_asked);
        self.message.clear();
        match key {
            KeyCode::Char('q' | 'h') | KeyCode::Esc => return Step::Back,
            KeyCode::Down | KeyCode::Char('j') => self.at = (self.at + 1).min(self.answers.len().saturating_sub(1)),
            KeyCode::Up | KeyCode::Char('k') => self.at = self.at.saturating_sub(1),
            KeyCode::Char('r') => return self.revoke(was_asked),
            _ => {}
        }
        Step::Nothing
    }

    fn revoke(&mut self, was_asked: bool) -> Step {
        let Some(answered) = self.answers.get(self.at) else { return Step::Nothing };
        match &answered.kept {
            None => self.message = format!("cannot be revoked: {UNTIL_THE_END}"),
            Some(kept) if was_asked => return Step::Revoke(Box::new(kept.clone())),
            Some(_) => {
                self.is_asked = true;
                self.message =
                    String::from("press r again to take this answer out of its file; any other key leaves it");
            }
        }
        Step::Nothing
    }
}

/// Reads what counts now: from the log for sessions that run, and from the files for what is kept.
pub(super) fn load(state: &Path) -> Vec<Answered> {
    let mut answers = of_sessions(state);
    answers.extend(kept_everywhere().into_iter().map(|kept| Answered {
        what: kept.rule.rule(),
        scope: kept.scope(),
        details: kept.details(),
        kept: Some(kept),
    }));
    answers
}

fn of_sessions(state: &Path) -> Vec<Answered> {
    let running: Vec<String> = live_sessions(state).into_iter().flatten().map(|session| session.id).collect();
    let mut answers: Vec<Answered> = Vec::new();
    let Ok(mut log) = Log::open(state) else { return answers };
    while let Ok(Some(entry)) = log.try_next() {
        if running.contains(&entry.session)
            && let Some(answered) = of_session(&entry)
        {
            answers.retain(|known| (&known.what, &known.scope) != (&answered.what, &answered.scope));
            answers.push(answered);
        }
    }
    answers
}

fn of_session(entry: &Entry) -> Option<Answered> {
    let is_decision = [Event::FileDecided, Event::ConnectionAttempt].iter().any(|event| event.name() == entry.event);
    let text = |name: &str| entry.details[name].as_str();
    let by = text("cause").filter(|cause| matches!(*cause, "person" | "hook"))?;
    if !is_decision || text("persist") != Some("session") {
        return None;
    }
    let verdict = if entry.decision.as_deref() == Some("allow") { "allowed" } else { "denied" };
    let about = text("path").or_else(|| text("host"))?;
    let time = entry.time.get(..19).unwrap_or(&entry.time).replace('T', " ");
    let program = text("program").unwrap_or("?");
    Some(Answered {
        what: format!("{verdict} {} {about}", text("op").unwrap_or_default()),
        scope: format!("session {}", short(&entry.session)),
        details: vec![format!("answered: {time} UTC by {by}, asked by {program}"), UNTIL_THE_END.to_owned()],
        kept: None,
    })
}
