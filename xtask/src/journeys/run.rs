//! One run of a command, at a terminal of its own or without any: what it wrote and when, the questions that the sandbox asked, and how
//! it ended. Owns the clock and the keys that answer; judges nothing. Called by the walks.

use std::collections::BTreeMap;
use std::io::{PipeReader, pipe};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use crate::account::User;
use crate::journeys::plain::{Plain, squeezed};
use crate::problems::Problems;

const SIZE: Winsize = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
/// What an operator needs at the least to read a question.
const READING: Duration = Duration::from_secs(1);
/// Between a key and what shows that it was taken.
const TAKEN: Duration = Duration::from_secs(3);
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// A refusal that names one of these says what would help.
const HELP: [&str; 7] = ["--allow-host ", "--network ", "--rw ", "--ro ", "--preset ", "--env ", "--host-port "];

/// How a run ended, and what was noticed meanwhile.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    /// As a shell counts; none where it was ended for its time.
    pub(crate) code: Option<i32>,
    pub(crate) seconds: f64,
    /// The longest time without a byte of output.
    pub(crate) silent: f64,
    pub(crate) questions: Vec<String>,
    /// From the start until a line of the sandbox said which flag would help.
    pub(crate) help_after: Option<f64>,
    pub(crate) text: String,
}

impl Ended {
    pub(crate) fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// As one: the last is often a hint, and what failed stands before it.
    pub(crate) fn last_lines(&self) -> String {
        const MOST: usize = 4;
        let lines: Vec<&str> = self.text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if lines.is_empty() {
            "it says nothing".to_owned()
        } else {
            lines[lines.len().saturating_sub(MOST)..].join(" / ")
        }
    }
}

enum Output {
    Terminal(OwnedFd),
    Pipe(PipeReader),
}

impl Output {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Output::Terminal(screen) => screen.as_fd(),
            Output::Pipe(reader) => reader.as_fd(),
        }
    }
}

pub(crate) struct Run {
    child: Child,
    output: Output,
    plain: Plain,
    started: Instant,
    last_byte: Instant,
    /// Where what is looked for begins.
    mark: usize,
    silent: Duration,
    /// The program waits for us, so its silence is ours.
    is_idle: bool,
    questions: BTreeMap<u32, String>,
    /// The question that is about to be answered, and when.
    due: Option<(u32, Instant)>,
    answered: Option<(u32, Instant)>,
    answered_at: usize,
    /// The key of an answer, where it is offered; else it is `s`.
    answer: char,
    help_after: Option<Duration>,
}

