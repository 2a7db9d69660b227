//! Flags of the commands about policies: `trust`, `policy` and `why`. Owns their names and help. Read by those commands.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use cofferdam_host::flags::FlagError;
use cofferdam_policy::Layer;
use cofferdam_wire::Keep;

use crate::args::policy_flags::PolicyArgs;
use crate::args::run::ChosenArgs;

#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// Only show what would be approved
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Forget the approval of this project
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) revoke: bool,
    /// Approve without asking at a terminal
    #[arg(long, short)]
    pub(crate) yes: bool,
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
    /// Take a kept answer out of your policy or this project's; without one, list them
    Revoke(RevokeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// Its number in the list, or the rule as the list has it (`files.read = "~/notes"`), or its path or host alone
    #[arg(value_name = "RULE")]
    pub(crate) rule: Option<String>,
    /// Print one JSON object instead of text
    #[arg(long, conflicts_with = "rule")]
    pub(crate) json: bool,
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
    #[arg(value_name = "FILE", required_unless_present = "words", conflicts_with = "words")]
    pub(crate) file: Option<PathBuf>,
    /// auto, tool-json, proxy, build-yaml, claude, codex, cursor, srt; of a command line: bwrap, firejail
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub(crate) from: String,
    /// Add it to the policy of a scope: user, project
    #[arg(long, value_name = "SCOPE")]
    pub(crate) save: Option<String>,
    /// A command line of bwrap or firejail instead of a file
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) words: Vec<String>,
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

impl RuleArgs {
    pub(crate) fn scope(&self) -> Result<Keep, FlagError> {
        match self.keep.as_str() {
            "project" => Ok(Keep::Project),
            "user" => Ok(Keep::User),
            "org" => Ok(Keep::Org),
            other => Err(FlagError::one_of("--keep", other, &["project", "user", "org"])),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// A path, a host name, a variable (`env:NAME`, where it is not set) or a system call
    #[arg(value_name = "PATH|HOST|VARIABLE|SYSCALL")]
    pub(crate) target: String,
    /// Say what was decided in that session instead
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// About writing, not reading
    #[arg(long)]
    pub(crate) write: bool,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    #[command(flatten)]
    pub(crate) chosen: ChosenArgs,
}

/// Whose policy `--save` means.
pub(crate) fn scope_to_save(scope: &str) -> Result<Keep, FlagError> {
    match scope {
        "user" => Ok(Keep::User),
        "project" => Ok(Keep::Project),
        other => Err(FlagError::one_of("--save", other, &["user", "project"])),
    }
}

/// The layer that `--as` means.
pub(crate) fn layer_named(name: Option<&String>) -> Result<Option<Layer>, FlagError> {
    let Some(name) = name else { return Ok(None) };
    let layers = [Layer::Org, Layer::User, Layer::Project, Layer::ProjectLocal];
    match layers.iter().find(|layer| layer.to_string() == *name) {
        Some(layer) => Ok(Some(*layer)),
        None => Err(FlagError::one_of("--as", name, &["org", "user", "project", "project.local"])),
    }
}
