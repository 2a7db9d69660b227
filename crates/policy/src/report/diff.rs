//! What one policy allows that another does not. Owns the comparison, rule by rule and with origins, and which way a
//! difference goes; where the policies come from and how lines look is the edge's. Called by `sandbox policy diff`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::decide::files::{ExpandedRule, covers, index_of, rules_in_force};
use crate::decide::index::RuleIndex;
use crate::language::path::{PathExpr, Places};
use crate::types::files::{Access, FileRule};
use crate::types::network_part::NetworkPart;
use crate::types::origin::{Origin, Ruled};
use crate::types::policy::{Mode, OnUnknown, Policy};
use crate::types::scalar::Scalar;

/// What stands for a setting without a value.
const NO_LIMIT: &str = "no limit";

/// Which way a difference goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// More is allowed.
    Wider,
    /// Less is allowed.
    Narrower,
    /// Another value, of which neither allows more.
    Other,
}

/// One thing about which two policies differ.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    pub direction: Direction,
    /// A setting or a path, as a file would have it.
    pub what: String,
    pub before: String,
    pub after: String,
    /// The rule that decides in the second policy, else the one that decided in the first.
    pub origin: Option<Origin>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.what, self.before, self.after)
    }
}

/// What `after` says otherwise than `before`, on this host: files first, then the other settings.
pub fn differences(before: &Policy, after: &Policy, places: &Places) -> Vec<Difference> {
    let mut found = Vec::new();
    files(before, after, places, &mut found);
    scalars(before, after, &mut found);
    lists(before, after, &mut found);
    found
}

/// What becomes of a path. Ordered: stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Hidden,
    Asked,
    Given(Access),
    Logged,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fate::Hidden => f.write_str("deny"),
            Fate::Asked => f.write_str("ask"),
            Fate::Given(access) => write!(f, "{access}"),
            Fate::Logged => f.write_str("read, logged"),
        }
    }
}

impl Fate {
    /// Orders a path that can be read and is logged like one that can be read.
    fn rank(self) -> Fate {
        if self == Fate::Logged { Fate::Given(Access::Read) } else { self }
    }
}

/// Where no rule is about a path.
fn fate_of_unknown(policy: &Policy) -> Fate {
    match (policy.mode.value, policy.unknown.verdict.value) {
        (Mode::Static, _) => Fate::Given(Access::Read),
        (Mode::Dynamic, OnUnknown::Deny) => Fate::Hidden,
        (Mode::Dynamic, OnUnknown::Ask) => Fate::Asked,
        (Mode::Dynamic, OnUnknown::AllowAndLog) => Fate::Logged,
    }
}

fn fate<'a>(policy: &Policy, rules: &'a RuleIndex<ExpandedRule>, path: &Path) -> (Fate, Option<&'a ExpandedRule>) {
    match rules.deciding(path) {
        Some(decides) if decides.rule.access == Access::Deny => (Fate::Hidden, Some(decides)),
        Some(decides) => (Fate::Given(decides.rule.access), Some(decides)),
        None => (fate_of_unknown(policy), None),
    }
}

fn files(before: &Policy, after: &Policy, places: &Places, found: &mut Vec<Difference>) {
    let (old, new) = (rules_in_force(before, places), rules_in_force(after, places));
    let concerned = concerned(&old, &new);
    let (old, new) = (index_of(old), index_of(new));
    for (path, expression) in concerned {
        let ((was, old_rule), (is, new_rule)) = (fate(before, &old, &path), fate(after, &new, &path));
        // Else a rule above it has a line of its own.
        let is_about = |rule: Option<&ExpandedRule>| rule.is_some_and(|rule| example(rule) == path);
        if is_about(old_rule) || is_about(new_rule) {
            let origin = new_rule.or(old_rule).map(|rule| rule.rule.origin.clone());
            push(found, expression.as_str(), (was, is), Fate::rank, origin);
        }
    }
    let unknown = (fate_of_unknown(before), fate_of_unknown(after));
    push(found, "every other path", unknown, Fate::rank, Some(after.unknown.verdict.origin.clone()));
}

/// The places of rules about which a rule of only one policy has a say, in the order of paths. Most rules are shipped
/// and in both.
fn concerned(old: &[ExpandedRule], new: &[ExpandedRule]) -> BTreeMap<PathBuf, PathExpr> {
    let key = |rule: &ExpandedRule| {
        let FileRule { access, is_final, only_missing, origin, .. } = &rule.rule;
        (example(rule), *access, *is_final, *only_missing, origin.layer)
    };
    let (in_old, in_new): (BTreeSet<_>, BTreeSet<_>) = (old.iter().map(key).collect(), new.iter().map(key).collect());
    let one_sided = old.iter().chain(new).filter(|rule| in_old.contains(&key(rule)) != in_new.contains(&key(rule)));
    let one_sided: Vec<&ExpandedRule> = one_sided.collect();
    let named = old.iter().chain(new).filter(|rule| one_sided.iter().any(|changed| covers(*changed, &example(rule))));
    named.map(|rule| (example(rule), rule.rule.path.clone())).collect()
}

/// A path that a rule is about: its own, or for one about any directory one that no other kind of rule names.
fn example(rule: &ExpandedRule) -> PathBuf {
    let tail = rule.rule.path.tail();
    match rule.path.ancestors().nth(tail).filter(|_| tail > 0) {
        Some(root) => root.join("**").join(rule.path.strip_prefix(root).unwrap_or(&rule.path)),
        None => rule.path.clone(),
    }
}

