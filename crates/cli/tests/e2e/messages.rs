//! What the commands about transactions say to a person who does not know them yet: in which order, about which session, and what to
//! do next.

use crate::support::{Place, binary};

const SETNS: &str = "import ctypes; ctypes.CDLL(None).syscall(308, -1, 0, 0, 0, 0)";

#[test]
fn why_a_session_was_ended_comes_first_and_a_commit_of_its_work_says_it_again() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let ran = place.run(&["--transaction"], &["sh", "-c", "echo new > made; python3 -c \"$0\"", SETNS]).code(126);
    let at = |text: &str| ran.err.find(text).unwrap_or_else(|| panic!("`{text}` is not in {}", ran.err));
    assert!(at("an attempt to escape") < at("nothing that it wrote"), "{}", ran.err);
    place.sandbox(&["commit"]).code(0).says(&["was ended for an attempt to escape (joins another namespace)"]);
    // The control: a session that ended by itself.
    place.run(&["--transaction"], &["sh", "-c", "echo x > other"]).code(0);
    let said = place.sandbox(&["commit"]).code(0).err;
    assert!(!said.contains("escape"), "{said}");
}

#[test]
fn checkpoints_are_listed_with_their_time_and_one_without_a_change_is_told() {
    let Some(place) = Place::with_repository() else { return };
    let agent = place.start(&["--transaction"], "echo x > x; echo ready; read line || true");
    place.sandbox(&["checkpoint", "mine"]).code(0);
    let said = place.sandbox(&["checkpoint", "--list"]).ok();
    let today = place.host("date -u +%Y-%m-%d").ok();
    assert!(said.contains("TIME (UTC)") && said.contains(today.trim()), "{said}");
    let said = place.sandbox(&["checkpoint", "again"]).ok();
    assert!(said.contains("since checkpoint 1") && said.contains("none is called `again`"), "{said}");
    assert_eq!(agent.end().0, 0);
    place.sandbox(&["rollback"]).code(0);
}

#[test]
fn in_a_session_undo_says_that_it_works_outside() {
    let Some(place) = Place::with_repository() else { return };
    let script = format!("echo x > x; '{}' undo", binary().display());
    let ran = place.run(&["--mode", "static", "--transaction"], &["sh", "-c", &script]);
    ran.code(1).says(&["this runs in a session", "outside"]);
    place.sandbox(&["rollback"]).code(0);
}

#[test]
fn where_two_sessions_wait_the_end_names_its_own() {
    let Some(place) = Place::with_repository() else { return };
    let first = place.run(&["--transaction"], &["sh", "-c", "echo 1 > made"]).code(0);
    assert!(!first.err.contains("--session"), "{}", first.err);
    let second = place.run(&["--transaction"], &["sh", "-c", "echo 2 > made"]).code(0);
    let named = second.err.split("sandbox commit --session ").nth(1).and_then(|rest| rest.split('`').next());
    place.sandbox(&["commit", "--session", named.expect("it is named")]).code(0);
    assert_eq!(place.read("made").as_deref(), Some("2\n"));
    place.sandbox(&["rollback"]).code(0);
}

#[test]
fn what_was_taken_or_dropped_is_told_as_that() {
    let Some(place) = Place::with_repository() else { return };
    assert!(place.sandbox(&["changes", "--all"]).ok().contains("none that were committed or dropped are kept"));
    place.run(&["--transaction"], &["sh", "-c", "echo 1 > made"]).code(0);
    place.sandbox(&["commit"]).code(0);
    assert!(place.sandbox(&["changes", "--all"]).ok().contains("none wait: all were taken"));
}

#[test]
fn mistakes_are_told_with_what_to_do_instead() {
    let Some(place) = Place::with_repository() else { return };
    place.run(&["--transaction"], &["sh", "-c", "echo 1 > made"]).code(0);
    place.sandbox(&["export", "-o", "first"]).code(125).says(&["first exists already", "name another file"]);
    assert_eq!(place.read("first").as_deref(), Some("one\n"));
    place.sandbox(&["quarantine", "release", "abc", "--reason", "x"]).code(1).says(&["six letters or more"]);
    for (branch, said) in [("a b", "no name that git takes"), ("main", "there is a branch of that name already")] {
        let ran = place.sandbox(&["commit", "--as-branch", branch]).code(125).says(&[said]);
        assert!(!ran.err.contains("fatal") && !ran.err.contains("`git "), "{}", ran.err);
    }
    place.sandbox(&["commit", "--interactive"]).code(125).says(&["no answer on stdin", "sandbox commit PATH"]);
    place.sandbox(&["rollback"]).code(0);
    place.host("rm -rf .git").ok();
    place.run(&["--transaction"], &["sh", "-c", "echo 1 > made"]).code(0);
    place.sandbox(&["commit", "--as-branch", "x"]).code(125).says(&["is in no repository of git"]);
    place.sandbox(&["rollback"]).code(0);
}

#[test]
fn a_transaction_that_cannot_be_is_told() {
    let Some(place) = Place::with(&[]) else { return };
    let run = format!("cd /tmp && '{}' run --transaction -- true", binary().display());
    place.host(&run).code(0).says(&["there was no transaction: /tmp is no project", "project directory"]);
    assert_eq!(place.sandbox(&["changes"]).ok(), "No changes wait.\n");
}
