//! Which rule decides.

use std::borrow::Cow;
use std::path::Path;

use cofferdam_policy::{
    Access, ExpandedRule, FileRule, Hold, Layer, Origin, PathExpr, RuleIndex, Stand, folded, hold_of, index_of,
};

fn rule(path: &str, access: Access, layer: Layer) -> ExpandedRule {
    let expr = PathExpr::parse(path).unwrap();
    ExpandedRule {
        path: path.into(),
        rule: FileRule {
            path: expr,
            access,
            stand: Stand::Refuse,
            hold: Hold::Nothing,
            only_missing: false,
            optional: true,
            is_final: false,
            reason: Cow::Borrowed(""),
            origin: Origin { layer, source: Cow::Borrowed("test"), line: None },
        },
        lifts: false,
    }
}

fn access(rules: &[ExpandedRule], path: &str) -> Option<Access> {
    index_of(rules.to_vec()).deciding(path.as_ref()).map(|rule| rule.rule.access)
}

#[test]
fn the_longest_path_decides_by_component() {
    let rules = [rule("/ws", Access::Write, Layer::User), rule("/ws/a", Access::Read, Layer::BuiltIn)];
    assert_eq!(access(&rules, "/ws/x"), Some(Access::Write));
    assert_eq!(access(&rules, "/ws/a/b"), Some(Access::Read));
    assert_eq!(access(&rules, "/ws-evil"), None);
    assert_eq!(access(&rules, "/"), None);
}

#[test]
fn on_one_path_the_later_layer_wins_then_the_stricter() {
    let later = [rule("/a", Access::Deny, Layer::BuiltIn), rule("/a", Access::Read, Layer::Flag)];
    assert_eq!(access(&later, "/a"), Some(Access::Read));
    let stricter = [rule("/a", Access::Write, Layer::User), rule("/a", Access::Deny, Layer::User)];
    assert_eq!(access(&stricter, "/a"), Some(Access::Deny));
}

#[test]
fn a_final_deny_beats_everything_below_it() {
    let mut last_word = rule("/a", Access::Deny, Layer::Requirements);
    last_word.rule.is_final = true;
    let rules = [last_word, rule("/a/b/c", Access::Write, Layer::Flag)];
    assert_eq!(access(&rules, "/a/b/c/d"), Some(Access::Deny));
    assert_eq!(access(&rules, "/b"), None);
}

#[test]
fn protect_never_uncovers_what_deny_hides() {
    let rules = [rule("/s", Access::Deny, Layer::BuiltIn), rule("/s/key", Access::Protect, Layer::Project)];
    assert_eq!(access(&rules, "/s/key"), Some(Access::Deny));
    let rules = [rule("/s", Access::Deny, Layer::BuiltIn), rule("/s", Access::Protect, Layer::Project)];
    assert_eq!(access(&rules, "/s"), Some(Access::Deny));
    let lifted = [rule("/s", Access::Deny, Layer::BuiltIn), rule("/s/pub", Access::Read, Layer::User)];
    assert_eq!(access(&lifted, "/s/pub"), Some(Access::Read));
}

#[test]
fn case_and_invisible_characters_do_not_change_a_refusal() {
    let rules = [rule("/p/.git/config", Access::Protect, Layer::BuiltIn), rule("/p/Data", Access::Write, Layer::User)];
    for variant in
        ["/p/.git/config", "/p/.GIT/Config", "/p/.g\u{200d}it/config", "/p/.git\u{feff}/con\u{ad}fig", "/P/.Git/config"]
    {
        assert_eq!(access(&rules, variant), Some(Access::Protect), "{variant:?}");
    }
    assert_eq!(access(&rules, "/p/data/x"), None, "a grant is about the very name");
    assert_eq!(folded(".\u{17f}SH"), ".ssh");
    assert_eq!(folded("\u{212a}EY"), "key");
}

#[test]
fn a_glob_matches_names_in_its_directory_only() {
    let rules = [rule("/p/.env*", Access::Deny, Layer::BuiltIn)];
    for (path, expected) in [("/p/.env", true), ("/p/.ENV.local", true), ("/p/.env/x", true), ("/p/a/.env", false)] {
        assert_eq!(access(&rules, path).is_some(), expected, "{path}");
    }
}

