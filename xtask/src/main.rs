//! `cargo xtask`: the checks that keep documents, arrows and promises true, one file per subcommand.
//! Owns no product code and is never shipped. Called by people and by `.ci/run`.
#![forbid(unsafe_code)]

mod account;
mod bench;
mod conformance;
mod cross;
mod dist;
mod elf;
mod escape;
mod inventory;
mod journeys;
mod junit;
mod map;
mod module_graph;
mod neighbour;
mod problems;
mod runner;
mod rust_source;
mod schema;
mod shipped;
mod size;
mod storm;
mod stress;
mod vm;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::problems::Problems;
use crate::workspace::Workspace;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Checks and measurements of this repository")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Check ARCHITECTURE.md against the crates, their arrows and where `unsafe` stands; show sizes and circles of files
    Map,
    /// Check docs/conformance.toml against docs/requirements.md and the tests
    Conformance(conformance::Args),
    /// Write docs/policy.schema.json from the types of the policy crate, or check it
    Schema(schema::Args),
    /// Build and run the escape suite: every row of the attack corpus with its negative control
    Escape(escape::Args),
    /// Run the tests that meet the kernel on other kernels, under QEMU; as root
    Vm(vm::Args),
    /// Measure how much slower a session gets beside one that attacks
    Neighbour(neighbour::Args),
    /// Turn nextest's junit files into `name status` lines, and a line of totals
    Ran(junit::Args),
    /// Build the shipped binary; check that it is static; print its size and how many crates it holds
    Size,
    /// Make what a user installs: a tarball, a Debian package and SHA256SUMS
    Dist(dist::Args),
    /// Build the shipped programs for aarch64 on a machine of another kind, or only check that they compile
    Cross(cross::Args),
    /// Measure the cold start, or the speed inside, beside bare and bubblewrap
    Bench(bench::Args),
    /// Run many sandboxes in a row and at once, and kill supervisors; nothing may fail or be left behind
    Stress(stress::Args),
    /// Work on covered names from the host while workloads spin on them: what is seen is reported, or nothing is seen
    Storm(storm::Args),
    /// Walk what a developer does in the first hour at a terminal in fresh homes: attempts, questions, seconds, silent waits
    Journeys(journeys::Args),
    #[command(hide = true)]
    BenchWorker(bench::worker::Args),
}

fn main() -> ExitCode {
    match run(&Args::parse().task) {
        Ok(summary) => {
            // A task that has printed its own last line has no summary.
            if !summary.is_empty() {
                println!("{summary}");
            }
            ExitCode::SUCCESS
        }
        Err(problems) => {
            eprint!("{problems}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &Task) -> Result<String, Problems> {
    match task {
        Task::Map => map::check(&Workspace::load()?),
        Task::Conformance(args) => conformance::check(&Workspace::load()?, args),
        Task::Schema(args) => schema::run(&Workspace::load()?, args),
        Task::Escape(args) => escape::run(&Workspace::load()?, args),
        Task::Vm(args) => vm::run(&Workspace::load()?, args),
        Task::Neighbour(args) => neighbour::run(&Workspace::load()?, args),
        Task::Ran(args) => junit::print(args),
        Task::Size => size::measure(&Workspace::load()?),
        Task::Dist(args) => dist::run(&Workspace::load()?, args),
        Task::Cross(args) => cross::run(&Workspace::load()?, args),
        Task::Bench(args) => bench::run(args),
        Task::Stress(args) => stress::run(args),
        Task::Storm(args) => storm::run(&Workspace::load()?, args),
        Task::Journeys(args) => journeys::run(&Workspace::load()?, args),
        Task::BenchWorker(args) => bench::worker::run(args),
    }
}
