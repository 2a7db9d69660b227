//! System calls that the filter reported: which go on, which are refused, and what is recorded of each. Owns reading the path of
//! a program that is to be started, which is for the record and never for the verdict: mounts and Landlock decide. The verdict
//! per call is `plan`'s, the words of a record are `log`'s. Called by the supervisor's loop.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use cofferdam_kernel::seccomp::{Listener, Notification};
use cofferdam_plan::seccomp::{Answer, name_of};
use cofferdam_plan::{LaunchPlan, Step, is_in_own_area};
use cofferdam_wire::End;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::event_loop::Running;

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
        let answer = self.answer_to(&notification);
        if let Some(gate) = self.gate.as_mut().filter(|_| self.plan.filter.gated.contains(&notification.number)) {
            return gate.notified(notification);
        }
        if let Some(listener) = &self.listener {
            give(answer, listener, &notification)?;
        }
        self.end_past_threshold()
    }

    /// What is said to a call, once it is recorded.
    pub(crate) fn answer_to(&mut self, notification: &Notification) -> Answer {
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
            Answer::Refuse { is_counted: true, .. } => self.note(notification),
            Answer::Refuse { is_counted: false, .. } if !filter.gated.contains(&notification.number) => {
                self.log();
                self.summary.probed(notification, &mut self.log);
            }
            Answer::Refuse { .. } | Answer::GoOn => {}
        }
        answer
    }

    /// Past the threshold the session is being killed; what it still asks is refused, and fills no log.
    fn note(&mut self, notification: &Notification) {
        if self.summary.violations <= self.plan.max_violations && !self.plan.filter.gated.contains(&notification.number)
        {
            self.log();
            self.summary.add(notification, &mut self.log);
        }
    }

    pub(crate) fn end_past_threshold(&mut self) -> Result<(), Errno> {
        if self.summary.violations > self.plan.max_violations && self.ending.reason.is_none() {
            let (total, most) = (self.summary.violations, self.plan.max_violations);
            self.log().too_many_violations(total, most);
            self.end(End::TooManyViolations)?;
        }
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
