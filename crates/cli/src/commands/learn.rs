//! `sandbox learn`: runs a command with nothing written for real and says the smallest policy that it needs. Owns what counts
//! as touched and how the result is told; grouping is `policy`'s, letting things through and noticing them `gate`'s.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cofferdam_host::flags::{FlagError, value};
use cofferdam_host::persist::{self, PersistError};
use cofferdam_host::policy_files::real_rules;
use cofferdam_host::preparation::{PrepareError, Prepared, prepare_start};
use cofferdam_plan::{LaunchPlan, Step};
use cofferdam_policy::{
    Accessed, Draft, Endpoint, Host, HostRule, Learned, NetworkMode, NetworkPart, OnUnknown, Places, Scalar, Setting,
    Touch, learn as smallest, with_port,
};
use cofferdam_supervisor::{LaunchError, Options, Outcome};
use cofferdam_wire::order::Given;
use cofferdam_wire::{Denial, NetworkOutcome, Op};
use serde_json::json;
use thiserror::Error;

use super::run::host_network::HostNetworkError;
use super::run::options;
use crate::args::policy::scope_to_save;
use crate::args::run::LearnArgs;
use crate::environment::{environment, typed};
use crate::render::output::{escaped, print, say};
use crate::render::saved::tell_saved;
use crate::render::session_end::{code_of, tell_of_session};
use crate::render::{denials, report};

/// Why nothing was learned, or what was learned is not kept.
#[derive(Debug, Error)]
pub(crate) enum LearnError {
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error("nothing can be learned here: isolation `none` lets everything through unseen")]
    NothingIsNoticed,
    #[error("nothing can be learned here: the organisation's requirements do not let unknown paths through")]
    UnknownIsRefused,
    #[error(transparent)]
    HostNetwork(#[from] HostNetworkError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Persist(#[from] PersistError),
}

/// Told one by one up to here.
const MOST_TOLD: usize = 20;

pub(crate) fn learn(args: &LearnArgs) -> Result<ExitCode, LearnError> {
    let keep = args.save.as_deref().map(scope_to_save).transpose().map_err(PrepareError::from)?;
    let order = typed(&learning(&args.policy.0)?, args.chosen.starting_in(args.cwd.as_ref()), &args.argv);
    let prepared = prepare_start(order, true)?;
    refuse_where_nothing_is_noticed(&prepared.plan)?;
    let options = Options { memory: None, ..options(&prepared)? };
    let outcome = cofferdam_supervisor::run(&prepared.plan, &options)?;
    let code = code_of(&outcome);
    tell_of_session(&prepared, &outcome);
    tell_of_changes(&prepared.plan, &outcome);
    if code != 0 {
        for line in denials::lines(&prepared, &outcome) {
            say!("sandbox: {}", escaped(&line));
        }
        say!("sandbox: the command ended with {code}: what it would have needed after that is not known");
    }
    let learned = what_it_needs(&prepared, &outcome, keep == Some(cofferdam_wire::Keep::Project));
    let hosts = hosts(&outcome);
    let mut draft = draft(&args.argv, &learned, !hosts.is_empty(), &prepared.around.home);
    draft.settings.extend(hosts);
    if args.json {
        report::say_json_of_session(&object(&outcome, code, &learned, &draft));
    }
    let told = match keep {
        Some(keep) => tell_saved(&persist::save_draft(&prepared.around, &environment(), keep, &draft)?),
        None if args.json => ExitCode::SUCCESS,
        None => print(&draft.to_toml()),
    };
    Ok(if code == 0 { told } else { ExitCode::from(code) })
}

/// The hosts that it reached and that no rule was about.
fn hosts(outcome: &Outcome) -> Vec<Setting> {
    let reached = outcome.summary.hosts.iter().filter(|host| host.verdict != NetworkOutcome::Denied && host.port > 0);
    let written = reached.filter_map(|reached| Some(with_port(&Host::parse(&reached.host).ok()?, reached.port)));
    let endpoints: BTreeSet<String> = written.collect();
    let rules = endpoints.iter().filter_map(|endpoint| Endpoint::parse_allow(endpoint).ok());
    let allow: Vec<Setting> =
        rules.map(|endpoint| Setting::NetworkPart(NetworkPart::Allow(HostRule::whole(endpoint)))).collect();
    let mode = (!allow.is_empty()).then_some(Scalar::Network(NetworkMode::Egress).into());
    mode.into_iter().chain(allow).collect()
}

/// The flags with what learning means by them.
fn learning(given: &[Given]) -> Result<Vec<Given>, PrepareError> {
    const MEANT: [(&str, &str); 2] = [("--mode", "dynamic"), ("--on-unknown", "allow-and-log")];
    let mut flags = given.to_vec();
    for (flag, only) in MEANT {
        match value(given, flag) {
            None => flags.push(Given { flag: flag.to_owned(), value: only.into() }),
            Some(value) if value == only => {}
            Some(value) => {
                let hint = format!("`sandbox learn` runs with `{only}`");
                return Err(FlagError::new(flag, &value.to_string_lossy(), hint).into());
            }
        }
    }
    Ok(flags)
}

