//! What policies say about the network: notation, layers, trust and ceilings.

use std::time::Duration;

use cofferdam_policy::{
    AgentUse, Ceilings, Endpoint, Inputs, Layer, LayerInput, Mode, NetworkMode, PRESETS, Policy, PolicyError, Ports,
    Publish, SecretSource, Target, differences, explain, export, parse, resolve,
};

use crate::{approved, layer, places, resolved};

const EVERYTHING: &str = r#"[network]
mode = "egress"
allow = [
  "registry.npmjs.org",
  "*.example.com:443",
  "10.1.2.3:5432",
  { host = "api.github.com", methods = ["GET"], paths = ["/repos/**"], reason = "read only" },
]
deny = ["203.0.113.0/24", "evil.example"]
resolvers = ["127.0.0.1:5353"]
max_connections = 100
queries_per_second = 20
bytes = "1GiB"
idle_timeout = "10m"
header_timeout = 5
publish = ["8080:80", "3000"]
host_ports = [5432]
ssh_agent = "ask"
sockets = ["/run/postgresql/.s.PGSQL.5432", { path = "~/.gnupg/S.gpg-agent", optional = true, reason = "signs" }]

[[network.credentials]]
host = "api.github.com"
variable = "GITHUB_TOKEN"
env = "MY_TOKEN"

[[network.credentials]]
host = "registry.npmjs.org"
variable = "NPM_TOKEN"
header = "X-Token"
file = "~/.token"
"#;

fn user(text: &str) -> Result<Policy, PolicyError> {
    resolved(&[layer(Layer::User, text)])
}

fn allowed(policy: &Policy) -> Vec<String> {
    policy.network.allow.iter().map(|rule| rule.endpoint.to_string()).collect()
}

fn under(requirements: &str, text: &str) -> Result<Policy, PolicyError> {
    let ceilings = Ceilings::parse("requirements.toml", requirements)?;
    let layers = [layer(Layer::User, text)];
    resolve(&Inputs { layers: &layers, requirements: Some(&ceilings), ..Inputs::default() })
}

#[test]
fn without_a_word_there_is_no_network() {
    let network = Policy::built_in().network;
    assert_eq!(network.mode.value, NetworkMode::None);
    assert!(network.allow.is_empty() && network.credentials.is_empty() && network.publish.is_empty());
    assert_eq!(network.ssh_agent.value, AgentUse::Off);
}

#[test]
fn the_network_of_a_file_is_what_it_says() {
    let policy = user(EVERYTHING).unwrap();
    let network = &policy.network;
    assert_eq!(network.mode.value, NetworkMode::Egress);
    assert_eq!(allowed(&policy), ["registry.npmjs.org", "*.example.com:443", "10.1.2.3:5432", "api.github.com"]);
    assert_eq!(network.allow[3].origin.to_string(), "user: user.toml:7");
    assert_eq!((network.allow[3].methods[0].as_str(), network.allow[3].paths[0].as_str()), ("GET", "/repos/**"));
    assert_eq!(network.deny.len(), 2);
    assert_eq!(network.resolvers[0].value.to_string(), "127.0.0.1:5353");
    assert_eq!((network.max_connections.value, network.queries_per_second.value), (100, 20));
    assert_eq!(network.bytes.as_ref().unwrap().value, 1 << 30);
    assert_eq!(network.idle_timeout.value, Duration::from_mins(10));
    assert_eq!(network.header_timeout.value, Duration::from_secs(5));
    assert_eq!(network.publish[0].value, Publish { host_port: 8080, port: 80 });
    assert_eq!(network.publish[1].value, Publish { host_port: 3000, port: 3000 });
    assert_eq!(network.host_ports[0].value, 5432);
    assert_eq!(network.ssh_agent.value, AgentUse::Ask);
    let [first, second] = network.credentials.as_slice() else { panic!("{:?}", network.credentials) };
    assert_eq!(first.value.source, SecretSource::Environment("MY_TOKEN".to_owned()));
    assert_eq!((first.value.port, first.value.header.as_str()), (443, "authorization"));
    assert_eq!(second.value.header, "x-token");
}

