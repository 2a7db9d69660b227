//! Flags of the commands about transactions: `changes`, `diff`, `export`, `commit`, `rollback`. Owns their names and help. Read by
//! `commands::changes`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct ChangesArgs {
    /// Remove what was committed or rolled back and is kept to be taken back, where that was so many days ago
    #[arg(long, value_name = "DAYS", num_args = 0..=1, default_missing_value = "30", conflicts_with_all = ["all", "json"])]
    pub(crate) prune: Option<u64>,
    /// Those that were committed or rolled back, too
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Default, Args)]
pub(crate) struct WhichArgs {
    /// Whose changes, where more than one session's wait here: six letters or more of what `sandbox changes` shows, or `last`
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line, each by itself")]
pub(crate) struct DiffArgs {
    /// Only these files, and what lies below these directories
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// A patch, as `git apply` takes it; so is what is written without this
    #[arg(long, conflicts_with_all = ["json", "stat"])]
    pub(crate) patch: bool,
    /// A line for each file of a session that runs, on the whole screen, again whenever it changed something
    #[arg(long, conflicts_with_all = ["json", "stat", "patch"])]
    pub(crate) live: bool,
    /// A line for each file instead of what changed in it
    #[arg(long, conflicts_with = "json")]
    pub(crate) stat: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line, each by itself")]
pub(crate) struct CommitArgs {
    /// Only these files, and what lies below these directories
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// Take what host programs obey without being asked, too: hooks, editor tasks, agents' settings
    #[arg(long)]
    pub(crate) opens: bool,
    /// Put the session's version in the place of what the host changed meanwhile; what was there is kept
    #[arg(long, requires = "paths")]
    pub(crate) overwrite: bool,
    /// Of text files that the host changed meanwhile: merge both, where they changed other lines and what they began with is known
    #[arg(long, conflicts_with = "overwrite")]
    pub(crate) merge: bool,
    /// Ask about each change, of text files about each hunk
    #[arg(long, short, conflicts_with_all = ["overwrite", "merge", "json", "opens"])]
    pub(crate) interactive: bool,
    /// Make a commit on this new branch of the project's repository instead; `HEAD`, index and files stay as they are
    #[arg(long, value_name = "NAME", conflicts_with_all = ["overwrite", "merge", "interactive", "undo", "json"])]
    pub(crate) as_branch: Option<String>,
    /// Take the last commit back: what it replaced comes back, and what it took waits again
    #[arg(long, conflicts_with_all = ["paths", "opens", "overwrite", "merge", "strict", "interactive"])]
    pub(crate) undo: bool,
    /// Refuse all where one name is a link that leads out of the project
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Only these files, and what lies below these directories
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// A patch, as `git apply` takes it; so is what is written without this
    #[arg(long, conflicts_with = "tar")]
    pub(crate) patch: bool,
    /// An archive of what is new or changed
    #[arg(long)]
    pub(crate) tar: bool,
    /// Write to this file, which must not exist, instead of stdout
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// What host programs obey without being asked, too: hooks, editor tasks, agents' settings
    #[arg(long)]
    pub(crate) opens: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReviewArgs {
    /// Only these files, and what lies below these directories
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) which: WhichArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// Drop only what came after this checkpoint; 0 is the beginning of the session
    #[arg(long, value_name = "NUMBER")]
    pub(crate) to: Option<usize>,
    /// Show what would be dropped, or what would come back and what would go, and change nothing
    #[arg(long)]
    pub(crate) preview: bool,
    /// Do not ask at a terminal
    #[arg(long, short)]
    pub(crate) yes: bool,
}
