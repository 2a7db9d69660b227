//! What a person does with a session's changes at a real terminal: the full-screen review, the question at the end of a run, the
//! live diff, and what is asked before something is dropped.

use serde_json::Value;

use crate::screen::Screen;
use crate::support::{Place, wait_for};

/// A terminal in a project with a repository.
fn open() -> Option<Screen> {
    let screen = Screen::open(&["git"])?;
    screen.place.make_repository();
    Some(screen)
}

/// Types a command and waits until the whole screen of it is there.
fn enter(screen: &Screen, command: &str, shown: &str) {
    screen.prompt();
    screen.line("clear");
    screen.wait_until("an empty screen", |text| text.trim_end() == "outer$");
    screen.line(command);
    screen.wait_for(shown);
}

const REVIEW: &str = "[c] COMMIT what is accepted";
const OFFER: &str = "[Enter] leave them waiting:";

#[test]
fn what_is_accepted_is_committed_what_is_rejected_is_told_to_the_agent_and_the_rest_waits() {
    let Some(screen) = open() else { return };
    let place = &screen.place;
    place.host("seq 1 40 > many; git add many; git commit -qm many").ok();
    let script = "set -e; sed -i '3s/$/ three/;20d;38s/$/ last/' many; mkdir -p .vscode; echo {} > .vscode/tasks.json; echo x > other; \
                  echo w > waits; printf 'a\\0b' > binary; chmod +x first; ln -s /etc/passwd out; git add many; git commit -qm inside";
    place.run(&["--transaction"], &["sh", "-c", script]).code(0);
    enter(&screen, "sandbox review", REVIEW);
    screen.capture("review-files");
    let text = screen.text();
    assert!(text.contains("git directory") && text.contains("OPENS") && text.contains("LINK OUT"), "{text}");
    screen.keys(&["j"]);
    screen.wait_for("[a] and the word `yes` take it");
    assert!(!screen.text().contains("--opens"), "{}", screen.text());
    screen.keys(&["k"]);
    // The git directory; then what hosts obey, for which a letter is no yes.
    screen.keys(&["a", "a"]);
    screen.wait_for("Type `yes`");
    screen.capture("review-opens");
    screen.keys(&["y", "Enter", "a", "yes", "Enter", "j"]);
    screen.wait_for("binary, or too large to compare");
    screen.keys(&["a"]);
    screen.wait_for("can be executed now");
    screen.keys(&["a"]);
    screen.wait_for("hunk 1 of 3");
    screen.keys(&["Tab", "a", "r", "r"]);
    screen.wait_for("[~] M many");
    screen.capture("review-hunks");
    screen.keys(&["Tab", "j", "r", "v"]);
    screen.wait_for("1 reviewed");
    screen.keys(&["c", "yes", "Enter"]);
    screen.wait_for("hunks of 1 file committed");
    screen.prompt();
    screen.capture("review-committed");
    let expected = place.host("seq 1 40 | sed '3s/$/ three/'").ok();
    assert_eq!(place.read("many").as_deref(), Some(expected.as_str()));
    assert!(place.exists(".vscode/tasks.json") && place.exists("binary") && !place.exists("other"));
    assert!(!place.exists("waits") && !place.exists("out"));
    assert_eq!(place.host("test -x first; git log --format=%s -1; git fsck --strict").ok(), "inside\n");
    let note = place.read(".git/cofferdam-rejected.patch").expect("it is written");
    assert!(note.contains("-20\n") && note.contains("+38 last") && note.contains("b/other"), "{note}");
    assert!(!note.contains("three") && !note.contains("waits"), "{note}");
    let left = place.sandbox(&["diff", "--stat"]).ok();
    assert!(left.contains("waits") && left.contains("other") && left.contains("many"), "{left}");
    place.sandbox(&["rollback"]).code(0);
}

#[test]
fn the_review_leaves_everything_waiting_or_drops_it_after_a_yes() {
    let Some(screen) = open() else { return };
    let place = &screen.place;
    let before = screen.settings("before");
    place.run(&["--transaction"], &["sh", "-c", "printf 'a\\033[31m\\033[2Jred\\n' > drawn; echo y > also"]).code(0);
    enter(&screen, "NO_COLOR=1 sandbox review", REVIEW);
    let shown = screen.tmux(&["capture-pane", "-p", "-e"]);
    assert!(!shown.contains("\u{1b}[38;5;"), "{shown}");
    // The second file; with colours it has some.
    screen.keys(&["j"]);
    screen.wait_for("\\u{1b}[31m\\u{1b}[2Jred");
    screen.keys(&["a", "q"]);
    screen.wait_for("1 accepted, 0 rejected, 0 reviewed are not kept");
    screen.keys(&["q"]);
    screen.wait_for("waits as before");
    assert!(!place.exists("also") && !place.exists("drawn"));
    assert_eq!(screen.settings("after"), before);
    enter(&screen, "sandbox review", REVIEW);
    screen.keys(&["j"]);
    screen.wait_for("\\u{1b}[31m");
    let shown = screen.tmux(&["capture-pane", "-p", "-e"]);
    assert!(shown.contains("\u{1b}[38;5;2m"), "{shown}");
    screen.keys(&["D", "n", "Enter"]);
    screen.wait_for("it takes the word `yes`");
    screen.keys(&["D"]);
    screen.wait_for("Type `yes`");
    screen.keys(&["yes", "Enter"]);
    screen.wait_for("is dropped");
    assert_eq!(place.sandbox(&["changes"]).ok(), "No changes wait.\n");
    place.sandbox(&["review"]).code(1).says(&["no changes of a session wait"]);
}

