//! Approval of a project's policy files by content hash. Owns the record of approvals; an edit of one byte and the file
//! is a stranger's again. Called by `sandbox trust` and when layers are loaded.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cofferdam_launcher::Surroundings;
use sha2::{Digest as _, Sha256};

use crate::args::TrustArgs;
use crate::audit;
use crate::output::{escaped, print};
use crate::persist::Lock;
use crate::policy_files::{project_files, read};
use crate::render::Failure;

const FILE: &str = "approved-policies.json";

/// In the state directory: held by whoever changes the record or a policy file.
pub(crate) const LOCK: &str = "policy.lock";

/// Policy file -> SHA-256 of the content that was approved.
#[derive(Debug, Default)]
pub(crate) struct Approvals {
    hashes: BTreeMap<String, String>,
}

impl Approvals {
    pub(crate) fn load(state: &Path) -> Result<Self, Failure> {
        let path = state.join(FILE);
        let Some(text) = read(&path)? else { return Ok(Approvals::default()) };
        // A record that cannot be parsed approves nothing.
        Ok(Approvals { hashes: serde_json::from_str(&text).unwrap_or_default() })
    }

    pub(crate) fn covers(&self, path: &Path, text: &str) -> bool {
        self.hashes.get(&path.display().to_string()).is_some_and(|hash| *hash == sha256(text))
    }

    /// Approves this very content.
    pub(crate) fn approve(&mut self, path: &Path, text: &str) {
        self.hashes.insert(path.display().to_string(), sha256(text));
    }

    pub(crate) fn save(&self, state: &Path) -> Result<(), Failure> {
        let path = state.join(FILE);
        let failed = |source| Failure::Write { path: path.display().to_string(), source };
        std::fs::create_dir_all(state).map_err(failed)?;
        let text = serde_json::to_string_pretty(&self.hashes).unwrap_or_default();
        let new = state.join(format!("{FILE}.{}", std::process::id()));
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path)).map_err(failed)
    }
}

fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").unwrap_or_default();
        out
    })
}

pub(crate) fn trust(args: &TrustArgs) -> Result<ExitCode, Failure> {
    let environment: Vec<(String, String)> = std::env::vars().collect();
    let around = Surroundings::look(&environment)?;
    let _lock = if args.dry_run { None } else { Some(Lock::take(&around.state.join(LOCK))?) };
    let mut approvals = Approvals::load(&around.state)?;
    let mut found: Vec<(PathBuf, String)> = Vec::new();
    for (_, path) in project_files(&around) {
        if let Some(text) = read(&path)? {
            found.push((path, text));
        }
    }
    if found.is_empty() {
        return Err(Failure::NothingToTrust);
    }
    let mut out = String::new();
    let mut changed: Vec<(PathBuf, Option<String>)> = Vec::new();
    for (path, text) in found {
        let name = path.display().to_string();
        if args.revoke {
            approvals.hashes.remove(&name);
            writeln!(out, "no longer approved: {}", escaped(&name)).unwrap_or_default();
            changed.push((path, None));
            continue;
        }
        let hash = sha256(&text);
        let verb = if args.dry_run { "would approve" } else { "approved" };
        writeln!(out, "{verb} {} (sha256 {hash}):", escaped(&name)).unwrap_or_default();
        for line in text.lines() {
            writeln!(out, "  {}", escaped(line)).unwrap_or_default();
        }
        approvals.hashes.insert(name, hash);
        changed.push((path, Some(text)));
    }
    if !args.dry_run {
        approvals.save(&around.state)?;
        for (path, text) in changed {
            let action = if text.is_some() { "trusted" } else { "trust-revoked" };
            audit::policy_changed(&around.state, &path, action, text.as_deref());
        }
    }
    Ok(print(&out))
}
