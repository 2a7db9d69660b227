//! The question in the same terminal as the program. Owns when it is shown, where, and who has the keys; does no I/O: bytes
//! of both sides and the time come in, bytes for both sides and answers come out. Driven by `relay`.
//!
//! ```text
//!   hidden --question, the user has not typed for a while--> shown, keys go to the program
//!   shown --the user does not type for a while--> shown, keys go to the panel
//!   shown --key while they go to the program--> the key is the program's, and the wait begins again
//!   shown --answer, of this or another client--> the next question, or hidden
//! ```
//!
//! Where a program writes line after line, the panel lies below its last line, and what it writes meanwhile is held back and
//! shown afterwards. Where a program draws the whole screen, its screen is made smaller and it goes on above the panel, until
//! the panel has the keys: from then on nothing but a question is drawn, so no user answers what a program made of it.

pub(crate) mod panel;
mod watcher;

use std::time::{Duration, Instant};

use cofferdam_kernel::timing::seconds_left;
use cofferdam_launcher::terminal::Size;
use cofferdam_wire::{Question, QuestionId, Verdict};

use crate::approvals::burst::Burst;
use crate::approvals::prompt::panel::{Action, Choices, Keys, View};
use crate::approvals::prompt::watcher::Watcher;

/// So long the user must not have typed before the panel is shown, and again before it takes keys.
const PAUSE: Duration = Duration::from_millis(700);

/// What follows a key sooner than this was not typed by a person who read the panel.
const KEY: Duration = Duration::from_millis(40);

/// A program that remembers a position in the terminal goes back to it soon.
const SAVED: Duration = Duration::from_millis(300);

/// Until the full size is given back: a program that was held up has to notice the smaller one first, or it would not
/// draw anew.
const REGROW: Duration = Duration::from_millis(250);

/// What is held back at most; then the programs inside wait, as they do for a slow terminal.
const MOST_HELD: usize = 1 << 20;

/// Lines that a program keeps, and the least terminal that has room for a panel besides.
const PROGRAM_ROWS: u16 = 4;
const LEAST: Size = Size { rows: 12, columns: 60 };

/// What comes out.
#[derive(Debug, Default)]
pub(crate) struct Out {
    pub(crate) screen: Vec<u8>,
    pub(crate) program: Vec<u8>,
    pub(crate) answers: Vec<(QuestionId, Verdict)>,
    /// The program's rows have changed.
    pub(crate) resized: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Below the last line, output held back.
    Below,
    /// Over the last lines of a smaller screen.
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown {
    how: How,
    rows: u16,
    /// When the panel gets the keys; none if it has them.
    keys_at: Option<Instant>,
    /// Right after an answer keys are neither the program's nor an answer to a question that the user has not read.
    after_answer: bool,
}

#[derive(Debug)]
pub(crate) struct Prompt {
    size: Size,
    questions: Vec<Question>,
    /// Those that were left to other clients.
    later: Vec<QuestionId>,
    choices: Choices,
    watcher: Watcher,
    saved_at: Option<Instant>,
    shown: Option<Shown>,
    /// Not to be shown for now: the session is stopped.
    paused: bool,
    /// What the program has less than the terminal.
    taken_rows: u16,
    regrow_at: Option<Instant>,
    last_typed: Option<Instant>,
    redraw_at: Option<Instant>,
    pressed: Option<(Vec<u8>, Instant)>,
    held: Vec<u8>,
    /// Where the terminal rings at questions.
    bell: Option<Burst>,
    out: Out,
}

impl Prompt {
    pub(crate) fn new(size: Size, bell: Option<Burst>) -> Self {
        Prompt {
            size,
            questions: Vec::new(),
            later: Vec::new(),
            choices: Choices::default(),
            watcher: Watcher::new(),
            saved_at: None,
            shown: None,
            paused: false,
            taken_rows: 0,
            regrow_at: None,
            last_typed: None,
            redraw_at: None,
            pressed: None,
            held: Vec::new(),
            bell,
            out: Out::default(),
        }
    }

    pub(crate) fn take_out(&mut self) -> Out {
        std::mem::take(&mut self.out)
    }

    /// The rows that the program may have.
    pub(crate) fn program_rows(&self) -> u16 {
        self.size.rows.saturating_sub(self.taken_rows).max(1)
    }

