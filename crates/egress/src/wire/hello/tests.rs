use proptest::prelude::*;

use super::super::mutate::{agree, mutations};
use super::*;

fn sized(length: usize, bytes: &[u8]) -> Vec<u8> {
    let size = bytes.len().to_be_bytes();
    [&size[size.len() - length..], bytes].concat()
}

fn extension(kind: u16, value: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &sized(2, value)].concat()
}

fn sni(name: &[u8]) -> Vec<u8> {
    extension(SERVER_NAME, &sized(2, &[&[0][..], &sized(2, name)].concat()))
}

/// A handshake message with these extensions.
fn handshake(extensions: &[Vec<u8>]) -> Vec<u8> {
    let body = [
        &[3, 3][..],
        &[7; 32],
        &sized(1, &[9; 32]),
        &sized(2, &[0x0a, 0x0a, 0x13, 0x01]),
        &sized(1, &[0]),
        &sized(2, &extensions.concat()),
    ]
    .concat();
    [&[CLIENT_HELLO][..], &sized(3, &body)].concat()
}

fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|piece| [&[HANDSHAKE, 3, 1][..], &sized(2, piece)].concat()).collect()
}

fn typical() -> Vec<Vec<u8>> {
    vec![
        extension(0x2a2a, &[]), // GREASE
        sni(b"WWW.Example.com"),
        extension(ALPN, &sized(2, &[sized(1, b"h2"), sized(1, b"http/1.1")].concat())),
        extension(51, &[5; 1200]), // a post-quantum key share
        extension(ENCRYPTED_CLIENT_HELLO, &[1; 200]),
        extension(0x1a1a, &[0]),
    ]
}

fn refused(buf: &[u8]) -> &'static str {
    match server_name(buf) {
        Progress::Bad(reason, 400) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_name_is_found_however_the_hello_is_cut_into_records() {
    let message = handshake(&typical());
    let expected =
        Hello { sni: Some("www.example.com".into()), alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()], has_ech: true };
    for size in [1, 2, 3, 4, 5, 100, 517, 16 * 1024] {
        let mut buf = records(&message, size);
        let length = buf.len();
        assert_eq!(server_name(&buf), Progress::Done(expected.clone(), length), "records of {size}");
        buf.extend_from_slice(b"\x17\x03\x03\x00\x05early");
        assert_eq!(server_name(&buf), Progress::Done(expected.clone(), length), "records of {size}");
    }
}

#[test]
fn a_hello_without_a_name_says_so() {
    let buf = records(&handshake(&[]), 9000);
    assert_eq!(server_name(&buf), Progress::Done(Hello::default(), buf.len()));
    // Without any extensions at all, as before TLS 1.3.
    let mut message = handshake(&[]);
    message.truncate(message.len() - 2);
    message[3] -= 2;
    let buf = records(&message, 9000);
    assert_eq!(server_name(&buf), Progress::Done(Hello::default(), buf.len()));
}