#[test]
fn a_network_that_means_nothing_is_refused_with_its_line() {
    for text in [
        "allow = [\"*\"]",
        "allow = [\"*.co.uk\"]",
        "allow = [\"10.0.0.1/8\"]",
        "allow = [{ host = \"a.example\", methods = [\"get\"] }]",
        "allow = [{ host = \"a.example\", paths = [\"repos\"] }]",
        "allow = [{ host = \"a.example\", paths = [\"/a/../b\"] }]",
        "allow = [{ host = \"a.example\", paths = [\"/a/x**\"] }]",
        "allow = [{ host = \"a.example\", paths = [\"/a%2fb\"] }]",
        "allow = [{ host = \"a.example\", port = 1 }]",
        "allow = [{ methods = [\"GET\"] }]",
        "deny = [\"2130706433\"]",
        "resolvers = [\"dns.example\"]",
        "resolvers = [\"127.0.0.1:0\"]",
        "max_connections = 0",
        "queries_per_second = 0",
        "bytes = 0",
        "idle_timeout = \"0s\"",
        "publish = [\"80:\"]",
        "publish = [\"0\"]",
        "publish = [\"127.0.0.1:80:80\"]",
        "host_ports = [0]",
        "host_ports = [65536]",
        "ssh_agent = \"yes\"",
        "sockets = [\"/run/*\"]",
        "sockets = [\"../agent\"]",
        "sockets = [\"\"]",
        "credentials = [{ host = \"*.a.example\", variable = \"T\", env = \"T\" }]",
        "credentials = [{ host = \"10.0.0.1\", variable = \"T\", env = \"T\" }]",
        "credentials = [{ host = \"a.example\", variable = \"T\" }]",
        "credentials = [{ host = \"a.example\", variable = \"T\", env = \"T\", file = \"~/t\" }]",
        "credentials = [{ host = \"a.example\", variable = \"T\", command = [] }]",
        "credentials = [{ host = \"a.example\", variable = \"T=\", env = \"T\" }]",
        "credentials = [{ host = \"a.example\", variable = \"T\", env = \"T\", header = \"a b\" }]",
        // The secret itself can never stand in a policy.
        "credentials = [{ host = \"a.example\", variable = \"T\", secret = \"hunter2\" }]",
    ] {
        let text = format!("[network]\n{text}\n");
        let error = parse(Layer::User, "p.toml", &text).expect_err(&text);
        let line = match &error {
            PolicyError::Syntax { line, .. } => Some(*line),
            other => other.origin().and_then(|origin| origin.line),
        };
        assert_eq!(line, Some(2), "{text}: {error}");
    }
}

#[test]
fn an_unapproved_project_only_takes_away() {
    let before = layer(Layer::User, EVERYTHING);
    let project = "[network]\nmode = \"none\"\nallow = [\"more.example\"]\ndeny = [\"registry.npmjs.org\"]\n\
                   max_connections = 10\nqueries_per_second = 50\nbytes = \"2G\"\nidle_timeout = \"1m\"\n\
                   publish = [\"9000\"]\nhost_ports = [22]\nssh_agent = \"allow\"\nsockets = [\"./agent\"]\n";
    let policy = resolved(&[before.clone(), layer(Layer::Project, project)]).unwrap();
    let network = &policy.network;
    assert_eq!(network.mode.value, NetworkMode::None);
    assert_eq!(network.deny.len(), 3);
    assert_eq!((network.max_connections.value, network.queries_per_second.value), (10, 20));
    assert_eq!(network.idle_timeout.value, Duration::from_mins(1));
    assert_eq!((network.publish.len(), network.host_ports.len(), network.allow.len()), (2, 1, 4));
    assert_eq!((network.ssh_agent.value, network.sockets.len()), (AgentUse::Ask, 2));
    let held: Vec<&str> = policy.held_back.iter().map(|held| held.rule.as_str()).collect();
    assert_eq!(
        held,
        [
            "network.queries_per_second = 50",
            "network.bytes = \"2G\"",
            "network.ssh_agent = \"allow\"",
            "network.allow = \"more.example\"",
            "network.publish = \"9000\"",
            "network.host_ports = 22",
            "network.sockets = \"./agent\"",
        ]
    );
    for mode in ["egress", "host"] {
        let project = format!("[network]\nmode = \"{mode}\"\n");
        let policy = resolved(&[layer(Layer::Project, &project)]).unwrap();
        assert_eq!((policy.network.mode.value, policy.held_back.len()), (NetworkMode::None, 1));
    }
    // Approved, it counts.
    let policy = resolved(&[before, approved(Layer::Project, "[network]\nallow = [\"more.example\"]\n")]).unwrap();
    assert_eq!(policy.network.allow.len(), 5);
}

