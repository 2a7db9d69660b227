//! The verdicts as tables, each row with its number in docs/attack-corpus.md, and as properties over any rules.

mod properties;

use core::net::IpAddr;

use cofferdam_policy::{
    Ceilings, Endpoint, Host, Inputs, Layer, LayerInput, Network, Origin, parse_authority, resolve,
};

use super::{Rules, Verdict, answered};

fn network_of(layer: Layer, table: &str, requirements: &str) -> Network {
    let text = format!("[network]\nmode = \"egress\"\n{table}\n");
    let layers = [LayerInput { layer, source: "policy.toml".to_owned(), text, trusted: true }];
    let ceilings = Ceilings::parse("requirements.toml", requirements).expect("requirements");
    let inputs = Inputs { layers: &layers, requirements: Some(&ceilings), ..Inputs::default() };
    resolve(&inputs).expect("a policy").network
}

const OWN: &str = "198.51.100.77";

fn rules(table: &str) -> Rules {
    Rules::new(&network_of(Layer::User, table, ""), vec![address(OWN), address("10.9.9.9")])
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn host(text: &str) -> Host {
    Host::parse(text).expect("a host")
}

/// What a proxy does with an authority off the wire: parse, decide, and check what the name resolved to.
fn reached(rules: &Rules, authority: &str, resolved: &[&str]) -> bool {
    let Ok((host, port)) = parse_authority(authority, None) else { return false };
    let found: Vec<IpAddr> = match &host {
        Host::Address(address) => vec![*address],
        Host::Name(_) => resolved.iter().map(|text| address(text)).collect(),
    };
    rules.host(&host, port).is_allowed() && rules.addresses(&host, port, &found).is_ok()
}

const PUBLIC: &str = "93.184.215.14";

/// Row of the attack list, rules, what is asked for, what its name resolves to, whether it is reached.
#[rustfmt::skip]
const TABLE: &[(&str, &str, &str, &[&str], bool)] = &[
    ("G2", "allow = []", "a.example:443", &[PUBLIC], false),
    ("G2", "", "a.example:443", &[PUBLIC], false),
    ("G4", "allow = [\"a.example\"]", "a.example:443", &[PUBLIC, "2606:4700::1"], true),
    ("G5", "allow = [\"a.example@10.0.0.1\"]", "a.example:443", &["10.0.0.1"], true),
    ("G5", "allow = [\"a.example@10.0.0.0/8\"]", "a.example:443", &["10.0.0.1", "10.2.0.1"], true),
    ("G5", "allow = [\"a.example@10.0.0.1\"]", "a.example:443", &["10.0.0.2"], false),
    ("G5", "allow = [\"a.example@10.0.0.1\"]", "a.example:443", &["10.0.0.1", "10.0.0.2"], false),
    ("G5", "allow = [\"a.example@10.0.0.1\"]", "a.example:443", &[PUBLIC], false),
    ("G5", "allow = [\"a.example@10.0.0.1\"]", "a.example:8443", &["10.0.0.1"], false),
    ("G5", "allow = [\"a.example@10.0.0.1\", \"b.example\"]", "b.example:443", &["10.0.0.1"], false),
    ("G5", "allow = [\"a.example@10.0.0.1\"]", "10.0.0.1:443", &[], false),
    ("G5", "allow = [\"a.example@0.0.0.0/0\"]", "a.example:443", &["10.0.0.1"], false),
    ("G5", "allow = [\"a.example@127.0.0.1\"]", "a.example:443", &["127.0.0.1"], false),
    ("G5", "allow = [\"a.example@0.0.0.0\"]", "a.example:443", &["0.0.0.0"], false),
    ("G5", "allow = [\"a.example@10.9.9.9\"]", "a.example:443", &["10.9.9.9"], false),
    ("G5", "allow = [\"a.example@169.254.1.1\"]", "a.example:443", &["169.254.1.1"], false),
    ("G5", "allow = [\"a.example@169.254.169.254\"]", "a.example:443", &["169.254.169.254"], false),
    ("G5", "allow = [\"a.example@224.0.0.1\"]", "a.example:443", &["224.0.0.1"], false),
    ("G6", "allow = [\"a.example@::ffff:127.0.0.1\"]", "a.example:443", &["::ffff:127.0.0.1"], false),
    ("G6", "allow = [\"a.example@64:ff9b::10.0.0.1\"]", "a.example:443", &["64:ff9b::10.0.0.1"], true),
    ("G6", "allow = [\"a.example@64:ff9b::127.0.0.1\"]", "a.example:443", &["64:ff9b::127.0.0.1"], false),
    ("G5", "allow = [\"a.example\"]\ndeny = [\"a.example@93.184.0.0/16\"]", "a.example:443", &[PUBLIC], false),
    ("G5", "allow = [\"a.example\"]\ndeny = [\"a.example@10.0.0.0/8\"]", "a.example:443", &[PUBLIC], true),
    ("G5", "allow = [\"a.example@10.0.0.1\"]\ndeny = [\"10.0.0.0/8\"]", "a.example:443", &["10.0.0.1"], false),
    ("G4", "allow = [\"a.example\"]", "a.example:443", &[PUBLIC, "fd00::1"], false),
    ("G4", "allow = [\"a.example\"]", "a.example:443", &["10.0.0.1", "2606:4700::1"], false),
    ("G5", "allow = [\"a.example\"]", "a.example:443", &["192.168.1.1"], false),
    ("G5", "allow = [\"a.example\"]", "a.example:443", &["127.0.0.1"], false),
    ("G6", "allow = [\"a.example\"]", "a.example:443", &["::ffff:10.0.0.1"], false),
    ("G6", "allow = [\"a.example\"]", "a.example:443", &["::10.0.0.1"], false),
    ("G6", "allow = [\"a.example\"]", "a.example:443", &["64:ff9b::10.0.0.1"], false),
    ("G6", "allow = [\"a.example\"]", "a.example:443", &["64:ff9b::8.8.8.8"], true),
    ("G6", "allow = [\"a.example\"]", "a.example:443", &["64:ff9b:1::10.0.0.1"], false),
    ("G6", "allow = [\"a.example\"]", "a.example:443", &["64:ff9b:1::8.8.8.8"], false),
    ("G6", "allow = [\"a.example\"]", "a.example:443", &["2002:a00:1::1"], false),
    ("G6", "allow = [\"a.example\"]", "a.example:443", &["2001:0:a00:1::f5ff:fffe"], false),
    ("G6", "allow = [\"a.example\"]", "a.example:443", &["2606:4700::5efe:10.0.0.1"], false),
    ("G6", "allow = [\"a.example\"]", "a.example:443", &["2606:4700::200:5efe:10.0.0.1"], false),
    ("G6", "allow = [\"[::ffff:0:0]/96\"]", "[::ffff:127.0.0.1]:80", &[], false),
    ("G7", "allow = [\"a.example\"]", "a.example:443", &["0.0.0.0"], false),
    ("G7", "allow = [\"a.example\"]", "a.example:443", &["::"], false),
    ("G7", "allow = [\"0.0.0.0\", \"[::]:80\"]", "0.0.0.0:80", &[], false),
    ("G7", "allow = [\"0.0.0.0\", \"[::]:80\"]", "[::]:80", &[], false),
    ("G8", "allow = [\"127.0.0.1\"]", "127.0.0.1:80", &[], true),
    ("G8", "allow = [\"127.0.0.1\"]", "2130706433:80", &[], false),
    ("G8", "allow = [\"127.0.0.1\"]", "0x7f000001:80", &[], false),
    ("G8", "allow = [\"127.0.0.1\"]", "0177.0.0.1:80", &[], false),
    ("G8", "allow = [\"127.0.0.1\"]", "127.1:80", &[], false),
    ("G8", "allow = [\"127.0.0.1\"]", "127.0.0.01:80", &[], false),
    ("G9", "allow = [\"a.example:*\"]", "a.example:80", &["169.254.169.254"], false),
    ("G9", "allow = [\"a.example:*\"]", "a.example:80", &["169.254.170.2"], false),
    ("G9", "allow = [\"a.example:*\"]", "a.example:80", &["169.254.170.23"], false),
    ("G9", "allow = [\"a.example:*\"]", "a.example:80", &["fd00:ec2::254"], false),
    ("G9", "allow = [\"a.example:*\"]", "a.example:80", &["fd20:ce::254"], false),
    ("G9", "allow = [\"a.example:*\"]", "a.example:80", &["168.63.129.16"], false),
    ("G9", "allow = [\"a.example:*\"]", "a.example:80", &["100.100.100.200"], false),
    ("G9", "allow = [\"a.example:*\"]", "a.example:80", &["192.0.0.192"], false),
    ("G9", "allow = [\"a.example:*\"]", "a.example:80", &["::ffff:169.254.169.254"], false),
    ("G9", "allow = [\"169.254.0.0/16:*\"]", "169.254.169.254:80", &[], false),
    ("G9", "allow = [\"169.254.0.0/16:*\"]", "169.254.1.1:80", &[], true),
    ("G9", "allow = [\"168.63.0.0/16\"]", "168.63.129.16:80", &[], false),
    ("G9", "allow = [\"168.63.0.0/16\"]", "168.63.129.17:80", &[], true),
    ("G9", "allow = [\"169.254.169.254\"]", "169.254.169.254:80", &[], true),
    ("G10", "allow = [\"a.example\"]", "a.example:443", &["100.64.0.1"], false),
    ("G10", "allow = [\"a.example\"]", "a.example:443", &["fc00::1"], false),
    ("G10", "allow = [\"a.example\"]", "a.example:443", &["fe80::1"], false),
    ("G10", "allow = [\"a.example\"]", "a.example:443", &["fec0::1"], false),
    ("G10", "allow = [\"a.example\"]", "a.example:443", &["169.254.1.1"], false),
    ("G10", "allow = [\"a.example\"]", "a.example:443", &["224.0.0.1"], false),
    ("G10", "allow = [\"a.example\"]", "a.example:443", &["ff02::1"], false),
    ("G10", "allow = [\"a.example\"]", "a.example:443", &["255.255.255.255"], false),
    ("G10", "allow = [\"a.example\"]", "a.example:443", &["198.18.0.1"], false),
    ("G10", "allow = [\"a.example\"]", "a.example:443", &["203.0.113.1"], false),
    ("G10", "allow = [\"a.example\"]", "a.example:443", &["240.0.0.1"], false),
    ("G10", "allow = [\"a.example\"]", "a.example:443", &["2001:db8::1"], false),
    ("G10", "allow = [\"a.example\"]", "a.example:443", &["4000::1"], false),
    ("G10", "allow = [\"a.example\"]", "a.example:443", &[OWN], false),
    ("G10", "allow = [\"a.example\"]", "a.example:443", &["10.9.9.9"], false),
    ("G10", "allow = [\"10.0.0.0/8\"]", "10.9.9.9:443", &[], false),
    ("G10", "allow = [\"10.9.9.9\"]", "10.9.9.9:443", &[], true),
    ("G10", "allow = [\"224.0.0.1\"]", "224.0.0.1:443", &[], false),
    ("G10", "allow = [\"a.example\", \"10.0.0.0/8\"]", "a.example:443", &["10.0.0.1"], true),
    ("G10", "allow = [\"a.example\", \"10.0.0.0/8:5432\"]", "a.example:443", &["10.0.0.1"], false),
    ("G10", "allow = [\"0.0.0.0/0:*\"]", "10.0.0.1:443", &[], false),
    ("G10", "allow = [\"0.0.0.0/0:*\"]", "93.184.215.14:443", &[], true),
    ("G10", "allow = [\"[::]/0:*\"]", "[fd00::1]:443", &[], false),
    ("G11", "allow = [\"a.example\"]", "a.example\0.evil.example:443", &[PUBLIC], false),
    ("G11", "allow = [\"a.example\"]", "evil.example\0a.example:443", &[PUBLIC], false),
    ("G12", "allow = [\"a.example\"]", "A.Example.:443", &[PUBLIC], true),
    ("G12", "allow = [\"**.example.com\"]\ndeny = [\"a.example.com\"]", "a.example.com.:443", &[PUBLIC], false),
    ("G12", "allow = [\"**.example.com\"]\ndeny = [\"a.example.com\"]", "A.EXAMPLE.COM:443", &[PUBLIC], false),
    ("G12", "allow = [\"a.example\"]", "[a.example]:443", &[PUBLIC], false),
    ("G13", "allow = [\"github.com\"]", "github.com:443", &[PUBLIC], true),
    ("G13", "allow = [\"github.com\"]", "evilgithub.com:443", &[PUBLIC], false),
    ("G13", "allow = [\"*.github.com\"]", "evilgithub.com:443", &[PUBLIC], false),
    ("G13", "allow = [\"*.github.com\"]", "github.com:443", &[PUBLIC], false),
    ("G13", "allow = [\"**.github.com\"]", "github.com:443", &[PUBLIC], true),
    ("G13", "allow = [\"github.com\"]", "github.com.evil.example:443", &[PUBLIC], false),
    ("G14", "allow = [\"a.example\"]", "a.example@evil.example:443", &[PUBLIC], false),
    ("G14", "allow = [\"a.example\"]", "u:p@a.example:443", &[PUBLIC], false),
    ("G15", "allow = [\"github.com\"]", "xn--gthub-n4a.com:443", &[PUBLIC], false),
    ("G15", "allow = [\"github.com\"]", "g\u{456}thub.com:443", &[PUBLIC], false),
    ("G15", "allow = [\"b\u{fc}cher.example\"]", "xn--bcher-kva.example:443", &[PUBLIC], true),
    ("G16", "allow = [\"[fe80::1]:80\"]", "[fe80::1]:80", &[], true),
    ("G16", "allow = [\"[fe80::1]:80\"]", "[fe80::1%eth0]:80", &[], false),
    ("G16", "allow = [\"[fe80::1]:80\"]", "[fe80::1%25eth0]:80", &[], false),
    ("G17", "allow = [\"a.example\"]", "a.example:22", &[PUBLIC], false),
    ("G17", "allow = [\"a.example:443\"]", "a.example:80", &[PUBLIC], false),
    ("G17", "allow = [\"a.example:22\"]", "a.example:22", &[PUBLIC], true),
    ("G17", "allow = [\"a.example:*\"]\ndeny = [\"a.example:22\"]", "a.example:22", &[PUBLIC], false),
    ("G17", "allow = [\"a.example:*\"]\ndeny = [\"a.example:22\"]", "a.example:443", &[PUBLIC], true),
    ("G17", "allow = [\"a.example\"]", "a.example:443:22", &[PUBLIC], false),
    ("G18", "allow = [\"a.example\"]", "93.184.215.14:443", &[], false),
    ("G18", "allow = [\"**.example.com:*\"]", "[2606:4700::1]:443", &[], false),
    ("G18", "allow = [\"93.184.215.14\"]", "93.184.215.14:443", &[], true),
    ("G18", "allow = [\"93.184.215.0/24\"]", "93.184.215.14:22", &[], false),
    ("R2.4", "allow = [\"a.example\"]\ndeny = [\"93.184.0.0/16\"]", "a.example:443", &[PUBLIC], false),
    ("R2.4", "allow = [\"a.example\"]\ndeny = [\"93.184.0.0/16\"]", "a.example:443", &["::ffff:93.184.215.14"], false),
    ("R2.4", "allow = [\"a.example\"]\ndeny = [\"93.184.0.0/16\"]", "a.example:443", &["64:ff9b::93.184.215.14"], false),
    ("R2.4", "allow = [\"a.example\"]\ndeny = [\"*.a.example\"]", "a.example:443", &[PUBLIC], true),
];

#[test]
fn every_row_of_the_attack_list_has_its_verdict() {
    for (row, table, authority, resolved, expected) in TABLE {
        assert_eq!(reached(&rules(table), authority, resolved), *expected, "{row}: {table} {authority} {resolved:?}");
    }
}

#[test]
fn an_empty_allow_list_reaches_nothing() {
    let rules = rules("allow = []");
    assert_eq!(rules.host(&host("a.example"), 443), Verdict::Unknown);
    assert_eq!(rules.name(&host("a.example")), Verdict::Unknown);
    let denial = rules.unlisted(&host("a.example"), 443);
    assert!(denial.remedy.contains("--allow-host a.example:443"), "{denial:?}");
}

#[test]
fn deny_wins_over_allow_whatever_the_layers() {
    let project = LayerInput {
        layer: Layer::Project,
        source: "project.toml".to_owned(),
        text: "[network]\ndeny = [\"a.example\"]\n".to_owned(),
        trusted: false,
    };
    let user = LayerInput {
        layer: Layer::User,
        source: "user.toml".to_owned(),
        text: "[network]\nmode = \"egress\"\nallow = [\"a.example\", \"b.example\"]\n".to_owned(),
        trusted: true,
    };
    let policy = resolve(&Inputs { layers: &[project, user], ..Inputs::default() }).expect("a policy");
    let rules = Rules::new(&policy.network, Vec::new());
    let Verdict::Denied(denial) = rules.host(&host("a.example"), 443) else { panic!("allowed") };
    assert_eq!(denial.rule, "network.deny = [\"a.example\"]");
    assert_eq!(denial.origin.map(|origin| origin.to_string()).as_deref(), Some("project: project.toml:2"));
    let Verdict::Allowed(decided) = rules.host(&host("b.example"), 443) else { panic!("refused") };
    assert_eq!((decided.rule.as_str(), decided.origin.line), ("network.allow = [\"b.example\"]", Some(3)));
}

#[test]
fn a_project_opens_no_private_address_even_when_approved() {
    for (layer, expected) in
        [(Layer::Org, true), (Layer::User, true), (Layer::Project, false), (Layer::ProjectLocal, false)]
    {
        let network = network_of(layer, "allow = [\"a.example\", \"10.0.0.0/8\", \"93.184.215.14\"]", "");
        let rules = Rules::new(&network, Vec::new());
        assert_eq!(reached(&rules, "a.example:443", &["10.0.0.1"]), expected, "{layer}");
        assert_eq!(reached(&rules, "10.0.0.1:443", &[]), expected, "{layer}");
        assert!(reached(&rules, "93.184.215.14:443", &[]), "{layer}");
    }
}

#[test]
fn a_refused_address_is_named_with_its_class() {
    let rules = rules("allow = [\"a.example\"]");
    for (found, class) in [
        ("127.0.0.1", "loopback"),
        ("10.0.0.1", "private"),
        ("169.254.169.254", "cloud metadata"),
        ("100.64.0.1", "carrier-grade NAT"),
        ("fd00::1", "unique local"),
        (OWN, "the host's own"),
        ("64:ff9b::127.0.0.1", "loopback"),
    ] {
        let denial = rules.addresses(&host("a.example"), 443, &[address(PUBLIC), address(found)]).expect_err(found);
        assert!(denial.why.contains(class) && denial.why.contains(&address(found).to_string()), "{denial:?}");
        assert!(!denial.why.contains('\n') && !denial.remedy.contains('\n'));
    }
}

#[test]
fn a_lookup_leaves_only_for_names_that_could_be_reached() {
    let rules = rules(
        "allow = [\"a.example\", \"*.b.example:8443\", \"c.example\", \"d.example:*\", \"e.example:443\"]\n\
         deny = [\"c.example\", \"d.example:22\", \"e.example:443\", \"**.f.example\"]",
    );
    for (name, expected) in [
        ("a.example", true),
        ("x.b.example", true),
        ("b.example", false),
        ("x.a.example", false),
        ("c.example", false),
        ("d.example", true),
        ("e.example", false),
        ("f.example", false),
        ("c2VjcmV0.evil.example", false),
    ] {
        assert_eq!(rules.name(&host(name)).is_allowed(), expected, "{name}");
    }
    assert!(matches!(rules.name(&host("c.example")), Verdict::Denied(_)));
    assert!(matches!(rules.name(&host("f.example")), Verdict::Denied(_)));
    assert_eq!(rules.name(&host("g.example")), Verdict::Unknown);
}

#[test]
fn methods_and_paths_are_held_to() {
    let rules = rules(
        "allow = [{ host = \"api.example\", methods = [\"GET\", \"HEAD\"], paths = [\"/repos/**\", \"/user\", \"/v*/x\"] }, \
         \"whole.example\", { host = \"both.example\", methods = [\"GET\"] }, \"both.example\"]\n\
         deny = [{ host = \"whole.example\", methods = [\"DELETE\"] }, { host = \"whole.example\", paths = [\"/admin/**\"] }]",
    );
    // G30, G32.
    for (row, name, method, path, expected) in [
        ("G30", "api.example", "GET", "/repos/a/b?q=1", true),
        ("G30", "api.example", "HEAD", "/user", true),
        ("G30", "api.example", "POST", "/repos/a/b", false),
        ("G30", "api.example", "get", "/repos/a/b", false),
        ("G30", "api.example", "GET", "/repos", false),
        ("G30", "api.example", "GET", "/repos/", true),
        ("G30", "api.example", "GET", "/user/x", false),
        ("G30", "api.example", "GET", "/userx", false),
        ("G30", "api.example", "GET", "/v2/x", true),
        ("G30", "api.example", "GET", "/v2/y", false),
        ("G30", "api.example", "GET", "/gists", false),
        ("G30", "whole.example", "POST", "/x", true),
        ("G30", "whole.example", "DELETE", "/x", false),
        ("G30", "whole.example", "delete", "/x", false),
        ("G30", "whole.example", "GET", "/admin/x", false),
        ("G30", "both.example", "POST", "/x", true),
        ("G30", "other.example", "GET", "/", false),
        ("G32", "api.example", "GET", "/repos/../gists", false),
        ("G32", "api.example", "GET", "/repos/./a", false),
        ("G32", "api.example", "GET", "/repos/%2e%2e/gists", false),
        ("G32", "api.example", "GET", "/repos/.%2E/gists", false),
        ("G32", "api.example", "GET", "/repos/%252e%252e/gists", false),
        ("G32", "api.example", "GET", "/repos/..;/gists", false),
        ("G32", "api.example", "GET", "/repos/a%2fb", false),
        ("G32", "api.example", "GET", "/repos/a%5cb", false),
        ("G32", "api.example", "GET", "/repos/a\\b", false),
        ("G32", "api.example", "GET", "/repos//b", false),
        ("G32", "api.example", "GET", "//repos/b", false),
        ("G32", "api.example", "GET", "/%72epos/b", false),
        ("G32", "api.example", "GET", "/repos/%00", false),
        ("G32", "api.example", "GET", "/repos/%zz", false),
        ("G32", "api.example", "GET", "/repos/%", false),
        ("G32", "api.example", "GET", "repos/b", false),
        ("G32", "api.example", "GET", "http://api.example/repos/b", false),
        ("G32", "api.example", "GET", "/repos/a b", false),
        ("G32", "api.example", "GET", "/repos/b#c", false),
        ("G32", "api.example", "GET", "/repos/caf%C3%A9", true),
        ("G32", "whole.example", "GET", "/%61dmin/x", false),
        ("G32", "whole.example", "GET", "/x/../admin/x", false),
        ("G32", "both.example", "GET", "/x/../y", true),
    ] {
        let verdict = rules.request(&host(name), 443, method, path);
        assert_eq!(verdict.is_allowed(), expected, "{row}: {name} {method} {path}: {verdict:?}");
    }
    for (name, port, expected) in [
        ("api.example", 443, true),
        ("whole.example", 443, true),
        ("both.example", 443, false),
        ("other.example", 443, false),
        ("api.example", 22, false),
    ] {
        assert_eq!(rules.inspects(&host(name), port), expected, "{name}:{port}");
    }
    let Verdict::Denied(denial) = rules.request(&host("api.example"), 443, "POST", "/gists?x") else {
        panic!("allowed")
    };
    assert!(denial.remedy.contains("\"POST\"") && denial.remedy.contains("[\"/gists\"]"), "{denial:?}");
}

/// G29, G31: the verdict has no way to learn who asks or which way the connection takes.
#[test]
fn a_verdict_depends_on_what_is_asked_for_alone() {
    let rules = rules("allow = [\"a.example\"]");
    let first = rules.host(&host("b.example"), 443);
    assert_eq!(first, rules.clone().host(&host("b.example"), 443));
    assert!(rules.addresses(&host("a.example"), 443, &[address("10.0.0.1")]).is_err());
}

#[test]
fn answers_count_at_once_and_lift_no_denial() {
    let mut rules = rules("deny = [\"evil.example\"]");
    let origin = || Origin { layer: Layer::User, source: "answer".into(), line: None };
    let endpoint = |text: &str| Endpoint::parse(text).expect("an endpoint");
    rules.grant(endpoint("a.example:22"), origin());
    rules.grant(endpoint("evil.example:*"), origin());
    assert!(rules.host(&host("a.example"), 22).is_allowed());
    assert!(!rules.host(&host("a.example"), 443).is_allowed());
    assert!(matches!(rules.host(&host("evil.example"), 443), Verdict::Denied(_)));
    assert_eq!(rules.ports().into_iter().collect::<Vec<_>>(), [22, 80, 443]);
    rules.refuse(endpoint("a.example"), origin());
    assert!(matches!(rules.host(&host("a.example"), 22), Verdict::Denied(_)));
    rules.refuse(endpoint("b.example:443"), answered("denied when it was asked".to_owned()));
    let Verdict::Denied(denial) = rules.host(&host("b.example"), 443) else { panic!("allowed") };
    assert_eq!(denial.why, "b.example:443 was not approved: denied when it was asked");
    assert_eq!(denial.remedy, "approve it when it is asked about, or `--allow-host b.example:443`");
}

#[test]
fn no_answer_goes_beyond_the_ceiling() {
    let network =
        network_of(Layer::User, "allow = [\"a.corp.example\"]", "[network_hosts]\nwithin = [\"*.corp.example\"]");
    let mut rules = Rules::new(&network, Vec::new());
    let origin = Origin { layer: Layer::User, source: "answer".into(), line: None };
    rules.grant(Endpoint::parse("b.example:*").expect("an endpoint"), origin);
    assert!(rules.host(&host("a.corp.example"), 443).is_allowed());
    let Verdict::Denied(denial) = rules.host(&host("b.example"), 443) else { panic!("allowed") };
    assert!(denial.why.contains("ceiling") && denial.why.contains("*.corp.example"), "{denial:?}");
    assert!(!rules.name(&host("b.example")).is_allowed());
    // Nor does a name within it lead to an address beyond it.
    let origin = Origin { layer: Layer::User, source: "answer".into(), line: None };
    rules.grant(Endpoint::parse("10.0.0.1:*").expect("an endpoint"), origin);
    assert!(!reached(&rules, "a.corp.example:443", &["10.0.0.1"]));
}

#[test]
fn what_can_be_paired_is_asked_about_and_nothing_else_is() {
    let rules = rules("allow = [\"a.example\", \"b.example@10.0.0.1\"]\ndeny = [\"10.66.0.0/16\"]");
    let asked = |name: &str, found: &[&str]| {
        let found: Vec<IpAddr> = found.iter().map(|text| address(text)).collect();
        let asked = rules.could_be_paired(&host(name), 443, &found);
        asked.map(|asked| asked.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let some = |addresses: &[&str]| Some(addresses.iter().map(|&text| text.to_owned()).collect::<Vec<_>>());
    for (name, found, expected) in [
        ("a.example", &["10.0.0.1", "10.0.0.2"][..], some(&["10.0.0.1", "10.0.0.2"])),
        ("a.example", &["10.0.0.1", PUBLIC], some(&["10.0.0.1"])),
        ("b.example", &["10.0.0.1", "10.0.0.2"], some(&["10.0.0.2"])),
        ("b.example", &[PUBLIC], some(&[PUBLIC])),
        ("a.example", &["100.64.0.1"], some(&["100.64.0.1"])),
        ("a.example", &["fd00::1"], some(&["fd00::1"])),
        ("a.example", &["127.0.0.1"], None),
        ("a.example", &["10.0.0.1", "127.0.0.1"], None),
        ("a.example", &["169.254.169.254"], None),
        ("a.example", &["169.254.7.7"], None),
        ("a.example", &["100.100.100.200"], None),
        ("a.example", &["10.9.9.9"], None),
        ("a.example", &["::ffff:127.0.0.1"], None),
        ("a.example", &["0.0.0.0"], None),
        ("a.example", &["224.0.0.1"], None),
        ("a.example", &["10.66.0.1"], None),
        ("10.0.0.1", &["10.0.0.1"], None),
    ] {
        assert_eq!(asked(name, found), expected, "{name} {found:?}");
    }
}

#[test]
fn a_pair_of_the_projects_own_file_opens_no_address() {
    for (layer, expected) in [(Layer::Project, false), (Layer::ProjectLocal, true), (Layer::User, true)] {
        let network = network_of(layer, "allow = [\"a.example@10.0.0.1\"]", "");
        assert_eq!(reached(&Rules::new(&network, Vec::new()), "a.example:443", &["10.0.0.1"]), expected, "{layer}");
    }
}

#[test]
fn a_pair_does_not_widen_which_requests_are_allowed() {
    let rules = rules("allow = [{ host = \"a.example\", methods = [\"GET\"] }, \"a.example@10.0.0.1\"]");
    let name = host("a.example");
    assert!(rules.inspects(&name, 443));
    assert!(!rules.request(&name, 443, "POST", "/").is_allowed() && rules.request(&name, 443, "GET", "/").is_allowed());
}
