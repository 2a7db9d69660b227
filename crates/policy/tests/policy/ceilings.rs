//! The org's requirements.

use std::time::Duration;

use cofferdam_policy::{
    Access, Ceilings, Inputs, Layer, Mode, OnUnknown, Origin, PathExpr, Policy, PolicyError, Ruled, Setting,
    Transaction, resolve,
};

use crate::{layer, places};

fn under(requirements: &str, user: &str) -> Result<Policy, PolicyError> {
    let ceilings = Ceilings::parse("requirements.toml", requirements).unwrap();
    let places = places();
    let layers = [layer(Layer::User, user)];
    resolve(&Inputs { layers: &layers, requirements: Some(&ceilings), places: Some(&places), ..Inputs::default() })
}

#[test]
fn a_request_beyond_a_ceiling_is_refused_with_both_origins() {
    for (requirements, user) in [
        ("isolation = \"full\"", "isolation = \"process\""),
        ("debug = false", "debug = true"),
        ("transaction = true", "transaction = \"auto\""),
        ("transaction = \"auto\"", "transaction = false"),
        ("mode = \"dynamic\"", "mode = \"static\""),
        ("unknown = \"ask\"", "unknown.verdict = \"allow-and-log\""),
        ("unknown = \"deny\"", "unknown.verdict = \"ask\""),
        ("presets = [\"cargo\"]", "preset = \"node\""),
        ("[files]\ndeny = [\"~/.ssh\"]", "[files]\nread = [\"~/.ssh/config\"]"),
        ("[files]\ndeny = [\"/home/u/x\"]", "[files]\nwrite = [\"~/x/y\"]"),
        ("[files]\nwrite_within = [\"./\"]", "[files]\nwrite = [\"/opt\"]"),
        ("[files]\nwrite_within = [\"./\"]", "[files]\noverlay = [\"/home/u\"]"),
        ("[files]\nwrite_within = [\"./\"]", "preset = \"cargo\""),
        ("[files]\nwrite_within = [\"/srv\"]", "project = \"write\""),
        ("[process]\nmax = 100", "[process]\nmax = 101"),
        ("[limits]\ntimeout = \"10m\"", "[limits]\ntimeout = \"11m\""),
        ("[syscalls]\nmode = \"allow-list\"", "[syscalls]\nmode = \"deny-list\""),
        ("[env]\nnever_pass = [\"AWS_*\"]", "[env]\npass = [\"AWS_PROFILE\"]"),
        ("[env]\nnever_pass = [\"AWS_*\"]", "[env]\npass = [\"AWS_*\"]"),
    ] {
        let error = under(requirements, user).expect_err(user);
        let PolicyError::BeyondCeiling { origin, ceiling, .. } = &error else { panic!("{user}: {error}") };
        assert!(matches!(origin.layer, Layer::User | Layer::BuiltIn), "{error}");
        assert_eq!(ceiling.origin.layer, Layer::Requirements, "{error}");
        assert!(ceiling.origin.line.is_some());
    }
}

#[test]
fn a_request_within_the_ceilings_stays_as_it_is() {
    let requirements = "isolation = \"process\"\nnetwork = \"none\"\ndebug = true\npresets = [\"cargo\"]\n\
        [files]\nwrite_within = [\"./\", \"~/scratch\", \"/srv\"]\n[limits]\ntimeout = \"10m\"";
    let user = "isolation = \"process\"\n[files]\nwrite = [\"/home/u/scratch/a\", \"/home/u/p/b\", \"/srv\"]\n\
        read = [\"/opt\"]\n[limits]\ntimeout = \"10m\"";
    let policy = under(requirements, user).unwrap();
    assert_eq!(policy.limits.timeout.as_ref().map(|time| time.origin.layer), Some(Layer::User));
    assert_eq!(policy.files.iter().filter(|rule| rule.access == Access::Write).count(), 3);
    assert_eq!(policy.write_within.len(), 3);
    assert_eq!(policy.project.value, Access::Write);
}