#[test]
fn who_answers_names_and_who_holds_secrets_is_never_a_projects_to_say() {
    for text in [
        "resolvers = [\"198.51.100.1:53\"]",
        "credentials = [{ host = \"a.example\", variable = \"T\", command = [\"cat\", \"/etc/shadow\"] }]",
    ] {
        let text = format!("[network]\n{text}\n");
        for kind in [Layer::Project, Layer::ProjectLocal] {
            let error = resolved(&[approved(kind, &text)]).expect_err(&text);
            assert!(matches!(error, PolicyError::NotForProjects { .. }), "{error}");
        }
        assert!(user(&text).is_ok());
    }
}

#[test]
fn flags_and_variables_say_hosts_too() {
    let flags = crate::flags(&[
        ("--network", "egress"),
        ("--allow-host", "x.example:22"),
        ("--deny-host", "y.example"),
        ("--publish", "8080:80"),
        ("--host-port", "5432"),
        ("--ssh-agent", "allow"),
        ("--socket", "/run/x"),
    ]);
    let environment = [
        ("COFFERDAM_ALLOW_HOST".to_owned(), "a.example:8443, *.b.example".to_owned()),
        ("COFFERDAM_DENY_HOST".to_owned(), "c.b.example".to_owned()),
        ("COFFERDAM_SSH_AGENT".to_owned(), "ask".to_owned()),
    ];
    let inputs = Inputs { environment: &environment, flags: &flags, ..Inputs::default() };
    let policy = resolve(&inputs).unwrap();
    assert_eq!(allowed(&policy), ["a.example:8443", "*.b.example", "x.example:22"]);
    assert_eq!(policy.network.allow[2].origin.to_string(), "flag: --allow-host");
    assert_eq!(policy.network.allow[0].origin.to_string(), "environment: COFFERDAM_ALLOW_HOST");
    assert_eq!(policy.network.deny.len(), 2);
    assert_eq!(policy.network.ssh_agent.value, AgentUse::Allow);
    assert_eq!(policy.network.sockets[0].origin.to_string(), "flag: --socket");
    let inputs = Inputs { environment: &environment, ..Inputs::default() };
    assert_eq!(resolve(&inputs).unwrap().network.mode.value, NetworkMode::Egress);
}

#[test]
fn a_list_of_hosts_is_in_force_unless_a_mode_says_otherwise() {
    let listed = user("[network]\nallow = [\"x.example\"]\n").unwrap();
    assert_eq!(listed.network.mode.value, NetworkMode::Egress);
    assert_eq!(listed.network.mode.origin, listed.network.allow[0].origin);
    let chosen = user("[network]\nmode = \"none\"\nallow = [\"x.example\"]\n").unwrap();
    assert_eq!(chosen.network.mode.value, NetworkMode::None);
    let project = "[network]\nallow = [\"x.example\"]\n";
    assert_eq!(resolved(&[layer(Layer::Project, project)]).unwrap().network.mode.value, NetworkMode::None);
    assert_eq!(resolved(&[approved(Layer::Project, project)]).unwrap().network.mode.value, NetworkMode::Egress);
    let error = under("network = \"none\"", "[network]\nallow = [\"x.example\"]\n").expect_err("beyond");
    assert!(matches!(error, PolicyError::BeyondCeiling { .. }), "{error}");
}

#[test]
fn a_list_of_hosts_alone_never_opens_a_network_that_it_does_not_limit() {
    let with = |more: &str| user(&format!("{more}\n[network]\nallow = [\"x.example\"]\n")).unwrap().network.mode.value;
    assert_eq!(with("[unknown]\nverdict = \"allow-and-log\""), NetworkMode::None);
    assert_eq!(with("isolation = \"process\""), NetworkMode::None);
    assert_eq!(with("mode = \"static\"\n[unknown]\nverdict = \"allow-and-log\""), NetworkMode::Egress);
    let chosen = "[unknown]\nverdict = \"allow-and-log\"\n[network]\nmode = \"egress\"\nallow = [\"x.example\"]\n";
    assert_eq!(user(chosen).unwrap().network.mode.value, NetworkMode::Egress);
}

