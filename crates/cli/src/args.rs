//! What the user typed. Owns the one definition of every flag, from which parser, help, man page and completions come;
//! decides nothing with it. Read by the other modules of this crate.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Run what you do not trust, without it reading, writing or reaching what nobody approved.
#[derive(Debug, Parser)]
#[command(name = "sandbox", version, propagate_version = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command in the sandbox
    ///
    /// The current project is writable, the rest of the machine is read-only, secrets are absent, and there is no network.
    Run(Box<RunArgs>),
    /// Show what would be enforced, by which rule of which layer, and every step of the launch
    Explain(Box<ExplainArgs>),
    /// Check what this machine offers, with a remedy for what is missing
    Doctor(DoctorArgs),
    /// Approve this project's policy files as they are now, so that they may also widen access
    Trust(TrustArgs),
    /// List the open questions of all running sessions
    Questions(QuestionsArgs),
    /// Allow what a question asks for
    Approve(AnswerArgs),
    /// Refuse what a question asks for
    Deny(AnswerArgs),
    /// Answer the questions of all running sessions on one screen
    Inbox,
    /// Print a completion script for a shell
    Completions { shell: clap_complete::Shell },
    /// Print the manual page
    Man,
}

#[derive(Debug, Args, Default)]
pub(crate) struct PolicyArgs {
    /// When paths are decided: dynamic (at first access, by asking) or static (at start)
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// What happens at the first access to an unknown path: ask, deny, allow-and-log (dynamic mode)
    #[arg(long, value_name = "VERDICT")]
    pub(crate) on_unknown: Option<String>,
    /// Deny a question that nobody has answered after this time (90s, 10m)
    #[arg(long, value_name = "TIME")]
    pub(crate) ask_timeout: Option<String>,
    /// How strong the walls are: full, process, none
    #[arg(long, value_name = "LEVEL")]
    pub(crate) isolation: Option<String>,
    /// Add a preset: cargo, node, python, go (their caches become writable), tool, process-tool (tight limits)
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Vec<String>,
    /// Make a path writable
    #[arg(long, value_name = "PATH")]
    pub(crate) rw: Vec<PathBuf>,
    /// Make a path readable (also one that is hidden by default)
    #[arg(long, value_name = "PATH")]
    pub(crate) ro: Vec<PathBuf>,
    /// Make a directory look writable; changes go to the session's own directory
    #[arg(long, value_name = "PATH")]
    pub(crate) overlay: Vec<PathBuf>,
    /// Hide a path
    #[arg(long, value_name = "PATH")]
    pub(crate) blacklist: Vec<PathBuf>,
    /// Let a variable through, or set one
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// Processes inside may not trace each other
    #[arg(long)]
    pub(crate) no_debug: bool,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// The limits that people set by hand; policy files have more.
#[derive(Debug, Args, Default)]
pub(crate) struct LimitArgs {
    /// End the command after this time (90s, 10m, 2h)
    #[arg(long, value_name = "TIME", help_heading = LIMITS)]
    pub(crate) timeout: Option<String>,
    /// Most memory of all processes together (512M, 2G)
    #[arg(long, value_name = "SIZE", help_heading = LIMITS)]
    pub(crate) memory: Option<String>,
    /// Most CPUs used at once (2, 0.5)
    #[arg(long, value_name = "NUMBER", help_heading = LIMITS)]
    pub(crate) cpus: Option<String>,
    /// Most CPU time of all processes together (90s, 10m)
    #[arg(long, value_name = "TIME", help_heading = LIMITS)]
    pub(crate) cpu_time: Option<String>,
    /// Most processes and threads alive at once
    #[arg(long, value_name = "NUMBER", help_heading = LIMITS)]
    pub(crate) max_processes: Option<String>,
    /// Most open descriptors of each process
    #[arg(long, value_name = "NUMBER", help_heading = LIMITS)]
    pub(crate) open_files: Option<String>,
    /// Most that may be added to a file system of this machine (500M, 2G)
    #[arg(long, value_name = "SIZE", help_heading = LIMITS)]
    pub(crate) storage: Option<String>,
    /// Most written to stdout and stderr together (1M)
    #[arg(long, value_name = "SIZE", help_heading = LIMITS)]
    pub(crate) max_output: Option<String>,
}

const LIMITS: &str = "Limits";

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Print one JSON object about the session to stderr when it ends
    #[arg(long)]
    pub(crate) json: bool,
    /// Print what each step of the launch took, to stderr
    #[arg(long)]
    pub(crate) timing: bool,
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

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// Only show what would be approved
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Forget the approval of this project
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) revoke: bool,
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
    /// How much the answer is about: the path, its directory with everything below, or its whole toolchain
    #[arg(long, value_enum, default_value_t = Scope::File)]
    pub(crate) scope: Scope,
    /// How long it counts: this once, this session, or written to the project's, user's or organisation's policy
    #[arg(long, value_enum, default_value_t = KeepFor::Once)]
    pub(crate) keep: KeepFor,
    /// The session that asks, or the beginning of its name
    #[arg(long)]
    pub(crate) session: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    File,
    Dir,
    Toolchain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeepFor {
    Once,
    Session,
    Project,
    User,
    Org,
}
