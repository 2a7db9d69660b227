//! What the command writes, where the policy limits how much or where a stream must not get in itself (`launcher::streams`): pipes
//! take the place of the user's streams, and the bytes are counted and copied on. Owns the count, the copying and the line that says that the rest was dropped; terminals are
//! `relay`'s, which shares the count. Driven by the loop, which never waits here: a stream that is not read makes
//! the command wait. A socket that is stdin as well can be written to as stdin, and that is not counted.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use cofferdam_audit as audit;
use cofferdam_kernel::best_effort;
use cofferdam_kernel::signal::SignalFd;
use cofferdam_launcher::streams::{Kind, Kinds, Streams, Writers};
use rustix::buffer::spare_capacity;
use rustix::event::PollFlags;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use rustix::stdio::{stderr, stdout};

use crate::terminal::drain::{Drained, Patience, Waiting};
use crate::terminal::stream_writer::{Sink, is_same};

/// Most that is held of one stream.
const BUFFER: usize = 64 * 1024;
/// What a pipe may hold whose pages go on into a file.
const SPLICED: usize = 1 << 20;

/// How much the session may still write, both streams and the terminal together.
#[derive(Debug)]
pub(crate) struct Allowance {
    limit: u64,
    left: Cell<u64>,
    exceeded: Cell<bool>,
}

impl Allowance {
    pub(crate) fn new(limit: u64) -> Rc<Self> {
        Rc::new(Allowance { limit, left: Cell::new(limit), exceeded: Cell::new(false) })
    }

    /// How many of `count` bytes may be passed on. The first that may not is what exceeds the limit.
    pub(crate) fn pass(&self, count: usize) -> usize {
        let passed = u64::try_from(count).unwrap_or(u64::MAX).min(self.left.get());
        self.left.set(self.left.get() - passed);
        let passed = usize::try_from(passed).unwrap_or(count);
        self.exceeded.set(self.exceeded.get() || passed < count);
        passed
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.exceeded.get()
    }

    /// Four fifths are used, as with every limit that is told before it is reached.
    fn is_near(&self) -> bool {
        self.left.get() <= self.limit / 5
    }

    /// The line that stands where the rest would be; on a line of its own also after half a line.
    pub(crate) fn marker(&self, last: Option<u8>) -> String {
        let start = if last.is_none_or(|byte| byte == b'\n') { "" } else { "\n" };
        format!("{start}[sandbox: output limit of {} reached; the rest is dropped]\n", size(self.limit))
    }
}

fn size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.into_iter().find(|(_, shift)| bytes >> shift > 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| format!("{bytes} bytes"), |(unit, shift)| format!("{} {unit}", bytes >> shift))
}

/// What `poll` has to say about a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Source(usize),
    Sink(usize),
}

#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) allowance: Rc<Allowance>,
    channels: Vec<Channel>,
    /// The latest event that was told.
    told: Option<audit::Event>,
}

/// One pipe of the command and the stream it goes on to.
#[derive(Debug)]
struct Channel {
    streams: Streams,
    source: Option<OwnedFd>,
    /// How much of it is still to be fetched: after the end, what lay in the pipe then.
    left: u64,
    sink: Option<Sink>,
    buffer: Vec<u8>,
    /// How much of the buffer is written.
    written: usize,
    last: Option<u8>,
    failed: Option<Errno>,
    /// Where pages are moved to without being looked at.
    spliced: Option<BorrowedFd<'static>>,
}

