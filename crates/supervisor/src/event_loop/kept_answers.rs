//! Answers that outlive the session, in the loop: starts the writer of each batch and tells what became of it.

use cofferdam_wire::{Keep, Settled, Verdict};
use rustix::io::Errno;

use crate::approvals::control_socket::ClientId;
use crate::approvals::kept_answers::{Batch, Kept, Writer, for_session};
use crate::event_loop::Running;

impl Running<'_> {
    /// Keeps one answer; what becomes of it is told at the end.
    pub(crate) fn keep_answer(&mut self, settled: &Settled) {
        self.keep_all(vec![settled.clone()], None);
    }

    pub(crate) fn keep_all(&mut self, answers: Vec<Settled>, client: Option<ClientId>) {
        self.approvals.keeping.waiting.push_back(Batch { answers, client });
        self.write_next();
    }

    fn write_next(&mut self) {
        while self.approvals.keeping.writer.is_none()
            && let Some(batch) = self.approvals.keeping.waiting.pop_front()
        {
            let Some(memory) = &self.options.memory else {
                let kept = batch.answers.iter().map(|_| Err("nothing is kept here".to_owned())).collect();
                self.kept(batch, kept);
                continue;
            };
            match Writer::start(memory, batch) {
                Ok(writer) => self.approvals.keeping.writer = Some(writer),
                Err((batch, errno)) => {
                    let kept = batch.answers.iter().map(|_| Err(errno.to_string())).collect();
                    self.kept(batch, kept);
                }
            }
        }
    }

    /// The child said something, or ended.
    pub(crate) fn hear_writer(&mut self) -> Result<(), Errno> {
        let Some(writer) = &mut self.approvals.keeping.writer else { return Ok(()) };
        if writer.hear()?
            && let Some(writer) = self.approvals.keeping.writer.take()
        {
            let (batch, kept) = writer.finish();
            self.kept(batch, kept);
        }
        self.write_next();
        Ok(())
    }

    /// The session is over, and what is to be kept is not lost: nothing else waits now.
    pub(crate) fn finish_keeping(&mut self) -> Result<(), Errno> {
        while self.approvals.keeping.writer.is_some() || !self.approvals.keeping.waiting.is_empty() {
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
                    let (Verdict::Allow { keep, .. } | Verdict::Deny { keep, .. }) = settled.verdict;
                    self.summary.wrote_project |= keep == Keep::Project;
                    self.log().policy_changed(&settled, &told);
                    told
                }
                Err(why) => {
                    let subject = settled.question.subject.text();
                    let told = format!("the answer about {subject} was not kept: {why}");
                    left.push(settled);
                    told
                }
            };
            if !told.is_empty() {
                self.summary.answers.push(told);
            }
        }
        let Some(client) = batch.client else { return };
        let still = left.len();
        // For the session they count on, and can be saved again.
        self.approvals.granted.extend(left.into_iter().map(for_session));
        let Some(control) = &mut self.approvals.control else { return };
        match still {
            0 => control.ok(client, &format!("{done} answers kept")),
            left => control.refuse(client, &format!("{done} answers kept, {left} could not be")),
        }
    }
}
