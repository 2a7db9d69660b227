//! A further command in a session that runs, as the supervisor sees it: its helper's process and its notified calls. What
//! the helper does is `launcher`'s, who may ask for one `approvals::control_socket`'s, the other end `attach_client`'s.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use cofferdam_host::quarantine::subject::Subject;
use cofferdam_kernel::best_effort;
use cofferdam_kernel::process::{self, Side};
use cofferdam_kernel::seccomp::{Listener, Notification};
use cofferdam_kernel::socket;
use cofferdam_kernel::timing::time_until;
use cofferdam_launcher::join::{JoinRequest, Joining};
use cofferdam_launcher::report::Message;
use cofferdam_plan::{LaunchPlan, Trigger};
use cofferdam_wire::exec::ExecId;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::limits::clock::GRACE;

const MOST_ATTACHED: usize = 16;

/// With those that ended and left processes behind.
const MOST_LISTENED_TO: usize = 256;

/// Why no command can join a session with this plan.
pub(crate) fn no_joining(plan: &LaunchPlan) -> Option<&'static str> {
    let is_notified = plan.gate.as_ref().is_some_and(|gate| gate.trigger == Trigger::Notify);
    is_notified.then_some("a session that asks by reported system calls cannot be attached to: /dev/fuse is missing")
}

/// Every further command of a session, and what one joins.
#[derive(Debug, Default)]
pub(crate) struct AttachedCommands {
    /// Once the set-up child has sent them, until no process is left inside.
    pub(crate) namespaces: Option<Vec<OwnedFd>>,
    running: Vec<Attached>,
    /// A further command was started at some time: it has a filter of its own, so the end of the session's first filter is
    /// not the end of every process inside.
    was_joined: bool,
}

impl AttachedCommands {
    pub(crate) fn start(
        &mut self,
        plan: &LaunchPlan,
        cgroup: Option<BorrowedFd<'_>>,
        request: &JoinRequest,
        (exec, subject): (Option<ExecId>, Option<Rc<Subject>>),
    ) -> Result<(), String> {
        if let Some(why) = no_joining(plan) {
            return Err(why.to_owned());
        }
        let running = self.running.iter().filter(|attached| attached.helper.is_some()).count();
        if running >= MOST_ATTACHED || self.running.len() >= MOST_LISTENED_TO {
            return Err("too many further commands run already, or left processes behind".to_owned());
        }
        let namespaces = self.namespaces.as_ref().ok_or("the session is not set up, or has no sandbox")?;
        let attached = Attached::start(plan, namespaces, cgroup, request);
        self.was_joined = true;
        let mut attached = attached.map_err(|errno| format!("cannot start a process ({errno})"))?;
        (attached.exec, attached.subject) = (exec, subject);
        self.running.push(attached);
        Ok(())
    }

    pub(crate) fn was_joined(&self) -> bool {
        self.was_joined
    }

    pub(crate) fn wanted(&self) -> impl Iterator<Item = (BorrowedFd<'_>, usize, Ready)> {
        let running = self.running.iter().enumerate();
        running.flat_map(|(at, one)| one.wanted().into_iter().map(move |(fd, ready)| (fd, at, ready)))
    }

    pub(crate) fn turn(&mut self, at: usize, ready: Ready) -> Result<Option<News>, Errno> {
        self.running.get_mut(at).map_or(Ok(None), |attached| attached.turn(ready))
    }

    pub(crate) fn listener(&self, at: usize) -> Option<&Listener> {
        self.running.get(at).and_then(|attached| attached.listener.as_ref())
    }

    /// The file that a further command came from.
    pub(crate) fn subject(&self, at: usize) -> Option<Rc<Subject>> {
        self.running.get(at).and_then(|attached| attached.subject.clone())
    }

    pub(crate) fn forget_ended(&mut self) {
        self.running.retain(|attached| attached.helper.is_some() || attached.listener.is_some());
    }
}

/// The supervisor's end.
#[derive(Debug)]
struct Attached {
    /// Until it has ended.
    helper: Option<OwnedFd>,
    /// Where the command's listener comes from.
    report: Option<OwnedFd>,
    /// Until every process that the command left behind has ended, too.
    listener: Option<Listener>,
    /// Where its output is kept.
    exec: Option<ExecId>,
    /// What an attempt of it is put down to.
    subject: Option<Rc<Subject>>,
}

/// What a turn brought.
#[derive(Debug)]
pub(crate) enum News {
    /// A call that was reported.
    Call(Notification),
    /// It became a program, or could not.
    Executed(ExecId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Report,
    Notification,
    /// Every process under the command's filter is gone.
    Unfiltered,
    Helper,
}

impl Attached {
    fn start(
        plan: &LaunchPlan,
        namespaces: &[OwnedFd],
        cgroup: Option<BorrowedFd<'_>>,
        request: &JoinRequest,
    ) -> Result<Attached, Errno> {
        let (ours, theirs) = socket::pair()?;
        match process::clone_into(0, None)? {
            Side::Child => {
                drop(ours);
                Joining { plan, namespaces, cgroup, request, report: theirs }.help()
            }
            Side::Parent { pidfd, .. } => {
                Ok(Attached { helper: Some(pidfd), report: Some(ours), listener: None, exec: None, subject: None })
            }
        }
    }

    fn wanted(&self) -> Vec<(BorrowedFd<'_>, Ready)> {
        let report = self.report.as_ref().map(|fd| (fd.as_fd(), Ready::Report));
        let listener = self.listener.as_ref().map(|listener| (listener.as_fd(), Ready::Notification));
        let helper = self.helper.as_ref().map(|fd| (fd.as_fd(), Ready::Helper));
        [report, listener, helper].into_iter().flatten().collect()
    }

    fn turn(&mut self, ready: Ready) -> Result<Option<News>, Errno> {
        match ready {
            Ready::Report => {
                let received = self.report.as_ref().map(socket::receive_now).transpose()?;
                let (bytes, mut fds) = received.unwrap_or_default();
                if let (Some(Message::Listener), Some(fd)) = (Message::decode(&bytes), fds.pop()) {
                    self.listener = Some(Listener::from_fd(fd));
                } else {
                    self.report = None;
                    return Ok(self.exec.map(News::Executed));
                }
            }
            Ready::Notification => match self.listener.as_ref().map(Listener::receive) {
                Some(Ok(notification)) => return Ok(notification.map(News::Call)),
                // Every process that could ask is gone.
                Some(Err(_)) | None => self.listener = None,
            },
            Ready::Unfiltered => self.listener = None,
            Ready::Helper => {
                if let Some(helper) = self.helper.take() {
                    waitid(WaitId::PidFd(helper.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG)?;
                }
            }
        }
        Ok(None)
    }
}

impl Drop for Attached {
    /// The command ended with the session; its helper gets a moment to say so.
    fn drop(&mut self) {
        let Some(helper) = self.helper.take() else { return };
        let mut fds = [PollFd::new(&helper, PollFlags::IN)];
        let until = time_until(Instant::now() + GRACE);
        if poll(&mut fds, Some(&until)) != Ok(1) {
            best_effort(pidfd_send_signal(&helper, Signal::KILL), "it may have ended meanwhile");
        }
        while matches!(waitid(WaitId::PidFd(helper.as_fd()), WaitIdOptions::EXITED), Err(Errno::INTR)) {}
    }
}
