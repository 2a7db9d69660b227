//! `cargo xtask neighbour`: builds the escape suite with optimisations and measures how much slower a session gets beside one
//! that attacks. Owns the building; the measurement is the runner's, which needs no cargo.

use std::process::Command;

use crate::problems::Problems;
use crate::workspace::{Workspace, cargo};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object as the last line: figures, targets, pass
    #[arg(long)]
    json: bool,
    /// How many windows are measured beside each attack, and as many without it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(3..))]
    windows: Option<u32>,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<String, Problems> {
    let packages = ["--package", "cofferdam-escape", "--package", "cofferdam-egress"];
    cargo(&[&["build", "--quiet", "--profile", "fast"][..], &packages].concat())?;
    let runner = workspace.target.join("fast/escape-runner");
    let windows = args.windows.map(|windows| ["--windows".to_owned(), windows.to_string()]);
    let status = Command::new(&runner)
        .arg("neighbour")
        .args(args.json.then_some("--json"))
        .args(windows.into_iter().flatten())
        .status()
        .map_err(|error| Problems::one(format!("cannot run {}: {error}", runner.display())))?;
    // The runner has said everything; its last line may be read by a program.
    if status.success() { Ok(String::new()) } else { Err(Problems::one("a neighbour waits too long".to_owned())) }
}
