//! Plans for a made-up laptop: what is mounted where, in which order, and what is refused. No root, no kernel.

mod fixtures;
mod limits;
mod masked;
mod precedence;
mod properties;
mod sockets;
mod terminates;
mod tracked;
mod transaction;
mod unapproved;

use cofferdam_policy::{Access, FileRule, Isolation, Layer, OnUnknown, Origin, Policy, Ruled, Transaction};
use fixtures::{Laptop, decided_at_start, rule};

use crate::facts::git::GitRole;
use crate::facts::path::Kind;
use crate::posture::LayerState;
use crate::step::{HoldKind, MountKind, Step};
use crate::{LaunchPlan, PlanError, Request, plan};

fn request() -> Request {
    Request {
        argv: vec!["make".to_owned()],
        environment: [
            ("PATH", "/usr/bin"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("LD_PRELOAD", "/x.so"),
            ("LANG", "C"),
            ("BASH_ENV", "/x"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec(),
        learns: false,
    }
}

/// The shipped policy without its lists of paths.
fn without_files() -> Policy {
    let mut policy = decided_at_start();
    policy.files.clear();
    policy
}

fn planned(policy: &Policy, laptop: &Laptop) -> LaunchPlan {
    plan(policy, &laptop.facts(policy), &request()).expect("the plan is made")
}

fn mount_at<'a>(plan: &'a LaunchPlan, path: &str) -> Option<&'a MountKind> {
    plan.steps.iter().rev().find_map(|step| match step {
        Step::Mount(mount) if mount.target == std::path::Path::new(path) => Some(&mount.kind),
        _ => None,
    })
}

/// Whether a name cannot be seen: hidden in the directory that gives it, or covered.
fn is_hidden(plan: &LaunchPlan, path: &str) -> bool {
    let path = std::path::Path::new(path);
    match properties::giving(plan, path) {
        Some((top, MountKind::Filtered { hidden, .. })) => {
            path.strip_prefix(top).is_ok_and(|rest| hidden.iter().any(|one| rest.starts_with(&one.path)))
        }
        Some((top, MountKind::Empty { .. } | MountKind::Refused | MountKind::Text(_))) => top == path,
        _ => false,
    }
}

fn order_of(plan: &LaunchPlan, path: &str) -> usize {
    plan.steps
        .iter()
        .position(|step| matches!(step, Step::Mount(mount) if mount.target == std::path::Path::new(path)))
        .expect("it is mounted")
}

#[test]
fn the_default_plan_is_as_recorded() {
    let laptop = Laptop::with(&[
        "/home/dev/.ssh/",
        "/home/dev/.aws/",
        "/home/dev/.npmrc",
        "/home/dev/app/.git/",
        "/home/dev/app/.git/hooks/",
        "/home/dev/app/.git/config",
    ])
    .git("/home/dev/app/.git", GitRole::Main);
    let plan = planned(&decided_at_start(), &laptop);
    let lines: Vec<String> =
        plan.steps.iter().map(|step| serde_json::to_string(step).expect("steps serialise")).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn the_default_posture_is_as_recorded() {
    let plan = planned(&decided_at_start(), &Laptop::with(&[]));
    // It counts system calls, and machines differ in how many they have.
    let mut settings = insta::Settings::clone_current();
    if !cfg!(target_arch = "x86_64") {
        settings.set_snapshot_suffix(std::env::consts::ARCH);
    }
    settings.bind(|| insta::assert_json_snapshot!(plan.posture));
}

#[test]
fn a_denied_directory_is_empty_and_a_denied_file_cannot_be_opened() {
    let mut policy = without_files();
    policy.files = vec![rule("~/.ssh", Access::Deny), rule("~/token", Access::Deny)];
    let plan = planned(&policy, &Laptop::with(&["/home/dev/.ssh/", "/home/dev/token"]));
    assert!(is_hidden(&plan, "/home/dev/.ssh"));
    assert!(is_hidden(&plan, "/home/dev/token"));
}

#[test]
fn a_grant_inside_a_denied_directory_gets_a_mount_point_there() {
    let mut policy = without_files();
    policy.files = vec![rule("~/.ssh", Access::Deny), rule("~/.ssh/known_hosts", Access::Read)];
    let plan = planned(&policy, &Laptop::with(&["/home/dev/.ssh/", "/home/dev/.ssh/known_hosts"]));
    assert_eq!(
        mount_at(&plan, "/home/dev/.ssh"),
        Some(&MountKind::Empty { inside: vec![("known_hosts".into(), Kind::File)] })
    );
    assert!(matches!(mount_at(&plan, "/home/dev/.ssh/known_hosts"), Some(MountKind::Bind { write: false, .. })));
    assert!(order_of(&plan, "/home/dev/.ssh") < order_of(&plan, "/home/dev/.ssh/known_hosts"));
}

#[test]
fn protecting_never_uncovers_what_is_denied() {
    let mut policy = without_files();
    policy.files = vec![rule("~/.config/x", Access::Deny), rule("~/.config/x/y", Access::Protect)];
    let plan = planned(&policy, &Laptop::with(&["/home/dev/.config/x/", "/home/dev/.config/x/y"]));
    assert!(is_hidden(&plan, "/home/dev/.config/x"));
    assert_eq!(mount_at(&plan, "/home/dev/.config/x/y"), None);
}

#[test]
fn protecting_in_a_later_layer_never_uncovers_the_same_path() {
    let mut policy = without_files();
    let mut protect = rule("~/.aws", Access::Protect);
    protect.origin = Origin { layer: Layer::Project, source: "policy.toml".into(), line: Some(2) };
    policy.files = vec![rule("~/.aws", Access::Deny), protect];
    let plan = planned(&policy, &Laptop::with(&["/home/dev/.aws/"]));
    assert!(is_hidden(&plan, "/home/dev/.aws"));
}

#[test]
fn a_later_layer_wins_on_the_same_path_and_a_longer_path_wins_over_layers() {
    let mut policy = without_files();
    let mut flag = rule("~/.ssh", Access::Read);
    flag.origin = Origin::flag("--ro");
    let mut wide = rule("~/work", Access::Write);
    wide.origin = Origin::flag("--rw");
    policy.files = vec![rule("~/.ssh", Access::Deny), flag, rule("~/work/secret", Access::Deny), wide];
    let plan = planned(&policy, &Laptop::with(&["/home/dev/.ssh/", "/home/dev/work/", "/home/dev/work/secret"]));
    assert_eq!(mount_at(&plan, "/home/dev/.ssh"), None, "readable again");
    assert!(is_hidden(&plan, "/home/dev/work/secret"));
}

#[test]
fn a_final_deny_beats_longer_paths_and_later_layers() {
    let mut policy = without_files();
    let mut deny = rule("~/vault", Access::Deny);
    deny.is_final = true;
    let mut flag = rule("~/vault/mine", Access::Read);
    flag.origin = Origin::flag("--ro");
    policy.files = vec![deny, flag];
    let plan = planned(&policy, &Laptop::with(&["/home/dev/vault/", "/home/dev/vault/mine"]));
    assert!(is_hidden(&plan, "/home/dev/vault"));
    assert_eq!(mount_at(&plan, "/home/dev/vault/mine"), None);
}

#[test]
fn a_missing_protected_name_is_held_in_a_writable_directory_only() {
    let plan = planned(&decided_at_start(), &Laptop::with(&[]));
    let held: Vec<String> = plan.holds.iter().map(|h| h.path.display().to_string()).collect();
    assert!(held.contains(&"/home/dev/app/.vscode".to_owned()), "{held:?}");
    assert!(
        held.iter().all(|path| path.starts_with("/home/dev/app/")),
        "nothing is held where nothing can be written: {held:?}"
    );
    assert_eq!(mount_at(&plan, "/home/dev/app/.vscode"), Some(&MountKind::Empty { inside: Vec::new() }));
    let waits = plan.steps.iter().position(|s| *s == Step::AwaitHolds).expect("waits");
    assert!(waits < order_of(&plan, "/home/dev/app/.vscode"));
}

#[test]
fn a_git_directory_is_pinned_and_its_hooks_are_read_only() {
    let laptop = Laptop::with(&["/home/dev/app/.git/", "/home/dev/app/.git/hooks/", "/home/dev/app/.git/config"])
        .git("/home/dev/app/.git", GitRole::Main);
    let plan = planned(&decided_at_start(), &laptop);
    assert!(
        matches!(mount_at(&plan, "/home/dev/app/.git"), Some(MountKind::Bind { write: true, .. })),
        "a mount point cannot be renamed"
    );
    assert!(matches!(mount_at(&plan, "/home/dev/app/.git/hooks"), Some(MountKind::Bind { write: false, .. })));
    assert_eq!(mount_at(&plan, "/home/dev/app/.git/config"), Some(&MountKind::Text("masked".to_owned())));
    let commondir = plan.holds.iter().find(|h| h.path.ends_with(".git/commondir")).expect("held");
    assert!(matches!(&commondir.kind, HoldKind::File(text) if text.starts_with('.')));
    assert!(order_of(&plan, "/home/dev/app") < order_of(&plan, "/home/dev/app/.git"));
    assert!(order_of(&plan, "/home/dev/app/.git") < order_of(&plan, "/home/dev/app/.git/hooks"));
}

#[test]
fn a_pinned_directory_hides_nothing_that_is_mounted_in_it() {
    let app = "/home/dev/app";
    let laptop = Laptop::with(&["/home/dev/app/a/b/hidden", "/home/dev/app/a/b/kept", "/home/dev/app/a/given"]);
    let mut policy = without_files();
    policy.files = vec![
        rule("./a/b/hidden", Access::Deny),
        rule("./a/b/kept", Access::Protect),
        rule("./a/given", Access::Read),
        rule("./a/z", Access::Protect),
    ];
    let plan = planned(&policy, &laptop);
    let order = ["a", "a/b", "a/b/hidden", "a/b/kept", "a/given"].map(|name| order_of(&plan, &format!("{app}/{name}")));
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn a_linked_worktree_can_commit_and_cannot_bend_its_pointers() {
    let laptop = Laptop::with(&[
        "/home/dev/app/.git",
        "/home/dev/main/.git/",
        "/home/dev/main/.git/hooks/",
        "/home/dev/main/.git/config",
        "/home/dev/main/.git/worktrees/app/",
        "/home/dev/main/.git/worktrees/app/commondir",
        "/home/dev/main/.git/worktrees/app/gitdir",
        "/home/dev/main/.git/worktrees/other/",
    ])
    .git("/home/dev/main/.git", GitRole::Common)
    .git("/home/dev/main/.git/worktrees/app", GitRole::ThisWorktree)
    .git("/home/dev/main/.git/worktrees/other", GitRole::OtherWorktree);
    let plan = planned(&decided_at_start(), &laptop);
    let writable = |path: &str| matches!(mount_at(&plan, path), Some(MountKind::Bind { write: true, .. }));
    let sealed = |path: &str| matches!(mount_at(&plan, path), Some(MountKind::Bind { write: false, .. }));
    assert!(writable("/home/dev/main/.git"));
    assert!(matches!(mount_at(&plan, "/home/dev/main/.git/config"), Some(MountKind::Text(_))));
    for path in ["hooks", "worktrees/app/commondir", "worktrees/app/gitdir", "worktrees/other"] {
        assert!(sealed(&format!("/home/dev/main/.git/{path}")), "{path}");
    }
    assert!(sealed("/home/dev/app/.git"), "the pointer file");
}

#[test]
fn a_project_in_tmp_gets_its_mount_point_made() {
    let mut laptop = Laptop::with(&["/tmp/x/"]);
    laptop.project = Some("/tmp/x".into());
    let plan = planned(&decided_at_start(), &laptop);
    let made = plan.steps.iter().any(|step| matches!(step, Step::Mount(m) if m.target == std::path::Path::new("/tmp/x") && m.create == Some(Kind::Directory)));
    assert!(made);
}

#[test]
fn home_and_what_lies_above_it_cannot_be_made_writable() {
    for path in ["~", "/home", "/"] {
        let mut policy = without_files();
        policy.files = vec![rule(path, Access::Write)];
        let facts = Laptop::with(&["/home/", "/"]).facts(&policy);
        assert!(matches!(plan(&policy, &facts, &request()), Err(PlanError::TooWide { .. })), "{path}");
    }
}

#[test]
fn a_path_that_is_not_there_is_refused_unless_optional() {
    let mut policy = without_files();
    policy.files = vec![rule("/data", Access::Write)];
    let facts = Laptop::with(&[]).facts(&policy);
    assert!(matches!(plan(&policy, &facts, &request()), Err(PlanError::MissingPath { .. })));
    policy.files[0].optional = true;
    assert!(plan(&policy, &Laptop::with(&[]).facts(&policy), &request()).is_ok());
}

#[test]
fn the_sandbox_own_areas_cannot_be_given() {
    for path in ["/proc/sys", "/dev/kvm", "/sys/kernel"] {
        let mut policy = without_files();
        policy.files = vec![rule(path, Access::Read)];
        let facts = Laptop::with(&[&format!("{path}/")]).facts(&policy);
        assert!(matches!(plan(&policy, &facts, &request()), Err(PlanError::OwnArea { .. })), "{path}");
    }
}

#[test]
fn write_grants_outside_the_ceiling_are_refused_also_for_the_project() {
    let mut policy = decided_at_start();
    let root = cofferdam_policy::PathExpr::parse("/srv/builds").expect("parses");
    policy.write_within = vec![Ruled::default_of(root)];
    let facts = Laptop::with(&[]).facts(&policy);
    assert!(matches!(plan(&policy, &facts, &request()), Err(PlanError::OutsideCeiling { .. })));
}

#[test]
fn isolation_none_needs_the_organisation() {
    let mut policy = decided_at_start();
    policy.isolation = Ruled::default_of(Isolation::None);
    let facts = Laptop::with(&[]).facts(&policy);
    assert!(matches!(plan(&policy, &facts, &request()), Err(PlanError::NoneNotApproved { .. })));
    policy.none_approved = Some(Origin::default_value());
    let plan = plan(&policy, &facts, &request()).expect("approved");
    assert!(plan.steps.is_empty() && !plan.namespaces.user);
    assert_eq!(plan.posture.0[0].state, LayerState::Missing);
}

#[test]
fn a_wall_that_is_asked_for_by_hand_is_refused_where_there_are_none() {
    let hides = |policy: &mut Policy| {
        policy.files.push(FileRule { origin: Origin::flag("--blacklist"), ..policy.files[0].clone() });
    };
    let cuts_off = |policy: &mut Policy| policy.network.mode.origin = Origin::variable("COFFERDAM_NETWORK");
    let limits = |policy: &mut Policy| policy.presets.push(Ruled::new("tool".to_owned(), Origin::flag("--preset")));
    let traces_not = |policy: &mut Policy| policy.debug = Ruled::new(false, Origin::flag("--no-debug"));
    let denies =
        |policy: &mut Policy| policy.unknown.verdict = Ruled::new(OnUnknown::Deny, Origin::flag("--on-unknown"));
    let keeps_apart =
        |policy: &mut Policy| policy.transaction = Ruled::new(Transaction::Auto, Origin::flag("--transaction"));
    let waits = |policy: &mut Policy| {
        let origin = Origin { layer: Layer::User, source: "config.toml".into(), line: Some(1) };
        policy.transaction = Ruled::new(Transaction::Review, origin);
    };
    let asked: [&dyn Fn(&mut Policy); 7] = [&hides, &cuts_off, &limits, &traces_not, &denies, &keeps_apart, &waits];
    for ask in asked {
        let mut policy = decided_at_start();
        policy.isolation = Ruled::default_of(Isolation::None);
        policy.none_approved = Some(Origin::default_value());
        ask(&mut policy);
        let facts = Laptop::with(&[]).facts(&policy);
        assert!(matches!(plan(&policy, &facts, &request()), Err(PlanError::NoWalls { .. })));
    }
}

#[test]
fn isolation_process_has_no_net_namespace_and_no_internet_sockets() {
    let mut policy = decided_at_start();
    policy.isolation = Ruled::default_of(Isolation::Process);
    let plan = planned(&policy, &Laptop::with(&[]));
    assert!(!plan.namespaces.net && plan.namespaces.pid && plan.namespaces.mount);
    assert_ne!(plan.filter.program, planned(&decided_at_start(), &Laptop::with(&[])).filter.program);
    assert!(!plan.steps.contains(&Step::CreateNetwork));
}

#[test]
fn without_a_look_at_all_names_there_is_no_plan() {
    let policy = decided_at_start();
    let mut facts = Laptop::with(&[]).facts(&policy);
    facts.paths_unknown = Some("too many open files".to_owned());
    assert!(matches!(plan(&policy, &facts, &request()), Err(PlanError::PathsUnknown { .. })));
}

#[test]
fn a_kernel_without_landlock_scopes_is_reported_not_ignored() {
    let mut laptop = Laptop::with(&[]);
    laptop.landlock_abi = 4;
    let plan = planned(&decided_at_start(), &laptop);
    let line = plan.posture.0.iter().find(|l| l.layer.contains("abstract")).expect("listed");
    assert_eq!(line.state, LayerState::Reduced);
    assert!(!plan.steps.iter().any(|s| matches!(s, Step::Landlock(_))));
}

#[test]
fn limiting_programs_needs_landlock_and_makes_the_rest_not_executable() {
    let mut policy = decided_at_start();
    policy.process.executables = vec![Ruled::default_of("make".to_owned())];
    let mut laptop = Laptop::with(&["/usr/bin/make"]);
    laptop.landlock_abi = 0;
    assert!(matches!(plan(&policy, &laptop.facts(&policy), &request()), Err(PlanError::ExecNeedsLandlock { .. })));
    laptop.landlock_abi = 7;
    let plan = planned(&policy, &laptop);
    assert!(plan.steps.contains(&Step::CloneRoot { exec: false }));
    assert!(matches!(mount_at(&plan, "/usr/bin/make"), Some(MountKind::Bind { exec: true, write: false, .. })));
    assert!(matches!(mount_at(&plan, "/home/dev/app"), Some(MountKind::Bind { exec: false, .. })));
    policy.process.executables = vec![Ruled::default_of("nosuch".to_owned())];
    assert!(matches!(
        super::plan(&policy, &laptop.facts(&policy), &request()),
        Err(PlanError::ExecutableNotFound { .. })
    ));
}

#[test]
fn the_environment_is_built_not_inherited() {
    let plan = planned(&decided_at_start(), &Laptop::with(&[]));
    let names: Vec<&str> = plan.command.environment.iter().map(|(name, _)| name.as_str()).collect();
    for absent in ["AWS_SECRET_ACCESS_KEY", "LD_PRELOAD", "BASH_ENV"] {
        assert!(!names.contains(&absent), "{absent}");
    }
    for there in ["PATH", "LANG", "TMPDIR", "COFFERDAM"] {
        assert!(names.contains(&there), "{there}");
    }
}

#[test]
fn go_does_not_ask_git_about_a_stand_in() {
    let flags = |laptop: &Laptop, own: Option<&str>, policy: &Policy| {
        let mut request = request();
        request.environment.extend(own.map(|flags| ("GOFLAGS".to_owned(), flags.to_owned())));
        let plan = plan(policy, &laptop.facts(policy), &request).expect("planned");
        let set = plan.command.environment.into_iter().find(|(name, _)| name == "GOFLAGS");
        set.map(|(_, flags)| flags)
    };
    let policy = decided_at_start();
    let fresh = Laptop::with(&[]);
    assert_eq!(flags(&fresh, None, &policy).as_deref(), Some("-buildvcs=false"));
    // What comes later counts: what the operator chose.
    assert_eq!(flags(&fresh, Some("-buildvcs=true"), &policy).as_deref(), Some("-buildvcs=false -buildvcs=true"));
    let repository = Laptop::with(&["/home/dev/app/.git/"]).git("/home/dev/app/.git", GitRole::Main);
    assert_eq!(flags(&repository, None, &policy), None);
    let mut copied = policy.clone();
    copied.transaction = Ruled::default_of(Transaction::Review);
    assert_eq!(flags(&fresh, None, &copied), None, "nothing stands in there");
}

#[test]
fn the_filter_is_the_last_step_and_privilege_is_gone_before_it() {
    let plan = planned(&decided_at_start(), &Laptop::with(&[]));
    let position = |wanted: &Step| plan.steps.iter().position(|s| s == wanted).expect("there");
    assert_eq!(position(&Step::Seccomp), plan.steps.len() - 1);
    assert!(position(&Step::PivotRoot) < position(&Step::DropCapabilities));
    assert!(position(&Step::DropCapabilities) < position(&Step::NoNewPrivileges));
}

#[test]
fn every_git_directory_of_a_submodule_is_protected() {
    let laptop = Laptop::with(&[
        "/home/dev/app/.git/",
        "/home/dev/app/.git/modules/lib/",
        "/home/dev/app/.git/modules/lib/config",
    ]);
    let laptop =
        laptop.git("/home/dev/app/.git", GitRole::Main).git("/home/dev/app/.git/modules/lib", GitRole::Submodule);
    let facts = laptop.facts(&decided_at_start());
    let plan = plan(&decided_at_start(), &facts, &request()).expect("planned");
    assert!(matches!(mount_at(&plan, "/home/dev/app/.git/modules/lib/config"), Some(MountKind::Text(_))));
}

#[test]
fn a_session_that_learns_writes_nothing_for_real() {
    let laptop = Laptop::with(&["/home/dev/app/.git/", "/home/dev/data/", "/home/dev/notes"]);
    let mut policy = Policy::built_in();
    policy.files.extend(["/home/dev/data", "/home/dev/notes"].map(|path| rule(path, Access::Write)));
    let mut facts = laptop.facts(&policy);
    facts.has_fuse = true;
    let learning = Request { learns: true, ..request() };
    let plan = plan(&policy, &facts, &learning).expect("the plan is made");
    let is_real =
        |step: &&Step| matches!(step, Step::Mount(mount) if matches!(mount.kind, MountKind::Bind { write: true, .. }));
    assert_eq!(plan.steps.iter().find(is_real), None);
    assert!(matches!(mount_at(&plan, "/home/dev/app"), Some(MountKind::Overlay { .. })));
    assert!(matches!(mount_at(&plan, "/home/dev/data"), Some(MountKind::Overlay { .. })));
    let slot = plan.overlays - 1;
    assert!(plan.steps.iter().any(|step| matches!(step, Step::GateRoot { overlay: Some(own), .. } if *own == slot)));
    assert!(plan.holds.is_empty());
}
