//! Flags of the commands about the steps of a transaction: `checkpoint`, `undo`. Owns their names and help. Read by
//! `commands::checkpoints`.

use clap::Args;

use crate::args::changes::WhichArgs;

#[derive(Debug, Args)]
pub(crate) struct CheckpointArgs {
    /// What the checkpoint is called in the list
    #[arg(value_name = "LABEL", conflicts_with = "list")]
    pub(crate) label: Option<String>,
    /// List those that were taken, oldest first, instead of taking one
    #[arg(long)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// How many steps to take back
    #[arg(value_name = "STEPS", default_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) steps: u16,
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    #[command(flatten)]
    pub(crate) how: PutBackArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PutBackArgs {
    /// Show what would come back and what would go, and put nothing back
    #[arg(long)]
    pub(crate) preview: bool,
    /// Do not ask at a terminal
    #[arg(long, short)]
    pub(crate) yes: bool,
}
