//! The process that launches one trial: `sandbox-verify launch ERRAND`. Owns the order: prepare as `sandbox run` does, leave away what
//! the trial is to be without and what of the policy has no path here, run. A process of its own, because a launch blocks signals,
//! forbids tracing and must be the only thread.

use std::fs;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::process::{Command, ExitCode};
use std::rc::Rc;

use cofferdam_host::preparation::{Prepared, prepare_changed};
use cofferdam_kernel::namespace;
use cofferdam_plan::LayerState;
use cofferdam_policy::{Access, Layer, LayerInput, PathExpr, Places, Policy};
use cofferdam_reach::start::PROGRAM;
use cofferdam_supervisor::{Options, Outcome};
use cofferdam_wire::exec::ExecRequest;
use cofferdam_wire::order::{Chosen, Given, Lifetime, ORDER_VERSION, Order};
use rustix::fs::{Mode, OFlags};

use crate::checks::find;
use crate::errand::{Errand, Launched, Walls};
use crate::report::Fact;
use crate::run_directory;
use crate::spec::{Away, Spec};

/// Runs one launch and leaves what became of it.
pub(crate) fn launch(errand: &Errand) -> ExitCode {
    // Where no run made the root, nothing is written there either.
    let _run = match run_directory::join(errand) {
        Ok(lock) => lock,
        Err(why) => {
            if writeln!(std::io::stderr(), "{why}").is_err() {
                // The exit code says so, too.
            }
            return ExitCode::FAILURE;
        }
    };
    let launched = find(&errand.check).ok_or_else(|| "no such check".to_owned()).and_then(|spec| run(spec, errand));
    let launched = launched.unwrap_or_else(|error| Launched { error: Some(error), ..Launched::default() });
    let written = serde_json::to_vec(&launched).map(|text| fs::write(errand.scratch().outcome(), text));
    if matches!(written, Ok(Ok(()))) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(spec: &Spec, errand: &Errand) -> Result<Launched, String> {
    let _inherited = leave_open(errand)?;
    let is_away = errand.walls == Walls::Away;
    let probe = match spec.away {
        Away::Probe { name, .. } if is_away => name,
        _ => spec.probe,
    };
    let argv = [errand.program.display().to_string(), "probe".to_owned(), probe.to_owned(), errand.text()];
    match spec.away {
        Away::All if is_away => return without_sandbox(&argv),
        Away::EditedAsRoot { .. } if is_away && !rustix::process::geteuid().is_root() => {
            namespace::become_root().map_err(|errno| format!("no user namespace around the sandbox: {errno}"))?;
        }
        _ => {}
    }
    let flags: &[(&str, &str)] = if is_away && matches!(spec.away, Away::Flags) { &[] } else { spec.flags };
    let org = match spec.away {
        Away::Approved { org, .. } if is_away => Some(org),
        _ => None,
    };
    let mut not_tried = Vec::new();
    let prepared = prepare_changed(
        order(errand, argv.to_vec(), flags, org.is_none()),
        false,
        &|sources| sources.layers.extend(org.map(of_the_organisation)),
        &mut |policy, around| not_tried = without_missing(policy, &around.places()),
    );
    let mut prepared = prepared.map_err(|error| in_words(&error))?;
    for wall in &errand.switched_off {
        wall.switch_off(&mut prepared.plan, errand);
    }
    match spec.away {
        Away::Edited { edit, .. } | Away::EditedAsRoot { edit, .. } if is_away => edit(&mut prepared.plan, errand),
        _ => {}
    }
    let options = Options {
        state: Some(prepared.around.state.clone()),
        known: Some(Rc::clone(&prepared.known)),
        egress_program: std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM)),
        ..Options::default()
    };
    let outcome = cofferdam_supervisor::run(&prepared.plan, &options).map_err(|error| in_words(&error))?;
    Ok(Launched { not_tried, ..told(&prepared, &outcome) })
}

fn of_the_organisation(text: &str) -> LayerInput {
    LayerInput { layer: Layer::Org, source: "negative control".to_owned(), text: text.to_owned(), trusted: true }
}

/// Grants of paths that are missing would end every trial: a scratch home has little of what the policy's own home has. They are
/// no errors here, and are named.
fn without_missing(policy: &mut Policy, places: &Places) -> Vec<String> {
    let is_missing = |path: &PathExpr| path.expand(places).iter().any(|path| path.symlink_metadata().is_err());
    let mut named = Vec::new();
    for rule in &mut policy.files {
        if rule.access > Access::Protect && !rule.optional && !rule.path.is_glob() && is_missing(&rule.path) {
            rule.optional = true;
            named.push(format!("{} {}", rule.access, rule.path));
        }
    }
    for grant in policy.network.sockets.iter_mut().map(|grant| &mut grant.value) {
        if !grant.optional && is_missing(&grant.path) {
            grant.optional = true;
            named.push(format!("socket {}", grant.path));
        }
    }
    named
}

/// A descriptor of the canary that a program which is executed would inherit.
fn leave_open(errand: &Errand) -> Result<OwnedFd, String> {
    let opened = rustix::fs::open(errand.scratch().canary(), OFlags::RDONLY, Mode::empty());
    opened.map_err(|errno| format!("the canary cannot be opened: {errno}"))
}

fn order(errand: &Errand, argv: Vec<String>, flags: &[(&str, &str)], shows_programs: bool) -> Order {
    let given = |flag: &str, value: &str| Given { flag: flag.to_owned(), value: value.into() };
    // The probe has to be seen to be executed: a directory that holds nothing else.
    let programs = errand.program.parent().map(|directory| directory.display().to_string()).unwrap_or_default();
    let shown = shows_programs.then(|| given("--ro", &programs));
    let flags = flags.iter().map(|(flag, value)| given(flag, value)).chain(shown);
    Order {
        version: ORDER_VERSION,
        cwd: None,
        environment: std::env::vars().collect(),
        flags: flags.collect(),
        chosen: Chosen::default(),
        exec: Some(ExecRequest { argv, ..ExecRequest::default() }),
        lifetime: Lifetime::WithFirstExec { linger_seconds: 0 },
        can_ask: false,
        kept_bytes: 0,
    }
}

fn without_sandbox(argv: &[String]) -> Result<Launched, String> {
    let [_, arguments @ ..] = argv else { return Err("no command".to_owned()) };
    // The copy lies where other sessions may write: outside of a session nothing is executed but this very program.
    let status = Command::new("/proc/self/exe").args(arguments).status();
    status.map(|_| Launched::default()).map_err(|error| error.to_string())
}

fn told(prepared: &Prepared, outcome: &Outcome) -> Launched {
    let plan = &prepared.plan;
    let posture = plan.posture.0.iter().map(|line| {
        let state = match line.state {
            LayerState::Enforced => "enforced",
            LayerState::Reduced => "reduced",
            LayerState::Missing => "missing",
        };
        Fact { name: line.layer.to_owned(), value: format!("{state}: {}", line.by) }
    });
    Launched {
        error: None,
        end: Some(outcome.end),
        blocked: outcome.summary.blocked.iter().map(|blocked| blocked.name.to_owned()).collect(),
        posture: posture.collect(),
        not_tried: Vec::new(),
        asks: plan.gate.is_some(),
    }
}

fn in_words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if more != text {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
