//! Layers: order, trust, variables, flags.

use std::time::Duration;

use cofferdam_policy::{
    Access, Circumstances, Inputs, Isolation, Layer, LayerInput, NetworkMode, OnUnknown, Policy, PolicyError,
    Transaction, explain, index_of, resolve, rules_in_force,
};

use crate::{approved, layer, places, resolved};

fn with_environment(variables: &[(&str, &str)]) -> Result<Policy, PolicyError> {
    let environment: Vec<_> = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    resolve(&Inputs { environment: &environment, ..Inputs::default() })
}

fn held_back(policy: &Policy) -> Vec<&str> {
    policy.held_back.iter().map(|held| held.rule.as_str()).collect()
}

#[test]
fn nothing_said_gives_the_built_in_policy() {
    assert_eq!(resolve(&Inputs::default()).unwrap(), Policy::built_in());
}

#[test]
fn the_later_layer_wins_and_lists_add_up() {
    let user = layer(Layer::User, "debug = true\n[files]\nread = [\"/u\"]\n[limits]\ntimeout = 5");
    let org = layer(Layer::Org, "debug = false\n[files]\nread = [\"/o\"]\n[limits]\ntimeout = 9");
    // Order of inputs does not matter; order of layers does.
    let policy = resolved(&[user, org]).unwrap();
    assert!(policy.debug.value);
    assert_eq!(policy.debug.origin.to_string(), "user: user.toml:1");
    assert_eq!(policy.limits.timeout.as_ref().map(|time| time.value), Some(Duration::from_secs(5)));
    let named = |path: &str| policy.files.iter().any(|rule| rule.path.as_str() == path);
    assert!(named("/u") && named("/o"));
}

#[test]
fn an_unapproved_project_policy_only_tightens() {
    let text = "preset = \"cargo\"\nisolation = \"process\"\ndebug = false\nproject = \"read\"\n\
        [files]\nwrite = [\"/opt\"]\nread = [\"~/.ssh\"]\noverlay = [\"~/x\"]\ndeny = [\"./d\"]\nprotect = [\"./k\"]\n\
        [process]\nmax = 10\nallow_fork = false\n[limits]\ntimeout = 60\n\
        [syscalls]\nmode = \"deny-list\"\nallow = [\"personality\"]\ndeny = [\"socket\"]\nmax_violations = 60\n\
        [env]\nmode = \"inherit\"\npass = [\"GITHUB_TOKEN\"]\nblock = [\"X_*\"]\nset = { A = \"b\" }";
    let policy = resolved(&[layer(Layer::Project, text)]).unwrap();
    assert_eq!(
        held_back(&policy),
        [
            "preset = \"cargo\"",
            "isolation = \"process\"",
            "files.read = \"~/.ssh\"",
            "files.write = \"/opt\"",
            "files.overlay = \"~/x\"",
            "syscalls.mode = \"deny-list\"",
            "syscalls.max_violations = 60",
            "syscalls.allow = \"personality\"",
            "env.mode = \"inherit\"",
            "env.pass = \"GITHUB_TOKEN\"",
            "env.set.A = ...",
        ]
    );
    assert!(!policy.debug.value && !policy.process.allow_fork.value);
    assert_eq!(policy.project.value, Access::Read);
    assert_eq!(policy.isolation.value, Isolation::Full);
    assert!(policy.presets.is_empty());
    assert_eq!(policy.held_back[0].origin.to_string(), "project: project.toml:1");

    let policy = resolved(&[approved(Layer::Project, text)]).unwrap();
    assert_eq!(held_back(&policy), [""; 0]);
    assert_eq!(policy.isolation.value, Isolation::Process);
    assert!(policy.env.lets_through("GITHUB_TOKEN"));
}

