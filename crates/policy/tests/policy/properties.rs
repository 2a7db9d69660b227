//! Properties over random policies.

use std::path::Component;

use cofferdam_policy::{
    Access, Ceilings, ExpandedRule, Hold, Inputs, Layer, LayerInput, PathExpr, Policy, Ruled, deciding_rule, hold_of,
    parse, resolve,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::{approved, layer, places, resolved};

const PATHS: &[&str] = &[
    "/opt",
    "/",
    "~",
    "~/.ssh",
    "~/.ssh/id",
    "./",
    "./src",
    "./.env",
    "./.claude",
    "{git}",
    "{git}/hooks",
    "{git}/hooks/x",
    "~/.npmrc",
    "/etc/shadow",
    "/home/u/p/.claude",
    "./.CLAUDE",
    "${CARGO_HOME:-~/.cargo}/registry",
    "~/.cargo",
];

const TOP: &[&str] = &[
    "preset = \"cargo\"",
    "isolation = \"none\"",
    "isolation = \"process\"",
    "isolation = \"full\"",
    "debug = true",
    "debug = false",
    "project = \"read\"",
    "project = \"overlay\"",
    "project = \"write\"",
];

const TABLES: &[&str] = &[
    "process.max = 5",
    "process.max = 500",
    "process.allow_fork = true",
    "process.allow_fork = false",
    "process.allow_exec = false",
    "process.executables = [\"sh\"]",
    "process.executables = [\"git\", \"cargo\"]",
    "limits.timeout = 10",
    "limits.timeout = 1000",
    "limits.cpu = 7",
    "limits.open_files = 20",
    "limits.file_size = \"1G\"",
    "limits.tmp_size = \"1M\"",
    "syscalls.mode = \"deny-list\"",
    "syscalls.mode = \"allow-list\"",
    "syscalls.allow = [\"personality\"]",
    "syscalls.deny = [\"socket\"]",
    "syscalls.max_violations = 3",
    "syscalls.max_violations = 300",
    "env.mode = \"inherit\"",
    "env.mode = \"explicit\"",
    "env.pass = [\"GITHUB_TOKEN\", \"A*\"]",
    "env.block = [\"HOME\"]",
    "env.set = { A = \"1\" }",
];

/// Policy files that parse: one line per key, paths in random lists.
fn policy_text() -> impl Strategy<Value = String> {
    let access = select(vec!["read", "write", "overlay", "deny", "protect"]);
    let files = vec((access, select(PATHS)), 0..6);
    (subsequence(TOP, 0..=TOP.len()), subsequence(TABLES, 0..=TABLES.len()), files).prop_map(|(top, tables, files)| {
        let mut lines: Vec<String> = Vec::new();
        for line in top.iter().chain(&tables) {
            let key = line.split(" = ").next().unwrap();
            if !lines.iter().any(|other| other.starts_with(&format!("{key} = "))) {
                lines.push((*line).to_owned());
            }
        }
        for access in ["read", "write", "overlay", "deny", "protect"] {
            let paths: Vec<_> = files.iter().filter(|(one, _)| *one == access).map(|(_, path)| path).collect();
            lines.push(format!("files.{access} = {paths:?}"));
        }
        lines.join("\n")
    })
}

fn expanded(policy: &Policy) -> Vec<ExpandedRule> {
    let places = places();
    let each = |rule: &cofferdam_policy::FileRule| {
        rule.path.expand(&places).into_iter().map(|path| ExpandedRule { path, rule: rule.clone() }).collect::<Vec<_>>()
    };
    policy.files.iter().flat_map(each).collect()
}

fn no_more<T: PartialOrd>(with: Option<&Ruled<T>>, without: Option<&Ruled<T>>) -> bool {
    without.is_none_or(|without| with.is_some_and(|with| with.value <= without.value))
}

fn assert_no_wider(with: &Policy, without: &Policy) {
    assert!(with.isolation.value >= without.isolation.value);
    assert!(with.project.value <= without.project.value);
    assert!(with.network.value <= without.network.value);
    assert!(with.debug.value <= without.debug.value);
    assert!(with.process.allow_fork.value <= without.process.allow_fork.value);
    assert!(with.process.allow_exec.value <= without.process.allow_exec.value);
    assert!(with.env.mode.value <= without.env.mode.value);
    assert!(with.syscalls.max_violations.value <= without.syscalls.max_violations.value);
    assert!(no_more(with.process.max.as_ref(), without.process.max.as_ref()));
    assert!(no_more(with.limits.timeout.as_ref(), without.limits.timeout.as_ref()));
    assert!(no_more(with.limits.cpu_seconds.as_ref(), without.limits.cpu_seconds.as_ref()));
    assert!(no_more(with.limits.open_files.as_ref(), without.limits.open_files.as_ref()));
    assert!(no_more(with.limits.file_size.as_ref(), without.limits.file_size.as_ref()));
    assert!(no_more(with.limits.tmp_size.as_ref(), without.limits.tmp_size.as_ref()));
    assert_eq!(with.syscalls.allow, without.syscalls.allow);
    assert_eq!(with.env.pass, without.env.pass);
    assert_eq!(with.env.set, without.env.set);
    assert_eq!(with.presets, without.presets);
    assert_eq!(with.none_approved, without.none_approved);
    let programs = &without.process.executables;
    assert!(programs.is_empty() || !with.process.executables.is_empty());
    assert!(programs.is_empty() || with.process.executables.iter().all(|one| programs.contains(one)));

    let grants =
        |policy: &Policy| policy.files.iter().filter(|rule| rule.access > Access::Protect).cloned().collect::<Vec<_>>();
    assert_eq!(grants(with), grants(without));
    let (rules, fewer) = (expanded(with), expanded(without));
    for path in PATHS.iter().flat_map(|path| PathExpr::parse(path).unwrap().expand(&places())) {
        let access = |rules| deciding_rule(rules, &path).map_or(Access::Read, |rule| rule.rule.access);
        assert!(access(&rules) <= access(&fewer), "{}", path.display());
        assert!(
            hold_of(&fewer, &path) == &Hold::Nothing || hold_of(&rules, &path) != &Hold::Nothing,
            "{}",
            path.display()
        );
    }
}

proptest! {
    #[test]
    fn the_parser_never_panics(text in any::<String>(), near in "[a-z_\\[\\]={}\",.0-9 \n]{0,80}") {
        for text in [text, near] {
            parse(Layer::User, "x", &text).map_or_else(|error| { error.hint(); }, |_| ());
            Ceilings::parse("x", &text).map_or_else(|error| { error.hint(); }, |_| ());
        }
    }

    #[test]
    fn a_damaged_policy_never_panics(text in policy_text(), at in any::<prop::sample::Index>(), junk in any::<char>()) {
        let mut characters: Vec<char> = text.chars().collect();
        let at = at.index(characters.len());
        characters[at] = junk;
        let text: String = characters.into_iter().collect();
        parse(Layer::User, "x", &text).map_or_else(|error| { error.hint(); }, |_| ());
    }

    #[test]
    fn a_path_never_climbs(text in any::<String>(), near in "[~./*${}:A-C-]{0,12}", value in "[./a]{0,6}") {
        let mut places = places();
        places.variables = ["A", "B", "C"].map(|name| (name.to_owned(), value.clone().into())).to_vec();
        for text in [text, near] {
            let Ok(path) = PathExpr::parse(&text) else { continue };
            for path in path.expand(&places) {
                prop_assert!(path.is_absolute());
                prop_assert!(!path.components().any(|component| component == Component::ParentDir));
            }
        }
    }

    #[test]
    fn an_unapproved_layer_never_widens(user in policy_text(), project in policy_text(), local in policy_text(), kept in any::<bool>()) {
        let mut others = vec![layer(Layer::User, &user), layer(Layer::Org, "allow_isolation_none = true")];
        if kept {
            others.push(approved(Layer::ProjectLocal, &local));
        }
        let without = resolved(&others).unwrap();
        others.push(layer(Layer::Project, &project));
        let with = resolved(&others).unwrap();
        assert_no_wider(&with, &without);
    }

    #[test]
    fn ceilings_hold(user in policy_text()) {
        let ceilings = Ceilings::parse("r", "isolation = \"process\"\ndebug = false\n[process]\nmax = 100\n[limits]\n\
            timeout = 100\n[files]\nwrite_within = [\"./\"]\n[syscalls]\nmode = \"allow-list\"").unwrap();
        let layers: [LayerInput; 1] = [layer(Layer::User, &user)];
        let places = places();
        let inputs = Inputs { layers: &layers, requirements: Some(&ceilings), places: Some(&places), ..Inputs::default() };
        if let Ok(policy) = resolve(&inputs) {
            prop_assert!(!policy.debug.value);
            prop_assert!(policy.isolation.value >= cofferdam_policy::Isolation::Process);
            prop_assert!(policy.process.max.unwrap().value <= 100);
            prop_assert!(policy.limits.timeout.unwrap().value.as_secs() <= 100);
            for rule in policy.files.iter().filter(|rule| rule.access > Access::Read) {
                prop_assert!(rule.path.expand(&places).iter().all(|path| path.starts_with("/home/u/p")), "{}", rule.path);
            }
        }
    }
}