    /// Whether no more output can be taken for now.
    pub(crate) fn is_full(&self) -> bool {
        self.held.len() >= MOST_HELD
    }

    /// Whether a panel fits on the terminal.
    pub(crate) fn fits(&self) -> bool {
        self.size.rows >= LEAST.rows && self.size.columns >= LEAST.columns
    }

    /// A question, new or changed.
    pub(crate) fn ask(&mut self, question: &Question, now: Instant) {
        match self.questions.iter_mut().find(|known| known.id == question.id) {
            Some(known) => known.clone_from(question),
            None => self.questions.push(question.clone()),
        }
        self.draw(now);
        self.check_clock(now);
    }

    /// The user, a client or a hook has answered, or the time is over.
    pub(crate) fn settled(&mut self, id: QuestionId, now: Instant) {
        let is_shown = self.current().is_some_and(|question| question.id == id);
        self.questions.retain(|question| question.id != id);
        self.later.retain(|later| *later != id);
        if is_shown {
            self.next(now);
        } else {
            self.draw(now);
        }
    }

    /// Whether a question is shown, or waits to be.
    pub(crate) fn is_asking(&self) -> bool {
        self.shown.is_some() || self.current().is_some()
    }

    fn current(&self) -> Option<&Question> {
        self.waiting().next()
    }

    fn waiting(&self) -> impl Iterator<Item = &Question> {
        self.questions.iter().filter(|question| !self.later.contains(&question.id))
    }

    /// The next question, or the program's screen again.
    fn next(&mut self, now: Instant) {
        self.choices = Choices::default();
        self.pressed = None;
        let Some(shown) = &mut self.shown else { return };
        shown.keys_at = Some(now + PAUSE);
        shown.after_answer = true;
        if self.current().is_some() { self.let_go(now) } else { self.hide(now) }
    }

    /// The panel stays but has no keys: a program that draws goes on.
    fn let_go(&mut self, now: Instant) {
        let held = std::mem::take(&mut self.held);
        self.output(&held, now);
        self.draw(now);
    }

    /// What the program writes.
    pub(crate) fn output(&mut self, bytes: &[u8], now: Instant) {
        let mut rest = bytes;
        while let Some((byte, after)) = rest.split_first() {
            if self.shown.is_some_and(|shown| shown.how == How::Below || shown.keys_at.is_none()) {
                self.held.extend_from_slice(rest);
                return;
            }
            // Text that changes nothing, which is nearly all of it.
            let is_text = |byte: &u8| matches!(byte, 0x20..=0x7e | b'\r' | b'\n' | b'\t');
            if self.watcher.is_between() && is_text(byte) {
                let (text, after) = rest.split_at(rest.iter().position(|byte| !is_text(byte)).unwrap_or(rest.len()));
                self.out.screen.extend_from_slice(text);
                rest = after;
                continue;
            }
            self.follow(*byte, now);
            rest = after;
        }
        if self.shown.is_some() {
            self.draw(now);
        }
    }

    fn follow(&mut self, byte: u8, now: Instant) {
        let was_full_screen = self.watcher.is_full_screen();
        self.watcher.follow(byte);
        self.out.screen.push(byte);
        self.saved_at = if self.watcher.has_saved() { self.saved_at.or(Some(now)) } else { None };
        if self.shown.is_some() && was_full_screen && !self.watcher.is_full_screen() {
            // The screen below this one has come back, without a panel.
            self.shown = None;
            self.show(now);
        }
    }

    /// What the user types.
    pub(crate) fn typed(&mut self, bytes: &[u8], now: Instant) {
        self.last_typed = Some(now);
        let Some(shown) = &mut self.shown else {
            self.out.program.extend_from_slice(bytes);
            return;
        };
        if shown.keys_at.is_some() {
            shown.keys_at = Some(now + PAUSE);
            if shown.after_answer {
                return;
            }
            self.out.program.extend_from_slice(bytes);
            if shown.how == How::Below {
                // Or the user would not see what is typed.
                self.hide(now);
            }
            return;
        }
        if let Some((mut before, _)) = self.pressed.take() {
            before.extend_from_slice(bytes);
            return self.not_a_key(&before, now);
        }
        match bytes {
            // A key that sends several bytes, such as an arrow, means nothing here.
            [0x1b, _, ..] => {}
            [_] => self.pressed = Some((bytes.to_vec(), now + KEY)),
            _ => self.not_a_key(bytes, now),
        }
    }

