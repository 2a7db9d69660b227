//! The three programs that a user installs. Owns their names, building them and where they lie; measures nothing. Called by the
//! checks and benches that run or copy what is shipped.

use std::path::{Path, PathBuf};

use crate::problems::Problems;
use crate::workspace::{Workspace, cargo};

pub(crate) const TARGET: &str = "x86_64-unknown-linux-musl";
pub(crate) const COMMAND: &str = "sandbox";
pub(crate) const EGRESS: &str = "sandbox-egress";
pub(crate) const VERIFY: &str = "sandbox-verify";
/// The packages of all, in one command as README has it.
pub(crate) const PACKAGES: [&str; 6] =
    ["--package", "cofferdam-cli", "--package", "cofferdam-egress", "--package", "cofferdam-verify"];

pub(crate) fn build() -> Result<(), Problems> {
    cargo(&[&["build", "--quiet", "--locked", "--release", "--target", TARGET][..], &PACKAGES].concat()).map(drop)
}

pub(crate) fn path(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.target.join(TARGET).join("release").join(name)
}

/// The second program beside a `sandbox`. Those of before decision 0047 have none.
pub(crate) fn beside(sandbox: &Path) -> Option<PathBuf> {
    Some(sandbox.with_file_name(EGRESS)).filter(|path| path.is_file())
}
