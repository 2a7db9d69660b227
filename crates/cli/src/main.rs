//! The `sandbox` command: from what the user typed to what the kernel did, and back in plain words.
#![forbid(unsafe_code)]

mod agents;
mod args;
mod client;
mod commands;
mod confirm;
mod environment;
mod failure;
mod full_screen;
mod import;
mod log;
mod pager;
mod render;
mod session_name;
mod waiting;

use std::process::ExitCode;

use crate::args::run::RunArgs;
use crate::args::{Cli, Command};
use crate::commands::questions::Answer;
use crate::commands::{
    agent, attach, audit, changes, checkpoints, clean, doctor, explain, export, generate, inbox, learn, live, output,
    policy, quarantine, questions, review, run, sessions, setup, shell_prefix, supervise, top, trust, verify, why,
};
use crate::failure::Failure;
use crate::failure::not_run::not_run;
use crate::render::exit::OUR_FAILURE;
use crate::render::output::say;

/// musl's own costs a fifth of the time before the launch (docs/decisions/0009).
#[global_allocator]
static ALLOCATOR: cofferdam_kernel::memory::Allocator = cofferdam_kernel::memory::Allocator::new();

fn main() -> ExitCode {
    if cofferdam_kernel::process::has_raised_privilege() {
        // A set-user-ID copy would hand its owner's rights to every caller.
        say!("error: sandbox must not be installed set-user-ID or with file capabilities");
        return ExitCode::from(OUR_FAILURE);
    }
    let cli = match Cli::typed() {
        Ok(cli) => cli,
        Err(error) => return generate::usage(error),
    };
    if !matches!(cli.command, Command::Run(_) | Command::Agent(_) | Command::ShellPrefix(_) | Command::Learn(_))
        && let Ok(state) = environment::own_state()
    {
        changes::finish_interrupted(&state);
    }
    match cli.command {
        Command::Run(args) if args.detach => told(run::detach::detach(&args)),
        Command::Run(args) => run_command(&args),
        Command::Agent(args) => told(agent::order(*args).map(|order| run_ordered(order.as_ref()))),
        Command::ShellPrefix(args) => told(shell_prefix::order(*args).map(|order| run_ordered(order.as_ref()))),
        Command::Learn(args) => {
            learn::learn(&args).unwrap_or_else(|error| not_run(&error.into(), &args.argv, args.json))
        }
        Command::Explain(args) => told(explain::explain(&args)),
        Command::Setup(args) => told(setup::setup(&args)),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Verify(args) => told(verify::verify(&args)),
        Command::Ps(args) => told(sessions::list(&args)),
        Command::Kill(args) => told(sessions::kill(&args)),
        Command::Attach(args) => told(attach::attach(&args)),
        Command::Output(args) => told(output::output(&args)),
        Command::Supervise(args) => supervise::supervise(&args),
        Command::Logs(args) => told(audit::logs(&args)),
        Command::Audit(args) => told(audit::audit(&args)),
        Command::Trust(args) => told(trust::trust(&args)),
        Command::Policy(command) => told(policy::run(&command, |mistake| {
            Failure::from(mistake).report();
        })),
        Command::Why(args) => told(why::why(&args)),
        Command::Changes(args) => told(changes::changes(&args)),
        Command::Diff(args) if args.live => told(live::live(&args)),
        Command::Diff(args) => told(changes::diff(&args)),
        Command::Review(args) => told(review::review(&args)),
        Command::Export(args) => told(export::export(&args)),
        Command::Commit(args) => told(changes::commit(&args)),
        Command::Rollback(args) => match args.to {
            Some(to) => told(checkpoints::rollback(&args, to)),
            None => told(changes::rollback(&args)),
        },
        Command::Checkpoint(args) => told(checkpoints::checkpoint(&args)),
        Command::Undo(args) => told(checkpoints::undo(&args)),
        Command::Quarantine(command) => told(quarantine::run(&command)),
        Command::Questions(args) => told(questions::list(&args)),
        Command::Approve(args) => told(questions::answer(&args, Answer::Approve)),
        Command::Deny(args) => told(questions::answer(&args, Answer::Deny)),
        Command::Inbox => told(inbox::run()),
        Command::Top => told(top::top()),
        Command::Clean(args) => told(clean::clean(&args)),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man => told(generate::manual()),
    }
}

/// Of a command that may only have printed something.
fn run_ordered(order: Option<&RunArgs>) -> ExitCode {
    order.map_or(ExitCode::SUCCESS, run_command)
}

fn run_command(args: &RunArgs) -> ExitCode {
    let run = run::run(args, |error| {
        Failure::from(error).report();
    });
    run.unwrap_or_else(|error| not_run(&error.into(), &args.argv, args.json))
}

/// An error becomes text and an exit code here, and nowhere else.
fn told(result: Result<ExitCode, impl Into<Failure>>) -> ExitCode {
    result.unwrap_or_else(|error| error.into().report())
}