#[test]
fn an_unapproved_protect_uncovers_no_secret() {
    for path in ["~/.ssh", "~/.ssh/id_rsa", "/etc/shadow", "./.env", "./.ENV.local"] {
        let policy = resolved(&[layer(Layer::Project, &format!("[files]\nprotect = [\"{path}\"]"))]).unwrap();
        assert_eq!(held_back(&policy), [format!("files.protect = \"{path}\"")]);
    }
}

#[test]
fn an_unapproved_list_of_programs_only_narrows() {
    let user = layer(Layer::User, "[process]\nexecutables = [\"cargo\", \"git\"]");
    let names = |policy: &Policy| policy.process.executables.iter().map(|one| one.value.clone()).collect::<Vec<_>>();

    let project = layer(Layer::Project, "[process]\nexecutables = [\"git\", \"sh\"]");
    let policy = resolved(&[user.clone(), project.clone()]).unwrap();
    assert_eq!(names(&policy), ["git"]);
    assert_eq!(held_back(&policy), ["process.executables = [\"sh\"]"]);

    let disjoint = layer(Layer::Project, "[process]\nexecutables = [\"sh\"]");
    assert_eq!(names(&resolved(&[user.clone(), disjoint]).unwrap()), ["cargo", "git"], "never empty: that means all");

    let local = approved(Layer::ProjectLocal, "[process]\nexecutables = [\"cargo\"]");
    assert_eq!(names(&resolved(&[project.clone(), local]).unwrap()), ["cargo"], "order does not smuggle a program in");
    let alone = resolved(&[project]).unwrap();
    assert!(names(&alone).is_empty(), "a list gives what it names");
    assert_eq!(held_back(&alone), ["process.executables = [\"git\", \"sh\"]"]);
}

#[test]
fn an_unapproved_word_about_the_project_does_not_outrank_the_users() {
    let places = places();
    let given = |mine: &str, theirs: LayerInput| {
        let policy = resolved(&[layer(Layer::User, mine), theirs]).unwrap();
        let rules = rules_in_force(&policy, &places);
        index_of(rules).deciding("/home/u/p".as_ref()).unwrap().rule.access
    };
    for (mine, access) in [("deny", Access::Deny), ("read", Access::Read), ("overlay", Access::Overlay)] {
        for path in ["./", "~/p"] {
            let mine = format!("[files]\n{mine} = [\"{path}\"]");
            for theirs in ["write", "overlay", "read"].map(|access| format!("project = \"{access}\"")) {
                assert!(given(&mine, layer(Layer::Project, &theirs)) <= access, "{mine} {theirs}");
            }
            assert_eq!(given(&mine, approved(Layer::Project, "project = \"write\"")), Access::Write);
        }
    }
    assert_eq!(given("", layer(Layer::Project, "project = \"read\"")), Access::Read);
}

#[test]
fn what_an_unapproved_file_repeats_stays_whose_it_was() {
    let repeated =
        "mode = \"dynamic\"\nisolation = \"full\"\n[unknown]\nverdict = \"ask\"\n[process]\nallow_fork = true\n";
    let policy = resolved(&[layer(Layer::Project, repeated)]).unwrap();
    let layers = [&policy.mode.origin, &policy.isolation.origin, &policy.unknown.verdict.origin].map(|one| one.layer);
    assert_eq!(layers, [Layer::BuiltIn; 3]);
    assert!(policy.held_back.is_empty(), "{:?}", policy.held_back);
}

#[test]
fn isolation_is_not_an_unapproved_files_to_change() {
    let mine = "isolation = \"process\"\n[network]\nmode = \"host\"\nssh_agent = \"allow\"";
    let policy = resolved(&[layer(Layer::User, mine), layer(Layer::Project, "isolation = \"full\"")]).unwrap();
    assert_eq!(policy.isolation.value, Isolation::Process);
    assert_eq!(held_back(&policy), ["isolation = \"full\""]);
}

