//! Hosts and patterns of hosts: one way to write each, and nothing matches by accident.

use core::net::IpAddr;

use cofferdam_policy::{Cidr, Endpoint, EndpointError, Host, Ports, Target, parse_authority, with_port};
use proptest::prelude::*;

fn name(text: &str) -> Host {
    Host::Name(text.to_owned())
}

#[test]
fn a_host_off_the_wire_has_one_form() {
    for (text, expected) in [
        ("github.com", name("github.com")),
        ("GitHub.COM", name("github.com")),
        ("github.com.", name("github.com")),
        ("_dmarc.example.com", name("_dmarc.example.com")),
        ("xn--bcher-kva.example", name("xn--bcher-kva.example")),
        ("1password.com", name("1password.com")),
        ("0x7f.example", name("0x7f.example")),
        ("0xfg", name("0xfg")),
        ("10.0.0.1", Host::Address([10, 0, 0, 1].into())),
        ("::1", Host::Address("::1".parse().unwrap())),
        ("[::1]", Host::Address("::1".parse().unwrap())),
        ("::ffff:10.0.0.1", Host::Address("::ffff:10.0.0.1".parse().unwrap())),
    ] {
        assert_eq!(Host::parse(text), Ok(expected), "{text}");
    }
}

#[test]
fn what_two_programs_could_read_differently_is_no_host() {
    let long_label = format!("{}.example", "a".repeat(64));
    let long_name = vec!["a".repeat(60); 5].join(".");
    for text in [
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "a b",
        "a\0.example",
        "user@host",
        "user:pw@host",
        "host/path",
        "a%2eb",
        "%00",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "127.0.0.01",
        "1.2.3.4.5",
        "256.1.1.1",
        "1.2.3.4.",
        "127.0.0.0x1",
        "example.0x",
        "example.1",
        "[127.0.0.1]",
        "[::1",
        "::1]",
        "[fe80::1%eth0]",
        "fe80::1%1",
        "[]",
        "[example.com]",
        "b\u{fc}cher.example",
        "ex\u{ff0e}ample",
        "-a.example",
        "a-.example",
        "a,b",
        "a\\b",
        "a\nb",
        "\u{2460}\u{2461}.example",
        "*.example",
        long_label.as_str(),
        long_name.as_str(),
    ] {
        assert!(Host::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn an_authority_is_a_host_and_a_plain_port() {
    assert_eq!(parse_authority("a.example:22", None), Ok((name("a.example"), 22)));
    assert_eq!(parse_authority("a.example", Some(443)), Ok((name("a.example"), 443)));
    assert_eq!(parse_authority("[::1]:80", None), Ok((Host::Address("::1".parse().unwrap()), 80)));
    assert_eq!(parse_authority("[::1]", Some(443)), Ok((Host::Address("::1".parse().unwrap()), 443)));
    for text in [
        "a.example",
        "a.example:",
        "a.example:0",
        "a.example:65536",
        "a.example:+80",
        "a.example:080",
        "a.example: 80",
        "a.example:80:80",
        "::1:80",
        "[::1]x:80",
        "[::1]:",
        "@a.example:80",
        "u@a.example:80",
        ":80",
        "a.example:80/",
        "a.example:80\r\n",
    ] {
        assert!(parse_authority(text, None).is_err(), "{text:?}");
    }
}

#[test]
fn a_pattern_reads_as_it_is_written() {
    let host = |text: &str| Target::Host(text.to_owned());
    let net = |text: &str, prefix| Target::Net(Cidr { address: text.parse().unwrap(), prefix });
    for (text, target, ports) in [
        ("registry.npmjs.org", host("registry.npmjs.org"), Ports::Web),
        ("a.example:22", host("a.example"), Ports::One(22)),
        ("a.example:*", host("a.example"), Ports::Any),
        ("*.example.com:443", Target::Below("example.com".to_owned()), Ports::One(443)),
        ("**.example.com", Target::AtAndBelow("example.com".to_owned()), Ports::Web),
        ("10.1.2.3:5432", net("10.1.2.3", 32), Ports::One(5432)),
        ("203.0.113.0/24", net("203.0.113.0", 24), Ports::Web),
        ("10.0.0.0/8:*", net("10.0.0.0", 8), Ports::Any),
        ("2001:db8::1", net("2001:db8::1", 128), Ports::Web),
        ("[2001:db8::1]:80", net("2001:db8::1", 128), Ports::One(80)),
        ("2001:db8::/32", net("2001:db8::", 32), Ports::Web),
        ("[2001:db8::]/32:80", net("2001:db8::", 32), Ports::One(80)),
    ] {
        let endpoint = Endpoint::parse_allow(text).unwrap();
        assert_eq!(endpoint, Endpoint { target, ports, at: Vec::new() }, "{text}");
        assert_eq!(endpoint.to_string(), text);
    }
    // A name where it leads to an address.
    for (text, addresses) in [
        ("a.example:443@10.1.2.3", &["10.1.2.3/32"][..]),
        ("*.example.com@10.0.0.0/8+fd00::/8", &["10.0.0.0/8", "fd00::/8"]),
        ("a.example:*@2001:db8::1", &["2001:db8::1/128"]),
    ] {
        let endpoint = Endpoint::parse_allow(text).unwrap();
        let found: Vec<String> = endpoint.at.iter().map(|net| format!("{}/{}", net.address, net.prefix)).collect();
        assert_eq!(found, addresses, "{text}");
        assert_eq!(endpoint.to_string(), text);
    }
    for text in [
        "10.1.2.3@10.1.2.3",
        "a.example@",
        "a.example@b.example",
        "@10.1.2.3",
        "a.example@10.1.2.3:443",
        "a.example@10.1.2.3/8",
        "a.example@10.1.2.3+",
        "a@b@10.1.2.3",
    ] {
        assert!(Endpoint::parse(text).is_err(), "{text}");
    }
    // Unicode becomes what the DNS has.
    assert_eq!(Endpoint::parse("b\u{fc}cher.example").unwrap().to_string(), "xn--bcher-kva.example");
    assert_eq!(Endpoint::parse("*.B\u{dc}CHER.example.").unwrap().to_string(), "*.xn--bcher-kva.example");
    assert_eq!(Endpoint::parse("Example.COM.").unwrap().to_string(), "example.com");
}

#[test]
fn a_pattern_that_says_too_much_or_nothing_is_refused() {
    for text in ["*", "**", "*:443", "*.", "**."] {
        assert!(matches!(Endpoint::parse(text), Err(EndpointError::Everything(_))), "{text}");
    }
    for text in ["a.*.example", "*a.example", "a*.example", "*.*.example", "***.example", "*.10.0.0.1"] {
        assert!(matches!(Endpoint::parse(text), Err(EndpointError::Wildcard(_))), "{text}");
    }
    for text in ["*.com", "*.co.uk", "**.co.uk", "**.github.io", "*.GitHub.io", "*.xn--55qx5d.cn", "*.unheardof"] {
        assert!(matches!(Endpoint::parse_allow(text), Err(EndpointError::PublicSuffix(_))), "{text}");
        // A denial may be as wide as it likes.
        assert!(Endpoint::parse(text).is_ok(), "{text}");
    }
    for text in ["*.example.co.uk", "**.me.github.io", "co.uk", "*.internal", "**.corp.internal"] {
        assert!(Endpoint::parse_allow(text).is_ok(), "{text}");
    }
    for text in [
        "",
        ":443",
        "a.example:0",
        "a.example:99999",
        "a.example:ssh",
        "10.0.0.0/33",
        "10.0.0.0/",
        "10.0.0.0/-1",
        "a/8",
        "10.0.0.1/8",
        "2001:db8::1/32",
        "http://a.example",
        "a.example/path",
        "u@a.example",
        "xn--0.example",
        "0x7f.1",
        "[::1",
        "[a.example]:80",
    ] {
        assert!(Endpoint::parse(text).is_err(), "{text}");
    }
}

#[test]
fn labels_are_matched_whole() {
    // Pattern, name, whether it matches.
    for (pattern, asked, expected) in [
        ("github.com", "github.com", true),
        ("github.com", "api.github.com", false),
        ("github.com", "evilgithub.com", false),
        ("github.com", "github.com.evil.example", false),
        ("*.github.com", "github.com", false),
        ("*.github.com", "api.github.com", true),
        ("*.github.com", "a.b.github.com", true),
        ("*.github.com", "evilgithub.com", false),
        ("*.github.com", "x.evilgithub.com", false),
        ("*.github.com", "api.github.com.evil.example", false),
        ("**.github.com", "github.com", true),
        ("**.github.com", "api.github.com", true),
        ("**.github.com", "evilgithub.com", false),
    ] {
        assert_eq!(Endpoint::parse(pattern).unwrap().allows(&name(asked), 443), expected, "{pattern} {asked}");
    }
}

#[test]
fn without_a_port_a_grant_is_of_the_web_and_a_denial_of_everything() {
    let endpoint = Endpoint::parse("a.example").unwrap();
    for (port, allows) in [(80, true), (443, true), (22, false), (8080, false)] {
        assert_eq!(endpoint.allows(&name("a.example"), port), allows, "{port}");
        assert!(endpoint.denies(&name("a.example"), port), "{port}");
    }
}

fn label() -> impl Strategy<Value = String> {
    // What begins like an A-label and is none cannot be in a pattern.
    "[a-z0-9_]([a-z0-9_-]{0,8}[a-z0-9_])?".prop_filter("an A-label", |label| !label.starts_with("xn--"))
}

fn host_name() -> impl Strategy<Value = String> {
    (prop::collection::vec(label(), 1..5), "[a-z]{2,8}").prop_map(|(labels, top)| format!("{}.{top}", labels.join(".")))
}

fn pattern() -> impl Strategy<Value = String> {
    let host = prop_oneof![
        host_name(),
        host_name().prop_map(|name| format!("*.{name}")),
        host_name().prop_map(|name| format!("**.{name}")),
        (any::<[u8; 4]>(), 0_u8..=32)
            .prop_map(|(address, prefix)| { Cidr::around(IpAddr::from(address), prefix).unwrap().to_string() }),
        (any::<[u8; 16]>(), 0_u8..=128).prop_map(|(address, prefix)| {
            let net = Cidr::around(IpAddr::from(address), prefix).unwrap();
            if net.is_one() { format!("[{net}]") } else { format!("[{}]/{}", net.address, net.prefix) }
        }),
    ];
    let port = prop_oneof![Just(String::new()), Just(":*".to_owned()), (1_u16..).prop_map(|port| format!(":{port}"))];
    (host, port).prop_map(|(host, port)| format!("{host}{port}"))
}

/// Valid text with a few bytes changed, taken out or put in.
fn mutated(valid: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let odd = prop::sample::select(b"\0 .:*[]%@/\\-_x0179aZ\r\n\xc3\xff".to_vec());
    let change = (any::<prop::sample::Index>(), 0..3_u8, odd);
    (valid, prop::collection::vec(change, 1..4)).prop_map(|(text, changes)| {
        let mut bytes = text.into_bytes();
        for (at, kind, byte) in changes {
            let at = at.index(bytes.len() + 1);
            match kind {
                0 if at < bytes.len() => bytes[at] = byte,
                1 if at < bytes.len() => drop(bytes.remove(at)),
                _ => bytes.insert(at, byte),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// What holds for everything that is a host at all.
fn canonical(host: &Host) {
    let text = host.to_string();
    assert_eq!(Host::parse(&text).as_ref(), Ok(host), "{text}");
    assert_eq!(parse_authority(&with_port(host, 7), None), Ok((host.clone(), 7)));
    if let Host::Name(name) = host {
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte)));
        assert!(name.len() <= 253 && name.split('.').all(|label| (1..=63).contains(&label.len())), "{name}");
        // No resolver of libc takes it for a number.
        assert!(
            name.parse::<IpAddr>().is_err() && !name.rsplit('.').next().unwrap().bytes().all(|b| b.is_ascii_digit())
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_parsed_host_reads_as_itself(text in host_name()) {
        let host = Host::parse(&text).unwrap();
        canonical(&host);
        prop_assert_eq!(Host::parse(&text.to_uppercase()), Ok(host.clone()));
        prop_assert_eq!(Host::parse(&format!("{text}.")), Ok(host));
    }

    #[test]
    fn a_parsed_address_reads_as_itself(v4: [u8; 4], v6: [u8; 16]) {
        canonical(&Host::parse(&IpAddr::from(v4).to_string()).unwrap());
        canonical(&Host::parse(&format!("[{}]", IpAddr::from(v6))).unwrap());
    }

    #[test]
    fn a_pattern_is_written_as_it_reads(text in pattern()) {
        if let Ok(endpoint) = Endpoint::parse(&text) {
            prop_assert_eq!(Endpoint::parse(&endpoint.to_string()), Ok(endpoint));
        }
    }

    #[test]
    fn a_name_never_matches_by_a_part_of_a_label(parent in host_name(), part in "[a-z0-9]{1,5}", below in host_name()) {
        let stranger = name(&format!("{part}{parent}"));
        let longer = name(&format!("{parent}.{below}"));
        let child = name(&format!("{part}.{parent}"));
        // `a.a.a` is a child of `a.a`, wherever the parts come from.
        let is_below = format!("{parent}.{below}").ends_with(&format!(".{parent}"));
        for (pattern, apex, children) in [("", true, false), ("*.", false, true), ("**.", true, true)] {
            let endpoint = Endpoint::parse(&format!("{pattern}{parent}")).unwrap();
            prop_assert!(!endpoint.allows(&stranger, 443));
            prop_assert!(!endpoint.allows(&longer, 443) || is_below);
            prop_assert_eq!(endpoint.allows(&name(&parent), 443), apex);
            prop_assert_eq!(endpoint.allows(&child, 443), children);
        }
    }

    #[test]
    fn what_covers_a_pattern_covers_what_it_covers(a in pattern(), b in pattern(), host in host_name(), port: u16) {
        let (Ok(a), Ok(b)) = (Endpoint::parse(&a), Endpoint::parse(&b)) else { return Ok(()) };
        let host = name(&host);
        if a.allows_all(&b) && b.allows(&host, port) {
            prop_assert!(a.allows(&host, port));
        }
        prop_assert!(a.allows_all(&a) && a.denies_all(&a));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn no_text_breaks_the_parsers(text in mutated(prop_oneof![host_name(), pattern()])) {
        if let Ok(host) = Host::parse(&text) {
            canonical(&host);
        }
        if let Ok((host, port)) = parse_authority(&text, Some(443)) {
            canonical(&host);
            prop_assert!(port > 0);
        }
        if let Ok(endpoint) = Endpoint::parse_allow(&text) {
            prop_assert_eq!(Endpoint::parse(&endpoint.to_string()), Ok(endpoint));
        }
    }

    #[test]
    fn no_bytes_break_the_parsers(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(host) = Host::parse(&text) {
            canonical(&host);
        }
        drop(parse_authority(&text, None));
        drop(Endpoint::parse_allow(&text));
    }
}
