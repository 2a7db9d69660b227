//! A session that no layer gave a network: the sockets that hear what its programs ask for, until one of them does. Then an
//! egress process is started that refuses every host and has no network itself, so that the first refusal is final and has a
//! name, and a session that asks for nothing costs no process. Owns these sockets; called by `launch` and the loop.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use cofferdam_kernel::socket;
use cofferdam_plan::{EgressPlan, LaunchPlan};
use cofferdam_reach::start::PROGRAM;
use rustix::io::Errno;

use crate::error::LaunchError;
use crate::network::egress_process::{Egress, Ends, Reach};

/// What `poll` has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    /// The set-up made sockets inside.
    Sockets,
    /// A program inside asks for a host.
    Asked,
}

pub(crate) struct Refuser {
    ends: Ends,
    /// Messages of the set-up with the sockets in them, for the egress process.
    caught: Vec<(Vec<u8>, Vec<OwnedFd>)>,
    is_complete: bool,
}

impl Refuser {
    pub(crate) fn of(plan: &LaunchPlan, program: Option<&Path>) -> Result<Option<Refuser>, Errno> {
        if !plan.egress.as_ref().is_some_and(|egress| egress.only_refuses) {
            return Ok(None);
        }
        let ends = Ends::refusing(program.map_or_else(|| PathBuf::from(PROGRAM), PathBuf::from))?;
        Ok(Some(Refuser { ends, caught: Vec::new(), is_complete: false }))
    }

    pub(crate) fn catcher(&mut self) -> Option<OwnedFd> {
        self.ends.catcher()
    }

    pub(crate) fn wanted(&self) -> impl Iterator<Item = (BorrowedFd<'_>, Ready)> {
        let sockets = (!self.is_complete).then(|| (self.ends.sockets(), Ready::Sockets));
        let caught = self.caught.iter().flat_map(|(_, sockets)| sockets);
        sockets.into_iter().chain(caught.map(|socket| (socket.as_fd(), Ready::Asked)))
    }

    pub(crate) fn take_sockets(&mut self) {
        match socket::receive_now(self.ends.sockets()) {
            Ok((message, sockets)) if !message.is_empty() => self.caught.push((message, sockets)),
            Err(Errno::AGAIN) => {}
            // The set-up has ended.
            _ => self.is_complete = true,
        }
    }

    /// Starts the process, which finds what the sockets heard so far.
    pub(crate) fn start(mut self, plan: &EgressPlan) -> Result<Egress, LaunchError> {
        while !self.is_complete {
            let before = self.caught.len();
            self.take_sockets();
            if self.caught.len() == before {
                break;
            }
        }
        let (ours, theirs) = socket::pair().map_err(LaunchError::Supervise)?;
        for (message, sockets) in &self.caught {
            let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(|socket| socket.as_fd()).collect();
            socket::send_all(ours.as_fd(), message, &sockets).map_err(LaunchError::Supervise)?;
        }
        self.ends.take_sockets_from(theirs);
        self.ends.check_program()?;
        self.ends.start(Reach::Nothing)?.give(plan, None)
    }
}
