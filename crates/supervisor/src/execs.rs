//! Execs of a session with an order: commands that a client starts, reads and signals, and that go on without it. Owns their
//! numbers, their streams and what is kept of them, and who waits for what; each is joined by `attach`, driven by the loop.

mod kept;
pub(crate) mod linger;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use cofferdam_kernel::best_effort;
use cofferdam_kernel::socket;
use cofferdam_kernel::timing::{seconds_now, time_until};
use cofferdam_launcher::join::{JoinRequest, word};
use cofferdam_wire::End;
use cofferdam_wire::exec::{ExecEnd, ExecId, ExecLimits, ExecRequest, ExecStatus, OutputStream};
use cofferdam_wire::protocol::{Event, MOST_CHUNK_BYTES};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Signal};

use crate::approvals::control_socket::ClientId;
use crate::execs::kept::{Gone, Kept};
use crate::limits::clock::GRACE;
use crate::terminal::output::Allowance;

/// Of execs that ended, so many are remembered.
const MOST_ENDED: usize = 64;

/// Read at once of one stream, so that none keeps the others waiting.
const PIECE: usize = 1 << 16;

/// After a piece that is smaller the stream is left alone so long.
const SMALL: usize = 1 << 12;
const PAUSE: Duration = Duration::from_millis(2);

/// The code of an exec whose helper could not say it: killed with its session.
const LOST: u8 = 137;
/// That of one that did not become a program.
pub(crate) const NOT_STARTED: u8 = 125;

/// Words of a command line that others are told of, and the bytes of each: of all execs together they fit a line, also where
/// every byte is escaped.
const MOST_WORDS: usize = 8;
const MOST_WORD_BYTES: usize = 128;

/// What `poll` has to say about an exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Output(OutputStream),
    Input,
    /// Where its helper says how it ended.
    Channel,
}

#[derive(Debug)]
pub(crate) struct Execs {
    /// That of the order, once it was started.
    pub(crate) first: Option<ExecId>,
    /// Why it was not.
    pub(crate) failed: Option<NotStarted>,
    all: Vec<Exec>,
    last: ExecId,
    /// Of each stream.
    kept: usize,
    allowance: Option<Rc<Allowance>>,
    followers: Vec<Follower>,
    waiting: Vec<(ClientId, ExecId)>,
    /// Clients that were told a part of a stream, and not that it has ended.
    behind: Vec<(ClientId, ExecId, OutputStream)>,
    told: Vec<(ClientId, Event)>,
    /// When the session ends, whatever its execs do.
    end_by: Option<Instant>,
}

/// Why a command did not become a program, and the exit code that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotStarted {
    pub(crate) why: String,
    pub(crate) code: u8,
}

/// Waits for what comes after an offset.
#[derive(Debug)]
struct Follower {
    client: ClientId,
    exec: ExecId,
    stream: OutputStream,
    from: u64,
}

#[derive(Debug)]
struct Exec {
    id: ExecId,
    argv: Vec<String>,
    started: f64,
    channel: Option<OwnedFd>,
    streams: [Stream; 2],
    input: Option<OwnedFd>,
    /// For its input, in this order.
    unwritten: Vec<Piece>,
    deadline: Option<Instant>,
    kill_at: Option<Instant>,
    /// It was killed, and its helper has this long to say so.
    give_up_at: Option<Instant>,
    timed_out: bool,
    failed: Option<String>,
    end: Option<ExecEnd>,
    /// That it ended was taken note of.
    is_noted: bool,
    /// Why the session ends while it runs.
    session_end: Option<End>,
    ended_at: Option<Instant>,
}

#[derive(Debug)]
struct Stream {
    source: Option<OwnedFd>,
    kept: Kept,
    /// By some client.
    read_to_end: bool,
    /// After a small piece: single bytes must not keep this process busy.
    not_before: Option<Instant>,
}

#[derive(Debug)]
struct Piece {
    client: ClientId,
    data: Vec<u8>,
    /// A part of it is in the pipe.
    begun: bool,
    end: bool,
}