fn refuse_where_nothing_is_noticed(plan: &LaunchPlan) -> Result<(), LearnError> {
    match &plan.gate {
        None => Err(LearnError::NothingIsNoticed),
        Some(gate) if gate.verdict != OnUnknown::AllowAndLog => Err(LearnError::UnknownIsRefused),
        Some(_) => Ok(()),
    }
}

/// Whether what is written to unknown places lands in the session, or is refused.
fn takes_writes(plan: &LaunchPlan) -> bool {
    plan.steps.iter().any(|step| matches!(step, Step::GateRoot { overlay: Some(_), .. }))
}

fn tell_of_changes(plan: &LaunchPlan, outcome: &Outcome) {
    let places: Vec<String> = outcome.thrown_away.iter().map(|place| place.display().to_string()).collect();
    if places.is_empty() {
        say!("sandbox: nothing was written for real");
    } else {
        say!("sandbox: nothing was written for real: changes in {} were thrown away", escaped(&places.join(", ")));
    }
    for changed in outcome.changed.iter().take(MOST_TOLD) {
        let what = if changed.is_new { "made" } else { "changed" };
        say!("sandbox: {what} in the session only: {}", escaped(&changed.path.display().to_string()));
    }
    if let Some(more) = outcome.changed.len().checked_sub(MOST_TOLD).filter(|more| *more > 0) {
        say!("sandbox: and {more} more");
    }
    if !takes_writes(plan) {
        say!("sandbox: without /dev/fuse what is written to unknown places is refused, and recorded");
    }
}

/// What the run touched, from what was noticed and from what it left in the session.
fn touched(outcome: &Outcome, home: &Path) -> Vec<Accessed> {
    let is_read_below = |directory: &Path| {
        outcome.summary.allowed.iter().any(|other| other.op != Op::List && other.path.starts_with(directory))
    };
    let allowed = outcome.summary.allowed.iter().filter_map(|allowed| {
        let touch = match allowed.op {
            // Only listed: nothing in it was needed. And the home directory is never given.
            Op::List if !is_read_below(&allowed.path) || home.starts_with(&allowed.path) => return None,
            Op::List => Touch::List,
            Op::Read => Touch::Read,
            Op::Exec => Touch::Exec,
            Op::Write => Touch::Write,
            Op::Create => Touch::Create,
            Op::Connect | Op::Sign => return None,
        };
        Some(Accessed { path: allowed.path.clone(), touch })
    });
    let changed = outcome.changed.iter().map(|changed| Accessed {
        path: changed.path.clone(),
        touch: if changed.is_new { Touch::Create } else { Touch::Write },
    });
    let refused = outcome.summary.denied.iter().map(|denied| Accessed {
        path: PathBuf::from(&denied.path),
        touch: match denied.denial {
            Denial::Unapproved { op: Op::Write, .. } => Touch::Write,
            Denial::Unapproved { op: Op::Create, .. } | Denial::CannotBeAsked { .. } => Touch::Create,
            Denial::Unapproved { .. } | Denial::Hidden { .. } => Touch::Read,
        },
    });
    allowed.chain(changed).chain(refused).collect()
}

fn what_it_needs(prepared: &Prepared, outcome: &Outcome, for_project: bool) -> Learned {
    let places = prepared.known.facts.places();
    let rules = real_rules(&prepared.known.policy, &places);
    // Only the project's own policy says `./`: elsewhere that would be every project.
    let project = places.project.clone().filter(|_| for_project);
    smallest(&touched(outcome, &prepared.around.home), &rules, &Places { project, ..places })
}

fn draft(argv: &[String], learned: &Learned, needs_hosts: bool, home: &Path) -> Draft {
    let mut title = vec![format!("Learned from: {}", escaped(&argv.join(" ")))];
    if learned.settings.is_empty() && !needs_hosts {
        title.push("It needs nothing that is not given already.".to_owned());
    }
    let path = |path: &Path| match path.strip_prefix(home) {
        Ok(below) => format!("~/{}", escaped(&below.display().to_string())),
        Err(_) => escaped(&path.display().to_string()),
    };
    let mut remarks: Vec<String> = Vec::new();
    for (touched, origin) in &learned.refused {
        remarks.push(format!("touched and not granted: {} ({origin})", path(touched)));
    }
    for left in &learned.left {
        remarks.push(format!("left to you: {}: make it first and learn again, its directory is too wide", path(left)));
    }
    Draft { title, settings: learned.settings.clone(), remarks }
}

fn object(outcome: &Outcome, code: u8, learned: &Learned, draft: &Draft) -> serde_json::Value {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    json!({
        "version": 1,
        "session": outcome.session,
        "end": outcome.end,
        "exit_code": code,
        "policy": draft.to_toml(),
        "grants": learned.settings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "refused": learned.refused.iter().map(|(path, origin)| json!({ "path": text(path), "rule": origin.to_string() }))
            .collect::<Vec<_>>(),
        "left": learned.left.iter().map(|path| text(path)).collect::<Vec<_>>(),
        "thrown_away": outcome.changed.iter().map(|changed| text(&changed.path)).collect::<Vec<_>>(),
    })
}
