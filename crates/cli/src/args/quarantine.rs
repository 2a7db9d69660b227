//! Flags of `sandbox quarantine`. Owns their names and help. Read by that command.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum QuarantineCommand {
    /// List the programs that may not run
    List(ListArgs),
    /// Let a program run again; who did so and why is recorded
    Release(ReleaseArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// The hash that `list` shows, or six letters or more of its beginning
    #[arg(value_name = "HASH")]
    pub(crate) hash: String,
    /// Why it may run again
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}
