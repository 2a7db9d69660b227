//! The effective policy as one file, and drafts of files.

use cofferdam_policy::{
    Access, Ceilings, Draft, ExpandedRule, Inputs, Layer, Mode, PathExpr, Policy, RuleIndex, Scalar, Setting, export,
    hold_of, index_of, parse, resolve, rules_in_force,
};
use proptest::prelude::*;

use crate::properties::{PATHS, policy_text};
use crate::{approved, layer, places, resolved};

/// A grant on top of a refusal leaves the refusal to names that differ in case: no single layer can say that.
fn one_case(text: &str) -> String {
    text.replace(".CLAUDE", ".other")
}

fn alone(text: &str) -> Policy {
    let layers = [layer(Layer::User, text), layer(Layer::Org, "allow_isolation_none = true")];
    resolved(&layers).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

type Names = fn(&Policy) -> Vec<String>;

/// That both policies mean the same; where their rules come from may differ.
fn assert_same(exported: &Policy, policy: &Policy, text: &str) {
    assert_eq!(exported.isolation.value, policy.isolation.value);
    assert_eq!(exported.mode.value, policy.mode.value);
    assert_eq!(exported.debug.value, policy.debug.value);
    assert_eq!(exported.unknown.verdict.value, policy.unknown.verdict.value);
    assert_eq!(exported.process.allow_fork.value, policy.process.allow_fork.value);
    assert_eq!(exported.process.allow_exec.value, policy.process.allow_exec.value);
    assert_eq!(exported.process.max.as_ref().map(|m| m.value), policy.process.max.as_ref().map(|m| m.value));
    assert_eq!(exported.syscalls.mode.value, policy.syscalls.mode.value);
    assert_eq!(exported.syscalls.max_violations.value, policy.syscalls.max_violations.value);
    assert_eq!(exported.env.mode.value, policy.env.mode.value);
    let limits = |policy: &Policy| policy.scalars_of("limits").map(|limit| limit.value).collect::<Vec<Scalar>>();
    assert_eq!(limits(exported), limits(policy), "{text}");
    let sorted = |mut list: Vec<String>| {
        list.sort();
        list.dedup();
        list
    };
    let lists: [Names; 6] = [
        |policy| policy.process.executables.iter().map(|name| name.value.clone()).collect(),
        |policy| policy.syscalls.allow.iter().map(|name| name.value.clone()).collect(),
        |policy| policy.syscalls.deny.iter().map(|name| name.value.clone()).collect(),
        |policy| policy.env.pass.iter().map(|name| name.value.clone()).collect(),
        |policy| policy.env.block.iter().map(|name| name.value.clone().into_owned()).collect(),
        |policy| policy.env.set.iter().map(|set| format!("{}={}", set.value.0, set.value.1)).collect(),
    ];
    for list in lists {
        assert_eq!(sorted(list(exported)), sorted(list(policy)), "{text}");
    }
    assert_eq!(exported.transaction.value, policy.transaction.value);
    let (mut new, old) = (rules_in_force(exported, &places()), rules_in_force(policy, &places()));
    // That a project's file asked is not in the exported file; a remark says so.
    if policy.transaction.value.is_on() && !policy.transaction_lifts() {
        assert!(text.contains("it lifts no protection"), "{text}");
        for rule in &mut new {
            rule.lifts = false;
        }
    }
    let (new_index, old_index) = (index_of(new.clone()), index_of(old.clone()));
    let named = PATHS.iter().flat_map(|path| PathExpr::parse(path).unwrap().expand(&places()));
    // The shipped lists are the same for every user.
    let said = |rule: &&ExpandedRule| {
        !["secrets.toml", "protect.toml", "known.toml"].iter().any(|list| rule.rule.origin.source.ends_with(list))
    };
    for path in
        named.chain(old.iter().filter(said).map(|rule| rule.path.clone())).filter(|path| !path.ends_with(".CLAUDE"))
    {
        let access = |rules: &RuleIndex<ExpandedRule>| rules.deciding(&path).map(|rule| rule.rule.access);
        let unknown = if policy.mode.value == Mode::Static { Access::Read } else { Access::Deny };
        // Protected is read-only, and held where missing: that is compared below.
        let fate = |access: Option<Access>| {
            access.map_or(unknown, |access| if access == Access::Protect { Access::Read } else { access })
        };
        assert_eq!(fate(access(&new_index)), fate(access(&old_index)), "{}\n{text}", path.display());
        assert_eq!(hold_of(&new, &new_index, &path), hold_of(&old, &old_index, &path), "{}\n{text}", path.display());
    }
}

proptest! {
    // Each case compares some hundred paths.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_exported_policy_means_the_same(user in policy_text(), project in policy_text(), local in policy_text(), kept in any::<bool>()) {
        let (user, project, local) = (one_case(&user), one_case(&project), one_case(&local));
        let project = if kept { approved(Layer::Project, &project) } else { layer(Layer::Project, &project) };
        let layers = [layer(Layer::Org, "allow_isolation_none = true"), layer(Layer::User, &user), project,
            approved(Layer::ProjectLocal, &local)];
        let policy = resolved(&layers).unwrap();
        let text = export(&policy, &places()).to_toml();
        assert_same(&alone(&text), &policy, &text);
    }

    #[test]
    fn an_exported_policy_holds_the_ceilings_it_was_under(user in policy_text()) {
        let ceilings = Ceilings::parse("r", "debug = false\nmode = \"dynamic\"\nunknown = \"deny\"\n[process]\nmax = 100\n\
            [files]\nwrite_within = [\"./\", \"/opt\"]\ndeny = [\"~/.cache\", \"~/.npm\"]").unwrap();
        let layers = [layer(Layer::User, &one_case(&user)), layer(Layer::Org, "allow_isolation_none = true")];
        let places = places();
        let inputs = Inputs { layers: &layers, requirements: Some(&ceilings), places: Some(&places), ..Inputs::default() };
        if let Ok(policy) = resolve(&inputs) {
            let text = export(&policy, &places).to_toml();
            assert_same(&alone(&text), &policy, &text);
        }
    }

    #[test]
    fn a_draft_reads_back_as_it_was(text in policy_text(), name in any::<String>(), value in any::<String>()) {
        let mut settings: Vec<Setting> = parse(Layer::User, "x", &text).unwrap().settings.into_iter().map(|s| s.value).collect();
        if !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0') {
            settings.push(Setting::EnvSet(name, value.clone()));
        }
        let draft = Draft { settings, title: vec![value.clone()], remarks: vec![value] };
        let read = parse(Layer::User, "x", &draft.to_toml()).map_err(|error| TestCaseError::fail(format!("{error}\n{}", draft.to_toml())))?;
        let lines = |draft: &Draft| {
            let text = draft.to_toml();
            let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
            lines.sort();
            lines
        };
        let again = Draft { settings: read.settings.into_iter().map(|s| s.value).collect(), ..draft.clone() };
        prop_assert_eq!(lines(&draft), lines(&again));
    }
}

