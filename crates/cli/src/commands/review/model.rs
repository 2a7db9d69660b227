//! The state of the review: what there is to decide, what was decided, where the person looks. Pure: what was read and keys come
//! in, an effect comes out. Only what has a mark of its own is committed or told to the agent; everything else waits.

use std::path::{Path, PathBuf};

use cofferdam_workspace::Conflict;
use cofferdam_workspace::diff::Hunk;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};

use crate::commands::review::content::{self, Content, Line, Look};
use crate::commands::selection::Item;
use crate::full_screen::is_interrupt;
use crate::render::changes::name;

/// Narrower terminals show one pane.
pub(super) const BOTH_PANES: u16 = 80;
/// Characters of a text that is searched for.
const LONGEST_SEARCH: usize = 60;
/// Of an answer, which is a word.
const LONGEST_ANSWER: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mark {
    #[default]
    Open,
    Accepted,
    Rejected,
    /// Looked at: it waits, and is not shown as new.
    Reviewed,
}

/// One item and what was decided about it.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) item: Item<'a>,
    mark: Mark,
    /// Where its hunks have marks of their own.
    parts: Option<(Vec<Hunk>, Vec<Mark>)>,
}

impl Entry<'_> {
    /// `None` where its hunks have different ones.
    pub(super) fn mark(&self) -> Option<Mark> {
        let Some((_, marks)) = &self.parts else { return Some(self.mark) };
        let first = marks.first().copied().unwrap_or_default();
        marks.iter().all(|mark| *mark == first).then_some(first)
    }

    pub(super) fn parts(&self) -> Option<(&[Hunk], &[Mark])> {
        self.parts.as_ref().map(|(hunks, marks)| (hunks.as_slice(), marks.as_slice()))
    }

    fn set(&mut self, mark: Mark) {
        self.mark = mark;
        if let Some((_, marks)) = &mut self.parts {
            marks.fill(mark);
        }
    }

    /// What was decided, also in part, stays when many are decided at once.
    fn is_undecided(&self) -> bool {
        matches!(self.mark(), Some(Mark::Open | Mark::Reviewed))
    }

    /// It is not decided with others.
    fn needs_its_own(&self) -> bool {
        self.item.conflict().is_some() || !self.item.opened.is_empty()
    }

    /// Hunks that have all one mark need not be kept.
    fn fold(&mut self) {
        if let Some(mark) = self.mark() {
            self.mark = mark;
            self.parts = None;
        }
    }
}

fn is_below(item: &Item<'_>, tree: usize, directory: &Path) -> bool {
    item.tree == tree && item.change.path.starts_with(directory)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pane {
    Files,
    Hunks,
}

/// What is asked. The first three take the word `yes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Question {
    /// To take what host programs obey without being asked.
    Opens,
    Commit,
    RollBack,
    /// Which name is looked for.
    Search,
    /// What becomes of all that is undecided below this directory, by a key.
    Below(PathBuf),
    /// Whether the marks are given up, by a key.
    Leave,
}

/// What a key leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    Commit,
    Leave,
    RollBack,
}

#[derive(Debug)]
pub(super) struct Review<'a> {
    pub(super) entries: Vec<Entry<'a>>,
    pub(super) selected: usize,
    pub(super) pane: Pane,
    pub(super) hunk: usize,
    pub(super) scroll: usize,
    pub(super) message: String,
    /// The question, and what was typed to it.
    pub(super) asked: Option<(Question, String)>,
    /// The first line of the list of keys, where that is shown instead.
    pub(super) help: Option<usize>,
    /// In small letters; empty before the first search.
    searched: String,
    /// Of the selected item, once it was read.
    content: Option<Content>,
    lines: Vec<Line>,
    pub(super) rows: Vec<Line>,
    /// Columns and rows for the lines.
    room: (usize, usize),
}

impl<'a> Review<'a> {
    pub(super) fn new(items: Vec<Item<'a>>) -> Self {
        let entries = items.into_iter().map(|item| Entry { item, mark: Mark::Open, parts: None }).collect();
        Review {
            entries,
            selected: 0,
            pane: Pane::Files,
            hunk: 0,
            scroll: 0,
            message: String::new(),
            asked: None,
            help: None,
            searched: String::new(),
            content: None,
            lines: Vec::new(),
            rows: Vec::new(),
            room: (0, 0),
        }
    }

