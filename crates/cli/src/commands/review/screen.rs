//! The review on the screen: files, the lines of the selected one, keys. Pure: a state in, a picture out. Names are escaped here,
//! lines by `content`.

use std::os::unix::ffi::OsStrExt as _;

use cofferdam_gate::{columns, folded, shown};
use cofferdam_workspace::Kind;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::commands::review::content::{self, Look};
use crate::commands::review::model::{BOTH_PANES, Entry, Mark, Pane, Question, Review};
use crate::commands::selection::Item;
use crate::full_screen::{bold, titled};
use crate::render::changes::{letter, names};

/// Before each line of the right pane: whether it is of the selected hunk.
const MARGIN: usize = 2;
/// Lines for a question or what a key did.
const SAID: usize = 2;
const KEYS: [&str; 16] = [
    "[a] accept",
    "[r] reject",
    "[v] reviewed",
    "[w] wait",
    "[A] accept all",
    "[d] directory",
    "[Tab] files, hunks",
    "[j/k] down, up",
    "[g/G] first, last",
    "[Space/b] page",
    "[/] find",
    "[n/N] next, previous",
    "[c] COMMIT what is accepted",
    "[q] leave all waiting",
    "[D] roll back",
    "[?] all keys",
];
/// Where those would take the room of what is decided about.
const FEW_KEYS: [&str; 5] = ["[a] accept", "[r] reject", "[c] commit", "[q] leave", "[?] all keys"];
/// Such a part of the rows is for keys.
const ROWS_FOR_A_KEY: usize = 5;

/// What is shown besides the state.
pub(super) struct Picture<'a> {
    pub(super) title: &'a str,
    pub(super) is_coloured: bool,
    /// Changes that lie elsewhere than what the person asked for.
    pub(super) unshown: usize,
}

/// Where everything stands.
struct Areas {
    title: Rect,
    files: Option<Rect>,
    hunks: Option<Rect>,
    keys: Rect,
}

fn areas(review: &Review<'_>, area: Rect) -> Areas {
    let keys = u16::try_from(keys_for(area).len() + SAID).unwrap_or(5);
    let [title, body, keys] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(3), Constraint::Length(keys)]).areas(area);
    let (files, hunks) = if area.width >= BOTH_PANES {
        let left = (area.width * 2 / 5).clamp(30, 60);
        let [files, _, hunks] =
            Layout::horizontal([Constraint::Length(left), Constraint::Length(1), Constraint::Min(20)]).areas(body);
        (Some(files), Some(hunks))
    } else if review.pane == Pane::Files {
        (Some(body), None)
    } else {
        (None, Some(body))
    };
    Areas { title, files, hunks, keys }
}

/// How much room the lines of an item have on a screen of this size.
pub(super) fn room(review: &Review<'_>, area: Rect) -> (usize, usize) {
    let areas = areas(review, area);
    let hunks = areas.hunks.or(areas.files).unwrap_or(area);
    (usize::from(hunks.width).saturating_sub(MARGIN), usize::from(hunks.height).saturating_sub(1))
}

fn keys_for(area: Rect) -> Vec<String> {
    let all = keys(&KEYS, usize::from(area.width));
    let has_room = all.len() <= usize::from(area.height) / ROWS_FOR_A_KEY;
    if has_room { all } else { keys(&FEW_KEYS, usize::from(area.width)) }
}

/// As many keys on a line as fit.
fn keys(all: &[&str], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for key in all {
        match lines.last_mut() {
            Some(line) if line.len() + 2 + key.len() <= width => {
                line.push_str("  ");
                line.push_str(key);
            }
            _ => lines.push((*key).to_owned()),
        }
    }
    lines
}

/// `2 accepted, 1 rejected, 0 reviewed`, and those that are decided in part.
fn counted(review: &Review<'_>) -> String {
    let [accepted, rejected, reviewed, in_part] = review.counts();
    let in_part = if in_part > 0 { format!(", {in_part} in part") } else { String::new() };
    format!("{accepted} accepted, {rejected} rejected, {reviewed} reviewed{in_part}")
}

