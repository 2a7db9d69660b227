//! Pid 1 of the sandbox as the supervisor sees it, with the cgroup that every process of the session is in. Owns signals to
//! it, its end and what is known of that; why a session ends is the loop's.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use cofferdam_kernel::best_effort;
use cofferdam_kernel::shared::{SharedEnd, Told};
use cofferdam_wire::Usage;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_send_signal};

use crate::limits::cgroup::SessionCgroup;
use crate::limits::monitor::Monitor;
use crate::limits::sample::keyed;
use crate::limits::usage;

pub(crate) struct FirstProcess {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    pub(crate) cgroup: Option<SessionCgroup>,
    /// Whether it is pid 1 of the session, and not the command.
    pub(crate) is_pid_1: bool,
    /// Where it leaves how the command ended.
    pub(crate) told: SharedEnd,
}

impl FirstProcess {
    /// Sends a signal to pid 1, which passes it on. Gone is fine: the end is noticed elsewhere.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        let group = self.group().map(|group| rustix::process::kill_process_group(group, signal));
        match group.unwrap_or(Err(Errno::SRCH)).or_else(|_| pidfd_send_signal(&self.pidfd, signal)) {
            Err(Errno::SRCH) => Ok(()),
            other => other,
        }
    }

    /// Where it is the command itself, its process group, which pid 1 would signal: as long as the number is its own.
    fn group(&self) -> Option<Pid> {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let is_reaped = || rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), peek).is_err();
        Pid::from_raw(self.pid).filter(|_| !self.is_pid_1 && !is_reaped())
    }

    /// Ends every process of the session.
    pub(crate) fn kill(&self) -> Result<(), Errno> {
        if let Some(cgroup) = &self.cgroup {
            // Kernels before 5.14 have no such file; pid 1 takes every process along as well.
            best_effort(cgroup.kill(), "the signal below does the same");
        }
        self.signal(Signal::KILL)
    }

    /// Waits until pid 1 is gone, and with it every process of its namespace.
    pub(crate) fn reap(&self) -> Result<Option<WaitIdStatus>, Errno> {
        loop {
            match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED) {
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }

    /// How the command ended, once it has and no other process is left inside.
    pub(crate) fn told(&self) -> Option<Told> {
        self.told.get()
    }

    /// Whether the kernel ended processes of the session at its memory limit. With them it ends pid 1.
    pub(crate) fn was_out_of_memory(&self) -> bool {
        let events = self.cgroup.as_ref().and_then(|cgroup| cgroup.read("memory.events"));
        events.as_deref().and_then(|text| keyed(text, "oom_kill")).is_some_and(|count| count > 0)
    }

    pub(crate) fn usage(&self, seen: &Monitor<'_>, wall: Duration) -> Usage {
        match &self.cgroup {
            Some(cgroup) => usage::of_cgroup(cgroup, seen.peak, wall),
            None => usage::of_processes(self.told.get(), seen.last, seen.peak, wall),
        }
    }
}

impl AsFd for FirstProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}
