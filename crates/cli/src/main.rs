//! The `sandbox` command: from what the user typed to what the kernel did, and back in plain words.
#![forbid(unsafe_code)]

mod args;

use clap::Parser as _;
use cofferdam_policy::Policy;

fn main() {
    let cli = args::Cli::parse();
    let args::Command::Run(run) = cli.command else { return };
    let mut policy = Policy::built_in();
    policy.presets.clear();
    let environment: Vec<(String, String)> = std::env::vars().collect();
    let around = cofferdam_launcher::Surroundings::look(&environment).expect("look");
    let request = cofferdam_plan::Request { argv: run.argv.clone(), environment };
    let facts = cofferdam_launcher::survey(&policy, &around, &request);
    let plan = cofferdam_plan::plan(&policy, &facts, &request).expect("plan");
    let r = cofferdam_launcher::run(&plan, &cofferdam_launcher::Options { state: Some(around.state.clone()), timing: run.timing });
    match r {
        Ok(o) => {
            for t in &o.timing {
                eprintln!("{:>8.1} us  {}", t.nanoseconds as f64 / 1000.0, t.step);
            }
            if !o.blocked.is_empty() { eprintln!("{:?}", o.blocked); }
            match o.end { cofferdam_launcher::End::Exited { code } => std::process::exit(code), e => { eprintln!("{e:?}"); std::process::exit(124) } }
        }
        Err(e) => { eprintln!("{e} {:?}", std::error::Error::source(&e)); std::process::exit(125) }
    }
}
