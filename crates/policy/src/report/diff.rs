//! What one policy allows that another does not. Owns the comparison, rule by rule and with origins, and which way a
//! difference goes; where the policies come from and how lines look is the edge's. Called by `sandbox policy diff`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::decide::files::{ExpandedRule, covers, index_of, rules_in_force};
use crate::decide::index::RuleIndex;
use crate::language::path::{PathExpr, Places};
use crate::language::quantity::written_size;
use crate::types::files::{Access, FileRule};
use crate::types::limit::{Limit, Within};
use crate::types::network_part::NetworkPart;
use crate::types::origin::{Origin, Ruled};
use crate::types::policy::{Mode, OnUnknown, Policy, SyscallMode};

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
    limits(before, after, &mut found);
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

/// A setting with one value: `rank` says which of two allows more.
fn scalar<T: Copy + PartialEq + fmt::Display, R: Ord>(
    found: &mut Vec<Difference>,
    what: &str,
    before: &Ruled<T>,
    after: &Ruled<T>,
    rank: impl Fn(T) -> R,
) {
    push(found, what, (before.value, after.value), rank, Some(after.origin.clone()));
}

fn scalars(before: &Policy, after: &Policy, found: &mut Vec<Difference>) {
    use std::cmp::Reverse;
    scalar(found, "isolation", &before.isolation, &after.isolation, Reverse);
    scalar(found, "mode", &before.mode, &after.mode, |mode| mode == Mode::Static);
    scalar(found, "debug", &before.debug, &after.debug, |on| on);
    scalar(found, "keeper", &before.keeper, &after.keeper, |mode| mode);
    scalar(found, "network.mode", &before.network.mode, &after.network.mode, |mode| mode);
    let (old, new) = (&before.unknown, &after.unknown);
    scalar(found, "unknown.verdict", &old.verdict, &new.verdict, |verdict| verdict);
    scalar(found, "unknown.metadata", &old.metadata, &new.metadata, |metadata| metadata);
    scalar(found, "unknown.per_minute", &old.per_minute, &new.per_minute, |count| count);
    let seconds = |time: &Ruled<std::time::Duration>| time.map(|time| time.as_secs());
    scalar(found, "unknown.timeout", &seconds(&old.timeout), &seconds(&new.timeout), |seconds| seconds);
    scalar(found, "process.allow_fork", &before.process.allow_fork, &after.process.allow_fork, |on| on);
    scalar(found, "process.allow_exec", &before.process.allow_exec, &after.process.allow_exec, |on| on);
    let (old, new) = (&before.syscalls, &after.syscalls);
    scalar(found, "syscalls.mode", &old.mode, &new.mode, |mode| mode == SyscallMode::DenyList);
    scalar(found, "syscalls.max_violations", &old.max_violations, &new.max_violations, |count| count);
    scalar(found, "env.mode", &before.env.mode, &after.env.mode, |mode| mode);
}

fn limits(before: &Policy, after: &Policy, found: &mut Vec<Difference>) {
    most("process.max", before.process.max.as_ref(), after.process.max.as_ref(), ToString::to_string, found);
    for old in before.limits.each() {
        let new = after.limits.same(&old.value);
        most(&format!("limits.{}", old.value.key()), Some(&old), new.as_ref(), Limit::amount, found);
    }
    for new in after.limits.each().filter(|new| before.limits.same(&new.value).is_none()) {
        most(&format!("limits.{}", new.value.key()), None, Some(&new), Limit::amount, found);
    }
}

fn most<T: Within + PartialEq>(
    what: &str,
    before: Option<&Ruled<T>>,
    after: Option<&Ruled<T>>,
    written: impl Fn(&T) -> String,
    found: &mut Vec<Difference>,
) {
    let direction = match (before, after) {
        (Some(old), Some(new)) if old.value == new.value => return,
        (None, None) => return,
        (Some(old), Some(new)) if new.value.is_within(&old.value) => Direction::Narrower,
        (Some(_), _) => Direction::Wider,
        (None, Some(_)) => Direction::Narrower,
    };
    let amount = |limit: Option<&Ruled<T>>| limit.map_or_else(|| "no limit".to_owned(), |limit| written(&limit.value));
    found.push(Difference {
        direction,
        what: what.to_owned(),
        before: amount(before),
        after: amount(after),
        origin: after.or(before).map(|limit| limit.origin.clone()),
    });
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
    let (old, new) = (&before.process.executables, &after.process.executables);
    // An empty list means all programs.
    match (old.first(), new.first()) {
        (None, Some(first)) => every_program(("all", "the listed ones"), Narrower, first, found),
        (Some(first), None) => every_program(("the listed ones", "all"), Wider, first, found),
        _ => list("process.executables", old, new, (Wider, Narrower), found),
    }
}

/// Lists of the network, and its limits.
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
    let (old, new) = (&before.network, &after.network);
    scalar(found, "network.max_connections", &old.max_connections, &new.max_connections, |count| count);
    scalar(found, "network.queries_per_second", &old.queries_per_second, &new.queries_per_second, |count| count);
    let seconds = |time: &Ruled<std::time::Duration>| time.map(|time| time.as_secs());
    scalar(found, "network.idle_timeout", &seconds(&old.idle_timeout), &seconds(&new.idle_timeout), |time| time);
    scalar(found, "network.header_timeout", &seconds(&old.header_timeout), &seconds(&new.header_timeout), |time| time);
    scalar(found, "network.ssh_agent", &old.ssh_agent, &new.ssh_agent, |agent| agent);
    most("network.bytes", old.bytes.as_ref(), new.bytes.as_ref(), |bytes| written_size(*bytes), found);
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
