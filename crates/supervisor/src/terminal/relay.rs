//! Bytes between the user's terminal and the sandbox's, both ways, without ever blocking: a side that does not read makes
//! the other side wait, never the supervisor with its clock and its notifications. Owns raw mode and both buffers; termios
//! itself is `launcher::terminal`'s. Driven by the loop.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use cofferdam_kernel::signal::SignalFd;
use cofferdam_launcher::terminal::{Outer, is_line_mode, open_other_side, output, reopen};
use cofferdam_plan::Terminal;
use cofferdam_wire::{Question, QuestionId, Verdict};
use rustix::event::PollFlags;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::approvals::burst::Burst;
use crate::approvals::prompt::{Prompt, panel};
use crate::terminal::drain::{Drained, Patience, Waiting};
use crate::terminal::output::Allowance;

/// A person does not answer a prompt sooner.
const SECOND_LOOK: Duration = Duration::from_millis(30);

/// A person who brought a job to the foreground waits no longer for its question.
const LOOK_FOR_KEYS: Duration = Duration::from_millis(300);

/// More than the kernel holds for a terminal (64 KiB and a page): what comes after that was written after the command's end.
const MOST_LAST_BYTES: usize = 128 * 1024;

/// What `poll` has to say about the relay's descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    /// The sandbox's terminal: output to fetch, room for input, or both.
    Inner,
    Input,
    Output,
}

pub(crate) struct Relay {
    outer: Outer,
    /// The user's terminal again, with an own descriptor that can be non-blocking without changing the shell's.
    screen: Option<OwnedFd>,
    fallback: BorrowedFd<'static>,
    /// The user's terminal as a source of lines, where it is shared with other programs of a pipeline.
    lines: Option<OwnedFd>,
    /// When to see again whether the command wants single keys: programs prompt first and ask for them then.
    look_again: Option<Instant>,
    inner: Option<Inner>,
    raw: bool,
    input_open: bool,
    /// Bytes still to be read that were typed before raw mode.
    typed_ahead: usize,
    to_inside: Vec<u8>,
    to_outside: Vec<u8>,
    /// How much may be shown, where that is limited.
    allowance: Option<Rc<Allowance>>,
    last: Option<u8>,
    /// Questions on this terminal.
    prompt: Option<Prompt>,
    answers: Vec<(QuestionId, Verdict)>,
    /// The last question that was only told of.
    noticed: QuestionId,
    /// Those of them that are open: asked here once the terminal is this session's.
    elsewhere: Vec<Question>,
    /// When to see whether it is: a shell that brings a running job to the foreground sends no signal.
    look_for_keys: Option<Instant>,
    /// Raw mode is on for a question alone: the terminal is shared with other programs of a pipeline.
    raw_for_question: bool,
}

struct Inner {
    master: OwnedFd,
    /// Held so that a moment in which no process inside has the terminal open is no hang-up for those who open it again.
    _slave: OwnedFd,
}

impl Relay {
    pub(crate) fn new(outer: Outer, terminal: Terminal, allowance: Option<Rc<Allowance>>) -> Self {
        Relay {
            outer,
            screen: reopen(output(terminal), OFlags::WRONLY).ok(),
            lines: None,
            look_again: None,
            fallback: output(terminal),
            inner: None,
            raw: false,
            input_open: true,
            typed_ahead: 0,
            to_inside: Vec::new(),
            to_outside: Vec::new(),
            allowance,
            last: None,
            prompt: None,
            answers: Vec::new(),
            noticed: 0,
            elsewhere: Vec::new(),
            look_for_keys: None,
            raw_for_question: false,
        }
    }

    /// From now on questions can be asked on this terminal. To be called before the first output.
    pub(crate) fn answer_here(&mut self, bell: bool) -> Result<(), Errno> {
        let can_draw = std::env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb");
        if self.outer.is_input() && can_draw {
            self.prompt = Some(Prompt::new(self.outer.size()?, bell.then(Burst::default)));
        }
        Ok(())
    }

