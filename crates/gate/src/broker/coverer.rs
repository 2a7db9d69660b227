//! Covers a name of the sandbox's view again, by a broker of its own: the answer is waited for, which the gate's broker does
//! not allow. Owns that process and the wait; which name, and why, is the caller's. Used by `supervisor::covers`, in both modes.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::broker::Broker;
use crate::broker::orders::{How, Order, Outcome};

#[derive(Debug)]
pub struct Coverer(Broker);

impl Coverer {
    /// `sandbox` is the sandbox's mount namespace.
    pub fn start(sandbox: BorrowedFd<'_>) -> Result<Coverer, Errno> {
        Broker::start(sandbox).map(Coverer)
    }

    /// Covers `name` in a directory of the sandbox's view; EXDEV where it is covered. Nothing that it does asks a FUSE root,
    /// so the process that serves one may wait for it.
    pub fn cover(&self, directory: BorrowedFd<'_>, name: &OsStr, how: How, exec: bool) -> Result<(), Errno> {
        let order = Order::CoverAgain { name: PathBuf::from(name), how, exec };
        self.0.send(&order.encode(), Some(directory))?;
        match self.0.receive()?.0 {
            Outcome::Done => Ok(()),
            Outcome::Failed(errno) => Err(errno),
            Outcome::Held { .. } => Err(Errno::BADMSG),
        }
    }
}
