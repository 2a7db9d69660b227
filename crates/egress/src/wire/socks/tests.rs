use proptest::prelude::*;

use super::super::mutate::mutations;
use super::*;

/// Everything a client's bytes lead to, fed in pieces that end at `cuts`.
fn steps(input: &[u8], cuts: &[usize]) -> (Vec<Step>, usize) {
    let mut negotiation = Negotiation::default();
    let mut steps = Vec::new();
    let mut taken = 0;
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (input.len() + 1)).collect();
    cuts.sort_unstable();
    cuts.push(input.len());
    for cut in cuts {
        while taken < cut {
            let (used, step) = negotiation.feed(&input[taken..cut]);
            assert!(negotiation.message.len() <= 262, "bounded");
            taken += used;
            match step {
                Step::More => break,
                Step::Send(_) => steps.push(step),
                last => {
                    steps.push(last);
                    assert_eq!(negotiation.feed(b"\x05\x01\x00"), (0, Step::More), "it is over");
                    return (steps, taken);
                }
            }
        }
    }
    (steps, taken)
}

fn after_greeting(request: &[u8]) -> Step {
    let (mut steps, _) = steps(&[b"\x05\x01\x00", request].concat(), &[]);
    assert_eq!(steps.remove(0), Step::Send([5, 0]));
    steps.pop().unwrap_or(Step::More)
}

fn code(step: &Step) -> Option<u8> {
    if let Step::Refuse { reply, .. } = step { reply.get(1).copied() } else { None }
}

#[test]
fn a_connect_is_understood() {
    let named = |name: &str, port| Step::Connect(Target { host: Host::Name(name.into()), port });
    assert_eq!(after_greeting(b"\x05\x01\x00\x03\x0bExample.com\x01\xbb"), named("example.com", 443));
    assert_eq!(after_greeting(b"\x05\x01\x00\x03\x0cexample.com.\x01\xbb"), named("example.com", 443));
    let address = |text: &str| Host::Address(text.parse().expect("an address"));
    let v4 = Step::Connect(Target { host: address("192.0.2.1"), port: 80 });
    assert_eq!(after_greeting(b"\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50"), v4);
    let v6 = Step::Connect(Target { host: address("2001:db8::1"), port: 80 });
    assert_eq!(after_greeting(b"\x05\x01\x00\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50"), v6);
}

#[test]
fn bytes_after_the_request_are_left() {
    let input = b"\x05\x02\x00\x02\x05\x01\x00\x03\x01a\x00\x50rest";
    let (steps, taken) = steps(input, &[]);
    assert_eq!((steps.len(), &input[taken..]), (2, &b"rest"[..]));
}

#[test]
fn everything_but_connect_is_refused() {
    assert_eq!(code(&after_greeting(b"\x05\x02\x00\x03\x01a\x00\x50")), Some(7), "BIND");
    assert_eq!(code(&after_greeting(b"\x05\x03\x00\x01\0\0\0\0\0\0")), Some(7), "UDP");
    assert_eq!(code(&after_greeting(b"\x05\xf0\x00\x03\x01a\x00\x50")), Some(7), "RESOLVE");
    assert_eq!(code(&after_greeting(b"\x05\x01\x00\x02")), Some(8));
    assert_eq!(code(&after_greeting(b"\x05\x01\x01\x01")), Some(1));
    assert_eq!(code(&after_greeting(b"\x05\x01\x00\x03\x01a\x00\x00")), Some(1));
}

#[test]
fn names_of_other_bytes_are_refused() {
    for name in [&b"a\0.com"[..], b"", b".", b"a..b", b"a b", b"a\n", b"[::1]", b"u@a", b"a%2e", b"\xc3\xa9", b"a/b"] {
        let length = u8::try_from(name.len()).expect("short");
        let step = after_greeting(&[b"\x05\x01\x00\x03", &[length][..], name, b"\x00\x50"].concat());
        assert_eq!(code(&step), Some(1), "{name:?}");
    }
    let long = [b"\x05\x01\x00\x03\xff".as_slice(), &[b'a'; 255], b"\x00\x50"].concat();
    assert_eq!(code(&after_greeting(&long)), Some(1));
}

#[test]
fn a_greeting_must_offer_no_authentication() {
    assert_eq!(steps(b"\x05\x02\x02\x00", &[]).0, [Step::Send([5, 0])]);
    for input in [&b"\x05\x00"[..], b"\x05\x01\x02"] {
        assert!(matches!(&steps(input, &[]).0[..], [Step::Refuse { reply, .. }] if reply == &[5, 0xff]));
    }
    for input in [&b"\x04\x01"[..], b"GET /", b"\x16\x03"] {
        assert!(matches!(steps(input, &[]).0[..], [Step::Close(_)]), "{input:?}");
    }
}

#[test]
fn replies_have_the_form_of_the_standard() {
    assert_eq!(refusal(Reply::NotAllowed), b"\x05\x02\x00\x01\0\0\0\0\0\0");
    let bound = "[2001:db8::1]:80".parse().expect("an address");
    assert_eq!(reply(Reply::Succeeded, bound), b"\x05\x00\x00\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50");
}

/// Says whether the input led to a target.
fn check_any(input: &[u8], cuts: &[usize]) -> bool {
    let whole = steps(input, &[]);
    assert_eq!(steps(input, cuts), whole);
    for step in &whole.0 {
        match step {
            Step::Connect(Target { host: Host::Name(name), port }) => {
                assert!(*port != 0 && name.len() <= 253 && name.bytes().all(super::super::is_name_byte));
            }
            Step::Refuse { reply, .. } => assert_ne!(reply[1], 0, "a refusal never reads as success"),
            _ => {}
        }
    }
    matches!(whole.0.last(), Some(Step::Connect(_)))
}

#[test]
fn mutated_negotiations_hold() {
    let seeds: [&[u8]; 4] = [
        b"\x05\x01\x00\x05\x01\x00\x03\x0bexample.com\x01\xbbrest",
        b"\x05\x03\x02\x01\x00\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50",
        b"\x05\x01\x00\x05\x01\x00\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50",
        b"\x05\x01\x00\x05\x03\x00\x01\0\0\0\0\0\0",
    ];
    mutations(&seeds, 20_000, |input, dice| check_any(input, &[dice.roll(64), dice.roll(64)]));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        input in proptest::collection::vec(any::<u8>(), 0..600),
        cuts in proptest::collection::vec(0_usize..600, 0..5),
    ) {
        check_any(&input, &cuts);
        check_any(&[b"\x05\x01\x00\x05\x01\x00", input.as_slice()].concat(), &cuts);
    }
}
