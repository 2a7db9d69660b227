//! Names that the policy hides, in a transaction: what a session does to make, replace, move or remove one, and that a commit of all
//! leaves the host's as it is.

use crate::support::Place;

const MODES: [&str; 2] = ["static", "dynamic"];

/// Each way in which a name comes into being; what fails says so.
const MAKE: &str = "echo x > made; mkdir dir; try() { \"$@\" 2>/dev/null && echo \"made: $*\"; }; \
    try sh -c 'echo T=1 > .env'; try mkdir .env; try ln made .env; try ln first .env; try ln -s made .env; try mkfifo .env; try mv -T made .env; \
    try mv -T first .env; try mv -T dir .env; try cp first .env; try python3 -c 'import os; os.rename(\"first\", \".env\")'; \
    try test -e .env; ls -A | grep '^.env$'; rm -rf made dir; echo end";

#[test]
fn a_hidden_name_that_is_known_at_the_start_cannot_be_made_in_a_transaction() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        let script = format!("{MAKE}; echo x > kept");
        let ran = place.run(&["--mode", mode, "--transaction"], &["sh", "-c", &script]).code(0);
        assert_eq!(ran.out, "end\n", "{mode}: {}", ran.err);
        let stat = place.sandbox(&["diff", "--stat"]).ok();
        assert!(stat.contains("kept") && !stat.contains(".env"), "{mode}: {stat}");
        place.sandbox(&["rollback", "--yes"]).code(0);
        place.run(&["--mode", mode, "--transaction"], &["sh", "-c", "echo T=1 > .env || true"]).code(0);
        assert_eq!(place.sandbox(&["changes"]).ok(), "No changes wait.\n", "{mode}: what refuses it is no change");
        assert!(!place.exists(".env"), "{mode}");
        // The control: a name that is not hidden.
        let other = MAKE.replace(".env", ".other");
        let ran = place.run(&["--mode", mode, "--transaction"], &["sh", "-c", &other]).code(0);
        assert!(ran.out.starts_with("made: sh -c echo T=1 > .other\n"), "{mode}: {}", ran.out);
        place.sandbox(&["rollback"]).code(0);
    }
}

/// Also while it runs: what keeps the name from being made is no change.
#[test]
fn a_session_that_runs_shows_nothing_of_the_names_that_it_cannot_make() {
    let Some(place) = Place::with_repository() else { return };
    let running = place.start(&["--transaction"], "echo x > made; echo; read line || true");
    let stat = place.sandbox(&["diff", "--stat"]).ok();
    assert!(stat.contains("made") && !stat.contains(".env"), "{stat}");
    assert_eq!(running.end().0, 0);
    place.sandbox(&["rollback"]).code(0);
}

#[test]
fn commit_of_all_leaves_hidden_files_byte_identical_whatever_the_session_moves() {
    let script = "echo mine > mine; for over in .env sub/.env sub/deep/.env.local; do mv -f mine $over; cp mine $over; ln -f mine $over; \
        echo x > $over; rm -f $over; mv $over taken; done 2>/dev/null; mv -T sub renamed 2>/dev/null; \
        python3 -c 'import os; os.rename(\"sub\", \"renamed2\")' 2>/dev/null; rm -rf sub 2>/dev/null; mkdir -p own; echo T=1 > own/.env.prod; \
        mv own own2; echo T=1 > .env.late; echo end";
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        let files = [".env", "sub/.env", "sub/deep/.env.local"];
        for file in files {
            place.write(file, &format!("TOKEN={file}\n"));
        }
        place.write("sub/shown", "shown\n");
        let stat = format!("stat -c '%n %i %s %a %Y %Z' {}; sha256sum {}", files.join(" "), files.join(" "));
        let before = place.host(&stat).ok();
        let ran = place.run(&["--mode", mode, "--transaction"], &["sh", "-c", script]).code(0);
        assert_eq!(ran.out, "end\n", "{mode}: {}", ran.err);
        let patch = place.sandbox(&["diff"]);
        assert!(!patch.out.contains("TOKEN") && !patch.out.contains("T=1"), "{mode}: {}", patch.out);
        // What holds a hidden name cannot go, and is told.
        let committed = place.sandbox(&["commit", "--opens"]);
        assert!(committed.code == 0 || committed.code == 1, "{mode}: {committed:?}");
        assert_eq!(place.host(&stat).ok(), before, "{mode}");
        assert!(place.exists("own2") && place.exists("mine"), "{mode}: the rest was committed: {committed:?}");
        let names = place.host("find . -name '.env*' | sort").ok();
        assert_eq!(names, "./.env\n./sub/.env\n./sub/deep/.env.local\n", "{mode}");
        assert!(!place.host("grep -rl TOKEN . --exclude='.env*' || true").ok().contains('/'), "{mode}");
    }
}
