//! The effective policy as one file. Owns what has to be said so that a user with nothing but this file gets the same
//! policy; notation is `draft`'s. Called by `sandbox policy export`.
//!
//! Built-in settings come back by themselves, and presets with their names. What only an organisation can say (ceilings,
//! the approval of isolation `none`) stays a remark.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::path::PathBuf;

use crate::builtin::{DEFAULT_PRESET, Preset};
use crate::decide::files::{ExpandedRule, covers, index_of, project_rule, rules_in_force};
use crate::format::draft::Draft;
use crate::language::path::{PathExpr, Places};
use crate::types::files::{Access, FileRule};
use crate::types::origin::{Layer, Ruled};
use crate::types::policy::{Mode, Policy};
use crate::types::scalar::Scalar;
use crate::types::setting::Setting;

/// The file that means the same on this host. Rules of different layers about one place become the one that counts.
pub fn export(policy: &Policy, places: &Places) -> Draft {
    let mut draft = Draft::default();
    presets(policy, &mut draft);
    scalars(policy, &mut draft);
    files(policy, places, &mut draft);
    lists(policy, &mut draft);
    network(policy, &mut draft);
    remarks(policy, &mut draft);
    draft
}

fn is_said<T>(ruled: &Ruled<T>) -> bool {
    ruled.origin.layer != Layer::BuiltIn
}

fn add<T: Clone>(draft: &mut Draft, ruled: &Ruled<T>, setting: impl FnOnce(T) -> Setting) {
    if is_said(ruled) {
        draft.settings.push(setting(ruled.value.clone()));
    }
}

fn presets(policy: &Policy, draft: &mut Draft) {
    let named = policy.presets.iter().filter(|preset| preset.value != DEFAULT_PRESET);
    draft.settings.extend(named.map(|preset| Setting::Preset(preset.value.clone())));
}

/// The project's directory is among the files, and what only an organisation can say among the remarks.
fn scalars(policy: &Policy, draft: &mut Draft) {
    let is_ours = |scalar: &Scalar| scalar.only_layer().is_none() && !matches!(scalar, Scalar::Project(_));
    let said = policy.scalars().filter(|scalar| is_said(scalar) && is_ours(&scalar.value));
    draft.settings.extend(said.map(|scalar| Setting::Scalar(scalar.value)));
}

fn network(policy: &Policy, draft: &mut Draft) {
    let parts = policy.network.parts().into_iter().filter(is_said);
    draft.settings.extend(parts.map(|part| Setting::NetworkPart(part.value)));
    for within in &policy.network.within {
        let (endpoint, origin) = (&within.value, &within.origin);
        draft.remarks.push(format!("a ceiling lets allowed hosts lie within `{endpoint}` ({origin})"));
    }
}

fn lists(policy: &Policy, draft: &mut Draft) {
    if let Some(hook) = &policy.unknown.hook {
        add(draft, hook, Setting::Hook);
    }
    if let Some(hook) = &policy.response.hook {
        add(draft, hook, Setting::AlertHook);
    }
    let names: Vec<String> = policy.process.executables.iter().map(|name| name.value.clone()).collect();
    if !names.is_empty() {
        draft.settings.push(Setting::Executables(names));
    }
    for call in &policy.syscalls.allow {
        add(draft, call, Setting::SyscallAllow);
    }
    for call in &policy.syscalls.deny {
        add(draft, call, Setting::SyscallDeny);
    }
    for name in &policy.env.pass {
        add(draft, name, Setting::EnvPass);
    }
    for name in &policy.env.block {
        add(draft, name, |name| Setting::EnvBlock(name.into_owned()));
    }
    for set in &policy.env.set {
        add(draft, set, |(name, value)| Setting::EnvSet(name, value));
    }
}

fn remarks(policy: &Policy, draft: &mut Draft) {
    if let Some(origin) = &policy.none_approved {
        draft.remarks.push(format!("isolation `none` is approved by the organisation ({origin}), not by this file"));
    }
    if let Some(origin) = &policy.host_network_approved {
        draft.remarks.push(format!("the host's network is approved by the organisation ({origin}), not by this file"));
    }
    if policy.transaction.value.is_on() && !policy.transaction_lifts() {
        let origin = &policy.transaction.origin;
        draft.remarks.push(format!(
            "a project's file asks for the transaction ({origin}), so it lifts no protection; here it does"
        ));
    }
    for root in &policy.write_within {
        draft.remarks.push(format!("a ceiling lets grants to write lie within `{}` ({})", root.value, root.origin));
    }
    for held in &policy.held_back {
        draft.remarks.push(format!("not in force, so left out: {} ({})", held.rule, held.origin));
    }
}

/// Rules about one place, as this host sees it.
struct SamePlace<'a> {
    paths: Vec<PathBuf>,
    shape: (bool, bool),
    rules: Vec<&'a FileRule>,
}

