use proptest::prelude::*;

use super::super::mutate::{agree, mutations};
use super::*;

fn string(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&u32::try_from(bytes.len()).expect("short").to_be_bytes());
    out.extend_from_slice(bytes);
    out
}

fn key() -> Vec<u8> {
    [string(b"ssh-ed25519"), string(&[7; 32])].concat()
}

fn sign(data: &[u8]) -> Vec<u8> {
    [&[SIGN_REQUEST][..], &string(&key()), &string(data), &[0, 0, 0, 4]].concat()
}

fn git_commit() -> Vec<u8> {
    [&b"SSHSIG"[..], &string(b"git"), &string(b""), &string(b"sha512"), &string(&[1; 64])].concat()
}

fn login_data(method: &[u8], host_key: &[u8]) -> Vec<u8> {
    [
        &string(&[9; 32])[..],
        &[50],
        &string(b"git"),
        &string(b"ssh-connection"),
        &string(method),
        &[1],
        &string(b"ssh-ed25519"),
        &string(&key()),
        host_key,
    ]
    .concat()
}

fn bind() -> Vec<u8> {
    [&[EXTENSION][..], &string(SESSION_BIND), &string(b"host key"), &string(b"id"), &string(b"signature"), &[1]]
        .concat()
}

fn purpose(data: &[u8]) -> String {
    match classify(&sign(data)) {
        Request::Sign(request) => {
            assert_eq!((request.key, request.data, request.flags), (key().as_slice(), data, 4));
            format!("{:?}", request.purpose)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn listing_signing_and_binding_are_understood() {
    assert_eq!(classify(&[REQUEST_IDENTITIES]), Request::Identities);
    assert!(matches!(classify(&sign(b"x")), Request::Sign(_)));
    let expected = Request::SessionBind { host_key: b"host key", session_id: b"id", forwarding: true };
    assert_eq!(classify(&bind()), expected);
}

#[test]
fn everything_else_is_refused() {
    // Add, remove, remove all, smartcards, lock, unlock, constrained adds, and ssh 1.
    for kind in [0, 1, 3, 7, 8, 9, 17, 18, 19, 20, 21, 22, 23, 25, 26, 28, 255] {
        assert!(matches!(classify(&[kind, 0, 0, 0, 0]), Request::Refused { kind: refused, .. } if refused == kind));
    }
    let other = [&[EXTENSION][..], &string(b"query")].concat();
    for message in [&other[..], &[], &[REQUEST_IDENTITIES, 0], &[SIGN_REQUEST], &sign(b"x")[..20]] {
        assert!(matches!(classify(message), Request::Refused { .. }), "{message:?}");
    }
    for message in [sign(b"x"), bind()] {
        assert!(matches!(classify(&[&message[..], &[0]].concat()), Request::Refused { .. }), "a byte too many");
    }
}

#[test]
fn it_is_said_what_a_signature_is_for() {
    assert_eq!(purpose(&git_commit()), r#"Signature { namespace: "git" }"#);
    let plain = purpose(&login_data(b"publickey", b""));
    assert!(plain.starts_with("Login {") && plain.contains(r#"user: "git", host_key: None"#), "{plain}");
    let bound = purpose(&login_data(b"publickey-hostbound-v00@openssh.com", &string(b"h")));
    assert!(bound.contains("host_key: Some([104])"), "{bound}");
}

#[test]
fn what_only_looks_like_a_purpose_is_unknown() {
    let mut other_key = login_data(b"publickey", b"");
    *other_key.last_mut().expect("not empty") ^= 1;
    let long = [git_commit(), vec![0]].concat();
    let short_hash = [&b"SSHSIG"[..], &string(b"git"), &string(b""), &string(b"sha512"), &string(&[1; 32])].concat();
    let escape = [&b"SSHSIG"[..], &string(b"gi\x1b"), &string(b""), &string(b"sha512"), &string(&[1; 64])].concat();
    let no_name = [&b"SSHSIG"[..], &string(b""), &string(b""), &string(b"sha512"), &string(&[1; 64])].concat();
    for data in [
        &b""[..],
        b"SSHSIG",
        &other_key,
        &long,
        &short_hash,
        &escape,
        &no_name,
        &login_data(b"password", b""),
        &login_data(b"publickey", &string(b"h")),
        &login_data(b"publickey-hostbound-v00@openssh.com", b""),
    ] {
        assert_eq!(purpose(data), "Unknown", "{data:?}");
    }
}

#[test]
fn messages_are_bounded() {
    assert_eq!(message(b"\0\0\0"), Progress::Partial);
    assert_eq!(message(b"\0\0\0\x02x"), Progress::Partial);
    assert_eq!(message(b"\0\0\0\x02xyz"), Progress::Done(&b"xy"[..], 6));
    assert_eq!(message(b"\0\0\0\0"), Progress::Bad("empty agent message", 400));
    assert_eq!(message(b"\0\x04\0\x01"), Progress::Bad("agent message too long", 400));
    assert_eq!(message(b"\0\x04\0\0"), Progress::Partial);
    assert_eq!(message(&FAILURE), Progress::Done(&[5][..], 5));
}

#[test]
fn fingerprints_are_those_that_ssh_shows() {
    // Compared with `ssh-keygen -lf` on a key of 32 times the byte 7.
    assert_eq!(fingerprint(&key()), "SHA256:gNSIRW+2Iyiuvsdp/bgjy38bvWHw6wQm3tuoXrl3WjQ");
    assert_eq!(fingerprint(b""), "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU");
}

/// Says whether anything in the input would be passed on.
fn check_any(input: &[u8], cut: usize) -> bool {
    let mut good = false;
    agree(&message(&input[..cut]), &message(input), cut);
    for body in [input, input.get(4..).unwrap_or_default()] {
        let request = classify(body);
        good |= !matches!(request, Request::Refused { .. });
        match request {
            Request::Identities => assert_eq!(body, [REQUEST_IDENTITIES]),
            Request::Sign(request) => assert_eq!(body.len(), 13 + request.key.len() + request.data.len()),
            Request::SessionBind { .. } => assert!(body[5..].starts_with(SESSION_BIND)),
            Request::Refused { kind, .. } => assert_eq!(kind, body.first().copied().unwrap_or(0)),
        }
        assert_eq!(fingerprint(body).len(), 50);
    }
    good
}

#[test]
fn mutated_messages_hold() {
    let seeds = [
        string(&[REQUEST_IDENTITIES]),
        string(&sign(&git_commit())),
        string(&sign(&login_data(b"publickey", b""))),
        string(&sign(&login_data(b"publickey-hostbound-v00@openssh.com", &string(b"h")))),
        string(&bind()),
    ];
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    mutations(&seeds, 20_000, |input, dice| check_any(input, dice.roll(input.len() + 1)));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        input in proptest::collection::vec(any::<u8>(), 0..300),
        cut in any::<prop::sample::Index>(),
    ) {
        check_any(&input, cut.index(input.len() + 1));
        let framed = string(&sign(&input));
        check_any(&framed, cut.index(framed.len() + 1));
    }
}
