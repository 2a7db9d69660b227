//! Limits in the loop: what clock, monitor and output found becomes records, and the end of the session.

use std::time::Instant;

use cofferdam_audit as audit;
use cofferdam_plan::Limited;
use cofferdam_wire::End;
use rustix::io::Errno;
use rustix::process::Signal;

use crate::event_loop::Running;
use crate::limits::clock::Struck;
use crate::limits::monitor::FindingKind;

impl Running<'_> {
    pub(super) fn hear_clock(&mut self, struck: Struck) -> Result<(), Errno> {
        let seconds = self.plan.timeout.unwrap_or_default().as_secs();
        match struck {
            Struck::Near => self.log().named_limit(audit::Event::ResourceLimitApproached, "timeout", seconds),
            Struck::TimeIsUp => {
                self.ending.reason.get_or_insert(End::TimedOut);
                self.log().named_limit(audit::Event::ResourceLimitExceeded, "timeout", seconds);
                self.first.signal(Signal::TERM)?;
                self.execs.end_all(Signal::TERM);
                // A stopped command would not see the request to end.
                self.first.signal(Signal::CONT)?;
            }
            Struck::GraceIsOver => self.first.kill()?,
        }
        Ok(())
    }

    pub(super) fn look(&mut self, now: Instant) -> Result<(), Errno> {
        for finding in self.monitor.look(now, self.first.cgroup.as_ref())? {
            let end = match finding.what {
                Limited::Memory | Limited::MemoryHigh => End::OutOfMemory,
                Limited::CpuTime => End::CpuTimeLimit,
                Limited::Storage | Limited::Io => End::StorageLimit,
                Limited::Inodes => End::InodeLimit,
                Limited::Processes | Limited::Cpus | Limited::CpuSet => End::ProcessLimit,
            };
            // It is on its way out for this, and that is recorded.
            if self.ending.reason == Some(end) {
                continue;
            }
            self.log().limit(finding);
            if finding.kind == FindingKind::Over {
                self.end(end)?;
            }
        }
        Ok(())
    }

    pub(super) fn check_output(&mut self) -> Result<(), Errno> {
        let Some(output) = &mut self.streams.output else { return Ok(()) };
        let (news, is_exceeded) = (output.news(), output.allowance.is_exceeded());
        if let Some((event, limit)) = news {
            self.log().named_limit(event, "output", limit);
        }
        if is_exceeded && self.ending.reason.is_none() {
            self.end(End::OutputLimit)?;
        }
        Ok(())
    }
}