impl Execs {
    pub(crate) fn new(kept: usize, limit: Option<u64>) -> Self {
        Execs {
            first: None,
            failed: None,
            all: Vec::new(),
            last: 0,
            kept,
            allowance: limit.map(Allowance::new),
            followers: Vec::new(),
            waiting: Vec::new(),
            behind: Vec::new(),
            told: Vec::new(),
            end_by: None,
        }
    }

    /// A number and streams for a command; it counts once [`Execs::add`] was called.
    pub(crate) fn make(&self, request: &ExecRequest) -> Result<(NewExec, JoinRequest), Errno> {
        let (channel, theirs) = socket::pair()?;
        let (input, reader) = if request.has_input {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            set_nonblocking(&writer)?;
            (Some(writer), reader)
        } else {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            (None, rustix::fs::openat(CWD, c"/dev/null", flags, Mode::empty())?)
        };
        let stream = || -> Result<(Stream, OwnedFd), Errno> {
            let (source, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            set_nonblocking(&source)?;
            Ok((
                Stream { source: Some(source), kept: Kept::new(self.kept), read_to_end: false, not_before: None },
                writer,
            ))
        };
        let ((stdout, to_stdout), (stderr, to_stderr)) = (stream()?, stream()?);
        let now = Instant::now();
        let exec = Exec {
            id: self.last + 1,
            argv: shortened(&request.argv),
            started: seconds_now(),
            channel: Some(channel),
            streams: [stdout, stderr],
            input,
            unwritten: Vec::new(),
            deadline: request.timeout_millis.and_then(|millis| now.checked_add(Duration::from_millis(millis))),
            kill_at: None,
            give_up_at: None,
            timed_out: false,
            failed: None,
            end: None,
            is_noted: false,
            session_end: None,
            ended_at: None,
        };
        let join = JoinRequest {
            argv: request.argv.clone(),
            cwd: request.cwd.clone(),
            environment: request.environment.clone(),
            limits: limits(request.limits),
            terminal: [false; 3],
            streams: [reader, to_stdout, to_stderr],
            channel: theirs,
        };
        Ok((NewExec(exec), join))
    }

    pub(crate) fn add(&mut self, NewExec(exec): NewExec) -> ExecId {
        self.last = exec.id;
        self.all.push(exec);
        self.forget_oldest();
        self.last
    }

    /// Those that ended first go first.
    fn forget_oldest(&mut self) {
        let ended = self.all.iter().filter(|exec| exec.end.is_some()).count();
        for _ in MOST_ENDED..ended {
            let first = self.all.iter().filter_map(|exec| exec.ended_at).min();
            self.all.retain(|exec| exec.ended_at.is_none() || exec.ended_at != first);
        }
    }

    pub(crate) fn wanted(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags, (ExecId, Ready))> {
        self.all
            .iter()
            .flat_map(|exec| exec.wanted().into_iter().map(|(fd, flags, ready)| (fd, flags, (exec.id, ready))))
    }

    pub(crate) fn turn(&mut self, (id, ready): (ExecId, Ready)) -> Result<(), Errno> {
        let Some(exec) = self.all.iter_mut().find(|exec| exec.id == id) else { return Ok(()) };
        match ready {
            Ready::Output(stream) => exec.fetch(stream, PIECE, self.allowance.as_deref())?,
            Ready::Input => self.told.extend(exec.feed()),
            Ready::Channel => {
                exec.hear(self.allowance.as_deref())?;
                self.told.extend(exec.feed());
            }
        }
        self.answer_waiting();
        self.forget_oldest();
        Ok(())
    }

    /// What was said to clients because of the last turns.
    pub(crate) fn take_told(&mut self) -> Vec<(ClientId, Event)> {
        std::mem::take(&mut self.told)
    }

    /// Its helper's report has ended: it became a program, or why not was said before, and its end follows.
    pub(crate) fn is_program(&mut self, id: ExecId) -> Result<bool, Errno> {
        let Some(exec) = self.all.iter_mut().find(|exec| exec.id == id) else { return Ok(false) };
        exec.hear(self.allowance.as_deref())?;
        self.told.extend(exec.feed());
        let is_program = exec.failed.is_none() && !matches!(exec.end, Some(ExecEnd::NotStarted { .. }));
        self.answer_waiting();
        Ok(is_program)
    }

    pub(crate) fn read(&mut self, client: ClientId, id: ExecId, stream: OutputStream, from: u64, follow: bool) {
        // One at a time for each client and stream.
        self.followers.retain(|known| (known.client, known.exec, known.stream) != (client, id, stream));
        self.followers.push(Follower { client, exec: id, stream, from });
        self.answer_followers(|one| !follow && (one.client, one.exec, one.stream) == (client, id, stream));
    }

    pub(crate) fn wait(&mut self, client: ClientId, id: ExecId) {
        self.waiting.retain(|known| *known != (client, id));
        self.waiting.push((client, id));
        self.answer_waiting();
    }

    pub(crate) fn give(&mut self, client: ClientId, id: ExecId, data: Vec<u8>, end: bool) -> Result<(), String> {
        let exec = self.find(id)?;
        if exec.input.is_none() || exec.unwritten.iter().any(|piece| piece.end) {
            return Err(format!("exec {id} takes no input"));
        }
        if exec.unwritten.iter().any(|piece| piece.client == client) {
            return Err(format!("exec {id} has not taken the last input yet"));
        }
        exec.unwritten.push(Piece { client, data, begun: false, end });
        let told = exec.feed();
        self.told.extend(told);
        Ok(())
    }

    pub(crate) fn signal(&mut self, id: ExecId, number: i32) -> Result<(), String> {
        let signal = Signal::from_named_raw(number).ok_or_else(|| format!("there is no signal {number}"))?;
        let exec = self.find(id)?;
        if exec.end.is_some() {
            return Err(format!("exec {id} has ended"));
        }
        exec.signal(signal);
        Ok(())
    }

    fn find(&mut self, id: ExecId) -> Result<&mut Exec, String> {
        self.all.iter_mut().find(|exec| exec.id == id).ok_or_else(|| unknown(id))
    }

    /// Asks all to end, and sees to it that they do.
    pub(crate) fn end_all(&mut self, signal: Signal) {
        let kill_at = Instant::now() + GRACE;
        self.end_by.get_or_insert(kill_at + GRACE / 4);
        for exec in self.all.iter_mut().filter(|exec| exec.end.is_none()) {
            exec.signal(signal);
            exec.signal(Signal::CONT);
            exec.kill_at.get_or_insert(kill_at);
        }
    }

    /// The session is on its way out. What runs is told so at its end, unless an operator or a client asked for it.
    pub(crate) fn session_ends(&mut self, reason: End) {
        if matches!(reason, End::Exited { .. } | End::Signalled { .. } | End::Killed { .. } | End::ClientGone) {
            return;
        }
        for exec in self.all.iter_mut().filter(|exec| exec.end.is_none()) {
            exec.session_end.get_or_insert(reason);
        }
    }

    /// Those that ended since this was asked last, with their command lines.
    pub(crate) fn take_ended(&mut self) -> Vec<(ExecId, Vec<String>)> {
        let ended = self.all.iter_mut().filter(|exec| exec.end.is_some() && !exec.is_noted);
        ended
            .map(|exec| {
                exec.is_noted = true;
                (exec.id, exec.argv.clone())
            })
            .collect()
    }

    pub(crate) fn is_any_running(&self) -> bool {
        self.all.iter().any(|exec| exec.end.is_none())
    }

    pub(crate) fn end_of(&self, id: ExecId) -> Option<&ExecEnd> {
        self.all.iter().find(|exec| exec.id == id)?.end.as_ref()
    }

    /// The last that may be written was written.
    pub(crate) fn is_over_limit(&self) -> bool {
        self.allowance.as_ref().is_some_and(|allowance| allowance.is_exceeded())
    }

    /// The next moment at which something is to be done.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let reading = self.all.iter().flat_map(|exec| &exec.streams).filter_map(|stream| stream.not_before);
        let running = self.all.iter().filter(|exec| exec.end.is_none());
        let ending = running.flat_map(|exec| [exec.deadline, exec.kill_at, exec.give_up_at]).flatten();
        reading.chain(ending).chain(self.end_by).min()
    }

