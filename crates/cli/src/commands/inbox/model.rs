//! The state of the inbox: which sessions live, what they ask, what was decided. Pure: events and keys come in, an
//! effect comes out. The selection belongs to a question and not to a line, so that nothing slides under a finger.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cofferdam_gate::shown;
use cofferdam_wire::protocol::{Command, Decision, Event, FsRequest, SessionStatus};
use cofferdam_wire::{Cause, Keep, QuestionId, Reach, Verdict};
use ratatui::crossterm::event::{KeyCode, KeyModifiers};

use crate::commands::inbox::history::{History, Step};
use crate::commands::revoke::KeptAnswer;
use crate::full_screen::is_interrupt;

/// After another question came under the selection, so long keys answer nothing.
const PAUSE: Duration = Duration::from_millis(700);

const MOST_DECISIONS: usize = 50;

#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) sessions: Vec<Session>,
    pub(super) questions: Vec<Asked>,
    /// Newest first.
    pub(super) decisions: VecDeque<Decided>,
    pub(super) reach: Option<Reach>,
    pub(super) message: String,
    /// Only questions with this text in path, program or session are shown.
    pub(super) filter: String,
    pub(super) screen: Screen,
    pub(super) history: History,
    /// The question whose group the screen has all of.
    pub(super) group_in_view: Option<(String, QuestionId)>,
    selected: Option<(String, QuestionId)>,
    locked_until: Option<Instant>,
}

/// What keys go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Screen {
    #[default]
    Questions,
    /// The filter is typed.
    Filter,
    Help,
    /// What was answered and still counts.
    History,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) name: String,
    pub(super) status: SessionStatus,
}

#[derive(Debug)]
pub(super) struct Asked {
    pub(super) session: String,
    pub(super) request: FsRequest,
}

#[derive(Debug)]
pub(super) struct Decided {
    pub(super) session: String,
    pub(super) id: QuestionId,
    pub(super) decision: Decision,
    pub(super) scope: Reach,
    pub(super) persist: Keep,
    pub(super) cause: Cause,
    pub(super) path: String,
    /// What else it was about.
    pub(super) group: Option<String>,
}

/// What a key leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    Quit,
    Say(String, Command),
    /// The history is to be read.
    LoadHistory,
    Revoke(Box<KeptAnswer>),
}

impl Asked {
    pub(super) fn can_be_kept(&self, reach: Reach) -> bool {
        self.request.op.can_be_kept(self.request.is_dir, reach)
    }

    /// Whether an answer can be about the whole directory.
    pub(super) fn has_directory(&self) -> bool {
        self.request.op.is_about_files() && !self.request.is_alone
    }
}

impl Inbox {
    pub(super) fn take(&mut self, session: &str, event: Event, now: Instant) {
        match event {
            Event::Session(status) => self.session(session, *status),
            Event::FsRequest(request) => {
                let known = self.questions.iter_mut().find(|a| a.session == session && a.request.id == request.id);
                match known {
                    Some(known) => known.request = *request,
                    None => self.questions.push(Asked { session: session.to_owned(), request: *request }),
                }
            }
            Event::Audit { id, decision, scope, persist, cause, path, group, .. } => {
                self.questions.retain(|asked| asked.session != session || asked.request.id != id);
                let path = shown(path.as_bytes());
                let session = session.to_owned();
                let group = group.map(|group| shown(group.name().as_bytes()));
                self.decisions.push_front(Decided { session, id, decision, scope, persist, cause, path, group });
                self.decisions.truncate(MOST_DECISIONS);
            }
            Event::Refused { message } => self.note(&format!("refused: {}", shown(message.as_bytes()))),
            Event::Done { .. } => self.message.clear(),
            // A session is listed once it has said how it is; the rest is told to clients of execs.
            _ => {}
        }
        self.select_something(now);
    }

    /// The others have ended.
    pub(super) fn keep_only(&mut self, alive: &[&str], now: Instant) {
        self.sessions.retain(|session| alive.contains(&session.name.as_str()));
        self.questions.retain(|asked| alive.contains(&asked.session.as_str()));
        self.select_something(now);
    }

    pub(super) fn note(&mut self, message: &str) {
        message.clone_into(&mut self.message);
    }

    fn session(&mut self, name: &str, status: SessionStatus) {
        match self.sessions.iter_mut().find(|session| session.name == name) {
            Some(known) => known.status = status,
            None => self.sessions.push(Session { name: name.to_owned(), status }),
        }
    }

    /// The questions that the filter lets through, oldest first.
    pub(super) fn shown(&self) -> Vec<&Asked> {
        let wanted = self.filter.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        let is_shown = |asked: &&Asked| {
            wanted.is_empty() || has(&asked.request.path) || has(&asked.request.exe) || has(&asked.session)
        };
        self.questions.iter().filter(is_shown).collect()
    }

