//! What a session may reach: names, ports, the host's own loopback, and what it is told when it may not. In an internet of the
//! test's own; programs that know of no proxy are `egress_clients`.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::internet::{ALLOWED, Internet, OTHER};

const FLAGS: [&str; 2] = ["--allow-host", "allowed.test"];
const CHAIN: &str = "home:.local/state/cofferdam/audit/00000001.ndjson";

/// What is recorded about connections and names.
fn attempts(internet: &Internet) -> Vec<Value> {
    let log = internet.place.read(CHAIN).unwrap_or_default();
    let records = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("every line is a record"));
    records.filter(|record| record["event"] == "CONNECTION_ATTEMPT").collect()
}

#[test]
fn who_uses_the_proxy_is_told_the_rule_and_the_remedy() {
    let Some(internet) = Internet::with_web(&["curl", "git"]) else { return };
    let get = |url: &str| internet.run(&FLAGS, &format!("curl -sSi {url}"));
    assert!(get("http://allowed.test/plain").ok().contains("GET /plain HTTP/1.1"));
    for (url, remedy) in [
        ("http://other.test/", "--allow-host other.test"),
        ("http://allowed.test:8080/", "--allow-host allowed.test:8080"),
        ("http://127.0.0.2/", "--allow-host 127.0.0.2:80"),
    ] {
        let out = get(url).out;
        assert!(out.starts_with("HTTP/1.1 403 "), "{url}: {out}");
        assert!(out.contains("\r\nx-cofferdam-denied: ") && out.contains(remedy), "{url}: {out}");
    }
    // A tunnel is refused in the same words.
    let out = internet.run(&FLAGS, "curl -sv https://other.test/ 2>&1").code(56).out;
    for header in ["denied: network.allow", "why: no rule allows other.test:443", "remedy: `--allow-host other.test"] {
        assert!(out.contains(&format!("< x-cofferdam-{header}")), "{out}");
    }
    let ran = internet.run(&FLAGS, "git clone -q http://other.test/git/thing");
    assert!(ran.code != 0 && ran.err.contains("403"), "{}", ran.err);
    internet.assert_untouched(&format!("{OTHER}:80"), "other.test");
}

#[test]
fn a_package_client_that_uses_the_proxy_is_told_403() {
    let Some(internet) = Internet::with_web(&["pip3"]) else { return };
    let pip =
        "pip3 download -q --no-deps --no-input --retries 0 --trusted-host other.test -i http://other.test/simple x";
    let ran = internet.run(&FLAGS, pip);
    assert_ne!(ran.code, 0);
    let ran = ran.says(&["could not reach other.test:80", "--allow-host other.test"]);
    assert!(ran.err.contains("403") || ran.err.contains("No matching distribution"), "{}", ran.err);
    internet.assert_untouched(&format!("{OTHER}:80"), "other.test");
}

#[test]
fn a_refused_name_is_not_known_at_once_and_never_asked_outside() {
    let Some(internet) = Internet::with(&["getent"]) else { return };
    let started = Instant::now();
    internet.run(&FLAGS, "getent hosts other.test; getent ahosts sub.allowed.test").code(2);
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert!(internet.world.queries("other.test").is_empty() && internet.world.queries("sub.allowed.test").is_empty());
    let address = internet.run(&FLAGS, "getent ahostsv4 allowed.test | head -1").ok();
    assert!(address.starts_with("198.18.") || address.starts_with("198.19."), "{address}");
    assert!(!internet.world.queries("allowed.test").is_empty());
}

/// Sends datagrams until one is refused, and says when.
const DATAGRAM: &str = "import socket, sys, time
end = time.monotonic() + 3
with socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(0.1)
    try:
        s.connect((sys.argv[1], int(sys.argv[2])))
        while time.monotonic() < end:
            s.send(b'x')
            try:
                s.recv(10)
            except TimeoutError:
                pass
        print('not refused')
    except OSError as error:
        print('refused:', error.strerror)
";

