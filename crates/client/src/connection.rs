//! One connection to a supervisor's control socket: greeting and lines. Owns the framing; what is said is the callers' business.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;

use cofferdam_wire::protocol::{Command, Event, MOST_BYTES, VERSION, line};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::task::spawn_blocking;

use crate::ClientError;

/// One command that is answered with nothing but that it was carried out.
pub(crate) async fn call(directory: &Path, command: &Command) -> Result<(), ClientError> {
    let done = |event| matches!(event, Event::Done { .. }).then_some(());
    Connection::open(directory).await?.ask(command, done).await
}

#[derive(Debug)]
pub(crate) struct Connection(BufReader<UnixStream>);

impl Connection {
    /// To the session in this directory. The path of a socket is at most 107 bytes long, so it goes through a descriptor.
    pub(crate) async fn open(directory: &Path) -> Result<Self, ClientError> {
        let directory = directory.to_owned();
        let greeted = spawn_blocking(move || greet(&directory)).await.map_err(std::io::Error::other)?;
        let stream = greeted.map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::BrokenPipe => ClientError::Ended,
            _ => ClientError::Io(error),
        })?;
        let mut connection = Connection(BufReader::new(UnixStream::from_std(stream)?));
        loop {
            match connection.hear().await? {
                Event::Hello { .. } => return Ok(connection),
                Event::Refused { message } => return Err(ClientError::Refused { message }),
                _ => {}
            }
        }
    }

    pub(crate) async fn say(&mut self, command: &Command) -> Result<(), ClientError> {
        self.0.get_mut().write_all(&line(command)).await.map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => ClientError::Ended,
            _ => ClientError::Io(error),
        })
    }

    /// The next event. What this version does not know is left out.
    pub(crate) async fn hear(&mut self) -> Result<Event, ClientError> {
        next(&mut self.0).await
    }

    /// What is said to a command, past everything that all clients are told.
    pub(crate) async fn ask<T>(
        &mut self,
        command: &Command,
        mut answer: impl FnMut(Event) -> Option<T>,
    ) -> Result<T, ClientError> {
        self.say(command).await?;
        loop {
            match self.hear().await? {
                Event::Refused { message } => return Err(ClientError::Refused { message }),
                Event::End {} => return Err(ClientError::Ended),
                event => {
                    if let Some(answer) = answer(event) {
                        return Ok(answer);
                    }
                }
            }
        }
    }
}

/// In one go: a supervisor gives a client that has connected and says nothing five seconds, which a busy runtime can need to come back
/// to a task.
fn greet(directory: &Path) -> Result<StdStream, std::io::Error> {
    let directory = File::open(directory)?;
    let mut stream = StdStream::connect(format!("/proc/self/fd/{}/socket", directory.as_raw_fd()))?;
    stream.write_all(&line(&Command::Hello { version: VERSION, face: "client".to_owned() }))?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// The next event of a stream of lines.
pub(crate) async fn next(stream: &mut BufReader<UnixStream>) -> Result<Event, ClientError> {
    loop {
        let mut line = Vec::new();
        let read = (&mut *stream).take(MOST_BYTES as u64).read_until(b'\n', &mut line).await;
        match read {
            Ok(0) => return Err(ClientError::Ended),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Err(ClientError::Ended),
            Err(error) => return Err(error.into()),
            Ok(_) if line.last() != Some(&b'\n') => {
                return Err(std::io::Error::from(ErrorKind::InvalidData).into());
            }
            Ok(_) => {
                if let Ok(event) = serde_json::from_slice(&line) {
                    return Ok(event);
                }
            }
        }
    }
}
