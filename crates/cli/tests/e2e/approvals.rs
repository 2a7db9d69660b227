//! Questions of a real session and what can answer them: the terminal, commands, a hook. And what cannot: the
//! command inside.

use std::io::{BufRead as _, BufReader, Write as _};
use std::time::{Duration, Instant};

use crate::screen::Screen;
use crate::support::{Place, wait_for};

/// A place with a file that the operator has not approved.
fn place() -> Place {
    let place = Place::new();
    place.write("home:notes/list.txt", "the-list\n");
    place
}

/// The name of the one open question.
fn question(place: &Place) -> String {
    wait_for("a question", || {
        let text = place.sandbox(&["questions"]).ok();
        text.split_whitespace().next().map(str::to_owned)
    })
}

#[test]
fn a_command_answers_from_outside_once() {
    let place = place();
    let mut session =
        place.start(&["--on-unknown", "ask"], "echo up; read x; cat ~/notes/list.txt; echo code-$?; read x");
    session.tell("\n");
    let name = question(&place);
    let text = place.sandbox(&["questions"]).ok();
    assert!(text.contains("read ") && text.contains("/notes/list.txt") && text.contains("cat "), "{text}");
    place.sandbox(&["approve", &name]).code(0).says(&["allowed "]);
    place.sandbox(&["approve", &name]).code(1).says(&["no open question"]);
    session.tell("\n");
    assert_eq!(session.end(), (0, "the-list\ncode-0\n".to_owned()));
}

