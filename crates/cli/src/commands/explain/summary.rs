//! What `sandbox explain` says first: a dozen lines about what the command could read, write and reach. Owns the choice and the words; each
//! line follows from the policy and the plan, which stand below it in full. Called by `explain`.

use std::path::Path;

use cofferdam_host::preparation::Prepared;
use cofferdam_plan::LayerState;
use cofferdam_policy::{Access, Isolation, Layer, Mode, NetworkMode, OnUnknown, Policy};

/// Named one by one up to here.
const MOST_TOLD: usize = 6;

pub(super) fn lines(prepared: &Prepared) -> Vec<String> {
    let (policy, plan) = (&prepared.known.policy, &prepared.plan);
    let home = &prepared.around.home;
    let row = |label: &str, what: String| format!("  {label:<11} {what}");
    let places = |access: Access| named(&plan_paths(prepared, access), home, "nothing");
    let mut lines = vec![
        row("command", format!("{}, in {}", plan.command.argv.join(" "), short(&plan.command.cwd, home))),
        row("walls", walls(prepared)),
    ];
    if policy.isolation.value == Isolation::None {
        return lines;
    }
    lines.push(row("written", transaction(prepared, places(Access::Write))));
    let overlaid = plan_paths(prepared, Access::Overlay);
    if !overlaid.is_empty() {
        lines.push(row("thrown away", format!("what is written in {}", named(&overlaid, home, ""))));
    }
    lines.push(row("read", read(prepared)));
    lines.push(row("hidden", hidden(prepared)));
    let protected = plan_paths(prepared, Access::Protect).len();
    lines.push(row("protected", format!("{protected} names that host programs run or obey: read-only")));
    lines.push(row("asked", asked(policy).to_owned()));
    lines.push(row("network", network(policy)));
    let limits: Vec<String> = policy
        .scalars_of("limits")
        .filter(|limit| limit.origin.layer != Layer::BuiltIn)
        .map(|limit| format!("{} {}", limit.value.label(), limit.value.amount()))
        .collect();
    lines.push(row("limits", if limits.is_empty() { "the built-in ones".to_owned() } else { limits.join(", ") }));
    lines.push(row(
        "variables",
        format!("{} are passed or set, all others are dropped", plan.command.environment.len()),
    ));
    if !policy.held_back.is_empty() {
        let count = policy.held_back.len();
        lines.push(row("held back", format!("{count} rules of the project, until `sandbox trust` approves them")));
    }
    lines.push(row(
        "next",
        "`sandbox why PATH|HOST|VARIABLE` about one of them; all rules and steps stand below".to_owned(),
    ));
    lines
}

fn plan_paths(prepared: &Prepared, access: Access) -> Vec<&Path> {
    let decisions = prepared.plan.decisions.iter().filter(|one| one.access == access && !one.is_other_name());
    decisions.map(|one| one.path.as_path()).collect()
}

fn named(paths: &[&Path], home: &Path, none: &str) -> String {
    let shown: Vec<String> = paths.iter().take(MOST_TOLD).map(|path| short(path, home)).collect();
    match paths.len().saturating_sub(MOST_TOLD) {
        _ if paths.is_empty() => none.to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn short(path: &Path, home: &Path) -> String {
    match path.strip_prefix(home) {
        Ok(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Ok(rest) => format!("~/{}", rest.display()),
        Err(_) => path.display().to_string(),
    }
}

fn walls(prepared: &Prepared) -> String {
    let policy = &prepared.known.policy;
    let of = |state: LayerState| {
        let lines = prepared.plan.posture.0.iter().filter(move |line| line.state == state);
        lines.map(|line| line.layer).collect::<Vec<_>>()
    };
    let missing = of(LayerState::Missing);
    let missing = if missing.is_empty() { String::new() } else { format!(", MISSING: {}", missing.join(", ")) };
    let (isolation, mode) = (policy.isolation.value, policy.mode.value);
    let (whole, reduced) = (of(LayerState::Enforced).len(), of(LayerState::Reduced).len());
    format!(
        "isolation {isolation}, mode {mode}; {whole} layers enforced in full, {reduced} in part (POSTURE below says which){missing}"
    )
}

fn transaction(prepared: &Prepared, written: String) -> String {
    if prepared.plan.transaction.is_on() {
        return format!("{written}; what is written in the project waits until you commit it");
    }
    written
}

fn read(prepared: &Prepared) -> String {
    let given = plan_paths(prepared, Access::Read);
    let own: Vec<&Path> = prepared
        .plan
        .decisions
        .iter()
        .filter(|one| one.access == Access::Read && one.origin.layer != Layer::BuiltIn)
        .map(|one| one.path.as_path())
        .collect();
    let shipped = given.len().saturating_sub(own.len());
    let known = match prepared.known.policy.mode.value {
        Mode::Static => "the whole machine but what is hidden".to_owned(),
        Mode::Dynamic => format!("the system's software and {shipped} known places of toolchains and tools"),
    };
    if own.is_empty() { known } else { format!("{known}; {}", named(&own, &prepared.around.home, "")) }
}

fn hidden(prepared: &Prepared) -> String {
    let denied = plan_paths(prepared, Access::Deny);
    let project = prepared.around.project.as_deref();
    let here: Vec<&Path> =
        denied.iter().copied().filter(|path| project.is_some_and(|project| path.starts_with(project))).collect();
    let masked = plan_paths(prepared, Access::Mask).len();
    let of_project = if here.is_empty() {
        "none in the project".to_owned()
    } else {
        format!("in the project {}", named(&here, &prepared.around.home, ""))
    };
    format!("{} places with secrets ({of_project}); {masked} files are shown without their tokens", denied.len())
}

fn asked(policy: &Policy) -> &'static str {
    match (policy.mode.value, policy.unknown.verdict.value) {
        (Mode::Static, _) => "nothing: everything is decided at the start",
        (Mode::Dynamic, OnUnknown::Ask) => "the first access to any other path waits for your answer",
        (Mode::Dynamic, OnUnknown::Deny) => {
            "nothing: any other path is denied (there is no terminal, or a rule says so)"
        }
        (Mode::Dynamic, OnUnknown::AllowAndLog) => "nothing: any other path can be read, and is recorded",
    }
}

fn network(policy: &Policy) -> String {
    let hosts: Vec<String> = policy.network.allow.iter().map(|rule| rule.endpoint.to_string()).collect();
    let asks = policy.mode.value == Mode::Dynamic && policy.unknown.verdict.value == OnUnknown::Ask;
    match policy.network.mode.value {
        NetworkMode::None => "none, but an own loopback".to_owned(),
        NetworkMode::Host => "the host's own, UNFILTERED".to_owned(),
        NetworkMode::Egress => {
            let rest = if asks { "any other host is asked about" } else { "no other host" };
            let first = hosts.iter().take(MOST_TOLD).cloned().collect::<Vec<_>>().join(", ");
            match hosts.len().saturating_sub(MOST_TOLD) {
                _ if hosts.is_empty() => rest.to_owned(),
                0 => format!("{first}; {rest}"),
                more => format!("{first} and {more} more; {rest}"),
            }
        }
    }
}