fn files(policy: &Policy, places: &Places, draft: &mut Draft) {
    let project = project_rule(policy);
    let mut groups: Vec<SamePlace<'_>> = Vec::new();
    let said = policy.files.iter().filter(|rule| rule.origin.layer != Layer::BuiltIn);
    // An unapproved file that made it stricter gained no rank by that.
    let is_said = is_said(&policy.project) || policy.project.value != shipped_project(policy);
    for rule in said.chain(is_said.then_some(&project)) {
        let (paths, shape) = (rule.expand(places), (rule.path.is_glob(), rule.path.is_deep()));
        let same = |group: &&mut SamePlace<'_>| match group.rules.first() {
            Some(first) if paths.is_empty() => first.path.is_same_place(&rule.path),
            _ => group.paths == paths && group.shape == shape,
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.rules.push(rule),
            None => groups.push(SamePlace { paths, shape, rules: vec![rule] }),
        }
    }
    for SamePlace { paths, rules, .. } in &groups {
        let is_project = rules.iter().any(|rule| rule.path.is_same_place(&project.path))
            || places.project.as_ref().is_some_and(|project| paths == std::slice::from_ref(project));
        for rule in deciding(rules) {
            // Of the project a file says both: with `project`, and with a rule about `./`.
            if is_project && rule.access >= Access::Read {
                draft.settings.push(Scalar::Project(rule.access).into());
            } else {
                add_rule(draft, rule.access, rule);
            }
        }
    }
    below_final_denies(policy, places, draft);
    left_out_by_ceilings(policy, places, draft);
}

/// How the presets give the project's directory.
fn shipped_project(policy: &Policy) -> Access {
    let given = presets_of(policy).flat_map(Preset::settings).filter_map(|setting| match setting.value {
        Setting::Scalar(Scalar::Project(access)) => Some(access),
        _ => None,
    });
    given.last().unwrap_or(Access::Read)
}

fn presets_of(policy: &Policy) -> impl Iterator<Item = &'static Preset> {
    let named = policy.presets.iter().map(|preset| preset.value.as_str());
    std::iter::once(DEFAULT_PRESET).chain(named).filter_map(Preset::named)
}

/// Of several rules about one place: the one that decides, and what its verdict rests on. In one file the stricter
/// counts, so a rule that a later layer overruled must not come along.
fn deciding<'a>(rules: &[&'a FileRule]) -> Vec<&'a FileRule> {
    let strength = |rule: &&&FileRule| (rule.is_final, rule.origin.layer, Reverse(rule.access));
    let is_protect = |rule: &&&FileRule| rule.access == Access::Protect;
    let Some(winner) = rules.iter().max_by_key(strength) else { return Vec::new() };
    let beside = match winner.access {
        // Protecting never uncovers: whether the place can be read is for the strongest other rule to say.
        Access::Protect => rules.iter().filter(|rule| !is_protect(rule)).max_by_key(strength),
        // A hidden name can be a held one, too.
        Access::Deny | Access::Mask => rules.iter().filter(is_protect).max_by_key(strength),
        Access::Read | Access::Overlay | Access::Write => None,
    };
    std::iter::once(*winner).chain(beside.copied()).collect()
}

fn add_rule(draft: &mut Draft, access: Access, rule: &FileRule) {
    let written = PathExpr::parse(rule.path.as_str()).ok().filter(|path| path.is_same_place(&rule.path));
    match written {
        Some(path) => {
            let (optional, reason) = (rule.optional && access > Access::Protect, rule.reason.clone());
            draft.settings.push(Setting::File { access, path, optional, reason });
        }
        None => draft.remarks.push(format!(
            "no way to write this path in a file: files.{access} = {:?} ({})",
            rule.path.as_str(),
            rule.origin
        )),
    }
}

/// A final deny also hides what a longer built-in rule gives; an ordinary one, which is all that a file has, does not.
fn below_final_denies(policy: &Policy, places: &Places, draft: &mut Draft) {
    let finals: Vec<ExpandedRule> = policy
        .files
        .iter()
        .filter(|rule| rule.is_final && rule.access == Access::Deny)
        .flat_map(|rule| {
            rule.expand(places).into_iter().map(|path| ExpandedRule { path, rule: rule.clone(), lifts: false })
        })
        .collect();
    let hidden = |path: &PathBuf| finals.iter().any(|rule| covers(rule, path));
    for rule in policy.files.iter().filter(|rule| !rule.is_final && rule.access > Access::Protect) {
        if rule.path.expand(places).iter().any(hidden) {
            add_rule(draft, Access::Deny, rule);
        }
    }
}

/// A ceiling may have taken away what a preset gives: what is left there is said. Where that is a question, which no
/// file can ask for, the path is denied.
fn left_out_by_ceilings(policy: &Policy, places: &Places, draft: &mut Draft) {
    let rules = index_of(rules_in_force(policy, places));
    for preset in presets_of(policy) {
        for setting in preset.settings() {
            let Setting::File { path, access, .. } = setting.value else { continue };
            let is_there = |rule: &FileRule| rule.origin.layer == Layer::BuiltIn && rule.path.is_same_place(&path);
            // Protecting a place says nothing about who may read it.
            let said = |other: &Setting| {
                matches!(other, Setting::File { path: at, access, .. }
                    if *access != Access::Protect && at.is_same_place(&path))
            };
            if access <= Access::Read || policy.files.iter().any(is_there) || draft.settings.iter().any(said) {
                continue;
            }
            let decides = path.expand(places).first().and_then(|at| rules.deciding(at));
            let hidden = decides.map_or(policy.mode.value == Mode::Dynamic, |rule| rule.rule.access == Access::Deny);
            let access = if hidden { Access::Deny } else { Access::Read };
            let reason = Cow::Borrowed("left out by a ceiling");
            draft.settings.push(Setting::File { access, path, optional: access > Access::Protect, reason });
        }
    }
}
