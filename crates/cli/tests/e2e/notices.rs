//! How a person is told of a question: the terminal's bell, a notification of the desktop over a real bus, a server of theirs. And
//! that nothing of it delays the session.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::screen::Screen;
use crate::support::{Place, binary, finish, wait_for};

const USER: &str = "home:.config/cofferdam/config.toml";
/// As an untrusted program may call a file.
const NAME: &str = "a\x1b]0;owned\x07<b>\u{202e}&c";

/// A process that ends with the test.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let ended = self.0.kill().and_then(|()| self.0.wait());
        assert!(ended.is_ok() || std::thread::panicking(), "it cannot be ended");
    }
}

/// A bus of the test's own, its address, and all that is said on it, in a file.
fn bus(place: &Place) -> (Ending, Ending, String) {
    let mut daemon = place.command("dbus-daemon");
    daemon.args(["--session", "--nofork", "--nopidfile", "--nosyslog", "--print-address=1"]);
    daemon.arg(format!("--address=unix:path={}", place.path("home:bus").display()));
    let mut daemon =
        daemon.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut address = String::new();
    BufReader::new(daemon.stdout.as_mut().expect("piped")).read_line(&mut address).expect("text");
    let address = address.trim().to_owned();
    let said = std::fs::File::create(place.path("home:said")).expect("the home is ours");
    let mut monitor = place.command("dbus-monitor");
    monitor.args(["--address", &address]).stdin(Stdio::null()).stdout(said).stderr(Stdio::null());
    let monitor = monitor.spawn().expect("it starts");
    wait_for("the monitor", || place.read("home:said").filter(|text| text.contains("NameAcquired")));
    (Ending(daemon), Ending(monitor), address)
}

/// Runs a session whose questions time out, with this bus.
fn asked(place: &Place, address: &str, files: usize) -> Duration {
    let script = format!("for n in $(seq {files}); do cat ~/notes-$n/'{NAME}'; done");
    let mut command = place.command(binary());
    command.env("DBUS_SESSION_BUS_ADDRESS", address);
    command.args([
        "run",
        "--network",
        "none",
        "--on-unknown",
        "ask",
        "--ask-timeout",
        "1s",
        "--",
        "bash",
        "-c",
        &script,
    ]);
    let started = Instant::now();
    finish(&mut command, b"");
    started.elapsed()
}

fn with_files(settings: &str) -> Option<Place> {
    let place = Place::with(&["dbus-daemon", "dbus-monitor"])?;
    for n in 1..4 {
        place.write(&format!("home:notes-{n}/{NAME}"), "noted\n");
    }
    place.write(USER, &format!("mode = \"dynamic\"\n[unknown]\n{settings}"));
    Some(place)
}

#[test]
fn a_burst_of_questions_is_one_notification_on_the_bus_and_says_what_the_line_says() {
    let Some(place) = with_files("desktop = true\n") else { return };
    let (_daemon, _monitor, address) = bus(&place);
    asked(&place, &address, 2);
    let said = wait_for("the notification", || place.read("home:said").filter(|text| text.contains("member=Notify")));
    let notify = said.split("member=Notify").nth(1).expect("a call");
    assert!(notify.contains("string \"sandbox\"") && notify.contains("wants to read"), "{said}");
    assert!(notify.contains("/notes-1/") && notify.contains("sandbox approve "), "{said}");
    assert!(!notify.contains('\x1b') && !notify.contains("<b>") && !notify.contains('\u{202e}'), "{notify:?}");
    assert_eq!(said.matches("member=Notify").count(), 1, "{said}");
}

#[test]
fn no_bus_is_told_unless_the_policy_says_so() {
    let Some(place) = with_files("") else { return };
    let (_daemon, _monitor, address) = bus(&place);
    asked(&place, &address, 1);
    // The control: the same session, once it is said.
    place.write(USER, "mode = \"dynamic\"\n[unknown]\ndesktop = true\n");
    asked(&place, &address, 1);
    let said = wait_for("the notification", || place.read("home:said").filter(|text| text.contains("member=Notify")));
    assert_eq!(said.matches("member=Notify").count(), 1, "{said}");
}

#[test]
fn a_bus_that_never_answers_delays_nothing() {
    let Some(place) = with_files("desktop = true\n") else { return };
    let silent = std::os::unix::net::UnixListener::bind(place.path("home:silent")).expect("the home is ours");
    let address = format!("unix:path={}", place.path("home:silent").display());
    let took = asked(&place, &address, 1);
    place.write(USER, "mode = \"dynamic\"\n[unknown]\n");
    let without = asked(&place, &address, 1);
    // Its patience is five seconds.
    assert!(took < without + Duration::from_secs(3), "{took:?} {without:?}");
    // It was asked: the control.
    silent.set_nonblocking(true).expect("a socket");
    assert!(silent.accept().is_ok(), "the bus was not called");
}

#[test]
fn the_terminal_rings_where_a_question_is_asked_unless_it_is_to_be_silent() {
    // Two questions, the second perhaps so late that it is no burst any more.
    for (settings, rings) in [("", 1..=2), ("bell = false\n", 0..=0)] {
        let Some(screen) = Screen::open(&[]) else { return };
        screen.place.write("home:notes/list", "the-list\n");
        screen.place.write("home:other/list", "the-list\n");
        screen.place.write(USER, &format!("[unknown]\n{settings}"));
        let log = screen.place.path("home:terminal");
        screen.tmux(&["pipe-pane", "-o", &format!("cat > '{}'", log.display())]);
        screen.line("sandbox run -- bash -c 'cat ~/notes/list; cat ~/other/list; echo end-$((1+1))'");
        screen.wait_for("press a key");
        screen.keys(&["y"]);
        screen.wait_until("the second question", |text| text.contains("question 2") && text.contains("press a key"));
        screen.keys(&["y"]);
        screen.wait_for("end-2");
        let bytes = wait_for("the log", || std::fs::read(&log).ok().filter(|bytes| !bytes.is_empty()));
        let rang = bytes.split(|byte| *byte == 7).count() - 1;
        assert!(rings.contains(&rang), "{settings}: {rang}");
    }
}