pub(super) fn draw(frame: &mut Frame<'_>, review: &Review<'_>, shown: &Picture<'_>) {
    let areas = areas(review, frame.area());
    let count = review.entries.len();
    let counts = format!("{}/{count}: {}", (review.selected + 1).min(count), counted(review));
    let is_wide = shown.title.len() + 2 + counts.len() <= usize::from(areas.title.width);
    let title = if is_wide { format!("{}  ", shown.title) } else { String::new() };
    let title = Line::from(vec![Span::styled(title, bold()), Span::raw(counts)]);
    frame.render_widget(Paragraph::new(title), areas.title);
    if let Some(first) = review.help {
        return draw_help(frame, first);
    }
    if let Some(area) = areas.files {
        draw_files(frame, review, shown.is_coloured, area);
    }
    if let Some(area) = areas.hunks {
        draw_hunks(frame, review, shown.is_coloured, area);
    }
    draw_keys(frame, review, shown.unshown, areas.keys);
}

/// All keys in the place of everything but the title.
fn draw_help(frame: &mut Frame<'_>, first: usize) {
    let [_, area] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(frame.area());
    let lines = keys(&KEYS, usize::from(area.width));
    let height = usize::from(area.height).saturating_sub(1);
    let first = first.min(lines.len().saturating_sub(height));
    let title = if lines.len() > height { "KEYS: [Space] more, others back" } else { "KEYS: any goes back" };
    let lines: Vec<Line<'_>> = lines.into_iter().skip(first).map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).block(titled(title)), area);
}

fn symbol(mark: Option<Mark>) -> char {
    match mark {
        Some(Mark::Open) => ' ',
        Some(Mark::Accepted) => '+',
        Some(Mark::Rejected) => '-',
        Some(Mark::Reviewed) => 'v',
        None => '~',
    }
}

/// The class of an item that a person must not overlook, and its colour.
fn class(item: &Item<'_>) -> Option<(&'static str, Color)> {
    if item.conflict().is_some() {
        Some(("CONFLICT", Color::Red))
    } else if !item.opened.is_empty() {
        Some(("OPENS", Color::Magenta))
    } else if item.all().any(cofferdam_workspace::Change::leaves_tree) {
        Some(("LINK OUT", Color::Cyan))
    } else if item.is_run {
        Some(("runs", Color::Yellow))
    } else {
        None
    }
}

fn painted(is_coloured: bool, colour: Color) -> Style {
    if is_coloured { Style::new().fg(colour) } else { Style::new() }
}

fn named(item: &Item<'_>) -> String {
    if item.is_repository {
        return format!("git directory ({})", names(item.with.len() + 1));
    }
    let slash = if item.change.kind() == Kind::Directory { "/" } else { "" };
    let more = if item.with.is_empty() { String::new() } else { format!(" ({})", names(item.with.len() + 1)) };
    format!("{}{slash}{more}", shown(item.change.path.as_os_str().as_bytes()))
}

/// The end of a text: the name of a file stands there.
fn end_of(text: &str, width: usize) -> String {
    if text.chars().map(columns).sum::<usize>() <= width {
        return text.to_owned();
    }
    let mut used = 2;
    let kept = text.chars().rev().take_while(|c| {
        used += columns(*c);
        used <= width
    });
    let kept: Vec<char> = kept.collect();
    format!("..{}", kept.into_iter().rev().collect::<String>())
}

fn draw_files(frame: &mut Frame<'_>, review: &Review<'_>, is_coloured: bool, area: Rect) {
    let height = usize::from(area.height).saturating_sub(1).max(1);
    // The selected one is in the middle, as far as there are others around it.
    let first = review.selected.saturating_sub(height / 2).min(review.entries.len().saturating_sub(height));
    let visible = review.entries.iter().enumerate().skip(first).take(height);
    let row = |(at, entry): (usize, &Entry<'_>)| {
        let style = if at == review.selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        file_row(entry, is_coloured, usize::from(area.width)).style(style)
    };
    let lines: Vec<Line<'_>> = visible.map(row).collect();
    let lines = if lines.is_empty() { vec![Line::from("  nothing waits")] } else { lines };
    let title = if review.pane == Pane::Files { "FILES" } else { "files" };
    frame.render_widget(Paragraph::new(lines).block(titled(title)), area);
}

