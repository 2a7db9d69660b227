//! A client of D-Bus that makes one call and reads its answer (docs/decisions/0017). Owns the connection, the proof of
//! who this process is, and the time that all of it may take; the bytes are `marshal`'s. Called by `systemd_scope`, and for
//! notifications by `approvals/desktop`.

pub(crate) mod marshal;
#[cfg(test)]
pub(crate) mod tests;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use cofferdam_kernel::socket::peer;
use cofferdam_kernel::timing::time_until;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use thiserror::Error;

use crate::limits::dbus::marshal::{Answer, Call, MOST, START, Values};

/// The kernel says who we are, so the name stays empty. All of it is sent at once, as systemd's own client does: a bus
/// that refuses us hangs up at BEGIN.
const HANDSHAKE: &[u8] = b"\0AUTH EXTERNAL\r\nDATA\r\nBEGIN\r\n";
const HELLO: u32 = 1;
const CALL: u32 = 2;

#[derive(Debug, Error)]
pub(crate) enum BusError {
    #[error("cannot connect to the bus `{path}`")]
    Connect {
        path: PathBuf,
        #[source]
        errno: Errno,
    },
    #[error("the bus `{path}` belongs to user {uid}")]
    Foreign { path: PathBuf, uid: u32 },
    /// It would take our pid for that of another process.
    #[error("the bus `{path}` is of another pid namespace")]
    Elsewhere { path: PathBuf },
    #[error("the bus did not accept this user")]
    Refused,
    #[error("the bus did not answer in time")]
    Late,
    #[error("the bus ended the connection")]
    Gone,
    #[error("the bus sent what is no answer")]
    Malformed,
    #[error("the connection to the bus failed")]
    Lost(#[source] Errno),
    #[error("the bus answered {name}: {text}")]
    Error { name: String, text: String },
}

/// A connection to a message bus.
#[derive(Debug)]
pub(crate) struct Bus {
    socket: OwnedFd,
    until: Instant,
    received: Vec<u8>,
}

impl Bus {
    /// All that follows happens until then, or fails.
    pub(crate) fn connect(path: &Path, until: Instant) -> Result<Self, BusError> {
        let connect = |errno| BusError::Connect { path: path.to_path_buf(), errno };
        // Non-blocking: a bus that accepts no connection answers EAGAIN once its queue is full.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(connect)?;
        let address = SocketAddrUnix::new(path).map_err(connect)?;
        rustix::net::connect(&socket, &address).map_err(connect)?;
        let peer = peer(&socket).map_err(connect)?;
        if peer.uid != 0 && peer.uid != rustix::process::geteuid().as_raw() {
            return Err(BusError::Foreign { path: path.to_path_buf(), uid: peer.uid });
        }
        if peer.pid == 0 {
            return Err(BusError::Elsewhere { path: path.to_path_buf() });
        }
        Ok(Bus { socket, until, received: Vec::new() })
    }

    /// Makes the call and waits for its answer; what it returns is of no interest here.
    pub(crate) fn call(mut self, call: &Call<'_>) -> Result<(), BusError> {
        let name = "org.freedesktop.DBus";
        let (path, signature, body) = ("/org/freedesktop/DBus", "", Values::default());
        let hello = Call { destination: name, path, interface: name, member: "Hello", signature, body };
        self.send(HANDSHAKE)?;
        self.be_accepted()?;
        self.send(&[hello.encode(HELLO), call.encode(CALL)].concat())?;
        loop {
            match self.next()? {
                Answer::Return { to: CALL } => return Ok(()),
                Answer::Error { to: HELLO | CALL, name, text } => return Err(BusError::Error { name, text }),
                _ => {}
            }
        }
    }

    /// A few hundred bytes fit the buffer of a new connection.
    fn send(&self, bytes: &[u8]) -> Result<(), BusError> {
        match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) if count == bytes.len() => Ok(()),
            Ok(_) => Err(BusError::Gone),
            Err(errno) => Err(BusError::Lost(errno)),
        }
    }

    /// An empty question for the name, then the word that we are in.
    fn be_accepted(&mut self) -> Result<(), BusError> {
        let first = self.line()?;
        let line = if first == b"DATA" { self.line()? } else { first };
        if line == b"OK" || line.starts_with(b"OK ") { Ok(()) } else { Err(BusError::Refused) }
    }

    fn line(&mut self) -> Result<Vec<u8>, BusError> {
        loop {
            if let Some(at) = self.received.windows(2).position(|pair| pair == b"\r\n") {
                let mut line: Vec<u8> = self.received.drain(..at + 2).collect();
                line.truncate(at);
                return Ok(line);
            }
            self.fetch()?;
        }
    }

    fn next(&mut self) -> Result<Answer, BusError> {
        let mut wanted = START;
        loop {
            if let Some(start) = self.received.first_chunk::<START>() {
                wanted = marshal::length(start).ok_or(BusError::Malformed)?;
            }
            if self.received.len() >= wanted && wanted > START {
                let message: Vec<u8> = self.received.drain(..wanted).collect();
                return marshal::decode(&message).ok_or(BusError::Malformed);
            }
            self.fetch()?;
        }
    }

    fn fetch(&mut self) -> Result<(), BusError> {
        // The longest message and the beginning of the next.
        if self.received.len() > 4 * MOST {
            return Err(BusError::Malformed);
        }
        let mut buffer = [0u8; 4096];
        loop {
            if Instant::now() >= self.until {
                return Err(BusError::Late);
            }
            match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((0, _)) => return Err(BusError::Gone),
                Ok((count, _)) => {
                    self.received.extend_from_slice(&buffer[..count]);
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait()?,
                Err(errno) => return Err(BusError::Lost(errno)),
            }
        }
    }

    fn wait(&self) -> Result<(), BusError> {
        let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&time_until(self.until))) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(BusError::Lost(errno)),
        }
    }
}
