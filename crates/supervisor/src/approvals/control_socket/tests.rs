//! The control socket over a real socket, turned by a small loop as the supervisor turns it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use cofferdam_wire::{Asker, Keep, Op, Program, Subject};
use rustix::event::{PollFd, Timespec, poll};
use serde_json::{Value, json};

use super::*;

/// Set where this test binary runs again as a client in other namespaces.
const KNOCK: &str = "COFFERDAM_TEST_KNOCK";

const HELLO: &str = r#"{"type":"hello","version":1,"face":"test"}"#;

struct Room {
    control: Option<ControlSocket>,
    directory: PathBuf,
}

impl Room {
    fn new(name: &str, hook: Option<&[&str]>) -> Room {
        // Longer than a socket's address may be.
        let directory =
            crate::scratch().join(format!("cofferdam-control-{name}-{}-{}", std::process::id(), "x".repeat(100)));
        std::fs::DirBuilder::new().mode(0o700).create(&directory).expect("writable");
        let hook: Option<Vec<String>> = hook.map(|hook| hook.iter().map(|word| (*word).to_owned()).collect());
        let control = ControlSocket::open(&directory, "session-1", hook.as_deref()).expect("a socket can be made");
        Room { control: Some(control), directory }
    }

    fn control(&mut self) -> &mut ControlSocket {
        self.control.as_mut().expect("open")
    }

    /// Turns until nothing happens for a while.
    fn turn(&mut self) -> Vec<Said> {
        self.turn_for(20)
    }

    fn turn_for(&mut self, milliseconds: i64) -> Vec<Said> {
        let mut said = Vec::new();
        loop {
            let wanted = self.control().wanted();
            let mut fds: Vec<PollFd<'_>> =
                wanted.iter().map(|(fd, flags, _)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
            let pause = Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
            if poll(&mut fds, Some(&pause)).expect("pollable") == 0 {
                return said;
            }
            let ready: Vec<Ready> = fds
                .iter()
                .zip(&wanted)
                .filter(|(fd, _)| !fd.revents().is_empty())
                .map(|(_, (_, _, ready))| *ready)
                .collect();
            drop(fds);
            for ready in ready {
                said.extend(self.control().turn(ready).expect("no surprise"));
            }
        }
    }

    /// Turns until no hook is left, however long the machine takes to start and reap one.
    fn turn_while_hooked(&mut self) -> Vec<Said> {
        let until = Instant::now() + Duration::from_secs(10);
        let mut said = Vec::new();
        while self.control().hooks.as_ref().expect("a hook").wanted().next().is_some() {
            assert!(Instant::now() < until, "a hook goes on");
            said.extend(self.turn());
        }
        said
    }

    fn connect(&mut self) -> Face {
        let directory =
            rustix::fs::open(&self.directory, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("there");
        let stream = UnixStream::connect(format!("/proc/self/fd/{}/socket", directory.as_raw_fd())).expect("listening");
        stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
        Face(BufReader::new(stream))
    }

    /// A client that has said hello; the control socket's hello is read.
    fn face(&mut self) -> Face {
        let mut face = self.connect();
        face.say(HELLO);
        self.turn();
        assert_eq!(face.hear(), Some(json!({"type": "hello", "version": 1, "session": "session-1"})));
        face
    }

    /// What the control socket makes of a line, and its reply.
    fn hears(&mut self, face: &mut Face, line: &str) -> (Vec<Said>, Option<Value>) {
        face.say(line);
        (self.turn(), face.hear())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        drop(self.control.take());
        std::fs::remove_dir_all(&self.directory).expect("it is ours");
    }
}

struct Face(BufReader<UnixStream>);

impl Face {
    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).expect("the control socket reads");
    }

    fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.0.read_line(&mut line).ok().filter(|count| *count > 0)?;
        Some(serde_json::from_str(&line).expect("JSON"))
    }

    fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0)) || self.0.get_mut().write_all(b"x\n").is_err()
    }
}

