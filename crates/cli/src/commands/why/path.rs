//! What `sandbox why` says about a path: which rule decides, what that means, and the smallest change that would turn it around.
//! Owns the wording; the rules are those of `plan` and `policy`.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use cofferdam_host::policy_files::real_rules;
use cofferdam_host::{Surroundings, survey};
use cofferdam_plan::{
    Decision, GateRule, HostFacts, LaunchPlan, Request, all_gate_rules, decide, is_in_own_area, plan,
};
use cofferdam_policy::{
    Access, ExpandedRule, Isolation, Layer, Mode, OnUnknown, Origin, PathExpr, PlacedRule, Places, Policy, Ruled,
    Transaction,
};

/// Where no layer chose to ask, questions are asked at a terminal alone.
pub(super) fn would_be_asked(unknown: &Ruled<OnUnknown>) -> &'static str {
    if unknown.origin.layer == Layer::BuiltIn {
        "it would be asked, and refused without a terminal"
    } else {
        "it would be asked"
    }
}

/// The rule that decides about a path.
struct Decided {
    access: Access,
    origin: Origin,
    reason: Cow<'static, str>,
    /// The path that the rule is about.
    at: PathBuf,
    is_socket: bool,
    /// Whether what a protect rule is about can be read.
    is_read: bool,
}

pub(super) fn about(
    policy: &Policy,
    around: &Surroundings,
    environment: Vec<(String, String)>,
    path: &Path,
    write: bool,
) -> Vec<String> {
    let shown = path.display();
    if policy.isolation.value == Isolation::None {
        return vec![format!("{shown}: isolation is `none`, so nothing is kept away [{}]", policy.isolation.origin)];
    }
    let request = Request { argv: vec!["sh".to_owned()], environment, ..Request::default() };
    let facts = survey(policy, around, &request);
    let places = facts.places();
    // A run that would be refused has rules all the same.
    let plan = plan(policy, &facts, &request);
    if let Some(hold) = plan.iter().flat_map(|plan| &plan.holds).find(|hold| path.starts_with(&hold.path)) {
        return held(policy, &places, &hold.path);
    }
    let decided = decided(plan.as_ref().ok(), policy, &facts, path);
    if is_in_own_area(path) && decided.as_ref().is_none_or(|decided| decided.at == Path::new("/")) {
        return vec![format!("{shown}: the sandbox has its own there; the host's cannot be seen")];
    }
    let transaction = plan.as_ref().map_or(Transaction::Off, |plan| plan.transaction_at(path));
    let mut lines = vec![verdict(policy, path, decided.as_ref(), transaction, write)];
    lines.extend(unseen(policy, &facts, path));
    lines.extend(smallest_change(policy, path, decided.as_ref(), write, &places));
    lines.extend(plan.err().map(|error| format!("as things are, a run would be refused: {error}")));
    lines
}

/// What the run would go by. In dynamic mode those are the gate's rules. In static mode the plan knows what exists; a rule
/// about a name that does not exist yet is the policy's to find.
fn decided(plan: Option<&LaunchPlan>, policy: &Policy, facts: &HostFacts, path: &Path) -> Option<Decided> {
    let planned = |plan: &LaunchPlan| {
        let decision = decide(&plan.decisions, path)?;
        let (origin, reason, at) = (decision.origin.clone(), decision.reason.clone(), decision.path.clone());
        let is_socket = decision.is_about_socket();
        Some(Decided { access: decision.access, origin, reason, at, is_socket, is_read: true })
    };
    let named = || {
        let rules = real_rules(policy, &facts.places());
        let is_read = policy.mode.value == Mode::Static || gives_reads(rules.deciding_reads(path));
        let ExpandedRule { path, rule, .. } = rules.deciding(path)?.clone();
        let at = written(path, rule.path.tail());
        Some(Decided { access: rule.access, origin: rule.origin, reason: rule.reason, at, is_socket: false, is_read })
    };
    let gated = |plan: &LaunchPlan| {
        let rules = all_gate_rules(policy, facts, &plan.decisions);
        let is_socket = decide(&plan.decisions, path).is_some_and(Decision::is_about_socket);
        let is_read = gives_reads(rules.deciding_reads(path));
        let GateRule { path, access, origin, reason, tail, .. } = rules.deciding(path)?.clone();
        let at = written(path, tail);
        Some(Decided { access, origin, reason, at, is_socket, is_read })
    };
    let is_missing = path.symlink_metadata().is_err();
    match plan {
        None => named(),
        Some(plan) if plan.gate.is_some() => gated(plan),
        Some(plan) if is_missing => named().or_else(|| planned(plan)),
        Some(plan) => planned(plan),
    }
}

