//! Flags of `sandbox clean`. Owns their names and help. Read by `commands::clean`.

use clap::Args;

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line, each by itself")]
pub(crate) struct CleanArgs {
    /// Also drop the changes that wait to be committed, and overlays that were kept: they are listed first
    #[arg(long)]
    pub(crate) transactions: bool,
    /// Remove all that Cofferdam has of this user: its state with the audit log, and after another question your settings
    #[arg(long)]
    pub(crate) all: bool,
    /// With --all: also the answers that were kept in projects (.cofferdam/policy.local.toml)
    #[arg(long, requires = "all")]
    pub(crate) projects: bool,
    /// Only show what there is and what would go
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Print one JSON object instead of text, and ask nothing
    #[arg(long)]
    pub(crate) json: bool,
}
