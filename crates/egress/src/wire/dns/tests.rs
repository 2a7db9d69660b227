use std::str::FromStr;

use hickory_proto::rr::rdata::{MX, TXT};
use proptest::prelude::*;

use super::super::mutate::mutations;
use super::*;

/// A query by hand: header, question, and an OPT record where a size is given.
fn query(name: &[&[u8]], kind: u16, udp_size: Option<u16>) -> Vec<u8> {
    let mut out = vec![0x12, 0x34, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, u8::from(udp_size.is_some())];
    for label in name {
        out.push(u8::try_from(label.len()).expect("a label"));
        out.extend_from_slice(label);
    }
    out.push(0);
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&[0, 1]);
    if let Some(size) = udp_size {
        out.extend_from_slice(&[0, 0, 41]);
        out.extend_from_slice(&size.to_be_bytes());
        out.extend_from_slice(&[0, 0, 0x80, 0, 0, 0]);
    }
    out
}

fn example(kind: u16, udp_size: Option<u16>) -> Query {
    parse(&query(&[b"WwW", b"Example", b"com"], kind, udp_size), Transport::Udp).expect("a good query")
}

fn read(reply: &[u8]) -> Message {
    Message::from_vec(reply).expect("a good answer")
}

fn bad(message: &[u8]) -> (&'static str, Option<u8>) {
    let error = parse(message, Transport::Udp).expect_err("a bad query");
    (error.reason, error.reply.map(|reply| reply[3] & 15))
}

#[test]
fn a_query_is_read() {
    let query = example(1, Some(1232));
    assert_eq!((query.id, query.name.as_str(), query.kind), (0x1234, "www.example.com", Kind::A));
    assert_eq!(query.edns, Some(EdnsInfo { udp_size: 1232, dnssec_ok: true }));
    for (number, kind) in [
        (28, Kind::Aaaa),
        (65, Kind::Service),
        (64, Kind::Service),
        (33, Kind::Srv),
        (12, Kind::Ptr),
        (15, Kind::Mx),
        (16, Kind::Txt),
        (6, Kind::Other(6)),
        (255, Kind::Other(255)),
        (9999, Kind::Other(9999)),
    ] {
        assert_eq!(example(number, None).kind, kind);
    }
    assert_eq!(example(1, Some(1)).edns.map(|edns| edns.udp_size), Some(512));
    assert_eq!(example(1, Some(65535)).edns.map(|edns| edns.udp_size), Some(4096));
    assert_eq!(parse(&super::tests::query(&[], 2, None), Transport::Tcp).expect("the root").name, "");
    let service = super::tests::query(&[b"_ldap", b"_tcp", b"a"], 33, None);
    assert_eq!(parse(&service, Transport::Tcp).expect("underscores").name, "_ldap._tcp.a");
}

#[test]
fn what_is_not_one_plain_question_is_turned_away() {
    let good = query(&[b"a"], 1, None);
    let with = |at: usize, value: u8| {
        let mut message = good.clone();
        message[at] = value;
        message
    };
    assert_eq!(bad(&good[..11]), ("shorter than a header", None));
    assert_eq!(bad(&with(2, 0x80)), ("a response, not a query", None));
    assert_eq!(bad(&with(2, 0x28)), ("not a standard query", Some(4)));
    for (at, value) in [(5, 0), (5, 2), (4, 1), (7, 1), (9, 1), (11, 2), (10, 1)] {
        assert_eq!(bad(&with(at, value)), ("not exactly one question", Some(1)));
    }
    assert_eq!(bad(&good[..good.len() - 1]), ("malformed query", Some(1)));
    assert_eq!(bad(&with(12, 0xc0)), ("malformed query", Some(1)), "a pointer to itself");
    assert_eq!(bad(&[good.as_slice(), b"x"].concat()), ("bytes after the question", Some(1)));
    assert_eq!(bad(&[good.as_slice(), &[0; 5000]].concat()), ("query too long", Some(1)));
    assert_eq!(bad(&with(good.len() - 1, 3)), ("not of class IN", Some(5)), "CHAOS");
    let mut addition = query(&[b"a"], 1, Some(512));
    addition[22 - 1] = 16;
    assert!(parse(&addition, Transport::Udp).is_err(), "an addition other than OPT");
    let mut version = query(&[b"a"], 1, Some(512));
    let at = version.len() - 5;
    version[at] = 1;
    assert_eq!(bad(&version), ("unknown version of EDNS", Some(0)), "BADVERS: the rest of the code is in the OPT");
}

