//! What the set-up child says. Owns its socket and how far it came; each descriptor goes where the loop sends it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cofferdam_kernel::socket;
use cofferdam_launcher::report::Message;
use cofferdam_plan::LaunchPlan;
use rustix::io::Errno;

/// A message, and the descriptors that came with it.
type Said = (Vec<u8>, Vec<OwnedFd>);

pub(crate) struct SetUp {
    pub(crate) socket: Option<OwnedFd>,
    /// Its reports other than descriptors, in order.
    pub(crate) reports: Vec<Message>,
    /// It said that its walls stand.
    pub(crate) stands: bool,
}

impl SetUp {
    pub(crate) fn heard_at(socket: OwnedFd) -> Self {
        SetUp { socket: Some(socket), reports: Vec::new(), stands: false }
    }

    pub(crate) fn wanted(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Without a pid namespace there are no walls.
    pub(crate) fn is_done(&self, plan: &LaunchPlan) -> bool {
        self.stands || !plan.namespaces.pid
    }

    /// What it says next; it closes its end once the command runs.
    pub(crate) fn next(&self) -> Result<Option<Said>, Errno> {
        let Some(socket) = &self.socket else { return Ok(None) };
        match socket::receive_now(socket) {
            // Nothing yet, or it was taken earlier in this turn.
            Err(Errno::AGAIN) => Ok(None),
            other => other.map(Some),
        }
    }
}
