//! System calls that the filter reported: which go on, which are refused, and what is recorded of each. Owns reading the path of
//! a program that is to be started, which is for the record and never for the verdict: mounts and Landlock decide. The verdict
//! per call is `plan`'s, the words of a record are `log`'s. Called by the supervisor's loop.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use cofferdam_kernel::seccomp::{Listener, Notification};
use cofferdam_plan::seccomp::{Answer, name_of};
use cofferdam_plan::{LaunchPlan, Step, is_in_own_area};
use cofferdam_wire::{End, Level};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::event_loop::Running;
use crate::records::indicator;

const MOST_PATH: usize = 4096;
const AT_FDCWD: i32 = -100;

impl Running<'_> {
    pub(crate) fn answer(&mut self) -> Result<(), Errno> {
        let Some(listener) = &self.listener else { return Ok(()) };
        let notification = match listener.receive() {
            Ok(Some(notification)) => notification,
            Ok(None) => return Ok(()),
            Err(_) => {
                // Every process under the filter is gone.
                self.listener = None;
                return Ok(());
            }
        };
        let Some(answer) = self.answer_to(&notification, None)? else { return Ok(()) };
        if let Some(gate) = self.gate.as_mut().filter(|_| self.plan.filter.gated.contains(&notification.number)) {
            return gate.notified(notification);
        }
        self.listener.as_ref().map_or(Ok(()), |listener| give(answer, listener, &notification))
    }

    /// What is said to a call of the session's command, or of the further one with this number, once it is recorded. Nothing where the
    /// session was ended for safety: pid 1 takes a moment to take the others along, and a caller that hears nothing waits until it
    /// is killed.
    pub(crate) fn answer_to(
        &mut self,
        notification: &Notification,
        further: Option<usize>,
    ) -> Result<Option<Answer>, Errno> {
        let filter = &self.plan.filter;
        if filter.started.contains(&notification.number)
            && let Some(program) = unlisted_program(self.plan, notification)
        {
            self.log();
            self.summary.started(notification, &program, &mut self.log);
        }
        let is_init = i64::from(notification.pid) == i64::from(self.first.pid);
        let answer = filter.answer(notification.number, &notification.arguments, is_init);
        match answer {
            Answer::Refuse { is_counted: true, .. } if self.is_critical(notification) => {
                self.end_at_once(notification, further)?;
            }
            Answer::Refuse { is_counted: true, .. } => self.note(notification),
            Answer::Refuse { is_counted: false, .. } if !filter.gated.contains(&notification.number) => {
                self.log();
                self.summary.probed(notification, &mut self.log);
            }
            Answer::Refuse { .. } | Answer::GoOn => {}
        }
        self.end_past_threshold()?;
        Ok(Some(answer).filter(|_| !self.ending.reason.is_some_and(End::is_for_safety)))
    }

    fn is_critical(&self, notification: &Notification) -> bool {
        let name = name_of(notification.number).unwrap_or("unknown");
        self.plan.response.ends_at_critical && indicator::of(name, &notification.arguments).level == Level::Critical
    }

    /// A call with no harmless caller. First the end, then the words; only who called has to be read while it waits.
    fn end_at_once(&mut self, notification: &Notification, further: Option<usize>) -> Result<(), Errno> {
        if self.ending.reason.is_some_and(End::is_for_safety) {
            return Ok(());
        }
        let caller = cofferdam_gate::asker(notification.pid);
        // Whatever else was about to end it: this is what has to be told.
        self.ending.reason = Some(End::EscapeAttempt);
        self.first.kill()?;
        self.ending.subject = match further {
            Some(at) => self.attached.subject(at),
            None => self.options.subject.clone(),
        };
        self.log();
        self.summary.attempted(notification, caller, &mut self.log);
        Ok(())
    }

    /// Past the threshold the session is being killed; what it still asks is refused, and fills no log.
    fn note(&mut self, notification: &Notification) {
        if self.summary.violations <= self.plan.max_violations && !self.plan.filter.gated.contains(&notification.number)
        {
            self.log();
            self.summary.add(notification, &mut self.log);
        }
    }

    fn end_past_threshold(&mut self) -> Result<(), Errno> {
        if self.ending.reason.is_some() {
            return Ok(());
        }
        let (violations, signs) = (u64::from(self.summary.violations), self.summary.indicators.from_medium());
        let over = [
            (violations, Some(self.plan.max_violations), "syscalls.max_violations"),
            (signs, self.plan.response.max_medium, "response.max_medium"),
        ];
        let is_over = |(total, most, _): &(u64, Option<u32>, _)| most.is_some_and(|most| *total > u64::from(most));
        let Some((total, Some(most), setting)) = over.into_iter().find(is_over) else { return Ok(()) };
        self.end(End::TooManyViolations)?;
        self.log().too_many_violations(total, most, setting);
        Ok(())
    }
}

pub(crate) fn give(answer: Answer, listener: &Listener, notification: &Notification) -> Result<(), Errno> {
    match answer {
        Answer::GoOn => listener.go_on(notification.id),
        Answer::Refuse { errno, .. } => listener.refuse(notification, errno),
    }
}

/// The program that a call wants to start, if it is there and no rule lets it run. The process can change the path after it
/// was read: then the record names another one than the kernel refused.
fn unlisted_program(plan: &LaunchPlan, notification: &Notification) -> Option<PathBuf> {
    let path = named_program(notification)?;
    // What lies in the sandbox's own areas is not what the host has there, and nothing there may be executed.
    let is_own = is_in_own_area(&path);
    let real = if is_own { path } else { real_path(&path)? };
    let listed = plan.steps.iter().find_map(|step| match step {
        Step::Landlock(step) => Some(step.executables.as_slice()),
        _ => None,
    });
    let is_listed = listed.unwrap_or_default().iter().any(|entry| real.starts_with(entry));
    (!is_listed).then_some(real)
}

/// Where a path of the host leads; nothing where it leads nowhere, as on a search of PATH. Links of /proc are not followed:
/// they lead into the sandbox, whose root this process serves itself.
fn real_path(path: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
        Ok(file) => std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file))).ok(),
        Err(Errno::NOENT | Errno::NOTDIR) => None,
        Err(_) => Some(path.to_path_buf()),
    }
}

fn named_program(notification: &Notification) -> Option<PathBuf> {
    let (pid, arguments) = (notification.pid, &notification.arguments);
    let (directory, address) = match name_of(notification.number)? {
        "execve" => (AT_FDCWD, arguments[0]),
        // The low half, as the kernel reads it.
        "execveat" => (u32::try_from(arguments[0] & 0xffff_ffff).ok()?.cast_signed(), arguments[1]),
        _ => return None,
    };
    let memory = rustix::fs::open(format!("/proc/{pid}/mem"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = vec![0; MOST_PATH];
    let length = rustix::io::pread(&memory, &mut *bytes, address).ok()?;
    bytes.truncate(bytes[..length].iter().position(|byte| *byte == 0)?);
    let path = PathBuf::from(OsString::from_vec(bytes));
    let base = match directory {
        _ if path.is_absolute() => return Some(path),
        AT_FDCWD => format!("/proc/{pid}/cwd"),
        number => format!("/proc/{pid}/fd/{number}"),
    };
    let base = std::fs::read_link(base).ok()?;
    Some(if path.as_os_str().is_empty() { base } else { base.join(path) })
}
