//! `sandbox diff --live`: what a session has changed so far on the whole screen, again whenever that is something else. Owns how often
//! is looked and which part of it is seen; the lines are `render::changes`'s. Called by `main`.

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cofferdam_wire::session::short;
use cofferdam_workspace::{State, Transaction};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::KeyCode;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::args::changes::{DiffArgs, WhichArgs};
use crate::commands::changes::{ChangesError, looked_at};
use crate::full_screen::{has_screen, is_interrupt, next_key, on_whole_screen, titled};
use crate::render::changes::{after_live, stat};
use crate::render::output::print;

/// How often is looked, at the most; a look that takes longer is followed by four times as long a rest.
const LOOK: Duration = Duration::from_secs(1);
const KEYS: &str = "[j/k] down, up  [Space/b] page  [q] quit";

pub(crate) fn live(args: &DiffArgs) -> Result<ExitCode, ChangesError> {
    let no_screen = |source| ChangesError::NoScreen { source };
    if !has_screen() {
        return Err(no_screen(io::ErrorKind::Unsupported.into()));
    }
    let (transaction, _) = looked_at(&args.which, &args.paths)?;
    let id = transaction.id().to_owned();
    let which = WhichArgs { session: Some(id.clone()) };
    let mut look =
        || looked_at(&which, &args.paths).map(|(transaction, found)| (transaction.state(), stat(&transaction, &found)));
    let is_live = |transaction: &Transaction| transaction.state() == State::Open;
    if !is_live(&transaction) {
        return Err(ChangesError::NotLive { id });
    }
    let shown = on_whole_screen(|terminal| turn(terminal, &id, &mut look)).map_err(no_screen)?;
    shown.map(|has_ended| print(&after_live(&id, has_ended)))
}

/// Until `q`, or the end of the session: whether it was that.
fn turn(
    terminal: &mut DefaultTerminal,
    id: &str,
    look: &mut dyn FnMut() -> Result<(State, String), ChangesError>,
) -> io::Result<Result<bool, ChangesError>> {
    let title = format!("sandbox diff --live {}", short(id));
    let (mut text, mut scroll, mut look_at) = (String::new(), 0_usize, Instant::now());
    loop {
        if Instant::now() >= look_at {
            let began = Instant::now();
            match look() {
                Ok((State::Open, found)) => text = found,
                // It has ended: what it changed lies elsewhere, or nothing does.
                Ok(_) | Err(ChangesError::Name(_) | ChangesError::Nothing { .. } | ChangesError::Open { .. }) => {
                    return Ok(Ok(true));
                }
                // A path that was named is not there any more, or not yet again.
                Err(ChangesError::Unmatched { .. }) => "nothing of what was named is changed".clone_into(&mut text),
                Err(error) => return Ok(Err(error)),
            }
            look_at = Instant::now() + LOOK.max(began.elapsed() * 4);
        }
        let lines: Vec<&str> = text.lines().collect();
        let room = usize::from(terminal.size()?.height).saturating_sub(2).max(1);
        scroll = scroll.min(lines.len().saturating_sub(room));
        terminal.draw(|frame| {
            let mut shown: Vec<Line<'_>> = lines.iter().skip(scroll).take(room).map(|line| Line::from(*line)).collect();
            shown.resize(room, Line::default());
            shown.push(Line::from(KEYS));
            frame.render_widget(Paragraph::new(shown).block(titled(&title)), frame.area());
        })?;
        let Some(key) = next_key(look_at.saturating_duration_since(Instant::now()))? else { continue };
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Ok(Ok(false)),
            code if is_interrupt(code, key.modifiers) => return Ok(Ok(false)),
            KeyCode::Down | KeyCode::Char('j') => scroll += 1,
            KeyCode::Up | KeyCode::Char('k') => scroll = scroll.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => scroll += room,
            KeyCode::PageUp | KeyCode::Char('b') => scroll = scroll.saturating_sub(room),
            _ => {}
        }
    }
}
