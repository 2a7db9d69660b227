//! Processes, ports and names of the host are out of sight; the sandbox has its own.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};

use crate::support::{Place, wait_for};

#[test]
fn ps_sees_only_the_sandbox() {
    let Some(place) = Place::with(&["ps"]) else { return };
    let out = place.inside("ps -e -o pid=,comm=; true").ok();
    let names: Vec<&str> = out.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(names, ["sandbox", "bash", "ps"], "{out}");
    // Pid 1, and the shell that asks.
    assert_eq!(place.inside("echo /proc/[0-9]* $$").ok().split_whitespace().count(), 3);
}

const SERVER: &str = "
import socket, sys
server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(('0.0.0.0', int(sys.argv[1]))); server.listen()
if len(sys.argv) > 2:
    print('listening', flush=True); sys.stdin.readline()
else:
    client = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)
    client.send(b'inner'); print(server.accept()[0].recv(5).decode())
";

#[test]
fn a_server_binds_a_port_that_the_host_uses_at_the_same_time() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let host = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = host.local_addr().expect("an address").port().to_string();
    place.write("server.py", SERVER);
    assert_eq!(place.run(&[], &["python3", "server.py", &port]).ok(), "inner\n");
    // Not one connection from inside came to the host's listener.
    host.set_nonblocking(true).expect("it can be asked");
    assert!(host.accept().is_err());
}

#[test]
fn a_server_inside_is_not_reachable_from_the_host() {
    let Some(place) = Place::with(&["python3"]) else { return };
    // Bound, so that no other process on this host comes to listen there, but without a listener of its own.
    let host = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&host, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address: SocketAddr = getsockname(&host).expect("bound").try_into().expect("an address of the Internet");
    place.write("server.py", SERVER);
    let mut session = place.start(&[], &format!("exec python3 server.py {} wait", address.port()));
    assert_eq!(session.first_line, "listening");
    assert!(TcpStream::connect_timeout(&address, Duration::from_secs(2)).is_err());
    session.tell("\n");
    assert_eq!(session.end().0, 0);
}

#[test]
fn nothing_outside_can_be_connected_to() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let host = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = host.local_addr().expect("an address");
    std::thread::spawn(move || {
        if let Ok((mut stream, _)) = host.accept() {
            stream.write_all(b"leak").ok();
        }
    });
    let script = format!(
        "
import socket
for target in (('127.0.0.1', {}), ('192.0.2.1', 80), ('2001:db8::1', 80)):
    try: s = socket.create_connection(target, 2); s.shutdown(socket.SHUT_WR); print(s.recv(9))
    except OSError as error: print('refused')
",
        address.port()
    );
    place.write("connect.py", &script);
    let none = place.run(&["--network", "none"], &["python3", "connect.py"]).ok();
    assert_eq!(none, "refused\nrefused\nrefused\n");
    // Where no layer said a word, what is asked for is heard inside, to be refused by name: nothing ever comes back.
    let unsaid = place.run(&[], &["python3", "connect.py"]).ok();
    assert!(
        unsaid.starts_with("refused\n") && unsaid.lines().all(|line| matches!(line, "refused" | "b''")),
        "{unsaid}"
    );
    TcpStream::connect(address).expect("the control: the host can");
}

#[test]
fn in_isolation_process_internet_sockets_are_refused_and_the_rest_works() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let script = "
import os, socket
try: socket.socket(); print('made')
except OSError as error: print(error.errno in (1, 13, 97))
a, b = socket.socketpair(); print('pair')
print(sum(name.isdigit() for name in os.listdir('/proc')))
";
    place.write("probe.py", script);
    let out = place.run(&["--isolation", "process"], &["python3", "probe.py"]).ok();
    assert!(out.starts_with("True\npair\n2"), "{out}");
    place.write("home:other", "mine");
    place.run(&["--isolation", "process"], &["bash", "-c", "echo x > ~/other"]).code(1);
    place.run(&["--isolation", "process"], &["bash", "-c", "echo x > made"]).ok();
    assert!(place.exists("made"));
}

#[test]
fn isolation_none_needs_the_organisations_word() {
    let place = Place::new();
    let ran = place.run(&["--isolation", "none"], &["touch", "ran"]).code(126);
    ran.says(&["`/etc/cofferdam/policy.toml`) must say `allow_isolation_none = true`"]);
    assert!(!place.exists("ran"));
}

#[test]
fn the_host_name_is_the_sandboxs_own() {
    let place = Place::new();
    assert_eq!(place.inside("uname -n").ok(), "sandbox\n");
}

#[test]
fn everything_inside_ends_with_the_command() {
    let place = Place::new();
    // The name makes the process recognisable from outside.
    let name = format!("orphan-{}", std::process::id());
    place.inside(&format!("(exec -a {name} setsid -f sleep 300); exit 3")).code(3);
    assert!(!runs(&name), "{name} outlived the session");
}

#[test]
fn everything_inside_ends_when_the_supervisor_is_ended() {
    for signal in ["TERM", "HUP", "INT", "KILL"] {
        let place = Place::new();
        let name = format!("worker-{signal}-{}", std::process::id());
        let session = place.start(&[], &format!("(exec -a {name} sleep 300) & echo ready; wait"));
        wait_for("the worker", || runs(&name).then_some(()));
        place.host(&format!("kill -{signal} {}", session.pid())).ok();
        wait_for("the end of what runs inside", || (!runs(&name)).then_some(()));
        let (code, _) = session.end();
        let number = match signal {
            "TERM" => 15,
            "HUP" => 1,
            "INT" => 2,
            _ => 9,
        };
        assert_eq!(code, 128 + number, "SIG{signal}");
    }
}

fn runs(name: &str) -> bool {
    std::fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(Result::ok)
        .any(|entry| crate::support::slurp(&entry.path().join("cmdline")).split('\0').next() == Some(name))
}
