//! What a question looks like and what a key means: pure, lines of text in, an action out. Owns every word on the panel;
//! where it is drawn is `prompt`'s business. Everything that comes from a program is escaped (attack corpus F2-F4).

use cofferdam_gate::{columns, folded, folded_short, shown, shown_short, shown_words};
use cofferdam_wire::session::short;
use cofferdam_wire::{Keep, NEW_DIRECTORY, Op, Program, Question, QuestionId, Reach, Subject, Verdict};
use rustix::fs::OFlags;

/// Where the second column begins.
const INDENT: usize = 9;

/// Choices that were made about the question on the panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choices {
    reach: Reach,
    /// The page of everything that is known, instead of the summary.
    page: Option<usize>,
}

impl Default for Choices {
    fn default() -> Self {
        Choices { reach: Reach::File, page: None }
    }
}

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Answer(Verdict),
    /// Deny, and interrupt the program.
    Interrupt,
    /// Leave it to other clients.
    Later,
    Redraw,
    Nothing,
}

/// Who has the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    Program,
    Panel,
}

/// Everything but the question that shapes the panel.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    pub(super) columns: usize,
    /// Most lines that the panel may take.
    pub(super) rows: usize,
    /// Its place among the open questions, and how many there are.
    pub(super) place: (usize, usize),
    pub(super) seconds_left: Option<u64>,
    pub(super) keys: Keys,
}

impl View {
    fn width(self) -> usize {
        self.columns.max(INDENT + 8)
    }
}

impl Choices {
    pub(super) fn key(&mut self, key: &[u8], question: &Question, view: View) -> Action {
        let is_out_of_view = self.reach == Reach::Group && group_in_view(question, view).is_none();
        let allow = |keep| Action::Answer(Verdict::Allow { reach: self.reach, keep });
        match key {
            // The terminal is smaller by now: what would be given is not on it.
            b"s" | b"p" | b"u" if is_out_of_view => self.toggle(Reach::Group),
            b"y" if self.reach != Reach::Group => allow(Keep::Once),
            b"s" => allow(Keep::Session),
            b"p" if self.can_be_kept(question) => allow(Keep::Project),
            b"u" if self.can_be_kept(question) => allow(Keep::User),
            b"n" | b"\x1b" => Action::Answer(Verdict::DENY_ONCE),
            b"N" => Action::Answer(question.meant(Verdict::Deny { reach: self.reach, keep: Keep::Session })),
            b"\x03" => Action::Interrupt,
            b"l" => Action::Later,
            b"d" if has_directory(question) => self.toggle(Reach::Dir),
            b"g" if group_in_view(question, view).is_some() => self.toggle(Reach::Group),
            b"t" if question.toolchain.is_some() => self.toggle(Reach::Toolchain),
            b"?" => {
                self.page = if self.page.is_none() { Some(0) } else { None };
                Action::Redraw
            }
            b" " if self.page.is_some() => {
                self.page = self.page.map(|page| page + 1);
                Action::Redraw
            }
            _ => Action::Nothing,
        }
    }

    fn can_be_kept(self, question: &Question) -> bool {
        question.op.can_be_kept(question.is_dir, self.reach)
    }

    fn toggle(&mut self, reach: Reach) -> Action {
        self.reach = if self.reach == reach { Reach::File } else { reach };
        Action::Redraw
    }

    /// The panel: at most `view.rows` lines of at most `view.columns` columns. The first is its title.
    pub(super) fn lines(self, question: &Question, view: View) -> Vec<String> {
        let group = group_in_view(question, view);
        let reach = if self.reach == Reach::Group && group.is_none() { Reach::File } else { self.reach };
        Choices { reach, ..self }.lines_with(group.as_deref(), question, view)
    }

    /// `group` is all of the group, where that has room.
    fn lines_with(self, group: Option<&[String]>, question: &Question, view: View) -> Vec<String> {
        let width = view.width();
        let title = title(question, view);
        let keys = wrapped_items(&self.keys(question, group.is_some()), width);
        let room = view.rows.saturating_sub(1 + keys.len()).max(1);
        let body = match self.page {
            Some(page) => page_of(&everything(question, width), page, room),
            None => summary(question, self.reach, group, width, room),
        };
        let mut lines = vec![title];
        lines.extend(body);
        lines.extend(keys);
        lines.iter().map(|line| cut(line, width)).collect()
    }

