//! Flags of the commands about running sessions and their questions: `ps`, `kill`, `attach`, `output`, `questions`, `approve`, `deny`.
//! Owns their names and help. Read by those commands.

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Only this one: its name (`run --name`), six letters or more of its id, or `last`
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// Its name (`run --name`), six letters or more of its id, or `last`
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    /// How long it may take to end by itself
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(crate) grace: String,
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// Its name (`run --name`), six letters or more of its id, or `last`
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    /// The command and its arguments; without one, your shell
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) argv: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Its name (`run --name`), six letters or more of its id, or `last`
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    /// Which command of a session that a program ordered: they are numbered from 1
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) exec: u64,
    /// Go on until the command has ended, and end with its exit code
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Begin at this byte of each of the two streams
    #[arg(long, value_name = "OFFSET")]
    pub(crate) from: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct QuestionsArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// The question, as `sandbox questions` lists it: SESSION:NUMBER, or NUMBER where only one session asks that
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// How much the answer is about: the path or host, its directory with everything below, its whole toolchain, or the group that
    /// the question offers
    #[arg(long, value_enum, default_value_t = Scope::File)]
    pub(crate) scope: Scope,
    /// How long it counts: this once, this session, or written to the project's, user's or organisation's policy [default: once; of a
    /// group: session]
    #[arg(long, value_enum)]
    pub(crate) keep: Option<KeepFor>,
    /// The session that asks, by its name or six letters or more of what `ps` shows
    #[arg(long)]
    pub(crate) session: Option<String>,
    /// Approve without showing the question first, at a terminal
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    File,
    Dir,
    Toolchain,
    Group,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeepFor {
    Once,
    Session,
    Project,
    User,
    Org,
}