fn push<T: Copy + PartialEq + fmt::Display, R: Ord>(
    found: &mut Vec<Difference>,
    what: &str,
    (before, after): (T, T),
    rank: impl Fn(T) -> R,
    origin: Option<Origin>,
) {
    if before != after {
        let direction = match rank(before).cmp(&rank(after)) {
            std::cmp::Ordering::Less => Direction::Wider,
            std::cmp::Ordering::Greater => Direction::Narrower,
            std::cmp::Ordering::Equal => Direction::Other,
        };
        let (before, after) = (before.to_string(), after.to_string());
        found.push(Difference { direction, what: what.to_owned(), before, after, origin });
    }
}

fn scalars(before: &Policy, after: &Policy, found: &mut Vec<Difference>) {
    // The project's directory is among the files.
    let is_here = |scalar: &Ruled<Scalar>| !matches!(scalar.value, Scalar::Project(_));
    for new in after.scalars().filter(is_here) {
        let old = before.same(&new.value);
        let direction = match &old {
            Some(old) if old.value == new.value => continue,
            Some(old) if !new.value.is_within(&old.value) => Direction::Wider,
            Some(_) | None => Direction::Narrower,
        };
        let before = old.map_or_else(|| NO_LIMIT.to_owned(), |old| old.value.amount());
        let (what, after) = (new.value.name(), new.value.amount());
        found.push(Difference { direction, what, before, after, origin: Some(new.origin) });
    }
    for old in before.scalars().filter(|old| after.same(&old.value).is_none()) {
        let (what, before, after) = (old.value.name(), old.value.amount(), NO_LIMIT.to_owned());
        found.push(Difference { direction: Direction::Wider, what, before, after, origin: Some(old.origin) });
    }
}

fn lists(before: &Policy, after: &Policy, found: &mut Vec<Difference>) {
    use Direction::{Narrower, Other, Wider};
    list("preset", &before.presets, &after.presets, (Other, Other), found);
    network(before, after, found);
    list("syscalls.allow", &before.syscalls.allow, &after.syscalls.allow, (Wider, Narrower), found);
    list("syscalls.deny", &before.syscalls.deny, &after.syscalls.deny, (Narrower, Wider), found);
    list("env.pass", &before.env.pass, &after.env.pass, (Wider, Narrower), found);
    list("env.block", &before.env.block, &after.env.block, (Narrower, Wider), found);
    let names = |policy: &Policy| -> Vec<Ruled<String>> {
        policy.env.set.iter().map(|set| set.map(|(name, _)| name)).collect()
    };
    list("env.set", &names(before), &names(after), (Other, Other), found);
    let hook =
        |policy: &Policy| policy.unknown.hook.iter().map(|hook| hook.map(|argv| argv.join(" "))).collect::<Vec<_>>();
    list("unknown.hook", &hook(before), &hook(after), (Other, Other), found);
    let alert =
        |policy: &Policy| policy.response.hook.iter().map(|hook| hook.map(|argv| argv.join(" "))).collect::<Vec<_>>();
    list("response.hook", &alert(before), &alert(after), (Other, Other), found);
    let (old, new) = (&before.process.executables, &after.process.executables);
    // An empty list means all programs.
    match (old.first(), new.first()) {
        (None, Some(first)) => every_program(("all", "the listed ones"), Narrower, first, found),
        (Some(first), None) => every_program(("the listed ones", "all"), Wider, first, found),
        _ => list("process.executables", old, new, (Wider, Narrower), found),
    }
}

/// Lists of the network.
fn network(before: &Policy, after: &Policy, found: &mut Vec<Difference>) {
    use Direction::{Narrower, Other, Wider};
    let (old, new) = (before.network.parts(), after.network.parts());
    let entries = |parts: &[Ruled<NetworkPart>], key: &str| -> Vec<Ruled<String>> {
        parts
            .iter()
            .filter(|part| part.value.key() == key)
            .map(|part| part.map(|part| part.value(str::to_owned)))
            .collect()
    };
    let directions = [
        ("allow", Wider, Narrower),
        ("deny", Narrower, Wider),
        ("resolvers", Other, Other),
        ("publish", Wider, Narrower),
        ("host_ports", Wider, Narrower),
        ("sockets", Wider, Narrower),
        ("credentials", Wider, Narrower),
    ];
    for (key, came, went) in directions {
        list(&format!("network.{key}"), &entries(&old, key), &entries(&new, key), (came, went), found);
    }
}

fn every_program(
    (before, after): (&str, &str),
    direction: Direction,
    rule: &Ruled<String>,
    found: &mut Vec<Difference>,
) {
    found.push(Difference {
        direction,
        what: "process.executables".to_owned(),
        before: before.to_owned(),
        after: after.to_owned(),
        origin: Some(rule.origin.clone()),
    });
}

/// What came and what went, with the direction of each.
fn list<T: AsRef<str>>(
    what: &str,
    before: &[Ruled<T>],
    after: &[Ruled<T>],
    (came, went): (Direction, Direction),
    found: &mut Vec<Difference>,
) {
    let missing = |entry: &Ruled<T>, list: &[Ruled<T>]| !list.iter().any(|o| o.value.as_ref() == entry.value.as_ref());
    let mut add = |entry: &Ruled<T>, direction, before: &str, after: &str| {
        found.push(Difference {
            direction,
            what: format!("{what} {:?}", entry.value.as_ref()),
            before: before.to_owned(),
            after: after.to_owned(),
            origin: Some(entry.origin.clone()),
        });
    };
    for entry in after.iter().filter(|entry| missing(entry, before)) {
        add(entry, came, "absent", "listed");
    }
    for entry in before.iter().filter(|entry| missing(entry, after)) {
        add(entry, went, "listed", "absent");
    }
}
