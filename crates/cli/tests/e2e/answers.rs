//! `sandbox questions`, `approve` and `deny` against a supervisor that is played here, word by word.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::{Value, json};

use crate::screen::Screen;
use crate::support::{Place, wait_for};

/// They are shown by their last group.
const FIRST: &str = "local-0a-6b1f0e92d7c4";
const SECOND: &str = "local-0b-2c8e91a0f3d5";

/// A session with one open question; what faces said to it can be received.
struct Played {
    directory: PathBuf,
    said: Receiver<Value>,
}

impl Played {
    fn new(place: &Place, session: &str, id: u64, path: &str) -> Played {
        let directory = place.home.join(".local/state/cofferdam/sessions").join(session);
        std::fs::create_dir_all(&directory).expect("the home is ours");
        // The path of a socket is at most 107 bytes long, so it goes through a descriptor.
        let opened = std::fs::File::open(&directory).expect("it was made");
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/socket", opened.as_raw_fd())).expect("a free name");
        let (sender, said) = channel();
        let question = json!({
            "type": "event.fs_request", "id": id, "pid": 7, "exe": "/usr/bin/cat", "cwd": "/", "op": "read", "path": path,
            "flags": 0, "is_dir": false, "size": 3, "also": [], "waiting": 1, "ts": 1.0,
            "asker": {"program": {"pid": 7, "exe": "/usr/bin/cat", "argv": ["cat", "\u{1b}[31mred"]}, "cwd": "/",
                "parents": [{"pid": 2, "exe": "/bin/bash", "argv": ["bash"]}]},
        });
        let session = session.to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream, &session, &question, &sender);
            }
        });
        Played { directory, said }
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.directory).expect("it is ours");
    }
}

fn serve(stream: UnixStream, session: &str, question: &Value, said: &Sender<Value>) {
    let mut writer = stream.try_clone().expect("descriptors are free");
    let mut tell = |value: Value| writeln!(writer, "{value}").unwrap_or_default();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let command: Value = serde_json::from_str(&line).expect("JSON");
        match command["type"].as_str() {
            Some("hello") => {
                tell(json!({"type": "hello", "version": 1, "session": session}));
                tell(question.clone());
            }
            Some("cmd.status") => tell(json!({
                "type": "event.session", "session": session, "pid": 1, "argv": [], "cwd": "/", "started": 1.0,
                "processes": null, "memory": null, "cpu_seconds": null, "open_questions": 1,
            })),
            Some("cmd.approve") if command["scope"] == "toolchain" => {
                tell(json!({"type": "error", "message": "question 3 is about no toolchain"}));
            }
            Some(kind) => {
                let decision = if kind == "cmd.approve" { "allow" } else { "deny" };
                tell(json!({"type": "ok"}));
                tell(json!({
                    "type": "event.audit", "id": question["id"], "decision": decision, "scope": "file",
                    "persist": "once", "cause": "person", "path": question["path"], "ts": 2.0,
                }));
                said.send(command).unwrap_or_default();
            }
            None => {}
        }
    }
}

#[test]
fn open_questions_are_listed_without_anything_that_draws() {
    let place = Place::new();
    place.sandbox(&["questions"]).code(0).says(&["no open questions"]);
    let _session = Played::new(&place, FIRST, 3, "/home/you/\u{1b}]0;x\u{7}\u{202e}gpj");
    // What a killed supervisor left answers no client.
    let left = place.home.join(".local/state/cofferdam/sessions/09-1");
    std::fs::create_dir_all(&left).expect("the home is ours");
    drop(UnixListener::bind(left.join("socket")).expect("a short path"));
    let text = place.sandbox(&["questions"]).ok();
    assert_eq!(
        text,
        "6b1f0e92d7c4:3  read /home/you/\\u{1b}]0;x\\u{7}\\u{202e}gpj\n    by: /usr/bin/cat: cat \\u{1b}[31mred (pid 7) < bash\n"
    );
    let json: Value = serde_json::from_str(&place.sandbox(&["questions", "--json"]).ok()).expect("JSON");
    assert_eq!((&json["questions"][0]["session"], &json["questions"][0]["id"]), (&json!(FIRST), &json!(3)));
    std::fs::remove_dir_all(left).expect("it is ours");
}