#[test]
fn a_deny_does_not_lift_the_hold_of_a_missing_name() {
    let mut held = rule("/p/.claude", Access::Protect, Layer::BuiltIn);
    held.rule.hold = Hold::Directory;
    let denied = [held.clone(), rule("/p/.claude", Access::Deny, Layer::Project)];
    assert_eq!(hold_of(&denied, &index_of(denied.to_vec()), "/p/.claude".as_ref()), &Hold::Directory);
    let lifted = [held, rule("/p/.claude", Access::Write, Layer::User)];
    assert_eq!(hold_of(&lifted, &index_of(lifted.to_vec()), "/p/.claude".as_ref()), &Hold::Nothing);
    assert_eq!(hold_of(&lifted, &index_of(lifted.to_vec()), "/p/.claude/x".as_ref()), &Hold::Nothing);
}

#[test]
fn a_pattern_is_as_strong_as_a_name() {
    let glob = rule("/p/*.key", Access::Deny, Layer::Project);
    let name = rule("/p/one.key", Access::Read, Layer::User);
    assert_eq!(access(&[glob.clone(), name.clone()], "/p/one.key"), Some(Access::Deny), "the later layer");
    let later = rule("/p/one.key", Access::Read, Layer::Flag);
    assert_eq!(access(&[glob.clone(), later], "/p/one.key"), Some(Access::Read), "the later layer");
    let mut equal = name;
    equal.rule.origin.layer = Layer::Project;
    assert_eq!(access(&[glob, equal], "/p/one.key"), Some(Access::Deny), "the stricter");
}

#[test]
fn composed_and_decomposed_letters_are_one_name_to_a_refusal() {
    let rules = [rule("/p/Schl\u{fc}ssel", Access::Deny, Layer::User), rule("/p/M\u{fc}ll", Access::Read, Layer::User)];
    assert_eq!(access(&rules, "/p/schlu\u{308}ssel/x"), Some(Access::Deny));
    assert_eq!(access(&rules, "/p/SCHL\u{dc}SSEL"), Some(Access::Deny));
    assert_eq!(access(&rules, "/p/Mu\u{308}ll"), None);
}

#[test]
fn a_rule_about_the_root_is_about_everything() {
    let rules = [rule("/", Access::Read, Layer::User), rule("/a", Access::Deny, Layer::User)];
    assert_eq!(access(&rules, "/"), Some(Access::Read));
    assert_eq!(access(&rules, "/b/c"), Some(Access::Read));
    assert_eq!(access(&rules, "//a/./c/"), Some(Access::Deny));
}

#[test]
fn late_rules_are_made_at_the_first_look_into_their_directory() {
    let make =
        || vec![rule("/home/u/.ssh", Access::Deny, Layer::BuiltIn), rule("/home/u", Access::Protect, Layer::User)];
    let first = vec![rule("/boot", Access::Deny, Layer::BuiltIn), rule("/home/u/.ssh", Access::Read, Layer::Flag)];
    let index = RuleIndex::with_late(first, vec!["/home/u".into()], Box::new(make));
    let access = |path: &str| index.deciding(path.as_ref()).map(|rule| rule.rule.access);
    for path in ["/boot/x", "/usr/bin", "/home", "/home/v/.ssh", "/home/u2"] {
        access(path);
        assert!(index.has_late(), "{path}");
    }
    assert_eq!(access("/HOME/U"), Some(Access::Protect));
    assert!(!index.has_late());
    assert_eq!(access("/home/u/.ssh/id"), Some(Access::Read), "the later layer");
    assert_eq!(access("/home/U/.SSH/id"), Some(Access::Deny), "what gives is about the very name");
    let below: Vec<String> =
        index.refusing_below("/HOME".as_ref()).iter().map(|(_, path)| path.display().to_string()).collect();
    assert_eq!(below, ["/HOME/u/.ssh", "/HOME/u"]);
    assert!(index.refusing_below("/usr".as_ref()).is_empty());
}

