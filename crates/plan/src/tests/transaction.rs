//! A session with a transaction: what is written in the project goes to an overlay, and what the overlay makes needless is not mounted.

use std::path::Path;

use cofferdam_policy::{Access, FileRule, Layer, Origin, Policy, Ruled, Transaction};

use super::fixtures::{Laptop, decided_at_start, rule};
use super::{is_hidden, mount_at, planned, request};
use crate::facts::git::GitRole;
use crate::posture::LayerState;
use crate::step::{MountKind, Step};
use crate::{LaunchPlan, decide, plan};

fn asked_by(layer: Layer, transaction: Transaction) -> Policy {
    let mut policy = decided_at_start();
    policy.transaction = Ruled::new(transaction, Origin { layer, source: "asked".into(), line: None });
    policy
}

fn asked() -> Policy {
    asked_by(Layer::Flag, Transaction::Review)
}

fn said_by_user(path: &str, access: Access) -> FileRule {
    FileRule { origin: Origin { layer: Layer::User, source: "test".into(), line: None }, ..rule(path, access) }
}

fn is_overlay(plan: &LaunchPlan, path: &str) -> bool {
    matches!(mount_at(plan, path), Some(MountKind::Overlay { .. }))
}

fn is_read_only(plan: &LaunchPlan, path: &str) -> bool {
    matches!(mount_at(plan, path), Some(MountKind::Bind { write: false, .. }))
}

fn writes_for_real(plan: &LaunchPlan) -> Vec<&Path> {
    let target = |step| match step {
        &Step::Mount(crate::Mount { ref target, kind: MountKind::Bind { write: true, .. }, .. }) => {
            Some(target.as_path())
        }
        _ => None,
    };
    plan.steps.iter().filter_map(target).collect()
}

fn project() -> Laptop {
    Laptop::with(&[
        "/home/dev/app/.git/",
        "/home/dev/app/.git/hooks/",
        "/home/dev/app/.git/config",
        "/home/dev/app/.vscode/",
        "/home/dev/app/.env",
    ])
    .git("/home/dev/app/.git", GitRole::Main)
}

#[test]
fn the_project_is_an_overlay_without_the_shipped_protections() {
    let before = planned(&decided_at_start(), &project());
    assert!(!before.holds.is_empty() && is_read_only(&before, "/home/dev/app/.git/hooks"), "the control");
    let policy = asked();
    let plan = plan(&policy, &project().surveyed(&policy), &request()).expect("the plan is made");
    assert!(is_overlay(&plan, "/home/dev/app"));
    assert_eq!(writes_for_real(&plan), [] as [&Path; 0]);
    assert_eq!(plan.holds, []);
    for path in [".git/hooks", ".vscode"].map(|name| format!("/home/dev/app/{name}")) {
        assert_eq!(mount_at(&plan, &path), None, "{path}");
        let decision = decide(&plan.decisions, Path::new(&path)).expect("the project's");
        assert!(decision.in_transaction() && decision.access == Access::Overlay, "{decision:?}");
        assert_eq!(decision.origin.source, "asked");
    }
    assert!(is_hidden(&plan, "/home/dev/app/.env"));
    assert!(matches!(mount_at(&plan, "/home/dev/app/.git/config"), Some(MountKind::Text(_))), "it is masked");
    assert_eq!(plan.transaction, Transaction::Review);
}

#[test]
fn the_posture_says_what_becomes_of_what_is_written() {
    for (transaction, end) in [(Transaction::Review, "waits for review"), (Transaction::Auto, "applied at the end")] {
        let plan = planned(&asked_by(Layer::User, transaction), &project());
        let line = plan.posture.0.iter().find(|line| line.layer == "transaction").expect("listed");
        assert_eq!(line.state, LayerState::Enforced);
        assert!(line.by.ends_with(end), "{}", line.by);
        let options = "(userxattr,volatile,redirect_dir=nofollow,metacopy=off,index=off,xino=off)";
        assert!(line.by.contains(options), "{}", line.by);
    }
    let plan = planned(&decided_at_start(), &project());
    assert!(!plan.posture.0.iter().any(|line| line.layer == "transaction"));
}

