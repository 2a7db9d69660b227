//! What follows once a session was ended for safety: the alert with what led to it, for the audit log and for a program of the
//! user's. Owns that program until it has ended or its time is over; what ends a session is the loop's, what a person reads
//! `cli`'s. Called at the end of a launch, when nothing runs inside any more and before clients read what is left.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use cofferdam_host::quarantine;
use cofferdam_host::quarantine::subject::Subject;
use cofferdam_kernel::timing::{seconds_now, time_until};
use cofferdam_plan::LaunchPlan;
use cofferdam_wire::End;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::PidfdFlags;
use serde_json::json;

use crate::records::log::Log;
use crate::records::summary::Summary;
use crate::user_program::{self, kill_group, pid_of};

/// A program that needs longer is ended: the caller of the session waits for it.
const MOST_TIME: Duration = Duration::from_secs(10);

/// What is needed of a session that was ended for safety.
pub(crate) struct Past<'a> {
    pub(crate) plan: &'a LaunchPlan,
    pub(crate) end: End,
    pub(crate) state: Option<&'a Path>,
    /// The file that an attempt came from.
    pub(crate) subject: Option<&'a Subject>,
    pub(crate) transaction: Option<&'a Path>,
}

/// Puts what an attempt came from into quarantine, and tells. What a hook says changes nothing any more.
pub(crate) fn follow(past: &Past<'_>, summary: &mut Summary, log: &mut Log<'_>) {
    let Past { plan, end, transaction, .. } = *past;
    if end == End::EscapeAttempt {
        quarantine(past, summary, log.session());
    }
    let alert = json!({
        "version": 1, "alert": end, "session": log.session(), "time": seconds_now(), "exit_code": end.exit_code(),
        "attempt": summary.attempt, "indicators": summary.indicators, "transaction": transaction,
        "quarantined": summary.quarantined, "events": log.last_events(),
    });
    let told = plan.response.hook.as_deref().map(|hook| tell(hook, &alert.to_string()));
    let failed = told.as_ref().and_then(|told| told.as_ref().err());
    if let (Some(why), Some(hook)) = (failed, &plan.response.hook) {
        let program = hook.first().map_or("", String::as_str);
        summary.warnings.push(format!("the alert did not reach `{program}` (`response.hook`): {why}"));
    }
    let told = told.map(|told| told.map_or_else(|why| why, |()| "told".to_owned()));
    log.responded(alert, told.as_deref());
}

fn quarantine(past: &Past<'_>, summary: &mut Summary, session: &str) {
    let (Some(state), Some(subject)) = (past.state, past.subject) else { return };
    let why = summary.attempt.as_ref().map_or("", |attempt| attempt.name);
    match quarantine::add(state, subject, (session, why), seconds_now()) {
        Ok(None) => summary.warnings.push(format!(
            "{} was changed while the session ran: what it was when it was started is not known, and nothing is quarantined",
            subject.path.display()
        )),
        Ok(entry) => summary.quarantined = entry,
        Err(errno) => summary.warnings.push(format!("what tried to escape could not be quarantined: {errno}")),
    }
}

/// Why it was not told, where it was not.
fn tell(hook: &[String], alert: &str) -> Result<(), String> {
    let started = user_program::command(hook, alert.as_bytes()).and_then(|mut command| command.spawn());
    let mut child = started.map_err(|error| error.to_string())?;
    let has_ended = wait(&child);
    if !has_ended {
        kill_group(&child);
    }
    match child.wait() {
        Ok(_) if !has_ended => Err(format!("it needed more than {} s", MOST_TIME.as_secs())),
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether it ended in its time. Not reaped: its number, and that of its group, are no other process's.
fn wait(child: &Child) -> bool {
    let Some(pidfd) = pid_of(child).and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return false;
    };
    let until = Instant::now() + MOST_TIME;
    loop {
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut fds, Some(&time_until(until))) {
            Err(Errno::INTR) => {}
            other => return other == Ok(1),
        }
    }
}
