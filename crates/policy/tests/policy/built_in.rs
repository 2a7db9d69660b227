//! The shipped lists and presets.

use std::time::Instant;

use cofferdam_policy::path::Base;
use cofferdam_policy::{
    Access, EnvMode, ExpandedRule, FileRule, Hold, Isolation, Layer, PRESETS, PathExpr, Policy, Stand, hold_of,
    index_of,
};

use crate::{layer, places, resolved};

fn expanded(policy: &Policy) -> Vec<ExpandedRule> {
    let places = places();
    let each = |rule: &cofferdam_policy::FileRule| {
        rule.path
            .expand(&places)
            .into_iter()
            .map(|path| ExpandedRule { path, rule: rule.clone(), lifts: false })
            .collect::<Vec<_>>()
    };
    policy.files.iter().flat_map(each).collect()
}

#[test]
fn secrets_are_denied_by_default() {
    let rules = expanded(&Policy::built_in());
    let index = index_of(rules.clone());
    let denied = [
        "/home/u/.ssh/id_ed25519",
        "/home/u/.aws/credentials",
        "/home/u/.gnupg",
        "/home/u/.config/gcloud/x",
        "/home/u/.kube/config",
        "/home/u/.docker/config.json",
        "/home/u/.cargo/credentials.toml",
        "/home/u/.config/google-chrome-beta/Default/Cookies",
        "/home/u/.var/app/org.mozilla.firefox/x",
        "/home/u/.bash_history",
        "/home/u/.local/state/cofferdam/x",
        "/home/u/p/.env",
        "/home/u/p/.env.local",
        "/home/u/p/.env.test.local",
        "/etc/shadow",
        "/etc/ssh/ssh_host_ed25519_key",
        "/HOME/u/.SSH/id",
        "/home/u/p/.ENV",
    ];
    for path in denied {
        let access = index.deciding(path.as_ref()).map(|rule| rule.rule.access);
        assert_eq!(access, Some(Access::Deny), "{path}");
    }
    for path in [
        "/etc/passwd",
        "/etc/ssh/ssh_host_ed25519_key.pub",
        "/home/u/.cargo/bin",
        "/home/u/src/a.rs",
        "/home/u/p/.env.example",
        "/home/u/p/.env.test",
        "/home/u/p/.env.local.template",
    ] {
        let access = index.deciding(path.as_ref()).map(|rule| rule.rule.access);
        assert_ne!(access, Some(Access::Deny), "{path}");
    }
}

#[test]
fn files_that_tools_insist_on_reading_show_a_text() {
    let policy = Policy::built_in();
    let stand = |text: &str| policy.files.iter().find(|rule| rule.path.as_str() == text).map(|rule| rule.stand.clone());
    assert_eq!(stand("~/.netrc"), Some(Stand::Text(String::new())));
    assert_eq!(stand("~/.docker/config.json"), Some(Stand::Text("{}".to_owned())));
    assert_eq!(stand("~/.ssh"), Some(Stand::Refuse));
}

#[test]
fn what_the_host_would_run_is_protected_and_held_while_missing() {
    let rules = expanded(&Policy::built_in());
    let index = index_of(rules.clone());
    for path in ["/home/u/p/.git/hooks/pre-commit", "/home/u/p/.git/commondir", "/home/u/p/.claude/x"] {
        let access = index.deciding(path.as_ref()).map(|rule| rule.rule.access);
        assert_eq!(access, Some(Access::Protect), "{path}");
    }
    for path in ["/home/u/p/.git/config", "/home/u/p/.GIT/config", "/home/u/.gitconfig", "/home/u/.cargo/config.toml"] {
        let access = index.deciding(path.as_ref()).map(|rule| rule.rule.access);
        assert_eq!(access, Some(Access::Mask), "{path}");
    }
    assert_eq!(hold_of(&rules, &index, "/home/u/p/.git/config".as_ref()), &Hold::File("".into()));
    assert_eq!(hold_of(&rules, &index, "/home/u/p/.git/hooks".as_ref()), &Hold::Directory);
    assert_eq!(hold_of(&rules, &index, "/home/u/p/.git/commondir".as_ref()), &Hold::File(".\n".into()));
    assert_eq!(hold_of(&rules, &index, "/home/u/p/.git".as_ref()), &Hold::Directory);
    assert_eq!(hold_of(&rules, &index, "/home/u/p/.idea".as_ref()), &Hold::Nothing);
    // The git directory itself stays writable where it exists.
    assert_eq!(index.deciding("/home/u/p/.git/index".as_ref()), None);
}

#[test]
fn every_shipped_rule_names_its_line_and_reason() {
    for rule in Policy::built_in().files {
        assert_eq!(rule.origin.layer, Layer::BuiltIn, "{}", rule.path);
        assert!(rule.origin.line.is_some() && rule.origin.source.starts_with("profiles/"), "{}", rule.path);
        assert!(!rule.reason.is_empty() && rule.optional, "{}", rule.path);
        let except: Vec<String> = rule.path.except().split(' ').filter(|e| !e.is_empty()).map(str::to_owned).collect();
        let parsed = PathExpr::parse(rule.path.as_str()).ok();
        let parsed = if except.is_empty() { parsed } else { parsed.and_then(|path| path.leaving_out(&except)) };
        assert_eq!(parsed, Some(rule.path.clone()), "static and parsed forms agree");
    }
}