#[test]
fn datagrams_are_refused_at_once() {
    let Some(internet) = Internet::with(&[]) else { return };
    internet.place.write("datagram.py", DATAGRAM);
    let script = format!(
        "address=$(getent ahostsv4 allowed.test | awk 'NR == 1 {{ print $1 }}')
         for to in $address {ALLOWED} {OTHER}; do python3 datagram.py $to 443; done"
    );
    let started = Instant::now();
    let out = internet.run(&FLAGS, &script).ok();
    assert_eq!(out.lines().filter(|line| line.starts_with("refused: ")).count(), 3, "{out}");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn addresses_are_no_way_around_names() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    for to in [ALLOWED, OTHER, "127.0.0.2", "169.254.169.254", "10.1.2.3", "[2001:db8::1]"] {
        let ran = internet.direct(&FLAGS, &format!("curl -sS -m 10 http://{to}/"));
        assert!(ran.code != 0 && ran.code != 28, "{to}: {} {} {}", ran.code, ran.out, ran.err);
    }
    assert!(internet.world.connections(&format!("{ALLOWED}:80")).is_empty());
    let ran = internet.direct(&["--allow-host", ALLOWED], &format!("curl -sS http://{ALLOWED}/plain"));
    assert!(ran.ok().contains("GET /plain"));
}

/// Serves one file at every address it is given, until it is ended.
const SERVER: &str = "import http.server, socket, sys, threading
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments): pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
server = Server((sys.argv[1], int(sys.argv[2])), Quiet)
print('up', flush=True)
server.serve_forever()
";

#[test]
fn a_server_inside_listens_anywhere_and_is_reached_at_localhost() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    internet.place.write("server.py", SERVER);
    internet.place.write("page", "the-page\n");
    for (address, port, url) in [
        ("0.0.0.0", 8080, "http://localhost:8080/page"),
        ("127.0.0.1", 3000, "http://127.0.0.1:3000/page"),
        ("::", 3000, "http://[::1]:3000/page"),
        ("::", 8080, "http://localhost:8080/page"),
        ("0.0.0.0", 3128, "http://localhost:3128/page"),
    ] {
        let script = format!(
            "coproc python3 server.py {address} {port}; read -u ${{COPROC[0]}} up; curl -sS -m 5 {url}; code=$?
             curl -sS -m 5 -o /dev/null -w '%{{http_code}}\\n' http://allowed.test/; kill $COPROC_PID; exit $code"
        );
        assert_eq!(internet.run(&FLAGS, &script).ok(), "the-page\n200\n", "{address}:{port}");
    }
}

#[test]
fn a_server_inside_does_not_hear_what_is_meant_for_a_host_outside() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    internet.place.write("server.py", SERVER);
    for address in ["0.0.0.0", "::"] {
        let script = format!(
            "coproc python3 server.py {address} 8080; read -u ${{COPROC[0]}} up
             curl -sS -m 5 http://allowed.test:8080/outside; code=$?; kill $COPROC_PID; exit $code"
        );
        let out = internet.direct(&["--allow-host", "allowed.test:8080"], &script).ok();
        assert!(out.contains("GET /outside HTTP/1.1"), "{address}: {out}");
    }
}

#[test]
fn a_chosen_port_of_the_host_is_reached_and_no_other() {
    let Some(internet) = Internet::with(&["curl"]) else { return };
    internet.world.http("127.0.0.1:9000");
    internet.world.http("127.0.0.1:9001");
    let script = "curl -sS -m 5 http://127.0.0.1:9000/mine; curl -sS -m 5 http://localhost:9000/again
        curl -sS -m 5 http://127.0.0.1:9001/; curl -sS -m 5 http://localhost:9001/";
    for flags in [&["--host-port", "9000"][..], &["--host-port", "9000", "--allow-host", "allowed.test"]] {
        let ran = internet.direct(flags, script).code(7);
        assert!(ran.out.contains("GET /mine HTTP") && ran.out.contains("GET /again HTTP"), "{}{}", ran.out, ran.err);
    }
    assert!(internet.world.connections("127.0.0.1:9001").is_empty());
    internet.direct(&FLAGS, "curl -sS -m 5 http://127.0.0.1:9000/").code(7);
}

#[test]
fn the_hosts_network_is_not_given_for_a_flag() {
    let Some(internet) = Internet::with(&["curl"]) else { return };
    internet.world.http("127.0.0.1:9001");
    // A flag alone is no approval; what an approved session has and records is shown in `terminal`.
    let ran = internet.run(&["--network", "host"], "curl -sS http://127.0.0.1:9001/mine").code(126);
    ran.says(&["needs an approval", "allow_network_host = true", "--allow-host"]);
    assert!(internet.world.connections("127.0.0.1:9001").is_empty());
}