    /// Whether the session is to be killed now.
    pub(crate) fn check_clock(&mut self, now: Instant) -> Result<bool, Errno> {
        for stream in self.all.iter_mut().flat_map(|exec| &mut exec.streams) {
            stream.not_before = stream.not_before.filter(|at| now < *at);
        }
        for exec in self.all.iter_mut().filter(|exec| exec.end.is_none()) {
            if exec.deadline.take_if(|at| now >= *at).is_some() {
                exec.timed_out = true;
                exec.signal(Signal::TERM);
                exec.signal(Signal::CONT);
                exec.kill_at.get_or_insert(now + GRACE);
            }
            if exec.kill_at.take_if(|at| now >= *at).is_some() {
                exec.signal(Signal::KILL);
                exec.give_up_at = Some(now + GRACE);
            }
            if exec.give_up_at.take_if(|at| now >= *at).is_some() {
                exec.has_ended(LOST, self.allowance.as_deref())?;
            }
        }
        self.answer_waiting();
        Ok(self.end_by.take_if(|at| now >= *at).is_some())
    }

    /// No process of the session is left: what lies in the pipes is all there is.
    pub(crate) fn finish(&mut self) -> Result<(), Errno> {
        for exec in &mut self.all {
            exec.finish(self.allowance.as_deref())?;
            self.told.extend(exec.feed());
        }
        self.answer_waiting();
        Ok(())
    }