#[test]
fn no_shipped_place_is_listed_twice() {
    let files = Policy::built_in().files;
    for (at, rule) in files.iter().enumerate() {
        // What is protected may be known as well: it can be read and not be written.
        // What is masked may be protected where it is missing, or known.
        let is_both = |other: &FileRule| {
            other.access == Access::Protect && rule.access == Access::Read
                || other.access == Access::Mask && rule.access > Access::Mask
        };
        let is_same = |other: &&FileRule| other.path.is_same_place(&rule.path) && !is_both(other);
        assert!(!files[..at].iter().any(|other| is_same(&other)), "{}", rule.path);
    }
}

#[test]
fn the_default_is_full_isolation_with_a_writable_project() {
    let policy = Policy::built_in();
    assert_eq!(policy.isolation.value, Isolation::Full);
    assert_eq!(policy.project.value, Access::Write);
    assert!(policy.debug.value && policy.process.allow_fork.value && policy.process.allow_exec.value);
    assert_eq!(policy.syscalls.max_violations.value, 50);
    assert_eq!(policy.env.mode.value, EnvMode::Clean);
    assert!(!policy.files.iter().any(|rule| rule.access == Access::Write), "caches are overlays by default");
}

#[test]
fn a_language_preset_opens_its_own_caches_only() {
    for (name, cache) in [
        ("cargo", "${CARGO_HOME:-~/.cargo}/registry"),
        ("node", "${npm_config_cache:-~/.npm}"),
        ("python", "${PIP_CACHE_DIR:-~/.cache/pip}"),
        ("go", "${GOMODCACHE:-~/go/pkg/mod}"),
    ] {
        let policy = resolved(&[layer(Layer::User, &format!("preset = \"{name}\""))]).unwrap();
        let about: Vec<_> = policy.files.iter().filter(|rule| rule.path.as_str() == cache).map(|r| r.access).collect();
        assert_eq!(about, [Access::Write], "{name}");
        let other = if name == "go" { "${CARGO_HOME:-~/.cargo}/registry" } else { "${GOMODCACHE:-~/go/pkg/mod}" };
        assert!(policy.files.iter().any(|rule| rule.path.as_str() == other && rule.access == Access::Overlay));
        assert_eq!(policy.presets[0].value, name);
    }
    assert!(PRESETS.iter().all(|preset| !preset.description.is_empty()));
}

#[test]
fn dangerous_and_secret_variables_never_come_along_by_themselves() {
    let inherit =
        resolved(&[layer(Layer::User, "[env]\nmode = \"inherit\"\npass = [\"AWS_*\", \"GITHUB_TOKEN\"]")]).unwrap();
    let clean = Policy::built_in();
    for name in [
        "LD_PRELOAD",
        "BASH_ENV",
        "GIT_SSH_COMMAND",
        "NODE_OPTIONS",
        "PYTHONSTARTUP",
        "SSH_AUTH_SOCK",
        "DBUS_SESSION_BUS_ADDRESS",
        "AWS_SECRET_ACCESS_KEY",
        "NPM_TOKEN",
        "npm_token",
        "DISPLAY",
        "XAUTHORITY",
        "DOCKER_HOST",
        "KUBECONFIG",
        "HTTPS_PROXY",
        "https_proxy",
        "BASH_FUNC_x%%",
        "ANTHROPIC_API_KEY",
        "DB_PASSWORD",
        "XDG_RUNTIME_DIR",
    ] {
        assert!(!inherit.env.lets_through(name), "{name}");
        assert!(!clean.env.lets_through(name), "{name}");
    }
    assert!(inherit.env.lets_through("GITHUB_TOKEN"), "an exact name lifts a block");
    assert!(inherit.env.lets_through("MY_SETTING") && !clean.env.lets_through("MY_SETTING"));
    for rule in &clean.env.clean {
        let name = rule.value.replace('*', "X");
        assert!(clean.env.lets_through(&name), "{name} is on the clean list and blocked");
    }
}

#[test]
fn places_of_variables_are_known_to_the_survey() {
    let variables: Vec<_> =
        Policy::built_in().files.iter().filter_map(|rule| rule.path.variable().map(str::to_owned)).collect();
    assert!(variables.iter().any(|name| name == "CARGO_HOME"));
    let plain = |rule: &cofferdam_policy::FileRule| !matches!(&rule.path.base, Base::Variable { default, .. } if default.is_glob());
    assert!(Policy::built_in().files.iter().all(plain));
}

/// Not a benchmark: it catches a parser on the launch path, not a slow machine.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test has a clock")]
fn the_built_in_policy_is_made_without_parsing() {
    let fastest = (0..50).map(|_| {
        let start = Instant::now();
        let policy = Policy::built_in();
        let time = start.elapsed();
        assert!(!policy.files.is_empty());
        time
    });
    let fastest = fastest.min().unwrap();
    println!("built_in: {fastest:?}");
    assert!(fastest.as_millis() < 2, "{fastest:?}");
}
