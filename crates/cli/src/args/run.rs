//! Flags of `run`, `learn` and `explain`. Owns their names and help; those about the policy are `policy_flags`'s. Read by those
//! commands.

use clap::Args;

use crate::args::policy_flags::PolicyArgs;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Print one JSON object to stderr at the end, also when it was refused or could not start
    #[arg(long)]
    pub(crate) json: bool,
    /// Print what each step of the launch took, to stderr
    #[arg(long)]
    pub(crate) timing: bool,
    /// Print the session's name once the command runs, and leave it: see `sandbox output`, `ps`, `attach`, `kill`
    #[arg(long, conflicts_with = "timing")]
    pub(crate) detach: bool,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) argv: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Print one JSON object to stderr at the end, also when it was refused or could not start
    #[arg(long)]
    pub(crate) json: bool,
    /// The agent; without one, those that there are and where they are installed
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The agent's own arguments
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) args: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ShellPrefixArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// A command line in one word, or options and arguments of a shell: what the program is called with
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SuperviseArgs {
    /// The descriptor over which the order comes, one line of JSON
    #[arg(long, value_name = "N")]
    pub(crate) order_fd: i32,
}

#[derive(Debug, Args)]
pub(crate) struct LearnArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Add what was learned to the policy of a scope, and show the difference: user, project
    #[arg(long, value_name = "SCOPE")]
    pub(crate) save: Option<String>,
    /// Print one JSON object to stderr when the session ends, instead of the policy
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) argv: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// List every secret and every protected path
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) argv: Vec<String>,
}
