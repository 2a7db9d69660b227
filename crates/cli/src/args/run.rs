//! Flags of `run`, `learn` and `explain`. Owns their names and help; those about the policy are `policy_flags`'s. Read by those
//! commands.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use cofferdam_wire::order::Chosen;

use crate::args::policy_flags::PolicyArgs;

/// What is named instead of being found.
#[derive(Debug, Default, Args)]
pub(crate) struct ChosenArgs {
    /// The project is this directory, not the one that is found from here; the command starts in it, unless you stand below it
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Read a policy file of yours for this run: it counts more than all other files and variables, and less than flags
    #[arg(long = "policy", value_name = "FILE")]
    policies: Vec<PathBuf>,
    /// The same with ~/.config/cofferdam/profiles/NAME.toml
    #[arg(long = "profile", value_name = "NAME")]
    profiles: Vec<String>,
}

impl ChosenArgs {
    pub(crate) fn chosen(&self) -> Chosen {
        let (project, policies, profiles) = (self.project.clone(), self.policies.clone(), self.profiles.clone());
        Chosen { project, policies, profiles, ..Chosen::default() }
    }

    /// The files that are read besides, by flag; their paths as they are from everywhere.
    pub(crate) fn files(&self, cwd: &Path) -> Vec<(&'static str, OsString)> {
        let policies = self.policies.iter().map(|path| ("--policy", cwd.join(path).into_os_string()));
        policies.chain(self.profiles.iter().map(|name| ("--profile", name.into()))).collect()
    }

    pub(crate) fn names_project(&self) -> bool {
        self.project.is_some()
    }

    pub(crate) fn starting_in(&self, cwd: Option<&PathBuf>) -> Chosen {
        Chosen { start_in: cwd.cloned(), ..self.chosen() }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    #[command(flatten)]
    pub(crate) chosen: ChosenArgs,
    /// Where the command starts, as a directory that it can see
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// What the session is called, for `ps`, `attach`, `kill` and the like; of those that run one alone can have it
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Pass on an inherited pipe: make's job server, process substitution (`<(...)`)
    #[arg(long = "fd", value_name = "N", conflicts_with = "detach", value_parser = clap::value_parser!(i32).range(3..))]
    pub(crate) descriptors: Vec<i32>,
    /// Print one JSON object to stderr at the end, also when it was refused or could not start
    #[arg(long)]
    pub(crate) json: bool,
    /// Print what each step of the launch took, to stderr
    #[arg(long)]
    pub(crate) timing: bool,
    /// Print the session's name once the command runs, and leave it: see `sandbox output`, `ps`, `attach`, `kill`
    #[arg(long, conflicts_with = "timing")]
    pub(crate) detach: bool,
    /// The command and its arguments: the first word that is no option, or what follows `--`
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) argv: Vec<String>,
}

impl RunArgs {
    /// As `run` alone would be called, by commands that are one of it.
    pub(crate) fn of(policy: PolicyArgs, json: bool, argv: Vec<String>) -> Self {
        let (chosen, descriptors) = (ChosenArgs::default(), Vec::new());
        RunArgs { policy, chosen, cwd: None, name: None, descriptors, json, timing: false, detach: false, argv }
    }

    pub(crate) fn chosen(&self) -> Chosen {
        Chosen { name: self.name.clone(), ..self.chosen.starting_in(self.cwd.as_ref()) }
    }
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
    #[command(flatten)]
    pub(crate) chosen: ChosenArgs,
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
    #[command(flatten)]
    pub(crate) chosen: ChosenArgs,
    /// Where the command starts, as a directory that it can see
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Add what was learned to the policy of a scope, and show the difference: user, project
    #[arg(long, value_name = "SCOPE")]
    pub(crate) save: Option<String>,
    /// Print one JSON object to stderr when the session ends, instead of the policy
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments: the first word that is no option, or what follows `--`
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) argv: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    #[command(flatten)]
    pub(crate) chosen: ChosenArgs,
    /// Where the command starts, as a directory that it can see
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// List every secret and every protected path
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// The command and its arguments: the first word that is no option, or what follows `--`
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) argv: Vec<String>,
}
