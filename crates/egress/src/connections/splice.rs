//! Carries bytes between two connections, at the kernel's speed: a first part through one shared buffer, bulk through pipes
//! without entering this process. Owns buffers and pipes; an idle connection holds neither. Decides nothing.
//! Called by `flow` and `tunnel` once a connection was allowed.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::pipe::{PipeFlags, SpliceFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::session::limits::Traffic;

/// What goes through the shared buffer at once.
const CHUNK: usize = 64 << 10;
/// A direction that has carried this much is bulk.
const BULK: u64 = 256 << 10;
/// Asked for each pipe; the kernel may give less to a user with many.
const PIPE: usize = 1 << 20;
/// Pipes kept for the next bulk transfer.
const SPARE: usize = 16;

/// The buffers of all connections.
#[derive(Debug)]
pub(crate) struct Carrier {
    chunk: RefCell<Box<[u8]>>,
    pipes: RefCell<Vec<Pipe>>,
}

#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    fn new() -> Result<Pipe, Errno> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A smaller pipe only carries less at a time.
        let _size = rustix::pipe::fcntl_setpipe_size(&write, PIPE);
        Ok(Pipe { read, write })
    }
}

/// One direction of a connection.
pub(crate) struct Way<'a> {
    pub(crate) from: &'a TcpStream,
    pub(crate) to: &'a TcpStream,
    pub(crate) carried: &'a Cell<u64>,
    pub(crate) traffic: &'a Traffic,
    /// Whether the other direction has ended, for both.
    pub(crate) is_last: &'a Cell<bool>,
}

impl Carrier {
    pub(crate) fn new() -> Carrier {
        let chunk = RefCell::new(vec![0; CHUNK].into_boxed_slice());
        Carrier { chunk, pipes: RefCell::default() }
    }

    /// Until the sender has nothing more to say; the receiver is told so.
    pub(crate) async fn one(&self, way: &Way<'_>) -> io::Result<()> {
        let carried = self.carry(way).await;
        if way.is_last.replace(true) && carried.is_ok() {
            // Both connections are closed next, which says the same.
            return carried;
        }
        let how = if carried.is_ok() { Shutdown::Write } else { Shutdown::Both };
        // The other side may be gone, which is what this would tell it.
        let _told = rustix::net::shutdown(way.to, how);
        if carried.is_err() {
            let _told = rustix::net::shutdown(way.from, Shutdown::Both);
        }
        carried
    }

    async fn carry(&self, way: &Way<'_>) -> io::Result<()> {
        while way.carried.get() < BULK {
            way.from.readable().await?;
            let (length, rest) = {
                let mut chunk = self.chunk.borrow_mut();
                let length = match way.from.try_read(&mut chunk) {
                    Ok(0) => return Ok(()),
                    Ok(length) => length,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    Err(error) => return Err(error),
                };
                let written = match way.to.try_write(&chunk[..length]) {
                    Ok(written) => written,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                    Err(error) => return Err(error),
                };
                (length, chunk[written..length].to_vec())
            };
            way.count(length)?;
            if !rest.is_empty() {
                write_all(way.to, &rest).await?;
            }
        }
        self.carry_bulk(way).await
    }

    async fn carry_bulk(&self, way: &Way<'_>) -> io::Result<()> {
        loop {
            // Not while holding a pipe: many connections may wait here.
            way.from.readable().await?;
            let spare = self.pipes.borrow_mut().pop();
            let pipe = spare.map_or_else(Pipe::new, Ok)?;
            let ended = pipe.carry_what_is_there(way).await?;
            let mut spare = self.pipes.borrow_mut();
            if spare.len() < SPARE {
                spare.push(pipe);
            }
            if ended {
                return Ok(());
            }
        }
    }
}

impl Pipe {
    /// Until nothing is there to read; true at the end. An error leaves bytes in the pipe, which then is not used again.
    async fn carry_what_is_there(&self, way: &Way<'_>) -> io::Result<bool> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        loop {
            let read = || splice(way.from, &self.write, PIPE, flags);
            let mut left = match way.from.try_io(Interest::READABLE, read) {
                Ok(0) => return Ok(true),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            };
            way.count(left)?;
            while left > 0 {
                let write = || splice(&self.read, way.to, left, flags);
                match way.to.try_io(Interest::WRITABLE, write) {
                    Ok(length) => left -= length,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => way.to.writable().await?,
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

fn splice(from: impl AsFd, to: impl AsFd, length: usize, flags: SpliceFlags) -> io::Result<usize> {
    Ok(rustix::pipe::splice(from, None, to, None, length, flags)?)
}

impl Way<'_> {
    pub(crate) fn count(&self, length: usize) -> io::Result<()> {
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        self.carried.set(self.carried.get().saturating_add(length));
        self.traffic.add(length)
    }
}

/// Writes all of it, however long the other side takes.
pub(crate) async fn write_all(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
