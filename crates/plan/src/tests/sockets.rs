//! Sockets of the host: covered wherever a session could see them, and given one by one.

use cofferdam_policy::{Access, Layer, Mode, Origin, PathExpr, Policy, Ruled, SocketGrant};

use super::fixtures::{Laptop, rule};
use super::{is_hidden, mount_at, order_of, planned, request, without_files};
use crate::facts::path::Kind;
use crate::step::{Mount, MountKind, Step};
use crate::{LaunchPlan, PlanError, gate_rules, plan};

fn granting(policy: &mut Policy, path: &str) {
    let path = PathExpr::parse(path).expect("a good path");
    let grant = SocketGrant { path, optional: false, reason: "".into() };
    policy.network.sockets.push(Ruled::new(grant, Origin::flag("--socket")));
}

fn step<'a>(plan: &'a LaunchPlan, path: &str) -> &'a Mount {
    match &plan.steps[order_of(plan, path)] {
        Step::Mount(mount) => mount,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_socket_is_covered_wherever_it_can_be_seen() {
    let laptop = Laptop::with(&["/home/dev/.ssh/", "/home/dev/models/"]).listening(&[
        "/home/dev/app/run/pg.sock",
        "/home/dev/.cache/ide.sock",
        "/opt/daemon.sock",
        "/run/user/1000/bus",
        "/tmp/x.sock",
        "/home/dev/.ssh/agent",
        "/home/dev/models/server.sock",
    ]);
    let mut policy = without_files();
    policy.files =
        vec![rule("~/.ssh", Access::Deny), rule("~/models", Access::Overlay), rule("~/.cache", Access::Read)];
    let plan = planned(&policy, &laptop);
    for seen in ["/home/dev/app/run/pg.sock", "/home/dev/.cache/ide.sock", "/opt/daemon.sock"] {
        assert!(is_hidden(&plan, seen), "{seen}");
    }
    assert!(order_of(&plan, "/home/dev/app") < order_of(&plan, "/home/dev/app/run/pg.sock"));
    assert!(step(&plan, "/home/dev/app/run/pg.sock").if_present, "who listens may end while a session starts");
    let pin = step(&plan, "/home/dev/app/run");
    assert!(
        matches!(pin.kind, MountKind::Bind { write: true, .. }) && pin.if_present,
        "else it is moved away: {pin:?}"
    );
    assert!(order_of(&plan, "/home/dev/app/run") < order_of(&plan, "/home/dev/app/run/pg.sock"));
    for out_of_sight in ["/run/user/1000/bus", "/tmp/x.sock", "/home/dev/.ssh/agent", "/home/dev/models/server.sock"] {
        assert_eq!(mount_at(&plan, out_of_sight), None, "{out_of_sight}");
    }
    policy.files.push(rule("/run/user/1000", Access::Read));
    let plan = planned(&policy, &laptop);
    assert!(is_hidden(&plan, "/run/user/1000/bus"), "a grant shows it");
}

#[test]
fn where_paths_are_asked_about_a_socket_is_covered_when_its_directory_is_given() {
    let laptop = Laptop::with(&[]).listening(&["/home/dev/app/pg.sock", "/home/dev/other/x.sock"]);
    let mut policy = without_files();
    policy.mode.value = Mode::Dynamic;
    let mut facts = laptop.facts(&policy);
    facts.has_fuse = true;
    let plan = plan(&policy, &facts, &request()).expect("the plan is made");
    assert_eq!(mount_at(&plan, "/home/dev/app/pg.sock"), Some(&MountKind::Refused));
    assert_eq!(mount_at(&plan, "/home/dev/other/x.sock"), None, "nothing is there yet");
    let rules = gate_rules(&policy, &facts, &plan.decisions);
    let about = rules.iter().find(|rule| rule.path.ends_with("x.sock")).expect("the gate knows of it");
    assert_eq!(about.access, Access::Deny);
}

#[test]
fn a_grant_shows_one_socket_and_nothing_else_of_its_directory() {
    let laptop = Laptop::with(&["/home/dev/.gnupg/private"]).listening(&[
        "/home/dev/.gnupg/S.gpg-agent",
        "/home/dev/.gnupg/S.scdaemon",
        "/run/user/1000/pulse",
        "/home/dev/app/pg.sock",
    ]);
    let mut policy = without_files();
    policy.files = vec![rule("~/.gnupg", Access::Deny)];
    for path in ["~/.gnupg/S.gpg-agent", "/run/user/1000/pulse", "./pg.sock"] {
        granting(&mut policy, path);
    }
    let plan = planned(&policy, &laptop);
    let points = vec![("S.gpg-agent".into(), Kind::Socket)];
    assert_eq!(mount_at(&plan, "/home/dev/.gnupg"), Some(&MountKind::Empty { inside: points }));
    for given in ["/home/dev/.gnupg/S.gpg-agent", "/run/user/1000/pulse", "/home/dev/app/pg.sock"] {
        assert!(matches!(mount_at(&plan, given), Some(MountKind::Bind { write: false, id: Some(_), .. })), "{given}");
    }
    assert_eq!(step(&plan, "/run/user/1000/pulse").create, Some(Kind::Socket));
    assert_eq!(mount_at(&plan, "/home/dev/.gnupg/S.scdaemon"), None, "its directory is empty but for the grant");
}

#[test]
fn what_is_granted_must_be_a_socket() {
    for (path, optional, is_refused) in [
        ("/home/dev/plain", true, true),
        ("/home/dev/none", false, true),
        ("/home/dev/none", true, false),
        ("/home/dev/app", true, true),
    ] {
        let mut policy = without_files();
        granting(&mut policy, path);
        policy.network.sockets[0].value.optional = optional;
        let facts = Laptop::with(&["/home/dev/plain"]).facts(&policy);
        let refused = matches!(plan(&policy, &facts, &request()), Err(PlanError::NotASocket { .. }));
        assert_eq!(refused, is_refused, "{path} {optional}");
    }
}

#[test]
fn what_the_organisation_denies_for_good_is_not_granted_as_a_socket() {
    let mut policy = without_files();
    let mut denied = rule("~/.gnupg", Access::Deny);
    (denied.is_final, denied.origin.layer) = (true, Layer::Requirements);
    policy.files = vec![denied];
    granting(&mut policy, "~/.gnupg/S.gpg-agent");
    let plan = planned(&policy, &Laptop::with(&[]).listening(&["/home/dev/.gnupg/S.gpg-agent"]));
    assert!(is_hidden(&plan, "/home/dev/.gnupg"));
    assert_eq!(mount_at(&plan, "/home/dev/.gnupg/S.gpg-agent"), None);
}

#[test]
fn nothing_starts_where_the_sockets_of_the_host_are_not_known() {
    let policy = without_files();
    let mut facts = Laptop::with(&[]).facts(&policy);
    facts.sockets_unknown = Some("there are too many to look at".to_owned());
    assert!(matches!(plan(&policy, &facts, &request()), Err(PlanError::SocketsUnknown { .. })));
}

#[test]
fn a_socket_that_controls_the_host_is_given_by_the_organisation_alone() {
    let laptop = Laptop::with(&[]).listening(&["/run/docker.sock", "/home/dev/app/pg.sock", "/home/dev/link.sock"]);
    let mut policy = without_files();
    granting(&mut policy, "/run/docker.sock");
    let refused = |policy: &Policy, laptop: &Laptop| plan(policy, &laptop.facts(policy), &request());
    let error = refused(&policy, &laptop).expect_err("docker is refused");
    assert!(matches!(&error, PlanError::ControlSocket { what: "docker", .. }), "{error:?}");
    // Under another name of the same socket.
    let mut policy = without_files();
    granting(&mut policy, "/home/dev/link.sock");
    let mut facts = laptop.facts(&policy);
    let same = facts.granted_sockets.iter().find_map(|(_, fact)| match fact {
        crate::facts::path::PathFact::Present { id, .. } => Some(*id),
        crate::facts::path::PathFact::Missing { .. } => None,
    });
    plan(&policy, &facts, &request()).expect("the control: it is another socket");
    facts.control_sockets = vec![("/run/docker.sock".into(), same.expect("it is there"))];
    let error = plan(&policy, &facts, &request()).expect_err("it is docker's");
    assert!(matches!(error, PlanError::ControlSocket { .. }), "{error:?}");
    // The organisation's word, beside the user's flag.
    let mut policy = without_files();
    granting(&mut policy, "/run/docker.sock");
    policy.network.sockets[0].origin.layer = Layer::Org;
    refused(&policy, &laptop).expect("the organisation named it");
}