    fn keys(self, question: &Question, has_group: bool) -> Vec<String> {
        let on = |reach| if self.reach == reach { "ON" } else { "off" };
        let mut keys = Vec::new();
        keys.extend(has_group.then(|| format!("[g] the group: {}", on(Reach::Group))));
        if self.reach != Reach::Group {
            keys.push("[y] once".to_owned());
        }
        keys.push("[s] this session".to_owned());
        if self.can_be_kept(question) {
            keys.extend(["[p] this project", "[u] always"].map(str::to_owned));
        }
        if has_directory(question) {
            keys.push(format!("[d] whole directory: {}", on(Reach::Dir)));
        }
        if let Some(toolchain) = &question.toolchain {
            keys.push(format!("[t] {}: {}", shown_short(toolchain.as_bytes(), 24), on(Reach::Toolchain)));
        }
        let deny = ["[n] deny", "[N] deny for the session", "[l] later"];
        keys.extend(deny.map(str::to_owned));
        keys.push(if self.page.is_some() { "[space] next page [?] back".to_owned() } else { "[?] more".to_owned() });
        keys
    }
}

/// Whether an answer can be about the whole directory.
fn has_directory(question: &Question) -> bool {
    question.op.is_about_files() && !question.is_alone
}

/// All that the group gives, line by line. None where the panel has no room for it: what is not shown is not answered here.
fn group_in_view(question: &Question, view: View) -> Option<Vec<String>> {
    let text = shown(question.group.as_ref()?.said(question.op).as_bytes());
    let group = folded(&text, view.width() - INDENT);
    let is_whole = |reach, label| {
        let lines = Choices { reach, page: None }.lines_with(Some(&group), question, view);
        lines.len() <= view.rows && lines.windows(group.len()).any(|part| part == labelled(label, &group))
    };
    (is_whole(Reach::File, "[g]") && is_whole(Reach::Group, "for")).then_some(group)
}

fn title(question: &Question, view: View) -> String {
    let mut words = vec![format!("sandbox: question {}", question.id)];
    if view.place.1 > 1 {
        words.push(format!("({} of {})", view.place.0, view.place.1));
    }
    if let Some(seconds) = view.seconds_left {
        words.push(format!("- answer in {seconds} s"));
    }
    words.push(match view.keys {
        Keys::Program => "- wait, keys go to the program".to_owned(),
        Keys::Panel => "- press a key below".to_owned(),
    });
    words.join(" ")
}

/// What a person needs to decide, the path in full where there is room for it.
fn summary(question: &Question, reach: Reach, group: Option<&[String]>, width: usize, room: usize) -> Vec<String> {
    let mut after = vec![entry("", &about(question))];
    match group {
        Some(group) if reach == Reach::Group => after.extend(labelled("for", group)),
        Some(group) => {
            after.push(entry("for", &extent(question, reach, width - INDENT)));
            after.extend(labelled("[g]", group));
        }
        None => {
            after.push(entry("for", &extent(question, reach, width - INDENT)));
            after.extend(
                question.group.as_ref().map(|_| entry("group", "no room for it here: see `sandbox questions`")),
            );
        }
    }
    after.push(entry("by", &short_program(&question.asker.program, width - INDENT)));
    if !question.asker.parents.is_empty() {
        let parents: Vec<String> = question.asker.parents.iter().map(|parent| shown(name(parent).as_bytes())).collect();
        after.push(entry("from", &shown_line(&parents.join(" < "), width - INDENT)));
    }
    after.extend(also(question, width).map(|text| entry("also", &text)));
    after
        .extend(question.hint.as_ref().map(|hint| entry("hint", &shown_line(&shown(hint.as_bytes()), width - INDENT))));
    let path_rows = room.saturating_sub(after.len()).max(3);
    let path = folded_short(&path_text(question), width - INDENT, path_rows, "press ?");
    let mut lines = labelled(verb(question.op), &path);
    lines.extend(after);
    lines.truncate(room.max(3));
    lines
}

