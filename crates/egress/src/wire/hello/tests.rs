use proptest::prelude::*;
use rustls::server::Acceptor;

use super::super::mutate::{agree, mutations};
use super::*;

const ALPN: u16 = 16;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

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
    let expected = Some("www.example.com".to_owned());
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
    assert_eq!(server_name(&buf), Progress::Done(None, buf.len()));
    // Without any extensions at all, as before TLS 1.3.
    let mut message = handshake(&[]);
    message.truncate(message.len() - 2);
    message[3] -= 2;
    let buf = records(&message, 9000);
    assert_eq!(server_name(&buf), Progress::Done(None, buf.len()));
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
    let unknown = extension(0xffff, &[]);
    assert_eq!(reason(&[unknown.clone(), sni(b"a"), unknown]), "an extension is repeated in the ClientHello");
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

#[test]
fn what_is_not_read_is_for_the_server_to_judge() {
    for value in [&[][..], &[0], &sized(2, &[0])] {
        let buf = records(&handshake(&[extension(ALPN, value), sni(b"a")]), 9000);
        assert_eq!(server_name(&buf), Progress::Done(Some("a".to_owned()), buf.len()));
    }
}

/// What rustls would have read.
fn by_rustls(mut bytes: &[u8]) -> Progress<Option<String>> {
    let mut acceptor = Acceptor::default();
    let length = bytes.len();
    while !bytes.is_empty() {
        acceptor.read_tls(&mut bytes).expect("room for the bytes");
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                return Progress::Done(accepted.client_hello().server_name().map(str::to_owned), length);
            }
            Ok(None) => {}
            Err(_) => return Progress::Bad("rustls", 400),
        }
    }
    Progress::Partial
}

/// Where a row fails, decision 0046 is to be looked at again.
#[test]
fn rustls_reads_a_hello_for_another_purpose() {
    let signatures = extension(13, &sized(2, &[4, 3, 8, 4]));
    let named = |name: &[u8]| vec![sni(name), signatures.clone()];
    let in_record = |extensions: &[Vec<u8>]| records(&handshake(extensions), 9000);
    let name = Some("a.test".to_owned());
    let read = |buf: &[u8]| Progress::Done(name.clone(), buf.len());
    let no = Progress::Bad("rustls", 400);
    let plain = in_record(&named(b"a.test"));
    assert_eq!((server_name(&plain), by_rustls(&plain)), (read(&plain), read(&plain)));

    // It refuses what servers take: no signature algorithms, another message behind, a name that only DNS has.
    let old = in_record(&[sni(b"a.test")]);
    assert_eq!((server_name(&old), by_rustls(&old)), (read(&old), no.clone()));
    let more = records(&[handshake(&named(b"a.test")), vec![20, 0, 0, 1, 1]].concat(), 9000);
    assert_eq!((server_name(&more), by_rustls(&more)), (Progress::Done(name.clone(), more.len() - 5), no.clone()));
    assert_eq!(by_rustls(&in_record(&named(b"a-.test"))), no);

    // It takes what two servers could read differently.
    let list = [&[0][..], &sized(2, b"a.test"), &[1], &sized(2, b"x"), &[0], &sized(2, b"b.test")].concat();
    let two = in_record(&[extension(SERVER_NAME, &sized(2, &list)), signatures.clone()]);
    assert_eq!((refused(&two), by_rustls(&two)), (MALFORMED, read(&two)));

    // It waits for the rest of what cannot become a hello any more.
    for hopeless in [&b"\x16\x03\x01\x00\x10\x02"[..], b"\x16\x03\x01\x00\x10\x01\x00\x40\x01"] {
        refused(hopeless);
        assert_eq!(by_rustls(hopeless), Progress::Partial);
    }
}

/// Says whether the input is a hello.
fn check_any(input: &[u8], cut: usize) -> bool {
    let whole = server_name(input);
    agree(&server_name(&input[..cut]), &whole, cut);
    assert!(whole != Progress::Partial || input.len() < HELLO_MAX, "more is never asked for than may be read");
    let Progress::Done(_, used) = whole else { return false };
    assert!(used <= input.len());
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
