//! Where names lead, and how many of them: every address that a name has is judged, a redirect is a new decision, names
//! carry no data out, and counts hold. In an internet of the test's own.

use crate::internet::{ALLOWED, Internet, OTHER, PRIVATE};
use crate::support::wait_for;

const GET: &str = "curl -sS -m 10 -o /dev/null -w '%{http_code}\\n'";

#[test]
fn a_name_that_leads_to_an_address_that_is_not_public_is_refused_and_not_dialled() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    let servers = [format!("{PRIVATE}:80"), "127.0.0.1:80".to_owned(), "169.254.169.254:80".to_owned()];
    for server in &servers {
        internet.world.listener(server);
    }
    internet.world.listener("[fd00::5]:80");
    for name in ["private.test", "mixed.test", "six.test", "alias.test", "loop.test", "metadata.test"] {
        let ran = internet.run(&["--allow-host", name], &format!("{GET} http://{name}/; exit 3")).code(3);
        assert_eq!(ran.out, "403\n", "{name}: {}", ran.err);
        ran.says(&[&format!("could not reach {name}:80"), "leads to"]);
        assert_ne!(internet.direct(&["--allow-host", name], &format!("{GET} -f http://{name}/")).code, 0, "{name}");
    }
    for server in servers.iter().map(String::as_str).chain(["[fd00::5]:80"]) {
        assert!(internet.world.dials(server).is_empty(), "{server}");
    }
    // Once a trusted layer lists the address, it is dialled.
    internet.world.http(&format!("{PRIVATE}:8081"));
    let flags = ["--allow-host", "private.test:8081", "--allow-host", &format!("{PRIVATE}:8081")];
    assert_eq!(internet.run(&flags, &format!("{GET} http://private.test:8081/")).ok(), "200\n");
}

#[test]
fn a_name_that_changes_its_address_leads_to_no_other_than_the_checked_one() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    internet.world.listener(&format!("{PRIVATE}:80"));
    let script = format!("for n in 1 2 3 4 5 6; do {GET} http://turns.test/; done; true");
    internet.direct(&["--allow-host", "turns.test"], &script).ok();
    assert!(internet.world.dials(&format!("{PRIVATE}:80")).is_empty());
}

#[test]
fn a_redirect_is_a_new_decision() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    let get = format!("{GET} -L 'http://allowed.test/redirect?to=http://other.test/secret'");
    let ran = internet.run(&["--allow-host", "allowed.test"], &format!("{get}; exit 3")).code(3);
    assert_eq!(ran.out, "403\n");
    internet.assert_untouched(&format!("{OTHER}:80"), "other.test");
    assert_eq!(internet.run(&["--allow-host", "allowed.test", "--allow-host", "other.test"], &get).ok(), "200\n");
}

/// Asks for names as fast as it can, and waits for no answer.
const FLOOD: &str = "import socket, struct, sys
resolver = [line.split()[1] for line in open('/etc/resolv.conf') if line.startswith('nameserver')][0]
s = socket.socket(socket.AF_INET6 if ':' in resolver else socket.AF_INET, socket.SOCK_DGRAM)
for number in range(int(sys.argv[1])):
    name = sys.argv[2].replace('@', str(number))
    labels = b''.join(bytes([len(label)]) + label.encode() for label in name.split('.')) + b'\\0'
    s.sendto(struct.pack('>HHHHHH', number, 0x100, 1, 0, 0, 0) + labels + struct.pack('>HH', 1, 1), (resolver, 53))
s.settimeout(2)
answers = 0
try:
    while True:
        s.recv(4096)
        answers += 1
except TimeoutError:
    print(answers)
";

#[test]
fn names_that_carry_data_never_leave_and_every_query_is_recorded() {
    let Some(internet) = Internet::with(&[]) else { return };
    internet.place.write("flood.py", FLOOD);
    let data = format!("{0}.{0}.{0}.x", "mzxw6ytboi4tcobqgy3dkobugezdgnbvgy3tqojq7f2e1d0c9b8a");
    let script = format!("python3 flood.py 5 {data}@.allowed.test; python3 flood.py 1 www.allowed.test");
    internet.run(&["--allow-host", "**.allowed.test"], &script).ok();
    let asked = internet.world.queries("allowed.test");
    assert!(asked.iter().all(|query| query.name == "www.allowed.test"), "{asked:?}");
    assert!(!asked.is_empty());
    let log = internet.place.sandbox(&["audit", "--event", "CONNECTION_ATTEMPT", "--format", "json"]).ok();
    let about = |name: &str, decision: &str| {
        log.lines().any(|line| line.contains(name) && line.contains(&format!("\"decision\":\"{decision}\"")))
    };
    assert!(about(&format!("{data}4.allowed.test"), "deny") && about("\"www.allowed.test\"", "allow"), "{log}");
}

#[test]
fn queries_past_the_limit_are_dropped() {
    let Some(internet) = Internet::with(&[]) else { return };
    internet.place.write("flood.py", FLOOD);
    internet.config("queries_per_second = 5\n");
    let out = internet.run(&["--network", "egress"], "python3 flood.py 60 host-@.test").ok();
    let answers: u32 = out.trim().parse().expect("a number");
    assert!((1..40).contains(&answers), "{answers} of 60 were answered");
}

/// Opens connections one after another, keeps them, and says how many lead somewhere.
const HOLD: &str = "import socket
address = socket.gethostbyname('allowed.test')
held = []
for number in range(5):
    try:
        s = socket.create_connection((address, 80), timeout=10)
        held.append(s)
        s.sendall(b'GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n')
        print('answered' if s.recv(100) else 'closed')
    except OSError:
        print('refused')
";

#[test]
fn connections_past_the_limit_are_refused_and_told() {
    let Some(internet) = Internet::with_web(&[]) else { return };
    internet.place.write("hold.py", HOLD);
    internet.config("max_connections = 2\n");
    let ran = internet.run(&["--allow-host", "allowed.test"], "python3 hold.py; exit 3").code(3);
    assert_eq!(ran.out, "answered\nanswered\nrefused\nrefused\nrefused\n");
    ran.says(&["more than 2 connections at once are refused"]);
}

#[test]
fn a_project_reaches_what_its_policy_lists_only_once_it_is_trusted() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    internet.place.write(".cofferdam/policy.toml", "[network]\nmode = \"egress\"\nallow = [\"allowed.test\"]\n");
    let get = format!("{GET} http://allowed.test/");
    assert_eq!(internet.run(&[], &get).out, "403\n");
    internet.assert_untouched(&format!("{ALLOWED}:80"), "allowed.test");
    internet.sandbox(&["trust", "--yes"]).code(0);
    assert_eq!(internet.run(&[], &get).ok(), "200\n");
}

#[test]
fn a_published_port_is_reached_from_the_host_and_no_other_is() {
    let Some(internet) = Internet::with(&["curl"]) else { return };
    internet.place.write("page", "the-page\n");
    let script = "python3 -m http.server 8000 2>/dev/null & python3 -m http.server 8001 2>/dev/null & echo up; read x; kill %1 %2";
    let session = internet.start(&["--publish", "18000:8000"], script);
    let get = |port: u16| {
        let url = format!("http://127.0.0.1:{port}/page");
        crate::support::finish(internet.command("curl").args(["-sS", "-m", "5", &url]), b"")
    };
    let page = wait_for("the page", || Some(get(18000)).filter(|ran| ran.code == 0));
    assert_eq!(page.out, "the-page\n");
    for port in [8000, 8001] {
        assert_ne!(get(port).code, 0, "{port}");
    }
    session.end();
    assert_ne!(get(18000).code, 0);
}
