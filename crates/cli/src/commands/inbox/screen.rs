//! The inbox on the screen: questions, the one that is selected in full, sessions, decisions, keys. Pure: a state in, a
//! picture out. Everything that comes from a program is escaped before it gets here or on the way.

use std::time::Instant;

use cofferdam_gate::{folded, folded_short, shown, shown_short, shown_words};
use cofferdam_wire::protocol::{Decision, FsRequest};
use cofferdam_wire::session::short;
use cofferdam_wire::{Keep, NEW_DIRECTORY, Op, QuestionId, Reach};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{List, ListState, Paragraph};

use crate::commands::inbox::history::{Answered, History};
use crate::commands::inbox::model::{Asked, Decided, Inbox, Screen, Session};
use crate::full_screen::{bold, coloured, titled, warning};
use crate::render::output::bytes;
use crate::render::question::{path, seconds_left, verb, who};

const HELP: &[&str] = &[
    "y  allow once                      s  allow for this session",
    "p  allow, kept for the project     u  allow, kept for you (always)",
    "d  with everything below the directory, before y, s, p, u, n or N",
    "t  with the whole toolchain, where one is named",
    "g  the group that is named, before s, p or u: hosts of a program, files of one form",
    "n  deny once                       N  deny for this session",
    "j, k or arrows  the next, the previous question",
    "/  show only questions with a text in path, program or session; Esc shows all",
    "h  the history: answers in force, of sessions, projects and you; r revokes a kept one",
    "q  quit: open questions stay open, and are denied when their time is over",
    "",
    "What was answered for the session ends with it. What was kept stands in a policy",
    "file: the history and `sandbox policy revoke` take it out again.",
];

pub(super) fn draw(frame: &mut Frame<'_>, inbox: &Inbox) {
    if inbox.screen == Screen::Help {
        let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(format!("  {line}"))).collect();
        frame.render_widget(
            Paragraph::new(lines).block(titled("sandbox inbox: keys (any key goes back)")),
            frame.area(),
        );
        return;
    }
    if inbox.screen == Screen::History {
        return draw_history(frame, &inbox.history);
    }
    let [questions, detail, sessions, decisions, keys] = areas(inbox, frame.area());
    draw_questions(frame, inbox, questions);
    draw_detail(frame, inbox, detail);
    let lines: Vec<Line<'_>> = inbox.sessions.iter().map(session_line).collect();
    frame.render_widget(Paragraph::new(or_none(lines)).block(titled("sessions")), sessions);
    let lines: Vec<Line<'_>> = inbox.decisions.iter().map(decision_line).collect();
    frame.render_widget(Paragraph::new(or_none(lines)).block(titled("decided")), decisions);
    draw_keys(frame, inbox, keys);
}

fn areas(inbox: &Inbox, whole: Rect) -> [Rect; 5] {
    let count = |length: usize, most: u16| u16::try_from(length).unwrap_or(most).clamp(1, most) + 1;
    let areas = Layout::vertical([
        Constraint::Length(count(inbox.questions.len(), 8)),
        Constraint::Min(8),
        Constraint::Length(count(inbox.sessions.len(), 5)),
        Constraint::Length(count(inbox.decisions.len(), 6)),
        Constraint::Length(2),
    ]);
    areas.areas(whole)
}

/// The selected question, where a screen of this size has all that its group gives.
pub(super) fn group_in_view(inbox: &Inbox, whole: Rect) -> Option<(String, QuestionId)> {
    let [_, area, ..] = areas(inbox, whole);
    let shown = inbox.shown();
    let asked = inbox.selected().and_then(|line| shown.get(line))?;
    let is_whole = |reach| detail(reach, asked, area).1;
    let fits = is_whole(None) && is_whole(Some(Reach::Group));
    fits.then(|| (asked.session.clone(), asked.request.id))
}

fn draw_history(frame: &mut Frame<'_>, history: &History) {
    let areas = Layout::vertical([Constraint::Min(5), Constraint::Length(8), Constraint::Length(2)]);
    let [list, detail, keys] = areas.areas(frame.area());
    let width = usize::from(list.width).saturating_sub(4);
    let title = format!("answers in force: {}", history.answers.len());
    if history.answers.is_empty() {
        frame.render_widget(Paragraph::new("  none").block(titled(&title)), list);
    } else {
        let row =
            |answered: &Answered| shown_short(format!("{} ({})", answered.what, answered.scope).as_bytes(), width);
        let rows = List::new(history.answers.iter().map(row))
            .block(titled(&title))
            .highlight_style(Style::new().add_modifier(Modifier::REVERSED))
            .highlight_symbol("> ");
        let mut state = ListState::default().with_selected(Some(history.at));
        frame.render_stateful_widget(rows, list, &mut state);
    }
    let width = usize::from(detail.width).max(20);
    let selected =
        history.selected().map(|it| [vec![it.what.clone(), format!("for: {}", it.scope)], it.details.clone()].concat());
    let folded = selected
        .unwrap_or_default()
        .into_iter()
        .flat_map(|line| folded_short(&shown(line.as_bytes()), width, 2, "see `sandbox policy revoke`"));
    let lines: Vec<Line<'_>> = folded.map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).block(titled("answer")), detail);
    let revoke = if history.selected().is_some_and(|it| it.kept.is_some()) { "[r] revoke " } else { "" };
    let first = format!("{revoke}[j/k] down, up [h] back to the questions");
    let message = shown(history.message.as_bytes());
    frame.render_widget(Paragraph::new(vec![Line::from(first), Line::from(message)]), keys);
}