#[test]
fn an_unapproved_project_cannot_bring_a_network_about_by_being_strict() {
    let with = |mine: &str, theirs: &str| {
        let mine = format!("{mine}\n[network]\nallow = [\"x.example\"]\n");
        let mode = |project: LayerInput| {
            let policy = resolved(&[layer(Layer::User, &mine), project]).unwrap();
            (policy.network.mode.value, policy.mode.value)
        };
        (mode(layer(Layer::Project, theirs)), mode(approved(Layer::Project, theirs)))
    };
    let (none, listed) = ((NetworkMode::None, Mode::Dynamic), (NetworkMode::Egress, Mode::Dynamic));
    assert_eq!(with("isolation = \"process\"", "isolation = \"full\""), (none, listed));
    assert_eq!(with("[unknown]\nverdict = \"allow-and-log\"", "[unknown]\nverdict = \"deny\""), (none, listed));
    // Unknown hosts are refused in static mode, and stay refused.
    let mine = "mode = \"static\"\n[unknown]\nverdict = \"allow-and-log\"";
    assert_eq!(with(mine, "mode = \"dynamic\""), ((NetworkMode::Egress, Mode::Static), none));
}

#[test]
fn hosts_are_asked_about_where_nobody_chose_a_mode() {
    let asked = |policy: Result<Policy, PolicyError>| {
        let mut policy = policy.unwrap();
        policy.network.ask_about_hosts();
        (policy.network.mode.value, policy.network.allow.len())
    };
    assert_eq!(asked(user("")), (NetworkMode::Egress, 0));
    assert_eq!(asked(user("[network]\nmode = \"none\"\n")), (NetworkMode::None, 0));
    assert_eq!(asked(user("[network]\nmode = \"host\"\n")), (NetworkMode::Host, 0));
    assert_eq!(asked(under("network = \"none\"", "")), (NetworkMode::None, 0));
    assert_eq!(asked(under("network = \"egress\"", "")), (NetworkMode::Egress, 0));
    // A list that is not in force stays so.
    let logged = "[unknown]\nverdict = \"allow-and-log\"\n[network]\nallow = [\"x.example\"]\n";
    let asks = "[unknown]\nverdict = \"ask\"\n";
    let layers = [layer(Layer::User, logged), layer(Layer::Project, asks)];
    assert_eq!(asked(resolved(&layers)), (NetworkMode::None, 1));
    let [logged, _] = layers;
    assert_eq!(asked(resolved(&[logged, approved(Layer::Project, asks)])), (NetworkMode::Egress, 1));
    // An unapproved project may take the questions away.
    assert_eq!(asked(resolved(&[layer(Layer::Project, "[network]\nmode = \"none\"\n")])), (NetworkMode::None, 0));
}

#[test]
fn registry_preset_reaches_registries_and_forges_on_the_ports_of_the_web_only() {
    let policy = user("preset = \"registries\"\n").unwrap();
    assert_eq!(policy.network.mode.value, NetworkMode::Egress);
    let host = |text: &str| cofferdam_policy::Host::parse(text).unwrap();
    let reaches = |text: &str, port| policy.network.allow.iter().any(|rule| rule.endpoint.allows(&host(text), port));
    for name in [
        "registry.npmjs.org",
        "registry.yarnpkg.com",
        "pypi.org",
        "files.pythonhosted.org",
        "pypi.python.org",
        "crates.io",
        "index.crates.io",
        "static.crates.io",
        "rubygems.org",
        "index.rubygems.org",
        "github.com",
        "api.github.com",
        "codeload.github.com",
        "raw.githubusercontent.com",
        "gitlab.com",
        "bitbucket.org",
        "unpkg.com",
    ] {
        assert!(reaches(name, 80) && reaches(name, 443), "{name}");
        assert!(!reaches(name, 22), "{name}");
    }
    for name in ["example.com", "evilgithub.com", "me.github.io", "gist.githubusercontent.com", "api.cloudflare.com"] {
        assert!(!reaches(name, 443), "{name}");
    }
}

#[test]
fn shipped_hosts_are_written_as_a_policy_of_anyone_could() {
    for preset in PRESETS {
        let policy = user(&format!("preset = \"{}\"\n", preset.name)).unwrap();
        for rule in &policy.network.allow {
            let text = rule.endpoint.to_string();
            assert_eq!(Endpoint::parse_allow(&text).as_ref(), Ok(&rule.endpoint), "{text}");
            assert!(rule.endpoint.ports == Ports::Web && !matches!(rule.endpoint.target, Target::Net(_)), "{text}");
            assert!(!rule.reason.is_empty(), "{text}");
        }
    }
}

