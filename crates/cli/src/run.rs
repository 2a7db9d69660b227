//! `sandbox run`: policy, plan, launch, and at the end the command's exit code and what was blocked.

use std::process::ExitCode;
use std::rc::Rc;
use std::time::SystemTime;

use cofferdam_kernel::timing::now;
use cofferdam_launcher::{Known, Memory, Options, Outcome, Returns, Surroundings, TimingLine, survey, unserved};
use cofferdam_plan::{LaunchPlan, Request, Searched, plan};

use crate::args::{PolicyArgs, RunArgs};
use crate::output::{escaped, say};
use crate::render::Failure;
use crate::{denials, falls, host_network, obeyed, persist, policy_files, report};

/// Policy, surroundings and plan of one command line; shared with `explain`.
pub(crate) struct Prepared {
    pub(crate) around: Surroundings,
    pub(crate) known: Rc<Known>,
    pub(crate) plan: LaunchPlan,
    /// What came before the launch, for `--timing`.
    pub(crate) timing: Vec<TimingLine>,
}

pub(crate) fn prepare(args: &PolicyArgs, argv: &[String]) -> Result<Prepared, Failure> {
    prepare_to(args, argv, false)
}

pub(crate) fn prepare_to(args: &PolicyArgs, argv: &[String], learns: bool) -> Result<Prepared, Failure> {
    let environment = policy_files::environment();
    let mut timing = Vec::new();
    let mut before = now();
    let mut done = |step: &str| {
        let after = now();
        timing.push(TimingLine { step: step.to_owned(), nanoseconds: after - before });
        before = after;
    };
    let around = Surroundings::look(&environment)?;
    let mut policy = policy_files::load(args, &around, &environment)?;
    policy.hide_secret_files();
    done("policy");
    let request = Request { argv: argv.to_vec(), environment, learns };
    let facts = survey(&policy, &around, &request);
    done("survey");
    let plan = plan(&policy, &facts, &request)?;
    done("plan");
    Ok(Prepared { around, known: Rc::new(Known { policy, facts }), plan, timing })
}

pub(crate) fn run(args: &RunArgs) -> ExitCode {
    try_run(args).unwrap_or_else(|failure| report::not_run(&failure, &args.argv, args.json))
}

fn try_run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let prepared = prepare(&args.policy, &args.argv)?;
    let options = Options {
        network_approved: host_network::approve(&prepared)?,
        state: Some(prepared.around.state.clone()),
        timing: args.timing,
        returns: Returns::WhenEverybodyEnded,
        known: Some(Rc::clone(&prepared.known)),
        decider: None,
        memory: Some(memory(&prepared)),
    };
    let start = SystemTime::now();
    let outcome = cofferdam_launcher::run(&prepared.plan, &options)?;
    let code = code_of(&outcome);
    for line in denials::git(&unserved(&prepared.plan, &prepared.known.facts, start, code != 0)) {
        say!("sandbox: {}", escaped(&line));
    }
    tell(args, &prepared, &outcome, code);
    // Nothing is left to do; giving back memory piece by piece would only keep the caller waiting.
    std::process::exit(i32::from(code))
}

/// A command that succeeded while its output was lost has not: programs that see the error say so themselves.
pub(crate) fn code_of(outcome: &Outcome) -> u8 {
    match outcome.end.exit_code() {
        0 if outcome.output_failed.is_some() => 1,
        code => code,
    }
}

/// Answers that are to outlive the session go to the policy of their scope.
fn memory(prepared: &Prepared) -> Memory {
    let around = prepared.around.clone();
    Memory(Rc::new(move |settled| match persist::save_answer(&around, &policy_files::environment(), settled) {
        Ok(saved) if saved.diff.is_empty() => Ok(String::new()),
        Ok(saved) => Ok(format!("kept in {}:\n{}", saved.file.display(), saved.diff)),
        Err(failure) => {
            let hint = failure.hint().map_or_else(String::new, |hint| format!(" ({hint})"));
            Err(format!("{failure}{hint}"))
        }
    }))
}

/// What the sandbox itself could not do, and where things are.
pub(crate) fn tell_of_session(prepared: &Prepared, outcome: &Outcome) {
    for (path, changes) in &outcome.kept {
        say!("sandbox: changes to {} are in {}", escaped(&path.display().to_string()), changes.display());
    }
    for exposed in &outcome.exposed {
        say!("sandbox: {}", escaped(exposed));
    }
    for fallen in &outcome.fallen {
        say!("sandbox: {}", escaped(&falls::line(fallen)));
    }
    for line in obeyed::lines(&outcome.obeyed) {
        say!("sandbox: {line}");
    }
    for told in &outcome.answers {
        for line in told.lines() {
            say!("sandbox: {}", escaped(line));
        }
    }
    if let Some(path) = &outcome.left_behind {
        say!("sandbox: {} is not removed yet; later sessions go on with it", path.display());
    }
    let unseen = prepared.known.facts.searched.as_ref().and_then(Searched::tell_unseen);
    if let Some(unseen) = unseen {
        say!("sandbox: names to hide were not looked for everywhere: {}", escaped(&unseen));
    }
    for directory in &prepared.known.facts.unlisted {
        let directory = directory.display().to_string();
        say!(
            "sandbox: {} was not looked through to the end: what matches patterns there, and what links in it lead to, may not be protected",
            escaped(&directory)
        );
    }
    for file in &prepared.known.facts.unfollowed {
        let file = file.display().to_string();
        say!("sandbox: {} includes more files than are followed: the others may not be protected", escaped(&file));
    }
    if let Some(errno) = outcome.output_failed {
        say!("sandbox: output could not be written: {}", std::io::Error::from_raw_os_error(errno));
    }
    if outcome.log_failed {
        say!("sandbox: the log in {} could not be written", prepared.around.state.display());
    }
    if outcome.is_unlisted {
        say!(
            "sandbox: `sandbox ps` did not list this session: {} could not be written",
            prepared.around.state.display()
        );
    }
}

/// Everything goes to stderr: stdout is the command's.
fn tell(args: &RunArgs, prepared: &Prepared, outcome: &Outcome, code: u8) {
    tell_of_session(prepared, outcome);
    if code != 0 {
        for line in denials::lines(prepared, outcome) {
            say!("sandbox: {}", escaped(&line));
        }
    } else {
        for line in outcome.warnings.iter().cloned().chain(denials::summary(outcome)) {
            say!("sandbox: {}", escaped(&line));
        }
    }
    if args.timing {
        for line in prepared.timing.iter().chain(&outcome.timing) {
            #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a launch fit a float")]
            let microseconds = line.nanoseconds as f64 / 1000.0;
            say!("{microseconds:>9.1} us  {}", line.step);
        }
    }
    if args.json {
        report::say_json(&report::ended(prepared, outcome, code));
    }
}
