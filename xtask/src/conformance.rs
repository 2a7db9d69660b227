//! `cargo xtask conformance`: every requirement has its tests or an honest reason why not. Owns the comparison of
//! docs/conformance.toml with docs/requirements.md, the sources and what really ran; runs no tests itself.

mod threats;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;

use crate::problems::Problems;
use crate::rust_source::{code_only, functions};
use crate::workspace::{Workspace, read};

const REQUIREMENTS: &str = "docs/requirements.md";
const CONFORMANCE: &str = "docs/conformance.toml";
/// Issues that a demand may wait for: not one that has landed.
const OPEN: &[&str] = &["first hour", "tools and closed roots", "one node", "containers", "packaging", "fleet"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also fail when a named test passed in none of these runs: lines of `package::test status`, see `cargo xtask ran`
    #[arg(long, value_name = "FILE")]
    ran: Vec<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Conformance {
    requirement: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    #[serde(default)]
    tests: Vec<String>,
    deferred: Option<String>,
}

pub(crate) fn check(workspace: &Workspace, args: &Args) -> Result<String, Problems> {
    let ids = requirement_ids(&workspace.read(REQUIREMENTS)?);
    let conformance: Conformance = toml::from_str(&workspace.read(CONFORMANCE)?)
        .map_err(|e| Problems::one(format!("cannot parse {CONFORMANCE}: {e}")))?;
    let entries = &conformance.requirement;
    let mut problems = Problems::default();

    check_ids(&ids, entries, &mut problems);
    for entry in entries {
        check_entry(entry, &mut problems);
    }
    let defined = defined(workspace)?;
    check_tests_exist(&defined, entries, &mut problems);
    threats::check(&workspace.read(threats::THREAT_MODEL)?, &defined, &mut problems);
    if !args.ran.is_empty() {
        let mut ran = String::new();
        for file in &args.ran {
            ran.push_str(&read(file)?);
        }
        check_tests_ran(&ran, entries, &mut problems);
    }
    problems.or(summary(entries))
}

/// The ids are the first cells of the tables that start with `R`.
fn requirement_ids(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("|R")?.split('|').next())
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        .map(|rest| format!("R{rest}"))
        .collect()
}

fn check_ids(ids: &[String], entries: &[Entry], problems: &mut Problems) {
    if ids.is_empty() {
        problems.add(format!("{REQUIREMENTS} holds no ids"));
    }
    let mut seen = BTreeSet::new();
    for id in ids {
        if !seen.insert(id) {
            problems.add(format!("{REQUIREMENTS} has {id} twice"));
        }
        match entries.iter().filter(|e| e.id == *id).count() {
            1 => {}
            0 => problems.add(format!("{id} has no entry in {CONFORMANCE}")),
            _ => problems.add(format!("{id} has more than one entry in {CONFORMANCE}")),
        }
    }
    for entry in entries.iter().filter(|e| !seen.contains(&e.id)) {
        problems.add(format!("{CONFORMANCE} has {}, which {REQUIREMENTS} does not", entry.id));
    }
}

fn check_entry(entry: &Entry, problems: &mut Problems) {
    let id = &entry.id;
    if let Some(deferred) = &entry.deferred
        && deferred.strip_prefix("issue: ").is_none_or(|rest| rest.trim().is_empty())
    {
        problems.add(format!("{id}: `deferred` must start with `issue: ` and name it, not `{deferred}`"));
    }
    for name in entry.deferred.iter().flat_map(|deferred| deferred.split("ssue: ").skip(1)) {
        if !OPEN.iter().any(|open| name.strip_prefix(open).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric)))
        {
            problems.add(format!("{id} waits for an issue that is not open: `{name}`"));
        }
    }
    if entry.tests.is_empty() && entry.deferred.is_none() {
        problems.add(format!("{id} names no test and is not deferred"));
    }
}

/// By package, what the sources define.
type Functions = BTreeMap<String, BTreeSet<String>>;

fn defined(workspace: &Workspace) -> Result<Functions, Problems> {
    let of_package = |package| -> Result<BTreeSet<String>, Problems> {
        let sources = workspace.sources(package)?;
        Ok(sources
            .iter()
            .flat_map(|(_, source)| functions(&code_only(source)).map(str::to_owned).collect::<Vec<_>>())
            .collect())
    };
    workspace.packages.iter().map(|package| Ok((package.name.clone(), of_package(package)?))).collect()
}

