//! The end of a transactional run at a terminal: what waits is reviewed, committed or dropped by a key. Owns the question and when it
//! is asked; the commands are `review`'s and `changes`'s. Called by `run` after everything was told.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use cofferdam_wire::End;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode};

use crate::args::changes::{CommitArgs, RollbackArgs, WhichArgs};
use crate::commands::changes::{self, ChangesError};
use crate::commands::review;
use crate::confirm::is_confirmed;
use crate::full_screen::{forget_input, has_terminal, next_key};
use crate::render::output::{print, say, say_text};

/// What Ctrl-C sends.
const SIGINT: i32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Review,
    Commit,
    RollBack,
    Leave,
}

/// Asks, and does what is answered. What comes of it does not change how the command ended.
pub(super) fn offer(session: &str, end: End) -> Result<(), ChangesError> {
    // One that was killed or came to a limit may have no person before it: it must not wait for one.
    if !matches!(end, End::Exited { .. } | End::Signalled { signal: SIGINT }) {
        return Ok(());
    }
    if !has_terminal() || !io::stderr().is_terminal() || !is_in_foreground() {
        return Ok(());
    }
    // The supervisor took all signals to itself. From here on the process ends by them again, above all when its terminal is closed.
    let answer = cofferdam_kernel::signal::reset().map_err(io::Error::from).and_then(|()| answer());
    let which = || WhichArgs { session: Some(session.to_owned()) };
    match answer {
        Ok(Answer::Review) => {
            say!("review");
            review::review(&which())?;
        }
        // What the terminal answers to a query of the workload is no `y`.
        Ok(Answer::Commit) => {
            say!("commit");
            if is_confirmed("commit all that needs no decision of its own?") {
                changes::commit(&CommitArgs { which: which(), ..CommitArgs::default() })?;
            } else {
                print("nothing was committed\n");
            }
        }
        Ok(Answer::RollBack) => {
            say!("drop");
            changes::rollback(&RollbackArgs { which: which(), to: None, preview: false, yes: false })?;
        }
        Ok(Answer::Leave) | Err(_) => say!("they wait"),
    }
    Ok(())
}

/// A process in the background would be stopped for reading.
fn is_in_foreground() -> bool {
    rustix::termios::tcgetpgrp(io::stdin()).is_ok_and(|group| group == rustix::process::getpgrp())
}

fn answer() -> io::Result<Answer> {
    enable_raw_mode()?;
    // Keys that were typed before the question are no answer to it.
    let answer = forget_input().and_then(|()| {
        say_text("sandbox: [r] review  [c] commit  [d] drop  [Enter] leave them waiting: ");
        read_answer()
    });
    disable_raw_mode()?;
    answer
}

fn read_answer() -> io::Result<Answer> {
    loop {
        let Some(key) = next_key(Duration::from_hours(24))? else { continue };
        match key.code {
            KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(Answer::Leave),
            KeyCode::Char('r') => return Ok(Answer::Review),
            KeyCode::Char('c') => return Ok(Answer::Commit),
            KeyCode::Char('d') => return Ok(Answer::RollBack),
            KeyCode::Enter | KeyCode::Esc | KeyCode::Char('q') => return Ok(Answer::Leave),
            _ => {}
        }
    }
}
