//! Which rule decides.

use std::borrow::Cow;

use cofferdam_policy::{
    Access, ExpandedRule, FileRule, Hold, Layer, Origin, PathExpr, Stand, deciding_rule, folded, hold_of,
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
    }
}

fn access(rules: &[ExpandedRule], path: &str) -> Option<Access> {
    deciding_rule(rules, path.as_ref()).map(|rule| rule.rule.access)
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
    assert_eq!(hold_of(&denied, "/p/.claude".as_ref()), &Hold::Directory);
    let lifted = [held, rule("/p/.claude", Access::Write, Layer::User)];
    assert_eq!(hold_of(&lifted, "/p/.claude".as_ref()), &Hold::Nothing);
    assert_eq!(hold_of(&lifted, "/p/.claude/x".as_ref()), &Hold::Nothing);
}