#[test]
fn what_a_later_layer_overruled_is_not_exported() {
    let layers = [
        layer(Layer::User, "[files]\nread = [\"~/data\"]\ndeny = [\"~/x\"]"),
        approved(Layer::Project, "[files]\nwrite = [\"~/data\"]\nread = [\"/home/u/x\"]"),
    ];
    let text = export(&resolved(&layers).unwrap(), &places()).to_toml();
    assert_eq!(text, "[files]\nwrite = [\n  \"~/data\",\n]\nread = [\n  \"/home/u/x\",\n]\n");
}

#[test]
fn what_a_ceiling_left_out_stays_hidden_below_a_protected_name() {
    let ceilings = Ceilings::parse("r", "[files]\nwrite_within = [\"./\"]").unwrap();
    let registry = "${CARGO_HOME:-~/.cargo}/registry";
    let user = format!("[files]\ndeny = [\"~/.cargo\"]\nprotect = [\"{registry}\"]");
    let (layers, places) = ([layer(Layer::User, &user)], places());
    let inputs = Inputs { layers: &layers, requirements: Some(&ceilings), places: Some(&places), ..Inputs::default() };
    let text = export(&resolve(&inputs).unwrap(), &places).to_toml();
    let rules = rules_in_force(&alone(&text), &places);
    let rules = index_of(rules);
    let decides = rules.deciding("/home/u/.cargo/registry".as_ref()).unwrap();
    assert_eq!(decides.rule.access, Access::Deny, "{text}");
}

#[test]
fn a_path_that_a_file_cannot_say_becomes_a_remark() {
    let flags = crate::flags(&[("--rw", "/srv/a*b")]);
    let policy = resolve(&Inputs { flags: &flags, ..Inputs::default() }).unwrap();
    let draft = export(&policy, &places());
    assert!(draft.settings.is_empty(), "{draft:?}");
    assert!(draft.to_toml().contains("# no way to write this path in a file: files.write = \"/srv/a*b\""));
}

#[test]
fn paths_are_written_as_a_person_would() {
    for (path, written) in [
        ("/home/u/p/src/a", Some("./src/a")),
        ("/home/u/p", Some("./")),
        ("/home/u/x", Some("~/x")),
        ("/home/u2/x", Some("/home/u2/x")),
        ("/srv/data", Some("/srv/data")),
        ("/srv/a*", None),
        ("/home/u/{git}", Some("~/{git}")),
    ] {
        let found = PathExpr::for_path(path.as_ref(), &places());
        assert_eq!(found.as_ref().map(PathExpr::as_str), written, "{path}");
    }
    assert_eq!(rules_in_force(&Policy::default(), &places())[0].rule.access, Access::Read);
}