    /// Asks on the terminal; where the user cannot press keys for us, says how to answer elsewhere.
    pub(crate) fn ask(&mut self, session: &str, question: &Question) -> Result<(), Errno> {
        self.take_keys()?;
        match &mut self.prompt {
            Some(prompt) if self.raw && prompt.fits() => {
                prompt.ask(question, Instant::now());
                self.follow_prompt()
            }
            _ if question.id <= self.noticed => Ok(()),
            _ => {
                self.noticed = question.id;
                if self.prompt.is_some() {
                    self.elsewhere.push(question.clone());
                    self.look_for_keys = Some(Instant::now() + LOOK_FOR_KEYS);
                }
                self.tell(&panel::notice(session, question))
            }
        }
    }

    /// Single keys for a question, where the terminal gathers lines because other programs of a pipeline have it as well.
    fn take_keys(&mut self) -> Result<(), Errno> {
        let can_ask = self.prompt.is_some() && self.inner.is_some() && self.lines.is_some();
        if can_ask && !self.raw && self.outer.in_foreground() && !self.outer.is_taken() {
            self.typed_ahead = self.outer.make_raw()?;
            (self.raw, self.raw_for_question) = (true, true);
        }
        Ok(())
    }

    /// The terminal is this session's again, or may be: what is open is asked here.
    fn come_back(&mut self) -> Result<(), Errno> {
        let Some(prompt) = &mut self.prompt else { return Ok(()) };
        let waits = !self.elsewhere.is_empty() || prompt.is_asking();
        if waits {
            self.take_keys()?;
        }
        let Some(prompt) = &mut self.prompt else { return Ok(()) };
        if !self.raw {
            self.look_for_keys = waits.then(|| Instant::now() + LOOK_FOR_KEYS);
            if !waits {
                prompt.resume(Instant::now());
            }
            return Ok(());
        }
        let now = Instant::now();
        prompt.resume(now);
        if prompt.fits() {
            for question in std::mem::take(&mut self.elsewhere) {
                prompt.ask(&question, now);
            }
        }
        self.follow_prompt()
    }

    /// A line of its own on the terminal.
    pub(crate) fn tell(&mut self, line: &str) -> Result<(), Errno> {
        let begin = if matches!(self.last, None | Some(b'\n')) { "" } else { "\r\n" };
        let line = format!("{begin}{line}\r\n");
        self.last = Some(b'\n');
        match &mut self.prompt {
            Some(prompt) => prompt.output(line.as_bytes(), Instant::now()),
            None => self.to_outside.extend_from_slice(line.as_bytes()),
        }
        self.follow_prompt()
    }

    /// A question has an end.
    pub(crate) fn settled(&mut self, question: QuestionId) -> Result<(), Errno> {
        self.elsewhere.retain(|open| open.id != question);
        if let Some(prompt) = &mut self.prompt {
            prompt.settled(question, Instant::now());
        }
        self.follow_prompt()
    }

    /// What was answered on the terminal since the last call.
    pub(crate) fn answers(&mut self) -> Vec<(QuestionId, Verdict)> {
        std::mem::take(&mut self.answers)
    }

    fn follow_prompt(&mut self) -> Result<(), Errno> {
        let Some(prompt) = &mut self.prompt else { return Ok(()) };
        let out = prompt.take_out();
        self.to_outside.extend(out.screen);
        self.to_inside.extend(out.program);
        self.answers.extend(out.answers);
        if out.resized
            && let Some(inner) = &self.inner
        {
            self.outer.resize(inner.master.as_fd(), Some(prompt.program_rows()))?;
        }
        if self.raw_for_question && !prompt.is_asking() {
            self.raw_for_question = false;
            self.follow_inner()?;
        }
        Ok(())
    }

    /// The sandbox's terminal is there.
    pub(crate) fn open(&mut self, master: OwnedFd) -> Result<(), Errno> {
        let flags = rustix::fs::fcntl_getfl(&master)?;
        rustix::fs::fcntl_setfl(&master, flags | OFlags::NONBLOCK)?;
        let slave = open_other_side(&master)?;
        self.inner = Some(Inner { master, _slave: slave });
        self.enter_raw_mode()
    }