fn question(id: QuestionId) -> Question {
    Question {
        id,
        op: Op::Read,
        subject: Subject::Path(PathBuf::from(std::ffi::OsStr::from_bytes(b"/home/you/a\nb\xff"))),
        is_dir: false,
        size: 12,
        flags: 0,
        asker: Asker {
            program: Program { pid: 7, exe: "/usr/bin/cat".to_owned(), argv: vec!["cat".to_owned(); 100] },
            cwd: "/home/you".to_owned(),
            parents: vec![],
        },
        toolchain: None,
        group: None,
        by: None,
        also: vec![],
        is_alone: false,
        hint: None,
        waiting: 1,
        asked: 1.0,
        until: Some(61.0),
    }
}

fn settled(id: QuestionId) -> Settled {
    let verdict = Verdict::Allow { reach: Reach::Dir, keep: Keep::Session };
    Settled { question: question(id), verdict, cause: Cause::Person, granted: vec![], waited: Duration::ZERO }
}

fn kind(reply: Option<Value>) -> Option<String> {
    reply.and_then(|reply| reply["type"].as_str().map(str::to_owned))
}

#[test]
fn only_the_user_can_reach_the_socket() {
    let room = Room::new("mode", None);
    let mode = std::fs::metadata(room.directory.join(SOCKET)).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_new_face_is_told_what_is_open_and_a_question_is_answered_once() {
    let mut room = Room::new("once", None);
    room.control().ask(&question(3));
    let (mut face, mut other) = (room.face(), room.face());
    let asked = face.hear().expect("the open question");
    assert_eq!((&asked["type"], &asked["id"], &asked["pid"]), (&json!("event.fs_request"), &json!(3), &json!(7)));
    assert_eq!(asked["path_bytes"], json!("2f686f6d652f796f752f610a62ff"));
    assert_eq!(asked["asker"]["program"]["argv"].as_array().map(Vec::len), Some(65));
    assert_eq!(other.hear().expect("the same"), asked);

    let approve = r#"{"type":"cmd.approve","id":3,"scope":"dir","persist":false}"#;
    let (said, reply) = room.hears(&mut face, approve);
    let verdict = Verdict::Allow { reach: Reach::Dir, keep: Keep::Session };
    assert_eq!(said, [Said::Answer { id: 3, verdict, cause: Cause::Person }]);
    assert_eq!(kind(reply).as_deref(), Some("ok"));
    // Neither before nor after it is settled does a client answer it again.
    let (said, reply) = room.hears(&mut other, r#"{"type":"cmd.deny","id":3}"#);
    assert_eq!((said, kind(reply).as_deref()), (vec![], Some("error")));
    room.control().settled(&settled(3));
    for face in [&mut face, &mut other] {
        let told = face.hear().expect("how it ended");
        assert_eq!((&told["type"], &told["decision"]), (&json!("event.audit"), &json!("allow")));
        assert_eq!(
            (&told["scope"], &told["persist"], &told["cause"]),
            (&json!("dir"), &json!("session"), &json!("person"))
        );
    }
    let (said, reply) = room.hears(&mut face, approve);
    assert_eq!(said, []);
    assert_eq!(reply, Some(json!({"type": "error", "message": "question 3 is answered already"})));
    let (said, reply) = room.hears(&mut face, r#"{"type":"cmd.deny","id":4}"#);
    assert_eq!(said, []);
    assert_eq!(reply, Some(json!({"type": "error", "message": "question 4 was never asked"})));
}

#[test]
fn what_is_not_exactly_an_answer_changes_nothing() {
    let mut room = Room::new("strict", None);
    room.control().ask(&question(1));
    let mut face = room.face();
    face.hear().expect("the question");
    for bad in [
        r#"{"type":"cmd.approve","id":1,"scope":"file","persist":"yes"}"#,
        r#"{"type":"cmd.approve","id":1,"scope":"file","persist":false,"bypass":true}"#,
        r#"{"type":"cmd.approve","id":true,"scope":"file","persist":false}"#,
        r#"{"type":"cmd.approve","id":1,"scope":"toolchain","persist":false}"#,
        r#"{"type":"event.audit","id":1}"#,
        "yes",
        "",
        HELLO,
    ] {
        let (said, reply) = room.hears(&mut face, bad);
        assert_eq!((said, kind(reply).as_deref()), (vec![], Some("error")), "{bad}");
    }
    let (said, _) = room.hears(&mut face, r#"{"type":"cmd.deny","id":1}"#);
    assert_eq!(said, [Said::Answer { id: 1, verdict: Verdict::DENY_ONCE, cause: Cause::Person }]);
}

#[test]
fn who_does_not_say_hello_in_this_version_is_refused() {
    let mut room = Room::new("hello", None);
    room.control().ask(&question(1));
    for bad in [
        r#"{"type":"hello","version":2,"face":"test"}"#,
        r#"{"type":"cmd.approve","id":1,"scope":"file","persist":false}"#,
        "GET / HTTP/1.1",
    ] {
        let mut face = room.connect();
        let (said, reply) = room.hears(&mut face, bad);
        assert_eq!((said, kind(reply).as_deref()), (vec![], Some("error")), "{bad}");
        assert!(face.is_closed(), "{bad}");
    }
    // And who says nothing is not waited for.
    let mut silent = room.connect();
    room.turn();
    let at = room.control().deadline().expect("a client has not said hello");
    room.control().check_clock(at);
    assert!(silent.is_closed());
    assert_eq!(room.control().deadline(), None);
}

#[test]
fn lines_connections_and_buffers_are_bounded() {
    let mut room = Room::new("bounds", None);
    let mut long = room.face();
    long.say(&"x".repeat(MOST_COMMAND_BYTES + 5000));
    room.turn();
    assert_eq!(kind(long.hear()).as_deref(), Some("error"));
    assert!(long.is_closed());
    let _faces: Vec<Face> = (0..MOST_CLIENTS).map(|_| room.face()).collect();
    let mut late = room.connect();
    room.turn();
    assert_eq!(late.hear(), Some(json!({"type": "error", "message": "too many connections"})));
    // The clients do not read: they are dropped, and nothing waits for them.
    let started = Instant::now();
    for id in 1..8000 {
        room.control().ask(&question(id));
    }
    assert!(room.control().clients.is_empty());
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn other_wishes_are_passed_on_and_the_end_is_told() {
    let mut room = Room::new("wishes", None);
    let mut face = room.face();
    face.say(r#"{"type":"cmd.status"}"#);
    let said = room.turn();
    let [Said::Status(client)] = said[..] else { panic!("{said:?}") };
    room.control().status(client, SessionStatus { session: "session-1".to_owned(), ..SessionStatus::default() });
    assert_eq!(kind(face.hear()).as_deref(), Some("event.session"));
    face.say(r#"{"type":"cmd.policy.save","scope":"project"}"#);
    let said = room.turn();
    let [Said::Save(client, PolicyScope::Project)] = said[..] else { panic!("{said:?}") };
    room.control().ok(client, "2 rules written");
    assert_eq!(face.hear(), Some(json!({"type": "ok", "message": "2 rules written"})));
    let (said, reply) = room.hears(&mut face, r#"{"type":"cmd.kill"}"#);
    assert_eq!((said, kind(reply).as_deref()), (vec![Said::Kill], Some("ok")));
    drop(room.control.take());
    assert_eq!(kind(face.hear()).as_deref(), Some("event.end"));
    assert!(!room.directory.join(SOCKET).exists());
}

/// Not a test: says hello to the socket in a directory, from wherever it runs.
#[test]
fn knock() {
    let Some(directory) = std::env::var_os(KNOCK) else { return };
    std::env::set_current_dir(directory).expect("there");
    let mut face = Face(BufReader::new(UnixStream::connect("socket").expect("listening")));
    face.0.get_mut().write_all(format!("{HELLO}\n").as_bytes()).unwrap_or_default();
    println!("heard {}", face.hear().unwrap_or_default());
}

#[test]
fn who_is_in_another_namespace_is_refused() {
    let mut room = Room::new("inside", None);
    let own = std::env::current_exe().expect("a path").display().to_string();
    let knock = format!("{}::knock", crate::own_module(module_path!()));
    for (unshare, expected) in [
        (&["env"][..], r#""type":"hello""#),
        (&["unshare", "--user", "--map-current-user"], "not answered from inside"),
        (&["unshare", "--user", "--map-current-user", "--pid", "--fork"], "not answered from inside"),
    ] {
        let mut command = std::process::Command::new(unshare[0]);
        command.args(&unshare[1..]).args([&own, "--exact", &knock, "--nocapture"]);
        command.env(KNOCK, &room.directory).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            println!("skipped: unshare is not installed");
            return;
        };
        while child.try_wait().expect("a child").is_none() {
            room.turn();
        }
        let output = child.wait_with_output().expect("a child");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if err.contains("unshare:") {
            println!("skipped: no user namespaces here: {err}");
            return;
        }
        assert!(out.contains(expected), "{unshare:?}: {out}{err}");
    }
}

fn hooked(name: &str, script: &str) -> (Room, Vec<Said>) {
    let mut room = Room::new(name, Some(&["/bin/sh", "-c", script]));
    room.control().ask(&question(1));
    let said = room.turn_while_hooked();
    (room, said)
}

#[test]
fn a_hook_answers_with_the_same_words() {
    let script = r#"read -r line; case "$line" in *'"id":1,'*) echo '{"type":"cmd.approve","id":1,"scope":"file","persist":false}';; esac"#;
    let (_room, said) = hooked("hook", script);
    let verdict = Verdict::Allow { reach: Reach::File, keep: Keep::Session };
    assert_eq!(said, [Said::Answer { id: 1, verdict, cause: Cause::Hook }]);
}

#[test]
fn a_hook_that_does_anything_else_has_not_answered() {
    let approve = |id: u32| format!(r#"echo '{{"type":"cmd.approve","id":{id},"scope":"file","persist":false}}'"#);
    for (name, script) in [
        ("code", format!("{}; exit 1", approve(1))),
        ("other-id", approve(2)),
        ("twice", format!("{0}; {0}", approve(1))),
        ("words", "echo yes".to_owned()),
        ("silent", String::new()),
        ("kill", r#"echo '{"type":"cmd.kill"}'"#.to_owned()),
        ("flood", format!("{}; yes", approve(1))),
        ("signal", format!("{}; kill -9 $$", approve(1))),
    ] {
        let (mut room, said) = hooked(name, &script);
        assert_eq!(said, [], "{name}");
        // A client still can.
        let mut face = room.face();
        face.hear().expect("the question");
        assert_eq!(room.hears(&mut face, r#"{"type":"cmd.deny","id":1}"#).0.len(), 1, "{name}");
    }
    let room = Room::new("no-program", Some(&["/no/such/program"]));
    drop(room);
    let relative = ControlSocket::open(&crate::scratch(), "x", Some(&["./hook".to_owned()])).err();
    best_effort(rustix::fs::unlink(crate::scratch().join(SOCKET)), "made by the attempt");
    assert_eq!(relative, Some(Errno::INVAL));
}

#[test]
fn a_hook_ends_with_its_question() {
    let mut room = Room::new("hook-end", Some(&["/bin/sh", "-c", "sleep 100 & sleep 100"]));
    room.control().ask(&question(1));
    room.turn();
    let started = Instant::now();
    room.control().settled(&settled(1));
    room.turn_while_hooked();
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_session_whose_path_is_too_long_has_its_socket_at_a_whole_name_all_the_same() {
    let id = "local-019a8f3c-2d10-7c3e-8a51-6b1f0e92d7c4";
    let state = crate::scratch().join("a-home-with-a-name-that-is-a-little-longer");
    let session = state.join("sessions").join(id);
    std::fs::create_dir_all(&session).expect("writable");
    assert!(session.join(SOCKET).as_os_str().len() > 107);
    let control = ControlSocket::open(&session, id, None).expect("it is opened");
    let short = short_socket(&state, id);
    let listed = std::fs::read_to_string("/proc/net/unix").expect("procfs is there");
    assert!(listed.contains(short.to_str().expect("plain")), "a start has to look for it nowhere else");
    let opened = std::fs::File::open(&session).expect("it is there");
    UnixStream::connect(format!("/proc/self/fd/{}/socket", opened.as_raw_fd())).expect("clients find it as any other");
    let mode = std::fs::metadata(&short).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(control);
    assert!(!short.exists() && session.join(SOCKET).symlink_metadata().is_err());
    std::fs::remove_dir_all(state).expect("ours");
}