fn gives_reads(rule: Option<&impl PlacedRule>) -> bool {
    rule.is_some_and(|rule| rule.access() >= Access::Read)
}

/// A rule's place as a policy has it: `/project/**/.env` for one about any directory.
fn written(place: PathBuf, tail: usize) -> PathBuf {
    match place.ancestors().nth(tail).and_then(|root| Some((root, place.strip_prefix(root).ok()?))) {
        Some((root, names)) if tail > 0 => root.join("**").join(names),
        _ => place,
    }
}

/// Where a search for names to hide did not get, nothing is covered. It names a few of the places; of the others a path counts
/// that a rule about any directory refuses and that is not among what was found.
fn unseen(policy: &Policy, facts: &HostFacts, path: &Path) -> Option<String> {
    let searched = facts.searched.as_ref().filter(|searched| searched.left > 0)?;
    if let Some((directory, _)) = searched.unseen.iter().find(|(directory, _)| path.starts_with(directory)) {
        let directory = directory.display();
        return Some(format!("{directory} was not searched for names to hide: what lies there is not covered"));
    }
    let hides = |index: &usize| policy.files.get(*index).is_some_and(|rule| rule.access <= Access::Mask);
    let mut found = facts.answers.iter().filter(|(index, _)| hides(index)).map(|(_, fact)| fact.canonical());
    let rules = real_rules(policy, &facts.places());
    let is_sought = |rule: &ExpandedRule| rule.rule.path.is_deep() && rule.rule.access <= Access::Mask;
    let is_unseen = rules.deciding(path).is_some_and(is_sought) && !found.any(|hidden| path.starts_with(hidden));
    let path = path.display();
    is_unseen.then(|| format!("{path} was not found by the search for names to hide, which was cut: it is not covered"))
}

/// A name that is missing and kept from coming into being.
fn held(policy: &Policy, places: &Places, path: &Path) -> Vec<String> {
    let why = real_rules(policy, places)
        .deciding(path)
        .map_or_else(String::new, |rule| format!(" [{}: {}]", rule.rule.origin, rule.rule.reason));
    let path = path.display();
    vec![
        format!("{path} does not exist and cannot be created inside{why}"),
        format!("to allow it: make {path} outside first, or run with --rw {path} once it is there"),
    ]
}

fn verdict(policy: &Policy, path: &Path, decided: Option<&Decided>, transaction: Transaction, write: bool) -> String {
    let shown = path.display();
    let Some(Decided { access, origin, reason, at, is_socket, is_read }) = decided else {
        return no_rule(policy, path, write);
    };
    if *access == Access::Protect && !is_read && !write {
        return format!("{}; it is protected from writes [{origin}: {reason}]", no_rule(policy, path, write));
    }
    let what = match access {
        Access::Deny if *is_socket => "cannot be connected to",
        Access::Read if *is_socket => "can be connected to",
        Access::Deny => "is hidden",
        Access::Mask => "is masked: it can be read, without the values of secret names, and not be written",
        Access::Protect => "can be read; it is protected from writes, and cannot be made where it is missing",
        Access::Read => "can be read, not written",
        Access::Overlay if transaction == Transaction::Review => {
            "can be read and written; what is written is kept for review"
        }
        Access::Overlay if transaction == Transaction::Auto => {
            "can be read and written; what is written is applied when the session ends"
        }
        Access::Overlay => "can be read and looks writable; what is written stays in the session",
        Access::Write => "can be read and written",
    };
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let above = if at == path { String::new() } else { format!(" by the rule about {}", at.display()) };
    format!("{shown} {what}{above} [{origin}{reason}]")
}