#[test]
fn what_was_reached_and_what_was_not_is_recorded() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    let script = "curl -sS -o /dev/null http://allowed.test/bytes/5000; curl -sS http://allowed.test:8080/; \
                  curl -sS http://other.test/; exit 3";
    let ran = internet.direct(&FLAGS, script).code(3);
    ran.says(&[
        "could not reach allowed.test:8080",
        "--allow-host allowed.test:8080",
        "could not look up other.test",
        "--allow-host other.test",
    ]);
    let attempts = attempts(&internet);
    let about = |host: &str, port: u16| {
        let found = attempts.iter().find(|one| one["details"]["host"] == host && one["details"]["port"] == port);
        found.unwrap_or_else(|| panic!("{host}:{port} is not among {attempts:#?}"))
    };
    let reached = about("allowed.test", 80);
    assert_eq!((&reached["decision"], &reached["details"]["address"]), (&"allow".into(), &ALLOWED.into()));
    assert_eq!(reached["origin"], "flag: --allow-host", "{reached}");
    let total = |way: &str| {
        let same = attempts.iter().filter(|one| one["details"]["host"] == "allowed.test");
        same.filter_map(|one| one["details"][way].as_u64()).sum::<u64>()
    };
    assert!(total("down") > 5000 && total("up") > 50, "{attempts:#?}");
    let refused = about("allowed.test", 8080);
    assert_eq!((&refused["decision"], &refused["details"]["address"]), (&"deny".into(), &Value::Null));
    let name = attempts.iter().find(|one| one["details"]["query"] == "other.test").expect("the query is recorded");
    assert_eq!(name["decision"], "deny");
    internet.place.sandbox(&["audit", "verify"]).ok();
}

#[test]
fn why_says_what_a_session_would_do_and_what_one_did() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    internet.config("allow = [\"allowed.test\", \"*.deep.test:22\"]\ndeny = [\"bad.deep.test\"]\n");
    let why = |arguments: &[&str]| internet.sandbox(&[&["why"], arguments].concat()).ok();
    for (target, flags, texts) in [
        ("allowed.test", &["--network", "egress"][..], &["can be reached", "allowed.test", "config.toml:3"][..]),
        ("allowed.test:80", &["--network", "egress"], &["can be reached", "--deny-host allowed.test:80"]),
        ("allowed.test:22", &["--network", "egress", "--mode", "static"], &["cannot be reached", "not about port 22"]),
        ("a.deep.test:22", &["--network", "egress"], &["can be reached", "*.deep.test:22"]),
        (
            "bad.deep.test:22",
            &["--network", "egress"],
            &["cannot be reached", "remove `bad.deep.test`", "config.toml:4"],
        ),
        ("other.test", &["--network", "egress", "--on-unknown", "ask"], &["would be asked", "--allow-host other.test"]),
        ("other.test", &["--network", "egress", "--on-unknown", "deny"], &["cannot be reached", "no rule allows"]),
        ("other.test", &["--network", "host"], &["can be reached", "unfiltered"]),
        ("other.test", &["--network", "none"], &["own loopback", "--network egress --allow-host other.test"]),
        ("169.254.169.254:80", &["--network", "egress"], &["cannot be reached", "cloud metadata"]),
        ("10.1.2.3:5432", &["--network", "egress"], &["cannot be reached", "--allow-host 10.1.2.3:5432"]),
    ] {
        let told = why(&[&[target], flags].concat());
        for text in texts {
            assert!(told.contains(text), "{target} {flags:?}: `{text}` is not in\n{told}");
        }
    }
    let script = "curl -sS -o /dev/null http://allowed.test/; curl -sS http://allowed.test:8080/; curl -sS http://bad.deep.test/; exit 3";
    internet.direct(&["--network", "egress"], script).code(3).says(&["remove `bad.deep.test` from network.deny"]);
    let log = attempts(&internet);
    let session = log.first().and_then(|one| one["sandboxId"].as_str()).expect("a session");
    let told = why(&["allowed.test", "--session", session]);
    assert!(told.contains("allowed allowed.test:80") && told.contains("denied allowed.test:8080"), "{told}");
    assert!(!why(&["allowed.test:80", "--session", session]).contains("8080"));
    assert!(why(&["bad.deep.test", "--session", session]).contains("denied the name bad.deep.test"));
    assert!(why(&["third.test", "--session", session]).contains("never asked"));
}

#[test]
fn a_request_that_is_long_does_not_end_what_records_it() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    internet.config("mode = \"egress\"\nallow = [{ host = \"allowed.test\", paths = [\"/plain\"] }]\n");
    let get = "curl -sS -o /dev/null -w '%{http_code}\\n'";
    let script = format!("{get} http://allowed.test/$(printf 'x%.0s' {{1..9000}}); {get} http://allowed.test/plain");
    assert_eq!(internet.run(&[], &script).ok(), "403\n200\n");
    assert!(
        attempts(&internet).iter().any(|record| record["details"]["outcome"] == "denied"),
        "the denial is recorded"
    );
}