#[test]
fn what_nobody_asked_for_follows_the_ceiling() {
    let requirements = "debug = false\ntransaction = true\n[files]\nwrite_within = [\"/srv\"]\n[limits]\ntimeout = \"10m\"\n[process]\nmax = 50";
    let policy = under(requirements, "").unwrap();
    assert!(!policy.debug.value);
    assert_eq!((policy.transaction.value, policy.transaction.origin.layer), (Transaction::Review, Layer::Requirements));
    assert_eq!(policy.project.value, Access::Read);
    assert_eq!(policy.limits.timeout.as_ref().map(|time| time.value), Some(Duration::from_mins(10)));
    assert_eq!(policy.process.max.as_ref().map(|max| max.value), Some(50));
    assert!(policy.files.iter().all(|rule| rule.access < Access::Overlay));
}

#[test]
fn a_built_in_limit_follows_the_ceiling_and_a_tighter_one_stays() {
    let file_size = |requirements: &str| under(requirements, "").unwrap().limits.file_size.unwrap();
    let lowered = file_size("[limits]\nfile_size = \"1G\"");
    assert_eq!((lowered.value, lowered.origin.layer), (1 << 30, Layer::Requirements));
    let kept = file_size("[limits]\nfile_size = \"1T\"");
    assert_eq!((kept.value, kept.origin.layer), (64 << 30, Layer::BuiltIn));
}

#[test]
fn a_glob_in_pass_does_not_reach_a_forbidden_variable() {
    let policy = under("[env]\nnever_pass = [\"CORP_*\"]", "[env]\nmode = \"inherit\"\npass = [\"C*\"]").unwrap();
    assert!(policy.env.lets_through("COLOUR") && !policy.env.lets_through("CORP_HOST"));
}

#[test]
fn a_required_deny_is_final() {
    let policy = under("[files]\ndeny = [{ path = \"/data\", reason = \"customers\" }]", "").unwrap();
    let rule = policy.files.iter().find(|rule| rule.path.as_str() == "/data").unwrap();
    assert!(rule.is_final && rule.access == Access::Deny && rule.reason == "customers");
}

#[test]
fn without_knowledge_of_places_an_unclear_path_is_refused() {
    let ceilings = Ceilings::parse("r", "[files]\nwrite_within = [\"~/lab\", \"./\"]").unwrap();
    let ask = |path: &str| {
        let path = PathExpr::parse(path).unwrap();
        let setting = Setting::File { access: Access::Write, path, optional: false, reason: "".into() };
        resolve(&Inputs {
            flags: &[Ruled::new(setting, Origin::flag("--rw"))],
            requirements: Some(&ceilings),
            ..Inputs::default()
        })
    };
    assert!(ask("~/lab/x").is_ok());
    assert!(ask("/home/u/lab/x").is_err());
    assert!(ask("~/labour").is_err());
}

#[test]
fn requirements_refuse_what_they_do_not_know() {
    for text in [
        "isolaton = \"full\"",
        "version = 2",
        "[files]\nwrite_within = [\"/a/*\"]",
        "[files]\ndeny = [\"..\"]",
        "[process]\nmax = 0",
        "[limits]\nmemory = 512",
        "[limits]\nstorage = 0",
        "[limits]\nswap = 0",
        "[most.limits]\nmemory = \"1G\"",
    ] {
        assert!(Ceilings::parse("r", text).is_err(), "{text}");
    }
}

#[test]
fn a_required_mode_and_the_most_at_unknown_paths_are_followed() {
    let known = |policy: &Policy| policy.files.iter().any(|rule| rule.path.as_str() == "/usr");
    let policy = under("mode = \"static\"\nunknown = \"deny\"", "").unwrap();
    assert_eq!(policy.mode.value, Mode::Static);
    assert_eq!(policy.mode.origin.layer, Layer::Requirements);
    assert_eq!(policy.unknown.verdict.value, OnUnknown::Deny);
    assert!(!known(&policy), "static mode needs no known places");
    let asked = under("mode = \"dynamic\"\nunknown = \"ask\"", "unknown.verdict = \"deny\"").unwrap();
    assert_eq!(asked.unknown.verdict.origin.layer, Layer::User);
    assert!(known(&asked), "known places are not asked about");
    assert!(under("mode = \"dynamic\"", "mode = \"dynamic\"").is_ok());
}
