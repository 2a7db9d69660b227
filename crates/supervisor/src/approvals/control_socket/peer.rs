//! Whether a client of the control socket may answer: the same user, in the supervisor's own namespaces. A process inside a sandbox,
//! this one or another, is in others, so a workload that finds a way to the socket still approves nothing (corpus F11).
//! Called by `control_socket` once per connection.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use cofferdam_kernel::socket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;
use thiserror::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum Refusal {
    #[error("this session belongs to another user")]
    OtherUser,
    #[error("questions are not answered from inside a sandbox or container")]
    Inside,
    #[error("it cannot be told who connects ({0})")]
    Unknown(Errno),
}

pub(super) fn check(connection: BorrowedFd<'_>) -> Result<(), Refusal> {
    let peer = socket::peer(connection).map_err(Refusal::Unknown)?;
    if peer.uid != rustix::process::geteuid().as_raw() {
        return Err(Refusal::OtherUser);
    }
    let process = socket::peer_process(connection).map_err(Refusal::Unknown)?;
    let Some(pid) = number_of(process.as_fd()) else { return Err(Refusal::Inside) };
    for namespace in ["user", "pid"] {
        let theirs = identity(&format!("/proc/{pid}/ns/{namespace}")).map_err(Refusal::Unknown)?;
        let ours = identity(&format!("/proc/self/ns/{namespace}")).map_err(Refusal::Unknown)?;
        if theirs != ours {
            return Err(Refusal::Inside);
        }
    }
    // Still the same process: only then was the number above its own all the time.
    match has_ended(process.as_fd()) {
        Ok(false) => Ok(()),
        Ok(true) => Err(Refusal::Unknown(Errno::SRCH)),
        Err(errno) => Err(Refusal::Unknown(errno)),
    }
}

/// The number of a process in this pid namespace; none if it is not seen from here.
fn number_of(process: BorrowedFd<'_>) -> Option<u32> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok()?;
    let number = info.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    number.trim().parse().ok().filter(|pid| *pid > 0)
}

fn identity(path: &str) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::statat(CWD, path, AtFlags::empty())?;
    Ok((stat.st_dev, stat.st_ino))
}

fn has_ended(process: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mut fds = [PollFd::from_borrowed_fd(process, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(!fds[0].revents().is_empty())
}
