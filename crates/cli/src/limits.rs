//! A limit ended the run: one line that says which, who set it, and how to raise it. Called by `denials`.

use cofferdam_launcher::{End, Outcome};
use cofferdam_plan::Limited;

use crate::output::bytes;
use crate::run::Prepared;

/// What the kernel sends to a process that writes beyond its file size limit.
const SIGXFSZ: i32 = 25;

pub(crate) fn line(prepared: &Prepared, outcome: &Outcome) -> Option<String> {
    let limits = &prepared.plan.limits;
    let bound = |what: Limited| limits.bound(what).map(|bound| (bound.value, bound.origin.to_string()));
    match outcome.end {
        End::TimedOut => {
            let limit = prepared.known.policy.limits.timeout.as_ref()?;
            let seconds = limit.value.as_secs();
            Some(format!("ended after {seconds} s ({}); raise it with --timeout", limit.origin))
        }
        End::OutOfMemory => {
            let (most, origin) = bound(Limited::Memory)?;
            Some(format!("ended: it needed more than {} of memory ({origin}); raise it with --memory", bytes(most)))
        }
        End::ProcessLimit => {
            let (most, origin) = bound(Limited::Processes)?;
            Some(format!("ended: it stood at its limit of {most} processes ({origin}); raise it with --max-processes"))
        }
        End::CpuTimeLimit => {
            let (most, origin) = bound(Limited::CpuTime)?;
            Some(format!("ended after {most} s of CPU time ({origin}); raise it with --cpu-time"))
        }
        End::OutputLimit => {
            let limit = prepared.known.policy.limits.output.as_ref()?;
            let most = bytes(limit.value);
            Some(format!("ended: it wrote more than {most} of output ({}); raise it with --max-output", limit.origin))
        }
        End::StorageLimit => Some(storage(bound(Limited::Storage).or_else(|| bound(Limited::Inodes)))),
        End::Signalled { signal: SIGXFSZ } => {
            let limit = prepared.known.policy.limits.file_size.as_ref()?;
            let most = bytes(limit.value);
            Some(format!("a file may not be larger than {most} ({}); `limits.file_size` raises it", limit.origin))
        }
        End::Exited { .. } | End::Signalled { .. } => refused_forks(outcome, bound(Limited::Processes)),
        _ => None,
    }
}

fn storage(limit: Option<(u64, String)>) -> String {
    match limit {
        Some((most, origin)) => {
            format!("ended: a disk lost more than {} since it began ({origin}); raise it with --storage", bytes(most))
        }
        None => "ended: a disk that it can write to is nearly full; --storage says how much it may take".to_owned(),
    }
}

/// It was not ended, but this may be why it failed.
fn refused_forks(outcome: &Outcome, limit: Option<(u64, String)>) -> Option<String> {
    let refused = outcome.usage.forks_refused.filter(|count| *count > 0)?;
    let (most, origin) = limit?;
    Some(format!(
        "{refused} times no process could be started: the limit is {most} ({origin}); raise it with --max-processes"
    ))
}
