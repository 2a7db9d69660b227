//! `transaction_mode = "copy"`: a session that renames directories, reviewed, committed and dropped like any other.

use crate::support::Place;

const RENAME: &str = "python3 -c 'import os; os.rename(\"src\", \"lib\")' 2>/dev/null && echo renamed || echo refused";

fn with_copy(text: &str) -> Option<Place> {
    let place = Place::with_repository()?;
    place.write("src/deep/file", "one\n");
    place.write("src/.env", "TOKEN=hunter2\n");
    place.write(".env", "TOKEN=hunter2\n");
    place.write("home:.config/cofferdam/config.toml", text);
    Some(place)
}

#[test]
fn directories_are_renamed_in_a_copy_and_committed_and_hidden_names_stay() {
    for mode in ["static", "dynamic"] {
        // The control: an overlay refuses it.
        let Some(place) = with_copy("") else { return };
        assert_eq!(place.run(&["--mode", mode, "--transaction"], &["sh", "-c", RENAME]).ok(), "refused\n", "{mode}");
        let Some(place) = with_copy("transaction_mode = \"copy\"\n") else { return };
        place.host("mkdir top; echo t > top/t").ok();
        let script = format!(
            "{}; {RENAME}; cat .env src/.env lib/.env 2>/dev/null; echo T=1 > .env; echo x > made; echo end",
            RENAME.replace("src", "top").replace("lib", "moved")
        );
        let ran = place.run(&["--mode", mode, "--transaction"], &["sh", "-c", &script]);
        assert!(ran.out.starts_with("renamed\n") && ran.out.ends_with("end\n"), "{mode}: {ran:?}");
        assert!(!format!("{}{}", ran.out, ran.err).contains("hunter2"), "{mode}: {ran:?}");
        assert!(place.exists("top/t") && !place.exists("moved") && !place.exists("made"), "{mode}");
        let diff = place.sandbox(&["diff"]).out;
        assert!(diff.contains("moved/t") && !diff.contains("hunter2"), "{mode}: {diff}");
        place.sandbox(&["commit"]);
        assert_eq!(place.read("moved/t").as_deref(), Some("t\n"), "{mode}");
        assert!(!place.exists("top") && place.exists("made"), "{mode}");
        for name in [".env", "src/.env"] {
            assert_eq!(place.read(name).as_deref(), Some("TOKEN=hunter2\n"), "{mode}: {name}");
        }
        place.sandbox(&["commit", "--undo"]).code(0);
        assert!(place.exists("top/t") && !place.exists("moved"), "{mode}");
    }
}

#[test]
fn a_copy_that_was_not_touched_leaves_nothing_and_auto_applies_it() {
    let Some(place) = with_copy("transaction_mode = \"copy\"\n") else { return };
    place.run(&["--transaction"], &["sh", "-c", "ls -R > /dev/null; cat first"]).code(0);
    assert_eq!(place.sandbox(&["changes"]).ok(), "No changes wait.\n");
    let script = "mkdir new; echo n > new/n; python3 -c 'import os; os.rename(\"new\", \"newer\")'; git add newer; git commit -qm second";
    place.run(&["--transaction=auto"], &["sh", "-c", script]).code(0);
    assert_eq!(place.read("newer/n").as_deref(), Some("n\n"));
    assert_eq!(place.host("git log --format=%s; git fsck --strict").ok(), "second\nfirst\n");
    assert_eq!(place.sandbox(&["changes"]).ok(), "No changes wait.\n");
}

/// A project's file may not have the host copy it.
#[test]
fn a_projects_file_cannot_ask_for_a_copy_unapproved() {
    let Some(place) = with_copy("") else { return };
    place.write(".cofferdam/policy.toml", "transaction_mode = \"copy\"\n");
    let ran = place.run(&["--transaction"], &["sh", "-c", RENAME]);
    assert!(!ran.out.contains("renamed"), "{ran:?}");
}

#[test]
fn a_copy_has_no_checkpoints_and_says_so() {
    let Some(place) = with_copy("transaction_mode = \"copy\"\n") else { return };
    place.run(&["--transaction"], &["sh", "-c", "rm first; mv src lib"]).code(0);
    let before = place.sandbox(&["diff", "--stat"]).ok();
    for words in [&["undo", "--preview"][..], &["undo", "--yes"], &["checkpoint", "--list"], &["rollback", "--to", "0"]]
    {
        place.sandbox(words).code(125).says(&["a copy of the project"]);
    }
    assert_eq!(place.sandbox(&["diff", "--stat"]).ok(), before);
    place.sandbox(&["rollback"]).code(0);
}

#[test]
fn values_of_masked_files_are_not_committed_under_another_name() {
    let Some(place) = with_copy("transaction_mode = \"copy\"\n") else { return };
    place.write("pkg/.npmrc", "//registry.example/:_authToken=hunter2\nfund=false\n");
    place.write("pkg/plain", "plain\n");
    let ran = place.run(&["--transaction"], &["sh", "-c", "cat pkg/.npmrc; mv pkg pkg2; mv pkg2/.npmrc taken"]);
    assert!(ran.out.contains("fund=false") && !ran.out.contains("hunter2"), "{ran:?}");
    assert!(!place.sandbox(&["diff"]).out.contains("hunter2"));
    place.sandbox(&["commit"]);
    assert!(place.exists("pkg2/plain"));
    assert_eq!(place.host("grep -rl hunter2 . --include='*' | grep -v '[.]env' | grep -v '^./pkg/' || true").ok(), "");
}
