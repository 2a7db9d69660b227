//! Questions of a real session and everybody who can answer them: the terminal, commands, a hook. And who cannot: the
//! command inside.

use std::time::Duration;

use crate::screen::Screen;
use crate::support::{Place, wait_for};

/// A place with a file that nobody has approved.
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
        "echo up; (sleep 1; '{sandbox}' questions; '{sandbox}' approve 1; ls ~/.local/state) & cat ~/notes/list.txt; wait"
    );
    let flags = ["--on-unknown", "ask", "--ask-timeout", "3s", "--ro", &sandbox];
    let session = place.start(&flags, &script);
    let (_, out) = session.end();
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
fn a_stopped_session_gives_the_terminal_back_and_asks_again() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.place.write("home:notes/list.txt", "the-list\n");
    // Who waits for an answer cannot be stopped, so somebody else is.
    screen.line("sandbox run -- bash -c 'sleep 1; cat ~/notes/list.txt & sleep 1; wait'");
    screen.wait_for("wait, keys go to the program");
    screen.keys(&["C-z"]);
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
