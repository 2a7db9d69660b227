//! Where a question is asked: on the terminal of the job, also where its output goes into a file or a pipeline, and again when the
//! job comes back to the foreground. One line on stderr says that the session waits, wherever stderr goes.

use crate::screen::Screen;
use crate::support::{Place, wait_for};

fn screen() -> Option<Screen> {
    let screen = Screen::open(&[])?;
    screen.place.write("home:notes/list", "the-list\n");
    Some(screen)
}

#[test]
fn in_a_pipeline_the_question_is_on_the_terminal() {
    let Some(screen) = screen() else { return };
    screen.line("sandbox run -- bash -c 'cat ~/notes/list; echo after' | tee log");
    screen.wait_for("press a key");
    screen.keys(&["y"]);
    screen.wait_until("the answer's result", |text| text.contains("the-list") && text.contains("after"));
    assert_eq!(screen.place.read("log").as_deref(), Some("the-list\nafter\n"));
    // The terminal is as it was.
    screen.ask("stty -a | grep -c ' icanon'", "1");
}

#[test]
fn with_errors_in_a_file_the_question_is_on_the_terminal_and_a_line_in_the_file() {
    let Some(screen) = screen() else { return };
    screen.line("sandbox run -- bash -c 'cat ~/notes/list; echo after' > log 2> errors");
    screen.wait_for("press a key");
    let errors = screen.place.read("errors").expect("it was made");
    assert_eq!(errors.matches("sandbox: cat wants to read ").count(), 1, "{errors}");
    screen.keys(&["y"]);
    wait_for("the output", || screen.place.read("log").filter(|text| text == "the-list\nafter\n"));
}

#[test]
fn a_question_of_the_background_is_asked_in_the_foreground() {
    let Some(screen) = screen() else { return };
    screen.line("sandbox run -- bash -c 'cat ~/notes/list; echo after' &");
    let shown = screen.wait_for("sandbox approve");
    assert!(!shown.contains("press a key"), "{shown}");
    screen.line("fg");
    screen.wait_for("press a key");
    screen.keys(&["y"]);
    screen.wait_until("the answer's result", |text| text.contains("the-list") && text.contains("after"));
}

#[test]
fn a_stopped_session_asks_again_when_it_goes_on() {
    let Some(screen) = screen() else { return };
    screen.line("sandbox run -- bash -c 'kill -STOP $$; cat ~/notes/list; echo after'");
    screen.wait_for("Stopped");
    screen.line("bg");
    let shown = screen.wait_for("sandbox approve");
    assert!(!shown.contains("press a key"), "{shown}");
    screen.line("fg");
    screen.wait_for("press a key");
    screen.keys(&["y"]);
    screen.wait_until("the answer's result", |text| text.contains("the-list") && text.contains("after"));
}

#[test]
fn without_a_terminal_a_session_that_waits_says_so_on_stderr_and_ps_lists_it() {
    let place = Place::new();
    place.write("home:notes/list", "the-list\n");
    let mut command = place.command("bash");
    let script = "exec \"$SANDBOX\" run --on-unknown ask -- bash -c 'echo up; cat ~/notes/list' 2> errors";
    command.env("SANDBOX", crate::support::binary()).args(["-c", script]);
    let session = place.begin_session(command);
    let line = wait_for("the line", || place.read("errors").filter(|text| text.contains("wants to read")));
    assert!(line.contains("sandbox approve "), "{line}");
    let listed = wait_for("the question", || Some(place.sandbox(&["ps"]).ok()).filter(|text| text.contains("waits")));
    assert!(listed.contains("PROJECT") && listed.contains(" project "), "{listed}");
    assert!(listed.contains("(a question waits: `sandbox inbox`)"), "{listed}");
    let name = place.sandbox(&["questions"]).ok();
    place.sandbox(&["approve", name.split_whitespace().next().expect("a question")]).code(0);
    assert_eq!(session.end(), (0, "the-list\n".to_owned()));
}