    /// The line of the selected question.
    pub(super) fn selected(&self) -> Option<usize> {
        let (session, id) = self.selected.as_ref()?;
        self.shown().iter().position(|asked| asked.session == *session && asked.request.id == *id)
    }

    /// Whether letters are answers, and no text that is typed here.
    pub(super) fn takes_answers(&self) -> bool {
        self.screen != Screen::Filter
    }

    /// Whether keys answer nothing for a moment.
    pub(super) fn is_locked(&self, now: Instant) -> bool {
        self.locked_until.is_some_and(|until| now < until)
    }

    fn select_something(&mut self, now: Instant) {
        if self.selected().is_none() {
            self.select(0);
            self.locked_until = Some(now + PAUSE);
        }
    }

    fn select(&mut self, line: usize) {
        self.reach = None;
        let shown = self.shown();
        let asked = shown.get(line.min(shown.len().saturating_sub(1)));
        self.selected = asked.map(|asked| (asked.session.clone(), asked.request.id));
    }

    pub(super) fn key(&mut self, key: KeyCode, modifiers: KeyModifiers, now: Instant) -> Effect {
        if is_interrupt(key, modifiers) {
            return Effect::Quit;
        }
        match self.screen {
            Screen::Help => {
                self.screen = Screen::Questions;
                return Effect::Nothing;
            }
            Screen::Filter => return self.type_filter(key, now),
            Screen::History => return self.history_key(key, now),
            Screen::Questions => {}
        }
        match key {
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Char('?') => self.screen = Screen::Help,
            KeyCode::Char('h') => {
                self.screen = Screen::History;
                return Effect::LoadHistory;
            }
            KeyCode::Char('/') => self.screen = Screen::Filter,
            KeyCode::Esc => self.filter.clear(),
            _ => {}
        }
        let line = self.selected();
        match key {
            KeyCode::Down | KeyCode::Char('j') => self.select(line.map_or(0, |line| line + 1)),
            KeyCode::Up | KeyCode::Char('k') => self.select(line.map_or(0, |line| line.saturating_sub(1))),
            KeyCode::Char(key) if modifiers.difference(KeyModifiers::SHIFT).is_empty() && !self.is_locked(now) => {
                return self.answer(key);
            }
            _ => {}
        }
        Effect::Nothing
    }

    /// Back among the questions, a key that was meant for the history answers nothing.
    fn history_key(&mut self, key: KeyCode, now: Instant) -> Effect {
        match self.history.key(key) {
            Step::Nothing => Effect::Nothing,
            Step::Revoke(kept) => Effect::Revoke(kept),
            Step::Back => {
                self.screen = Screen::Questions;
                self.locked_until = Some(now + PAUSE);
                Effect::Nothing
            }
        }
    }

    /// What comes under the selection while it is typed is not answered at once.
    fn type_filter(&mut self, key: KeyCode, now: Instant) -> Effect {
        match key {
            KeyCode::Char(letter) => self.filter.push(letter),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Esc => {
                self.filter.clear();
                self.screen = Screen::Questions;
            }
            KeyCode::Enter => self.screen = Screen::Questions,
            _ => {}
        }
        self.select(self.selected().unwrap_or(0));
        self.locked_until = Some(now + PAUSE);
        Effect::Nothing
    }

    fn answer(&mut self, key: char) -> Effect {
        let shown = self.shown();
        let Some(asked) = self.selected().and_then(|line| shown.get(line)) else { return Effect::Nothing };
        let has_toolchain = asked.request.toolchain.is_some();
        // What is not shown is not answered here.
        let in_view = |(session, id): &(String, QuestionId)| *session == asked.session && *id == asked.request.id;
        let has_group = self.group_in_view.as_ref().is_some_and(in_view);
        if self.reach == Some(Reach::Group) && !has_group {
            return self.toggle(Reach::Group);
        }
        let reach = self.reach.unwrap_or(Reach::File);
        let can_be_kept = asked.can_be_kept(reach);
        let allow = |keep| Verdict::Allow { reach, keep };
        let verdict = match key {
            'y' if reach != Reach::Group => allow(Keep::Once),
            's' => allow(Keep::Session),
            'p' if can_be_kept => allow(Keep::Project),
            'u' if can_be_kept => allow(Keep::User),
            'n' => Verdict::DENY_ONCE,
            // A group can be allowed, not denied.
            'N' if reach == Reach::Group => Verdict::Deny { reach: Reach::File, keep: Keep::Session },
            'N' => Verdict::Deny { reach, keep: Keep::Session },
            'd' if asked.has_directory() => return self.toggle(Reach::Dir),
            'g' if has_group => return self.toggle(Reach::Group),
            't' if has_toolchain => return self.toggle(Reach::Toolchain),
            _ => return Effect::Nothing,
        };
        Effect::Say(asked.session.clone(), Command::of(asked.request.id, verdict))
    }

    fn toggle(&mut self, reach: Reach) -> Effect {
        self.reach = if self.reach == Some(reach) { None } else { Some(reach) };
        Effect::Nothing
    }
}
