use proptest::prelude::*;

use super::super::Progress;
use super::super::mutate::{agree, mutations};
use super::chunked::Scan;
use super::*;

fn request(text: &str) -> RequestHead<'_> {
    match parse_request(text.as_bytes()) {
        Progress::Done(head, used) => {
            assert_eq!(used, text.len());
            head
        }
        other => panic!("{text:?}: {other:?}"),
    }
}

fn refusal(text: &[u8]) -> u16 {
    match parse_request(text) {
        Progress::Bad(_, status) => status,
        other => panic!("{:?}: {other:?}", String::from_utf8_lossy(text)),
    }
}

fn sent(text: &str) -> String {
    let mut out = Vec::new();
    rewrite(&request(text), &mut out, |_, _| None).expect("nothing is replaced");
    String::from_utf8(out).expect("the tests write ASCII")
}

#[test]
fn the_three_forms_of_a_target_are_told_apart() {
    let head = request("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n");
    assert_eq!(head.target, RequestTarget::Authority { host: "example.com", port: "443" });
    let head = request("CONNECT [2001:db8::1]:443 HTTP/1.0\r\n\r\n");
    assert_eq!(head.target, RequestTarget::Authority { host: "[2001:db8::1]", port: "443" });
    let head = request("GET http://Example.com:8080/a?b=c HTTP/1.1\r\nhost: example.com:8080\r\n\r\n");
    assert_eq!(head.target, RequestTarget::Absolute { authority: "Example.com:8080", path_and_query: "/a?b=c" });
    let head = request("GET HTTP://example.com?q HTTP/1.1\r\nHost: EXAMPLE.com.:80\r\n\r\n");
    assert_eq!(head.target, RequestTarget::Absolute { authority: "example.com", path_and_query: "?q" });
    let head = request("GET /a/b HTTP/1.1\r\nHost:\texample.com \r\n\r\n");
    assert_eq!(head.target, RequestTarget::Origin { path_and_query: "/a/b" });
    assert_eq!(head.authority(), Some("example.com"));
}