/// All that is known, over as many lines as it takes.
fn everything(question: &Question, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |label: &str, text: &str| lines.extend(labelled(label, &folded(text, width - INDENT)));
    add(verb(question.op), &path_text(question));
    add("", &about(question));
    if !matches!(question.op, Op::Connect | Op::Sign) {
        add("opened", &open_flags(question.flags));
    }
    if let Some(group) = &question.group {
        add("group", &shown(group.said(question.op).as_bytes()));
    }
    let program = &question.asker.program;
    add("by", &format!("{} (pid {})", shown(program.exe.as_bytes()), program.pid));
    add("argv", &shown_words(program.argv.iter().map(String::as_str)));
    add("in", &shown(question.asker.cwd.as_bytes()));
    for parent in &question.asker.parents {
        let argv = shown_words(parent.argv.iter().map(String::as_str));
        add("from", &format!("{}: {argv} (pid {})", shown(parent.exe.as_bytes()), parent.pid));
    }
    if let Some(hint) = &question.hint {
        add("hint", &shown(hint.as_bytes()));
    }
    if question.waiting > 1 {
        add("also", &format!("{} calls wait for this answer", question.waiting));
    }
    for path in &question.also {
        add("also", &shown(path.as_os_str().as_encoded_bytes()));
    }
    lines
}

fn page_of(lines: &[String], page: usize, room: usize) -> Vec<String> {
    let per_page = room.saturating_sub(1).max(1);
    let pages = lines.len().div_ceil(per_page).max(1);
    let page = page % pages;
    let mut shown: Vec<String> = lines.iter().skip(page * per_page).take(per_page).cloned().collect();
    shown.push(format!("  -- page {} of {pages} --", page + 1));
    shown
}

pub(super) fn verb(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::List => "list",
        Op::Exec => "exec",
        Op::Write => "write",
        Op::Create => "create",
        Op::Connect => "reach",
        Op::Sign => "sign",
    }
}

fn path_text(question: &Question) -> String {
    let bytes = question.subject.as_bytes();
    let slash = if question.is_dir && bytes != b"/" { "/" } else { "" };
    shown(bytes) + slash
}

/// A path longer than this may not be shown as a whole, so that its length is told.
const MOST_PLAIN: usize = 80;

/// How the file was to be opened, by the kernel's names.
fn open_flags(flags: u32) -> String {
    const NAMES: [(u32, &str); 7] = [
        (0o100, "O_CREAT"),
        (0o200, "O_EXCL"),
        (0o1000, "O_TRUNC"),
        (0o2000, "O_APPEND"),
        (0o4000, "O_NONBLOCK"),
        // These bits are not the same on every machine.
        (OFlags::DIRECTORY.bits(), "O_DIRECTORY"),
        (OFlags::NOFOLLOW.bits(), "O_NOFOLLOW"),
    ];
    let access = ["O_RDONLY", "O_WRONLY", "O_RDWR", "O_RDWR"][(flags & 3) as usize];
    let named = NAMES.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name);
    std::iter::once(access).chain(named).collect::<Vec<_>>().join(" ")
}

/// What the path is; its length, so that a part that is not shown is missed.
fn about(question: &Question) -> String {
    let bytes = match &question.subject {
        Subject::Host(text) if text.contains('@') => return "a name at these addresses and no others".to_owned(),
        Subject::Host(_) => {
            return "an internet host; a private address needs a further answer".to_owned();
        }
        Subject::Key(_) => return "a key of yours; it stays in your agent".to_owned(),
        Subject::Path(_) => question.subject.as_bytes(),
    };
    let kind = match (question.is_dir, question.op) {
        (true, Op::Create) => "a new directory".to_owned(),
        (true, _) => "directory".to_owned(),
        (false, Op::Create) => "a new file".to_owned(),
        (false, _) => format!("file of {} bytes", question.size),
    };
    let length = if bytes.len() > MOST_PLAIN { format!("; a path of {} bytes", bytes.len()) } else { String::new() };
    let mut text = kind + &length;
    if shown(bytes).as_bytes() != bytes {
        text.push_str("; path shown escaped");
    } else if !bytes.is_ascii() {
        text.push_str("; path not all ASCII");
    }
    text
}

