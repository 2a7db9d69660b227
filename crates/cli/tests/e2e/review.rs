//! What a person does with a session's changes besides taking or dropping them whole: patches, archives.

use crate::screen::Screen;
use crate::support::{Place, binary};

const EDIT: &str = "set -e; echo two >> first; mkdir -p src .vscode; head -c 100 /dev/urandom > src/binary; chmod +x src/binary; ln -s first link; \
                    echo {} > .vscode/tasks.json; echo '#!/bin/sh' > .git/hooks/pre-commit; echo TOKEN=made > .env.local";

#[test]
fn git_applies_the_patch_of_a_session_and_tar_unpacks_its_archive() {
    let Some(place) = Place::with_repository() else { return };
    place.write(".env", "TOKEN=hunter2\n");
    place.run(&["--transaction"], &["sh", "-c", EDIT]).code(0);
    place.host("cp -a . ../copy; cp -a . ../unpacked").ok();
    let patch = place.sandbox(&["diff", "--patch"]).ok();
    assert_eq!(patch, place.sandbox(&["diff"]).ok(), "a pipe gets the patch without being asked");
    assert!(patch.contains("# diff --git a/.git/hooks/pre-commit") && patch.contains("needs --opens"), "{patch}");
    assert!(!patch.contains(".env"), "{patch}");
    // Its bytes need not be text.
    place.host(&format!("{} diff > ../changes.patch", binary().display())).ok();
    place.host("cd ../copy && git apply ../changes.patch").ok();
    // What host programs obey is exported by its own word, and the file is never an older one's end.
    place.sandbox(&["export", "--tar", "-o", "../part.tar"]).code(1).says(&[".vscode/tasks.json is not in it"]);
    let listed = place.host("tar tf ../part.tar").ok();
    assert!(!listed.contains(".vscode/tasks.json") && listed.contains("src/binary"), "{listed}");
    place.sandbox(&["export", "--tar", "-o", "../part.tar"]).code(125).says(&["cannot be written"]);
    place.sandbox(&["export", "--tar", "--opens", "-o", "../whole.tar"]).code(0);
    place.host("tar xf ../whole.tar -C ../unpacked").ok();
    assert!(!place.host("tar tf ../whole.tar").ok().contains(".env"));
    let exported = place.sandbox(&["export", "--opens"]).ok();
    assert_eq!(exported, patch);
    place.sandbox(&["commit", "--opens"]).code(0);
    place.host("diff -r --no-dereference . ../copy --exclude=.git && diff -r --no-dereference . ../unpacked").ok();
    place.host("test -x ../copy/src/binary && test -L ../copy/link && test -x ../unpacked/src/binary").ok();
}

#[test]
fn at_a_terminal_the_patch_is_coloured_paged_and_cannot_draw() {
    let Some(screen) = Screen::open(&["git", "less"]) else { return };
    let script = "printf 'a\\033[31mred\\n' > drawn; seq 1 100 > long";
    screen.line(&format!("sandbox run --network none --transaction -- sh -c \"{script}\""));
    screen.wait_for("sandbox commit");
    screen.line("clear; sandbox diff drawn; echo e''nd");
    screen.wait_for("end");
    let shown = screen.tmux(&["capture-pane", "-p", "-e"]);
    assert!(shown.contains("\\u{1b}[31mred"), "{shown}");
    assert!(shown.contains("\u{1b}[32m+a") || shown.contains("\u{1b}[32m"), "{shown}");
    screen.line("clear; NO_COLOR=1 sandbox diff drawn; echo e''nd");
    screen.wait_for("end");
    let shown = screen.tmux(&["capture-pane", "-p", "-e"]);
    assert!(!shown.contains("\u{1b}[32m"), "{shown}");
    // More than a screen waits in the pager.
    screen.line("clear; sandbox diff long");
    screen.wait_for("+15");
    assert!(!screen.text().contains("+100"), "{}", screen.text());
    screen.keys(&["q"]);
    screen.line("clear; PAGER=cat sandbox diff long");
    screen.wait_for("+100");
}