#[test]
fn what_answers_and_tells_of_questions_outside_is_no_projects_to_say() {
    let hook = "[unknown]\nhook = [\"/bin/true\"]";
    for make in [layer, approved] {
        for of_project in [Layer::Project, Layer::ProjectLocal] {
            let error = resolved(&[make(of_project, hook)]).expect_err("a project's hook");
            assert!(matches!(error, PolicyError::NotForProjects { .. }), "{error}");
        }
    }
    for of_operator in [Layer::User, Layer::Org] {
        assert!(resolved(&[layer(of_operator, hook)]).unwrap().unknown.hook.is_some(), "{of_operator:?}");
    }
    let told = "[unknown]\nbell = false\ndesktop = true";
    let policy = resolved(&[layer(Layer::Project, told)]).unwrap();
    assert_eq!(held_back(&policy), ["unknown.bell = false", "unknown.desktop = true"]);
    let policy = resolved(&[layer(Layer::User, told)]).unwrap();
    assert!(!policy.unknown.bell.value && policy.unknown.desktop.value);
}

#[test]
fn an_unapproved_file_denies_hosts_whole() {
    let denied = "[network]\ndeny = [\"x.example\", { host = \"y.example\", methods = [\"DELETE\"] }]";
    let policy = resolved(&[layer(Layer::Project, denied)]).unwrap();
    assert_eq!(policy.network.deny.len(), 1);
    assert_eq!(policy.held_back.len(), 1);
}

#[test]
fn no_isolation_needs_the_orgs_approval() {
    let flags = crate::flags(&[("--isolation", "none")]);
    let ask = |layers: &[_]| resolve(&Inputs { layers, flags: &flags, ..Inputs::default() });
    assert!(matches!(ask(&[]), Err(PolicyError::NoneNotApproved { .. })));
    let org = [layer(Layer::Org, "allow_isolation_none = true")];
    assert_eq!(ask(&org).unwrap().isolation.value, Isolation::None);
    // A project cannot turn the sandbox off even where the org approved it.
    let both = [org[0].clone(), layer(Layer::Project, "isolation = \"none\"")];
    assert_eq!(resolved(&both).unwrap().isolation.value, Isolation::Full);
}

#[test]
fn a_transaction_is_written_as_a_switch_or_a_word() {
    use Transaction::{Auto, Off, Review};
    for (written, meant) in
        [("true", Review), ("false", Off), ("\"review\"", Review), ("\"auto\"", Auto), ("\"off\"", Off)]
    {
        let policy = resolved(&[layer(Layer::User, &format!("transaction = {written}"))]).unwrap();
        assert_eq!(policy.transaction.value, meant, "{written}");
        assert_eq!(policy.transaction.origin.to_string(), "user: user.toml:1");
    }
    for wrong in ["1", "\"yes\"", "[]"] {
        let error = resolved(&[layer(Layer::User, &format!("transaction = {wrong}"))]).expect_err(wrong);
        assert!(error.to_string().contains("\"review\", \"auto\" or \"off\""), "{error}");
    }
    for (word, meant) in [("review", Review), ("auto", Auto), ("off", Off), ("1", Review), ("false", Off)] {
        let flags = crate::flags(&[("--transaction", word)]);
        let policy = resolve(&Inputs { flags: &flags, ..Inputs::default() }).unwrap();
        assert_eq!(policy.transaction.value, meant, "--transaction={word}");
        let policy = with_environment(&[("COFFERDAM_TRANSACTION", word)]).unwrap();
        assert_eq!(policy.transaction.value, meant, "COFFERDAM_TRANSACTION={word}");
    }
    assert_eq!(resolved(&[]).unwrap().transaction.value, Off);
}

#[test]
fn an_unapproved_file_asks_for_a_transaction_and_never_ends_one() {
    let words = ["\"off\"", "\"auto\"", "\"review\""];
    for (rank, user) in words.iter().enumerate() {
        for (other, project) in words.iter().enumerate() {
            let (user, project) = (format!("transaction = {user}"), format!("transaction = {project}"));
            let policy = resolved(&[layer(Layer::User, &user), layer(Layer::Project, &project)]).unwrap();
            let setting = format!("transaction = \"{}\"", policy.transaction.value);
            assert_eq!(setting, if other > rank { project.clone() } else { user.clone() });
            let held: &[String] = if other < rank { &[project] } else { &[] };
            assert_eq!(held_back(&policy), held);
        }
    }
}