#[test]
fn a_question_is_answered_by_its_number_and_by_its_full_name() {
    let place = Place::new();
    let session = Played::new(&place, FIRST, 3, "/data/x");
    place.sandbox(&["approve", "3"]).code(0).says(&["allowed /data/x"]);
    let expected = json!({"type": "cmd.approve", "id": 3, "scope": "file", "persist": "once"});
    assert_eq!(session.said.recv().expect("a command"), expected);
    place.sandbox(&["deny", "6b1f0e92d7c4:3", "--scope", "dir", "--keep", "session"]).code(0).says(&["denied /data/x"]);
    let expected = json!({"type": "cmd.deny", "id": 3, "scope": "dir", "persist": "session"});
    assert_eq!(session.said.recv().expect("a command"), expected);
    place.sandbox(&["approve", "4"]).code(1).says(&["no open question is called `4`", "sandbox questions"]);
    place.sandbox(&["approve", "0b:3"]).code(1);
    place.sandbox(&["approve", "nonsense"]).code(1);
    place.sandbox(&["approve", "3", "--scope", "toolchain"]).code(1).says(&["about no toolchain"]);
    place.sandbox(&["approve", "3", "--scope", "everything"]).code(125);
    // A session of the same end that does not answer now, or has no such question, is a reason to refuse all the same.
    let silent = session.directory.with_file_name("local-0c-6b1f0e92d7c4");
    std::fs::create_dir(&silent).expect("the home is ours");
    place.sandbox(&["approve", "6b1f0e92d7c4:3"]).code(1).says(&["several sessions"]);
    std::fs::remove_dir(&silent).expect("it is empty");
    let _other = Played::new(&place, SECOND, 3, "/data/y");
    place.sandbox(&["approve", "3"]).code(1).says(&["several sessions ask a question 3: 6b1f0e92d7c4, 2c8e91a0f3d5"]);
    place.sandbox(&["approve", "3", "--session", "2c8e91a0f3d5"]).code(0).says(&["allowed /data/y"]);
}

#[test]
fn the_inbox_answers_every_session_and_outlives_them() {
    let Some(screen) = Screen::open(&[]) else { return };
    let before = screen.settings("before");
    screen.line("sandbox inbox");
    screen.wait_for("no open questions");
    let first = Played::new(&screen.place, FIRST, 3, "/data/\u{1b}[2J\u{202e}x");
    screen.wait_for("sandbox inbox: 1 open");
    let second = Played::new(&screen.place, SECOND, 8, "/home/you/notes/second.txt");
    let text = screen.wait_for("sandbox inbox: 2 open");
    assert!(text.contains("read /data/\\u{1b}[2J\\u{202e}x"), "{text}");
    screen.capture("inbox");
    screen.keys(&["j", "d"]);
    screen.wait_for("EVERYTHING below /home/you/notes");
    screen.keys(&["s"]);
    let expected = json!({"type": "cmd.approve", "id": 8, "scope": "dir", "persist": "session"});
    assert_eq!(wait_for("the answer", || second.said.try_recv().ok()), expected);
    screen.wait_for("2c8e91a0f3d5:8 allowed");
    screen.wait_for("sandbox inbox: 1 open");
    std::thread::sleep(std::time::Duration::from_millis(800));
    screen.keys(&["n"]);
    let expected = json!({"type": "cmd.deny", "id": 3, "scope": "file", "persist": "once"});
    assert_eq!(wait_for("the answer", || first.said.try_recv().ok()), expected);
    screen.wait_for("6b1f0e92d7c4:3 denied once (person): /data/");
    screen.capture("inbox-after");
    screen.keys(&["q"]);
    screen.prompt();
    assert_eq!(screen.settings("after"), before);
    screen.place.sandbox(&["inbox"]).code(125).says(&["the inbox needs a terminal", "sandbox questions"]);
}