impl Run {
    /// The command has to make the terminal its own (`setsid --ctty`).
    pub(crate) fn at_terminal(mut command: Command, user: &User, answer: char) -> Result<Self, Problems> {
        let failed = |e: rustix::io::Errno| Problems::one(format!("no terminal: {e}"));
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let screen = rustix::pty::openpt(flags).map_err(failed)?;
        rustix::pty::grantpt(&screen).and_then(|()| rustix::pty::unlockpt(&screen)).map_err(failed)?;
        let name = rustix::pty::ptsname(&screen, Vec::new()).map_err(failed)?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let inside = rustix::fs::open(&name, flags, Mode::empty()).map_err(failed)?;
        // As login does: the terminal is the user's.
        rustix::fs::fchown(&inside, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid))).map_err(failed)?;
        rustix::termios::tcsetwinsize(&inside, SIZE).map_err(failed)?;
        let end = || inside.try_clone().map_err(|e| Problems::one(format!("no terminal: {e}")));
        command.stdin(end()?).stdout(end()?).stderr(end()?);
        Run::start(&mut command, Output::Terminal(screen), answer)
    }

    /// As a service or a CI job runs it: no terminal, and nothing to read.
    pub(crate) fn without_terminal(mut command: Command) -> Result<Self, Problems> {
        let failed = |e: std::io::Error| Problems::one(format!("no pipe: {e}"));
        let (reader, writer) = pipe().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(failed)?).stderr(writer);
        Run::start(&mut command, Output::Pipe(reader), 'n')
    }

    fn start(command: &mut Command, output: Output, answer: char) -> Result<Self, Problems> {
        let started = Instant::now();
        let program = command.get_program().to_owned();
        let child = command.spawn().map_err(|e| Problems::one(format!("cannot start {}: {e}", program.display())))?;
        // Our copies of its end of the output, so that its end is seen.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Run {
            child,
            output,
            plain: Plain::default(),
            started,
            last_byte: started,
            mark: 0,
            silent: Duration::ZERO,
            is_idle: false,
            questions: BTreeMap::new(),
            due: None,
            answered: None,
            answered_at: 0,
            answer,
            help_after: None,
        })
    }

    /// Until it ends; after `limit` it is ended.
    pub(crate) fn end(mut self, limit: Duration) -> Result<Ended, Problems> {
        let failed = |e: std::io::Error| Problems::one(format!("cannot wait for a run: {e}"));
        let deadline = self.started + limit;
        let mut status = None;
        while status.is_none() && Instant::now() < deadline {
            self.turn()?;
            status = self.child.try_wait().map_err(failed)?;
        }
        let seconds = self.started.elapsed().as_secs_f64();
        if status.is_none() {
            self.kill()?;
        }
        // What it wrote last.
        while self.turn()? {}
        self.note_silence();
        let code = status.map(|status| status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
        Ok(Ended {
            code,
            seconds,
            silent: self.silent.as_secs_f64(),
            questions: std::mem::take(&mut self.questions).into_values().collect(),
            help_after: self.help_after.map(|after| after.as_secs_f64()),
            text: std::mem::take(&mut self.plain.text),
        })
    }

    /// Until one of these stands in what was written since the mark: its index. None when the time is over or the run has ended.
    pub(crate) fn wait_for(&mut self, wanted: &[&str], limit: Duration) -> Result<Option<usize>, Problems> {
        let deadline = Instant::now() + limit;
        let wanted: Vec<String> = wanted.iter().map(|text| squeezed(text)).collect();
        while Instant::now() < deadline {
            let is_open = self.turn()?;
            let shown = squeezed(&self.plain.text[self.mark..]);
            if let Some(found) = wanted.iter().position(|text| shown.contains(text)) {
                return Ok(Some(found));
            }
            let ended = self.child.try_wait().map_err(|e| Problems::one(format!("cannot wait for a run: {e}")))?;
            if ended.is_some() && !is_open {
                break;
            }
        }
        Ok(None)
    }

    /// Types; what is looked for from now on comes after it.
    pub(crate) fn keys(&mut self, keys: &str) -> Result<(), Problems> {
        self.mark = self.plain.text.len();
        self.write(keys.as_bytes())
    }

    /// Goes on reading for a while.
    pub(crate) fn pause(&mut self, time: Duration) -> Result<(), Problems> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.turn()?;
        }
        Ok(())
    }

    /// Whether the program waits for us from now on.
    pub(crate) fn set_idle(&mut self, is_idle: bool) {
        self.note_silence();
        self.is_idle = is_idle;
        self.last_byte = Instant::now();
    }

    pub(crate) fn elapsed(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    pub(crate) fn shown(&self) -> &str {
        &self.plain.text[self.mark..]
    }

    /// Reads what is there; whether anything came before the turn was over.
    fn turn(&mut self) -> Result<bool, Problems> {
        let failed = |e: rustix::io::Errno| Problems::one(format!("cannot read what a run writes: {e}"));
        let mut waiting = [PollFd::from_borrowed_fd(self.output.fd(), PollFlags::IN)];
        let ready = poll(&mut waiting, Some(&TURN)).map_err(failed)?;
        let mut came = false;
        if ready > 0 {
            let mut buffer = [0; 8192];
            match rustix::io::read(self.output.fd(), &mut buffer) {
                Ok(0) | Err(rustix::io::Errno::IO) => std::thread::sleep(Duration::from_millis(5)),
                Ok(length) => {
                    came = true;
                    self.note_silence();
                    self.last_byte = Instant::now();
                    let answers = self.plain.take(&buffer[..length]);
                    self.write(&answers)?;
                    self.note_help();
                }
                Err(error) => return Err(failed(error)),
            }
        }
        self.answer()?;
        Ok(came)
    }

    fn note_silence(&mut self) {
        if !self.is_idle {
            self.silent = self.silent.max(self.last_byte.elapsed());
        }
    }

    fn note_help(&mut self) {
        if self.help_after.is_none() {
            let mut said = self.plain.text.lines().filter(|line| line.trim_start().starts_with("sandbox: "));
            if said.any(|line| HELP.iter().any(|flag| line.contains(flag))) {
                self.help_after = Some(self.started.elapsed());
            }
        }
    }

    /// Answers a question once the keys are its own, and an operator would have read it.
    fn answer(&mut self) -> Result<(), Problems> {
        let Output::Terminal(_) = self.output else { return Ok(()) };
        if let Some((number, when)) = self.due {
            if Instant::now() >= when {
                let panel = self.panel().map(|(_, panel)| panel.to_owned()).unwrap_or_default();
                let key = if panel.contains(&format!("[{}]", self.answer)) { self.answer } else { 's' };
                self.due = None;
                self.answered = Some((number, Instant::now()));
                self.answered_at = self.plain.text.len();
                return self.write(key.to_string().as_bytes());
            }
            return Ok(());
        }
        let Some((number, panel)) = self.panel() else { return Ok(()) };
        let is_taken = |(answered, when): (u32, Instant)| answered == number && when.elapsed() < TAKEN;
        if !panel.contains("press a key") || self.answered.is_some_and(is_taken) {
            return Ok(());
        }
        let about = panel.lines().skip(1).map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
        self.questions.entry(number).or_insert(about);
        self.due = Some((number, Instant::now() + READING));
        Ok(())
    }

    /// The question that was drawn last since an answer: its number and its lines.
    fn panel(&self) -> Option<(u32, &str)> {
        const TITLE: &str = "sandbox: question ";
        let text = &self.plain.text[self.answered_at..];
        let panel = &text[text.rfind(TITLE)?..];
        let number = panel[TITLE.len()..].split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()?;
        Some((number, panel))
    }

    fn write(&self, mut bytes: &[u8]) -> Result<(), Problems> {
        let Output::Terminal(screen) = &self.output else { return Ok(()) };
        while !bytes.is_empty() {
            let written = rustix::io::write(screen, bytes);
            let written = written.map_err(|e| Problems::one(format!("cannot type at a terminal: {e}")))?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// The whole session of processes: asked first, then killed.
    fn kill(&mut self) -> Result<(), Problems> {
        let group = Pid::from_child(&self.child);
        for signal in [Signal::TERM, Signal::KILL] {
            // One that has just ended is no failure.
            if kill_process_group(group, signal).is_ok() {
                let until = Instant::now() + Duration::from_secs(4);
                while Instant::now() < until {
                    self.turn()?;
                    if matches!(self.child.try_wait(), Ok(Some(_))) {
                        return Ok(());
                    }
                }
            }
        }
        self.child.wait().map(drop).map_err(|e| Problems::one(format!("cannot end a run: {e}")))
    }
}

/// Flags that the sandbox's lines propose, each with its value.
pub(crate) fn proposed(text: &str) -> Vec<String> {
    let mut flags: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| line.trim_start().starts_with("sandbox: ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2) {
            let value = pair[1].trim_end_matches([',', ';', '.', ')', '`']);
            let is_flag = HELP.iter().any(|flag| flag.trim_end() == pair[0].trim_start_matches(['`', '(']));
            let is_value = !value.starts_with('-')
                && value.chars().any(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit());
            let flag = format!("{}={value}", pair[0].trim_start_matches(['`', '(']));
            if is_flag && is_value && !flags.contains(&flag) {
                flags.push(flag);
            }
        }
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_from_the_lines_of_the_sandbox_alone() {
        let text = "npm error --rw /no\nsandbox: no network here; npm usually needs --allow-host registry.npmjs.org\n\
             sandbox: denied read /x: not approved; show it with --ro /x, or `--preset node`\nsandbox: --rw PATH";
        assert_eq!(proposed(text), ["--allow-host=registry.npmjs.org", "--ro=/x", "--preset=node"]);
    }
}