fn file_row(entry: &Entry<'_>, is_coloured: bool, width: usize) -> Line<'static> {
    let class = class(&entry.item);
    let tag = class.map_or("", |(tag, _)| tag);
    let what = if entry.item.is_repository { 'G' } else { letter(entry.item.change.what) };
    let room = width.saturating_sub(7 + tag.len());
    let name = end_of(&named(&entry.item), room);
    let gap = " ".repeat(room.saturating_sub(name.chars().map(columns).sum()));
    let of_class = class.map_or(Style::new(), |(_, colour)| painted(is_coloured, colour));
    let of_mark = match entry.mark() {
        Some(Mark::Accepted) => painted(is_coloured, Color::Green),
        Some(Mark::Rejected) => painted(is_coloured, Color::Red),
        _ => Style::new(),
    };
    Line::from(vec![
        Span::styled(format!("[{}] ", symbol(entry.mark())), of_mark),
        Span::styled(format!("{what} {name}{gap}"), of_class),
        Span::styled(format!(" {tag}"), of_class.add_modifier(Modifier::BOLD)),
    ])
}

fn draw_hunks(frame: &mut Frame<'_>, review: &Review<'_>, is_coloured: bool, area: Rect) {
    let height = usize::from(area.height).saturating_sub(1);
    let name = review.entry().map(|entry| named(&entry.item)).unwrap_or_default();
    let name = end_of(&name, usize::from(area.width).saturating_sub(24));
    let parts = review.entry().and_then(Entry::parts);
    let place = match parts {
        Some((hunks, _)) => format!(", hunk {} of {}", review.hunk + 1, hunks.len()),
        None => ", as a whole".to_owned(),
    };
    let title = if review.pane == Pane::Hunks { format!("HUNKS: {name}{place}") } else { format!("{name}{place}") };
    let mark_of = |row: &content::Line| row.hunk.and_then(|hunk| parts?.1.get(hunk).copied());
    let lines: Vec<Line<'_>> = review
        .rows
        .iter()
        .skip(review.scroll)
        .take(height)
        .map(|row| {
            let is_here = review.pane == Pane::Hunks && parts.is_some() && row.hunk == Some(review.hunk);
            let bar = if is_here { '>' } else { ' ' };
            let mark = mark_of(row).filter(|_| row.look == Look::Position);
            let mark = mark.map_or_else(String::new, |mark| format!("[{}] ", symbol(Some(mark))));
            let margin = format!("{bar} {mark}");
            Line::from(vec![Span::raw(margin), Span::styled(row.text.clone(), style_of(row.look, is_coloured))])
        })
        .collect();
    frame.render_widget(Paragraph::new(lines).block(titled(&title)), area);
}

fn style_of(look: Look, is_coloured: bool) -> Style {
    match look {
        Look::Words | Look::Context => Style::new(),
        Look::Warning => painted(is_coloured, Color::Yellow).add_modifier(Modifier::BOLD),
        Look::Position => painted(is_coloured, Color::Cyan).add_modifier(Modifier::BOLD),
        Look::Added => painted(is_coloured, Color::Green),
        Look::Removed => painted(is_coloured, Color::Red),
    }
}

fn draw_keys(frame: &mut Frame<'_>, review: &Review<'_>, unshown: usize, area: Rect) {
    let mut lines: Vec<Line<'_>> = keys_for(frame.area()).into_iter().map(Line::from).collect();
    let said = match &review.asked {
        Some((Question::Opens, typed)) => {
            let obeyed = review.entry().map(|entry| entry.item.obeyed_names()).unwrap_or_default();
            let question = " without being asked. Type `yes` to take it: ";
            let room = (SAID * usize::from(area.width)).saturating_sub(question.len() + typed.len() + 20);
            format!("Host programs obey {}{question}{typed}", end_of(&obeyed, room))
        }
        Some((Question::Commit, typed)) => {
            format!("Commit what is accepted, and tell the agent what is rejected? Type `yes`: {typed}")
        }
        Some((Question::RollBack, typed)) => {
            let also = if unshown > 0 { ", also what is not shown," } else { "" };
            format!("Drop all that this session changed{also} and was not committed? Type `yes`: {typed}")
        }
        Some((Question::Search, typed)) => format!("Find the name: {}", shown(typed.as_bytes())),
        Some((Question::Below(directory), _)) => {
            let count = review.undecided_below(directory);
            let keys = format!(": {count} undecided: [a] accept, [r] reject, [d] the directory above");
            let room = (SAID * usize::from(area.width)).saturating_sub(keys.len());
            let directory = match directory.as_os_str().as_bytes() {
                [] => "everything".to_owned(),
                path => format!("{}/", shown(path)),
            };
            format!("{}{keys}", end_of(&directory, room))
        }
        Some((Question::Leave, _)) => {
            format!("{} are not kept: [c] commit, [q] leave", counted(review))
        }
        None => review.message.clone(),
    };
    let mut said = folded(&said, usize::from(area.width).max(1));
    said.resize(SAID, String::new());
    lines.splice(0..0, said.into_iter().map(|line| Line::from(Span::styled(line, bold()))));
    frame.render_widget(Paragraph::new(lines), area);
}

#[cfg(test)]
mod tests;
