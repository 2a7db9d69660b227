//! The end of a transactional run at a terminal: what waits is reviewed, committed or dropped by a key. Owns the question and when it
//! is asked; the commands are `review`'s and `changes`'s. Called by `run` after everything was told.

use std::io::{self, BufRead as _, IsTerminal as _};

use cofferdam_wire::End;

use crate::args::changes::{CommitArgs, ReviewArgs, RollbackArgs, WhichArgs};
use crate::commands::changes::{self, ChangesError};
use crate::commands::review;
use crate::confirm::is_confirmed;
use crate::full_screen::has_screen;
use crate::render::output::{escaped, print, say, say_text};

/// Characters of an answer that was not understood.
const LONGEST_SHOWN: usize = 20;
/// What Ctrl-C sends.
const SIGINT: i32 = 2;

/// A workload may have left the terminal concealing what is written: soft reset, plain letters, the usual character set, the cursor.
const AS_AT_THE_START: &str = "\u{1b}[!p\u{1b}[m\u{1b}(B\u{1b}[?25h";

#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Review,
    Commit,
    RollBack,
    Leave,
    /// Nothing that was asked for.
    Other(String),
}

/// Asks, and does what is answered. What comes of it does not change how the command ended.
pub(super) fn offer(session: &str, end: End) -> Result<(), ChangesError> {
    // One that was killed or came to a limit may have no person before it: it must not wait for one.
    if !matches!(end, End::Exited { .. } | End::Signalled { signal: SIGINT }) {
        return Ok(());
    }
    if !has_screen() || !io::stderr().is_terminal() || !is_in_foreground() {
        return Ok(());
    }
    // The supervisor took all signals to itself. From here on the process ends by them again, above all when its terminal is closed.
    let answer = cofferdam_kernel::signal::reset().map_err(io::Error::from).and_then(|()| answer());
    let which = || WhichArgs { session: Some(session.to_owned()) };
    match answer {
        Ok(Answer::Review) => {
            review::review(&ReviewArgs { paths: Vec::new(), which: which() })?;
        }
        Ok(Answer::Commit) => {
            if is_confirmed("commit all that needs no decision of its own?") {
                changes::commit(&CommitArgs { which: which(), ..CommitArgs::default() })?;
            } else {
                print("nothing was committed\n");
            }
        }
        Ok(Answer::RollBack) => {
            changes::rollback(&RollbackArgs { which: which(), to: None, preview: false, yes: false })?;
        }
        Ok(Answer::Leave) | Err(_) => say!("sandbox: the changes wait"),
        Ok(Answer::Other(line)) => say!("sandbox: `{}` is none of r, c and d: the changes wait", escaped(&line)),
    }
    Ok(())
}

/// A process in the background would be stopped for reading.
fn is_in_foreground() -> bool {
    rustix::termios::tcgetpgrp(io::stdin()).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// A line and not a key: what a terminal answers to a query of the workload comes as if it was typed, and the workload has a say in
/// it, but it ends no line. What was typed before the question is no answer to it.
fn answer() -> io::Result<Answer> {
    rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush)?;
    say_text(AS_AT_THE_START);
    say_text("sandbox: type r (review), c (commit) or d (drop) and Enter; [Enter] leave them waiting: ");
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(match line.trim_end() {
        "r" => Answer::Review,
        "c" => Answer::Commit,
        "d" => Answer::RollBack,
        "" => Answer::Leave,
        // A terminal's answer to the workload may be long.
        other => Answer::Other(other.chars().take(LONGEST_SHOWN).collect()),
    })
}
