//! The state of the review: what there is to decide, what was decided, where the person looks. Pure: what was read and keys come
//! in, an effect comes out. Only what has a mark of its own is committed or told to the agent; everything else waits.

use cofferdam_workspace::diff::Hunk;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};

use crate::commands::review::content::{self, Content, Line, Look};
use crate::commands::selection::Item;
use crate::full_screen::is_interrupt;

/// Narrower terminals show one pane.
pub(super) const BOTH_PANES: u16 = 80;

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

    /// Hunks that have all one mark need not be kept.
    fn fold(&mut self) {
        if let Some(mark) = self.mark() {
            self.mark = mark;
            self.parts = None;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pane {
    Files,
    Hunks,
}

/// What a typed `yes` is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    /// To take what host programs obey without being asked.
    Opens,
    Commit,
    RollBack,
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
        let step = self.room.1.saturating_sub(2).max(1);
        self.scroll = if is_down { self.scroll + step } else { self.scroll.saturating_sub(step) };
        self.clamp();
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
            return self.typed(question, typed, key);
        }
        self.message.clear();
        match key {
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
            'A' => self.accept_all(),
            'D' => self.asked = Some((Question::RollBack, String::new())),
            'q' => return Effect::Leave,
            'c' if self.is_untouched() => {
                "nothing is accepted or rejected yet; [q] leaves everything waiting".clone_into(&mut self.message);
            }
            // Letters that a terminal answers to a query of the workload are no yes.
            'c' => self.asked = Some((Question::Commit, String::new())),
            _ => {}
        }
        Effect::Nothing
    }

    fn is_untouched(&self) -> bool {
        let is_decided = |mark: &Mark| matches!(mark, Mark::Accepted | Mark::Rejected);
        !self.entries.iter().any(|entry| match &entry.parts {
            Some((_, marks)) => marks.iter().any(is_decided),
            None => is_decided(&entry.mark),
        })
    }

    fn accept(&mut self) {
        let Some(item) = self.entry().map(|entry| &entry.item) else { return };
        if item.conflict().is_some() {
            "a conflict waits: `sandbox commit --overwrite PATH` takes the session's version"
                .clone_into(&mut self.message);
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

    fn accept_all(&mut self) {
        let (mut accepted, mut opened, mut conflicts) = (0, 0, 0);
        for entry in &mut self.entries {
            // What was decided, also in part, stays.
            if !matches!(entry.mark(), Some(Mark::Open | Mark::Reviewed)) {
                continue;
            }
            if entry.item.conflict().is_some() {
                conflicts += 1;
            } else if !entry.item.opened.is_empty() {
                opened += 1;
            } else {
                entry.set(Mark::Accepted);
                accepted += 1;
            }
        }
        let mut said = vec![format!("{accepted} accepted")];
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
            KeyCode::Char(c) if typed.len() < 8 => typed.push(c),
            KeyCode::Enter if typed == "yes" => match question {
                Question::RollBack => return Effect::RollBack,
                Question::Commit => return Effect::Commit,
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