    /// The item that has to be read before the next picture.
    pub(super) fn unread(&self) -> Option<&Item<'a>> {
        self.entries.get(self.selected).filter(|_| self.content.is_none()).map(|entry| &entry.item)
    }

    pub(super) fn show(&mut self, content: Content) {
        let Some(entry) = self.entries.get_mut(self.selected) else { return };
        if content.can_split && entry.parts.is_none() {
            entry.parts = Some((content.hunks.clone(), vec![entry.mark; content.hunks.len()]));
        }
        // Those that decisions are about are shown: two comparisons need not find the same.
        let hunks = entry.parts.as_ref().map_or(&content.hunks, |(hunks, _)| hunks);
        self.lines = content::lines(&content.words, hunks);
        self.content = Some(content);
        self.fold_lines();
    }

    /// The room that the picture has for lines.
    pub(super) fn set_room(&mut self, columns: usize, rows: usize) {
        let is_other = self.room.0 != columns;
        self.room = (columns, rows);
        if is_other {
            self.fold_lines();
        }
    }

    fn fold_lines(&mut self) {
        // Marks stand before a position.
        self.rows = content::rows(&self.lines, self.room.0);
        self.scroll_to_hunk();
    }

    pub(super) fn entry(&self) -> Option<&Entry<'a>> {
        self.entries.get(self.selected)
    }

    /// How many have each mark: accepted, rejected, reviewed, and those that are decided in part.
    pub(super) fn counts(&self) -> [usize; 4] {
        let of = |mark: Option<Mark>| self.entries.iter().filter(|entry| entry.mark() == mark).count();
        [of(Some(Mark::Accepted)), of(Some(Mark::Rejected)), of(Some(Mark::Reviewed)), of(None)]
    }

    fn can_split(&self) -> bool {
        self.content.as_ref().is_some_and(|content| content.can_split)
    }

    fn hunk_count(&self) -> usize {
        self.entry()
            .and_then(Entry::parts)
            .map_or_else(|| self.content.as_ref().map_or(0, |content| content.hunks.len()), |(hunks, _)| hunks.len())
    }

    fn select(&mut self, at: usize) {
        let at = at.min(self.entries.len().saturating_sub(1));
        if at == self.selected {
            return;
        }
        if let Some(entry) = self.entries.get_mut(self.selected) {
            entry.fold();
        }
        self.selected = at;
        (self.hunk, self.scroll, self.content) = (0, 0, None);
        self.lines.clear();
        self.rows.clear();
    }

    fn go_to_hunk(&mut self, hunk: usize) {
        self.hunk = hunk.min(self.hunk_count().saturating_sub(1));
        self.scroll_to_hunk();
    }

    fn scroll_to_hunk(&mut self) {
        let is_begin = |row: &Line| row.look == Look::Position && row.hunk == Some(self.hunk);
        let begin = self.rows.iter().position(is_begin).unwrap_or(0);
        // What is said of the file stands before its first hunk.
        self.scroll = if self.hunk == 0 { 0 } else { begin };
        self.clamp();
    }

    fn clamp(&mut self) {
        self.scroll = self.scroll.min(self.rows.len().saturating_sub(self.room.1));
    }

    fn page(&mut self, is_down: bool) {
        self.scroll = self.a_page_from(self.scroll, is_down);
        self.clamp();
    }

    fn a_page_from(&self, at: usize, is_down: bool) -> usize {
        let step = self.room.1.saturating_sub(2).max(1);
        if is_down { at + step } else { at.saturating_sub(step) }
    }

    fn end(&mut self, is_last: bool) {
        let at = if is_last { usize::MAX } else { 0 };
        match self.pane {
            Pane::Files => self.select(at),
            Pane::Hunks => {
                self.go_to_hunk(at);
                self.scroll = at;
                self.clamp();
            }
        }
    }

    /// The next item after the selected one, or before it, with a name that the searched text is part of.
    fn find(&mut self, is_down: bool) {
        if self.searched.is_empty() {
            "nothing was searched for yet: [/]".clone_into(&mut self.message);
            return;
        }
        let has_it = |at: &usize| {
            let is_named = |path: &Path| path.to_string_lossy().to_lowercase().contains(&self.searched);
            self.entries.get(*at).is_some_and(|entry| entry.item.all().any(|change| is_named(&change.path)))
        };
        let (after, until) = (self.selected + 1..self.entries.len(), 0..self.selected);
        let found = if is_down { after.chain(until).find(has_it) } else { until.rev().chain(after.rev()).find(has_it) };
        match found {
            Some(at) => self.select(at),
            None if has_it(&self.selected) => "no other name has it".clone_into(&mut self.message),
            None => self.message = format!("no name has `{}` in it", name(Path::new(&self.searched))),
        }
    }

    fn step(&mut self, is_down: bool) {
        let next = |at: usize| if is_down { at + 1 } else { at.saturating_sub(1) };
        match self.pane {
            Pane::Files => self.select(next(self.selected)),
            Pane::Hunks if self.hunk_count() > 1 => self.go_to_hunk(next(self.hunk)),
            // One hunk, or words: they are read line by line.
            Pane::Hunks => {
                self.scroll = next(self.scroll);
                self.clamp();
            }
        }
    }

    pub(super) fn key(&mut self, key: KeyCode, modifiers: KeyModifiers) -> Effect {
        if is_interrupt(key, modifiers) {
            return Effect::Leave;
        }
        if let Some((question, typed)) = self.asked.take() {
            return match question {
                Question::Below(directory) => {
                    self.answer_about(&directory, key);
                    Effect::Nothing
                }
                Question::Leave => self.answer_about_leaving(key),
                question => self.typed(question, typed, key),
            };
        }
        if let Some(first) = self.help.take() {
            self.help = match key {
                KeyCode::Down | KeyCode::Char('j') => Some(first + 1),
                KeyCode::Up | KeyCode::Char('k') => Some(first.saturating_sub(1)),
                KeyCode::PageDown | KeyCode::Char(' ') => Some(self.a_page_from(first, true)),
                KeyCode::PageUp | KeyCode::Char('b') => Some(self.a_page_from(first, false)),
                _ => None,
            };
            return Effect::Nothing;
        }
        self.message.clear();
        match key {
            KeyCode::PageDown if self.pane == Pane::Files => self.select(self.a_page_from(self.selected, true)),
            KeyCode::PageUp if self.pane == Pane::Files => self.select(self.a_page_from(self.selected, false)),
            KeyCode::Home | KeyCode::Char('g') => self.end(false),
            KeyCode::End | KeyCode::Char('G') => self.end(true),
            KeyCode::Char('/') => self.asked = Some((Question::Search, String::new())),
            KeyCode::Char('n') => self.find(true),
            KeyCode::Char('N') => self.find(false),
            KeyCode::Char('?') => self.help = Some(0),
            KeyCode::Down | KeyCode::Char('j') => self.step(true),
            KeyCode::Up | KeyCode::Char('k') => self.step(false),
            KeyCode::PageDown | KeyCode::Char(' ') => self.page(true),
            KeyCode::PageUp | KeyCode::Char('b') => self.page(false),
            KeyCode::Tab => self.pane = if self.pane == Pane::Files { Pane::Hunks } else { Pane::Files },
            KeyCode::Left | KeyCode::Char('h') | KeyCode::Esc => self.pane = Pane::Files,
            KeyCode::Right | KeyCode::Char('l') | KeyCode::Enter => self.pane = Pane::Hunks,
            KeyCode::Char(key) if modifiers.difference(KeyModifiers::SHIFT).is_empty() => {
                return self.decide(key);
            }
            _ => {}
        }
        Effect::Nothing
    }

    fn decide(&mut self, key: char) -> Effect {
        match key {
            'a' => self.accept(),
            'r' => self.mark(Mark::Rejected),
            'v' => self.mark(Mark::Reviewed),
            'w' => self.mark(Mark::Open),
            'A' => self.decide_all(Mark::Accepted, |_| true),
            'd' => self.ask_about_directory(),
            'D' => self.asked = Some((Question::RollBack, String::new())),
            'q' if !self.has_marks() => return Effect::Leave,
            'q' => self.asked = Some((Question::Leave, String::new())),
            'c' => self.ask_to_commit(),
            _ => {}
        }
        Effect::Nothing
    }

    fn ask_to_commit(&mut self) {
        if self.has(|mark| matches!(mark, Mark::Accepted | Mark::Rejected)) {
            // Letters that a terminal answers to a query of the workload are no yes.
            self.asked = Some((Question::Commit, String::new()));
        } else {
            "nothing is accepted or rejected yet; [q] leaves everything waiting".clone_into(&mut self.message);
        }
    }

    /// Something would be lost with the screen.
    pub(super) fn has_marks(&self) -> bool {
        self.has(|mark| mark != Mark::Open)
    }

    fn has(&self, is_meant: impl Fn(Mark) -> bool) -> bool {
        self.entries.iter().any(|entry| match &entry.parts {
            Some((_, marks)) => marks.iter().any(|mark| is_meant(*mark)),
            None => is_meant(entry.mark),
        })
    }

    fn answer_about_leaving(&mut self, key: KeyCode) -> Effect {
        match key {
            KeyCode::Char('q') => return Effect::Leave,
            KeyCode::Char('c') => self.ask_to_commit(),
            _ => {}
        }
        Effect::Nothing
    }

    fn ask_about_directory(&mut self) {
        let Some(entry) = self.entry() else { return };
        let directory = entry.item.change.path.parent().unwrap_or(Path::new("")).to_owned();
        self.asked = Some((Question::Below(directory), String::new()));
    }

    fn answer_about(&mut self, directory: &Path, key: KeyCode) {
        match key {
            KeyCode::Char('a') => self.decide_below(directory, Mark::Accepted),
            KeyCode::Char('r') => self.decide_below(directory, Mark::Rejected),
            KeyCode::Char('d') => {
                let above = directory.parent().map_or_else(PathBuf::new, Path::to_owned);
                self.asked = Some((Question::Below(above), String::new()));
            }
            _ => {}
        }
    }

    fn decide_below(&mut self, directory: &Path, mark: Mark) {
        let Some(tree) = self.entry().map(|entry| entry.item.tree) else { return };
        self.decide_all(mark, |item| is_below(item, tree, directory));
    }

    /// How many a decision about this directory is about.
    pub(super) fn undecided_below(&self, directory: &Path) -> usize {
        let Some(tree) = self.entry().map(|entry| entry.item.tree) else { return 0 };
        let below = self.entries.iter().filter(|entry| is_below(&entry.item, tree, directory));
        below.filter(|entry| entry.is_undecided() && !entry.needs_its_own()).count()
    }

    fn accept(&mut self) {
        let Some(item) = self.entry().map(|entry| &entry.item) else { return };
        if let Some(conflict) = item.conflict() {
            let message = match conflict {
                Conflict::Repository => {
                    "your branches and index stay: with the objects that you take, the session's commits get a branch"
                }
                _ => {
                    "a conflict waits: `sandbox commit` with its name and --merge merges both, --overwrite takes the session's"
                }
            };
            message.clone_into(&mut self.message);
        } else if item.opened.is_empty() {
            self.mark(Mark::Accepted);
        } else {
            self.asked = Some((Question::Opens, String::new()));
        }
    }

    /// The hunk, or the item where the person looks at the files or it is decided as a whole. Then the next.
    fn mark(&mut self, mark: Mark) {
        let (is_of_hunk, hunk) = (self.pane == Pane::Hunks && self.can_split(), self.hunk);
        let Some(entry) = self.entries.get_mut(self.selected) else { return };
        match &mut entry.parts {
            Some((_, marks)) if is_of_hunk => {
                if let Some(one) = marks.get_mut(hunk) {
                    *one = mark;
                }
                self.go_to_hunk(hunk + 1);
            }
            _ => {
                entry.set(mark);
                if self.pane == Pane::Files && self.selected + 1 < self.entries.len() {
                    self.select(self.selected + 1);
                }
            }
        }
    }

    fn decide_all(&mut self, mark: Mark, is_meant: impl Fn(&Item<'_>) -> bool) {
        let (mut decided, mut opened, mut conflicts) = (0, 0, 0);
        for entry in self.entries.iter_mut().filter(|entry| is_meant(&entry.item) && entry.is_undecided()) {
            if entry.item.conflict().is_some() {
                conflicts += 1;
            } else if !entry.item.opened.is_empty() {
                opened += 1;
            } else {
                entry.set(mark);
                decided += 1;
            }
        }
        let word = if mark == Mark::Accepted { "accepted" } else { "rejected" };
        let mut said = vec![format!("{decided} {word}")];
        said.extend((opened > 0).then(|| format!("{opened} that host programs obey need their own yes")));
        said.extend((conflicts > 0).then(|| format!("{conflicts} in conflict wait")));
        self.message = said.join("; ");
    }

    fn typed(&mut self, question: Question, mut typed: String, key: KeyCode) -> Effect {
        match key {
            KeyCode::Esc => return Effect::Nothing,
            KeyCode::Backspace => {
                typed.pop();
            }
            KeyCode::Char(c) if question == Question::Search && typed.chars().count() < LONGEST_SEARCH => typed.push(c),
            KeyCode::Char(c) if typed.len() < LONGEST_ANSWER => typed.push(c),
            KeyCode::Enter if question == Question::Search => {
                self.message.clear();
                self.searched = typed.to_lowercase();
                self.find(true);
                return Effect::Nothing;
            }
            KeyCode::Enter if typed == "yes" => match question {
                Question::RollBack => return Effect::RollBack,
                Question::Commit => return Effect::Commit,
                // Those are answered by a key.
                Question::Search | Question::Below(_) | Question::Leave => return Effect::Nothing,
                Question::Opens => {
                    if let Some(entry) = self.entries.get_mut(self.selected) {
                        entry.set(Mark::Accepted);
                    }
                    return Effect::Nothing;
                }
            },
            KeyCode::Enter => {
                "nothing was changed: it takes the word `yes`".clone_into(&mut self.message);
                return Effect::Nothing;
            }
            _ => {}
        }
        self.asked = Some((question, typed));
        Effect::Nothing
    }
}