fn or_none(lines: Vec<Line<'_>>) -> Vec<Line<'_>> {
    if lines.is_empty() { vec![Line::from("  none")] } else { lines }
}

fn draw_questions(frame: &mut Frame<'_>, inbox: &Inbox, area: Rect) {
    let shown = inbox.shown();
    let mut title = format!("sandbox inbox: {} open", inbox.questions.len());
    if !inbox.filter.is_empty() || inbox.screen == Screen::Filter {
        let cursor = if inbox.screen == Screen::Filter { "_" } else { "" };
        title = format!("{title}, {} shown /{}{cursor}", shown.len(), cofferdam_gate::shown(inbox.filter.as_bytes()));
    }
    if shown.is_empty() {
        let text =
            if inbox.questions.is_empty() { "  no open questions" } else { "  none has this text: Esc shows all" };
        frame.render_widget(Paragraph::new(text).block(titled(&title)), area);
        return;
    }
    let width = usize::from(area.width).saturating_sub(34);
    let rows = shown.iter().map(|asked| question_row(asked, width));
    let list = List::new(rows)
        .block(titled(&title))
        .highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .highlight_symbol("> ");
    let mut state = ListState::default().with_selected(inbox.selected());
    frame.render_stateful_widget(list, area, &mut state);
}

fn question_row(asked: &Asked, width: usize) -> Line<'static> {
    let request = &asked.request;
    let left = seconds_left(request).map_or_else(String::new, |left| format!("{left:>4} s"));
    let name = request.exe.rsplit('/').next().unwrap_or_default();
    // The end of a path says more than its beginning, and all of it stands below.
    let path = path(request);
    let skip = path.chars().count().saturating_sub(width);
    let tail: String = path.chars().skip(skip).collect();
    let cut = if skip > 0 { "..." } else { "" };
    // The last seconds of a question.
    let is_late = seconds_left(request).is_some_and(|left| left < 10);
    let time = if is_late { coloured(warning()) } else { Style::new() };
    let rest = format!(" {:<7} {:<12} {cut}{tail}", verb(request.op), shown_short(name.as_bytes(), 12));
    Line::from(vec![Span::styled(format!("{left:>6}"), time), Span::raw(rest)])
}

fn draw_detail(frame: &mut Frame<'_>, inbox: &Inbox, area: Rect) {
    let all = inbox.shown();
    let Some(asked) = inbox.selected().and_then(|line| all.get(line)) else {
        frame.render_widget(titled("question"), area);
        return;
    };
    let (lines, _) = detail(inbox.reach, asked, area);
    let title = format!("question {}:{}", short(&asked.session), asked.request.id);
    frame.render_widget(Paragraph::new(lines).block(titled(&title)), area);
}

/// What is said of a question below its title, and whether that has all of its group.
fn detail(reach: Option<Reach>, asked: &Asked, area: Rect) -> (Vec<Line<'static>>, bool) {
    let request = &asked.request;
    let (width, height) = (usize::from(area.width).max(20), usize::from(area.height));
    let kind = if request.is_dir { "directory".to_owned() } else { format!("file of {} bytes", request.size) };
    let elsewhere = "see `sandbox questions`";
    let mut rest = vec![format!("{kind}{}", length(request))];
    let said = request.group.as_ref().map(|group| shown(group.said(request.op).as_bytes()));
    let is_chosen = reach == Some(Reach::Group);
    match &said {
        Some(said) if is_chosen => rest.extend(folded(&format!("for: {said}"), width)),
        _ => rest.extend(folded_short(&format!("for: {}", extent(reach, asked)), width, 3, elsewhere)),
    }
    if let Some(said) = said.as_ref().filter(|_| !is_chosen) {
        rest.extend(folded(&format!("[g]: {said}"), width));
    }
    let group_ends = rest.len();
    rest.extend(folded_short(&format!("by: {}", who(request)), width, 3, elsewhere));
    rest.push(format!("in: {}", shown_short(request.cwd.as_bytes(), width.saturating_sub(20))));
    if request.waiting > 1 || !request.also.is_empty() {
        let also: Vec<String> = request.also.iter().map(|path| shown(path.as_bytes())).collect();
        let text = format!("{} calls wait for this answer {}", request.waiting, also.join(", "));
        rest.extend(folded_short(&text, width, 3, elsewhere));
    }
    // The path comes first, and what it leaves room for then.
    let room = height.saturating_sub(1 + rest.len()).max(3);
    let asks = format!("{} {}", verb(request.op), path(request));
    let mut lines: Vec<Line<'static>> = folded_short(&asks, width, room, elsewhere)
        .into_iter()
        .map(|line| Line::from(Span::styled(line, bold())))
        .collect();
    let is_whole = said.is_some() && area.width >= 20 && lines.len() + group_ends < height;
    lines.extend(rest.into_iter().map(Line::from));
    (lines, is_whole)
}

