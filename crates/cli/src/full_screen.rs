//! Programs that have the whole terminal: the inbox, the review, the live diff. Owns taking the terminal and giving it back, reading
//! keys, and the looks that they share; what is drawn is theirs.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use ratatui::widgets::{Block, Borders};

/// Whether there is a screen to draw on and keys to take.
pub(crate) fn has_screen() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Runs with the whole screen and gives it back as it was, also after an error.
pub(crate) fn on_whole_screen<T>(run: impl FnOnce(&mut DefaultTerminal) -> io::Result<T>) -> io::Result<T> {
    if !has_screen() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    if std::env::var_os("TERM").is_some_and(|kind| kind == "dumb") {
        return Err(io::Error::other("TERM=dumb says that this one cannot be drawn on"));
    }
    let mut terminal = ratatui::try_init()?;
    let result = run(&mut terminal);
    ratatui::restore();
    result
}

/// A key, or none where none comes in this time or something else does: the window has another size.
pub(crate) fn next_key(within: Duration) -> io::Result<Option<KeyEvent>> {
    if !event::poll(within)? {
        return Ok(None);
    }
    let Event::Key(key) = event::read()? else { return Ok(None) };
    Ok(Some(key).filter(|key| key.kind != KeyEventKind::Release))
}

pub(crate) fn is_interrupt(key: KeyCode, modifiers: KeyModifiers) -> bool {
    key == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL)
}

pub(crate) fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// The colour unless the operator wants none (NO_COLOR).
pub(crate) fn coloured(style: Style) -> Style {
    let wants_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if wants_none { Style::new().add_modifier(style.add_modifier) } else { style }
}

pub(crate) fn warning() -> Style {
    Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
}

pub(crate) fn titled(title: &str) -> Block<'_> {
    Block::new().borders(Borders::TOP).title(Span::styled(format!(" {title} "), bold()))
}
