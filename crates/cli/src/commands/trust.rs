//! `sandbox trust`: approves a project's policy files as they are now. Owns what is shown of them and the question; the record of approvals is
//! `policy_files`'s.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use cofferdam_host::policy_files::approvals::{Approvals, content_hash};
use cofferdam_host::policy_files::lock::{Lock, LockError};
use cofferdam_host::policy_files::record::{PolicyChange, record};
use cofferdam_host::policy_files::text::{ReadError, WriteError, read};
use cofferdam_host::policy_files::{PolicyFilesError, Sources, project_files};
use cofferdam_host::{Surroundings, SurveyError};
use cofferdam_policy::{HeldBack, Layer, LayerInput, Ruled, Setting, parse};
use thiserror::Error;

use crate::args::policy::TrustArgs;
use crate::confirm::is_confirmed;
use crate::environment::{environment, has_terminal};
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
    #[error(transparent)]
    Files(#[from] PolicyFilesError),
    #[error("nothing was approved: there is no terminal to ask at")]
    NoTerminal,
    #[error("there is no project policy here to approve")]
    NoProjectPolicy,
}

pub(crate) fn trust(args: &TrustArgs) -> Result<ExitCode, TrustError> {
    let around = Surroundings::look(&environment())?;
    let found = files(&around)?;
    if args.revoke {
        return revoke(&around, &found);
    }
    let widening = widening(&around, &found)?;
    let mut out = String::new();
    for (layer, path, text) in &found {
        let name = path.display().to_string();
        writeln!(out, "{} (sha256 {})", escaped(&name), content_hash(text)).unwrap_or_default();
        let all = parse(*layer, &name, text).map_err(PolicyFilesError::from)?.settings;
        let widens = |setting: &&Ruled<Setting>| {
            widening.iter().any(|held| held.origin == setting.origin && held.rule == setting.value.to_string())
        };
        let (wider, rest): (Vec<_>, Vec<_>) = all.iter().partition(widens);
        rules(&mut out, "widens what sessions here can do:", &wider);
        rules(&mut out, "only tightens, or changes nothing:", &rest);
    }
    if args.dry_run {
        return Ok(print(&(out + "this is what `sandbox trust` would approve\n")));
    }
    print(&out);
    if !args.yes {
        if !has_terminal() {
            return Err(TrustError::NoTerminal);
        }
        if !is_confirmed("approve these files as they are now?") {
            return Ok(print("nothing was approved\n"));
        }
    }
    let _lock = Lock::of_user(&around.state)?;
    let mut approvals = Approvals::load(&around.state)?;
    for (_, path, text) in &found {
        approvals.approve(path, text);
    }
    approvals.save(&around.state)?;
    for (_, path, text) in &found {
        tell_unrecorded(record(&around.state, path, PolicyChange::Trusted { text }).err().as_ref());
    }
    Ok(print("approved, until they are edited\n"))
}

type PolicyText = (Layer, PathBuf, String);

/// What was read is what is shown and approved.
fn files(around: &Surroundings) -> Result<Vec<PolicyText>, TrustError> {
    let mut found = Vec::new();
    for (layer, path) in project_files(around) {
        if let Some(text) = read(&path)? {
            found.push((layer, path, text));
        }
    }
    if found.is_empty() { Err(TrustError::NoProjectPolicy) } else { Ok(found) }
}

/// The rules that do not count as long as the files are not approved.
fn widening(around: &Surroundings, found: &[PolicyText]) -> Result<Vec<HeldBack>, TrustError> {
    let mut sources = Sources::read(around, &environment())?;
    sources.layers.retain(|input| !input.layer.is_untrusted());
    sources.layers.extend(found.iter().map(|(layer, path, text)| LayerInput {
        layer: *layer,
        source: path.display().to_string(),
        text: text.clone(),
        trusted: false,
    }));
    Ok(sources.resolve(&around.places())?.held_back)
}

fn rules(out: &mut String, title: &str, rules: &[&Ruled<Setting>]) {
    if !rules.is_empty() {
        writeln!(out, "  {title}").unwrap_or_default();
    }
    for rule in rules {
        let line = rule.origin.line.map_or_else(String::new, |line| format!("  (line {line})"));
        writeln!(out, "    {}{line}", escaped(&rule.value.to_string())).unwrap_or_default();
    }
}

fn revoke(around: &Surroundings, found: &[PolicyText]) -> Result<ExitCode, TrustError> {
    let _lock = Lock::of_user(&around.state)?;
    let mut approvals = Approvals::load(&around.state)?;
    let mut out = String::new();
    for (_, path, _) in found {
        approvals.revoke(path);
        writeln!(out, "no longer approved: {}", escaped(&path.display().to_string())).unwrap_or_default();
    }
    approvals.save(&around.state)?;
    for (_, path, _) in found {
        tell_unrecorded(record(&around.state, path, PolicyChange::TrustRevoked).err().as_ref());
    }
    Ok(print(&out))
}
