//! A standard input that does not go in itself: what the supervisor does for it while the session runs, and where the
//! caller's own descriptor stands at the end. Owns both; what takes its place inside is made by `launcher::streams`. Driven by
//! the loop and `attach_client`, which never wait here.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cofferdam_launcher::terminal::reopen;
use rustix::event::PollFlags;
use rustix::fs::{FileType, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::stdio::stdin;

const PAGE: usize = 4096;
const BUFFER: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ready;

#[derive(Debug)]
pub(crate) enum Input {
    /// The file that the command reads, opened again: its place is the command's.
    Same(OwnedFd),
    Fed(Feed),
}

/// Bytes of stdin on their way into a pipe.
#[derive(Debug)]
pub(crate) struct Feed {
    /// None once the command reads no more, or there is no more.
    pipe: Option<OwnedFd>,
    source: Source,
    buffer: Vec<u8>,
    written: usize,
    /// Afterwards: by which it is known how much of it the command has not read.
    rest: Option<OwnedFd>,
}

#[derive(Debug)]
enum Source {
    /// Read at places, so that the caller's own place stays until the end.
    File { next: u64 },
    /// What is taken from a pipe cannot be put back. So no more is taken than the command's pipe, made one page small, has
    /// room for once it is empty.
    Fifo { own: Option<OwnedFd>, has_room: bool },
}

impl Input {
    /// With what the set-up child sent: an open file, or the end of a pipe.
    pub(crate) fn new(fd: OwnedFd) -> Result<Self, Errno> {
        if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) == FileType::RegularFile {
            return Ok(Input::Same(fd));
        }
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        // Only of this end: the command's reads wait, as they would without us.
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        let is_file = FileType::from_raw_mode(rustix::fs::fstat(stdin())?.st_mode) == FileType::RegularFile;
        let source = if is_file {
            Source::File { next: rustix::fs::tell(stdin())? }
        } else {
            rustix::pipe::fcntl_setpipe_size(&fd, PAGE)?;
            Source::Fifo { own: reopen(stdin(), OFlags::RDONLY).ok(), has_room: false }
        };
        Ok(Input::Fed(Feed { pipe: Some(fd), source, buffer: Vec::new(), written: 0, rest: None }))
    }

    /// What to poll for, besides errors.
    pub(crate) fn wanted(&self) -> Option<(BorrowedFd<'_>, PollFlags, Ready)> {
        let Input::Fed(feed) = self else { return None };
        let pipe = feed.pipe.as_ref()?;
        match &feed.source {
            // Of the caller's own descriptor: one that was opened after the last writer had gone never hears of that.
            Source::Fifo { has_room: true, .. } if feed.buffer.is_empty() => Some((stdin(), PollFlags::IN, Ready)),
            _ => Some((pipe.as_fd(), PollFlags::OUT, Ready)),
        }
    }

    pub(crate) fn turn(&mut self, _ready: Ready) -> Result<(), Errno> {
        let Input::Fed(feed) = self else { return Ok(()) };
        feed.fetch()?;
        feed.give();
        Ok(())
    }

    /// The caller's descriptor stands where the command's did.
    pub(crate) fn finish(&mut self) -> Result<(), Errno> {
        let place = match self {
            Input::Same(file) => rustix::fs::tell(file)?,
            Input::Fed(feed) => match feed.source {
                Source::File { next } => next.saturating_sub(feed.unread()?),
                Source::Fifo { .. } => return Ok(()),
            },
        };
        rustix::fs::seek(stdin(), SeekFrom::Start(place)).map(drop)
    }
}

impl Feed {
    fn fetch(&mut self) -> Result<(), Errno> {
        if self.pipe.is_none() || !self.buffer.is_empty() {
            return Ok(());
        }
        let count = match &mut self.source {
            Source::File { next } => {
                self.buffer.resize(BUFFER, 0);
                let count = rustix::io::pread(stdin(), &mut self.buffer, *next);
                *next += count.map_or(0, |count| u64::try_from(count).unwrap_or(0));
                count
            }
            Source::Fifo { has_room, .. } if !*has_room => {
                *has_room = true;
                return Ok(());
            }
            Source::Fifo { own, has_room } => {
                *has_room = false;
                self.buffer.resize(PAGE, 0);
                rustix::io::read(own.as_ref().map_or(stdin(), AsFd::as_fd), &mut self.buffer)
            }
        };
        self.buffer.truncate(count.unwrap_or(0));
        match count {
            Ok(count) if count > 0 => Ok(()),
            Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            // The end, or an error, which a pipe cannot pass on.
            Ok(_) | Err(_) => self.end(),
        }
    }

    fn give(&mut self) {
        let Some(pipe) = self.pipe.as_ref().filter(|_| self.written < self.buffer.len()) else { return };
        match rustix::io::write(pipe, &self.buffer[self.written..]) {
            Ok(count) => self.written += count,
            Err(Errno::INTR | Errno::AGAIN) => {}
            // Every reader is gone: what lies in the pipe stays there.
            Err(_) => {
                self.rest = self.pipe.take();
                return;
            }
        }
        if self.written == self.buffer.len() {
            self.buffer.clear();
            self.written = 0;
        }
    }

    /// No writer is left, so the command sees the end; the other end is kept to count by.
    fn end(&mut self) -> Result<(), Errno> {
        if let Some(pipe) = self.pipe.take() {
            self.rest = Some(reopen(pipe.as_fd(), OFlags::RDONLY)?);
        }
        Ok(())
    }

    fn unread(&self) -> Result<u64, Errno> {
        let in_pipe = self.pipe.as_ref().or(self.rest.as_ref()).map_or(Ok(0), rustix::io::ioctl_fionread)?;
        Ok(in_pipe + u64::try_from(self.buffer.len() - self.written).unwrap_or(0))
    }
}