#[test]
fn what_a_layer_says_about_a_path_in_the_project_stays() {
    let laptop = Laptop::with(&[
        "/home/dev/app/kept",
        "/home/dev/app/out/",
        "/home/dev/app/out/.git/hooks/",
        "/home/dev/app/cache/",
        "/home/dev/app/shown",
    ]);
    let mut policy = asked();
    policy.files.extend([
        said_by_user("./kept", Access::Protect),
        said_by_user("./out", Access::Write),
        said_by_user("./cache", Access::Overlay),
        said_by_user("./shown", Access::Read),
        rule("./out/.git/hooks", Access::Protect),
    ]);
    let plan = planned(&policy, &laptop);
    assert!(is_read_only(&plan, "/home/dev/app/kept"));
    assert!(is_read_only(&plan, "/home/dev/app/shown"));
    assert!(matches!(mount_at(&plan, "/home/dev/app/out"), Some(MountKind::Bind { write: true, .. })));
    assert!(is_read_only(&plan, "/home/dev/app/out/.git/hooks"), "what is written directly is protected");
    // What is written there is no part of the transaction.
    assert!(is_overlay(&plan, "/home/dev/app/cache"));
    assert!(!decide(&plan.decisions, Path::new("/home/dev/app/cache")).expect("a rule").in_transaction());
}

#[test]
fn a_linked_worktree_and_its_repository_are_overlays_and_other_worktrees_stay() {
    let laptop = Laptop::with(&[
        "/home/dev/app/.git",
        "/home/dev/main/.git/hooks/",
        "/home/dev/main/.git/worktrees/app/commondir",
        "/home/dev/main/.git/worktrees/app/gitdir",
        "/home/dev/main/.git/worktrees/other/",
        "/home/dev/main/.git/modules/",
    ])
    .git("/home/dev/main/.git", GitRole::Common)
    .git("/home/dev/main/.git/worktrees/app", GitRole::ThisWorktree)
    .git("/home/dev/main/.git/worktrees/other", GitRole::OtherWorktree)
    .git("/home/dev/main/.git/modules", GitRole::Whole);
    let plan = planned(&asked(), &laptop);
    assert!(is_overlay(&plan, "/home/dev/app") && is_overlay(&plan, "/home/dev/main/.git"));
    assert_eq!(plan.overlays, 2, "one takes what is written to the repository and to the worktree's entry in it");
    assert_eq!(mount_at(&plan, "/home/dev/main/.git/worktrees/app"), None);
    for lifted in ["app/.git", "main/.git/hooks", "main/.git/worktrees/app/gitdir"] {
        assert_eq!(mount_at(&plan, &format!("/home/dev/{lifted}")), None, "{lifted}");
    }
    for kept in ["worktrees/other", "modules"] {
        assert!(is_read_only(&plan, &format!("/home/dev/main/.git/{kept}")), "{kept}");
    }
    assert_eq!(writes_for_real(&plan), [] as [&Path; 0]);
}

#[test]
fn a_file_of_the_project_that_asks_lifts_nothing() {
    for layer in [Layer::Project, Layer::ProjectLocal] {
        let mut policy = asked_by(layer, Transaction::Auto);
        // A rule of a later layer gives the project, and does not make the transaction its own.
        policy.files.push(FileRule { origin: Origin::flag("--rw"), ..rule("./", Access::Write) });
        let plan = planned(&policy, &project());
        assert!(is_overlay(&plan, "/home/dev/app"));
        for path in [".git/hooks", ".vscode"] {
            assert!(is_read_only(&plan, &format!("/home/dev/app/{path}")), "{layer}: {path}");
        }
        assert_eq!(plan.holds, []);
    }
}

#[test]
fn a_plain_overlay_lifts_nothing() {
    let mut policy = decided_at_start();
    policy.project = Ruled::new(Access::Overlay, Origin::flag("--overlay"));
    let plan = planned(&policy, &project());
    assert!(is_overlay(&plan, "/home/dev/app") && is_read_only(&plan, "/home/dev/app/.git/hooks"));
    assert_eq!(plan.transaction, Transaction::Off);
}

#[test]
fn a_transaction_opens_no_project_that_is_not_written() {
    for access in [Access::Deny, Access::Protect, Access::Read] {
        let mut policy = asked();
        policy.files.push(said_by_user("./", access));
        let plan = planned(&policy, &project());
        assert!(!is_overlay(&plan, "/home/dev/app"), "{access}");
        assert_eq!(plan.transaction, Transaction::Off, "{access}");
    }
    let mut policy = asked();
    policy.project = Ruled::default_of(Access::Read);
    assert!(!is_overlay(&planned(&policy, &project()), "/home/dev/app"));
}