/// Keeps what it is sent, and approves; below `/away` it sends elsewhere.
const SERVER: &str = r#"
import http.server, json, ssl, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"]))
        with open(sys.argv[1], "ab") as asked:
            asked.write(self.headers.get("Authorization", "-").encode() + b" " + text + b"\n")
        id = json.loads(text)["id"] + (1 if self.path == "/other" else 0)
        answer = json.dumps({"type": "cmd.approve", "id": id, "scope": "file", "persist": "once", "more": 1}).encode()
        self.send_response(307 if self.path == "/away" else 200)
        if self.path == "/away":
            self.send_header("Location", "/ask")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
"#;

#[test]
fn a_server_that_is_who_its_certificate_says_answers_and_hears_no_command_line() {
    let Some(place) = Place::with(&["python3", "openssl"]) else { return };
    place.write("home:notes/list", "the-list\n");
    place.write("home:server.py", SERVER);
    place.write("home:header", "Authorization: Bearer t0ken\n");
    let make = "cd; openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
                -keyout key -out authority 2>/dev/null && cat key authority > both";
    place.host(make).ok();
    let path = |name: &str| place.path(&format!("home:{name}")).display().to_string();
    let mut server = place.command("python3");
    server.args([path("server.py"), path("asked"), path("both")]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut server = Ending(server.spawn().expect("it starts"));
    let mut port = String::new();
    BufReader::new(server.0.stdout.as_mut().expect("piped")).read_line(&mut port).expect("text");
    let hook = crate::agents::hooks().join("ask-by-webhook").display().to_string();
    let read = |url: &str, authority: &str| {
        let argv = [&hook, url, &path("header"), authority];
        place.write(USER, &format!("[unknown]\nverdict = \"ask\"\nhook = {argv:?}\ntimeout = \"5s\"\n"));
        // As a program may be given a token.
        let script = "cd ~/notes; bash -c 'cat ~/notes/list' --token hunter2";
        finish(place.command(binary()).args(["run", "--network", "none", "--", "bash", "-c", script]), b"")
    };
    let port = port.trim();
    let url = |scheme: &str, host: &str, path: &str| format!("{scheme}://{host}:{port}/{path}");
    let ran = read(&url("https", "localhost", "ask"), &path("authority"));
    assert_eq!(ran.ok(), "the-list\n");
    let asked = place.read("home:asked").expect("it was asked");
    assert!(asked.starts_with("Bearer t0ken {\"type\": \"event.fs_request\""), "{asked}");
    assert!(asked.contains("/notes/list\"") && !asked.contains("hunter2") && !asked.contains("cwd"), "{asked}");
    // An answer to another question, and one that is found elsewhere, which is not looked for.
    for path_of_it in ["other", "away"] {
        let before = place.read("home:asked").unwrap_or_default().lines().count();
        assert_eq!(read(&url("https", "localhost", path_of_it), &path("authority")).code, 1, "{path_of_it}");
        assert_eq!(place.read("home:asked").unwrap_or_default().lines().count(), before + 1, "{path_of_it}");
    }
    let asked = place.read("home:asked");
    // A certificate that no authority of the user vouches for, another name, and no TLS: no answer, and nothing is said.
    for (url, authority) in [
        (url("https", "localhost", "ask"), String::new()),
        (url("https", "127.0.0.1", "ask"), path("authority")),
        (url("http", "localhost", "ask"), path("authority")),
    ] {
        assert_eq!(read(&url, &authority).code, 1, "{url}");
        assert_eq!(place.read("home:asked"), asked, "{url}");
    }
}

#[test]
fn a_project_neither_names_a_hook_nor_chooses_how_its_user_is_told() {
    let place = Place::new();
    place.write("home:notes/list", "the-list\n");
    place.write("home:hook", "#!/bin/sh\ntouch \"${0%/*}\"/asked\n");
    let hook = place.path("home:hook");
    place.host("chmod 755 ~/hook").ok();
    let named = format!("[unknown]\nverdict = \"ask\"\ntimeout = \"2s\"\nhook = [\"{}\"]\n", hook.display());
    for file in [".cofferdam/policy.toml", ".cofferdam/policy.local.toml"] {
        place.write(file, &named);
        for trusted in [false, true] {
            if trusted {
                place.sandbox(&["trust", "--yes"]);
            }
            let ran = place.run(&["--network", "none"], &["bash", "-c", "cat ~/notes/list"]);
            ran.code(125).says(&["unknown.hook"]);
            assert!(!place.exists("home:asked"), "{file} {trusted}");
        }
        place.host(&format!("rm {}", place.path(file).display())).ok();
    }
    place.write(".cofferdam/policy.toml", "[unknown]\nbell = false\ndesktop = true\n");
    let explained = place.sandbox(&["explain", "--", "true"]);
    assert!(explained.err.contains("unknown.bell") || explained.out.contains("unknown.bell"), "{explained:?}");
    // The control: the user's own counts.
    place.write(".cofferdam/policy.toml", "");
    place.write(USER, &named);
    place.run(&["--network", "none"], &["bash", "-c", "cat ~/notes/list"]);
    assert!(place.exists("home:asked"), "the user's hook was not asked");
}
