//! The world without a sandbox in it: its servers say what tests rely on, and nothing of it stays. Owns no promise of the
//! product; what a sandbox does in a world is told by the tests that use both.
#![forbid(unsafe_code)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use cofferdam_testkit::World;
use cofferdam_testkit::world::{Answer, Records, lacks};

const PUBLIC: &str = "93.184.216.34";

/// A world, or the reason why there is none.
fn world(programs: &[&str]) -> Option<World> {
    let needed = [&["unshare", "nsenter", "setpriv", "ip"], programs].concat();
    if let Some(reason) = lacks(&needed) {
        println!("skipped: {reason}");
        return None;
    }
    match World::start() {
        Ok(world) => Some(world),
        Err(error) => panic!("no world: {error}"),
    }
}

/// What a command printed, after asserting that it succeeded.
#[track_caller]
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn curl(world: &World, arguments: &[&str]) -> String {
    said(world.command("curl").args(["-sS", "--max-time", "20", "--noproxy", "*"]).args(arguments))
}

#[test]
fn a_public_name_leads_to_a_server_of_the_test() {
    let Some(world) = world(&["curl"]) else { return };
    world.dns().name("example.test", Answer::addresses([PUBLIC]));
    world.http("93.184.216.34:80");
    let page = curl(&world, &["-H", "x-mark: 1", "http://example.test/some?thing"]);
    assert!(page.starts_with("GET /some?thing HTTP/1.1\r\n") && page.contains("x-mark: 1"), "{page}");
    assert!(!world.queries("example.test").is_empty());
    assert!(world.queries("other.test").is_empty());
    let requests = world.requests("93.184.216.34:80");
    assert_eq!(requests.iter().map(|request| request.target.as_str()).collect::<Vec<_>>(), ["/some?thing"]);
}

#[test]
fn addresses_of_the_other_family_are_local_too() {
    let Some(world) = world(&["curl"]) else { return };
    world.dns().name("six.test", Answer::addresses(["2606:2800:21f::1"]));
    world.http("[2606:2800:21f::1]:80");
    assert_eq!(curl(&world, &["http://six.test/bytes/2"]), "bb");
}

#[test]
fn the_caller_keeps_its_user_and_can_make_namespaces() {
    let Some(world) = world(&[]) else { return };
    let own = said(Command::new("id").arg("-u"));
    assert_eq!(said(world.command("id").arg("-u")), own);
    let nested = said(world.command("unshare").args(["--user", "--map-root-user", "--net", "--", "id", "-u"]));
    assert_eq!(nested.trim(), "0");
    let links = said(world.command("ip").args(["-o", "link"]));
    assert!(!links.contains("eth0"), "{links}");
}

#[test]
fn answers_rebind_disagree_chain_fail_and_wait() {
    let Some(world) = world(&["python3"]) else { return };
    let slow = Duration::from_millis(300);
    let dns = world.dns();
    let turns = [PUBLIC, "10.0.0.1"].map(|address| Answer::addresses([address]).ttl(0)).to_vec();
    dns.turns("rebind.test", turns)
        .name("both.test", Answer::addresses([PUBLIC, "fd00::1"]))
        .name("chain.test", Answer::alias("link.test"))
        .name("link.test", Answer::alias("end.test"))
        .name("end.test", Answer::addresses(["10.1.2.3"]))
        .name("broken.test", Answer::of(Records::Failure))
        .name("slow.test", Answer::addresses([PUBLIC]).after(slow));
    let resolve = |name: &str, family: &str| {
        let script = format!(
            "import socket\ntry: print(sorted({{i[4][0] for i in socket.getaddrinfo('{name}', 80, socket.{family})}}))\n\
             except socket.gaierror as e: print(e.errno == socket.EAI_NONAME)"
        );
        said(world.command("python3").args(["-c", &script])).trim().to_owned()
    };
    assert_eq!(resolve("rebind.test", "AF_INET"), format!("['{PUBLIC}']"));
    assert_eq!(resolve("rebind.test", "AF_INET"), "['10.0.0.1']");
    assert_eq!(resolve("rebind.test", "AF_INET"), format!("['{PUBLIC}']"));
    assert_eq!(resolve("both.test", "AF_INET"), format!("['{PUBLIC}']"));
    assert_eq!(resolve("both.test", "AF_INET6"), "['fd00::1']");
    assert_eq!(resolve("chain.test", "AF_INET"), "['10.1.2.3']");
    assert_eq!(resolve("nobody.test", "AF_INET"), "True");
    assert_eq!(resolve("broken.test", "AF_INET"), "False");
    let before = Instant::now();
    assert_eq!(resolve("slow.test", "AF_INET"), format!("['{PUBLIC}']"));
    assert!(before.elapsed() >= slow);
    assert_eq!(world.queries("rebind.test").len(), 3);
}

