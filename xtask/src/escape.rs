//! `cargo xtask escape`: builds the escape suite and runs it. Owns the building; rows, table and totals are the runner's.

use std::process::Command;

use crate::problems::Problems;
use crate::shipped;
use crate::workspace::{Workspace, cargo};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object as the last line: figures, targets, pass
    #[arg(long)]
    json: bool,
    /// Only rows whose name contains one of these
    rows: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<String, Problems> {
    let packages = ["--package", "cofferdam-escape", "--package", "cofferdam-testkit"];
    cargo(&[&["build", "--quiet"][..], &packages, &shipped::PACKAGES].concat())?;
    let runner = workspace.target.join("debug/escape-runner");
    let status = Command::new(&runner)
        .args(args.json.then_some("--json"))
        .args(&args.rows)
        .status()
        .map_err(|error| Problems::one(format!("cannot run {}: {error}", runner.display())))?;
    // The runner has said everything; its last line may be read by a program.
    if status.success() { Ok(String::new()) } else { Err(Problems::one("the escape suite failed".to_owned())) }
}
