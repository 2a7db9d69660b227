//! Answers that outlive the session, written to their policies by a short-lived child: the lock of a policy may be held for
//! seconds, and meanwhile the loop has a file system to serve, a clock to watch and a terminal to relay. Owns the child and
//! the order (one at a time, as they were given); what is written where is the caller's `Memory`. Called by `faces`, the
//! loop, and at the end by `launch`.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cofferdam_gate::{Settled, Verdict};
use cofferdam_kernel::process::{self, Side};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use crate::desk::ClientId;
use crate::launch::Memory;
use crate::supervisor::Running;

/// Answers to be kept together, and the client that asked for it.
#[derive(Debug)]
struct Batch {
    answers: Vec<Settled>,
    client: Option<ClientId>,
}

/// What became of each answer of a batch, in their order: what was written, or why nothing was.
type Kept = Vec<Result<String, String>>;

#[derive(Debug, Default)]
pub(crate) struct Keeping {
    waiting: VecDeque<Batch>,
    writer: Option<Writer>,
}

/// The child that writes, and what it has said so far.
#[derive(Debug)]
struct Writer {
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
    fn start(memory: &Memory, batch: Batch) -> Result<Writer, (Batch, Errno)> {
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
    fn hear(&mut self) -> Result<bool, Errno> {
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

    fn finish(self) -> (Batch, Kept) {
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

impl Running<'_> {
    /// Keeps one answer; what becomes of it is told at the end.
    pub(crate) fn keep_answer(&mut self, settled: &Settled) {
        self.keep_all(vec![settled.clone()], None);
    }

    pub(crate) fn keep_all(&mut self, answers: Vec<Settled>, client: Option<ClientId>) {
        self.keeping.waiting.push_back(Batch { answers, client });
        self.write_next();
    }

    fn write_next(&mut self) {
        while self.keeping.writer.is_none()
            && let Some(batch) = self.keeping.waiting.pop_front()
        {
            let Some(memory) = &self.options.memory else {
                let kept = batch.answers.iter().map(|_| Err("nothing is kept here".to_owned())).collect();
                self.kept(batch, kept);
                continue;
            };
            match Writer::start(memory, batch) {
                Ok(writer) => self.keeping.writer = Some(writer),
                Err((batch, errno)) => {
                    let kept = batch.answers.iter().map(|_| Err(errno.to_string())).collect();
                    self.kept(batch, kept);
                }
            }
        }
    }

    /// The child said something, or ended.
    pub(crate) fn hear_writer(&mut self) -> Result<(), Errno> {
        let Some(writer) = &mut self.keeping.writer else { return Ok(()) };
        if writer.hear()?
            && let Some(writer) = self.keeping.writer.take()
        {
            let (batch, kept) = writer.finish();
            self.kept(batch, kept);
        }
        self.write_next();
        Ok(())
    }

    /// The session is over, and what is to be kept is not lost: nothing else waits now.
    pub(crate) fn finish_keeping(&mut self) -> Result<(), Errno> {
        while self.keeping.writer.is_some() || !self.keeping.waiting.is_empty() {
            self.hear_writer()?;
        }
        Ok(())
    }

    fn kept(&mut self, batch: Batch, kept: Kept) {
        let (mut done, mut left) = (0, Vec::new());
        for (settled, kept) in batch.answers.into_iter().zip(kept) {
            let told = match kept {
                Ok(told) => {
                    done += 1;
                    self.log().policy_changed(&settled, &told);
                    told
                }
                Err(why) => {
                    let path = settled.question.path.display();
                    let told = format!("the answer about {path} was not kept: {why}");
                    left.push(settled);
                    told
                }
            };
            if !told.is_empty() {
                self.record.answers.push(told);
            }
        }
        let Some(client) = batch.client else { return };
        let still = left.len();
        // For the session they count on, and can be saved again.
        self.granted.extend(left.into_iter().map(for_session));
        let Some(desk) = &mut self.desk else { return };
        match still {
            0 => desk.ok(client, &format!("{done} answers kept")),
            left => desk.refuse(client, &format!("{done} answers kept, {left} could not be")),
        }
    }
}

fn for_session(settled: Settled) -> Settled {
    let (Verdict::Allow { reach, .. } | Verdict::Deny { reach, .. }) = settled.verdict;
    Settled { verdict: Verdict::Allow { reach, keep: cofferdam_gate::Keep::Session }, ..settled }
}
