//! `cargo xtask storm`: a host process works on covered names while workloads spin on them, in every configuration. Owns the
//! options; the storm, its figures and its targets are the escape runner's (`cover_storm`). Called by people and `.ci/run`.

use crate::account::users;
use crate::problems::Problems;
use crate::runner;
use crate::workspace::Workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Changes by system calls in the first configuration (default: 100000)
    #[arg(long, value_name = "N")]
    count: Option<u32>,
    /// The same in each of the other configurations (default: 2000)
    #[arg(long, value_name = "N")]
    others: Option<u32>,
    /// Runs of each program in the first configuration (default: 500); a 25th of it in the others
    #[arg(long, value_name = "N")]
    programs: Option<u32>,
    /// End each configuration after so many seconds, whatever it has reached
    #[arg(long, value_name = "N")]
    seconds: Option<u32>,
    /// Some hundred changes: seconds instead of an hour
    #[arg(long)]
    short: bool,
    /// Print one JSON object for each user as its last line: figures, targets, pass
    #[arg(long)]
    json: bool,
    /// Run as this user (needs root); else as the caller, and for root as `cofferdam-test` as well if it exists
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<String, Problems> {
    let mut arguments = vec!["cover-storm".to_owned()];
    let numbers = [
        ("--count", args.count),
        ("--others", args.others),
        ("--programs", args.programs),
        ("--seconds", args.seconds),
    ];
    for (flag, number) in numbers {
        arguments.extend(number.into_iter().flat_map(|number| [flag.to_owned(), number.to_string()]));
    }
    arguments
        .extend([("--short", args.short), ("--json", args.json)].iter().filter(|it| it.1).map(|it| it.0.to_owned()));
    runner::run(workspace, &users(args.user.as_deref())?, &arguments)
}