#[test]
fn names_of_other_bytes_are_refused() {
    for label in [&b"a.b"[..], b"a\0", b"a b", b"*", b"\xc3\xa9", b"a@b", b"a/b", b"a\\b", b"a\n"] {
        let expected = ("a name with other bytes than a host's", Some(5));
        assert_eq!(bad(&query(&[label, b"com"], 1, None)), expected, "{label:?}");
    }
}

#[test]
fn addresses_answer_their_kind() {
    let addresses = ["198.18.1.0", "2001:db8::1", "198.18.1.1"].map(|text| IpAddr::from_str(text).expect("an address"));
    for (kind, count) in [(1, 2), (28, 1)] {
        let query = example(kind, None);
        let reply = read(&query.addresses(&addresses, 30));
        assert_eq!((reply.metadata.id, reply.answers.len(), reply.answers[0].ttl), (0x1234, count, 30));
        assert!(reply.metadata.recursion_available && reply.metadata.recursion_desired);
        assert!(reply.queries[0].name.eq_case(&Name::from_ascii("WwW.Example.com.").expect("a name")), "as asked");
        assert!(reply.edns.is_none());
    }
    let reply = read(&example(28, None).addresses(&addresses[..1], 30));
    assert_eq!((reply.metadata.response_code, reply.answers.len()), (ResponseCode::NoError, 0));
    let RData::SOA(soa) = &reply.authorities[0].data else { panic!("no SOA: {reply}") };
    assert_eq!((soa.minimum, reply.authorities[0].ttl), (NEGATIVE_TTL, NEGATIVE_TTL));
}

#[test]
fn refusals_say_why_to_those_who_can_read_it() {
    let text = format!("no rule allows it\x1b{}", "é".repeat(300));
    for (udp_size, explained) in [(Some(1232), true), (None, false)] {
        let query = example(1, udp_size);
        for (bytes, code) in [
            (query.nxdomain(Some((Extended::Filtered, &text))), ResponseCode::NXDomain),
            (query.refused(Some((Extended::Filtered, &text))), ResponseCode::Refused),
        ] {
            let reply = read(&bytes);
            assert_eq!(reply.metadata.response_code, code);
            let option = reply.edns.as_ref().and_then(|edns| edns.option(EXTENDED_ERROR.into()).cloned());
            assert_eq!(option.is_some(), explained);
            if let Some(EdnsOption::Unknown(15, value)) = option {
                assert!(value.starts_with(b"\x00\x11no rule allows it?") && value.len() <= TEXT_MAX);
                assert!(std::str::from_utf8(&value[2..]).is_ok());
            }
        }
    }
    assert_eq!(read(&example(1, None).servfail()).metadata.response_code, ResponseCode::ServFail);
}

#[test]
fn a_datagram_is_cut_at_the_clients_size() {
    let name = Name::from_ascii("example.com.").expect("a name");
    let records: Vec<Record> = (0..20)
        .map(|_| Record::from_rdata(name.clone(), 60, RData::TXT(TXT::new(vec!["x".repeat(100)]))))
        .chain([Record::from_rdata(name.clone(), 60, RData::MX(MX::new(1, name.clone())))])
        .collect();
    for (size, cut) in [(None, true), (Some(1232), true), (Some(4096), false)] {
        let reply = example(16, size).forward(&records);
        let most = usize::from(size.unwrap_or(512));
        assert!(reply.len() <= most);
        let reply = read(&reply);
        assert_eq!((reply.metadata.truncation, reply.answers.len()), (cut, if cut { 0 } else { 21 }));
    }
    let query = parse(&query(&[b"a"], 16, None), Transport::Tcp).expect("a good query");
    assert_eq!(read(&query.forward(&records)).answers.len(), 21);
    let reply = read(&query.forward(&vec![records; 100].concat()));
    assert!(reply.metadata.truncation, "more than TCP can carry");
}

