//! Limits in every source: notation, layers, ceilings.

use cofferdam_policy::{
    Ceilings, Inputs, Layer, Policy, PolicyError, Scalar, explain, parse, parse_count, parse_cpu_set, parse_cpus,
    resolve,
};

use crate::{approved, layer, resolved};

/// Every limit with two values, as a file has them; the first is the tighter.
const EVERY: &[(&str, &str, &str)] = &[
    ("timeout", "\"10m\"", "\"601s\""),
    ("cpu", "\"5m\"", "\"1h\""),
    ("cpus", "0.5", "1.5"),
    ("cpu_set", "\"0-1,3\"", "\"0-3\""),
    ("memory", "\"512M\"", "\"2G\""),
    ("memory_high", "\"256M\"", "\"257M\""),
    ("open_files", "1024", "4096"),
    ("file_size", "\"1G\"", "\"2G\""),
    ("tmp_size", "\"64M\"", "\"1G\""),
    ("tmp_inodes", "1000", "10000"),
    ("storage", "\"1G\"", "\"1T\""),
    ("inodes", "5000", "5001"),
    ("output", "\"1M\"", "\"10M\""),
    ("io.read", "\"10M\"", "\"20M\""),
    ("io.write", "\"5M\"", "5242881"),
    ("io.read_ops", "100", "101"),
    ("io.write_ops", "50", "60"),
];

fn line(key: &str, value: &str) -> String {
    format!("limits.{key} = {value}")
}

/// The limit of this name that is in force, and its origin.
fn in_force(policy: &Policy, key: &str) -> Option<(String, String)> {
    let limit = policy.scalars_of("limits").find(|limit| limit.value.key() == key)?;
    Some((limit.value.to_string(), limit.origin.to_string()))
}

fn under(requirements: &str, user: &str) -> Result<Policy, PolicyError> {
    let ceilings = Ceilings::parse("requirements.toml", requirements).unwrap();
    resolve(&Inputs {
        layers: &[layer(Layer::User, user)],
        requirements: Some(&ceilings),
        places: None,
        ..Inputs::default()
    })
}

#[test]
fn every_limit_is_read_with_its_line_and_prints_as_it_is_written() {
    for column in [|row: &(_, &'static str, _)| row.1, |row: &(_, _, &'static str)| row.2] {
        let lines: Vec<String> = EVERY.iter().map(|row| line(row.0, column(row))).collect();
        let file = parse(Layer::User, "p.toml", &lines.join("\n")).unwrap();
        let read: Vec<_> =
            file.settings.iter().map(|setting| (setting.value.to_string(), setting.origin.line)).collect();
        let expected: Vec<_> = lines.iter().cloned().zip((1..).map(Some)).collect();
        assert_eq!(read, expected);
    }
    let policy = Policy { limits: cofferdam_policy::Limits::default(), ..Policy::built_in() };
    assert_eq!(policy.scalars_of("limits").count(), 0);
}

#[test]
fn an_amount_has_one_meaning_in_every_notation() {
    for (text, printed) in [
        ("cpus = 1", "limits.cpus = 1"),
        ("cpus = \"1.5\"", "limits.cpus = 1.5"),
        ("cpus = 1.50", "limits.cpus = 1.5"),
        ("cpus = 0.025", "limits.cpus = 0.025"),
        ("cpu_set = \"3,1-2,0,2\"", "limits.cpu_set = \"0-3\""),
        ("cpu_set = 4", "limits.cpu_set = 4"),
        ("cpu = 300", "limits.cpu = \"5m\""),
        ("memory = \"2048MiB\"", "limits.memory = \"2G\""),
        ("output = 1000", "limits.output = 1000"),
        ("io = { write = \"1K\" }", "limits.io.write = \"1K\""),
    ] {
        let file = parse(Layer::User, "p.toml", &format!("[limits]\n{text}")).unwrap();
        assert_eq!(file.settings[0].value.to_string(), printed);
    }
}