#[test]
fn a_ceiling_on_hosts_refuses_with_both_origins() {
    let beyond = |requirements: &str, text: &str| match under(requirements, text) {
        Err(error @ PolicyError::BeyondCeiling { .. }) => error.to_string(),
        other => panic!("{requirements}: {other:?}"),
    };
    let ask = "[network]\nmode = \"egress\"\nallow = [\"a.example.com:8443\"]\n";
    let told = beyond("[network_hosts]\ndeny = [\"**.example.com\"]\n", ask);
    assert!(told.contains("a.example.com:8443") && told.contains("user.toml:3"), "{told}");
    assert!(told.contains("`**.example.com` is denied") && told.contains("requirements.toml:2"), "{told}");
    for within in
        ["[network_hosts]\nwithin = [\"*.example.org:*\"]\n", "[network_hosts]\nwithin = [\"*.example.com\"]\n"]
    {
        let told = beyond(within, ask);
        assert!(told.contains("hosts within") && told.contains("requirements.toml:2"), "{told}");
    }
    let told = beyond("[network_hosts]\nwithin = [\"*.example.com\"]\n", "preset = \"registries\"\n");
    assert!(told.contains("registries.toml"), "{told}");
    let told = beyond("network = \"none\"\n", ask);
    assert!(told.contains("network.mode") && told.contains("at most `none`"), "{told}");

    let policy = under("[network_hosts]\nwithin = [\"*.example.com:*\"]\ndeny = [\"b.example.com\"]\n", ask).unwrap();
    assert_eq!(policy.network.within.len(), 1);
    assert_eq!(policy.network.deny[0].origin.layer, Layer::Requirements);
    assert!(Ceilings::parse("r", "[network_hosts]\nwithin = [\"0x7f.1\"]\n").is_err());
    assert!(Ceilings::parse("r", "[network_hosts]\nallow = []\n").is_err());
}

#[test]
fn an_exported_network_means_the_same() {
    let policy = user(EVERYTHING).unwrap();
    let text = export(&policy, &places()).to_toml();
    let again = user(&text).unwrap();
    assert_eq!(differences(&policy, &again, &places()), [], "{text}");
    assert_eq!(allowed(&again), allowed(&policy));
    assert_eq!(again.network.credentials.len(), 2);
    let grants = |policy: &Policy| policy.network.sockets.iter().map(|one| one.value.clone()).collect::<Vec<_>>();
    assert_eq!(grants(&again), grants(&policy));
}

#[test]
fn a_change_of_the_network_is_seen_with_its_direction() {
    let (before, after) = (Policy::built_in(), user(EVERYTHING).unwrap());
    let found: Vec<String> =
        differences(&before, &after, &places()).iter().map(|one| format!("{:?} {one}", one.direction)).collect();
    for expected in [
        "Wider network.mode: none -> egress",
        "Wider network.allow \"registry.npmjs.org\": absent -> listed",
        "Narrower network.deny \"evil.example\": absent -> listed",
        "Narrower network.max_connections: 4096 -> 100",
        "Narrower network.bytes: no limit -> 1G",
        "Wider network.ssh_agent: off -> ask",
        "Wider network.host_ports \"5432\": absent -> listed",
        "Wider network.sockets \"/run/postgresql/.s.PGSQL.5432\": absent -> listed",
    ] {
        assert!(found.iter().any(|line| line == expected), "{expected}\n{found:#?}");
    }
}

#[test]
fn the_network_is_shown_with_origins() {
    let lines = explain(&user(EVERYTHING).unwrap(), false).join("\n");
    for expected in
        ["network egress", "allow *.example.com:443", "allow api.github.com GET /repos/**", "deny evil.example"]
    {
        assert!(
            lines.lines().any(|line| line.contains(expected) && line.contains("user.toml:")),
            "{expected}\n{lines}"
        );
    }
    let lines = explain(&user("preset = \"registries\"\n").unwrap(), false).join("\n");
    assert!(lines.contains("shipped hosts") && lines.contains("profiles/presets/registries.toml"), "{lines}");
    let lines = explain(&user("[network]\nmode = \"host\"\n").unwrap(), false).join("\n");
    assert!(lines.contains("network host (the host's own, unfiltered)"), "{lines}");
    let lines = explain(&Policy::built_in(), false);
    assert!(!lines.iter().any(|line| line == "network"), "{lines:?}");
}