    /// Faster than a person who has read the panel: it is meant for the program.
    fn not_a_key(&mut self, bytes: &[u8], now: Instant) {
        self.out.program.extend_from_slice(bytes);
        if let Some(shown) = &mut self.shown {
            (shown.keys_at, shown.after_answer) = (Some(now + PAUSE), false);
            if shown.how == How::Below { self.hide(now) } else { self.let_go(now) }
        }
    }

    fn press(&mut self, key: &[u8], now: Instant) {
        let (Some(question), Some(shown)) = (self.current().cloned(), self.shown) else { return };
        let view = self.view(shown);
        match self.choices.key(key, &question, view) {
            Action::Answer(verdict) => self.answer(question.id, verdict, now),
            Action::Interrupt => {
                self.out.program.extend_from_slice(key);
                self.answer(question.id, Verdict::DENY_ONCE, now);
            }
            Action::Later => {
                self.later.push(question.id);
                let was_below = self.shown.is_some_and(|shown| shown.how == How::Below);
                self.next(now);
                if was_below && self.shown.is_none() && self.watcher.is_between() {
                    self.write(&format!("\r\nsandbox: question {} waits: `sandbox inbox` shows it\r\n", question.id));
                }
            }
            Action::Redraw => self.draw(now),
            Action::Nothing => {}
        }
    }

    fn answer(&mut self, id: QuestionId, verdict: Verdict, now: Instant) {
        self.out.answers.push((id, verdict));
        self.settled(id, now);
    }

    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let keys_at = self.shown.and_then(|shown| shown.keys_at).filter(|_| self.watcher.is_between());
        let pressed = self.pressed.as_ref().map(|(_, at)| *at);
        let show_at = self.current().filter(|_| self.shown.is_none()).and_then(|_| self.show_at(now));
        [keys_at, pressed, self.regrow_at, self.redraw_at, show_at].into_iter().flatten().min()
    }

    /// When the panel may be shown; none if something else has to happen first.
    fn show_at(&self, now: Instant) -> Option<Instant> {
        if self.paused || !self.watcher.is_between() || !self.fits() {
            return None;
        }
        let typed = self.last_typed.map(|at| at + PAUSE);
        let saved = self.saved_at.map(|at| at + SAVED);
        [typed, saved].into_iter().flatten().max().or(Some(now))
    }

    pub(crate) fn check_clock(&mut self, now: Instant) {
        let over = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        if self.pressed.as_ref().is_some_and(|(_, at)| now >= *at)
            && let Some((key, _)) = self.pressed.take()
        {
            self.press(&key, now);
        }
        if let Some(shown) = &mut self.shown
            && over(shown.keys_at)
            && self.watcher.is_between()
        {
            (shown.keys_at, shown.after_answer) = (None, false);
            self.draw(now);
        }
        if over(self.redraw_at) {
            self.draw(now);
        }
        if over(self.regrow_at) {
            self.regrow_at = None;
            self.take_rows(0);
        }
        let is_time = || self.show_at(now).is_some_and(|at| now >= at || at.saturating_duration_since(now) < KEY);
        if self.shown.is_none() && self.current().is_some() && is_time() {
            self.show(now);
        }
    }

    pub(crate) fn resize(&mut self, size: Size, now: Instant) {
        let before = self.size;
        self.size = size;
        self.out.resized = true;
        let Some(shown) = self.shown else { return };
        if shown.how == How::Below {
            // Whatever the terminal made of it, the panel is below the cursor.
            self.write("\x1bD\x1b[A\x1b7\x1b[m\x1b[B\r\x1b[J\x1b8");
        } else if before.rows < size.rows {
            self.clear_rows(before.rows - shown.rows, before.rows);
        }
        self.shown = None;
        if self.fits() { self.show(now) } else { self.give_back(now) }
    }

    /// Nothing is asked here while the session is stopped.
    pub(crate) fn pause(&mut self, now: Instant) {
        self.paused = true;
        self.hide(now);
        self.regrow_at = None;
        self.take_rows(0);
    }

    pub(crate) fn resume(&mut self, now: Instant) {
        self.paused = false;
        self.last_typed = Some(now);
    }

