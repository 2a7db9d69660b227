//! The `sandbox` command: from what the user typed to what the kernel did, and back in plain words.
#![forbid(unsafe_code)]

mod args;
mod attach;
mod audit;
mod client;
mod denials;
mod doctor;
mod explain;
mod falls;
mod generate;
mod host_network;
mod import;
mod inbox;
mod learn;
mod limits;
mod obeyed;
mod ocsf;
mod output;
mod persist;
mod policy_command;
mod policy_files;
mod questions;
mod recorded;
mod render;
mod report;
mod run;
mod sessions;
mod trust;
mod why;

use std::process::ExitCode;

use crate::args::{Cli, Command};
use crate::output::say;
use crate::questions::Answer;
use crate::render::{Failure, OUR_FAILURE};

/// musl's own costs a fifth of the time before the launch (docs/decisions/0009).
#[global_allocator]
static ALLOCATOR: cofferdam_kernel::memory::Allocator = cofferdam_kernel::memory::Allocator::new();

fn main() -> ExitCode {
    if cofferdam_kernel::process::has_raised_privilege() {
        // A set-user-ID copy would hand its owner's rights to whoever calls it.
        say!("error: sandbox must not be installed set-user-ID or with file capabilities");
        return ExitCode::from(OUR_FAILURE);
    }
    let cli = match Cli::typed() {
        Ok(cli) => cli,
        Err(error) => return generate::usage(&error),
    };
    let result = match cli.command {
        Command::Run(args) => Ok(run::run(&args)),
        Command::Learn(args) => Ok(learn::learn(&args)),
        Command::Explain(args) => explain::explain(&args),
        Command::Doctor(args) => Ok(doctor::doctor(&args)),
        Command::Ps(args) => sessions::list(&args),
        Command::Kill(args) => sessions::kill(&args),
        Command::Attach(args) => attach::attach(&args),
        Command::Logs(args) => audit::logs(&args),
        Command::Audit(args) => audit::audit(&args),
        Command::Trust(args) => trust::trust(&args),
        Command::Policy(command) => policy_command::run(&command),
        Command::Why(args) => why::why(&args),
        Command::Questions(args) => questions::list(&args),
        Command::Approve(args) => questions::answer(&args, Answer::Approve),
        Command::Deny(args) => questions::answer(&args, Answer::Deny),
        Command::Inbox => inbox::run(),
        Command::Completions { shell } => Ok(generate::completions(shell)),
        Command::Man => generate::manual(),
    };
    result.unwrap_or_else(|failure: Failure| failure.report())
}