    /// What gone clients waited for is told to no other.
    pub(crate) fn forget_clients(&mut self, is_there: impl Fn(ClientId) -> bool) {
        self.behind.retain(|(client, ..)| is_there(*client));
        self.waiting.retain(|(client, _)| is_there(*client));
        self.followers.retain(|follower| is_there(follower.client));
        for exec in &mut self.all {
            exec.unwritten.retain(|piece| piece.begun || is_there(piece.client));
        }
    }

    /// Whether a client has begun to read a stream, and not heard of its end.
    pub(crate) fn has_readers(&self) -> bool {
        !self.behind.is_empty()
    }

    /// Whether every stream was read to its end by some client.
    pub(crate) fn is_all_read(&self) -> bool {
        self.all.iter().all(|exec| exec.streams.iter().all(Stream::was_read))
    }

    pub(crate) fn status(&self) -> Vec<ExecStatus> {
        let one = |exec: &Exec| ExecStatus {
            exec: exec.id,
            argv: exec.argv.clone(),
            started: exec.started,
            end: exec.end.clone(),
            kept: exec.streams.each_ref().map(|stream| (stream.kept.first(), stream.kept.end())),
        };
        self.all.iter().map(one).collect()
    }

    fn answer_waiting(&mut self) {
        let execs = &self.all;
        let told = &mut self.told;
        self.waiting.retain(|(client, id)| {
            let event = match execs.iter().find(|exec| exec.id == *id) {
                Some(Exec { end: None, .. }) => return true,
                Some(Exec { end: Some(end), .. }) => Event::ExecEnd { exec: *id, end: end.clone() },
                None => Event::Refused { message: unknown(*id) },
            };
            told.push((*client, event));
            false
        });
        self.answer_followers(|_| false);
    }

    fn answer_followers(&mut self, at_once: impl Fn(&Follower) -> bool) {
        let followers = std::mem::take(&mut self.followers);
        for follower in followers {
            match self.answer_to(&follower, at_once(&follower)) {
                Some(event) => self.told.push((follower.client, event)),
                None => self.followers.push(follower),
            }
        }
    }

