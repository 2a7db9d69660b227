//! What the operator typed. Owns the one definition of every flag, from which parser, help, man page and completions come;
//! decides nothing with it. Called by `main`; each command reads the flags of its own.

pub(crate) mod audit;
pub(crate) mod changes;
pub(crate) mod checkpoints;
pub(crate) mod clean;
pub(crate) mod policy;
pub(crate) mod policy_flags;
pub(crate) mod quarantine;
pub(crate) mod run;
pub(crate) mod sessions;

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand};

use crate::args::audit::{AuditArgs, LogsArgs};
use crate::args::changes::{ChangesArgs, CommitArgs, DiffArgs, ExportArgs, ReviewArgs, RollbackArgs};
use crate::args::checkpoints::{CheckpointArgs, UndoArgs};
use crate::args::clean::CleanArgs;
use crate::args::policy::{PolicyCommand, TrustArgs, WhyArgs};
use crate::args::quarantine::QuarantineCommand;
use crate::args::run::{AgentArgs, ExplainArgs, LearnArgs, RunArgs, ShellPrefixArgs, SuperviseArgs};
use crate::args::sessions::{AnswerArgs, AttachArgs, KillArgs, OutputArgs, PsArgs, QuestionsArgs};

/// Run a command that can read, write and reach only what you approve.
#[derive(Debug, Parser)]
#[command(name = "sandbox", version, propagate_version = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    pub(crate) fn typed() -> Result<Self, clap::Error> {
        let words: Vec<OsString> = std::env::args_os().collect();
        match words.get(1..).and_then(alone) {
            Some(command) => Ok(Cli { command }),
            None => Cli::try_parse_from(words),
        }
    }
}

/// What starts each command, and what agents call after each step, by its own definition: it should not wait for that of all others.
/// What that does not take is left to the whole: help, version and mistakes are told there.
fn alone(words: &[OsString]) -> Option<Command> {
    match words.first()?.to_str()? {
        "run" => by_itself(words).map(|args| Command::Run(Box::new(args))),
        "checkpoint" => by_itself(words).map(Command::Checkpoint),
        _ => None,
    }
}