#[test]
fn without_a_terminal_there_is_no_review_and_the_commands_are_named() {
    let Some(place) = Place::with_repository() else { return };
    let said = place.run(&["--transaction"], &["sh", "-c", "echo x > x"]).code(0);
    assert!(said.err.contains("`sandbox review`") && !said.err.contains("[r]"), "{}", said.err);
    place.sandbox(&["review"]).code(125).says(&["needs the screen of a terminal", "sandbox commit"]);
    place.sandbox(&["diff", "--live"]).code(125).says(&["needs the screen of a terminal"]);
    place.sandbox(&["commit"]).code(0);
}

#[test]
fn at_the_end_of_a_run_a_key_reviews_commits_drops_or_leaves() {
    let Some(screen) = open() else { return };
    let place = &screen.place;
    let run = |script: &str| {
        enter(&screen, &format!("sandbox run --network none --transaction -- sh -c '{script}'; echo code-$?"), OFFER);
    };
    run("echo 1 > one; exit 3");
    screen.capture("review-end");
    screen.keys(&["Enter"]);
    screen.wait_for("the changes wait");
    screen.wait_for("\ncode-3\n");
    place.sandbox(&["rollback"]).code(0);
    run("echo 1 > one");
    screen.keys(&["n", "Enter"]);
    screen.wait_for("`n` is none of r, c and d: the changes wait");
    screen.wait_for("\ncode-0\n");
    place.sandbox(&["rollback"]).code(0);
    run("echo 2 > two");
    screen.keys(&["c", "Enter"]);
    screen.wait_for("[y/N]");
    assert!(!place.exists("two"), "a letter alone commits nothing");
    screen.keys(&["y", "Enter"]);
    screen.wait_for("\ncode-0\n");
    assert!(place.exists("two"));
    run("echo 3 > three");
    screen.keys(&["d", "Enter"]);
    screen.wait_for("drop this? [y/N]");
    screen.keys(&["y", "Enter"]);
    screen.wait_for("\ncode-0\n");
    assert_eq!(place.sandbox(&["changes"]).ok(), "No changes wait.\n");
    run("echo 4 > four");
    screen.keys(&["r", "Enter"]);
    screen.wait_for(REVIEW);
    screen.keys(&["a", "c"]);
    screen.wait_for("Type `yes`");
    assert!(!place.exists("four"), "letters alone commit nothing");
    screen.keys(&["yes", "Enter"]);
    screen.wait_for("\ncode-0\n");
    assert!(place.exists("four") && !place.exists("one") && !place.exists("three"));
    // Nothing is asked where nothing waits, or where a program reads the end.
    screen.ask("sandbox run --network none --transaction -- true; echo none-$?", "none-0");
    screen.ask("sandbox run --network none --json --transaction -- sh -c 'echo 5 > five'; echo json-$?", "json-0");
    place.sandbox(&["rollback"]).code(0);
}

/// Answers of a terminal to what a workload asked it are typed, as far as the terminal is concerned.
#[test]
fn what_was_typed_for_the_workload_is_no_answer_to_the_question() {
    let Some(screen) = open() else { return };
    screen.prompt();
    screen
        .line("sandbox run --network none --transaction -- sh -c 'echo x > made; echo rea''dy; sleep 1'; echo code-$?");
    screen.wait_until("the workload", |text| text.lines().any(|line| line == "ready"));
    screen.keys(&["c", "y", "Enter", "r", "d"]);
    screen.wait_for(OFFER);
    // Late, and with letters that the workload has chosen.
    screen.keys(&["rgb:aaaa/aaac/cccc", "Enter"]);
    screen.wait_for("\ncode-0\n");
    assert!(!screen.place.exists("made"));
    screen.place.sandbox(&["rollback"]).code(0);
}

#[test]
fn the_live_diff_follows_a_session_to_its_end() {
    let Some(screen) = open() else { return };
    let mut session =
        screen.place.start(&["--transaction"], "echo 1 > one; echo ready; read line; echo 2 > two; read line");
    enter(&screen, "sandbox diff --live", "A one  +1 -0");
    assert!(!screen.text().contains("two"));
    session.tell("\n");
    screen.wait_for("A two  +1 -0");
    screen.keys(&["q"]);
    screen.wait_for("still runs");
    enter(&screen, "sandbox diff --live", "A two");
    session.end();
    screen.wait_for("has ended");
    screen.ask("sandbox diff --live; echo code-$?", "code-1");
    screen.wait_for("does not run any more");
    screen.place.sandbox(&["rollback"]).code(0);
}