/// Of the path itself, where not all of it may be shown: what is no text was replaced on the wire.
fn length(request: &FsRequest) -> String {
    let bytes = request.path_bytes.as_ref().map_or(request.path.len(), |hex| hex.len() / 2);
    if bytes > 80 { format!("; a path of {bytes} bytes") } else { String::new() }
}

/// What would be opened up.
fn extent(reach: Option<Reach>, asked: &Asked) -> String {
    let request = &asked.request;
    match reach.unwrap_or(Reach::File) {
        Reach::File if request.is_dir && request.op == Op::Create => NEW_DIRECTORY.to_owned(),
        Reach::File if request.is_dir => "the names in it, nothing below".to_owned(),
        Reach::File | Reach::Group if !request.op.is_about_files() => "this alone".to_owned(),
        Reach::File | Reach::Group => "this file alone".to_owned(),
        Reach::Dir if request.is_dir => format!("EVERYTHING below {}", path(request)),
        Reach::Dir => {
            let path = path(request);
            format!("EVERYTHING below {}", path.rsplit_once('/').map_or("/", |(directory, _)| directory))
        }
        Reach::Toolchain => {
            let name = request.toolchain.as_deref().unwrap_or_default();
            format!("ALL places of the {}", shown(name.as_bytes()))
        }
    }
}

fn session_line(session: &Session) -> Line<'static> {
    let status = &session.status;
    let mut words = vec![short(&session.name).to_owned(), format!("pid {}", status.pid)];
    words.extend(status.processes.map(|processes| format!("{processes} processes")));
    words.extend(status.memory.map(bytes));
    words.extend(status.cpu_seconds.map(|seconds| format!("{seconds:.1} s CPU")));
    words.push(shown_words(status.argv.iter().map(String::as_str)));
    Line::from(format!("  {}", words.join("  ")))
}

fn decision_line(decided: &Decided) -> Line<'static> {
    let verdict = match decided.decision {
        Decision::Allow => "allowed",
        Decision::Deny => "denied",
    };
    let scope = match decided.scope {
        Reach::File | Reach::Group => "",
        Reach::Dir => ", with its directory",
        Reach::Toolchain => ", with its toolchain",
    };
    let keep = match decided.persist {
        Keep::Once => "once",
        Keep::Session => "for the session",
        Keep::Project => "for the project",
        Keep::User => "for the user",
        Keep::Org => "for the organisation",
    };
    let cause = format!("{:?}", decided.cause).to_lowercase();
    let name = format!("{}:{}", short(&decided.session), decided.id);
    let group = decided.group.as_ref().map_or_else(String::new, |group| format!(", with {group}"));
    let style = match decided.decision {
        Decision::Allow => Style::new().fg(Color::Green),
        Decision::Deny => Style::new().fg(Color::Red),
    };
    Line::from(vec![
        Span::raw(format!("  {name} ")),
        Span::styled(verdict, coloured(style)),
        Span::raw(format!(" {keep}{scope} ({cause}): {}{group}", decided.path)),
    ])
}

fn draw_keys(frame: &mut Frame<'_>, inbox: &Inbox, area: Rect) {
    let on = |reach| if inbox.reach == Some(reach) { "ON" } else { "off" };
    let shown = inbox.shown();
    let selected = inbox.selected().and_then(|line| shown.get(line)).copied();
    let toolchain = selected.and_then(|asked| asked.request.toolchain.as_deref());
    let reach = inbox.reach.unwrap_or(Reach::File);
    let kept = if selected.is_none_or(|asked| asked.can_be_kept(reach)) { " [p] project [u] always" } else { "" };
    let once = if reach == Reach::Group { "" } else { "[y] once " };
    let directory = format!("[d] directory: {}", on(Reach::Dir));
    let mut words = vec![format!("{once}[s] session{kept}")];
    if selected.is_none_or(Asked::has_directory) {
        words.push(directory);
    }
    if inbox.group_in_view.is_some() {
        words.insert(0, format!("[g] the group: {}", on(Reach::Group)));
    }
    let mut first = words.join(" ");
    if let Some(toolchain) = toolchain {
        first = format!("{first} [t] {}: {}", shown_short(toolchain.as_bytes(), 20), on(Reach::Toolchain));
    }
    let second = if selected.is_some() && inbox.is_locked(Instant::now()) {
        "wait: another question came here".to_owned()
    } else if inbox.message.is_empty() {
        "[n] deny [N] for the session [j/k] move [/] find [h] history [?] help [q] quit".to_owned()
    } else {
        inbox.message.clone()
    };
    frame.render_widget(Paragraph::new(vec![Line::from(first), Line::from(second)]), area);
}

#[cfg(test)]
mod tests;
