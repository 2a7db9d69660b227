//! The other end of a supervisor's socket. Owns finding the sessions of this user, greeting, and lines; what is shown and
//! answered is the callers' business. Used by `questions`, `inbox`, `attach` and `output`.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_host::state::sessions_in;
use cofferdam_host::{Surroundings, SurveyError};
use cofferdam_wire::protocol::{Command, Event, FsRequest, MOST_BYTES, SessionStatus, VERSION, line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::environment::environment;

/// The longest that a supervisor takes to answer; its loop never waits for anything.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The longest that a session runs without a socket.
const LONGEST_START: Duration = Duration::from_millis(500);

/// Where the directories of this user's sessions are.
pub(crate) fn sessions_directory() -> Result<PathBuf, SurveyError> {
    Ok(sessions_in(&Surroundings::look(&environment())?.state))
}

/// The names of sessions that have a directory, oldest first; whether they live shows when they are called.
pub(crate) fn sessions(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// A connection to one session.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) session: String,
    stream: UnixStream,
    heard: Vec<u8>,
    /// Heard, and not handed out yet.
    pending: VecDeque<Event>,
}

/// A session as it is now.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) connection: Connection,
    pub(crate) questions: Vec<FsRequest>,
}

impl Connection {
    /// Connects and says hello. The path of a socket is at most 107 bytes long, so it goes through a descriptor.
    pub(crate) fn open(directory: &Path, session: &str, face: &str) -> Result<Self, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(directory.join(session), flags, Mode::empty())?;
        let address = SocketAddrUnix::new(format!("/proc/self/fd/{}/socket", directory.as_raw_fd()))?;
        // Not to wait for a supervisor that is stopped and accepts no connection.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &address)?;
        let stream = UnixStream::from(socket);
        let mut connection =
            Connection { session: session.to_owned(), stream, heard: Vec::new(), pending: VecDeque::new() };
        connection.say(&Command::Hello { version: VERSION, face: face.to_owned() })?;
        Ok(connection)
    }

    /// The same for a session that may have begun just now: its supervisor opens the socket once the command runs.
    pub(crate) fn wait_for(directory: &Path, session: &str, face: &str) -> Result<Self, Error> {
        let began = Instant::now();
        loop {
            match Connection::open(directory, session, face) {
                Err(error) if error.kind() == ErrorKind::NotFound && began.elapsed() < LONGEST_START => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                opened => return opened,
            }
        }
    }

    /// A command is far shorter than what a socket holds: it is taken at once or not at all.
    pub(crate) fn say(&mut self, command: &Command) -> Result<(), Error> {
        self.stream.write_all(&line(command))
    }

    /// The same with descriptors.
    pub(crate) fn say_with(&mut self, command: &Command, descriptors: &[BorrowedFd<'_>]) -> Result<(), Error> {
        Ok(cofferdam_kernel::socket::send_all(self.stream.as_fd(), &line(command), descriptors)?)
    }

    /// What has arrived; an error when the session is gone. What this version does not know is left out.
    pub(crate) fn hear(&mut self) -> Result<Vec<Event>, Error> {
        let mut buffer = [0u8; 16384];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.heard.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        let mut events = Vec::from(std::mem::take(&mut self.pending));
        while let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            events.extend(serde_json::from_slice(&line).ok());
        }
        if self.heard.len() > MOST_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(events)
    }

    /// Hears until `done` has what it needs.
    pub(crate) fn hear_until<T>(&mut self, done: impl FnMut(Event) -> Option<T>) -> Result<T, Error> {
        self.hear_for(LONGEST_WAIT, done)
    }

    /// The same for a command that takes its time.
    pub(crate) fn hear_for<T>(
        &mut self,
        longest: Duration,
        mut done: impl FnMut(Event) -> Option<T>,
    ) -> Result<T, Error> {
        let until = Instant::now() + longest;
        loop {
            while let Some(event) = self.pending.pop_front() {
                if let Some(found) = done(event) {
                    return Ok(found);
                }
            }
            let heard = self.hear()?;
            if heard.is_empty() && Instant::now() >= until {
                return Err(ErrorKind::TimedOut.into());
            }
            if heard.is_empty() {
                let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
                poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 }))?;
            }
            self.pending.extend(heard);
        }
    }

    /// What the session says of itself now.
    pub(crate) fn status(mut self) -> Result<SessionStatus, Error> {
        self.say(&Command::Status {})?;
        self.hear_until(|event| match event {
            Event::Session(status) => Some(Ok(*status)),
            Event::End {} => Some(Err(ErrorKind::UnexpectedEof.into())),
            _ => None,
        })?
    }

    /// The open questions: everything that is told before the answer to a status request.
    fn look(mut self) -> Result<Look, Error> {
        self.say(&Command::Status {})?;
        let mut questions: Vec<FsRequest> = Vec::new();
        self.hear_until(|event| match event {
            Event::FsRequest(request) => {
                questions.retain(|known| known.id != request.id);
                questions.push(*request);
                None
            }
            Event::Audit { id, .. } => {
                questions.retain(|known| known.id != id);
                None
            }
            Event::Session(status) => Some(Ok(status)),
            Event::Refused { message } => Some(Err(Error::other(message))),
            Event::End {} => Some(Err(ErrorKind::UnexpectedEof.into())),
            _ => None,
        })??;
        Ok(Look { connection: self, questions })
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Every session that answers.
pub(crate) fn look_at_all(directory: &Path, face: &str) -> Vec<Look> {
    let connect = |session: &String| Connection::open(directory, session, face).and_then(Connection::look).ok();
    sessions(directory).iter().filter_map(connect).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_session_that_began_just_now_is_waited_for_and_one_that_has_ended_is_not_for_long() {
        let directory = std::env::temp_dir().join(format!("cofferdam-client-{}", std::process::id()));
        let path = directory.join("one/socket");
        std::fs::create_dir_all(directory.join("one")).expect("a directory can be made");
        let late = std::thread::spawn(move || {
            std::thread::sleep(LONGEST_START / 5);
            UnixListener::bind(path).expect("a socket can be made")
        });
        let opened = Connection::wait_for(&directory, "one", "test");
        drop(late.join().expect("it was made"));
        let refused = Connection::wait_for(&directory, "another", "test").map(drop).map_err(|error| error.kind());
        std::fs::remove_dir_all(&directory).expect("it was there");
        assert!(opened.is_ok(), "{opened:?}");
        assert_eq!(refused, Err(ErrorKind::NotFound));
    }
}
