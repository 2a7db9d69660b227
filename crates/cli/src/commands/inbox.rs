//! `sandbox inbox`: the questions of all of this user's sessions on one screen. Owns the loop, the connections and the
//! terminal; what is shown and what a key means is in `model` and `screen`. Sessions may come and go at any time.

mod history;
mod model;
mod screen;
mod typed;

use std::io::Error;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cofferdam_host::{Surroundings, SurveyError};
use cofferdam_wire::protocol::Command;
use ratatui::crossterm::event;
use ratatui::layout::{Position, Rect};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::client::{Connection, sessions, sessions_directory};
use crate::commands::inbox::model::{Effect, Inbox};
use crate::commands::inbox::typed::Typed;
use crate::commands::revoke::KeptAnswer;
use crate::environment::environment;
use crate::full_screen::{next_key, on_whole_screen};

/// Why there is no screen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InboxError {
    #[error(transparent)]
    Survey(#[from] SurveyError),
    #[error("the inbox needs a terminal, and so does `sandbox top`")]
    NoTerminal {
        #[source]
        source: Error,
    },
}

/// How often to look for new sessions, and to ask each how it is.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) fn run() -> Result<ExitCode, InboxError> {
    let directory = sessions_directory()?;
    let state = Surroundings::look(&environment())?.state;
    let result = on_whole_screen(|terminal| turn_until_quit(terminal, &directory, &state));
    result.map(|()| ExitCode::SUCCESS).map_err(|source| InboxError::NoTerminal { source })
}

fn turn_until_quit(terminal: &mut ratatui::DefaultTerminal, directory: &Path, state: &Path) -> Result<(), Error> {
    let mut inbox = Inbox::default();
    let mut connections: Vec<Connection> = Vec::new();
    let mut look_at = Instant::now();
    let mut typed = Typed::default();
    loop {
        if Instant::now() >= look_at {
            look_at = Instant::now() + LOOK;
            look(directory, &mut connections);
        }
        hear(&mut connections, &mut inbox);
        let size = terminal.size()?;
        inbox.group_in_view = screen::group_in_view(&inbox, Rect::from((Position::ORIGIN, size)));
        terminal.draw(|frame| screen::draw(frame, &inbox))?;
        wait(&connections, typed.until())?;
        let mut keys = Vec::new();
        while event::poll(Duration::ZERO)? {
            keys.extend(next_key(Duration::ZERO)?);
        }
        for key in typed.meant(keys, inbox.takes_answers(), Instant::now()) {
            match inbox.key(key.code, key.modifiers, Instant::now()) {
                Effect::Nothing => {}
                Effect::Quit => return Ok(()),
                Effect::Say(session, command) => say(&mut connections, &session, &command, &mut inbox),
                Effect::LoadHistory => inbox.history.show(history::load(state)),
                Effect::Revoke(kept) => {
                    let told = revoked(&kept);
                    inbox.history.show(history::load(state));
                    inbox.history.message = told;
                }
            }
        }
    }
}

fn revoked(kept: &KeptAnswer) -> String {
    match kept.revoke() {
        Ok(_) => format!("revoked: {}; sessions that run keep what they have", kept.rule.rule()),
        Err(error) => {
            let cause = std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
            format!("not revoked: {error}{cause}")
        }
    }
}

/// Connects to sessions that are new, and asks the others how they are.
fn look(directory: &Path, connections: &mut Vec<Connection>) {
    for session in sessions(directory) {
        if !connections.iter().any(|connection| connection.session == session) {
            connections.extend(Connection::open(directory, &session, "inbox").ok());
        }
    }
    // One that is gone is noticed when it is heard.
    connections.retain_mut(|connection| connection.say(&Command::Status {}).is_ok());
}

fn hear(connections: &mut Vec<Connection>, inbox: &mut Inbox) {
    connections.retain_mut(|connection| match connection.hear() {
        Ok(events) => {
            for event in events {
                inbox.take(&connection.session, event, Instant::now());
            }
            true
        }
        Err(_) => false,
    });
    let alive: Vec<&str> = connections.iter().map(|connection| connection.session.as_str()).collect();
    inbox.keep_only(&alive, Instant::now());
}

fn say(connections: &mut [Connection], session: &str, command: &Command, inbox: &mut Inbox) {
    let connection = connections.iter_mut().find(|connection| connection.session == session);
    if connection.is_none_or(|connection| connection.say(command).is_err()) {
        inbox.note("that session has ended");
    }
}

/// Until a key, a word of a session, this moment, or half a second for the clocks on the screen.
fn wait(connections: &[Connection], until: Option<Instant>) -> Result<(), Error> {
    let stdin = std::io::stdin();
    let mut fds = vec![PollFd::new(&stdin, PollFlags::IN)];
    fds.extend(connections.iter().map(|connection| PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::IN)));
    let clocks = Duration::from_millis(500);
    let left = until.map_or(clocks, |until| until.saturating_duration_since(Instant::now()).min(clocks));
    let left = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut fds, Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