    fn answer_to(&mut self, follower: &Follower, at_once: bool) -> Option<Event> {
        let Follower { client, exec: id, stream, from } = *follower;
        let Some(exec) = self.all.iter_mut().find(|exec| exec.id == id) else {
            return Some(Event::Refused { message: unknown(id) });
        };
        let kept = &exec.stream(stream).kept;
        let end = kept.end();
        let data = match kept.read(from, MOST_CHUNK_BYTES) {
            Ok(data) => data,
            Err(Gone { first_kept }) => return Some(Event::Gone { exec: id, stream, first_kept }),
        };
        if data.is_empty() && exec.end.is_none() && !at_once {
            return None;
        }
        let ended = exec.end.is_some() && from.saturating_add(data.len() as u64) >= end;
        self.behind.retain(|known| *known != (client, id, stream));
        if ended {
            exec.stream(stream).read_to_end |= from <= end;
        } else {
            self.behind.push((client, id, stream));
        }
        Some(Event::Output { exec: id, stream, from, data, ended })
    }
}

/// An exec that is not counted yet.
#[derive(Debug)]
pub(crate) struct NewExec(Exec);

impl NewExec {
    pub(crate) fn id(&self) -> ExecId {
        self.0.id
    }
}

impl Exec {
    fn stream(&mut self, stream: OutputStream) -> &mut Stream {
        &mut self.streams[stream as usize]
    }

    fn wanted(&self) -> Vec<(BorrowedFd<'_>, PollFlags, Ready)> {
        let source = |stream: OutputStream| {
            let Stream { source, not_before: None, .. } = &self.streams[stream as usize] else { return None };
            let source = source.as_ref()?;
            Some((source.as_fd(), PollFlags::IN, Ready::Output(stream)))
        };
        let input = self.input.as_ref().filter(|_| !self.unwritten.is_empty());
        let input = input.map(|input| (input.as_fd(), PollFlags::OUT, Ready::Input));
        let channel = self.channel.as_ref().map(|channel| (channel.as_fd(), PollFlags::IN, Ready::Channel));
        // The end comes last.
        let [stdout, stderr] = OutputStream::BOTH.map(source);
        [input, stdout, stderr, channel].into_iter().flatten().collect()
    }

