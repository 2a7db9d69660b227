//! A pair of message sockets that can carry one descriptor per message: how the set-up child reports to its parent.
//! Closed before the workload starts. Also says who made the other end of a connection. Called by `launcher` and `supervisor`.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};

use rustix::process::{Pid, PidfdFlags};

use crate::raw;

pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Who made the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// 0 when that process is not visible from here (outside this pid namespace), which rustix's own type cannot hold.
    pub pid: i32,
    pub uid: u32,
}

pub fn peer(socket: impl AsFd) -> Result<Peer, Errno> {
    raw::socket::peer(socket.as_fd()).map(|(pid, uid)| Peer { pid, uid })
}

/// The process that made the other end, if it still lives. Before Linux 6.5 found by its number, which may have been given
/// out again since.
pub fn peer_process(socket: impl AsFd) -> Result<OwnedFd, Errno> {
    match raw::socket::peer_pidfd(socket.as_fd()) {
        Err(Errno::NOPROTOOPT) => {
            let pid = Pid::from_raw(peer(socket)?.pid).ok_or(Errno::SRCH)?;
            rustix::process::pidfd_open(pid, PidfdFlags::empty())
        }
        other => other,
    }
}

pub fn send(socket: BorrowedFd<'_>, message: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
    send_all(socket, message, &fds)
}

/// The same without waiting; AGAIN where the other side has not read what came before.
pub fn send_now(socket: BorrowedFd<'_>, message: &[u8]) -> Result<(), Errno> {
    rustix::net::send(socket, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)
}

/// Most descriptors that one message carries.
pub const MOST_DESCRIPTORS: usize = 8;

/// The same with several descriptors.
pub fn send_all(socket: BorrowedFd<'_>, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::NOBUFS);
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(message)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next message and the descriptor it carries; an empty message means that the other side is gone.
pub fn receive(socket: impl AsFd) -> Result<(Vec<u8>, Option<OwnedFd>), Errno> {
    receive_at_most(socket, 4096)
}

/// The same for messages of up to 256 KiB; a longer one is an error.
pub fn receive_long(socket: impl AsFd) -> Result<(Vec<u8>, Option<OwnedFd>), Errno> {
    receive_at_most(socket, 1 << 18)
}

fn receive_at_most(socket: impl AsFd, most: usize) -> Result<(Vec<u8>, Option<OwnedFd>), Errno> {
    let (bytes, fds) = receive_with(socket, most, RecvFlags::empty())?;
    Ok((bytes, fds.into_iter().next()))
}

/// The next message with all its descriptors.
pub fn receive_all(socket: impl AsFd) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    receive_with(socket, 4096, RecvFlags::empty())
}

/// What is there now, with its descriptors; AGAIN where nothing is.
pub fn receive_now(socket: impl AsFd) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    receive_with(socket, 4096, RecvFlags::DONTWAIT)
}

fn receive_with(socket: impl AsFd, most: usize, flags: RecvFlags) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    let mut buffer = vec![0u8; most];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        let result = rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(&mut buffer)], &mut ancillary, flags);
        match result {
            // The other side ended with something of ours unread: reported once, before what it has sent.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            other => break other?,
        }
    };
    if received.flags.contains(rustix::net::ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE);
    }
    buffer.truncate(received.bytes);
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds);
        }
    }
    Ok((buffer, descriptors))
}

/// Whether no process has the other end any more; what was sent before does not hide it.
pub fn is_abandoned(socket: impl AsFd) -> Result<bool, Errno> {
    let mut fds = [PollFd::new(&socket, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(fds[0].revents().contains(PollFlags::HUP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_is_known_by_its_process() {
        let (ours, _theirs) = pair().expect("a pair");
        let own = Peer { pid: rustix::process::getpid().as_raw_pid(), uid: rustix::process::getuid().as_raw() };
        assert_eq!(peer(&ours), Ok(own));
        peer_process(&ours).expect("this process lives");
    }

    #[test]
    fn an_end_that_nobody_has_is_noticed_also_behind_a_message() {
        let (ours, theirs) = pair().expect("descriptors are free");
        assert_eq!(is_abandoned(&theirs), Ok(false));
        send(ours.as_fd(), b"word", None).expect("there is room");
        assert_eq!(is_abandoned(&theirs), Ok(false));
        drop(ours);
        assert_eq!(is_abandoned(&theirs), Ok(true));
        assert_eq!(receive(&theirs).expect("readable").0, b"word");
        assert_eq!(is_abandoned(&theirs), Ok(true));
    }
}
