//! Properties over random policies.

use std::collections::BTreeSet;
use std::path::Component;
use std::time::Duration;

use cofferdam_policy::{
    Access, Ceilings, ExpandedRule, FileRule, Hold, Inputs, Layer, LayerInput, Limits, Mode, Network, OnUnknown,
    PathExpr, Policy, RuleIndex, Ruled, Scalar, Setting, hold_of, index_of, parse, parse_count, parse_cpu_set,
    parse_cpus, parse_size, parse_time, resolve, rules_in_force,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::{approved, layer, places, resolved};

pub(crate) const PATHS: &[&str] = &[
    "/opt",
    "/",
    "~",
    "~/.ssh",
    "~/.ssh/id",
    "./",
    "./src",
    "./.env",
    "./.claude",
    "{git}",
    "{git}/hooks",
    "{git}/hooks/x",
    "~/.npmrc",
    "/etc/shadow",
    "/home/u/p/.claude",
    "./.CLAUDE",
    "${CARGO_HOME:-~/.cargo}/registry",
    "~/.cargo",
];

const TOP: &[&str] = &[
    "preset = \"cargo\"",
    "isolation = \"none\"",
    "isolation = \"process\"",
    "isolation = \"full\"",
    "mode = \"static\"",
    "mode = \"dynamic\"",
    "debug = true",
    "debug = false",
    "keeper = \"strict\"",
    "keeper = \"report\"",
    "transaction_mode = \"overlay\"",
    "transaction_mode = \"copy\"",
    "transaction = true",
    "transaction = \"auto\"",
    "transaction = false",
    "project = \"read\"",
    "project = \"overlay\"",
    "project = \"write\"",
];

const TABLES: &[&str] = &[
    "audit.keep = \"30d\"",
    "audit.keep = \"forever\"",
    "unknown.verdict = \"deny\"",
    "unknown.verdict = \"ask\"",
    "unknown.verdict = \"allow-and-log\"",
    "process.max = 5",
    "process.max = 500",
    "process.allow_fork = true",
    "process.allow_fork = false",
    "process.allow_exec = false",
    "process.executables = [\"sh\"]",
    "process.executables = [\"git\", \"cargo\"]",
    "limits.timeout = 10",
    "limits.timeout = 1000",
    "limits.cpu = 7",
    "limits.cpu = 70",
    "limits.cpus = 0.5",
    "limits.cpus = \"2\"",
    "limits.cpu_set = \"0-1,3\"",
    "limits.cpu_set = \"1-2\"",
    "limits.memory = \"100M\"",
    "limits.memory = \"1G\"",
    "limits.memory_high = \"50M\"",
    "limits.io.read = \"1M\"",
    "limits.io.read = \"9M\"",
    "limits.io.write = \"1M\"",
    "limits.io.read_ops = 10",
    "limits.io.write_ops = 10",
    "limits.open_files = 20",
    "limits.open_files = 2000",
    "limits.file_size = \"1G\"",
    "limits.file_size = \"1T\"",
    "limits.tmp_size = \"1M\"",
    "limits.tmp_inodes = 100",
    "limits.storage = \"1G\"",
    "limits.storage = \"2G\"",
    "limits.inodes = 100",
    "limits.output = 1000",
    "limits.output = \"1M\"",
    "network.mode = \"none\"",
    "network.mode = \"egress\"",
    "network.mode = \"host\"",
    "network.allow = [\"a.example:22\", { host = \"*.b.example\", methods = [\"GET\"], paths = [\"/x/**\"] }]",
    "network.allow = [\"10.0.0.0/8:*\", \"[2001:db8::]/32:80\"]",
    "network.deny = [\"**.b.example\", { host = \"a.example\", reason = \"a \\\"reason\\\"\" }]",
    "network.max_connections = 5",
    "network.max_connections = 5000",
    "network.queries_per_second = 7",
    "network.queries_per_second = 700",
    "network.bytes = \"1G\"",
    "network.bytes = \"2G\"",
    "network.idle_timeout = \"1m\"",
    "network.idle_timeout = \"1d\"",
    "network.header_timeout = 3",
    "network.header_timeout = 300",
    "network.publish = [\"8080:80\"]",
    "network.publish = [\"8080\", \"9000\"]",
    "network.host_ports = [5432]",
    "network.sockets = [\"/run/x\", { path = \"~/agent\", optional = true }]",
    "network.ssh_agent = \"off\"",
    "network.ssh_agent = \"ask\"",
    "network.ssh_agent = \"allow\"",
    "syscalls.mode = \"deny-list\"",
    "syscalls.mode = \"allow-list\"",
    "syscalls.allow = [\"personality\"]",
    "syscalls.deny = [\"socket\"]",
    "syscalls.max_violations = 3",
    "syscalls.max_violations = 300",
    "env.mode = \"inherit\"",
    "env.mode = \"explicit\"",
    "env.pass = [\"GITHUB_TOKEN\", \"A*\"]",
    "env.block = [\"HOME\"]",
    "env.set = { A = \"1\" }",
];

/// Policy files that parse: one line per key, paths in random lists.
pub(crate) fn policy_text() -> impl Strategy<Value = String> {
    let access = select(vec!["read", "write", "overlay", "deny", "protect"]);
    let files = vec((access, select(PATHS)), 0..6);
    (subsequence(TOP, 0..=TOP.len()), subsequence(TABLES, 0..=TABLES.len()), files).prop_map(|(top, tables, files)| {
        let mut lines: Vec<String> = Vec::new();
        for line in top.iter().chain(&tables) {
            let key = line.split(" = ").next().unwrap();
            if !lines.iter().any(|other| other.starts_with(&format!("{key} = "))) {
                lines.push((*line).to_owned());
            }
        }
        for access in ["read", "write", "overlay", "deny", "protect"] {
            let paths: Vec<_> = files.iter().filter(|(one, _)| *one == access).map(|(_, path)| path).collect();
            lines.push(format!("files.{access} = {paths:?}"));
        }
        lines.join("\n")
    })
}

fn no_more<T: PartialOrd>(with: Option<&Ruled<T>>, without: Option<&Ruled<T>>) -> bool {
    without.is_none_or(|without| with.is_some_and(|with| with.value <= without.value))
}

fn lets_unknown_hosts_through(policy: &Policy) -> bool {
    policy.mode.value == Mode::Dynamic && policy.unknown.verdict.value == OnUnknown::AllowAndLog
}

fn assert_no_wider(with: &Policy, without: &Policy) {
    assert!(with.project.value <= without.project.value);
    assert!(with.unknown.verdict.value <= without.unknown.verdict.value);
    assert!(!lets_unknown_hosts_through(with) || lets_unknown_hosts_through(without));
    assert_network_no_wider(&with.network, &without.network);
    assert!(with.debug.value <= without.debug.value);
    assert!(with.keeper.value <= without.keeper.value);
    assert!(with.transaction_mode.value <= without.transaction_mode.value);
    assert!(with.transaction.value <= without.transaction.value);
    assert!(with.process.allow_fork.value <= without.process.allow_fork.value);
    assert!(with.process.allow_exec.value <= without.process.allow_exec.value);
    assert!(with.env.mode.value <= without.env.mode.value);
    assert!(with.audit_keep.value >= without.audit_keep.value, "what a project did is not forgotten sooner for it");
    assert!(with.syscalls.max_violations.value <= without.syscalls.max_violations.value);
    assert!(no_more(with.process.max.as_ref(), without.process.max.as_ref()));
    assert_limits_no_wider(&with.limits, &without.limits);
    assert_eq!(with.syscalls.allow, without.syscalls.allow);
    assert_eq!(with.env.pass, without.env.pass);
    assert_eq!(with.env.set, without.env.set);
    assert_eq!(with.presets, without.presets);
    assert_eq!(with.none_approved, without.none_approved);
    assert_eq!(with.host_network_approved, without.host_network_approved);
    let programs = &without.process.executables;
    assert_eq!(programs.is_empty(), with.process.executables.is_empty());
    assert!(with.process.executables.iter().all(|one| programs.contains(one)));
    assert_eq!(with.isolation.value, without.isolation.value);

    // Static mode needs no list of what can be read: everything can.
    let is_grant =
        |rule: &&FileRule| rule.access > Access::Protect && rule.origin.source.as_ref() != "profiles/known.toml";
    let grants = |policy: &Policy| policy.files.iter().filter(is_grant).cloned().collect::<Vec<_>>();
    assert_eq!(grants(with), grants(without));
    let places = places();
    let (rules, fewer) = (rules_in_force(with, &places), rules_in_force(without, &places));
    let (index, fewer_index) = (index_of(rules.clone()), index_of(fewer.clone()));
    for path in PATHS.iter().flat_map(|path| PathExpr::parse(path).unwrap().expand(&places)) {
        let access =
            |rules: &RuleIndex<ExpandedRule>| rules.deciding(&path).map_or(Access::Read, |rule| rule.rule.access);
        assert!(access(&index) <= access(&fewer_index), "{}", path.display());
        assert!(
            hold_of(&fewer, &fewer_index, &path) == &Hold::Nothing || hold_of(&rules, &index, &path) != &Hold::Nothing,
            "{}",
            path.display()
        );
    }
}

fn assert_network_no_wider(with: &Network, without: &Network) {
    assert!(with.mode.value <= without.mode.value);
    assert!(with.ssh_agent.value <= without.ssh_agent.value);
    assert!(with.max_connections.value <= without.max_connections.value);
    assert!(with.queries_per_second.value <= without.queries_per_second.value);
    assert!(with.idle_timeout.value <= without.idle_timeout.value);
    assert!(with.header_timeout.value <= without.header_timeout.value);
    assert!(no_more(with.bytes.as_ref(), without.bytes.as_ref()));
    assert_eq!(with.allow, without.allow);
    assert_eq!(with.publish, without.publish);
    assert_eq!(with.host_ports, without.host_ports);
    assert_eq!(with.sockets, without.sockets);
    assert!(without.deny.iter().all(|rule| with.deny.contains(rule)));
}

fn numbers(limits: &Limits) -> [Option<&Ruled<u64>>; 14] {
    [
        limits.cpu_seconds.as_ref(),
        limits.memory.as_ref(),
        limits.memory_high.as_ref(),
        limits.io_read.as_ref(),
        limits.io_write.as_ref(),
        limits.io_read_ops.as_ref(),
        limits.io_write_ops.as_ref(),
        limits.open_files.as_ref(),
        limits.file_size.as_ref(),
        limits.tmp_size.as_ref(),
        limits.tmp_inodes.as_ref(),
        limits.storage.as_ref(),
        limits.inodes.as_ref(),
        limits.output.as_ref(),
    ]
}

fn assert_limits_no_wider(with: &Limits, without: &Limits) {
    assert!(no_more(with.timeout.as_ref(), without.timeout.as_ref()));
    assert!(no_more(with.cpu_millis.as_ref(), without.cpu_millis.as_ref()));
    for (with, without) in numbers(with).into_iter().zip(numbers(without)) {
        assert!(no_more(with, without));
    }
    if let Some(without) = &without.cpu_set {
        let allowed = cpus(&without.value);
        assert!(with.cpu_set.as_ref().is_some_and(|with| cpus(&with.value).is_subset(&allowed)));
    }
}

fn cpus(list: &str) -> BTreeSet<u32> {
    parse_cpu_set(list).unwrap().into_iter().flatten().collect()
}

/// A list of CPUs as a careless person writes it: unsorted, CPUs twice.
fn cpu_list() -> impl Strategy<Value = String> {
    let range = (0u32..100, 0u32..5).prop_map(|(first, more)| match more {
        0 => first.to_string(),
        _ => format!("{first}-{}", first + more),
    });
    vec(range, 1..8).prop_map(|ranges| ranges.join(","))
}

fn in_file(line: &str) -> Scalar {
    let mut settings = parse(Layer::User, "x", line).unwrap_or_else(|error| panic!("{line}: {error}")).settings;
    match settings.pop().map(|setting| setting.value) {
        Some(Setting::Scalar(limit)) => limit,
        other => panic!("{line}: {other:?}"),
    }
}

/// Any limit with a value that a file may have.
fn limit() -> impl Strategy<Value = Scalar> {
    let seconds = 1..=100 * 366 * 86_400u64;
    let memory = (4u64 << 20)..;
    let some = 1u64..;
    let count = 1..=i64::MAX.unsigned_abs();
    prop_oneof![
        seconds.clone().prop_map(|time| Scalar::Timeout(Duration::from_secs(time))),
        seconds.prop_map(Scalar::CpuSeconds),
        (10u32..).prop_map(Scalar::CpuMillis),
        cpu_list().prop_map(|list| in_file(&format!("limits.cpu_set = {list:?}"))),
        memory.clone().prop_map(Scalar::Memory),
        memory.prop_map(Scalar::MemoryHigh),
        some.clone().prop_map(Scalar::IoRead),
        some.clone().prop_map(Scalar::IoWrite),
        count.clone().prop_map(Scalar::IoReadOps),
        count.clone().prop_map(Scalar::IoWriteOps),
        count.clone().prop_map(Scalar::OpenFiles),
        some.clone().prop_map(Scalar::FileSize),
        some.clone().prop_map(Scalar::TmpSize),
        count.clone().prop_map(Scalar::TmpInodes),
        some.clone().prop_map(Scalar::Storage),
        count.prop_map(Scalar::Inodes),
        some.prop_map(Scalar::Output),
    ]
}

proptest! {
    #[test]
    fn the_parser_never_panics(text in any::<String>(), near in "[a-z_\\[\\]={}\",.0-9 \n]{0,80}") {
        for text in [text, near] {
            parse(Layer::User, "x", &text).map_or_else(|error| { error.hint(); }, |_| ());
            Ceilings::parse("x", &text).map_or_else(|error| { error.hint(); }, |_| ());
        }
    }

    #[test]
    fn a_damaged_policy_never_panics(text in policy_text(), at in any::<prop::sample::Index>(), junk in any::<char>()) {
        let mut characters: Vec<char> = text.chars().collect();
        let at = at.index(characters.len());
        characters[at] = junk;
        let text: String = characters.into_iter().collect();
        parse(Layer::User, "x", &text).map_or_else(|error| { error.hint(); }, |_| ());
    }

    #[test]
    fn a_path_never_climbs(text in any::<String>(), near in "[~./*${}:A-C-]{0,12}", value in "[./a]{0,6}") {
        let mut places = places();
        places.variables = ["A", "B", "C"].map(|name| (name.to_owned(), value.clone().into())).to_vec();
        for text in [text, near] {
            let Ok(path) = PathExpr::parse(&text) else { continue };
            for path in path.expand(&places) {
                prop_assert!(path.is_absolute());
                prop_assert!(!path.components().any(|component| component == Component::ParentDir));
            }
        }
    }

    #[test]
    fn a_limit_prints_as_a_file_would_have_it(limit in limit()) {
        prop_assert_eq!(in_file(&limit.to_string()), limit);
    }

    #[test]
    fn an_amount_that_is_read_reads_the_same_when_printed(text in any::<String>(), near in "[0-9.,+KMGTsmhdib-]{0,24}") {
        for text in [text, near] {
            if let Some(thousandths) = parse_cpus(&text) {
                prop_assert_eq!(parse_cpus(&Scalar::CpuMillis(thousandths).amount()), Some(thousandths));
            }
            if let Some(bytes) = parse_size(&text) {
                prop_assert_eq!(parse_size(&Scalar::Output(bytes).amount()), Some(bytes));
            }
            if let Some(time) = parse_time(&text) {
                prop_assert_eq!(parse_time(&Scalar::Timeout(time).amount()), Some(time));
            }
            if let Some(count) = parse_count(&text) {
                prop_assert_eq!(parse_count(&Scalar::OpenFiles(count).amount()), Some(count));
            }
            if let Some(ranges) = parse_cpu_set(&text) {
                prop_assert!(!ranges.is_empty());
            }
        }
    }

    #[test]
    fn a_list_of_cpus_is_sorted_and_apart_and_names_the_same_cpus(list in cpu_list()) {
        let named: BTreeSet<u32> = list.split(',').flat_map(cpus).collect();
        prop_assert_eq!(cpus(&list), named);
        let ranges = parse_cpu_set(&list).unwrap();
        prop_assert!(ranges.windows(2).all(|pair| *pair[0].end() + 1 < *pair[1].start()), "{ranges:?}");
        let Scalar::CpuSet(kept) = in_file(&format!("limits.cpu_set = {list:?}")) else { panic!("{list}") };
        prop_assert_eq!(parse_cpu_set(&kept), Some(ranges));
    }

    #[test]
    fn no_request_gets_past_the_maxima_of_a_chosen_preset(user in policy_text(), project in policy_text()) {
        let layers = [layer(Layer::User, &format!("preset = \"tool\"\n{}", user.replace("preset = \"cargo\"", ""))),
            layer(Layer::Org, "allow_isolation_none = true"), approved(Layer::Project, &project)];
        if let Ok(policy) = resolved(&layers) {
            prop_assert!(policy.process.max.unwrap().value <= 500);
            prop_assert!(policy.limits.timeout.unwrap().value.as_secs() <= 600);
            prop_assert!(policy.limits.cpu_millis.unwrap().value <= 2000);
            prop_assert!(policy.limits.memory.unwrap().value <= 2 << 30);
            prop_assert!(policy.limits.open_files.unwrap().value <= 4096);
            prop_assert!(policy.limits.output.unwrap().value <= 10 << 20);
        }
    }

    #[test]
    fn an_unapproved_layer_never_widens(user in policy_text(), project in policy_text(), local in policy_text(), kept in any::<bool>()) {
        let mut others = vec![layer(Layer::User, &user), layer(Layer::Org, "allow_isolation_none = true")];
        if kept {
            others.push(approved(Layer::ProjectLocal, &local));
        }
        let without = resolved(&others).unwrap();
        others.push(layer(Layer::Project, &project));
        let with = resolved(&others).unwrap();
        assert_no_wider(&with, &without);
    }

    #[test]
    fn ceilings_hold(user in policy_text()) {
        let ceilings = Ceilings::parse("r", "isolation = \"process\"\ndebug = false\n[process]\nmax = 100\n[limits]\n\
            timeout = 100\nmemory = \"200M\"\ncpus = 1\ncpu_set = \"0-2\"\nfile_size = \"2G\"\nio.read = \"2M\"\n[files]\nwrite_within = [\"./\"]\n[syscalls]\nmode = \"allow-list\"").unwrap();
        let layers: [LayerInput; 1] = [layer(Layer::User, &user)];
        let places = places();
        let inputs = Inputs { layers: &layers, requirements: Some(&ceilings), places: Some(&places), ..Inputs::default() };
        if let Ok(policy) = resolve(&inputs) {
            prop_assert!(!policy.debug.value);
            prop_assert!(policy.isolation.value >= cofferdam_policy::Isolation::Process);
            prop_assert!(policy.process.max.unwrap().value <= 100);
            prop_assert!(policy.limits.timeout.unwrap().value.as_secs() <= 100);
            prop_assert!(policy.limits.memory.unwrap().value <= 200 << 20);
            prop_assert!(policy.limits.cpu_millis.unwrap().value <= 1000);
            prop_assert!(cpus(&policy.limits.cpu_set.unwrap().value).last() <= Some(&2));
            prop_assert!(policy.limits.file_size.unwrap().value <= 2 << 30);
            prop_assert!(policy.limits.io_read.unwrap().value <= 2 << 20);
            for rule in policy.files.iter().filter(|rule| rule.access > Access::Read) {
                prop_assert!(rule.path.expand(&places).iter().all(|path| path.starts_with("/home/u/p")), "{}", rule.path);
            }
        }
    }
}
