//! Which rule decides about a path. Owns the rules that are in force on a host; their precedence is `index`'s, expansion of
//! path expressions the caller's (with `FileRule::expand`). Called by `plan`, by `learn` and by commands that say what a policy does.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::decide::index;
use crate::decide::index::{Contest, PlacedRule, RuleIndex, Written};
use crate::language::case_fold::folds_at_or_below;
use crate::language::path::{PathExpr, Places, is_at_or_below};
use crate::types::files::{Access, FileRule, Hold, Stand};
use crate::types::origin::{Layer, Origin};
use crate::types::policy::Policy;

/// A rule and one of the absolute paths it stands for on this host. The last name is a pattern where the rule's
/// expression is a glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpandedRule {
    pub path: PathBuf,
    pub rule: FileRule,
    /// See [`PlacedRule::lifts`].
    pub lifts: bool,
}

impl PlacedRule for ExpandedRule {
    fn place(&self) -> &Path {
        &self.path
    }

    fn set_place(&mut self, place: PathBuf) {
        self.path = place;
    }

    fn is_glob(&self) -> bool {
        self.rule.path.is_glob()
    }

    fn tail(&self) -> usize {
        self.rule.path.tail()
    }

    fn except(&self) -> &str {
        self.rule.path.except()
    }

    fn access(&self) -> Access {
        self.rule.access
    }

    fn is_final(&self) -> bool {
        self.rule.is_final
    }

    fn layer(&self) -> Layer {
        self.rule.origin.layer
    }

    fn lifts(&self) -> bool {
        self.lifts
    }
}

/// Every rule of a policy at the places it stands for on this host, the project's own access as one of them.
pub fn rules_in_force(policy: &Policy, places: &Places) -> Vec<ExpandedRule> {
    let at_its_places = |rule: &FileRule| -> Vec<ExpandedRule> {
        rule.expand(places).into_iter().map(|path| ExpandedRule { path, rule: rule.clone(), lifts: false }).collect()
    };
    let mut rules: Vec<ExpandedRule> = policy.files.iter().flat_map(at_its_places).collect();
    rules.retain(|rule| !gives_the_home(&rule.rule, &rule.path, places));
    let project = at_its_places(&project_rule(policy));
    let closes = |rule: &ExpandedRule, path: &Path| !rule.rule.only_missing && closes_project(rule, path);
    let opens = |project: &ExpandedRule| !rules.iter().any(|rule| closes(rule, &project.path));
    let project: Vec<ExpandedRule> = project.into_iter().filter(opens).collect();
    rules.extend(project);
    if let Some(project) = places.project.as_deref().filter(|_| policy.transaction.value.is_on()) {
        keep_apart(&mut rules, project, policy);
    }
    rules
}

/// In a transaction what would be written directly in the project goes to an overlay, whichever rule gives it.
fn keep_apart(rules: &mut [ExpandedRule], project: &Path, policy: &Policy) {
    let mut contest = Contest::default();
    for (number, rule) in rules.iter().enumerate().filter(|(_, rule)| !rule.rule.only_missing) {
        if index::stands_at(rule, project) {
            contest.enter(number, rule);
        }
    }
    let Some(rule) = contest.won_over(None).and_then(|winner| rules.get_mut(winner)) else { return };
    if rule.rule.access == Access::Write {
        rule.rule.access = Access::Overlay;
        rule.rule.origin = asked_for_by(&rule.rule.origin, &policy.transaction.origin).clone();
        rule.lifts = policy.transaction_lifts();
    }
}

/// Of the rule that gives the project and of the transaction, the one of the later layer: the rule has won over all others at its path and
/// must not lose there for being kept apart.
pub fn asked_for_by<'a>(given: &'a Origin, transaction: &'a Origin) -> &'a Origin {
    if transaction.layer >= given.layer { transaction } else { given }
}

/// A shipped list knows places of software; a variable that leads one of them to the home, or above it, opens nothing.
pub fn gives_the_home(rule: &FileRule, path: &Path, places: &Places) -> bool {
    rule.origin.layer == Layer::BuiltIn && rule.access == Access::Read && places.holds_a_home(path)
}

/// No rule asked for the project's path: where the caller stands must not open what a shipped rule closes.
pub fn closes_project(rule: &impl PlacedRule, project: &Path) -> bool {
    rule.layer() == Layer::BuiltIn && index::refuses(rule.access()) && rule.place() != project && covers(rule, project)
}

/// How the project directory is given, as a rule about it; what a transaction makes of that is not in it.
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

/// Rules about what exists, to be asked which of them decides about a path. Those about missing names (`only_missing`)
/// decide nothing, see [`hold_of`].
pub fn index_of(rules: Vec<ExpandedRule>) -> RuleIndex<ExpandedRule> {
    RuleIndex::new(rules.into_iter().filter(|rule| !rule.rule.only_missing).collect())
}

/// What must stand in for `path` while it is missing. A deny rule on the same path does not lift the hold of a protect
/// rule: a name that cannot be seen must not become creatable.
pub fn hold_of<'a>(rules: &'a [ExpandedRule], index: &RuleIndex<ExpandedRule>, path: &Path) -> &'a Hold {
    let lifted = index.deciding(path).is_some_and(|rule| rule.rule.access > Access::Protect && same_length(rule, path));
    let holds =
        |rule: &&ExpandedRule| rule.rule.hold != Hold::Nothing && same_length(rule, path) && covers(*rule, path);
    let strength = |rule: &&ExpandedRule| (rule.rule.origin.layer, std::cmp::Reverse(rule.rule.access));
    match rules.iter().filter(holds).max_by_key(strength) {
        Some(rule) if !lifted => &rule.rule.hold,
        _ => &Hold::Nothing,
    }
}

fn same_length(rule: &ExpandedRule, path: &Path) -> bool {
    rule.path.components().count() == path.components().count()
}

/// Whether `path` is the place of a rule or lies below it. Rules that refuse compare folded names, so that `.GIT/config`
/// gets the verdict of `.git/config`; rules that grant compare bytes.
pub(crate) fn covers(rule: &impl PlacedRule, path: &Path) -> bool {
    if rule.tail() > 0 {
        return path.ancestors().any(|above| index::stands_at(rule, above));
    }
    if !rule.is_glob() && index::is_plain(rule.place()) && index::is_plain(path) {
        if !index::refuses(rule.access()) {
            return is_at_or_below(path, rule.place());
        }
        return folds_at_or_below(path.as_os_str().as_encoded_bytes(), rule.place().as_os_str().as_encoded_bytes());
    }
    let mut names = path.components();
    let mut written = rule.place().components().peekable();
    while let Some(expected) = written.next() {
        let Some(name) = names.next() else { return false };
        let is_glob = rule.is_glob() && written.peek().is_none();
        let expected = expected.as_os_str().as_encoded_bytes();
        let written = Written { access: rule.access(), name: expected, is_glob, except: rule.except() };
        if !written.means(name.as_os_str().as_encoded_bytes()) {
            return false;
        }
    }
    true
}