    /// At most so many bytes of what it wrote.
    fn fetch(&mut self, stream: OutputStream, most: usize, allowance: Option<&Allowance>) -> Result<(), Errno> {
        let Stream { source, kept, not_before, .. } = self.stream(stream);
        let Some(fd) = source else { return Ok(()) };
        let mut buffer = vec![0; most];
        match rustix::io::read(&*fd, buffer.as_mut_slice()) {
            Ok(0) => *source = None,
            Ok(count) => {
                kept.add(&buffer[..allowance.map_or(count, |allowance| allowance.pass(count))]);
                *not_before = (count < SMALL).then(|| Instant::now() + PAUSE);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    /// What lies in the pipes now. Processes that it left behind may go on to write.
    fn fetch_rest(&mut self, allowance: Option<&Allowance>) -> Result<(), Errno> {
        for stream in OutputStream::BOTH {
            let source = self.stream(stream).source.as_ref();
            let left = source.map_or(Ok(0), rustix::io::ioctl_fionread)?;
            if left > 0 {
                self.fetch(stream, usize::try_from(left).unwrap_or(PIECE), allowance)?;
            }
        }
        Ok(())
    }

    fn hear(&mut self, allowance: Option<&Allowance>) -> Result<(), Errno> {
        while let Some(channel) = &self.channel {
            let (bytes, _) = match socket::receive_now(channel) {
                Err(Errno::AGAIN) => return Ok(()),
                // What cannot be heard ends this exec, and no other.
                other => other.unwrap_or_default(),
            };
            match bytes.as_slice() {
                [word::FAILED, text @ ..] => self.failed = Some(String::from_utf8_lossy(text).into_owned()),
                [word::ENDED, code] => self.has_ended(*code, allowance)?,
                [] => self.has_ended(LOST, allowance)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn has_ended(&mut self, code: u8, allowance: Option<&Allowance>) -> Result<(), Errno> {
        self.channel = None;
        self.input = None;
        self.ended_at.get_or_insert_with(Instant::now);
        self.fetch_rest(allowance)?;
        self.end.get_or_insert(match self.failed.take() {
            Some(why) => ExecEnd::NotStarted { why, code: if code == LOST { NOT_STARTED } else { code } },
            None if self.timed_out => ExecEnd::TimedOut,
            None if let Some(end) = self.session_end => ExecEnd::WithSession { end },
            None => ExecEnd::Ended { code },
        });
        Ok(())
    }

    /// No process inside is left.
    fn finish(&mut self, allowance: Option<&Allowance>) -> Result<(), Errno> {
        self.fetch_rest(allowance)?;
        let until = Instant::now() + GRACE;
        while self.end.is_none() {
            let Some(channel) = &self.channel else { break };
            let mut fds = [PollFd::new(channel, PollFlags::IN)];
            match poll(&mut fds, Some(&time_until(until))) {
                Ok(0) => self.has_ended(LOST, allowance)?,
                Ok(_) => self.hear(allowance)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Writes what its pipe takes, and says which pieces it has.
    fn feed(&mut self) -> Vec<(ClientId, Event)> {
        let mut told = Vec::new();
        while let (Some(input), Some(piece)) = (&self.input, self.unwritten.first_mut()) {
            let written = if piece.data.is_empty() { Ok(0) } else { rustix::io::write(input, &piece.data) };
            let answer = match written {
                Ok(count) => {
                    drop(piece.data.drain(..count));
                    piece.begun = true;
                    if !piece.data.is_empty() {
                        continue;
                    }
                    Event::Done { message: String::new() }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(_) => {
                    piece.end = true;
                    Event::Refused { message: "the command reads no input any more".to_owned() }
                }
            };
            let Piece { client, end, .. } = self.unwritten.remove(0);
            told.push((client, answer));
            if end {
                self.input = None;
            }
        }
        if self.input.is_none() {
            let message = "the command has ended, or reads no input".to_owned();
            let left = self.unwritten.drain(..);
            told.extend(left.map(|piece| (piece.client, Event::Refused { message: message.clone() })));
        }
        told
    }

    fn signal(&self, signal: Signal) {
        let (Some(channel), Ok(number)) = (&self.channel, u8::try_from(signal.as_raw())) else { return };
        best_effort(socket::send_now(channel.as_fd(), &[word::SIGNAL, number]), "its helper may be gone");
    }
}

impl Stream {
    fn was_read(&self) -> bool {
        self.read_to_end
    }
}

fn unknown(id: ExecId) -> String {
    format!("there is no exec {id}, or it was forgotten")
}

fn set_nonblocking(fd: &OwnedFd) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)
}

fn limits(asked: ExecLimits) -> Vec<(Resource, u64)> {
    let ExecLimits { cpu_seconds, address_space, file_size, open_files } = asked;
    let all = [
        (Resource::Cpu, cpu_seconds),
        (Resource::As, address_space),
        (Resource::Fsize, file_size),
        (Resource::Nofile, open_files),
    ];
    all.into_iter().filter_map(|(resource, most)| Some((resource, most?))).collect()
}

/// What others are told of a command line that may be megabytes long.
fn shortened(argv: &[String]) -> Vec<String> {
    let word = |word: &String| match &word[..word.floor_char_boundary(MOST_WORD_BYTES)] {
        kept if kept.len() < word.len() => format!("{kept}..."),
        kept => kept.to_owned(),
    };
    let more = (argv.len() > MOST_WORDS).then(|| "...".to_owned());
    argv.iter().take(MOST_WORDS).map(word).chain(more).collect()
}