    fn show(&mut self, now: Instant) {
        let how = if self.watcher.is_full_screen() { How::Over } else { How::Below };
        self.regrow_at = None;
        self.pressed = None;
        self.shown = Some(Shown { how, rows: 0, keys_at: Some(now + PAUSE), after_answer: false });
        if let Some(id) = self.current().map(|question| question.id) {
            let ring = if self.bell.as_mut().is_some_and(|bell| bell.begins(id, now)) { "\x07" } else { "" };
            self.write(ring);
        }
        self.draw(now);
    }

    fn hide(&mut self, now: Instant) {
        let Some(shown) = self.shown.take() else { return };
        self.clear_rows(self.size.rows - shown.rows, self.size.rows);
        self.give_back(now);
    }

    /// The program's screen again, with what was held back.
    fn give_back(&mut self, now: Instant) {
        self.redraw_at = None;
        self.pressed = None;
        if !self.watcher.hides_cursor() {
            self.write("\x1b[?25h");
        }
        self.regrow_at = (self.taken_rows > 0).then(|| now + REGROW);
        for byte in std::mem::take(&mut self.held) {
            self.follow(byte, now);
        }
    }

    fn take_rows(&mut self, rows: u16) {
        if self.taken_rows != rows {
            self.taken_rows = rows;
            self.out.resized = true;
        }
    }

    fn draw(&mut self, now: Instant) {
        // In the middle of a sequence of the program's: the rest of it brings us here again.
        let Some(shown) = self.shown.filter(|_| self.watcher.is_between()) else { return };
        let Some(question) = self.current() else { return };
        let lines = self.choices.lines(question, self.view(shown));
        self.redraw_at = question.until.map(|_| now + Duration::from_secs(1));
        let rows = u16::try_from(lines.len()).unwrap_or(self.size.rows).min(self.size.rows - 1);
        if rows != shown.rows {
            self.make_room(shown, rows);
        }
        self.shown = Some(Shown { rows, ..shown });
        self.take_rows(rows);
        self.begin();
        for (row, line) in (self.size.rows - rows + 1..=self.size.rows).zip(&lines) {
            let is_title = row == self.size.rows - rows + 1;
            let width = usize::from(self.size.columns) - 1;
            let text = if is_title { format!("\x1b[7m{line:<width$}\x1b[m") } else { line.clone() };
            self.write(&format!("\x1b[{row};1H\x1b#5\x1b[2K{text}"));
        }
        self.write("\x1b8");
        let hidden = shown.keys_at.is_none() || self.watcher.hides_cursor();
        self.write(if hidden { "\x1b[?25l" } else { "\x1b[?25h" });
    }

    fn view(&self, shown: Shown) -> View {
        let until = self.current().and_then(|question| question.until);
        let seconds_left = until.map(seconds_left);
        View {
            // The last column stays empty: a terminal that is about to wrap is in a state of its own.
            columns: usize::from(self.size.columns) - 1,
            rows: usize::from(self.size.rows - PROGRAM_ROWS),
            place: (1, self.waiting().count()),
            seconds_left,
            keys: if shown.keys_at.is_some() { Keys::Program } else { Keys::Panel },
        }
    }

    /// Free lines at the bottom. Below a program's last line they are made by scrolling, as far as that is needed.
    fn make_room(&mut self, shown: Shown, rows: u16) {
        self.clear_rows(self.size.rows - shown.rows, self.size.rows);
        if shown.how == How::Below && rows > shown.rows {
            self.write(&"\x1bD".repeat(usize::from(rows)));
            self.write(&format!("\x1b[{rows}A"));
        }
    }

    /// The rows after `from`, up to `to`.
    fn clear_rows(&mut self, from: u16, to: u16) {
        if from == to {
            return;
        }
        self.begin();
        for row in from + 1..=to {
            self.write(&format!("\x1b[{row};1H\x1b[2K"));
        }
        self.write("\x1b8");
    }

    /// Before anything of ours. Position, colours, character set and origin are the program's, and come back with ESC 8. A
    /// title that was begun in a way only some terminals know, or a picture that is to be shown later, would hide the panel.
    fn begin(&mut self) {
        self.write("\x1b\\\x1b[?2026l\x1b7\x1b[?6l\x1b[m\x1b(B\x0f");
        if self.watcher.has_margins() {
            self.write("\x1b[?69l");
        }
    }

    fn write(&mut self, text: &str) {
        self.out.screen.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests;
