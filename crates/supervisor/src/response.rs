//! What follows once a session was ended for safety: the alert with what led to it, for the audit log and for a program of the
//! user's. Owns that program until it has ended or its time is over; what ends a session is the loop's, what a person reads
//! `cli`'s. Called at the end of a launch, when nothing runs inside any more.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use cofferdam_host::quarantine;
use cofferdam_kernel::best_effort;
use cofferdam_kernel::timing::{seconds_now, time_until};
use cofferdam_plan::LaunchPlan;
use cofferdam_wire::End;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, SeekFrom};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde_json::json;

use crate::records::log::Log;
use crate::records::summary::Summary;

/// A program that needs longer is ended: the caller of the session waits for it.
const MOST_TIME: Duration = Duration::from_secs(10);

/// What is needed of a session that was ended for safety.
pub(crate) struct Past<'a> {
    pub(crate) plan: &'a LaunchPlan,
    pub(crate) end: End,
    pub(crate) state: Option<&'a Path>,
    /// Seconds since 1970.
    pub(crate) began: f64,
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
    let Some(state) = past.state else { return };
    let command = &past.plan.command;
    let why = summary.attempt.as_ref().map_or("", |attempt| attempt.name);
    let ran = (command.argv.as_slice(), command.cwd.as_path(), command.search());
    match quarantine::add(state, ran, (session, why), (past.began, seconds_now())) {
        Ok(entry) => summary.quarantined = entry,
        Err(errno) => summary.warnings.push(format!("what tried to escape could not be quarantined: {errno}")),
    }
}

/// Why it was not told, where it was not. No shell, and no directory that a project chose.
fn tell(hook: &[String], alert: &str) -> Result<(), String> {
    let (program, arguments) = hook.split_first().ok_or("it names no program")?;
    let input = in_memory(alert.as_bytes()).map_err(|errno| errno.to_string())?;
    let started = std::process::Command::new(program)
        .args(arguments)
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::from(input))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
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

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
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

/// With everything that it has started and that has not left its group.
fn kill_group(child: &Child) {
    if let Some(group) = pid_of(child) {
        best_effort(rustix::process::kill_process_group(group, Signal::KILL), "its processes may have ended");
    }
}

/// A text as a file to read: no pipe that the supervisor would have to feed.
pub(crate) fn in_memory(text: &[u8]) -> Result<OwnedFd, Errno> {
    let file = rustix::fs::memfd_create("told", MemfdFlags::CLOEXEC)?;
    let mut rest = text;
    while !rest.is_empty() {
        rest = &rest[rustix::io::write(&file, rest)?..];
    }
    rustix::fs::seek(&file, SeekFrom::Start(0))?;
    Ok(file)
}