#[test]
fn a_limit_without_meaning_is_refused_and_the_message_helps() {
    for (text, says) in [
        ("memory = 512", "at least 4M: is a unit missing, as in `512M`?"),
        ("memory_high = 0", "at least 4M"),
        ("cpus = 0", "at least 0.01"),
        ("cpus = 0.009", "at least 0.01"),
        ("cpus = 0.0005", "a number of CPUs such as"),
        ("cpus = -1", "a number of CPUs such as"),
        ("cpus = nan", "a number of CPUs such as"),
        ("cpus = \"many\"", "a number of CPUs such as"),
        ("cpu_set = \"\"", "a list of CPUs such as"),
        ("cpu_set = \"0-\"", "a list of CPUs such as"),
        ("cpu_set = \"3-1\"", "a list of CPUs such as"),
        ("cpu_set = \"0, 1\"", "a list of CPUs such as"),
        ("cpu_set = \"0-9999\"", "a list of CPUs such as"),
        ("cpu = 0", "a time such as"),
        ("storage = 0", "at least 1; without a limit, leave the setting out"),
        ("tmp_size = 0", "at least 1;"),
        ("tmp_inodes = 0", "at least 1;"),
        ("inodes = 0", "at least 1;"),
        ("output = 0", "at least 1;"),
        ("open_files = 0", "at least 1;"),
        ("file_size = 0", "at least 1;"),
        ("io.read = 0", "at least 1;"),
        ("io.write = 0", "at least 1;"),
        ("io.read_ops = 0", "at least 1;"),
        ("io.write_ops = 0", "at least 1;"),
        ("memory = 2.0", "a size such as"),
        ("io.speed = 1", "unknown field `speed`"),
        ("swap = 0", "unknown field `swap`"),
    ] {
        let error = parse(Layer::User, "p.toml", &format!("[limits]\n{text}")).expect_err(text);
        assert!(error.to_string().contains(says) && error.to_string().contains("p.toml:2"), "{text}: {error}");
    }
}

#[test]
fn the_later_layer_wins_and_an_explanation_names_it() {
    for (key, tight, loose) in EVERY {
        let layers = [layer(Layer::Org, &line(key, tight)), layer(Layer::User, &line(key, loose))];
        let policy = resolved(&layers).unwrap();
        assert_eq!(in_force(&policy, key), Some((line(key, loose), "user: user.toml:1".to_owned())));
        let amount = loose.trim_matches('"');
        let lines = explain(&policy, false);
        let shown = lines.iter().find(|line| line.starts_with(&format!("  {key} {amount} "))).unwrap();
        assert!(shown.ends_with("user: user.toml:1"), "{shown}");
    }
}

#[test]
fn an_unapproved_project_may_lower_a_limit_and_never_raise_it() {
    for (key, tight, loose) in EVERY {
        let of_user = |value: &str| layer(Layer::User, &line(key, value));
        let lowered = resolved(&[of_user(loose), layer(Layer::Project, &line(key, tight))]).unwrap();
        assert_eq!(in_force(&lowered, key).unwrap().0, line(key, tight));
        assert!(lowered.held_back.is_empty());

        let raised = resolved(&[of_user(tight), layer(Layer::Project, &line(key, loose))]).unwrap();
        assert_eq!(in_force(&raised, key).unwrap().0, line(key, tight));
        assert_eq!(raised.held_back[0].rule, line(key, loose));

        let approved = resolved(&[of_user(tight), approved(Layer::Project, &line(key, loose))]).unwrap();
        assert_eq!(in_force(&approved, key).unwrap().0, line(key, loose));

        let first = resolved(&[layer(Layer::Project, &line(key, tight))]).unwrap();
        assert_eq!(in_force(&first, key).unwrap().0, line(key, tight), "any limit is tighter than none");
    }
}

#[test]
fn a_list_of_cpus_is_tighter_only_as_a_part_of_the_other() {
    let asked = |now: &str, asked: &str| {
        let layers = [layer(Layer::User, &line("cpu_set", now)), layer(Layer::Project, &line("cpu_set", asked))];
        resolved(&layers).unwrap().held_back.is_empty()
    };
    assert!(asked("\"0-3\"", "\"0-3\"") && asked("\"0-1,2-3\"", "\"1-2\"") && asked("\"0,2,4\"", "\"4,0\""));
    assert!(!asked("\"0-3\"", "\"4\"") && !asked("\"0-3\"", "\"3-4\"") && !asked("\"0,2\"", "\"0-2\""));
}

#[test]
fn a_limit_beyond_the_requirements_is_refused_and_one_within_or_absent_is_not() {
    for (key, tight, loose) in EVERY {
        let error = under(&line(key, tight), &line(key, loose)).expect_err(key);
        let PolicyError::BeyondCeiling { request, origin, ceiling } = &error else { panic!("{error}") };
        assert_eq!((request.as_str(), origin.to_string().as_str()), (line(key, loose).as_str(), "user: user.toml:1"));
        assert_eq!(ceiling.value, format!("at most `{}`", line(key, tight)));
        assert_eq!(ceiling.origin.to_string(), "requirements: requirements.toml:1");

        let within = under(&line(key, loose), &line(key, tight)).unwrap();
        assert_eq!(in_force(&within, key), Some((line(key, tight), "user: user.toml:1".to_owned())));
        let absent = under(&line(key, tight), "").unwrap();
        let at_the_ceiling = Some((line(key, tight), "requirements: requirements.toml:1".to_owned()));
        assert_eq!(in_force(&absent, key), at_the_ceiling, "what nobody asked for follows the ceiling");
    }
}