fn no_rule(policy: &Policy, path: &Path, write: bool) -> String {
    let shown = path.display();
    match (policy.mode.value, policy.unknown.verdict.value) {
        (Mode::Static, _) if write => format!(
            "{shown} cannot be written: no rule is about it, and the host is read-only [{}]",
            policy.mode.origin
        ),
        (Mode::Static, _) => format!(
            "{shown} can be read: no rule is about it, and the host is readable in static mode [{}]",
            policy.mode.origin
        ),
        (Mode::Dynamic, OnUnknown::Ask) => {
            let unknown = &policy.unknown.verdict;
            format!("{shown}: no rule is about it: {} [{}]", would_be_asked(unknown), unknown.origin)
        }
        (Mode::Dynamic, OnUnknown::Deny) => {
            format!("{shown} is denied: no rule is about it [{}]", policy.unknown.verdict.origin)
        }
        (Mode::Dynamic, OnUnknown::AllowAndLog) => {
            format!("{shown} can be read and is recorded: no rule is about it [{}]", policy.unknown.verdict.origin)
        }
    }
}

/// What would allow what is refused, or refuse what is allowed.
fn smallest_change(
    policy: &Policy,
    path: &Path,
    decided: Option<&Decided>,
    write: bool,
    places: &Places,
) -> Vec<String> {
    let is_final = decided.is_some_and(|decided| decided.origin.layer == Layer::Requirements);
    if is_final {
        return vec!["the organisation's requirements decide: no flag and no file changes it".to_owned()];
    }
    if let Some(decided) = decided.filter(|decided| decided.is_socket) {
        return change_of_socket(path, decided, places);
    }
    let unknown = match (policy.mode.value, policy.unknown.verdict.value) {
        (Mode::Static, _) | (Mode::Dynamic, OnUnknown::AllowAndLog) => Access::Read,
        (Mode::Dynamic, _) => Access::Deny,
    };
    let says_nothing = |decided: &&Decided| decided.access == Access::Protect && !decided.is_read && !write;
    let access = decided.filter(|decided| !says_nothing(decided)).map_or(unknown, |decided| decided.access);
    // What is masked can be shown whole, or be hidden.
    let allowed = if write { access >= Access::Overlay } else { access > Access::Mask };
    let (flag, list) = match (allowed, write) {
        (true, false) => ("--blacklist", "deny"),
        (true, true) => ("--ro", "read"),
        (false, false) => ("--ro", "read"),
        (false, true) => ("--rw", "write"),
    };
    // To make a file takes its directory.
    let creates = !allowed && write && path.symlink_metadata().is_err();
    let path = if creates { path.parent().unwrap_or(path) } else { path };
    if !allowed && write && places.holds_a_home(path) {
        return vec!["nothing opens `/` or the whole home directory for writing: name a directory below".to_owned()];
    }
    let word = if allowed { "forbid" } else { "allow" };
    let mut lines = vec![format!("to {word} it once: sandbox run {flag} {} -- ...", path.display())];
    if let Some(expression) = PathExpr::for_path(path, places) {
        let answer = if allowed && !write {
            "deny"
        } else if allowed {
            "deny --write"
        } else if write {
            "allow --write"
        } else {
            "allow"
        };
        let path = if path.to_string_lossy().contains(' ') {
            format!("'{}'", path.display())
        } else {
            path.display().to_string()
        };
        lines.push(format!(
            "to {word} it for good: sandbox policy {answer} {path}    # files.{list} = [{:?}]",
            expression.as_str()
        ));
    }
    lines
}

fn change_of_socket(path: &Path, decided: &Decided, places: &Places) -> Vec<String> {
    if decided.access != Access::Deny {
        return vec![format!("to forbid it: drop the rule ({})", decided.origin)];
    }
    let mut lines = vec![format!("to allow it once: sandbox run --socket {} -- ...", path.display())];
    let written = PathExpr::for_path(path, places);
    lines.extend(written.map(|path| format!("to allow it for good: network.sockets = [{:?}]", path.as_str())));
    lines
}
