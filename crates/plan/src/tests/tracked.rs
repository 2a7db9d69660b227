//! Hidden files that git has.

use cofferdam_policy::{Access, Origin};

use super::fixtures::{Laptop, decided_at_start, rule};
use super::mount_at;
use crate::facts::git::TrackedFile;
use crate::step::MountKind;
use crate::{GitRole, Request, plan};

const ENV: &str = "/home/dev/app/.env";
const OBJECT: &str = "/home/dev/app/.git/objects/ab/cdef";

/// What stands over `.env` where the index names it and the object store has it, or not.
fn cover(object: Option<&str>, more: &[(&str, Access, Origin)]) -> Option<MountKind> {
    let mut policy = decided_at_start();
    policy.files.push(rule("./.env", Access::Deny));
    for (path, access, origin) in more {
        let mut rule = rule(path, *access);
        rule.origin = origin.clone();
        policy.files.push(rule);
    }
    let laptop = Laptop::with(&[ENV, OBJECT]).git("/home/dev/app/.git", GitRole::Main);
    let mut facts = laptop.facts(&policy);
    facts.tracked = vec![TrackedFile { path: ENV.into(), object: object.map(Into::into) }];
    let plan =
        plan(&policy, &facts, &Request { argv: vec!["sh".to_owned()], ..Request::default() }).expect("it can run");
    mount_at(&plan, ENV).cloned()
}

#[test]
fn a_hidden_file_is_shown_only_where_the_session_could_read_its_object() {
    assert_eq!(cover(Some(OBJECT), &[]), None);
    assert_eq!(cover(None, &[]), Some(MountKind::Refused), "git has another content");
    let hidden = [("./.git/objects", Access::Deny, Origin::flag("--blacklist"))];
    assert_eq!(cover(Some(OBJECT), &hidden), Some(MountKind::Refused), "the object is hidden, too");
    assert_eq!(cover(Some("/srv/store/ab/cdef"), &[]), Some(MountKind::Refused), "no rule gives the object");
}

#[test]
fn a_rule_that_the_user_wrote_hides_what_git_has() {
    let written = [("./.env", Access::Deny, Origin::flag("--blacklist"))];
    assert_eq!(cover(Some(OBJECT), &written), Some(MountKind::Refused));
}

/// direnv runs `.envrc`, and the pattern of secrets is about it, too.
#[test]
fn what_git_has_stays_protected_where_it_is_shown() {
    let protected = [("./.env", Access::Protect, Origin::built_in("protect.toml", 1))];
    let sealed = cover(Some(OBJECT), &protected);
    assert!(matches!(sealed, Some(MountKind::Bind { write: false, .. })), "{sealed:?}");
    assert_eq!(cover(None, &protected), Some(MountKind::Refused), "git has another content");
}
