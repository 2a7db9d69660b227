//! An operator who answers questions, at the socket of a session's supervisor: a test decides when an answer comes, and what
//! happens before it. Owns the connection; the words are `wire::protocol`'s. Used by tests of the gate and by `tests/escape`.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_wire::protocol::{Command, Event, FsRequest, VERSION, line};
use cofferdam_wire::{Cause, Keep, QuestionId, Reach, Verdict};

use crate::Place;

/// Long for a busy machine's sake.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at something that does not tell the test when it is there.
const LOOK: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub struct Person {
    /// The session that is listened to.
    pub session: String,
    stream: UnixStream,
    heard: Vec<u8>,
    pending: VecDeque<Event>,
}

/// Where a place's sessions are.
pub fn sessions(place: &Place) -> PathBuf {
    place.home().join(".local/state/cofferdam/sessions")
}

impl Person {
    /// Waits for the session of a place and greets its supervisor.
    pub fn of(place: &Place) -> io::Result<Self> {
        let sessions = sessions(place);
        let (session, stream) = until(PATIENCE, || {
            let names = fs::read_dir(&sessions).into_iter().flatten().flatten();
            names.map(|entry| entry.path()).find_map(|path| {
                let session = path.file_name()?.to_string_lossy().into_owned();
                Some((session, connect(&path).ok()?))
            })
        })?;
        let mut person = Person { session, stream, heard: Vec::new(), pending: VecDeque::new() };
        person.say(&Command::Hello { version: VERSION, face: "test".to_owned() })?;
        match person.event()? {
            Event::Hello { .. } => Ok(person),
            other => Err(io::Error::other(format!("no greeting: {other:?}"))),
        }
    }

    pub fn say(&mut self, command: &Command) -> io::Result<()> {
        self.say_line(&line(command))
    }

    /// Whatever it is, with the newline in it.
    pub fn say_line(&mut self, line: &[u8]) -> io::Result<()> {
        self.stream.write_all(line)
    }

    /// The next thing that the supervisor says; an error if nothing comes in a time that is long for it.
    pub fn event(&mut self) -> io::Result<Event> {
        match self.pending.pop_front() {
            Some(event) => Ok(event),
            None => self.hear(PATIENCE),
        }
    }

    fn hear(&mut self, patience: Duration) -> io::Result<Event> {
        let end = Instant::now() + patience;
        loop {
            if let Some(at) = self.heard.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=at).collect();
                return serde_json::from_slice(&line).map_err(io::Error::other);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut buffer = [0u8; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.heard.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The first event from now on that `wanted` finds something in; what comes before it is kept.
    fn first<T>(&mut self, patience: Duration, wanted: impl Fn(&Event) -> Option<T>) -> io::Result<T> {
        let mut seen = VecDeque::new();
        let found = loop {
            let event = match self.pending.pop_front() {
                Some(event) => Ok(event),
                None => self.hear(patience),
            };
            match event {
                Ok(event) => match wanted(&event) {
                    Some(found) => break Ok(found),
                    None => seen.push_back(event),
                },
                Err(error) => break Err(error),
            }
        };
        seen.append(&mut self.pending);
        self.pending = seen;
        found
    }

    /// The next question, or the next that more calls wait for.
    pub fn question(&mut self) -> io::Result<FsRequest> {
        self.question_within(PATIENCE)
    }

    pub fn question_within(&mut self, patience: Duration) -> io::Result<FsRequest> {
        self.first(patience, |event| match event {
            Event::FsRequest(request) => Some((**request).clone()),
            _ => None,
        })
    }

    /// How a question ended: whether it was granted, and why.
    pub fn settled(&mut self, question: QuestionId) -> io::Result<(bool, Cause)> {
        self.first(PATIENCE, |event| match event {
            Event::Audit { id, decision, cause, .. } if *id == question => {
                Some((*decision == cofferdam_wire::protocol::Decision::Allow, *cause))
            }
            _ => None,
        })
    }

    /// The supervisor's reply to a command: nothing, or why it was not taken.
    pub fn reply(&mut self) -> io::Result<Option<String>> {
        self.first(PATIENCE, |event| match event {
            Event::Done { .. } => Some(None),
            Event::Refused { message } => Some(Some(message.clone())),
            _ => None,
        })
    }

    pub fn allow(&mut self, id: QuestionId, reach: Reach, keep: Keep) -> io::Result<()> {
        self.say(&Command::of(id, Verdict::Allow { reach, keep }))
    }

    pub fn deny(&mut self, id: QuestionId) -> io::Result<()> {
        self.say(&Command::of(id, Verdict::DENY_ONCE))
    }
}

/// The path of a socket is at most 107 bytes long, so it goes through a descriptor.
pub fn connect(session: &Path) -> io::Result<UnixStream> {
    let directory = fs::File::open(session)?;
    UnixStream::connect(format!("/proc/self/fd/{}/socket", directory.as_raw_fd()))
}

/// What `look` finds before `patience` is over.
pub fn until<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> io::Result<T> {
    let end = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() >= end {
            return Err(ErrorKind::TimedOut.into());
        }
        std::thread::sleep(LOOK);
    }
}

/// The process that mounts for a supervisor: its child that is in its own pid namespace.
pub fn broker_of(supervisor: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).ok()?;
    let is_outside = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let own = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let depth = |line: Option<&str>| line.map_or(0, |line| line.split_whitespace().count());
        depth(numbers) == depth(own.lines().find_map(|line| line.strip_prefix("NSpid:")))
    };
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_outside)
}
