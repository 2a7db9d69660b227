//! One of the user's streams, written to without ever waiting for its reader. Owns how that is done for each kind of file
//! without changing the open file itself, which the user's shell shares. Used by `output`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cofferdam_launcher::streams::PIPEFS_MAGIC;
use cofferdam_launcher::terminal::reopen;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;

/// A pipe that `poll` calls writable has room for a page.
const PAGE: usize = 4096;

#[derive(Debug)]
pub(crate) struct Sink {
    stream: BorrowedFd<'static>,
    way: Way,
    /// Whether no process can ever read again once `poll` reports an error. A named pipe may get its next reader later.
    hangs_up: bool,
}

#[derive(Debug)]
enum Way {
    /// The same pipe or device, opened again with O_NONBLOCK.
    Own(OwnedFd),
    /// MSG_DONTWAIT for each message.
    Socket,
    /// Files take what they get; they share their position with the user's shell, so they are not opened again.
    File,
    /// A pipe of another user cannot be opened again: ask first, then write no more than fits.
    Asking,
}

impl Sink {
    pub(crate) fn of(stream: BorrowedFd<'static>) -> Result<Self, Errno> {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(stream)?.st_mode);
        let access = rustix::fs::fcntl_getfl(stream)? & OFlags::RWMODE;
        let way = match kind {
            FileType::Socket => Way::Socket,
            FileType::Fifo | FileType::CharacterDevice if access != OFlags::RDONLY => {
                reopen(stream, OFlags::WRONLY).map_or(Way::Asking, Way::Own)
            }
            _ => Way::File,
        };
        let is_pipe = kind == FileType::Fifo && rustix::fs::fstatfs(stream)?.f_type == PIPEFS_MAGIC;
        Ok(Sink { stream, way, hangs_up: is_pipe || kind == FileType::Socket })
    }

    pub(crate) fn hangs_up(&self) -> bool {
        self.hangs_up
    }

    /// The file itself, where the kernel can move pages of a pipe into it: not where it appends.
    pub(crate) fn spliced(&self) -> Option<BorrowedFd<'static>> {
        let appends = rustix::fs::fcntl_getfl(self.stream).is_ok_and(|flags| flags.contains(OFlags::APPEND));
        matches!(self.way, Way::File).then_some(self.stream).filter(|_| !appends)
    }

    /// How many of the bytes were taken; `AGAIN` if there is no room now.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match &self.way {
            Way::Own(own) => rustix::io::write(own, bytes),
            Way::Socket => rustix::net::send(self.stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            Way::File => rustix::io::write(self.stream, bytes),
            Way::Asking => {
                let mut fds = [PollFd::from_borrowed_fd(self.stream, PollFlags::OUT)];
                if poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
                    return Err(Errno::AGAIN);
                }
                rustix::io::write(self.stream, &bytes[..bytes.len().min(PAGE)])
            }
        }
    }
}

impl AsFd for Sink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.way {
            Way::Own(own) => own.as_fd(),
            _ => self.stream,
        }
    }
}

/// Whether both streams lead to the same place, so that the order of what is written to them means something.
pub(crate) fn is_same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Result<bool, Errno> {
    let (first, second) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    if (first.st_dev, first.st_ino) != (second.st_dev, second.st_ino) {
        return Ok(false);
    }
    if FileType::from_raw_mode(first.st_mode) != FileType::RegularFile {
        return Ok(true);
    }
    // Two openings of one file write at two positions, unless both are at the same one: then they would only overwrite
    // each other.
    let place = |fd| Ok((rustix::fs::fcntl_getfl(fd)?, rustix::fs::tell(fd)?));
    Ok(place(one)? == place(other)?)
}

#[cfg(test)]
mod tests {
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    /// A pipe whose ends stay open until the test's process ends.
    fn pipe() -> (BorrowedFd<'static>, BorrowedFd<'static>) {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let leak = |end: OwnedFd| -> &'static OwnedFd { Box::leak(Box::new(end)) };
        (leak(reader).as_fd(), leak(writer).as_fd())
    }

    fn fill(sink: &Sink) -> usize {
        let mut written = 0;
        loop {
            match sink.write(&[7; 8192]) {
                Ok(count) => written += count,
                Err(errno) => {
                    assert_eq!(errno, Errno::AGAIN);
                    return written;
                }
            }
        }
    }

    #[test]
    fn a_full_pipe_is_no_reason_to_wait_also_where_it_cannot_be_opened_again() {
        let (_, writer) = pipe();
        let sink = Sink::of(writer).expect("a pipe is a stream");
        assert!(matches!(sink.way, Way::Own(_)) && sink.hangs_up());
        assert_eq!(fill(&sink), 65536);

        let (reader, writer) = pipe();
        let sink = Sink { stream: writer, way: Way::Asking, hangs_up: true };
        assert_eq!(fill(&sink), 65536);
        rustix::io::read(reader, &mut [0u8; 5000]).expect("it is full");
        assert_eq!(sink.write(&[7; 8192]), Ok(4096), "one page is free again");
        let flags = rustix::fs::fcntl_getfl(writer).expect("it is open");
        assert!(!flags.contains(OFlags::NONBLOCK), "the open file itself is as it was");
    }

    #[test]
    fn streams_are_the_same_if_what_is_written_to_them_mixes() {
        let ((_, one), (_, other)) = (pipe(), pipe());
        assert_eq!((is_same(one, one), is_same(one, other)), (Ok(true), Ok(false)));
        let path = std::env::temp_dir().join(format!("cofferdam-sink-{}", std::process::id()));
        let first = std::fs::File::create(&path).expect("a file");
        let shared = first.try_clone().expect("a second descriptor");
        let second = std::fs::OpenOptions::new().append(true).open(&path).expect("it exists");
        rustix::io::write(&first, b"text").expect("it can be written");
        std::fs::remove_file(&path).expect("it is ours");
        assert_eq!(is_same(first.as_fd(), shared.as_fd()), Ok(true));
        assert_eq!(is_same(first.as_fd(), second.as_fd()), Ok(false), "it writes elsewhere");
    }
}
