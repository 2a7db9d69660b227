//! Flags of `logs` and `audit`. Owns their names and help. Read by `commands::audit`.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Its name, six letters or more of what `ps` shows, or `last`
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    /// Print the records as they were written, a JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) task: Option<AuditTask>,
    /// Only this session: its name, six letters or more of what `ps` shows, or `last`
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Go on with what is written from now on
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only events of this name; can be given several times
    #[arg(long, value_name = "EVENT")]
    pub(crate) event: Vec<String>,
    /// Only what happened since then: 10m, 2h, 2026-11-15, 2026-11-15T08:30 (UTC)
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// text, json (as written) or ocsf (OCSF 1.3, a JSON object a line)
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditTask {
    /// Check every record, and say where the log is not as it was written
    Verify {
        /// Print one JSON object instead of text
        #[arg(long)]
        json: bool,
        /// The public key that signatures must be of, as an earlier `verify` printed it
        #[arg(long, value_name = "HEX")]
        key: Option<String>,
    },
    /// Remove the oldest records; what is left still verifies, and says up to where it was pruned
    ///
    /// Sessions that run, and those whose changes wait, keep their records, and so does what came after their beginning. Without
    /// --yes it asks at a terminal.
    Prune(PruneArgs),
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub(crate) struct PruneArgs {
    /// Remove what is older: 90d, 36h
    #[arg(long, value_name = "TIME", required_unless_present = "keep_size")]
    pub(crate) keep: Option<String>,
    /// Remove the oldest until no more than this is left: 1G, 512M
    #[arg(long, value_name = "SIZE")]
    pub(crate) keep_size: Option<String>,
    /// Only say what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
    /// Also where `audit verify` finds problems: what shows them may go
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object instead of text, and ask nothing
    #[arg(long)]
    pub(crate) json: bool,
}