#[test]
fn the_object_of_a_run_counts_what_it_changed() {
    let Some(place) = Place::with_repository() else { return };
    let counts = |flag: &str, script: &str| -> Value {
        let ran = place.run(&["--json", flag], &["sh", "-c", script]).code(0);
        let object: Value = serde_json::from_str(ran.err.lines().last().expect("a line")).expect("JSON");
        object["changes"].clone()
    };
    let of = |added: u64, modified: u64, deleted: u64, applied: u64| serde_json::json!({ "added": added, "modified": modified, "deleted": deleted, "conflicts": 0, "applied": applied });
    assert_eq!(counts("--no-debug", "true"), Value::Null);
    assert_eq!(counts("--transaction", "true"), of(0, 0, 0, 0));
    assert_eq!(counts("--transaction", "echo x > x; echo y > y; echo two >> first"), of(2, 1, 0, 0));
    place.sandbox(&["rollback"]).code(0);
    assert_eq!(counts("--transaction=auto", "rm first; mkdir .vscode; echo {} > .vscode/tasks.json"), of(2, 0, 0, 1));
    place.sandbox(&["rollback"]).code(0);
}

#[test]
fn at_a_terminal_rollback_asks_and_it_can_be_looked_at_first() {
    let Some(screen) = open() else { return };
    let place = &screen.place;
    place.run(&["--transaction"], &["sh", "-c", "echo x > made; rm first"]).code(0);
    let said = place.sandbox(&["rollback", "--preview"]).ok();
    assert!(said.contains("1 new, 1 removed") && said.contains("A made") && said.contains("D first"), "{said}");
    assert!(place.sandbox(&["diff", "--stat"]).ok().contains("made"), "nothing was dropped");
    enter(&screen, "sandbox rollback", "drop this? [y/N]");
    screen.keys(&["Enter"]);
    screen.wait_for("nothing was dropped");
    assert!(place.sandbox(&["diff", "--stat"]).ok().contains("made"));
    enter(&screen, "sandbox rollback -y", "is dropped");
    wait_for("nothing waits", || (place.sandbox(&["changes"]).ok() == "No changes wait.\n").then_some(()));
}

#[test]
fn a_run_that_asks_ends_with_its_terminal() {
    let Some(screen) = open() else { return };
    enter(&screen, "sandbox run --network none --transaction -- sh -c 'echo 1 > made'", OFFER);
    screen.close();
    let left = screen.place.sandbox(&["diff", "--stat"]).ok();
    assert!(left.contains("made"), "{left}");
}

#[test]
fn a_repository_that_the_host_moved_during_a_review_is_not_torn() {
    let Some(screen) = open() else { return };
    let place = &screen.place;
    place
        .run(&["--transaction"], &["sh", "-c", "git checkout -qb feat; echo s > s; git add s; git commit -qm s"])
        .code(0);
    enter(&screen, "sandbox review", REVIEW);
    let state = "git symbolic-ref HEAD; git log --format=%s; git status --short";
    let before = place.host(&format!("echo h > h; git add h; git commit -qm host; {state}")).ok();
    screen.keys(&["A", "c", "yes", "Enter"]);
    screen.wait_for("nothing was committed");
    assert_eq!(place.host(state).ok(), before);
}

#[test]
fn a_review_of_paths_shows_and_commits_only_what_lies_below_them() {
    let Some(screen) = open() else { return };
    let place = &screen.place;
    let script = "mkdir -p new/deep; echo 1 > new/deep/one; echo 2 > new/two; echo 3 > other";
    place.run(&["--transaction"], &["sh", "-c", script]).code(0);
    place.sandbox(&["review", "missing"]).code(1).says(&["nothing that waits is called missing"]);
    enter(&screen, "sandbox review new/deep", REVIEW);
    let text = screen.text();
    assert!(text.contains("new/deep/one") && !text.contains("new/two") && !text.contains("other"), "{text}");
    screen.keys(&["D"]);
    screen.wait_for("also what is not shown");
    screen.keys(&["Escape"]);
    screen.wait_until("no question", |text| !text.contains("also what is not shown"));
    screen.keys(&["A", "c", "yes", "Enter"]);
    screen.wait_for("committed to");
    screen.prompt();
    assert!(place.exists("new/deep/one") && !place.exists("new/two") && !place.exists("other"));
    place.sandbox(&["rollback"]).code(0);
}

#[test]
fn a_terminal_that_cannot_be_drawn_on_gets_the_commands_that_need_no_screen() {
    let Some(screen) = open() else { return };
    screen.place.run(&["--transaction"], &["sh", "-c", "echo x > x"]).code(0);
    screen.prompt();
    screen.line("clear; TERM=dumb sandbox review; echo code-$?");
    screen.wait_for("code-125");
    let text = screen.text().replace('\n', "");
    assert!(text.contains("needs the screen of a terminal"), "{text}");
    assert!(
        text.contains("TERM=dumb") && text.contains("sandbox commit -i") && text.contains("sandbox diff"),
        "{text}"
    );
    screen.place.sandbox(&["rollback"]).code(0);
}
