//! Why a run ended that did not end by itself: a limit, who set it and how to raise it, or what it tried. Owns the words and
//! the kind for every end; called by `denials` and `report`.

use cofferdam_host::preparation::Prepared;
use cofferdam_plan::Limited;
use cofferdam_supervisor::Outcome;
use cofferdam_wire::{Attempt, End};
use serde::Serialize;

use crate::render::output::bytes;

/// What the kernel sends to a process that writes beyond its file size limit.
const SIGXFSZ: i32 = 25;

const COVER_FELL: &str =
    "ended: a host program took a cover off, and what lay under it may be in the hands of the session";
const FULL_DISK: &str = "ended: a disk that it can write to is nearly full; --storage says how much it may take";

/// What went wrong, for a program that has to choose what to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Kind {
    ResourceLimitExceeded,
    /// Policy refuses what was asked for.
    UnauthorizedAccess,
    ExecutionTimeout,
    /// Ended for what it tried, or for what it may have got hold of.
    SecurityViolation,
    /// The command did not run.
    InitializationFailed,
}

/// Why the run was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) kind: Kind,
    /// The limit, where it was one.
    pub(crate) resource: Option<&'static str>,
    /// Who set it; none for the space that is left to others on every disk.
    pub(crate) origin: Option<String>,
    pub(crate) line: String,
}

pub(crate) fn line(prepared: &Prepared, outcome: &Outcome) -> Option<String> {
    reason(prepared, outcome).map(|reason| reason.line).or_else(|| refused_forks(prepared, outcome))
}

pub(crate) fn reason(prepared: &Prepared, outcome: &Outcome) -> Option<Reason> {
    let limits = &prepared.known.policy.limits;
    let bound = |what: Limited| prepared.plan.limits.bound(what).map(|bound| (bound.value, bound.origin.to_string()));
    let (resource, origin, line) = match outcome.end {
        End::TimedOut => {
            let limit = limits.timeout.as_ref()?;
            let line = format!("ended after {} s ({}); raise it with --timeout", limit.value.as_secs(), limit.origin);
            ("time", Some(limit.origin.to_string()), line)
        }
        End::OutOfMemory => {
            let (most, origin) = bound(Limited::Memory)?;
            let most = bytes(most);
            let line = format!("ended: it needed more than {most} of memory ({origin}); raise it with --memory");
            ("memory", Some(origin), line)
        }
        End::ProcessLimit => {
            let (most, origin) = bound(Limited::Processes)?;
            let line =
                format!("ended: it stood at its limit of {most} processes ({origin}); raise it with --max-processes");
            ("processes", Some(origin), line)
        }
        End::CpuTimeLimit => {
            let (most, origin) = bound(Limited::CpuTime)?;
            let line = format!("ended after {most} s of CPU time ({origin}); raise it with --cpu-time");
            ("cpu-time", Some(origin), line)
        }
        End::OutputLimit => {
            let limit = limits.output.as_ref()?;
            let (most, origin) = (bytes(limit.value), limit.origin.to_string());
            let line = format!("ended: it wrote more than {most} of output ({origin}); raise it with --max-output");
            ("output", Some(origin), line)
        }
        End::StorageLimit => match bound(Limited::Storage) {
            Some((most, origin)) => {
                let most = bytes(most);
                let line = format!(
                    "ended: a file system got more than {most} fuller while the session ran ({origin}); raise it with --storage"
                );
                ("storage", Some(origin), line)
            }
            None => ("storage", None, FULL_DISK.to_owned()),
        },
        End::InodeLimit => {
            let (most, origin) = bound(Limited::Inodes)?;
            let line = format!(
                "ended: a file system got {most} files more while the session ran ({origin}); `limits.inodes` raises it"
            );
            ("inodes", Some(origin), line)
        }
        End::Signalled { signal: SIGXFSZ } => {
            let limit = limits.file_size.as_ref()?;
            let (most, origin) = (bytes(limit.value), limit.origin.to_string());
            let line = format!("a file may not be larger than {most} ({origin}); `limits.file_size` raises it");
            ("file-size", Some(origin), line)
        }
        End::EscapeAttempt | End::TooManyViolations | End::CoverFell => return Some(for_safety(prepared, outcome)),
        End::Exited { .. } | End::Signalled { .. } | End::Killed { .. } | End::ClientGone => return None,
    };
    let kind = if outcome.end == End::TimedOut { Kind::ExecutionTimeout } else { Kind::ResourceLimitExceeded };
    Some(Reason { kind, resource: Some(resource), origin, line })
}

/// Ended for what it tried, or for what it may have got hold of.
fn for_safety(prepared: &Prepared, outcome: &Outcome) -> Reason {
    let policy = &prepared.known.policy;
    let (origin, line) = match (outcome.end, &outcome.summary.attempt) {
        (End::EscapeAttempt, attempt) => {
            let origin = &policy.response.critical.origin;
            let tried = attempt.as_ref().map_or_else(String::new, |attempt| {
                let Attempt { name, description, caller, .. } = attempt;
                let program = &caller.program;
                format!(": `{name}` ({description}) by {} (pid {})", program.exe, program.pid)
            });
            (Some(origin), format!("ended at once, an attempt to escape{tried}; `response.critical` ({origin})"))
        }
        (End::CoverFell, _) => (None, COVER_FELL.to_owned()),
        _ => {
            let calls = &policy.syscalls.max_violations;
            let signs = policy.response.max_medium.as_ref().filter(|_| outcome.summary.violations <= calls.value);
            let (limit, what) = signs
                .map_or((calls, "refused system calls"), |signs| (signs, "signs of an escape, `response.max_medium`"));
            (Some(&limit.origin), format!("ended: more than {} {what} ({})", limit.value, limit.origin))
        }
    };
    Reason { kind: Kind::SecurityViolation, resource: None, origin: origin.map(ToString::to_string), line }
}

/// It was not ended, but this may be why it failed.
fn refused_forks(prepared: &Prepared, outcome: &Outcome) -> Option<String> {
    if !matches!(outcome.end, End::Exited { .. } | End::Signalled { .. }) {
        return None;
    }
    let refused = outcome.usage.forks_refused.filter(|count| *count > 0)?;
    let bound = prepared.plan.limits.bound(Limited::Processes)?;
    let (most, origin) = (bound.value, &bound.origin);
    Some(format!(
        "{refused} times no process could be started: the limit is {most} ({origin}); raise it with --max-processes"
    ))
}