#[test]
fn names_that_a_glob_leaves_out_are_not_its_own() {
    let mut hides = rule("/p/.env*", Access::Deny, Layer::BuiltIn);
    let except = ["*.example".to_owned(), ".env.test".to_owned()];
    hides.rule.path = hides.rule.path.leaving_out(&except).expect("it is a glob");
    for (path, expected) in [
        ("/p/.env", true),
        ("/p/.env.example", false),
        ("/p/.env.a.example", false),
        ("/p/.env.test", false),
        ("/p/.env.test.local", true),
        ("/p/.env.example.local", true),
        ("/p/.ENV.example", false),
        ("/p/.ENV.EXAMPLE", true),
        ("/p/.env.test/x", false),
    ] {
        assert_eq!(index_of(vec![hides.clone()]).deciding(Path::new(path)).is_some(), expected, "{path}");
    }
    assert!(PathExpr::parse("./.env").unwrap().leaving_out(&except).is_none(), "no glob");
    assert!(PathExpr::parse("./.env*").unwrap().leaving_out(&["a b".to_owned()]).is_none(), "no name");
}

#[test]
fn a_transaction_lifts_what_is_shipped_and_no_word_of_a_layer() {
    let rules = [
        ExpandedRule { lifts: true, ..rule("/p", Access::Overlay, Layer::User) },
        rule("/p/.vscode", Access::Protect, Layer::BuiltIn),
        rule("/p/.idea", Access::Protect, Layer::User),
        rule("/p/.env", Access::Deny, Layer::BuiltIn),
        rule("/p/.env/x", Access::Protect, Layer::BuiltIn),
        rule("/p/out", Access::Write, Layer::User),
        rule("/p/out/.vscode", Access::Protect, Layer::BuiltIn),
    ];
    let expected = [
        ("/p/.vscode/tasks.json", Access::Overlay),
        ("/p/.VSCODE", Access::Overlay),
        ("/p/.idea", Access::Protect),
        ("/p/.env/x", Access::Deny),
        ("/p/out/.vscode", Access::Protect),
    ];
    for (path, expected) in expected {
        assert_eq!(access(&rules, path), Some(expected), "{path}");
    }
    let mut plain = rules.to_vec();
    plain[0].lifts = false;
    assert_eq!(access(&plain, "/p/.vscode/tasks.json"), Some(Access::Protect), "an overlay that is no transaction");
}

fn deep(text: &str, layer: Layer) -> ExpandedRule {
    let path = text.replace("./**", "/p");
    let mut rule = rule(&path, Access::Deny, layer);
    rule.rule.path = PathExpr::parse(text).unwrap();
    rule
}

#[test]
fn a_rule_about_any_directory_counts_as_the_name_that_it_stands_for() {
    let rules = [
        rule("/p", Access::Write, Layer::BuiltIn),
        deep("./**/.env*", Layer::BuiltIn),
        deep("./**/config/master.key", Layer::BuiltIn),
        rule("/p/a/.env", Access::Read, Layer::User),
        rule("/p/shown", Access::Write, Layer::User),
    ];
    for (path, expected) in [
        ("/p/.env", Access::Deny),
        ("/p/a/b/c/d/e/f/g/h/i/.env.local", Access::Deny),
        ("/p/shown/.env", Access::Deny),
        ("/p/a/.ENV", Access::Deny),
        ("/P/a/b/.env", Access::Deny),
        ("/p/x/.env.d/y", Access::Deny),
        ("/p/a/.env", Access::Read),
        ("/p/config/master.key", Access::Deny),
        ("/p/a/Config/master.KEY", Access::Deny),
        ("/p/master.key", Access::Write),
        ("/p/config/a/master.key", Access::Write),
        ("/p/node_modules/x/.env", Access::Write),
        ("/p/a/target/config/master.key", Access::Write),
        ("/p/NODE_MODULES/.env", Access::Deny),
        ("/p/node_modules", Access::Write),
    ] {
        assert_eq!(access(&rules, path), Some(expected), "{path}");
    }
    for path in ["/.env", "/q/.env", "/pp/.env", "/config/master.key"] {
        assert_eq!(access(&rules, path), None, "{path}");
    }
    let index = index_of(rules[1..3].to_vec());
    let below = |tree: &str| -> Vec<String> {
        index.refusing_below(tree.as_ref()).iter().map(|(_, path)| path.display().to_string()).collect()
    };
    assert_eq!(below("/"), ["/p/.env*", "/p/config/master.key"]);
    assert_eq!(below("/p"), ["/p/.env*", "/p/config/master.key"]);
    assert_eq!(below("/p/a"), ["/p/a/.env*", "/p/a/config/master.key"]);
    assert!(below("/q").is_empty());
}
