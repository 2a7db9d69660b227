//! Sockets that processes of the host listen at in the file system: what the session sees of its directories does not lead to
//! them, a grant does, and sockets of the session's own work as ever.

use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Place, Running, wait_for};

const MODES: [&str; 2] = ["static", "dynamic"];

/// A service on the host that counts the connections.
struct Service {
    path: PathBuf,
    count: Arc<AtomicUsize>,
}

impl Service {
    fn at(path: PathBuf) -> Service {
        std::fs::create_dir_all(path.parent().expect("it has a parent")).expect("directories can be made");
        let listener = UnixListener::bind(&path).expect("the name is free");
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        std::thread::spawn(move || listener.incoming().for_each(|_| _ = counter.fetch_add(1, Ordering::SeqCst)));
        Service { path, count }
    }

    fn name(&self) -> &str {
        self.path.to_str().expect("it is text")
    }

    fn connections(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

/// A program that connects to each of its arguments and says how that went.
const CONNECT: &str = r#"
use Socket;
for (@ARGV) {
    socket(my $socket, AF_UNIX, SOCK_STREAM, 0) or die;
    print connect($socket, sockaddr_un($_)) ? "reached\n" : "refused\n";
}
"#;

/// What `CONNECT` says inside about these sockets.
fn connect(place: &Place, flags: &[&str], to: &[&str]) -> String {
    let flags = [&["--on-unknown", "deny"], flags].concat();
    place.run(&flags, &[&["perl", "-e", CONNECT], to].concat()).ok()
}

/// A process of the host that listens at a name of the directory it stands in.
fn listening_in(place: &Place, directory: &Path, name: &str) -> Running {
    let script = "use Socket; $| = 1; socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un($ARGV[0])) or die;
        listen(S, 5); print \"up\n\"; <STDIN>";
    let mut command = place.command("perl");
    command.args(["-e", script, name]).current_dir(directory);
    place.begin(command)
}

#[test]
fn what_listens_in_a_directory_that_was_given_cannot_be_connected_to() {
    let Some(place) = Place::with(&["perl"]) else { return };
    let shared = std::env::temp_dir().join(format!("cofferdam-sockets-{}", std::process::id()));
    let services = [
        Service::at(place.path("run/database.sock")),
        Service::at(place.path("home:data/agent.sock")),
        Service::at(shared.join("bus")),
    ];
    let names = services.each_ref().map(Service::name);
    let (data, shared_name) = (place.path("home:data").display().to_string(), shared.display().to_string());
    for mode in MODES {
        for give in ["--ro", "--rw"] {
            let flags = ["--mode", mode, give, &data, give, &shared_name];
            assert_eq!(connect(&place, &flags, &names), "refused\n".repeat(3), "{mode} {give}");
        }
    }
    assert_eq!(services.each_ref().map(Service::connections), [0, 0, 0]);
    // The control: with a grant of their own, and without their directories.
    for (mode, times) in MODES.iter().zip(1..) {
        let granted = names.map(|name| ["--socket", name]).concat();
        let flags = [&["--mode", mode], granted.as_slice()].concat();
        assert_eq!(connect(&place, &flags, &names), "reached\n".repeat(3), "{mode}");
        for service in &services {
            wait_for("its connection", || (service.connections() == times).then_some(()));
        }
    }
    let mode = place.run(&["--socket", names[2]], &["stat", "-c", "%a", &shared_name]).ok();
    assert_eq!(mode, "700\n", "GnuPG trusts no other");
    std::fs::remove_dir_all(&shared).expect("it can be removed");
}

#[test]
fn in_static_mode_nothing_that_listens_in_the_home_can_be_connected_to() {
    let Some(place) = Place::with(&["perl"]) else { return };
    let service = Service::at(place.path("home:.cache/ide/ipc.sock"));
    assert_eq!(connect(&place, &["--mode", "static"], &[service.name()]), "refused\n");
    let isolation = ["--mode", "static", "--isolation", "process"];
    assert_eq!(connect(&place, &isolation, &[service.name()]), "refused\n");
    assert_eq!(service.connections(), 0);
    let granted = [isolation.as_slice(), &["--socket", service.name()]].concat();
    assert_eq!(connect(&place, &granted, &[service.name()]), "reached\n", "the control");
}

#[test]
fn a_granted_socket_is_there_and_nothing_else_of_its_directory() {
    let Some(place) = Place::with(&["perl"]) else { return };
    place.write("home:.gnupg/private-keys-v1.d/key", "a key");
    let [agent, other] = ["S.gpg-agent", "S.scdaemon"].map(|name| Service::at(place.path("home:.gnupg").join(name)));
    let entry =
        "sockets = [{ path = \"~/.gnupg/S.gpg-agent\", reason = \"signs\" }, { path = \"/nowhere\", optional = true }]";
    place.write("home:.config/cofferdam/config.toml", &format!("[network]\n{entry}\n"));
    for mode in MODES {
        let flags = ["--mode", mode];
        assert_eq!(connect(&place, &flags, &[agent.name(), other.name()]), "reached\nrefused\n", "{mode}");
        let flags = ["--mode", mode, "--on-unknown", "deny"];
        assert_eq!(place.run(&flags, &["bash", "-c", "ls -A ~/.gnupg"]).ok(), "S.gpg-agent\n", "{mode}");
        assert_ne!(place.run(&flags, &["bash", "-c", "cat ~/.gnupg/*/key"]).code, 0, "{mode}");
    }
    assert_eq!(other.connections(), 0);
    let shown = place.sandbox(&["policy", "show"]).ok();
    assert!(shown.contains("sockets") && shown.contains("S.gpg-agent"), "{shown}");
    let explained = place.sandbox(&["explain", "--", "true"]).ok();
    assert!(explained.contains("given: ") && explained.contains(agent.name()), "{explained}");
}

#[test]
fn a_project_does_not_grant_itself_a_socket_and_what_is_none_is_refused() {
    let Some(place) = Place::with(&["perl"]) else { return };
    let service = Service::at(place.path("home:data/agent.sock"));
    place.write(".cofferdam/policy.toml", "[network]\nsockets = [\"~/data/agent.sock\"]\n");
    assert_eq!(connect(&place, &["--mode", "static"], &[service.name()]), "refused\n");
    place.sandbox(&["trust", "--yes"]).ok();
    assert_eq!(connect(&place, &["--mode", "static"], &[service.name()]), "reached\n", "the control");
    place.write("plain", "");
    place.run(&["--socket", "plain"], &["true"]).code(125).says(&["is not a socket", "--socket"]);
    place.run(&["--socket", "none"], &["true"]).code(125).says(&["is not a socket", "start what listens there"]);
    place.run(&["--ro", service.name()], &["true"]).code(125).says(&["--socket"]);
}

#[test]
fn sockets_of_the_session_work_and_dead_ones_can_be_replaced() {
    let Some(place) = Place::with(&["perl"]) else { return };
    let live = Service::at(place.path("live.sock"));
    drop(UnixListener::bind(place.path("dead.sock")).expect("the name is free"));
    let script = r#"
use Socket;
for my $name ("own.sock", "dead.sock") {
    unlink $name;
    socket(my $listener, AF_UNIX, SOCK_STREAM, 0) or die;
    bind($listener, sockaddr_un($name)) or die "$name: $!";
    listen($listener, 5) or die;
    socket(my $client, AF_UNIX, SOCK_STREAM, 0) or die;
    print connect($client, sockaddr_un($name)) ? "reached\n" : "refused\n";
}
unlink "dead.datagram" or die;
print unlink("live.sock") ? "removed\n" : "kept\n";
"#;
    for mode in MODES {
        drop(UnixDatagram::bind(place.path("dead.datagram")).expect("the name is free"));
        // The second session finds what the first has left.
        assert_eq!(place.run(&["--mode", mode], &["perl", "-e", script]).ok(), "reached\nreached\nkept\n", "{mode}");
    }
    assert_eq!(live.connections(), 0);
    assert!(place.exists("live.sock"));
}

#[test]
fn a_socket_with_a_name_from_where_its_process_stands_is_covered() {
    let Some(place) = Place::with(&["perl"]) else { return };
    std::fs::create_dir(place.path("web")).expect("the project is writable");
    let _running = listening_in(&place, &place.path("web"), "app.sock");
    for mode in MODES {
        assert_eq!(connect(&place, &["--mode", mode], &["web/app.sock"]), "refused\n", "{mode}");
        let granted = ["--mode", mode, "--socket", "web/app.sock"];
        assert_eq!(connect(&place, &granted, &["web/app.sock"]), "reached\n", "the control: {mode}");
    }
}

#[test]
fn what_listens_by_the_time_a_directory_is_approved_is_covered() {
    let Some(place) = Place::with(&["perl"]) else { return };
    place.write("home:notes/list.txt", "the-list\n");
    place.write("connect", CONNECT);
    let script = "echo up; read x; cat ~/notes/list.txt; touch seen; read x; perl connect ~/notes/late.sock ~/notes/later.sock \
         plain/later.sock";
    std::fs::create_dir(place.path("plain")).expect("the project is writable");
    let mut session = place.start(&["--on-unknown", "ask"], script);
    let late = Service::at(place.path("home:notes/late.sock"));
    session.tell("\n");
    let question =
        wait_for("a question", || place.sandbox(&["questions"]).ok().split_whitespace().next().map(str::to_owned));
    place.sandbox(&["approve", &question, "--scope", "dir", "--keep", "session"]).code(0);
    wait_for("its file", || place.exists("seen").then_some(()));
    // Seen through an overlay it is another socket, whenever it was bound.
    let later = Service::at(place.path("home:notes/later.sock"));
    // The control, and what no mount stops: one that is bound later in a directory that is given as it is and not watched.
    let _control = Service::at(place.path("plain/later.sock"));
    session.tell("\n");
    assert_eq!(session.end(), (0, "the-list\nrefused\nrefused\nreached\n".to_owned()));
    assert_eq!((late.connections(), later.connections()), (0, 0));
}

#[test]
fn many_sockets_neither_stop_a_session_nor_get_through() {
    let Some(place) = Place::with(&["perl"]) else { return };
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).expect("up to the maximum");
    std::fs::create_dir(place.path("home:many")).expect("the home is writable");
    let names: Vec<PathBuf> = (0..2000).map(|number| place.path(&format!("home:many/{number}"))).collect();
    let sockets: Vec<UnixListener> = names.iter().map(|name| UnixListener::bind(name).expect("binds")).collect();
    let some: Vec<&str> = [0, 999, 1999].iter().map(|number| names[*number].to_str().expect("text")).collect();
    assert_eq!(connect(&place, &["--mode", "static"], &some), "refused\n".repeat(3));
    drop(sockets);
    assert_eq!(connect(&place, &["--mode", "static"], &some), "refused\n".repeat(3), "nobody listens any more");
}

#[test]
fn why_says_how_a_socket_is_granted() {
    let place = Place::new();
    let service = Service::at(place.path("home:data/agent.sock"));
    let said = place.sandbox(&["why", "--mode", "static", service.name()]).ok();
    for expected in ["cannot be connected to", "a process of the host listens there", "--socket", "network.sockets"] {
        assert!(said.contains(expected), "{expected}\n{said}");
    }
    let said = place.sandbox(&["why", "--socket", service.name(), service.name()]).ok();
    assert!(said.contains("can be connected to [flag: --socket]"), "{said}");
}

/// A session before this one may have put a link where the socket was.
#[test]
fn a_link_in_the_project_leads_no_grant_out_of_it() {
    let Some(place) = Place::with(&["perl"]) else { return };
    let outside = Service::at(place.path("home:data/agent.sock"));
    let inside = Service::at(place.path("run/real.sock"));
    let links = [("agent.sock", outside.path.as_path()), ("data", outside.path.parent().expect("it has one"))];
    for (name, target) in links.into_iter().chain([("near.sock", inside.path.as_path())]) {
        std::os::unix::fs::symlink(target, place.path(name)).expect("the name is free");
    }
    for mode in MODES {
        for grant in ["agent.sock", "data/agent.sock", "run/../agent.sock"] {
            let refused = place.run(&["--mode", mode, "--socket", grant], &["true"]);
            assert!(refused.code != 0 && refused.err.contains("is not a socket"), "{mode} {grant}: {refused:?}");
        }
        let flags = ["--mode", mode, "--socket", "near.sock"];
        assert_eq!(connect(&place, &flags, &[inside.name()]), "reached\n", "{mode}: the control");
    }
    assert_eq!(outside.connections(), 0);
}

/// Names that its process gave from where it stood, or over several lines.
#[test]
fn odd_names_do_not_keep_a_socket_from_being_covered() {
    let Some(place) = Place::with(&["perl"]) else { return };
    let lines = Service::at(place.path("two\nlines"));
    let directory = std::fs::File::open(place.path(".")).expect("it is there");
    let short = format!("/proc/self/fd/{}/short", std::os::fd::AsRawFd::as_raw_fd(&directory));
    let listener = UnixListener::bind(short).expect("the name is free");
    drop(directory);
    let short = place.path("short").display().to_string();
    for mode in MODES {
        assert_eq!(connect(&place, &["--mode", mode], &[lines.name(), &short]), "refused\n".repeat(2), "{mode}");
    }
    drop(listener);
}

#[test]
fn one_session_does_not_uncover_a_socket_for_the_next() {
    let Some(place) = Place::with(&["perl"]) else { return };
    let service = Service::at(place.path("var/run/database.sock"));
    for mode in MODES {
        let flags = ["--mode", mode, "--on-unknown", "deny"];
        for (from, to) in [("var/run", "var/moved"), ("var", "moved"), ("var/run/database.sock", "moved")] {
            assert_ne!(place.run(&flags, &["mv", from, to]).code, 0, "{mode} {from}");
        }
        place.run(&flags, &["sh", "-c", "echo text > var/run/beside && mv var/run/beside var/run/other"]).ok();
        assert_eq!(connect(&place, &["--mode", mode], &[service.name()]), "refused\n", "{mode}");
    }
    assert_eq!(service.connections(), 0);
}

#[test]
fn a_socket_that_controls_the_host_is_refused_even_when_it_is_named() {
    let Some(place) = Place::with(&["perl"]) else { return };
    for name in ["docker.sock", "podman/podman.sock", "containerd/containerd.sock", "lxd/unix.socket"] {
        let service = Service::at(place.path("home:run").join(name));
        // Not under another name either: the link leads to it.
        let link = place.path("home:other.sock");
        std::os::unix::fs::symlink(service.name(), &link).expect("links");
        for path in [service.name(), &link.display().to_string()] {
            let ran = place.run(&["--socket", path], &["touch", "ran"]).code(126);
            ran.says(&["controls this host", "runs code outside", "/etc/cofferdam/policy.toml", "network.sockets"]);
        }
        std::fs::remove_file(&link).expect("it is ours");
        assert!(!place.exists("ran"));
    }
    // The control: a socket of another name.
    let service = Service::at(place.path("home:run/database.sock"));
    assert_eq!(connect(&place, &["--socket", service.name()], &[service.name()]), "reached\n");
}