/// Pipes for the streams that are not terminals: all of them if the output is limited, else those that are carried.
pub(crate) fn open(limit: Option<u64>, kinds: &Kinds) -> Result<(Option<Output>, Writers), Errno> {
    let is_copied = |kind: Kind| kind != Kind::Terminal && (limit.is_some() || kind.is_carried());
    let streams: &[Streams] = match (is_copied(kinds[1]), is_copied(kinds[2])) {
        (false, false) => &[],
        (true, false) => &[Streams::Stdout],
        (false, true) => &[Streams::Stderr],
        (true, true) if is_same(stdout(), stderr())? => &[Streams::Both],
        (true, true) => &[Streams::Stdout, Streams::Stderr],
    };
    let mut writers = Writers::default();
    if streams.is_empty() && limit.is_none() {
        return Ok((None, writers));
    }
    let allowance = Allowance::new(limit.unwrap_or(u64::MAX));
    let mut output = Output { allowance, channels: Vec::new(), told: None };
    for streams in streams.iter().copied() {
        let (source, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        let flags = rustix::fs::fcntl_getfl(&source)?;
        // Only of this end: the command's writes wait, as they would without us.
        rustix::fs::fcntl_setfl(&source, flags | OFlags::NONBLOCK)?;
        let sink = Sink::of(if streams == Streams::Stderr { stderr() } else { stdout() })?;
        let spliced = sink.spliced().filter(|_| limit.is_none());
        if spliced.is_some() {
            best_effort(fcntl_setpipe_size(&source, SPLICED), "a small one is slower");
        }
        output.channels.push(Channel::new(streams, source, sink, spliced));
        writers.0.push((writer, streams));
    }
    Ok((Some(output), writers))
}

impl Output {
    /// What to poll for, besides errors.
    pub(crate) fn wanted(&self) -> Vec<(BorrowedFd<'_>, PollFlags, Ready)> {
        let mut wanted = Vec::new();
        for (index, channel) in self.channels.iter().enumerate() {
            let Some(sink) = &channel.sink else { continue };
            if !channel.buffer.is_empty() {
                wanted.push((sink.as_fd(), PollFlags::OUT, Ready::Sink(index)));
            } else if let Some(source) = &channel.source {
                wanted.push((source.as_fd(), PollFlags::IN, Ready::Source(index)));
                if sink.hangs_up() {
                    wanted.push((sink.as_fd(), PollFlags::empty(), Ready::Sink(index)));
                }
            }
        }
        wanted
    }

    pub(crate) fn turn(&mut self, ready: Ready) -> Result<(), Errno> {
        let (Ready::Source(index) | Ready::Sink(index)) = ready;
        let Some(channel) = self.channels.get_mut(index) else { return Ok(()) };
        if matches!(ready, Ready::Sink(_)) && channel.buffer.is_empty() {
            // Nothing was to be written, so this is the news that no reader is left: the command's next write is told.
            channel.close();
            return Ok(());
        }
        channel.flush();
        channel.fetch(&self.allowance)?;
        channel.flush();
        Ok(())
    }

    /// What the log is to hear about the limit, each event once.
    pub(crate) fn news(&mut self) -> Option<(audit::Event, u64)> {
        let event = match (self.allowance.is_exceeded(), self.allowance.is_near()) {
            (true, _) => Some(audit::Event::ResourceLimitExceeded),
            (false, true) => Some(audit::Event::ResourceLimitApproached),
            (false, false) => None,
        };
        let is_new = event.is_some() && event != self.told;
        self.told = event;
        event.filter(|_| is_new).map(|event| (event, self.allowance.limit))
    }

    /// After the command's end: copies what still lies in pipes and buffers. What it left behind in a session that goes on
    /// may go on writing, and that is not waited for.
    pub(crate) fn drain(&mut self, signals: &SignalFd, patience: Patience) -> Result<Drained, Errno> {
        let mut left = u64::MAX;
        let mut waiting = Waiting::new(patience);
        for channel in &mut self.channels {
            channel.left = channel.source.as_ref().map_or(Ok(0), rustix::io::ioctl_fionread)?;
        }
        loop {
            for channel in &mut self.channels {
                channel.pump(&self.allowance)?;
            }
            if self.channels.iter().all(|channel| channel.pending() == 0) {
                return Ok(Drained::All);
            }
            let now_left = self.channels.iter().map(Channel::unwritten).sum();
            if now_left < left {
                waiting.moved();
            }
            left = now_left;
            let blocked = self.channels.iter().filter(|channel| channel.pending() > 0);
            let sinks: Vec<BorrowedFd<'_>> = blocked.filter_map(|c| c.sink.as_ref().map(AsFd::as_fd)).collect();
            if let Some(given_up) = waiting.for_room(&sinks, signals)? {
                return Ok(given_up);
            }
        }
    }

    /// Puts the marker where stderr goes; a stderr that is a terminal is not here.
    pub(crate) fn mark(&mut self) -> bool {
        let Some(channel) = self.channels.iter_mut().find(|channel| channel.streams != Streams::Stdout) else {
            return false;
        };
        if channel.sink.is_some() {
            channel.buffer.extend_from_slice(self.allowance.marker(channel.last).as_bytes());
        }
        true
    }

    /// The first error of a stream, but for one that its reader closed.
    pub(crate) fn failure(&self) -> Option<Errno> {
        self.channels.iter().find_map(|channel| channel.failed)
    }
}

impl Channel {
    fn new(streams: Streams, source: OwnedFd, sink: Sink, spliced: Option<BorrowedFd<'static>>) -> Self {
        let (source, sink) = (Some(source), Some(sink));
        let (left, buffer) = (u64::MAX, Vec::new());
        Channel { streams, source, left, sink, buffer, written: 0, last: None, failed: None, spliced }
    }

    /// What is on its way, and what lies in the pipe: less of it means that a reader read.
    fn unwritten(&self) -> u64 {
        u64::try_from(self.pending()).unwrap_or(u64::MAX).saturating_add(self.left)
    }

    fn pending(&self) -> usize {
        self.buffer.len() - self.written
    }

    /// The command's next write ends with SIGPIPE, as it would without us.
    fn close(&mut self) {
        self.source = None;
        self.sink = None;
        self.buffer = Vec::new();
        self.written = 0;
    }

    /// Whether there may be more.
    fn fetch(&mut self, allowance: &Allowance) -> Result<bool, Errno> {
        let is_wanted = self.left > 0 && self.buffer.is_empty();
        let Some(source) = self.source.as_ref().filter(|_| is_wanted) else { return Ok(false) };
        if let Some(file) = self.spliced {
            match splice(source, None, file, None, SPLICED, SpliceFlags::MOVE | SpliceFlags::NONBLOCK) {
                Ok(0) => self.source = None,
                Ok(count) => {
                    self.fetched(count);
                    return Ok(true);
                }
                Err(Errno::INTR) => return Ok(true),
                Err(Errno::AGAIN) => {}
                // This file system cannot.
                Err(Errno::INVAL) => {
                    self.spliced = None;
                    return Ok(true);
                }
                Err(errno) => self.fail(errno),
            }
            return Ok(false);
        }
        self.buffer.reserve_exact(BUFFER);
        match rustix::io::read(source, spare_capacity(&mut self.buffer)) {
            Ok(0) => self.source = None,
            Ok(count) => {
                self.fetched(count);
                let passed = allowance.pass(count);
                self.buffer.truncate(passed);
                self.last = self.buffer.last().copied().or(self.last);
                if passed < count {
                    self.source = None;
                }
                return Ok(passed == count);
            }
            Err(Errno::INTR) => return Ok(true),
            Err(Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
        Ok(false)
    }

    fn fetched(&mut self, count: usize) {
        self.left = self.left.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// A full disk cannot be told to the command through a pipe; that its reader is gone can.
    fn fail(&mut self, errno: Errno) {
        self.failed = (!matches!(errno, Errno::PIPE | Errno::CONNRESET)).then_some(errno);
        self.close();
    }

    fn flush(&mut self) {
        while let Some(sink) = self.sink.as_ref().filter(|_| self.written < self.buffer.len()) {
            match sink.write(&self.buffer[self.written..]) {
                Ok(count) => self.written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(errno) => return self.fail(errno),
            }
        }
        self.buffer.clear();
        self.written = 0;
    }

    /// Copies until nothing is left or there is no room. On return an empty buffer means that nothing is left to fetch: `drain` relies on it.
    fn pump(&mut self, allowance: &Allowance) -> Result<(), Errno> {
        self.flush();
        while self.buffer.is_empty() {
            let may_be_more = self.fetch(allowance)?;
            self.flush();
            if !may_be_more {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// A pipe whose ends stay open until the test's process ends.
    fn leaked_pipe() -> (&'static OwnedFd, &'static OwnedFd) {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("a pipe");
        (Box::leak(Box::new(reader)), Box::leak(Box::new(writer)))
    }

    #[test]
    fn a_reader_that_makes_room_at_any_moment_gets_every_last_byte() {
        const LAST: usize = 48 * 1024;
        let signals = SignalFd::new().expect("a descriptor for signals");
        let (reader, writer) = leaked_pipe();
        // So small that every piece meets a full pipe.
        fcntl_setpipe_size(writer, 4096).expect("a small pipe");
        for round in 0..400 {
            let (source, last) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("a pipe");
            let mut output = Output { allowance: Allowance::new(u64::MAX), channels: Vec::new(), told: None };
            let sink = Sink::of(writer.as_fd()).expect("a pipe is a stream");
            let mut channel = Channel::new(Streams::Stdout, source, sink, None);
            // A piece is on its way already, so that the buffer gets free in the middle of a turn.
            assert_eq!(rustix::io::write(&last, &vec![1; LAST]), Ok(LAST));
            assert_eq!(channel.fetch(&output.allowance), Ok(true));
            assert_eq!(rustix::io::write(&last, &vec![2; LAST]), Ok(LAST));
            drop(last);
            output.channels.push(channel);
            std::thread::scope(|scope| {
                let taken = scope.spawn(|| {
                    let mut taken = 0;
                    let mut piece = [0u8; 4096];
                    let until = Instant::now() + Duration::from_secs(10);
                    while taken < 2 * LAST && Instant::now() < until {
                        taken += rustix::io::read(reader, &mut piece).unwrap_or(0);
                    }
                    taken
                });
                let patience = Patience::WhileRead(Duration::from_secs(10));
                assert_eq!(output.drain(&signals, patience), Ok(Drained::All));
                assert_eq!(taken.join().expect("it ends"), 2 * LAST, "round {round}");
            });
        }
    }

    #[test]
    fn the_first_byte_too_many_exceeds_the_limit() {
        let allowance = Allowance::new(10);
        assert_eq!((allowance.pass(4), allowance.pass(6), allowance.is_exceeded()), (4, 6, false));
        assert_eq!((allowance.pass(0), allowance.is_exceeded()), (0, false));
        assert_eq!((allowance.pass(1), allowance.is_exceeded()), (0, true));
        assert_eq!((allowance.pass(0), allowance.is_exceeded()), (0, true), "for good");
    }

    #[test]
    fn sizes_are_written_in_the_largest_unit_that_is_exact() {
        let cases = [(0, "0 bytes"), (1000, "1000 bytes"), (1 << 10, "1 KiB"), (1536 << 10, "1536 KiB")];
        for (bytes, text) in cases.into_iter().chain([(10 << 20, "10 MiB"), (5 << 40, "5120 GiB")]) {
            assert_eq!(size(bytes), text);
        }
    }
}
