//! Credentials and rules about requests: what they add to a session, and what they keep out of it.

use cofferdam_policy::{
    Credential, Endpoint, HOLDS_A_SECRET, Layer, NetworkMode, NetworkRule, Origin, PathExpr, Policy, Ruled,
    SecretSource,
};

use super::fixtures::Laptop;
use super::{is_hidden, mount_at, planned, request, without_files};
use crate::step::{MountKind, TrustFormat};
use crate::{LaunchPlan, PlanError, plan};

fn with_network() -> Policy {
    let mut policy = without_files();
    policy.network.mode = Ruled::default_of(NetworkMode::Egress);
    policy
}

fn with_credential(source: SecretSource) -> Policy {
    let mut policy = with_network();
    let credential = Credential {
        host: "api.test".to_owned(),
        port: 8443,
        variable: "API_TOKEN".to_owned(),
        header: "authorization".to_owned(),
        source,
        optional: false,
    };
    policy.network.credentials.push(Ruled::default_of(credential));
    policy.hide_secret_files();
    policy
}

fn variable<'a>(plan: &'a LaunchPlan, name: &str) -> Option<&'a str> {
    plan.command.environment.iter().find(|(set, _)| set == name).map(|(_, value)| value.as_str())
}

#[test]
fn a_session_without_such_hosts_gets_no_files_and_variables() {
    let mut policy = with_network();
    let endpoint = Endpoint::parse("api.test:443").expect("an endpoint");
    let mut rule = NetworkRule::whole(endpoint, Origin::default_value());
    policy.network.allow.push(rule.clone());
    let bare = planned(&policy, &Laptop::with(&[]));
    assert!(mount_at(&bare, "/run/cofferdam/ca.pem").is_none() && variable(&bare, "SSL_CERT_FILE").is_none());
    // A rule about requests is such a host.
    rule.methods.push("GET".to_owned());
    policy.network.allow = vec![rule];
    let reads = planned(&policy, &Laptop::with(&[]));
    assert_eq!(variable(&reads, "SSL_CERT_FILE"), Some("/run/cofferdam/ca.pem"));
    let format = |path| match mount_at(&reads, path) {
        Some(MountKind::Trust { format, content }) if content.is_empty() => Some(*format),
        _ => None,
    };
    assert_eq!(format("/run/cofferdam/ca.pem"), Some(TrustFormat::Pem));
    assert_eq!(format("/run/cofferdam/ca.jks"), Some(TrustFormat::Java));
}

#[test]
fn the_variable_of_a_secret_stays_outside_even_when_it_is_passed_by_name() {
    let mut policy = with_credential(SecretSource::Environment("MY_KEY".to_owned()));
    policy.env.pass.push(Ruled::default_of("MY_KEY".to_owned()));
    policy.env.pass.push(Ruled::default_of("JAVA_TOOL_OPTIONS".to_owned()));
    let mut request = request();
    request.environment.push(("MY_KEY".to_owned(), "real".to_owned()));
    request.environment.push(("JAVA_TOOL_OPTIONS".to_owned(), "-Dmine=1".to_owned()));
    let laptop = Laptop::with(&[]);
    let planned = plan(&policy, &laptop.facts(&policy), &request).expect("the plan is made");
    assert_eq!(variable(&planned, "MY_KEY"), None);
    assert!(variable(&planned, "API_TOKEN").is_some_and(|value| value.starts_with("cofferdam-")));
    assert!(variable(&planned, "JAVA_TOOL_OPTIONS").is_some_and(|value| value.starts_with("-Dmine=1 -Djavax")));
    let text = serde_json::to_string(&planned).expect("JSON");
    assert!(!text.contains("real\""), "the secret is not in the plan");
    // Also where the network has no use for it.
    policy.network.mode = Ruled::default_of(NetworkMode::None);
    let without = plan(&policy, &laptop.facts(&policy), &request).expect("the plan is made");
    assert_eq!(variable(&without, "MY_KEY"), None);
}

#[test]
fn the_file_of_a_secret_is_covered_whatever_gives_its_directory() {
    let path = PathExpr::parse("~/.token").expect("a path");
    let policy = with_credential(SecretSource::File(path));
    let plan = planned(&policy, &Laptop::with(&["/home/dev/.token"]));
    assert!(is_hidden(&plan, "/home/dev/.token"));
    assert!(plan.decisions.iter().any(|decision| decision.reason == HOLDS_A_SECRET));
}

#[test]
fn a_secret_is_not_read_from_where_sessions_write() {
    let path = PathExpr::parse("/home/dev/work/project/token").expect("a path");
    let mut policy = with_credential(SecretSource::File(path));
    let mut given = super::rule("/home/dev/work/project", cofferdam_policy::Access::Write);
    given.origin = Origin { layer: Layer::User, ..Origin::default_value() };
    policy.files.push(given);
    let laptop = Laptop::with(&["/home/dev/work/project/token"]);
    let refused = plan(&policy, &laptop.facts(&policy), &request()).expect_err("it is writable");
    assert!(matches!(refused, PlanError::SecretIsWritable { .. }), "{refused:?}");
}

#[test]
fn an_optional_credential_is_there_where_its_variable_is() {
    let mut policy = with_credential(SecretSource::Environment("MY_KEY".to_owned()));
    let laptop = Laptop::with(&[]);
    let inside = |policy: &Policy, value: Option<&str>| {
        let mut request = request();
        request.environment.extend(value.map(|value| ("MY_KEY".to_owned(), value.to_owned())));
        let planned = plan(policy, &laptop.facts(policy), &request).expect("the plan is made");
        (variable(&planned, "API_TOKEN").is_some(), variable(&planned, "SSL_CERT_FILE").is_some())
    };
    assert_eq!(inside(&policy, None), (true, true), "the launch is to say that it is not set");
    policy.network.credentials[0].value.optional = true;
    assert_eq!(inside(&policy, None), (false, false));
    assert_eq!(inside(&policy, Some("")), (false, false));
    assert_eq!(inside(&policy, Some("real")), (true, true));
}
