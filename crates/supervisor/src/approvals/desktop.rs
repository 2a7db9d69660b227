//! Notifications of the desktop, where the policy asks for them: one call over D-Bus for the first question of a burst, made by a child
//! process, so that a bus that hangs delays nothing. Owns the child and how often one is started; what is told is the prompt's line.
//! Called by the loop.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_host::cgroup_home::session_bus;
use cofferdam_kernel::best_effort;
use cofferdam_kernel::process::{self, Side};
use cofferdam_wire::Question;
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::approvals::burst::Burst;
use crate::limits::dbus::marshal::{Call, Values};
use crate::limits::dbus::{Bus, BusError};

/// The child gives up then.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Desktop {
    burst: Burst,
    child: Option<OwnedFd>,
}

impl Desktop {
    /// One notification, unless there was one a moment ago. One that cannot be shown is no reason to stop.
    pub(crate) fn tell(&mut self, question: &Question, line: &str) {
        self.reap();
        if !self.burst.begins(question.id, Instant::now()) {
            return;
        }
        let environment: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let Some(bus) = session_bus(&environment).filter(|_| self.child.is_none()) else { return };
        self.child = start(&bus, line).ok();
    }

    fn reap(&mut self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let has_ended = |child: &OwnedFd| !matches!(waitid(WaitId::PidFd(child.as_fd()), options), Ok(None));
        if self.child.as_ref().is_some_and(has_ended) {
            self.child = None;
        }
    }
}

impl Drop for Desktop {
    /// What the bus has not taken by now is not waited for.
    fn drop(&mut self) {
        let Some(child) = &self.child else { return };
        best_effort(pidfd_send_signal(child, Signal::KILL), "it may have ended");
        while matches!(waitid(WaitId::PidFd(child.as_fd()), WaitIdOptions::EXITED), Err(Errno::INTR)) {}
    }
}

fn start(bus: &Path, line: &str) -> Result<OwnedFd, Errno> {
    match process::clone_into(0, None)? {
        Side::Child => {
            let told = process::die_with_parent().and_then(|()| process::keep_only(&[]));
            let is_told = told.is_ok() && notify(bus, line).is_ok();
            process::exit_now(i32::from(!is_told))
        }
        Side::Parent { pidfd, .. } => Ok(pidfd),
    }
}

fn notify(bus: &Path, line: &str) -> Result<(), BusError> {
    Bus::connect(bus, Instant::now() + PATIENCE)?.call(&call(line))
}

/// `Notify(application, replaces, icon, summary, body, actions, hints, timeout)`. A body may be read as markup.
fn call(line: &str) -> Call<'static> {
    let mut body = Values::default();
    body.string("sandbox");
    body.number(0);
    body.string("");
    body.string("sandbox: a question waits");
    body.string(&line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"));
    body.array(4, |_| {});
    body.array(8, |_| {});
    // -1: as long as the desktop shows others.
    body.number(u32::MAX);
    Call {
        destination: "org.freedesktop.Notifications",
        path: "/org/freedesktop/Notifications",
        interface: "org.freedesktop.Notifications",
        member: "Notify",
        signature: "susssasa{sv}i",
        body,
    }
}