#[test]
fn flags_win_over_every_file() {
    let flags = crate::flags(&[
        ("--no-debug", "true"),
        ("--rw", "/w"),
        ("--blacklist", "/d"),
        ("--timeout", "7s"),
        ("--env", "A=2"),
        ("--preset", "go"),
    ]);
    let layers = [layer(Layer::User, "debug = false\n[env]\nset = { A = \"1\" }\n[limits]\ntimeout = 1")];
    let policy = resolve(&Inputs { layers: &layers, flags: &flags, ..Inputs::default() }).unwrap();
    assert!(policy.debug.value);
    assert_eq!(policy.limits.timeout.as_ref().map(|time| time.value.as_secs()), Some(7));
    assert_eq!(policy.env.set.iter().map(|set| set.value.1.as_str()).collect::<Vec<_>>(), ["2"]);
    let rw = policy.files.iter().find(|rule| rule.path.as_str() == "/w").unwrap();
    assert_eq!((rw.access, rw.origin.to_string().as_str(), rw.optional), (Access::Write, "flag: --rw", false));
    assert_eq!(policy.presets[0].value, "go");
}

#[test]
fn variables_are_a_layer_and_unknown_ones_are_errors() {
    let policy = with_environment(&[
        ("COFFERDAM", "1"),
        ("COFFERDAM_SESSION", "x"),
        ("PATH", "/bin"),
        ("COFFERDAM_ISOLATION", "process"),
        ("COFFERDAM_TIMEOUT", "2m"),
        ("COFFERDAM_PRESET", "cargo:node"),
        ("COFFERDAM_DEBUG", "0"),
        ("COFFERDAM_RW", "/a:~/b::${CARGO_HOME:-~/.cargo}/x"),
        ("COFFERDAM_BLACKLIST", "/secret*"),
    ])
    .unwrap();
    assert_eq!(policy.isolation.origin.to_string(), "environment: COFFERDAM_ISOLATION");
    assert_eq!(policy.presets.len(), 2);
    let rw = |rule: &&cofferdam_policy::FileRule| rule.origin.source == "COFFERDAM_RW";
    let paths: Vec<_> = policy.files.iter().filter(rw).map(|rule| rule.path.as_str()).collect();
    assert_eq!(paths, ["/a", "~/b", "${CARGO_HOME:-~/.cargo}/x"]);

    let error = with_environment(&[("COFFERDAM_TIME_OUT", "1")]).expect_err("unknown");
    assert_eq!(error.hint().as_deref(), Some("did you mean `COFFERDAM_TIMEOUT`?"));
    for (name, value) in [
        ("COFFERDAM_MODE", "dynamics"),
        ("COFFERDAM_ON_UNKNOWN", "yes"),
        ("COFFERDAM_NETWORK", "bridge"),
        ("COFFERDAM_ALLOW_HOST", "*.co.uk"),
        ("COFFERDAM_ALLOW_HOST", "a.example,*"),
        ("COFFERDAM_DENY_HOST", "0x7f.1"),
        ("COFFERDAM_SSH_AGENT", "on"),
        ("COFFERDAM_ISOLATION", "none"),
        ("COFFERDAM_ISOLATION", "FULL"),
        ("COFFERDAM_TIMEOUT", "never"),
        ("COFFERDAM_DEBUG", "maybe"),
        ("COFFERDAM_TRANSACTION", "maybe"),
        ("COFFERDAM_RW", "/a/*"),
        ("COFFERDAM_RO", "/a/../b"),
        ("COFFERDAM_PRESET", "nope"),
    ] {
        assert!(with_environment(&[(name, value)]).is_err(), "{name}={value}");
    }
}

