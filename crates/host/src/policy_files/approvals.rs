//! Which policy files of projects were approved, by the hash of their content: after an edit of one byte a file is not
//! approved any more. Owns the record in the state directory; asks no question. Called by `policy_files`, `persist` and
//! `sandbox trust`.

use std::collections::BTreeMap;
use std::path::Path;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::text::{ReadError, WriteError, read};

const FILE: &str = "approved-policies.json";

/// Policy file -> SHA-256 of the content that was approved.
#[derive(Debug, Default)]
pub struct Approvals {
    hashes: BTreeMap<String, String>,
}

impl Approvals {
    pub fn load(state: &Path) -> Result<Self, ReadError> {
        let path = state.join(FILE);
        let Some(text) = read(&path)? else { return Ok(Approvals::default()) };
        // A record that cannot be parsed approves nothing.
        Ok(Approvals { hashes: serde_json::from_str(&text).unwrap_or_default() })
    }

    pub fn covers(&self, path: &Path, text: &str) -> bool {
        self.hashes.get(&path.display().to_string()).is_some_and(|hash| *hash == content_hash(text))
    }

    /// Approves this very content.
    pub fn approve(&mut self, path: &Path, text: &str) {
        self.hashes.insert(path.display().to_string(), content_hash(text));
    }

    /// The files that were approved, whether or not they are there.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.hashes.keys().map(Path::new)
    }

    /// Forgets what was approved of this file.
    pub fn revoke(&mut self, path: &Path) {
        self.hashes.remove(&path.display().to_string());
    }

    pub fn save(&self, state: &Path) -> Result<(), WriteError> {
        let path = state.join(FILE);
        let failed = |source| WriteError { path: path.clone(), source };
        std::fs::create_dir_all(state).map_err(failed)?;
        let text = serde_json::to_string_pretty(&self.hashes).unwrap_or_default();
        let new = state.join(format!("{FILE}.{}", std::process::id()));
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path)).map_err(failed)
    }
}

/// SHA-256, as an approval names a content.
pub fn content_hash(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text))
}
