//! `sandbox trust`: approves a project's policy files as they are now. Owns what is shown of them; the record of approvals is
//! `policy_files`'s.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use cofferdam_host::policy_files::approvals::{Approvals, content_hash};
use cofferdam_host::policy_files::lock::{Lock, LockError};
use cofferdam_host::policy_files::project_files;
use cofferdam_host::policy_files::record::{PolicyChange, record};
use cofferdam_host::policy_files::text::{ReadError, WriteError, read};
use cofferdam_host::{Surroundings, SurveyError};
use thiserror::Error;

use crate::args::policy::TrustArgs;
use crate::environment::environment;
use crate::render::output::{escaped, print};
use crate::render::saved::tell_unrecorded;

/// Why nothing was approved.
#[derive(Debug, Error)]
pub(crate) enum TrustError {
    #[error(transparent)]
    Survey(#[from] SurveyError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("there is no project policy here to approve")]
    NoProjectPolicy,
}

pub(crate) fn trust(args: &TrustArgs) -> Result<ExitCode, TrustError> {
    let around = Surroundings::look(&environment())?;
    let _lock = if args.dry_run { None } else { Some(Lock::of_user(&around.state)?) };
    let mut approvals = Approvals::load(&around.state)?;
    let mut found: Vec<(PathBuf, String)> = Vec::new();
    for (_, path) in project_files(&around) {
        if let Some(text) = read(&path)? {
            found.push((path, text));
        }
    }
    if found.is_empty() {
        return Err(TrustError::NoProjectPolicy);
    }
    let mut out = String::new();
    let mut changed: Vec<(PathBuf, Option<String>)> = Vec::new();
    for (path, text) in found {
        let name = path.display().to_string();
        if args.revoke {
            approvals.revoke(&path);
            writeln!(out, "no longer approved: {}", escaped(&name)).unwrap_or_default();
            changed.push((path, None));
            continue;
        }
        let hash = content_hash(&text);
        let verb = if args.dry_run { "would approve" } else { "approved" };
        writeln!(out, "{verb} {} (sha256 {hash}):", escaped(&name)).unwrap_or_default();
        for line in text.lines() {
            writeln!(out, "  {}", escaped(line)).unwrap_or_default();
        }
        approvals.approve(&path, &text);
        changed.push((path, Some(text)));
    }
    if !args.dry_run {
        approvals.save(&around.state)?;
        for (path, text) in changed {
            let change = match &text {
                Some(text) => PolicyChange::Trusted { text },
                None => PolicyChange::TrustRevoked,
            };
            tell_unrecorded(record(&around.state, &path, change).err().as_ref());
        }
    }
    Ok(print(&out))
}
