//! Files that read without the values of secret names (decision 0038).

use std::path::Path;

use cofferdam_policy::{Access, Layer, Mode, Origin, Policy};

use super::fixtures::{Laptop, decided_at_start, rule};
use super::{mount_at, planned, without_files};
use crate::files::cover::Covered;
use crate::step::{HiddenName, MountKind, Trigger};
use crate::{GitRole, LaunchPlan, Request, decide, plan};

const CONFIG: &str = "/home/dev/app/.git/config";

fn text() -> MountKind {
    MountKind::Text("masked".to_owned())
}

fn access_of(plan: &LaunchPlan, path: &str) -> Option<Access> {
    decide(&plan.decisions, Path::new(path)).map(|decision| decision.access)
}

/// What a filtered tree shows under a name: none where it does not hide it.
fn in_tree<'a>(plan: &'a LaunchPlan, tree: &str, name: &str) -> Option<&'a HiddenName> {
    let Some(MountKind::Filtered { hidden, .. }) = mount_at(plan, tree) else { return None };
    hidden.iter().find(|one| one.path == Path::new(name))
}

#[test]
fn a_masked_file_is_a_text_in_whatever_lies_around_it() {
    let mut policy = decided_at_start();
    policy.files.push(rule("~/rw", Access::Write));
    policy.files.push(rule("~/rw/rc", Access::Mask));
    let laptop = Laptop::with(&[CONFIG, "/home/dev/.npmrc", "/home/dev/rw/rc", "/home/dev/app/.npmrc"]);
    let plan = planned(&policy, &laptop.git("/home/dev/app/.git", GitRole::Main));
    assert_eq!(in_tree(&plan, "/home", "dev/.npmrc").and_then(|one| one.text.as_deref()), Some("masked"));
    for path in [CONFIG, "/home/dev/app/.npmrc", "/home/dev/rw/rc"] {
        assert_eq!(mount_at(&plan, path), Some(&text()), "{path}");
        let cover = plan.covers.iter().find(|cover| cover.path == Path::new(path)).expect("it has a cover");
        assert!(cover.what == Covered::Masked && cover.is_watched(), "{cover:?}");
        assert_eq!(access_of(&plan, path), Some(Access::Mask));
    }
}

#[test]
fn what_is_no_text_is_hidden() {
    let mut policy = without_files();
    policy.files.push(rule("~/binary", Access::Mask));
    policy.files.push(rule("./binary", Access::Mask));
    policy.files.push(rule("~/directory", Access::Mask));
    let laptop = Laptop::with(&["/home/dev/binary", "/home/dev/app/binary", "/home/dev/directory/x"]);
    let plan = planned(&policy, &laptop);
    assert!(in_tree(&plan, "/home", "dev/binary").is_some_and(|one| one.text.is_none()));
    assert!(in_tree(&plan, "/home", "dev/directory").is_some_and(|one| one.text.is_none()));
    assert_eq!(mount_at(&plan, "/home/dev/app/binary"), Some(&MountKind::Refused));
    assert_eq!(access_of(&plan, "/home/dev/binary"), Some(Access::Deny));
}

#[test]
fn a_mask_uncovers_nothing_and_is_lifted_by_no_protection() {
    let user = |path: &str, access: Access| {
        let mut rule = rule(path, access);
        rule.origin = Origin { layer: Layer::User, source: "test".into(), line: None };
        rule
    };
    let laptop = Laptop::with(&["/home/dev/.ssh/config", "/home/dev/rc"]);
    for (rules, path, access) in [
        (
            vec![rule("~/.ssh", Access::Deny), rule("~/.ssh/config", Access::Mask)],
            "/home/dev/.ssh/config",
            Access::Deny,
        ),
        (vec![rule("~/rc", Access::Mask), user("~/rc", Access::Protect)], "/home/dev/rc", Access::Mask),
        (vec![rule("~/rc", Access::Mask), user("~/rc", Access::Deny)], "/home/dev/rc", Access::Deny),
        (vec![rule("~/rc", Access::Deny), user("~/rc", Access::Protect)], "/home/dev/rc", Access::Deny),
        (vec![rule("~/rc", Access::Mask), rule("~/rc", Access::Read)], "/home/dev/rc", Access::Mask),
        (vec![rule("~/rc", Access::Mask), user("~/rc", Access::Read)], "/home/dev/rc", Access::Read),
    ] {
        let mut policy = without_files();
        policy.files.extend(rules.clone());
        assert_eq!(access_of(&planned(&policy, &laptop), path), Some(access), "{rules:?}");
    }
}

fn asking(policy: &Policy, laptop: &Laptop, trigger: Trigger, is_named: bool) -> LaunchPlan {
    let mut policy = policy.clone();
    policy.mode.value = Mode::Dynamic;
    let mut facts = laptop.facts(&policy);
    facts.has_fuse = trigger == Trigger::Fuse;
    facts.masks.values_mut().for_each(|mask| mask.is_named = is_named);
    plan(&policy, &facts, &Request { argv: vec!["sh".to_owned()], ..Request::default() }).expect("it can run")
}

#[test]
fn where_the_root_is_fuse_the_gate_renders_and_elsewhere_a_text_is_mounted() {
    let mut policy = without_files();
    policy.files.push(rule("~/.npmrc", Access::Mask));
    policy.files.push(rule("~/.cargo", Access::Read));
    policy.files.push(rule("~/.cargo/config", Access::Mask));
    policy.files.push(rule("./.npmrc", Access::Mask));
    let laptop = Laptop::with(&["/home/dev/.npmrc", "/home/dev/.cargo/config", "/home/dev/app/.npmrc"]);
    let (fuse, calls) =
        (asking(&policy, &laptop, Trigger::Fuse, true), asking(&policy, &laptop, Trigger::Notify, true));
    assert_eq!(mount_at(&fuse, "/home/dev/.npmrc"), None, "the root itself shows it");
    assert_eq!(mount_at(&calls, "/home/dev/.npmrc"), Some(&text()));
    assert_eq!(mount_at(&fuse, "/home/dev/app/.npmrc"), Some(&MountKind::Rendered));
    assert_eq!(mount_at(&calls, "/home/dev/app/.npmrc"), Some(&text()));
    assert_eq!(mount_at(&fuse, "/home/dev/.cargo/config"), Some(&MountKind::Rendered));
    assert_eq!(mount_at(&calls, "/home/dev/.cargo/config"), None, "in its tree");
    for plan in [&fuse, &calls] {
        assert_eq!(in_tree(plan, "/home/dev/.cargo", "config").and_then(|one| one.text.as_deref()), Some("masked"));
    }
}

#[test]
fn a_link_leads_no_mask_to_a_file_that_would_be_asked_about() {
    let mut policy = without_files();
    policy.files.push(rule("~/diary", Access::Mask));
    let laptop = Laptop::with(&["/home/dev/diary"]);
    for trigger in [Trigger::Fuse, Trigger::Notify] {
        let plan = asking(&policy, &laptop, trigger, false);
        assert_eq!(access_of(&plan, "/home/dev/diary"), None, "{trigger:?}");
        assert_eq!(mount_at(&plan, "/home/dev/diary"), None, "{trigger:?}");
    }
    policy.files.push(rule("~/diary", Access::Read));
    assert_eq!(access_of(&asking(&policy, &laptop, Trigger::Notify, false), "/home/dev/diary"), Some(Access::Mask));
}