    /// What to poll for, besides errors.
    pub(crate) fn wanted(&self) -> Vec<(BorrowedFd<'_>, PollFlags, Ready)> {
        let Some(inner) = &self.inner else { return Vec::new() };
        let mut wanted = Vec::new();
        let mut of_inner = PollFlags::empty();
        let has_room = self.to_outside.is_empty() && !self.prompt.as_ref().is_some_and(Prompt::is_full);
        of_inner.set(PollFlags::IN, has_room);
        of_inner.set(PollFlags::OUT, !self.to_inside.is_empty());
        if !of_inner.is_empty() {
            wanted.push((inner.master.as_fd(), of_inner, Ready::Inner));
        }
        if !self.to_outside.is_empty() {
            wanted.push((self.screen(), PollFlags::OUT, Ready::Output));
        }
        let input = if self.raw { Some(rustix::stdio::stdin()) } else { self.lines.as_ref().map(AsFd::as_fd) };
        if let Some(input) = input.filter(|_| self.input_open && self.to_inside.is_empty()) {
            wanted.push((input, PollFlags::IN, Ready::Input));
        }
        wanted
    }

    pub(crate) fn turn(&mut self, ready: Ready) -> Result<(), Errno> {
        match ready {
            Ready::Inner => {
                self.give_input()?;
                self.fetch_output()?;
                self.show_output()
            }
            Ready::Output => self.show_output(),
            Ready::Input => {
                self.follow_inner()?;
                self.fetch_input()?;
                self.give_input()
            }
        }
    }