#[test]
fn a_request_says_how_its_body_ends_and_whether_the_connection_stays() {
    let head = request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\nExpect: 100-Continue\r\n\r\n");
    assert_eq!((head.body, head.keep_alive), (BodyKind::Length(12), true));
    let head = request("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: foo, Close\r\n\r\n");
    assert_eq!((head.body, head.keep_alive), (BodyKind::Chunked, false));
    let head = request("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!((head.body, head.keep_alive, head.host), (BodyKind::None, false, None));
    let head = request("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n");
    assert_eq!((head.body, head.keep_alive), (BodyKind::None, true), "an offer of h2c is no fault");
    assert_eq!(
        request("CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").body,
        BodyKind::Length(0),
        "an empty body is no body"
    );
}

#[test]
fn requests_with_two_meanings_are_refused() {
    let with = |headers: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
    for (input, status) in [
        // G23: framing.
        (with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400),
        (with("Content-Length: 5\r\nContent-Length: 5\r\n"), 400),
        (with("Content-Length: 5\r\nContent-Length: 6\r\n"), 400),
        (with("Content-Length: 5, 5\r\n"), 400),
        (with("Content-Length: +5\r\n"), 400),
        (with("Content-Length: 0x5\r\n"), 400),
        (with("Content-Length: 5 5\r\n"), 400),
        (with("Content-Length:\r\n"), 400),
        (with("Content-Length: 18446744073709551616\r\n"), 400),
        (with("Transfer-Encoding: gzip, chunked\r\n"), 400),
        (with("Transfer-Encoding: chunked, identity\r\n"), 400),
        (with("Transfer-Encoding: xchunked\r\n"), 400),
        (with("Transfer-Encoding: \"chunked\"\r\n"), 400),
        (with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400),
        (with("Transfer-Encoding : chunked\r\n"), 400),
        (with("Transfer-Encoding: chunked\n"), 400),
        (with("A: b\rTransfer-Encoding: chunked\r\n"), 400),
        (with("A: b\0\r\n"), 400),
        (with("A: b\x0b\r\n"), 400),
        (with("A: b\r\n c\r\n"), 400),
        (with(" A: b\r\n"), 400),
        (with(": b\r\n"), 400),
        (with("no colon\r\n"), 400),
        (with("A\u{e9}: b\r\n"), 400),
        (with("Connection: a b\r\n"), 400),
        (with("Expect: miracles\r\n"), 417),
        // G19: which host.
        (with("Host: a\r\n"), 400),
        (with("Host: b\r\n"), 400),
        ("GET / HTTP/1.1\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n".into(), 400),
        ("GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n".into(), 400),
        ("GET http://a/ HTTP/1.1\r\nHost: a:81\r\n\r\n".into(), 400),
        ("GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET http://a/ HTTP/1.0\r\nHost: b\r\n\r\n".into(), 400),
        ("CONNECT a:443 HTTP/1.1\r\nHost: b:443\r\n\r\n".into(), 400),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:80\r\n\r\n".into(), 400),
        // G14, G16: authorities.
        ("GET http://user:pass@a/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET http://a@b/ HTTP/1.1\r\nHost: b\r\n\r\n".into(), 400),
        ("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET http://a%2eb/ HTTP/1.1\r\nHost: a%2eb\r\n\r\n".into(), 400),
        ("GET http://a\\b/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET http://a:/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET http://[fe80::1%25eth0]/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET http://[::1/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET http://[::1]x/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("CONNECT a HTTP/1.0\r\n\r\n".into(), 400),
        ("CONNECT a:0 HTTP/1.0\r\n\r\n".into(), 400),
        ("CONNECT a:065 HTTP/1.0\r\n\r\n".into(), 400),
        ("CONNECT a:65536 HTTP/1.0\r\n\r\n".into(), 400),
        ("CONNECT a:+80 HTTP/1.0\r\n\r\n".into(), 400),
        ("CONNECT http://a:80/ HTTP/1.0\r\n\r\n".into(), 400),
        ("CONNECT a:80:80 HTTP/1.0\r\n\r\n".into(), 400),
        // Start lines.
        ("GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET a/b HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET /\tHTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET /\r\n\r\n".into(), 400),
        ("get / HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET / HTTP/1.2\r\nHost: a\r\n\r\n".into(), 400),
        ("GET / http/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), 400),
        ("\x16\x03\x01\x02\x00\x01".into(), 400),
        // G25.
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n".into(), 405),
        (with("Upgrade: websocket\r\nConnection: upgrade\r\n"), 405),
        (with("Upgrade: h2c, websocket\r\n"), 405),
        (with("Upgrade: h2c\r\nUpgrade: h2c\r\n"), 405),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\nContent-Length: 3\r\n\r\n".into(), 405),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\nTransfer-Encoding: chunked\r\n\r\n".into(), 405),
    ] {
        assert_eq!(refusal(input.as_bytes()), status, "{input:?}");
    }
}

#[test]
fn userinfo_is_refused_for_what_it_is() {
    for input in ["GET http://a@b/ HTTP/1.1\r\n", "CONNECT u:p@b:443 HTTP/1.1\r\n"] {
        assert_eq!(parse_request(input.as_bytes()), Progress::Bad("userinfo in the authority", 400));
    }
}

#[test]
fn heads_are_bounded() {
    let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(REQUEST_HEAD_MAX));
    assert_eq!(refusal(long.as_bytes()), 431);
    let many = format!("GET / HTTP/1.0\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1));
    assert_eq!(refusal(many.as_bytes()), 431);
    let most = format!("GET / HTTP/1.0\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX));
    assert_eq!(request(&most).headers.len(), HEADERS_MAX);
    let sized = |length: usize| format!("GET /{} HTTP/1.0\r\n\r\n", "a".repeat(length - 18));
    request(&sized(REQUEST_HEAD_MAX));
    assert_eq!(refusal(sized(REQUEST_HEAD_MAX + 1).as_bytes()), 431);
    for cut in REQUEST_HEAD_MAX - 20..=REQUEST_HEAD_MAX + 1 {
        check_any(sized(REQUEST_HEAD_MAX + 1).as_bytes(), cut);
    }
}

#[test]
fn what_concerns_one_connection_is_not_sent_on() {
    let text = "GET http://a.example/x HTTP/1.1\r\nHost: A.example\r\nConnection: X-Secret, keep-alive\r\n\
        X-Secret: 1\r\nProxy-Authorization: Basic x\r\nProxy-Connection: keep-alive\r\nKeep-Alive: 5\r\nTE: trailers\r\n\
        Trailer: a\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nAccept: */*\r\n\r\n";
    assert_eq!(sent(text), "GET /x HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n\r\n");
    assert!(sent("GET http://a HTTP/1.1\r\nHost: a\r\n\r\n").starts_with("GET / HTTP/1.1\r\n"));
    assert!(sent("GET http://a?b HTTP/1.1\r\nHost: a\r\n\r\n").starts_with("GET /?b HTTP/1.1\r\n"));
    assert_eq!(sent("GET /b HTTP/1.0\r\n\r\n"), "GET /b HTTP/1.0\r\nConnection: close\r\n\r\n");
}

#[test]
fn a_client_cannot_have_the_framing_dropped() {
    let text = "POST / HTTP/1.1\r\nHost: a\r\nConnection: content-length, host\r\nContent-Length: 007\r\n\r\n";
    assert_eq!(sent(text), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n");
    let text = "POST / HTTP/1.1\r\nHost: a\r\nConnection: transfer-encoding\r\nTransfer-Encoding: CHUNKED\r\n\r\n";
    assert_eq!(sent(text), "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
}

#[test]
fn a_replaced_value_cannot_add_a_line() {
    let head = request("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: placeholder\r\nAccept: x\r\n\r\n");
    let swap = |with: &'static str| {
        move |name: &str, value: &[u8]| {
            (name == "Authorization" && value == b"placeholder").then(|| with.as_bytes().to_vec())
        }
    };
    let mut out = b"kept".to_vec();
    rewrite(&head, &mut out, swap("Bearer t")).expect("a plain value");
    assert_eq!(out, b"keptGET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer t\r\nAccept: x\r\n\r\n");
    let mut out = b"kept".to_vec();
    let error = rewrite(&head, &mut out, swap("t\r\nX: y")).expect_err("two lines");
    assert_eq!((error.header.as_str(), out.as_slice()), ("Authorization", &b"kept"[..]));
}

#[test]
fn responses_are_framed() {
    let rest = |status: u16, headers: &str| format!("HTTP/1.1 {status} X\r\n{headers}\r\n");
    for (method, text, body, keep_alive) in [
        ("GET", rest(200, "Content-Length: 4\r\n"), ResponseBody::Length(4), true),
        ("GET", rest(200, "Transfer-Encoding: chunked\r\n"), ResponseBody::Chunked, true),
        ("GET", rest(200, ""), ResponseBody::UntilClose, false),
        ("HEAD", rest(200, "Content-Length: 4\r\n"), ResponseBody::None, true),
        ("GET", rest(204, ""), ResponseBody::None, true),
        ("GET", rest(304, "Content-Length: 9\r\n"), ResponseBody::None, true),
        ("GET", rest(100, ""), ResponseBody::None, true),
        ("GET", rest(200, "Content-Length: 4\r\nConnection: close\r\n"), ResponseBody::Length(4), false),
        ("GET", "HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\n".into(), ResponseBody::Length(4), false),
        ("GET", "HTTP/1.1 404\r\nContent-Length: 4\r\n\r\n".into(), ResponseBody::Length(4), true),
    ] {
        let Progress::Done(head, _) = parse_response(text.as_bytes(), method) else { panic!("{text:?}") };
        assert_eq!((head.body, head.keep_alive), (body, keep_alive), "{method} {text:?}");
    }
    for text in [
        rest(200, "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
        rest(200, "Content-Length: 4\r\nContent-Length: 4\r\n"),
        rest(200, "Transfer-Encoding: gzip\r\n"),
        rest(200, "A: b\n"),
        rest(101, "Upgrade: x\r\n"),
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".into(),
        "HTTP/2 200 OK\r\n\r\n".into(),
        "HTTP/1.1 99 X\r\n\r\n".into(),
        "HTTP/1.1 2000\r\n\r\n".into(),
        "HTTP/1.1 600 X\r\n\r\n".into(),
        "ICY 200 OK\r\n\r\n".into(),
        "SSH-2.0-x\r\n".into(),
    ] {
        assert!(matches!(parse_response(text.as_bytes(), "GET"), Progress::Bad(_, 502)), "{text:?}");
    }
}

#[test]
fn a_response_travels_without_its_connection_headers() {
    let text = b"HTTP/1.1 200 OK\r\nConnection: a\r\nA: b\r\nContent-Length: 4\r\nServer: x\r\nKeep-Alive: 1\r\n\r\n";
    let Progress::Done(head, _) = parse_response(text, "HEAD") else { panic!("a good response") };
    let mut out = Vec::new();
    rewrite_response(&head, false, &mut out, |_| None);
    assert_eq!(out, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nServer: x\r\nConnection: close\r\n\r\n");
    let Progress::Done(head, _) = parse_response(text, "GET") else { panic!("a good response") };
    let mut out = Vec::new();
    rewrite_response(&head, true, &mut out, |_| None);
    assert_eq!(out, b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 4\r\n\r\n");
}

const BODIES: [&[u8]; 3] = [
    b"0\r\n\r\n",
    b"5;a=\"b\"\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\nnext",
    b"1\r\nx\r\n000\r\nX-Sum: 1\r\nB:\r\n\r\n",
];

#[test]
fn a_chunked_body_ends_where_it_says() {
    for (body, used) in BODIES.iter().zip([5, 36, 27]) {
        assert_eq!(Chunked::default().scan(body), Ok(Scan { used, ended: true }));
    }
    let long = [b"1;".as_slice(), &[b'x'; 300], b"\r\nx\r\n0\r\n\r\n"].concat();
    let trailers = [b"0\r\n".as_slice(), b"Name: value\r\n".repeat(700).as_slice(), b"\r\n"].concat();
    for bad in [
        b"\r\n".as_slice(),
        b";x\r\n",
        b"0x5\r\nhello\r\n",
        b"5 \r\nhello\r\n",
        b" 5\r\nhello\r\n",
        b"+5\r\nhello\r\n",
        b"-1\r\n",
        b"5\nhello\r\n",
        b"5\rhello\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5;a\n\r\nhello",
        b"1000000000000000\r\n",
        b"0\r\n\n",
        b"0\r\n: x\r\n\r\n",
        b"0\r\nA b: x\r\n\r\n",
        b"0\r\nGET / HTTP/1.1\r\n\r\n",
        b"0\r\nA: x\n\r\n",
        b"0\r\nA: x\r\n folded\r\n\r\n",
        &long,
        &trailers,
    ] {
        assert!(Chunked::default().scan(bad).is_err(), "{:?}", String::from_utf8_lossy(bad));
    }
}

/// What a body scanned in two reads comes to.
fn in_two(body: &[u8], cut: usize) -> Result<Scan, &'static str> {
    let mut scanner = Chunked::default();
    let first = scanner.scan(&body[..cut])?;
    if first.ended {
        return Ok(first);
    }
    assert_eq!(first.used, cut, "all bytes are the body's until it ends");
    let second = scanner.scan(&body[cut..])?;
    Ok(Scan { used: cut + second.used, ended: second.ended })
}

#[test]
fn a_denial_says_who_decided_and_cannot_be_split() {
    let text = denial(403, "project: net\r\nSet-Cookie: a=b\u{e9}", "host \x1b[2Jevil\n\u{202e}", "add `a`", true);
    let text = String::from_utf8(text).expect("denials are text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\nx-cofferdam-denied: project: net??Set-Cookie: a=b?\r\n"));
    assert!(head.contains(&format!("content-length: {}\r\n", body.len())) && head.ends_with("connection: close"));
    assert_eq!(
        body,
        "sandbox: denied by project: net??Set-Cookie: a=b\u{e9}\n  why: host ?[2Jevil??\n  to allow: add `a`\n"
    );
    let text = denial(405, &"r".repeat(9000), "", "", false);
    assert!(text.len() < 2000 && matches!(parse_response(&text, "GET"), Progress::Done(head, _) if head.keep_alive));
}

const SEEDS: [&[u8]; 6] = [
    b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nProxy-Connection: keep-alive\r\n\r\n",
    b"GET http://example.com/a?b=c HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\nConnection: close, x\r\nX: y\r\n\r\n",
    b"POST /upload HTTP/1.1\r\nHost: [2001:db8::1]:80\r\nContent-Length: 12\r\nExpect: 100-continue\r\n\r\nhello",
    b"PUT /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nUpgrade: h2c\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: x\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
];

/// What must hold for any bytes at all; says whether they are the start of anything.
fn check_any(input: &[u8], cut: usize) -> bool {
    let mut good = false;
    let whole = parse_request(input);
    agree(&parse_request(&input[..cut]), &whole, cut);
    if let Progress::Done(head, used) = &whole {
        assert!(*used <= input.len());
        check_sent(head);
        good = true;
    }
    let whole = parse_response(input, "GET");
    agree(&parse_response(&input[..cut], "GET"), &whole, cut);
    if let Progress::Done(head, _) = &whole {
        let mut out = Vec::new();
        rewrite_response(head, head.keep_alive, &mut out, |_| None);
        let Progress::Done(again, used) = parse_response(&out, "GET") else { panic!("{out:?}") };
        assert_eq!((again.body, used), (head.body, out.len()));
        good = true;
    }
    let whole = Chunked::default().scan(input);
    assert_eq!(in_two(input, cut), whole);
    good || matches!(whole, Ok(Scan { ended: true, .. }))
}

/// A request sent on means what was decided about, and nothing of the connection is left in it.
fn check_sent(head: &RequestHead<'_>) {
    if matches!(head.target, RequestTarget::Authority { .. }) {
        return;
    }
    let mut out = Vec::new();
    rewrite(head, &mut out, |_, _| None).expect("nothing is replaced");
    let Progress::Done(again, used) = parse_request(&out) else { panic!("{:?}", String::from_utf8_lossy(&out)) };
    assert_eq!(used, out.len());
    assert_eq!((again.method, again.body, again.keep_alive), (head.method, head.body, head.keep_alive));
    assert_eq!(again.authority(), head.authority());
    let stays = |name: &str| name.eq_ignore_ascii_case("upgrade") || name.to_lowercase().starts_with("proxy-");
    assert!(!again.headers.iter().any(|header| stays(header.name)));
}

#[test]
fn mutated_messages_have_one_meaning_or_none() {
    let seeds: Vec<&[u8]> = SEEDS.iter().chain(&BODIES).copied().collect();
    mutations(&seeds, 20_000, |input, dice| check_any(input, dice.roll(input.len() + 1)));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        input in proptest::collection::vec(any::<u8>(), 0..300),
        cut in any::<prop::sample::Index>(),
    ) {
        check_any(&input, cut.index(input.len() + 1));
    }

    #[test]
    fn arbitrary_header_lines_never_panic(
        text in "(GET|POST|CONNECT) [ -~]{1,20} HTTP/1.[01]\r\n([A-Za-z-]{1,8}:[ -~]{0,12}\r\n){0,5}\r\n",
        cut in any::<prop::sample::Index>(),
    ) {
        check_any(text.as_bytes(), cut.index(text.len() + 1));
    }
}

#[test]
fn every_cut_of_a_good_message_gives_the_same() {
    for seed in SEEDS.iter().chain(&BODIES) {
        for cut in 0..=seed.len() {
            check_any(seed, cut);
        }
    }
}
