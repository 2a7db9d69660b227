//! The end of a session, in the loop: what is left in buffers is passed on, and how the command ended is told from what pid 1
//! said, the limits and the kernel.

use std::time::Duration;

use cofferdam_audit as audit;
use cofferdam_kernel::shared::Told;
use cofferdam_plan::{Keeper, Limited};
use cofferdam_wire::{End, Usage};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::event_loop::Running;
use crate::limits::clock::GRACE;
use crate::limits::monitor::{Finding, FindingKind};
use crate::terminal::drain::{Drained, Patience};

impl Running<'_> {
    /// What the command wrote last, and what the set-up said last, may still lie in the buffers.
    fn take_what_is_left(&mut self) -> Result<(), Errno> {
        self.take_reports()?;
        self.streams.finish_input();
        let drained = self.drain()?;
        // What was written last may have been too much.
        self.check_output()?;
        if drained && self.streams.mark_dropped()? {
            self.drain()?;
        }
        Ok(())
    }

    /// Whether all that was written could be passed on.
    fn drain(&mut self) -> Result<bool, Errno> {
        let is_over = self.ending.asked_to_end.is_some() || self.ending.reason.is_some();
        let patience = if is_over { Patience::WhileRead(GRACE) } else { Patience::Until(self.ending.clock.deadline()) };
        let given_up = match (self.streams.drain(&self.signals, patience)?, self.ending.asked_to_end) {
            (None | Some(Drained::All), _) => None,
            (Some(Drained::Asked(signal)), _) | (Some(Drained::OutOfTime), Some(signal)) => {
                Some(End::Killed { signal: signal.as_raw() })
            }
            (Some(Drained::OutOfTime), None) => Some(End::TimedOut),
        };
        self.ending.reason = self.ending.reason.or(given_up);
        Ok(given_up.is_none())
    }

    /// Every process inside has ended but pid 1, which the kernel is taking apart.
    pub(super) fn finish_early(&mut self, told: Told) -> Result<End, Errno> {
        self.take_what_is_left()?;
        Ok(self.ending.reason.unwrap_or_else(|| self.end_of(told)))
    }

    /// How the command ended. What the monitor keeps may be stopped by an rlimit before the monitor has seen it.
    fn end_of(&mut self, told: Told) -> End {
        let cpu_seconds = told.user_micros.saturating_add(told.system_micros) / 1_000_000;
        if told.code != 0 && self.went_over(Limited::Memory, told.memory_peak) {
            return End::OutOfMemory;
        }
        if told.signalled && self.went_over(Limited::CpuTime, cpu_seconds) {
            return End::CpuTimeLimit;
        }
        let code = i32::from(told.code);
        if told.signalled { End::Signalled { signal: code - 128 } } else { End::Exited { code } }
    }

    /// Whether a limit that the monitor keeps was reached without its seeing it; what it would have written is written now.
    fn went_over(&mut self, what: Limited, used: u64) -> bool {
        let bound = self.plan.limits.bound(what).filter(|bound| bound.by == Keeper::Watched && used >= bound.value);
        let Some(limit) = bound.map(|bound| bound.value) else { return false };
        self.log().limit(Finding { kind: FindingKind::Over, what, used, limit });
        true
    }

    /// The kernel ended it at its memory limit; what that says is written.
    fn was_out_of_memory(&mut self) -> bool {
        let killed = self.first.was_out_of_memory();
        if killed {
            let allowed = self.plan.limits.bound(Limited::Memory).map_or(0, |bound| bound.value);
            self.log().named_limit(audit::Event::ResourceLimitExceeded, "memory", allowed);
        }
        killed
    }

    pub(crate) fn usage(&self, wall: Duration) -> Usage {
        self.first.usage(&self.monitor, wall)
    }

    pub(super) fn finish(&mut self) -> Result<End, Errno> {
        self.take_what_is_left()?;
        let status = self.first.reap()?;
        if let Some(reason) = self.ending.reason {
            return Ok(reason);
        }
        Ok(match status.as_ref().map(|s| (s.exit_status(), s.terminating_signal())) {
            Some((Some(code), _)) => match self.first.told() {
                Some(told) => self.end_of(told),
                None => End::Exited { code },
            },
            Some((_, Some(signal))) if self.was_out_of_memory() => {
                debug_assert_eq!(signal, Signal::KILL.as_raw());
                End::OutOfMemory
            }
            Some((_, Some(signal))) => End::Killed { signal },
            _ => End::Killed { signal: 0 },
        })
    }
}