#[test]
fn a_users_deny_beats_a_preset_on_the_same_path() {
    let text = "preset = \"cargo\"\n[files]\ndeny = [\"${CARGO_HOME:-~/.cargo}/registry\"]";
    let policy = resolved(&[layer(Layer::User, text)]).unwrap();
    let rules: Vec<_> = policy.files.iter().filter(|rule| rule.path.as_str().ends_with("}/registry")).collect();
    assert_eq!(
        rules.iter().map(|rule| (rule.access, rule.origin.layer)).collect::<Vec<_>>(),
        [(Access::Write, Layer::BuiltIn), (Access::Deny, Layer::User)]
    );
}

#[test]
fn an_explanation_names_every_origin_and_no_value_of_a_variable() {
    let text = "[files]\nwrite = [\"/opt\"]\n[env]\nset = { A = \"hunter2\" }";
    let policy =
        resolved(&[layer(Layer::User, text), layer(Layer::Project, "debug = false\n[files]\nwrite = [\"/x\"]")])
            .unwrap();
    let short = explain(&policy, false).join("\n");
    for part in ["user: user.toml:2", "project: project.toml:1", "held back", "shipped paths", "files.write = \"/x\""] {
        assert!(short.contains(part), "{part}\n{short}");
    }
    assert!(!short.contains("hunter2") && !short.contains("~/.ssh"));
    assert!(explain(&policy, true).join("\n").contains("~/.ssh"));
}

#[test]
fn what_is_not_enforced_yet_is_refused() {
    for name in ["COFFERDAM_ROOT", "COFFERDAM_TTL"] {
        assert!(matches!(with_environment(&[(name, "1")]), Err(PolicyError::Unbuilt { .. })), "{name}");
    }
}

/// The same layers for a run at a terminal, for one without, and for no run.
#[test]
fn a_run_without_a_terminal_denies_what_is_unknown_unless_a_layer_chose_to_ask() {
    let with = |text: &str, can_ask: Option<bool>| {
        let layers = [layer(Layer::User, text)];
        let circumstances = can_ask.map(|can_ask| Circumstances { can_ask });
        let policy = resolve(&Inputs { layers: &layers, circumstances, ..Inputs::default() }).unwrap();
        (policy.unknown.verdict.value, policy.network.mode.value)
    };
    let (ask, deny) = (OnUnknown::Ask, OnUnknown::Deny);
    assert_eq!(with("", None), (ask, NetworkMode::None));
    assert_eq!(with("", Some(true)), (ask, NetworkMode::Egress));
    assert_eq!(with("", Some(false)), (deny, NetworkMode::None));
    let relative = resolved(&[layer(Layer::User, "[unknown]\nhook = [\"bin/decide\"]")]).expect_err("relative");
    assert!(relative.to_string().contains("the absolute path of a program"), "{relative}");
    for chosen in ["[unknown]\nverdict = \"ask\"", "[unknown]\nhook = [\"/bin/true\"]"] {
        assert_eq!(with(chosen, Some(false)), (ask, NetworkMode::Egress), "{chosen}");
    }
    assert_eq!(with("mode = \"static\"", Some(true)).1, NetworkMode::None);
}

#[test]
fn a_run_hides_the_files_that_secrets_are_read_from() {
    let text = "[network]\nmode = \"egress\"\n[[network.credentials]]\nhost = \"api.example\"\nvariable = \"TOKEN\"\nfile = \"~/.token\"\n";
    let hidden = |circumstances| {
        let layers = [layer(Layer::User, text)];
        let policy = resolve(&Inputs { layers: &layers, circumstances, ..Inputs::default() }).unwrap();
        policy.files.iter().any(|rule| rule.path.as_str() == "~/.token" && rule.is_final)
    };
    assert!(hidden(Some(Circumstances { can_ask: true })) && !hidden(None));
}