#[test]
fn web_servers_redirect_take_give_and_keep_connections() {
    let Some(world) = world(&["curl"]) else { return };
    world.http("93.184.216.34:80");
    let base = format!("http://{PUBLIC}");
    let redirect = format!("{base}/redirect?to=http%3A%2F%2F10.0.0.1%2F");
    assert_eq!(curl(&world, &["-o", "/dev/null", "-w", "%{redirect_url}", &redirect]), "http://10.0.0.1/");
    let twice = [format!("{base}/bytes/100000"), format!("{base}/slow?bytes=3&ms=10")];
    assert_eq!(curl(&world, &[&twice[0], &twice[1]]).len(), 100_003);
    let sink = format!("{base}/sink");
    let data = "x".repeat(3000);
    assert_eq!(curl(&world, &["--data-binary", &data, &sink]), "3000\n");
    assert_eq!(curl(&world, &["-H", "transfer-encoding: chunked", "--data-binary", &data, &sink]), "3000\n");
    let numbers: Vec<u64> = world.requests("93.184.216.34:80").iter().map(|request| request.number).collect();
    assert_eq!(numbers, [1, 1, 2, 1, 1]);
}

#[test]
fn tls_is_trusted_by_the_worlds_authority_and_shows_the_name() {
    let Some(world) = world(&["curl", "python3", "openssl"]) else { return };
    world.dns().name("example.test", Answer::addresses([PUBLIC]));
    world.https("93.184.216.34:443", &["example.test"]);
    let authority = world.authority().display().to_string();
    let page = curl(&world, &["--cacert", &authority, "https://example.test/x"]);
    assert!(page.starts_with("GET /x HTTP/1.1\r\nHost: example.test\r\n"), "{page}");
    let big = curl(&world, &["--cacert", &authority, "https://example.test/bytes/3000000"]);
    assert_eq!(big.len(), 3_000_000);
    let untrusted = world.command("curl").args(["-s", "--noproxy", "*", "https://example.test/"]).status();
    assert!(untrusted.is_ok_and(|status| !status.success()));
    let names: Vec<_> =
        world.until(3, |world| world.handshakes("93.184.216.34:443")).into_iter().map(|one| one.name).collect();
    assert_eq!(
        names,
        [Some("example.test".to_owned()), Some("example.test".to_owned()), Some("example.test".to_owned())]
    );
    assert_eq!(world.requests("93.184.216.34:443").len(), 2);
}

#[test]
fn listeners_count_and_may_speak_first() {
    let Some(world) = world(&["python3"]) else { return };
    world.listener("10.0.0.1:80");
    world.banner("93.184.216.34:25", "220 hello\r\n");
    let script = "import socket; print(socket.create_connection(('93.184.216.34', 25)).recv(99))";
    assert_eq!(said(world.command("python3").args(["-c", script])).trim(), "b'220 hello\\r\\n'");
    assert_eq!(world.connections("93.184.216.34:25").len(), 1);
    assert_eq!(world.dials("10.0.0.1:80").len(), 0);
    let script = "import socket; [socket.create_connection(('10.0.0.1', 80)) for _ in range(50)]";
    said(world.command("python3").args(["-c", script]));
    assert_eq!(world.dials("10.0.0.1:80").len(), 50);
    assert_eq!(world.dials("10.0.0.1:80").len(), 50);
}

