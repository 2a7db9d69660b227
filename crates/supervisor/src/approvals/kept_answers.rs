//! Answers that outlive the session, written to their policies by a short-lived child: the lock of a policy may be held for
//! seconds, and meanwhile the loop has a file system to serve, a clock to watch and a terminal to relay. Owns the child and
//! the order (one at a time, as they were given); what is written where is the caller's `Memory`. Called by the
//! loop, and at the end by `launch`.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cofferdam_kernel::process::{self, Side};
use cofferdam_wire::{Settled, Verdict};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use crate::approvals::control_socket::ClientId;
use crate::options::Memory;

/// Answers to be kept together, and the client that asked for it.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) answers: Vec<Settled>,
    pub(crate) client: Option<ClientId>,
}

/// What became of each answer of a batch, in their order: what was written, or why nothing was.
pub(crate) type Kept = Vec<Result<String, String>>;

#[derive(Debug, Default)]
pub(crate) struct Keeping {
    pub(crate) waiting: VecDeque<Batch>,
    pub(crate) writer: Option<Writer>,
}

/// The child that writes, and what it has said so far.
#[derive(Debug)]
pub(crate) struct Writer {
    batch: Batch,
    pidfd: OwnedFd,
    report: OwnedFd,
    said: Vec<u8>,
}

impl Keeping {
    pub(crate) fn wanted(&self) -> Option<BorrowedFd<'_>> {
        self.writer.as_ref().map(|writer| writer.report.as_fd())
    }
}

impl Writer {
    /// The child has a copy of everything and needs nothing but its pipe: it must not keep the session's ends open.
    pub(crate) fn start(memory: &Memory, batch: Batch) -> Result<Writer, (Batch, Errno)> {
        let (report, theirs) = match pipe_with(PipeFlags::CLOEXEC) {
            Ok(pipe) => pipe,
            Err(errno) => return Err((batch, errno)),
        };
        match process::clone_into(0, None) {
            Ok(Side::Child) => {
                let code = write(memory, &batch.answers, &theirs).map_or(1, |()| 0);
                process::exit_now(code)
            }
            Ok(Side::Parent { pidfd, .. }) => Ok(Writer { batch, pidfd, report, said: Vec::new() }),
            Err(errno) => Err((batch, errno)),
        }
    }

    /// Whether it has said all.
    pub(crate) fn hear(&mut self) -> Result<bool, Errno> {
        let mut buffer = [0u8; 4096];
        match rustix::io::read(&self.report, &mut buffer) {
            Ok(0) => Ok(true),
            Ok(length) => {
                self.said.extend_from_slice(&buffer[..length]);
                Ok(false)
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    pub(crate) fn finish(self) -> (Batch, Kept) {
        while matches!(waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED), Err(Errno::INTR)) {}
        let mut kept: Kept = serde_json::from_slice(&self.said).unwrap_or_default();
        kept.resize_with(self.batch.answers.len(), || Err("the process that writes it ended".to_owned()));
        (self.batch, kept)
    }
}

/// In the child.
fn write(memory: &Memory, answers: &[Settled], report: &OwnedFd) -> Result<(), Errno> {
    process::die_with_parent()?;
    process::keep_only(&[report.as_fd()])?;
    let kept: Kept = answers.iter().map(|settled| (memory.0)(settled)).collect();
    let mut rest = serde_json::to_vec(&kept).map_err(|_| Errno::INVAL)?;
    while !rest.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(report, &rest))?;
        rest.drain(..written);
    }
    Ok(())
}

pub(crate) fn for_session(settled: Settled) -> Settled {
    let (Verdict::Allow { reach, .. } | Verdict::Deny { reach, .. }) = settled.verdict;
    Settled { verdict: Verdict::Allow { reach, keep: cofferdam_wire::Keep::Session }, ..settled }
}
