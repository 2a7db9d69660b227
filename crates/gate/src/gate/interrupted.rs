//! Calls that end before their question does: a signal reached the thread, or it is gone. Owns when such a call is let go; what
//! becomes of the question is `gate`'s. Part of `Gate`.

use std::time::Instant;

use cofferdam_wire::{Cause, QuestionId, Verdict};
use rustix::io::Errno;

use super::{Gate, SECOND_LOOK};
use crate::open_questions::Stage;
use crate::triggers::{Answer, CallId};

impl Gate {
    pub(super) fn interrupted(&mut self, call: CallId) -> Result<(), Errno> {
        let waiting = self.open.ids().into_iter().find_map(|id| {
            self.open.get(id)?.calls.iter().find(|access| access.call == call).map(|access| access.thread)
        });
        if let Some(thread) = waiting {
            self.signalled.push((call, thread));
            self.look_after_signals(Instant::now())?;
        }
        Ok(())
    }

    /// A call that a signal has reached goes on waiting, unless the signal ends its thread.
    pub(super) fn look_after_signals(&mut self, now: Instant) -> Result<(), Errno> {
        let is_dying = |thread: u32| self.processes.as_ref().is_none_or(|processes| processes.is_dying(thread));
        let (dying, living): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.signalled).into_iter().partition(|(_, thread)| is_dying(*thread));
        self.signalled = living;
        let gone = self.gone();
        let dying = dying.into_iter().chain(gone);
        let is_told = self.trigger.as_ref().is_none_or(|trigger| trigger.can_serve());
        let is_watched = !self.signalled.is_empty() || !is_told && self.open.asked().next().is_some();
        self.look_again = is_watched.then(|| now + SECOND_LOOK);
        for (call, _) in dying {
            self.reply(call, Answer::Refuse(Errno::INTR))?;
            if let Some((id, _, true)) = self.open.withdraw(call) {
                self.abandon(id)?;
            }
        }
        Ok(())
    }

    /// Calls that no thread waits in any more, where the trigger is not told of that.
    fn gone(&self) -> Vec<(CallId, u32)> {
        let Some(trigger) = self.trigger.as_ref().filter(|trigger| !trigger.can_serve()) else { return Vec::new() };
        let calls = self.open.asked().flat_map(|case| &case.calls);
        calls.filter(|call| !trigger.is_waiting(call.call)).map(|call| (call.call, call.thread)).collect()
    }

    /// No call waits for a case any more. One that is being carried out is finished all the same.
    fn abandon(&mut self, id: QuestionId) -> Result<(), Errno> {
        if self.open.get(id).is_some_and(|case| case.stage == Stage::Asked) {
            return self.close(id, Verdict::DENY_ONCE, Cause::Gone, Vec::new(), Errno::INTR);
        }
        Ok(())
    }
}