#[test]
fn git_works_over_ssh_and_https() {
    let Some(world) = world(&["git", "sshd", "ssh", "ssh-keygen", "python3", "openssl"]) else { return };
    world.dns().name("code.test", Answer::addresses([PUBLIC]));
    world.https("93.184.216.34:443", &["code.test"]);
    let repository = world.repository("first.git");
    let ssh = world.ssh("93.184.216.34:2222");
    let place = world.directory().display().to_string();
    std::fs::write(world.directory().join("known_hosts"), format!("[code.test]:2222 {}\n", ssh.host_key))
        .unwrap_or_else(|error| panic!("{error}"));
    let remote = format!("ssh://{}@code.test:2222{}", ssh.user, repository.display());
    let through =
        format!("ssh -F /dev/null -i {} -o UserKnownHostsFile={place}/known_hosts -o BatchMode=yes", ssh.key.display());
    let git = |arguments: &[&str]| {
        let mut command = world.command("git");
        command.current_dir(world.directory()).env("GIT_SSH_COMMAND", &through).env("HOME", world.directory());
        said(
            command
                .env("GIT_SSL_CAINFO", world.authority())
                .env("no_proxy", "*")
                .args(["-c", "user.name=t", "-c", "user.email=t@t.test"])
                .args(arguments),
        )
    };
    git(&["clone", "-q", &remote, "by-ssh"]);
    git(&["clone", "-q", "https://code.test/git/first.git", "by-https"]);
    for name in ["by-ssh", "by-https"] {
        git(&["-C", name, "commit", "-q", "--allow-empty", "-m", name]);
        git(&["-C", name, "pull", "-q", "--rebase"]);
        git(&["-C", name, "push", "-q"]);
    }
    assert_eq!(git(&["ls-remote", &remote, "main"]), git(&["ls-remote", "https://code.test/git/first.git", "main"]));
}

#[test]
fn postgresql_answers() {
    let Some(world) = world(&["psql"]) else { return };
    world.dns().name("db.test", Answer::addresses(["93.184.216.35"]));
    world.postgres("93.184.216.35:5432");
    let mut psql = world.command("psql");
    psql.args(["-h", "db.test", "-U", "tester", "-d", "postgres", "-Atc", "select 6 * 7"]);
    assert_eq!(said(&mut psql).trim(), "42");
}

#[test]
fn servers_on_loopback_say_where_they_are() {
    if let Some(reason) = lacks(&["curl", "setpriv"]) {
        println!("skipped: {reason}");
        return;
    }
    let world = World::on_loopback().unwrap_or_else(|error| panic!("{error}"));
    let dns = world.dns_at("127.0.0.1:0");
    assert_ne!(dns.address.port(), 0);
    let web = world.http("127.0.0.1:0");
    assert_eq!(curl(&world, &[&format!("http://{web}/bytes/4")]), "bbbb");

    // A question for SRV, over TCP.
    dns.name("_x._tcp.test", Answer::of(Records::Service { port: 0x1234, target: "host.test".to_owned() }));
    let question = b"\x07\x07\x01\0\0\x01\0\0\0\0\0\0\x02_x\x04_tcp\x04test\0\0\x21\0\x01";
    let message = [&[0, u8::try_from(question.len()).unwrap_or_default()][..], question].concat();
    let mut reply = [0; 512];
    let length = TcpStream::connect(dns.address)
        .and_then(|mut stream| stream.write_all(&message).and_then(|()| stream.read(&mut reply)))
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(reply[..length].ends_with(b"\x12\x34\x04host\x04test\0"), "{:?}", &reply[..length]);
    let seen = world.queries("_x._tcp.test");
    assert_eq!(seen.iter().map(|query| (&*query.kind, &*query.transport)).collect::<Vec<_>>(), [("SRV", "tcp")]);
}

#[test]
fn nothing_stays_of_a_world() {
    let Some(world) = world(&["python3", "openssl", "sshd", "ssh-keygen"]) else { return };
    world.https("93.184.216.34:443", &["example.test"]);
    world.ssh("93.184.216.34:2222");
    let place = world.directory().to_owned();
    let given =
        std::env::temp_dir().join(format!("cofferdam-test-{}", place.file_name().unwrap_or_default().display()));
    assert!(place.exists() && given.exists());
    drop(world);
    assert!(!place.exists() && !given.exists());
    for path in [place, given] {
        assert_eq!(cofferdam_testkit::leaks::find_in(&path, &path), Vec::<String>::new());
    }
}