/// What would be opened up.
fn extent(question: &Question, reach: Reach, width: usize) -> String {
    let path = match &question.subject {
        Subject::Host(text) if text.contains('@') => return "this name and port, at this address alone".to_owned(),
        Subject::Host(_) => return "this host and port".to_owned(),
        Subject::Key(_) => return "this key and purpose".to_owned(),
        Subject::Path(path) => path,
    };
    let directory = if question.is_dir { path } else { path.parent().unwrap_or(path) };
    match reach {
        Reach::File if question.is_dir && question.op == Op::Create => NEW_DIRECTORY.to_owned(),
        Reach::File if question.is_dir => "the names in it, nothing below".to_owned(),
        Reach::File | Reach::Group => "this file alone".to_owned(),
        Reach::Dir => {
            let text = shown(directory.as_os_str().as_encoded_bytes());
            format!("EVERYTHING below {}", shown_line(&text, width.saturating_sub(17)))
        }
        Reach::Toolchain => {
            let name = question.toolchain.as_deref().unwrap_or_default();
            format!("ALL places of the {}", shown_short(name.as_bytes(), 40))
        }
    }
}

fn also(question: &Question, width: usize) -> Option<String> {
    let others = question.also.len();
    if question.waiting <= 1 && others == 0 {
        return None;
    }
    let mut text = match question.waiting {
        0 | 1 => "the answer is also".to_owned(),
        waiting => format!("{waiting} calls wait for this answer"),
    };
    if others > 0 {
        let names: Vec<String> = question
            .also
            .iter()
            .map(|path| shown(path.file_name().unwrap_or(path.as_os_str()).as_encoded_bytes()))
            .collect();
        let on = if question.waiting > 1 { ", on" } else { " about" };
        text = format!("{text}{on} {}", names.join(", "));
    }
    Some(shown_line(&text, width.saturating_sub(INDENT)))
}

fn short_program(program: &Program, most: usize) -> String {
    let words = shown_words(program.argv.iter().map(String::as_str));
    let exe = shown(program.exe.as_bytes());
    let text = if words.starts_with(&exe) { words } else { format!("{exe}: {words}") };
    format!("{} (pid {})", shown_line(&text, most.saturating_sub(13)), program.pid)
}

fn name(program: &Program) -> &str {
    program.exe.rsplit('/').next().unwrap_or(&program.exe)
}

/// Escaped text, cut with a note of how much is missing where it does not fit.
fn shown_line(text: &str, most: usize) -> String {
    if text.chars().map(columns).sum::<usize>() <= most {
        return text.to_owned();
    }
    let kept = cut(text, most.saturating_sub(16));
    let missing = text.chars().count() - kept.chars().count();
    format!("{kept}...({missing} more)")
}

fn entry(label: &str, text: &str) -> String {
    format!("  {label:<7}{text}")
}

fn labelled(label: &str, lines: &[String]) -> Vec<String> {
    let label = |at: usize| if at == 0 { label } else { "" };
    lines.iter().enumerate().map(|(at, line)| entry(label(at), line)).collect()
}

fn wrapped_items(items: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + item.chars().count() <= width => {
                line.push(' ');
                line.push_str(item);
            }
            _ => lines.push(format!(" {item}")),
        }
    }
    lines
}

fn cut(text: &str, width: usize) -> String {
    let mut used = 0;
    text.chars()
        .take_while(|c| {
            used += columns(*c);
            used <= width
        })
        .collect()
}

/// The question as one line, where the user cannot be asked for keys.
pub(crate) fn notice(session: &str, question: &Question) -> String {
    let id: QuestionId = question.id;
    let session = short(session);
    let path = path_text(question);
    let who = shown(name(&question.asker.program).as_bytes());
    format!(
        "sandbox: {who} wants to {} {path}: `sandbox approve {session}:{id}` or `sandbox deny {session}:{id}`",
        verb(question.op)
    )
}

#[cfg(test)]
mod tests;