#[test]
fn what_is_not_a_client_hello_is_refused_at_once() {
    for other in
        [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-x", b"\x00", b"\x17\x03", b"\x15\x03\x01", b"\x16\x02", b"\x05\x01"]
    {
        assert_eq!(refused(other), "not TLS", "{other:?}");
    }
    assert_eq!(refused(b"\x80\x2e\x01\x03\x01"), "SSL 2 hello");
    assert_eq!(refused(b"\xff\xff\xff"), "not TLS");
    assert_eq!(refused(b"\x16\x03\x01\x00\x00"), "malformed TLS record");
    assert_eq!(refused(b"\x16\x03\x01\x40\x01"), "malformed TLS record");
    assert_eq!(refused(b"\x16\x03\x05\x00\x10"), "malformed TLS record");
    assert_eq!(refused(b"\x16\x03\x01\x00\x10\x02"), "the first TLS message is not a ClientHello");
    assert_eq!(refused(b"\x16\x03\x01\x00\x10\x01\x00\x40\x01"), "ClientHello too large");
    assert_eq!(refused(b"\x16\x03\x01\x00\x01\x01\x17"), "another record inside the ClientHello");
}

#[test]
fn a_hello_that_two_readers_could_read_differently_is_refused() {
    let reason = |extensions: &[Vec<u8>]| refused(&records(&handshake(extensions), 9000));
    assert_eq!(reason(&[sni(b"a"), sni(b"a")]), "an extension is repeated in the ClientHello");
    let alpn = extension(ALPN, &sized(2, &sized(1, b"h2")));
    assert_eq!(reason(&[alpn.clone(), alpn]), "an extension is repeated in the ClientHello");
    let two = [&[0][..], &sized(2, b"a"), &[0], &sized(2, b"b")].concat();
    assert_eq!(reason(&[extension(SERVER_NAME, &sized(2, &two))]), MALFORMED);
    assert_eq!(reason(&[extension(SERVER_NAME, &sized(2, &[&[1][..], &sized(2, b"a")].concat()))]), MALFORMED);
    assert_eq!(reason(&[extension(SERVER_NAME, &[])]), MALFORMED);
    assert_eq!(reason(&[extension(ALPN, &sized(2, &[0]))]), MALFORMED);
    assert_eq!(reason(&[vec![0, 0, 0]]), MALFORMED);
    for name in [&b""[..], b"a\0b", b"a b", b"a..b", b"\xc3\xa9", b"[::1]", b"a:443"] {
        assert_eq!(reason(&[sni(name)]), "malformed server name in the ClientHello", "{name:?}");
    }
}

#[test]
fn a_hello_is_bounded() {
    let large = handshake(&[extension(21, &[0; 16_000]), extension(22, &[0; 300])]);
    for size in [1, 100, 16_000] {
        assert_eq!(refused(&records(&large, size)), "ClientHello too large");
    }
    let fits = handshake(&[extension(21, &[0; 16_000]), sni(b"a")]);
    assert!(matches!(server_name(&records(&fits, 16_384)), Progress::Done(_, _)));
    assert_eq!(refused(&records(&fits, 10)), "ClientHello too large", "records count too");
    assert!(server_name(&records(&fits, 16_384)[..16_000]) == Progress::Partial);
}

/// Says whether the input is a hello.
fn check_any(input: &[u8], cut: usize) -> bool {
    let whole = server_name(input);
    agree(&server_name(&input[..cut]), &whole, cut);
    let Progress::Done(hello, used) = whole else { return false };
    assert!(used <= input.len() && hello.alpn.len() <= PROTOCOLS_MAX);
    true
}

#[test]
fn mutated_hellos_hold() {
    let small =
        handshake(&[sni(b"example.com"), extension(ALPN, &sized(2, &sized(1, b"h2"))), extension(43, &[2, 3, 4])]);
    let seeds = [records(&small, 9000), records(&small, 40), records(&small, 3), records(&handshake(&typical()), 600)];
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    mutations(&seeds, 20_000, |input, dice| check_any(input, dice.roll(input.len() + 1)));
}

#[test]
fn every_cut_gives_the_same() {
    for size in [1, 7, 9000] {
        let large = records(&handshake(&[extension(21, &[0; 600]), sni(b"a")]), size);
        for cut in 0..=large.len() {
            check_any(&large, cut);
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        input in proptest::collection::vec(any::<u8>(), 0..300),
        cut in any::<prop::sample::Index>(),
    ) {
        check_any(&input, cut.index(input.len() + 1));
        let framed = records(&[&[CLIENT_HELLO][..], &sized(3, &input)].concat(), 64);
        check_any(&framed, cut.index(framed.len() + 1));
        let extensions = records(&handshake(&[input]), 9000);
        check_any(&extensions, cut.index(extensions.len() + 1));
    }

    #[test]
    fn cuts_near_the_limit_agree(size in 1_usize..40, cut in HELLO_MAX - 50..HELLO_MAX + 50) {
        let large = records(&handshake(&[extension(21, &[0; 16_000])]), size);
        check_any(&large, cut.min(large.len()));
    }
}