#[test]
fn variables_set_limits() {
    let with = |name: &str, value: &str| {
        let environment = [(name.to_owned(), value.to_owned())];
        resolve(&Inputs { environment: &environment, ..Inputs::default() })
    };
    for (name, value, key, limit) in [
        ("COFFERDAM_TIMEOUT", "2m", "timeout", "limits.timeout = \"2m\""),
        ("COFFERDAM_MEMORY", "1G", "memory", "limits.memory = \"1G\""),
        ("COFFERDAM_CPUS", "0.5", "cpus", "limits.cpus = 0.5"),
        ("COFFERDAM_OUTPUT", "10M", "output", "limits.output = \"10M\""),
    ] {
        let policy = with(name, value).unwrap();
        assert_eq!(in_force(&policy, key), Some((limit.to_owned(), format!("environment: {name}"))));
    }
    assert_eq!(with("COFFERDAM_PROCESSES", "25").unwrap().process.max.unwrap().value, 25);
    for (name, value) in [
        ("COFFERDAM_MEMORY", "lots"),
        ("COFFERDAM_MEMORY", "512"),
        ("COFFERDAM_MEMORY", ""),
        ("COFFERDAM_CPUS", "0"),
        ("COFFERDAM_CPUS", "1,5"),
        ("COFFERDAM_OUTPUT", "-1"),
        ("COFFERDAM_OUTPUT", "0"),
        ("COFFERDAM_PROCESSES", "0"),
        ("COFFERDAM_PROCESSES", "+5"),
        ("COFFERDAM_PROCESSES", "4294967296"),
    ] {
        let error = with(name, value).expect_err(name);
        assert!(matches!(error, PolicyError::Value { .. }), "{name}={value}: {error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    let error = with("COFFERDAM_CPU", "1").expect_err("unknown");
    assert_eq!(error.hint().as_deref(), Some("did you mean `COFFERDAM_CPUS`?"));
}

#[test]
fn flags_set_limits_and_are_checked_like_files() {
    let ask = |given: &[(&str, &str)]| resolve(&Inputs { flags: &crate::flags(given), ..Inputs::default() });
    let policy = ask(&[
        ("--timeout", "10m"),
        ("--memory", "1G"),
        ("--cpus", "1.5"),
        ("--cpu-time", "5m"),
        ("--max-processes", "25"),
        ("--open-files", "256"),
        ("--storage", "2G"),
        ("--max-output", "1M"),
    ])
    .unwrap();
    let of_flags = policy.scalars_of("limits").filter(|limit| limit.origin.layer == Layer::Flag);
    let set: Vec<_> = of_flags.map(|limit| format!("{} [{}]", limit.value, limit.origin.source)).collect();
    assert_eq!(
        set,
        [
            "limits.timeout = \"10m\" [--timeout]",
            "limits.cpu = \"5m\" [--cpu-time]",
            "limits.cpus = 1.5 [--cpus]",
            "limits.memory = \"1G\" [--memory]",
            "limits.open_files = 256 [--open-files]",
            "limits.storage = \"2G\" [--storage]",
            "limits.output = \"1M\" [--max-output]",
        ]
    );
    assert_eq!(policy.process.max.unwrap().origin.to_string(), "flag: --max-processes");
    for mistake in [
        ("--memory", "512"),
        ("--cpus", "0"),
        ("--max-processes", "0"),
        ("--open-files", "0"),
        ("--open-files", "15"),
        ("--storage", "0"),
        ("--max-output", "0"),
    ] {
        let error = ask(&[mistake]).expect_err("a mistake");
        assert!(matches!(error, PolicyError::Value { .. }) && error.to_string().contains("flag: --"), "{error}");
    }
    for flag in ["--timeout", "--cpu-time", "--ask-timeout"] {
        let by_hand = cofferdam_policy::BY_HAND.iter().find(|by_hand| by_hand.flag == flag).unwrap();
        assert_eq!(by_hand.of_flag("0s".as_ref()).unwrap_err().hint(), "write a time such as `90s`, `10m` or `2h`");
    }
}

#[test]
fn only_a_file_of_a_terabyte_meets_the_default() {
    let policy = Policy::built_in();
    let limits: Vec<_> = policy.scalars_of("limits").map(|limit| limit.value).collect();
    assert_eq!(limits, [Scalar::FileSize(64 << 30)]);
}

#[test]
fn numbers_are_read_strictly() {
    assert_eq!((parse_cpus("2"), parse_cpus("0.5"), parse_cpus("12.025")), (Some(2000), Some(500), Some(12025)));
    for text in ["", ".", ".5", "1.", "1.2345", "+1", "-1", "1e3", "4294968", "one"] {
        assert_eq!(parse_cpus(text), None, "{text}");
    }
    assert_eq!(parse_cpu_set("0,2-3,8191"), Some(vec![0..=0, 2..=3, 8191..=8191]));
    assert_eq!((parse_count("7"), parse_count("7k"), parse_count("+7"), parse_count("")), (Some(7), None, None, None));
}