    fn screen(&self) -> BorrowedFd<'_> {
        self.screen.as_ref().map_or(self.fallback, AsFd::as_fd)
    }

    fn fetch_output(&mut self) -> Result<(), Errno> {
        let Some(inner) = self.inner.as_ref().filter(|_| self.to_outside.is_empty()) else { return Ok(()) };
        let mut buffer = [0u8; 16384];
        match rustix::io::read(&inner.master, &mut buffer) {
            Ok(0) | Err(Errno::IO) => self.inner = None,
            Ok(count) => {
                let passed = self.allowance.as_ref().map_or(count, |allowance| allowance.pass(count));
                self.last = buffer[..passed].last().copied().or(self.last);
                match &mut self.prompt {
                    Some(prompt) => {
                        prompt.output(&buffer[..passed], Instant::now());
                        self.follow_prompt()?;
                    }
                    None => self.to_outside.extend_from_slice(&buffer[..passed]),
                }
                self.look_again = self.lines.as_ref().map(|_| Instant::now() + SECOND_LOOK);
                self.follow_inner()?;
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    fn show_output(&mut self) -> Result<(), Errno> {
        // Without an own descriptor a write may block, and a short one blocks rarely.
        let most = if self.screen.is_some() { self.to_outside.len() } else { self.to_outside.len().min(256) };
        match rustix::io::write(self.screen(), &self.to_outside[..most]) {
            Ok(count) => drop(self.to_outside.drain(..count)),
            Err(Errno::INTR | Errno::AGAIN) => {}
            // No process reads any more: the command's output goes nowhere, as with any closed terminal.
            Err(Errno::PIPE | Errno::IO) => self.to_outside.clear(),
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    fn fetch_input(&mut self) -> Result<(), Errno> {
        let mut buffer = [0u8; 4096];
        if !self.raw && self.outer.is_taken() {
            // A pager at the end of the pipeline wants the keys.
            self.lines = None;
            return Ok(());
        }
        let input = self.lines.as_ref().filter(|_| !self.raw).map_or(rustix::stdio::stdin(), AsFd::as_fd);
        match rustix::io::read(input, &mut buffer) {
            Ok(0) if !self.raw => self.to_inside.push(self.outer.end_of_input()),
            Ok(0) | Err(Errno::IO) => self.input_open = false,
            Ok(count) => {
                // The kernel keeps an end-of-input key that was typed before raw mode as a zero byte.
                let early = count.min(self.typed_ahead);
                self.typed_ahead -= early;
                for byte in buffer[..early].iter_mut().filter(|byte| **byte == 0) {
                    *byte = self.outer.end_of_input();
                }
                match &mut self.prompt {
                    Some(prompt) => {
                        prompt.typed(&buffer[..count], Instant::now());
                        self.follow_prompt()?;
                    }
                    None => self.to_inside.extend_from_slice(&buffer[..count]),
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    fn give_input(&mut self) -> Result<(), Errno> {
        let Some(inner) = self.inner.as_ref().filter(|_| !self.to_inside.is_empty()) else { return Ok(()) };
        match rustix::io::write(&inner.master, &self.to_inside) {
            Ok(count) => drop(self.to_inside.drain(..count)),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::IO) => self.to_inside.clear(),
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    /// After the end: what the command wrote last may still lie in the buffers. What it left behind may go on writing, and that
    /// is not waited for.
    pub(crate) fn drain(&mut self, signals: &SignalFd, patience: Patience) -> Result<Drained, Errno> {
        let mut waiting = Waiting::new(patience);
        let mut taken = 0;
        self.end_prompt()?;
        loop {
            if taken < MOST_LAST_BYTES {
                self.fetch_output()?;
            }
            if self.to_outside.is_empty() {
                return Ok(Drained::All);
            }
            if let Some(given_up) = waiting.for_room(&[self.screen()], signals)? {
                return Ok(given_up);
            }
            waiting.moved();
            let before = self.to_outside.len();
            self.show_output()?;
            taken += before - self.to_outside.len();
        }
    }

    /// Nothing is asked here any more; what was held back is shown.
    fn end_prompt(&mut self) -> Result<(), Errno> {
        self.pause_prompt()?;
        self.prompt = None;
        Ok(())
    }

    /// The terminal as the program left it, for as long as another process has it.
    pub(crate) fn pause_prompt(&mut self) -> Result<(), Errno> {
        if let Some(prompt) = &mut self.prompt {
            prompt.pause(Instant::now());
        }
        self.follow_prompt()
    }

    /// Says that the rest is dropped, in the mode in which the shell finds the terminal.
    pub(crate) fn mark(&mut self) -> Result<(), Errno> {
        self.leave_raw_mode()?;
        let marker = self.allowance.as_ref().map(|allowance| allowance.marker(self.last)).unwrap_or_default();
        self.to_outside.extend_from_slice(marker.as_bytes());
        Ok(())
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        [self.look_again, self.look_for_keys, self.prompt.as_ref().and_then(|prompt| prompt.deadline(Instant::now()))]
            .into_iter()
            .flatten()
            .min()
    }

    pub(crate) fn check_clock(&mut self, now: Instant) -> Result<(), Errno> {
        if self.look_again.is_some_and(|at| now >= at) {
            self.look_again = None;
            self.follow_inner()?;
        }
        if self.look_for_keys.is_some_and(|at| now >= at) {
            self.look_for_keys = None;
            if self.inner.is_some() && !self.raw {
                self.enter_raw_mode()?;
            }
            self.come_back()?;
        }
        if let Some(prompt) = &mut self.prompt {
            prompt.check_clock(now);
        }
        self.follow_prompt()
    }

    /// With a shared terminal raw mode is for as long as the command itself asks for single keys, as a chooser does.
    fn follow_inner(&mut self) -> Result<(), Errno> {
        let Some(inner) = self.inner.as_ref().filter(|_| self.lines.is_some()) else { return Ok(()) };
        let wants_lines = is_line_mode(inner.master.as_fd());
        if self.raw && wants_lines && !self.raw_for_question {
            return self.leave_raw_mode();
        }
        if !self.raw && !wants_lines && self.outer.in_foreground() && !self.outer.is_taken() {
            self.typed_ahead = self.outer.make_raw()?;
            self.raw = true;
        }
        Ok(())
    }

    fn enter_raw_mode(&mut self) -> Result<(), Errno> {
        if !self.outer.is_input() || !self.outer.in_foreground() {
            return Ok(());
        }
        if self.outer.is_shared() {
            self.lines = reopen(rustix::stdio::stdin(), OFlags::RDONLY).ok();
        } else {
            self.typed_ahead = self.outer.make_raw()?;
            self.raw = true;
        }
        Ok(())
    }

    /// Gives the user's terminal back, as it was.
    pub(crate) fn leave_raw_mode(&mut self) -> Result<(), Errno> {
        if self.raw {
            self.outer.restore()?;
            self.raw = false;
        }
        self.raw_for_question = false;
        Ok(())
    }

    pub(crate) fn resume(&mut self) -> Result<(), Errno> {
        if self.inner.is_some() {
            self.enter_raw_mode()?;
        }
        self.come_back()?;
        self.resize()
    }

    pub(crate) fn resize(&mut self) -> Result<(), Errno> {
        let Some(prompt) = &mut self.prompt else {
            return self.inner.as_ref().map_or(Ok(()), |inner| self.outer.resize(inner.master.as_fd(), None));
        };
        prompt.resize(self.outer.size()?, Instant::now());
        self.follow_prompt()
    }
}
