//! Where a question is asked: on the terminal of the job, also where its output goes into a file or a pipeline, and again when the
//! job comes back to the foreground. One line on stderr says that the session waits, wherever stderr goes.

use crate::screen::Screen;
use crate::support::{Place, wait_for};

fn screen() -> Option<Screen> {
    let screen = Screen::open(&[])?;
    screen.place.write("home:notes/list", "the-list\n");
    Some(screen)
}

/// What the workload writes reaches the terminal through the pipeline: it painted another question over the panel, and a yes to that
/// gave this file.
#[test]
fn in_a_pipeline_a_line_says_how_to_answer_and_no_key_counts() {
    for pipe in ["| cat", "2> >(cat >&2)", "> >(cat)"] {
        let Some(screen) = screen() else { return };
        screen.line(&format!("sandbox run -- bash -c 'cat ~/notes/list; echo after' {pipe}"));
        let shown = screen.wait_for("sandbox approve");
        assert!(!shown.contains("press a key"), "{pipe}: {shown}");
        screen.keys(&["y"]);
        let listed = screen.place.sandbox(&["questions"]).ok();
        let name = listed.split_whitespace().next().expect("it is open").to_owned();
        screen.place.sandbox(&["approve", &name]).code(0);
        screen.wait_until("the answer's result", |text| text.contains("the-list") && text.contains("after"));
    }
}

/// The line is the workload's to write: what is approved is shown by the command that approves.
#[test]
fn an_approval_at_a_terminal_shows_the_question_and_asks() {
    let Some(screen) = screen() else { return };
    screen.line("sandbox run -- bash -c 'cat ~/notes/list; echo after' > log &");
    screen.wait_for("sandbox approve");
    let listed = screen.place.sandbox(&["questions"]).ok();
    let name = listed.split_whitespace().next().expect("it is open");
    screen.line(&format!("sandbox approve {name}"));
    let shown = screen.wait_for("approve this, once? [y/N]");
    assert!(shown.contains("notes/list"), "{shown}");
    screen.keys(&["n", "Enter"]);
    screen.wait_for("nothing was answered");
    screen.line(&format!("sandbox approve {name} --scope dir --keep session"));
    screen.wait_for("/notes, for this session? [y/N]");
    screen.keys(&["n", "Enter"]);
    screen.wait_for("nothing was answered");
    assert!(screen.place.sandbox(&["questions"]).ok().contains("notes/list"), "it is open");
    screen.line(&format!("sandbox approve {name}"));
    screen.wait_until("the question again", |text| text.matches("approve this, once?").count() == 2);
    screen.keys(&["y", "Enter"]);
    wait_for("the output", || screen.place.read("log").filter(|text| text.contains("after")));
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