#[test]
fn real_names_pass_and_tunnels_do_not() {
    let hex = "3f786850e387550fdab836ed7e6dc881de23001b";
    let base32 = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
    for name in [
        "",
        "github.com",
        "a1887.dscq.akamai.net",
        "ec2-203-0-113-25.compute-1.amazonaws.com",
        "internal-k8s-default-ingress-0123456789-1234567890.eu-central-1.elb.amazonaws.com",
        "prod-registry-k8s-io-eu-west-1.s3.dualstack.eu-west-1.amazonaws.com",
        "very-long-storage-account-name-for-tests.z6.web.core.windows.net",
        "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa",
        &format!("{hex}.cdn.example.com"),
        &format!("{hex}.{hex}.cdn.example.com"),
        &format!("{base32}.ipfs.dweb.link"),
        &format!("{}.example.com", "a".repeat(63)),
    ] {
        assert!(!looks_tunnelled(name), "{name}");
    }
    for name in [
        &format!("{base32}.{base32}.t.example.com"),
        &format!("{hex}.{hex}.{hex}.t.example.com"),
        &format!("{}example.com", "a.".repeat(20)),
        &format!("{}example.com", "word-after-word-after-word.".repeat(8)),
        &format!("{}ip6.arpa", "word-after-word-after-word.".repeat(8)),
    ] {
        assert!(looks_tunnelled(name), "{name}");
    }
}

/// What must hold for any datagram at all; says whether it is a query.
fn check_any(input: &[u8]) -> bool {
    for transport in [Transport::Udp, Transport::Tcp] {
        match parse(input, transport) {
            Ok(query) => {
                assert!(query.name.len() <= 253 && query.name.bytes().all(super::super::is_name_byte));
                assert_eq!(query.name, query.name.to_ascii_lowercase());
                let why = Some((Extended::Filtered, "because"));
                let address = [IpAddr::from([198, 18, 1, 0])];
                let replies = [
                    query.addresses(&address, 1),
                    query.nodata(),
                    query.nxdomain(why),
                    query.refused(why),
                    query.servfail(),
                ];
                for reply in replies {
                    assert!(transport == Transport::Tcp || reply.len() <= 4096);
                    let reply = read(&reply);
                    assert_eq!((reply.metadata.id, reply.metadata.message_type), (query.id, MessageType::Response));
                }
            }
            Err(BadQuery { reply: Some(reply), .. }) => {
                assert_eq!((&reply[..2], reply[2] & 0x80), (&input[..2], 0x80));
                assert!(read(&reply).answers.is_empty());
            }
            Err(_) => {}
        }
    }
    if let Ok(text) = std::str::from_utf8(input) {
        looks_tunnelled(text);
    }
    parse(input, Transport::Udp).is_ok()
}

#[test]
fn mutated_queries_hold() {
    let long = [b'a'; 63];
    let seeds = [
        query(&[b"www", b"example", b"com"], 1, None),
        query(&[b"www", b"example", b"com"], 28, Some(1232)),
        query(&[b"_http", b"_tcp", b"a"], 33, Some(4096)),
        query(&[&long, &long, &long, &[b'b'; 61]], 1, Some(512)),
        query(&[], 2, Some(512)),
    ];
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    mutations(&seeds, 20_000, |input, _| check_any(input));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(input in proptest::collection::vec(any::<u8>(), 0..300)) {
        check_any(&input);
        check_any(&[&query(&[], 1, None)[..12], &input].concat());
        check_any(&[&query(&[b"a"], 1, Some(512))[..], &input].concat());
    }
}