#[test]
fn what_a_session_was_granted_can_be_saved_over_the_socket() {
    let place = place();
    let mut session = place.start(&["--on-unknown", "ask"], "echo up; read x; cat ~/notes/list.txt; read x");
    session.tell("\n");
    let name = question(&place);
    let open: serde_json::Value = serde_json::from_str(&place.sandbox(&["questions", "--json"]).ok()).expect("JSON");
    let id = open["questions"][0]["session"].as_str().expect("a session");
    place.sandbox(&["approve", &name, "--keep", "session"]).code(0);
    let directory = place.path("home:.local/state/cofferdam/sessions").join(id);
    let stream = cofferdam_testkit::person::connect(&directory).expect("the session listens");
    let mut lines = BufReader::new(stream.try_clone().expect("descriptors are free")).lines();
    let mut hear = || lines.next().expect("an answer").expect("text");
    writeln!(&stream, r#"{{"type":"hello","version":1,"face":"test"}}"#).expect("it reads");
    assert!(hear().contains(r#""type":"hello""#));
    writeln!(&stream, r#"{{"type":"cmd.policy.save","scope":"user"}}"#).expect("it reads");
    assert_eq!(hear(), r#"{"type":"ok","message":"1 answers kept"}"#);
    let policy = place.read("home:.config/cofferdam/config.toml").expect("it was written");
    assert!(policy.contains("notes/list.txt"), "{policy}");
    writeln!(&stream, r#"{{"type":"cmd.policy.save","scope":"user"}}"#).expect("it reads");
    assert!(hear().contains(r#""type":"error""#));
    writeln!(&stream, r#"{{"type":"cmd.kill"}}"#).expect("it reads");
    assert!(hear().contains(r#""type":"ok""#));
    assert_eq!(session.end().0, 137);
}

/// The lock that a writer of a policy takes, held by another process until its stdin ends.
fn hold_policies(place: &Place) -> std::process::Child {
    let mut holder = place.command("flock");
    let lock = place.path("home:.local/state/cofferdam/policy.lock");
    std::fs::create_dir_all(lock.parent().expect("a directory")).expect("the home is ours");
    let mut holder = holder
        .arg(&lock)
        .args(["sh", "-c", "echo held; read x"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("flock starts");
    let mut line = String::new();
    BufReader::new(holder.stdout.as_mut().expect("piped")).read_line(&mut line).expect("text");
    assert_eq!(line, "held\n");
    holder
}

#[test]
fn a_session_goes_on_while_an_answer_waits_for_its_policy() {
    let Some(place) = Place::with(&["flock"]) else { return };
    place.write("home:notes/list.txt", "the-list\n");
    place.write("home:other/list.txt", "the-other\n");
    let mut holder = hold_policies(&place);
    let mut session = place.start(
        &["--on-unknown", "ask"],
        "echo up; read x; cat ~/notes/list.txt; cat ~/other/list.txt; echo end; read x",
    );
    session.tell("\n");
    let started = Instant::now();
    place.sandbox(&["approve", &question(&place), "--keep", "user"]).code(0);
    // The next question is asked and answered although the policy cannot be written yet.
    place.sandbox(&["approve", &question(&place)]).code(0).says(&["other/list.txt"]);
    // A writer that waits for the lock gives up after ten seconds.
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    assert_eq!(place.read("home:.config/cofferdam/config.toml"), None, "the lock is held");
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    // What was to be kept is not lost at the end.
    session.tell("\n");
    assert_eq!(session.end(), (0, "the-list\nthe-other\nend\n".to_owned()));
    let policy = place.read("home:.config/cofferdam/config.toml").expect("it was written");
    assert!(policy.contains("notes/list.txt") && !policy.contains("other/list.txt"), "{policy}");
}

#[test]
fn who_is_denied_gets_an_error_and_goes_on() {
    let place = place();
    let mut session =
        place.start(&["--on-unknown", "ask"], "echo up; read x; cat ~/notes/list.txt; echo code-$?; read x");
    session.tell("\n");
    let name = question(&place);
    place.sandbox(&["deny", &name]).code(0).says(&["denied "]);
    session.tell("\n");
    assert_eq!(session.end(), (0, "code-1\n".to_owned()));
}

#[test]
fn a_question_that_nobody_answers_is_denied_in_time() {
    let place = place();
    let started = Instant::now();
    let ran = place.run(&["--on-unknown", "ask", "--ask-timeout", "1s"], &["bash", "-c", "cat ~/notes/list.txt"]);
    let ran = ran.code(1).says(&["notes/list.txt: Permission denied"]);
    assert!(ran.out.is_empty() && started.elapsed() < Duration::from_secs(10), "{ran:?}");
}

#[test]
fn a_hook_of_the_user_answers() {
    let place = place();
    let script = "#!/bin/sh\nread -r line\ncase \"$line\" in *list.txt*) ;; *) exit 1;; esac\n\
        id=${line#*\\\"id\\\":}; id=${id%%,*}\n\
        echo '{\"type\":\"cmd.approve\",\"id\":'$id',\"scope\":\"file\",\"persist\":\"session\"}'\n";
    place.write("home:bin/decide", script);
    place.host("chmod +x ~/bin/decide").ok();
    let hook = place.path("home:bin/decide").display().to_string();
    place.write("home:.config/cofferdam/config.toml", &format!("[unknown]\nhook = [\"{hook}\"]\n"));
    let ran = place.run(&["--on-unknown", "ask", "--ask-timeout", "10s"], &["bash", "-c", "cat ~/notes/list.txt"]);
    assert_eq!(ran.ok(), "the-list\n");
}

#[test]
fn a_session_inside_finds_nobody_to_ask() {
    let place = place();
    let sandbox = crate::support::binary().display().to_string();
    let script = format!(
        "echo up; cat ~/notes/list.txt & read x; '{sandbox}' --version; '{sandbox}' questions 2>&1; '{sandbox}' approve 1 2>&1; ls ~/.local/state; wait"
    );
    let flags = ["--on-unknown", "ask", "--ask-timeout", "3s", "--ro", &sandbox];
    let mut session = place.start(&flags, &script);
    // It is there to be answered, from outside.
    question(&place);
    session.tell("\n");
    let (_, out) = session.end();
    assert!(out.contains("sandbox ") && out.contains("no open question"), "it could be run inside: {out}");
    assert!(!out.contains("the-list") && !out.contains(":1  read") && !out.contains("cofferdam"), "{out}");
}

#[test]
fn the_terminal_asks_and_gives_the_screen_back() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.place.write("home:notes/list.txt", "the-list\n");
    let before = screen.settings("before");
    screen.line("sandbox run -- bash -c 'echo first; cat ~/notes/list.txt; echo code-$?'");
    let shown = screen.wait_for("press a key");
    assert!(shown.contains("\nfirst\n") && shown.contains("/notes/list.txt"), "{shown}");
    screen.capture("prompt-run");
    screen.keys(&["y"]);
    let after = screen.wait_for("code-0");
    assert!(after.contains("\nfirst\nthe-list\ncode-0\n") && !after.contains("question"), "{after}");
    screen.capture("prompt-run-after");
    screen.prompt();
    screen.line("sandbox run -- bash -c 'cat ~/notes/list.txt; echo code-$?'; echo end-$((1+1))");
    screen.wait_for("press a key");
    // Ctrl-C denies, and interrupts as it does without a question.
    screen.keys(&["C-c"]);
    screen.wait_for("end-2");
    assert_eq!(screen.settings("after"), before);
}

#[test]
fn a_session_that_asks_ends_with_its_terminal() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.place.write("home:notes/list.txt", "the-list\n");
    screen.line("sandbox run -- cat ~/notes/list.txt");
    screen.wait_for("press a key");
    screen.close();
    assert_eq!(screen.place.sandbox(&["ps"]).ok(), "no session runs\n");
}

#[test]
fn a_stopped_session_gives_the_terminal_back_and_asks_again() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.place.write("home:notes/list.txt", "the-list\n");
    // A process that waits for an answer cannot be stopped, so another one is.
    screen.line("sandbox run -- bash -c 'sleep 1; cat ~/notes/list.txt & sleep 1; wait'");
    screen.wait_for("question 1");
    // Two at once are the program's, whether it or the prompt has the keys by now.
    screen.keys(&["x", "C-z"]);
    screen.wait_for("Stopped");
    screen.prompt();
    assert!(!screen.text().contains("question 1"), "{}", screen.text());
    screen.line("fg");
    screen.wait_for("press a key");
    std::thread::sleep(Duration::from_millis(100));
    screen.keys(&["s"]);
    screen.wait_for("the-list");
    screen.prompt();
}

#[test]
fn in_a_pipeline_a_line_says_how_to_answer() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.place.write("home:notes/list.txt", "the-list\n");
    screen.line("sandbox run --on-unknown ask -- bash -c 'cat ~/notes/list.txt' </dev/null | tr a-z A-Z");
    let shown = screen.wait_for("sandbox: cat wants to read");
    assert!(shown.contains("`sandbox approve "), "{shown}");
    let name = question(&screen.place);
    screen.place.sandbox(&["approve", &name]).code(0);
    screen.wait_for("THE-LIST");
}

/// Reads four files one after another while a pager has the screen, and says what came of each.
/// It waits until the pager is there: before that there is no screen to give back.
const READER: &str = "while [ ! -e shown ]; do sleep 0.05; done && for n in once project never late; do cat ~/notes-$n/list > got-$n 2>&1; echo $? >> got-$n; done &
exec less numbers < /dev/tty
";

#[test]
fn a_full_screen_program_goes_on_around_every_answer() {
    let Some(screen) = Screen::open(&["less"]) else { return };
    for name in ["once", "project", "never", "late"] {
        screen.place.write(&format!("home:notes-{name}/list"), &format!("list-{name}\n"));
    }
    let numbers: Vec<String> = (1..=200).map(|n| format!("number-{n}\n")).collect();
    screen.place.write("numbers", &numbers.concat());
    screen.place.write("reader.sh", READER);
    screen.line("sandbox run --ask-timeout 8s -- bash reader.sh");
    screen.wait_for("number-20\n");
    screen.place.write("shown", "");
    for (name, key) in [("once", "y"), ("project", "p"), ("never", "n")] {
        let path = format!("/notes-{name}/list");
        let shown = screen.wait_until(&path, |text| text.contains(&path) && text.contains("press a key"));
        assert!(shown.contains("number-1\n"), "the pager is still there:\n{shown}");
        screen.capture(&format!("prompt-full-{name}"));
        screen.keys(&[key]);
    }
    // The operator does not answer the last one.
    screen.wait_for("/notes-late/list");
    let shown = screen.wait_until("the pager alone", |text| !text.contains("question") && text.contains("number-20\n"));
    assert!(shown.contains("number-1\n"), "{shown}");
    screen.capture("prompt-full-after");
    screen.keys(&["q"]);
    screen.wait_for("not approved");
    let told = screen.wait_until("what was kept", |text| text.contains("kept in")).replace('\n', "");
    assert!(!told.contains("the policy of the next run"), "what the operator had written is no alarm:\n{told}");
    screen.prompt();
    for (name, expected) in [("once", "list-once\n0\n"), ("project", "list-project\n0\n")] {
        assert_eq!(screen.place.read(&format!("got-{name}")).as_deref(), Some(expected), "{name}");
    }
    for name in ["never", "late"] {
        let got = screen.place.read(&format!("got-{name}")).unwrap_or_default();
        assert!(got.ends_with("Permission denied\n1\n"), "{name}: {got}");
    }
    let kept = screen.place.read(".cofferdam/policy.local.toml").unwrap_or_default();
    assert!(kept.contains("notes-project/list") && !kept.contains("notes-once"), "{kept}");
    // Kept means kept: the next session asks nothing.
    assert_eq!(screen.place.inside("cat ~/notes-project/list").ok(), "list-project\n");
}
