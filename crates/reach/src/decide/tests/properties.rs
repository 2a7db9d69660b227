//! What holds for any rules and any host.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cofferdam_policy::{Endpoint, Host, Layer, Network, NetworkRule, Origin, parse_authority};
use proptest::prelude::*;

use crate::address::{embedded, special};
use crate::decide::request_path;
use crate::decide::{Rules, Verdict};

fn origin() -> Origin {
    Origin { layer: Layer::User, source: "property".into(), line: None }
}

/// Few names, so that rules and questions meet.
fn host_name() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "evil", "x"]), 1..4)
        .prop_map(|labels| format!("{}.example", labels.join(".")))
}

fn pattern() -> impl Strategy<Value = Endpoint> {
    let host = prop_oneof![
        host_name(),
        host_name().prop_map(|name| format!("*.{name}")),
        host_name().prop_map(|name| format!("**.{name}")),
        Just("10.0.0.0/8".to_owned()),
        Just("93.184.215.14".to_owned()),
        Just("0.0.0.0/0".to_owned()),
    ];
    let port = prop::sample::select(vec!["", ":*", ":22", ":443"]);
    (host, port).prop_map(|(host, port)| Endpoint::parse(&format!("{host}{port}")).expect("a pattern"))
}

fn asked() -> impl Strategy<Value = (Host, u16)> {
    let host = prop_oneof![
        4 => host_name().prop_map(Host::Name),
        1 => prop::sample::select(vec!["10.0.0.1", "93.184.215.14", "8.8.8.8", "127.0.0.1"])
            .prop_map(|text| Host::parse(text).expect("a host")),
    ];
    (host, prop::sample::select(vec![22_u16, 80, 443, 8080]))
}

fn rules_of(allow: &[Endpoint], deny: &[Endpoint]) -> Rules {
    let whole = |list: &[Endpoint]| list.iter().map(|one| NetworkRule::whole(one.clone(), origin())).collect();
    Rules::new(&Network { allow: whole(allow), deny: whole(deny), ..Network::default() }, Vec::new())
}

fn lists() -> impl Strategy<Value = (Vec<Endpoint>, Vec<Endpoint>)> {
    (prop::collection::vec(pattern(), 0..5), prop::collection::vec(pattern(), 0..4))
}

/// Every way to write an IPv4 address inside an IPv6 one.
fn embeddings(v4: Ipv4Addr) -> Vec<Ipv6Addr> {
    let [a, b, c, d] = v4.octets();
    let pair = |high, low| u16::from_be_bytes([high, low]);
    let (high, low) = (pair(a, b), pair(c, d));
    vec![
        v4.to_ipv6_mapped(),
        Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
        Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
        Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
        Ipv6Addr::new(0x64, 0xff9b, 1, high, pair(0, c), pair(d, 0), 0, 0),
        Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0x2001, 0, high, low, 0, 0, 0, 0),
        Ipv6Addr::new(0x2001, 0, 0x4136, 0xe378, 0x8000, 0x63bf, !high, !low),
        Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0x5efe, high, low),
        Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0x200, 0x5efe, high, low),
    ]
}