fn by_itself<A: Args>(words: &[OsString]) -> Option<A> {
    let matches = A::augment_args(clap::Command::new("sandbox")).try_get_matches_from(words).ok()?;
    A::from_arg_matches(&matches).ok()
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command in the sandbox
    ///
    /// The current project is writable, known places of the machine can be read, secrets are absent. At a terminal the first
    /// access to any other path or host is asked about, elsewhere it is denied; `--mode static` shows the whole machine,
    /// read-only, and asks nothing.
    Run(Box<RunArgs>),
    /// Run a coding agent in its preset: claude, codex, gemini, opencode, aider
    ///
    /// The same as `sandbox run --preset NAME -- NAME ARGS`, in a transaction: what the agent writes in the project waits for
    /// `sandbox review`; with `--transaction=off` it is written directly. Without a name, lists the agents.
    Agent(Box<AgentArgs>),
    /// Print the path of a program that runs in the sandbox what an agent's shell tool is told: for `CLAUDE_CODE_SHELL_PREFIX`
    ///
    /// The agent itself runs outside. The program is a script with these options, made where sessions cannot write.
    ShellPrefix(Box<ShellPrefixArgs>),
    /// Run a command with nothing written for real, and print the smallest policy that it needs
    ///
    /// Unknown paths can be read, everything that is written lands in the session and is thrown away at its end. Secrets
    /// stay hidden; those that were touched are listed and never granted.
    Learn(Box<LearnArgs>),
    /// Show what would be enforced, by which rule of which layer, and every step of the launch
    Explain(Box<ExplainArgs>),
    /// Find package managers and registries, and write the settings under which they work without questions
    ///
    /// Shows what would be written to your policy as a diff, and asks. Ends with 1 where something is left to do: with
    /// `--dry-run`, after a no, and without a terminal and `--yes`.
    Setup(SetupArgs),
    /// Check what this machine offers, with a remedy for what is missing
    Doctor(DoctorArgs),
    /// Try the walls of this machine and policy, each with its negative control, and report what held
    ///
    /// `sandbox verify --help` lists its flags. Ends with 1 when a required wall does not hold.
    #[command(disable_help_flag = true)]
    Verify(VerifyArgs),
    /// List the sessions that run now
    Ps(PsArgs),
    /// End a session: ask it, and kill it when it does not listen
    Kill(KillArgs),
    /// Start a further command in a session that runs: the same view, the same limits, the same filter
    Attach(AttachArgs),
    /// Print what a command wrote that was started with `run --detach`
    Output(OutputArgs),
    /// Print what happened in one session: what was denied, asked and reached, and how it ended
    Logs(LogsArgs),
    /// Print the audit log, or verify that it was not changed
    Audit(AuditArgs),
    /// Approve this project's policy files as they are now, so that they may also widen access
    ///
    /// Shows which rules widen access and which only tighten it, and asks at a terminal.
    Trust(TrustArgs),
    /// Show, check, compare, export, import and try policies
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Say which rule of which layer decides about a path, a host, a variable or a system call, and the smallest change
    Why(Box<WhyArgs>),
    /// List what sessions wrote in a transaction and what waits to be committed or dropped
    Changes(ChangesArgs),
    /// Show what a session changed in its transaction
    Diff(DiffArgs),
    /// Look through what a session changed on one screen, and take, refuse or drop it file by file and hunk by hunk
    Review(ReviewArgs),
    /// Write what a session changed in its transaction as a patch or an archive
    Export(ExportArgs),
    /// Take over what a session changed in its transaction, all of it or these paths
    ///
    /// What the host changed meanwhile stays as it is and waits, and so does what host programs obey without being asked.
    Commit(CommitArgs),
    /// Drop what a session changed in its transaction, or with --to what it changed after a checkpoint
    Rollback(RollbackArgs),
    /// Take a checkpoint of a session's transaction, or list those that were taken
    Checkpoint(CheckpointArgs),
    /// Take back the last step of a transaction, or the last STEPS, while its session runs or afterwards
    ///
    /// A step is what lies between two checkpoints. They are taken when an exec ends, when the workload writes a label to
    /// $COFFERDAM_CHECKPOINT, when a child of the session's command has ended, and by `sandbox checkpoint`.
    Undo(UndoArgs),
    /// List and release programs that may not run since a session of theirs was ended for an attempt to escape
    #[command(subcommand)]
    Quarantine(QuarantineCommand),
    /// List the open questions of all running sessions
    Questions(QuestionsArgs),
    /// Allow what a question asks for
    Approve(AnswerArgs),
    /// Refuse what a question asks for
    Deny(AnswerArgs),
    /// Answer the questions of all running sessions on one screen
    Inbox,
    /// Show the sessions that run on one screen, with the CPU time and memory that they use
    Top,
    /// Show what Cofferdam keeps for you on this machine, and remove what is of no more use, or with --all everything
    ///
    /// Changes that wait to be committed stay unless --transactions is given. Ends with 1 where something is left to remove.
    Clean(CleanArgs),
    /// Print a completion script for a shell
    Completions { shell: clap_complete::Shell },
    /// Print the manual page
    Man,
    /// Be the supervisor of one session, as an order says it
    #[command(hide = true)]
    Supervise(SuperviseArgs),
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// What the program `sandbox-verify` is told
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "one for each flag")]
pub(crate) struct SetupArgs {
    /// Do all that is proposed, without a question
    #[arg(long)]
    pub(crate) yes: bool,
    /// Only show what would be done
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// Propose no completions for your shell
    #[arg(long)]
    pub(crate) no_completions: bool,
    /// Print one JSON object instead of text, and ask nothing
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    /// A command by its own definition and by that of the whole take the same lines, and read the same in them.
    #[test]
    fn a_command_alone_reads_what_the_whole_reads() {
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
            "--detach",
            "--no-debug",
            "--network",
            "none",
            "--socket",
            "--allow-host=x.example",
            "-v",
            "-",
            "--rw=",
            "",
            "--list",
            "a label",
            "--session",
            "--session=s",
        ];
        let mut taken = [0; 2];
        let mut state = 1_u64;
        let mut pick = |most: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).map_or(0, |number| number % most)
        };
        let mut lines: Vec<Vec<OsString>> = vec![vec![], vec!["Run".into()], vec!["--".into(), "run".into()]];
        for _ in 0..2000 {
            let is_run = pick(2) == 0;
            let mut line: Vec<OsString> = vec![if is_run { "run" } else { "checkpoint" }.into()];
            line.extend((0..pick(if is_run { 6 } else { 3 })).map(|_| OsString::from(WORDS[pick(WORDS.len())])));
            if is_run && pick(2) == 0 {
                line.extend(["--".into(), "true".into()]);
            }
            if pick(20) == 0 {
                line.push(OsString::from_vec(vec![0xff]));
            }
            lines.push(line);
        }
        for line in lines {
            let whole = Cli::try_parse_from([OsString::from("sandbox")].iter().chain(&line)).ok();
            let Some(alone) = alone(&line) else {
                let is_one = matches!(&whole, Some(Cli { command: Command::Run(_) | Command::Checkpoint(_) }));
                assert!(!is_one, "only the whole takes {line:?}");
                continue;
            };
            taken[usize::from(matches!(alone, Command::Run(_)))] += 1;
            let Some(whole) = whole else { panic!("the whole refuses {line:?}") };
            assert_eq!(format!("{alone:?}"), format!("{:?}", whole.command), "{line:?}");
        }
        assert!(taken.into_iter().all(|count| count > 100), "{taken:?}");
    }
}
