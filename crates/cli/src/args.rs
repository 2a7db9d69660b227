//! What the user typed. Owns the one definition of every flag, from which parser, help, man page and completions come;
//! decides nothing with it. Read by the other modules of this crate.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, FromArgMatches as _, Parser, Subcommand, ValueEnum};

/// Run what you do not trust, without it reading, writing or reaching what was not approved.
#[derive(Debug, Parser)]
#[command(name = "sandbox", version, propagate_version = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    pub(crate) fn typed() -> Result<Self, clap::Error> {
        let words: Vec<OsString> = std::env::args_os().collect();
        match words.get(1..).and_then(run_alone) {
            Some(args) => Ok(Cli { command: Command::Run(Box::new(args)) }),
            None => Cli::try_parse_from(words),
        }
    }
}

/// `run` by its own definition, for whoever starts a command should not wait for that of all others. What it does not take
/// is left to the whole: help, version and mistakes are told there.
fn run_alone(words: &[OsString]) -> Option<RunArgs> {
    words.first().filter(|word| *word == "run")?;
    let matches = RunArgs::augment_args(clap::Command::new("run")).try_get_matches_from(words).ok()?;
    RunArgs::from_arg_matches(&matches).ok()
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command in the sandbox
    ///
    /// The current project is writable, known places of the machine can be read, secrets are absent. At a terminal the first
    /// access to any other path or host is asked about, elsewhere it is denied; `--mode static` shows the whole machine,
    /// read-only, and asks nothing.
    Run(Box<RunArgs>),
    /// Run a command with nothing written for real, and print the smallest policy that it needs
    ///
    /// Unknown paths can be read, everything that is written lands in the session and is thrown away at its end. Secrets
    /// stay hidden; those that were touched are listed and never granted.
    Learn(Box<LearnArgs>),
    /// Show what would be enforced, by which rule of which layer, and every step of the launch
    Explain(Box<ExplainArgs>),
    /// Check what this machine offers, with a remedy for what is missing
    Doctor(DoctorArgs),
    /// List the sessions that run now
    Ps(PsArgs),
    /// End a session: ask it, and kill it when it does not listen
    Kill(KillArgs),
    /// Start a further command in a session that runs: the same view, the same limits, the same filter
    Attach(AttachArgs),
    /// Print what happened in one session
    Logs(LogsArgs),
    /// Print the audit log, or verify that nobody changed it
    Audit(AuditArgs),
    /// Approve this project's policy files as they are now, so that they may also widen access
    Trust(TrustArgs),
    /// Show, check, compare, export, import and try policies
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Say which rule of which layer decides about a path, a host or a system call, and the smallest change
    Why(Box<WhyArgs>),
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

#[derive(Debug, Clone, Args, Default)]
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
    /// Add a preset: cargo, node, python, go (their caches become writable), registries (they can
    /// be reached), tool, process-tool (tight limits)
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
    pub(crate) network: NetworkArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// What can be reached; policy files have more.
#[derive(Debug, Clone, Args, Default)]
pub(crate) struct NetworkArgs {
    /// What can be reached: none, egress (the allowed hosts), host (all, unfiltered)
    #[arg(long, value_name = "MODE", help_heading = NETWORK)]
    pub(crate) network: Option<String>,
    /// Let a host be reached, on ports 80 and 443 or on PORT: x.org, *.x.org, **.x.org, 10.1.2.3:5432
    #[arg(long, value_name = "HOST[:PORT]", help_heading = NETWORK)]
    pub(crate) allow_host: Vec<String>,
    /// Let a host not be reached, on any port or on PORT
    #[arg(long, value_name = "HOST[:PORT]", help_heading = NETWORK)]
    pub(crate) deny_host: Vec<String>,
    /// Make a port of the session reachable from this host's loopback
    #[arg(long, value_name = "[HOST_PORT:]PORT", help_heading = NETWORK)]
    pub(crate) publish: Vec<String>,
    /// Let a port of this host's loopback be reached
    #[arg(long, value_name = "PORT", help_heading = NETWORK)]
    pub(crate) host_port: Vec<String>,
    /// Whether keys of your ssh-agent sign for the session: off, ask, allow
    #[arg(long, value_name = "MODE", help_heading = NETWORK)]
    pub(crate) ssh_agent: Option<String>,
    /// Let a socket of this host be connected to, under its own path
    #[arg(long, value_name = "PATH", help_heading = NETWORK)]
    pub(crate) socket: Vec<PathBuf>,
}

const NETWORK: &str = "Network";

/// The limits that people set by hand; policy files have more.
#[derive(Debug, Clone, Args, Default)]
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
    /// Print one JSON object to stderr at the end, also when it was refused or could not start
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

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Only this one: the beginning of its name, or `last`
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// The beginning of its name, or `last`
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    /// How long it may take to end by itself
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(crate) grace: String,
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// The beginning of its name, or `last`
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    /// The command and its arguments; without one, your shell
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) argv: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The beginning of its name, or `last`
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) task: Option<AuditTask>,
    /// Only this session: the beginning of its name, or `last`
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

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Show the policy in force here, every rule with its layer, file and line
    Show(ShowArgs),
    /// Parse and check policy files; a mistake ends with 125 and its line
    Check {
        /// Policy files; one called `requirements.toml` is read as ceilings
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Say what the second policy newly allows or denies
    Diff(DiffArgs),
    /// Print the policy in force as one file that means the same
    Export {
        /// toml, json
        #[arg(long, value_name = "FORMAT", default_value = "toml")]
        format: String,
    },
    /// Turn another tool's configuration into a policy; what has no equal becomes a comment
    Import(ImportArgs),
    /// Replay recorded sessions against a changed policy: what would newly be allowed or denied
    Test(TestArgs),
    /// Add a rule that allows a path to the policy of a scope
    Allow(RuleArgs),
    /// Add a rule that denies a path to the policy of a scope
    Deny(RuleArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// List every secret and every protected path
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// A policy file, `effective` or `default`
    #[arg(value_name = "A")]
    pub(crate) before: String,
    /// A policy file, `effective` or `default`
    #[arg(value_name = "B")]
    pub(crate) after: String,
    /// Files take the place of this layer's: org, user, project, project.local. Without it a file stands alone
    #[arg(long = "as", value_name = "LAYER")]
    pub(crate) layer: Option<String>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// auto, tool-json, proxy, build-yaml, claude, codex, cursor
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub(crate) from: String,
    /// Add it to the policy of a scope: user, project
    #[arg(long, value_name = "SCOPE")]
    pub(crate) save: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// The changed policy
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// A session, or `all`
    #[arg(long, value_name = "SESSION", default_value = "all")]
    pub(crate) against: String,
    /// The file takes the place of this layer's: org, user, project, project.local. Without it the file stands alone
    #[arg(long = "as", value_name = "LAYER")]
    pub(crate) layer: Option<String>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
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

#[derive(Debug, Args)]
pub(crate) struct RuleArgs {
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// About writing, not reading
    #[arg(long)]
    pub(crate) write: bool,
    /// Whose policy gets the rule: project, user, org
    #[arg(long, value_name = "SCOPE", default_value = "project")]
    pub(crate) keep: String,
}

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// A path, a host name or a system call
    #[arg(value_name = "PATH|HOST|SYSCALL")]
    pub(crate) target: String,
    /// Say what was decided in that session instead
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// About writing, not reading
    #[arg(long)]
    pub(crate) write: bool,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    /// `run` by its own definition and by that of the whole take the same lines, and read the same in them.
    #[test]
    fn run_alone_reads_what_the_whole_reads() {
        const WORDS: &[&str] = &[
            "--",
            "true",
            "-h",
            "--help",
            "-V",
            "--version",
            "help",
            "run",
            "--mode",
            "--mode=static",
            "static",
            "--mod",
            "--ro",
            "/a",
            "--ro=/b",
            "--json",
            "--json=yes",
            "--timing",
            "--no-debug",
            "--network",
            "none",
            "--socket",
            "--allow-host=x.example",
            "-v",
            "-",
            "--rw=",
            "",
        ];
        let mut taken = 0;
        let mut state = 1_u64;
        let mut pick = |most: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).map_or(0, |number| number % most)
        };
        let mut lines: Vec<Vec<OsString>> = vec![vec![], vec!["Run".into()], vec!["--".into(), "run".into()]];
        for _ in 0..1000 {
            let mut line: Vec<OsString> = vec!["run".into()];
            line.extend((0..pick(6)).map(|_| OsString::from(WORDS[pick(WORDS.len())])));
            if pick(2) == 0 {
                line.extend(["--".into(), "true".into()]);
            }
            if pick(20) == 0 {
                line.push(OsString::from_vec(vec![0xff]));
            }
            lines.push(line);
        }
        for line in lines {
            let whole = Cli::try_parse_from([OsString::from("sandbox")].iter().chain(&line)).ok();
            let Some(alone) = run_alone(&line) else {
                assert!(!matches!(whole, Some(Cli { command: Command::Run(_) })), "only the whole takes {line:?}");
                continue;
            };
            taken += 1;
            let Some(Cli { command: Command::Run(whole) }) = whole else { panic!("the whole refuses {line:?}") };
            assert_eq!(format!("{alone:?}"), format!("{whole:?}"), "{line:?}");
        }
        assert!(taken > 100, "{taken}");
    }
}