fn check_tests_exist(defined: &Functions, entries: &[Entry], problems: &mut Problems) {
    for (id, test) in named_tests(entries) {
        let Some((package, function)) = package_and_function(test) else {
            problems.add(format!("{id}: `{test}` is not of the form package::test"));
            continue;
        };
        match defined.get(package) {
            None => problems.add(format!("{id}: `{test}`: there is no package `{package}`")),
            Some(functions) if !functions.contains(function) => {
                problems.add(format!("{id}: `{test}`: `{package}` has no function `{function}`"));
            }
            Some(_) => {}
        }
    }
}

fn check_tests_ran(ran: &str, entries: &[Entry], problems: &mut Problems) {
    let passed: BTreeSet<_> = ran
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(_, status)| *status == "pass")
        .filter_map(|(name, _)| package_and_function(name))
        .collect();
    for (id, test) in named_tests(entries) {
        if package_and_function(test).is_some_and(|key| !passed.contains(&key)) {
            problems.add(format!("{id}: `{test}` passed in no run: it failed, was skipped everywhere, or did not run"));
        }
    }
}

fn named_tests(entries: &[Entry]) -> impl Iterator<Item = (&str, &str)> {
    entries.iter().flat_map(|e| e.tests.iter().map(|test| (e.id.as_str(), test.as_str())))
}

/// Package and function of `package::module::function`; the modules between do not count.
fn package_and_function(test: &str) -> Option<(&str, &str)> {
    let (package, _) = test.split_once("::")?;
    let (_, function) = test.rsplit_once("::")?;
    (!package.is_empty() && !function.is_empty()).then_some((package, function))
}

fn summary(entries: &[Entry]) -> String {
    let count = |counts: fn(&Entry) -> bool| entries.iter().filter(|e| counts(e)).count();
    format!(
        "conformance: {} requirements: {} tested, {} tested in part, {} deferred",
        entries.len(),
        count(|e| !e.tests.is_empty() && e.deferred.is_none()),
        count(|e| !e.tests.is_empty() && e.deferred.is_some()),
        count(|e| e.tests.is_empty()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> Entry {
        toml::from_str(text).expect("fixture")
    }

    fn problems_of(text: &str) -> usize {
        let mut problems = Problems::default();
        check_entry(&entry(text), &mut problems);
        problems.lines().len()
    }

    #[test]
    fn ids_are_read_from_table_rows_only() {
        let text = "|id|demand|\n|-|-|\n|R0.1|three levels|\n|R1.21|`a\\|b`|\ntext R9.9\n|RX|no|\n|INV-S1|no|\n";
        assert_eq!(requirement_ids(text), ["R0.1", "R1.21"]);
    }

    #[test]
    fn missing_double_and_unknown_entries_are_found() {
        let ids = ["R0.1", "R0.2"].map(str::to_owned);
        let entries = ["id = 'R0.2'", "id = 'R0.2'", "id = 'R7.7'"].map(entry);
        let mut problems = Problems::default();
        check_ids(&ids, &entries, &mut problems);
        assert_eq!(problems.lines().len(), 3);
    }

    #[test]
    fn an_entry_needs_tests_or_a_named_issue() {
        assert_eq!(problems_of("id = 'R0.1'\ntests = ['p::t']"), 0);
        assert_eq!(problems_of("id = 'R0.1'\ndeferred = 'issue: fleet'"), 0);
        assert_eq!(problems_of("id = 'R0.1'\ndeferred = 'issue: fleet; x. Issue: one node'"), 0);
        assert_eq!(problems_of("id = 'R0.1'\ndeferred = 'issue: gate'"), 1, "that one has landed");
        assert_eq!(problems_of("id = 'R0.1'"), 1);
        assert_eq!(problems_of("id = 'R0.1'\ndeferred = 'later'"), 1);
        assert_eq!(problems_of("id = 'R0.1'\ndeferred = 'issue: '"), 2);
    }

    #[test]
    fn a_test_skipped_everywhere_is_found_and_one_pass_is_enough() {
        let entries = [entry("id = 'R0.1'\ntests = ['p::a', 'p::b', 'p::c']")];
        let mut problems = Problems::default();
        check_tests_ran("p::m::a skip\np::m::a pass\np::b skip\nq::c pass\n", &entries, &mut problems);
        let found = problems.lines().join("\n");
        assert_eq!(problems.lines().len(), 2, "{found}");
        assert!(found.contains("`p::b`") && found.contains("`p::c`"), "{found}");
    }
}