fn not_public() -> impl Strategy<Value = Ipv4Addr> {
    let net = prop::sample::select(vec![
        ([10, 0, 0, 0], 8_u32),
        ([172, 16, 0, 0], 12),
        ([192, 168, 0, 0], 16),
        ([127, 0, 0, 0], 8),
        ([169, 254, 0, 0], 16),
        ([100, 64, 0, 0], 10),
        ([0, 0, 0, 0], 8),
        ([224, 0, 0, 0], 4),
        ([240, 0, 0, 0], 4),
        ([198, 18, 0, 0], 15),
        ([168, 63, 129, 16], 32),
    ]);
    (net, any::<u32>()).prop_map(|((net, prefix), bits)| {
        let free = u32::MAX.checked_shr(prefix).unwrap_or(0);
        Ipv4Addr::from_bits(Ipv4Addr::from(net).to_bits() | bits & free)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn deny_always_wins((allow, deny) in lists(), (host, port) in asked()) {
        let rules = rules_of(&allow, &deny);
        if deny.iter().any(|one| one.denies(&host, port)) {
            prop_assert!(matches!(rules.host(&host, port), Verdict::Denied(_)));
            prop_assert!(!rules.request(&host, port, "GET", "/").is_allowed());
        }
    }

    #[test]
    fn a_further_grant_never_lifts_a_denial((allow, deny) in lists(), more in pattern(), (host, port) in asked()) {
        let mut rules = rules_of(&allow, &deny);
        let before = rules.host(&host, port);
        rules.grant(more, origin());
        let after = rules.host(&host, port);
        if matches!(before, Verdict::Denied(_)) && host.name().is_some() {
            prop_assert_eq!(before, after);
        } else if before.is_allowed() {
            prop_assert!(after.is_allowed());
        }
    }

    #[test]
    fn a_further_denial_never_allows((allow, deny) in lists(), more in pattern(), (host, port) in asked()) {
        let mut rules = rules_of(&allow, &deny);
        let before = rules.host(&host, port).is_allowed();
        rules.refuse(more, origin());
        prop_assert!(before || !rules.host(&host, port).is_allowed());
    }

    #[test]
    fn a_name_that_can_be_reached_can_be_looked_up((allow, deny) in lists(), name in host_name(), port: u16) {
        let rules = rules_of(&allow, &deny);
        let host = Host::Name(name);
        if rules.host(&host, port).is_allowed() {
            prop_assert!(rules.name(&host).is_allowed());
        }
        if rules.name(&host).is_allowed() {
            let ports = [22, 80, 443, 1, 8080];
            prop_assert!(ports.into_iter().any(|port| rules.host(&host, port).is_allowed()));
        }
    }

    #[test]
    fn case_and_a_final_dot_change_nothing((allow, deny) in lists(), (host, port) in asked()) {
        let rules = rules_of(&allow, &deny);
        if let Some(name) = host.name() {
            for text in [name.to_uppercase(), format!("{name}.")] {
                let same = Host::parse(&text).expect("a host");
                prop_assert_eq!(rules.host(&same, port), rules.host(&host, port));
            }
        }
    }

    #[test]
    fn an_address_that_is_not_public_is_refused_however_it_is_written(v4 in not_public()) {
        let rules = rules_of(&[Endpoint::parse("a.example:*").expect("a pattern")], &[]);
        let host = Host::Name("a.example".to_owned());
        prop_assert!(rules.addresses(&host, 443, &[IpAddr::V4(v4)]).is_err());
        for v6 in embeddings(v4) {
            prop_assert!(rules.addresses(&host, 443, &[IpAddr::V6(v6)]).is_err(), "{v6}");
            // The short zone of `::` and `::1` has no address inside to find.
            prop_assert!(embedded(IpAddr::V6(v6)).contains(&v4) || v4.octets()[0] == 0, "{v6}");
        }
    }

    #[test]
    fn a_denied_network_is_denied_however_it_is_written(v4: [u8; 4]) {
        let v4 = Ipv4Addr::from(v4);
        let all = Endpoint::parse("0.0.0.0/0").expect("a pattern");
        let rules = rules_of(&[Endpoint::parse("a.example:*").expect("a pattern")], &[all]);
        for v6 in embeddings(v4) {
            prop_assert!(rules.addresses(&Host::Name("a.example".to_owned()), 443, &[IpAddr::V6(v6)]).is_err(), "{v6}");
        }
    }

    #[test]
    fn no_address_breaks_the_classes(v6: [u8; 16], own: [u8; 16]) {
        let (v6, own) = (IpAddr::from(v6), IpAddr::from(own));
        prop_assert_eq!(special(v6, &[own]).is_some(), special(v6, &[]).is_some() || v6 == own);
        prop_assert!(special(own, &[own]).is_some());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// What comes off the wire, a few bytes away from what is allowed: nothing but the allowed host itself gets through.
    #[test]
    fn nothing_but_the_allowed_host_gets_through(
        at in any::<prop::sample::Index>(), kind in 0..3_u8,
        byte in prop::sample::select(b"\0 .:*[]%@/\\-_x0179aZ\r\n\xc3\xff".to_vec()),
    ) {
        let mut bytes = b"api.github.com:443".to_vec();
        let place = at.index(bytes.len());
        match kind {
            0 => bytes[place] = byte,
            1 => drop(bytes.remove(place)),
            _ => bytes.insert(place, byte),
        }
        let text = String::from_utf8_lossy(&bytes);
        let rules = rules_of(&[Endpoint::parse("api.github.com:443").expect("a pattern")], &[]);
        if let Ok((host, port)) = parse_authority(&text, Some(443))
            && rules.host(&host, port).is_allowed()
        {
            let same = text.trim_end_matches(":443").trim_end_matches('.');
            prop_assert!(same.eq_ignore_ascii_case("api.github.com"), "{text:?}");
        }
    }

    /// A path that counts has no second reading: no dots, no doubled slash, nothing escaped that has a meaning.
    #[test]
    fn a_clear_path_stays_below_what_it_names(
        parts in prop::collection::vec(
            prop::sample::select(vec!["/", "a", "..", ".", "%2e", "%2F", "%5c", "\\", "//", ";", "%25", "%20", "?", "x", "%", "\0"]),
            0..8,
        ),
    ) {
        let path = format!("/{}", parts.concat());
        if let Some(clear) = request_path::clear(&path) {
            let text = String::from_utf8_lossy(&clear).into_owned();
            prop_assert!(!text.contains("//") && !text.contains('\\') && !text.contains('%'), "{path} {text}");
            prop_assert!(text.split('/').all(|segment| segment != "." && segment != ".."), "{path} {text}");
            let below = request_path::any_matches(&["/a/**".to_owned()], &clear);
            prop_assert_eq!(below, text.starts_with("/a/"));
        }
    }

    #[test]
    fn no_request_breaks_the_verdict(method in ".{0,8}", path in ".{0,40}") {
        let endpoint = Endpoint::parse("a.example").expect("a pattern");
        let paths = vec!["/a/*".to_owned(), "/**/b".to_owned()];
        let rule = NetworkRule { methods: vec!["GET".to_owned()], paths, ..NetworkRule::whole(endpoint, origin()) };
        let rules = Rules::new(&Network { allow: vec![rule], ..Network::default() }, Vec::new());
        let verdict = rules.request(&Host::Name("a.example".to_owned()), 443, &method, &path);
        prop_assert!(!verdict.is_allowed() || method == "GET");
    }
}
