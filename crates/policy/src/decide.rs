//! Which rule decides about a path. Owns the one definition of precedence; expansion of path expressions is the
//! caller's (with `PathExpr::expand`), and mounts that make the verdict true are `plan`'s. Called by `plan`.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::fold::folded;
use crate::path::{PathExpr, Places, name_matches};
use crate::types::{Access, FileRule, Hold, Policy, Stand};

/// A rule and one of the absolute paths it stands for on this host. The last name is a pattern where the rule's
/// expression is a glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpandedRule {
    pub path: PathBuf,
    pub rule: FileRule,
}

/// Every rule of a policy at the places it stands for on this host, the project's own access as one of them.
pub fn rules_in_force(policy: &Policy, places: &Places) -> Vec<ExpandedRule> {
    let project = project_rule(policy);
    let at_its_places = |rule: &FileRule| -> Vec<ExpandedRule> {
        rule.path.expand(places).into_iter().map(|path| ExpandedRule { path, rule: rule.clone() }).collect()
    };
    policy.files.iter().chain([&project]).flat_map(at_its_places).collect()
}

/// How the project directory is given, as a rule about it.
pub(crate) fn project_rule(policy: &Policy) -> FileRule {
    FileRule {
        path: PathExpr::project(),
        access: policy.project.value,
        stand: Stand::Refuse,
        hold: Hold::Nothing,
        only_missing: false,
        optional: true,
        is_final: false,
        reason: Cow::Borrowed("the project"),
        origin: policy.project.origin.clone(),
    }
}

/// The rule that decides about `path`:
/// a final deny at or above it; else the longest path at or above it, then the later layer, then the stricter access.
/// A protect rule never uncovers what a deny rule hides: lifting a deny takes `read`, `overlay` or `write`.
/// Rules about missing names (`only_missing`) decide nothing here, see [`hold_of`].
pub fn deciding_rule<'a>(rules: &'a [ExpandedRule], path: &Path) -> Option<&'a ExpandedRule> {
    let covering: Vec<&ExpandedRule> =
        rules.iter().filter(|rule| !rule.rule.only_missing && covers(&rule.rule, &rule.path, path)).collect();
    let last_word = covering.iter().copied().filter(|rule| rule.rule.is_final && rule.rule.access == Access::Deny);
    if let Some(rule) = strongest(last_word) {
        return Some(rule);
    }
    let winner = strongest(covering.iter().copied())?;
    if winner.rule.access != Access::Protect {
        return Some(winner);
    }
    let without_protect = covering.iter().copied().filter(|rule| rule.rule.access != Access::Protect);
    Some(strongest(without_protect).filter(|rule| rule.rule.access == Access::Deny).unwrap_or(winner))
}

/// What must stand in for `path` while it is missing. A deny rule on the same path does not lift the hold of a protect
/// rule: a name that cannot be seen must not become creatable.
pub fn hold_of<'a>(rules: &'a [ExpandedRule], path: &Path) -> &'a Hold {
    let lifted =
        deciding_rule(rules, path).is_some_and(|rule| rule.rule.access > Access::Protect && same_length(rule, path));
    let holds = |rule: &&ExpandedRule| {
        rule.rule.hold != Hold::Nothing && same_length(rule, path) && covers(&rule.rule, &rule.path, path)
    };
    match strongest(rules.iter().filter(holds)) {
        Some(rule) if !lifted => &rule.rule.hold,
        _ => &Hold::Nothing,
    }
}

/// Rules that all cover one path: equally long ones name the same path.
fn strongest<'a>(rules: impl Iterator<Item = &'a ExpandedRule>) -> Option<&'a ExpandedRule> {
    rules.max_by_key(|rule| (rule.path.components().count(), rule.rule.origin.layer, Reverse(rule.rule.access)))
}

fn same_length(rule: &ExpandedRule, path: &Path) -> bool {
    rule.path.components().count() == path.components().count()
}

/// Whether `path` is the place `at` of a rule or lies below it. Rules that refuse compare folded names, so that `.GIT/config`
/// gets the verdict of `.git/config`; rules that grant compare bytes.
pub(crate) fn covers(rule: &FileRule, at: &Path, path: &Path) -> bool {
    let refuses = rule.access <= Access::Protect;
    let mut names = path.components();
    let mut pattern = at.components().peekable();
    while let Some(expected) = pattern.next() {
        let Some(name) = names.next() else { return false };
        let glob = rule.path.is_glob() && pattern.peek().is_none();
        if !name_covered(expected.as_os_str(), name.as_os_str(), glob, refuses) {
            return false;
        }
    }
    true
}

fn name_covered(expected: &OsStr, name: &OsStr, glob: bool, refuses: bool) -> bool {
    if expected == name {
        return true;
    }
    if !refuses && !glob {
        return false;
    }
    let (expected, name) = (expected.to_string_lossy(), name.to_string_lossy());
    match (refuses, glob) {
        (true, true) => name_matches(&folded(&expected), &folded(&name)),
        (true, false) => folded(&expected) == folded(&name),
        (false, _) => name_matches(&expected, &name),
    }
}
