//! Signals: blocking, waiting, resetting before exec. Called by `launcher` and `supervisor`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::raw;

pub fn block_all() -> Result<(), Errno> {
    raw::signal::block_all_signals()
}

/// Default dispositions and nothing blocked.
pub fn reset() -> Result<(), Errno> {
    raw::signal::reset_signals()
}

/// A signal and who sent it; `sender` is 0 when that process is not visible from here (outside this pid namespace).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    pub signal: i32,
    pub sender: i32,
}

/// Waits for one of the blocked signals.
pub fn wait() -> Result<Received, Errno> {
    loop {
        match raw::signal::wait_for_signal() {
            Ok((signal, sender)) => return Ok(Received { signal, sender }),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Blocked signals as a pollable descriptor.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    pub fn new() -> Result<Self, Errno> {
        raw::signal::signal_fd().map(SignalFd)
    }

    /// The next pending signal, if any.
    pub fn read(&self) -> Result<Option<i32>, Errno> {
        // struct signalfd_siginfo is 128 bytes and starts with the signal number.
        let mut buffer = [0u8; 128];
        match rustix::io::read(&self.0, &mut buffer) {
            Ok(128) => Ok(Some(i32::from_ne_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]))),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
