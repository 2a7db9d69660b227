//! What a person does with a session's changes besides taking or dropping them whole: patches, archives, hunks, taking a commit back.

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
    place.sandbox(&["export", "--tar", "-o", "../part.tar"]).code(125).says(&["../part.tar exists already"]);
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
    screen.wait_for("leave them waiting:");
    screen.keys(&["Enter"]);
    screen.prompt();
    screen.line("clear; sandbox diff drawn; echo all''done");
    screen.wait_for("alldone");
    let shown = screen.tmux(&["capture-pane", "-p", "-e"]);
    assert!(shown.contains("\\u{1b}[31mred"), "{shown}");
    assert!(shown.contains("\u{1b}[32m+a") || shown.contains("\u{1b}[32m"), "{shown}");
    screen.line("clear; NO_COLOR=1 sandbox diff drawn; echo all''done");
    screen.wait_for("alldone");
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

/// Answers the questions of `sandbox commit --interactive`, and leaves something to wait.
fn answered(place: &Place, answers: &str) -> String {
    place.host(&format!("printf '{answers}' | {} commit --interactive 2>&1", binary().display())).code(1).out
}

#[test]
fn what_hosts_obey_below_a_replaced_name_needs_its_own_yes() {
    let Some(place) = Place::with_repository() else { return };
    place.write("docs", "a file\n");
    let script = "rm docs; mkdir -p docs/.vscode; echo {} > docs/.vscode/tasks.json; echo x > docs/x";
    place.run(&["--transaction"], &["sh", "-c", script]).code(0);
    let said = answered(&place, "y\\ny\\n");
    assert!(said.contains("docs/.vscode/tasks.json without being asked"), "{said}");
    assert_eq!(place.read("docs").as_deref(), Some("a file\n"), "{said}");
    place.host(&format!("printf 'yes\\n' | {} commit --interactive 2>&1", binary().display())).ok();
    assert!(place.exists("docs/.vscode/tasks.json"));
}

#[test]
fn hunks_are_taken_one_by_one_and_what_was_left_out_is_written_where_an_agent_reads_it() {
    let Some(place) = Place::with_repository() else { return };
    place.host("seq 1 40 > many; git add many; git commit -qm many").ok();
    let script = "set -e; sed -i '3s/$/ three/;20d;38s/$/ last/' many; mkdir -p new .vscode; echo n > new/n; echo {} > .vscode/tasks.json; \
                  echo x > other; git add many; git commit -qm inside";
    place.run(&["--transaction"], &["sh", "-c", script]).code(0);
    // The git directory; .vscode/tasks.json, for which y is no answer; three hunks; new/n; other.
    let said = answered(&place, "y\\ny\\nn\\ny\\nn\\nd\\ny\\nn\\n");
    let expected = place.host("seq 1 40 | sed '3s/$/ three/'").ok();
    assert_eq!(place.read("many").as_deref(), Some(expected.as_str()), "{said}");
    assert!(place.exists("new/n") && !place.exists("other") && !place.exists(".vscode"), "{said}");
    assert_eq!(place.host("git log --format=%s -1; git fsck --strict").ok(), "inside\n");
    assert!(said.contains("Type `yes`") && said.contains("hunks of 1 file"), "{said}");
    assert!(said.contains("many waits, but commits of the session contain it"), "{said}");
    let note = place.read(".git/cofferdam-rejected.patch").expect("it is written");
    assert!(note.contains("-20\n") && note.contains("+38 last") && note.contains("b/other"), "{note}");
    assert!(!note.contains("three") && !note.contains("new/n"), "{note}");
    let seen = place.run(&[], &["cat", ".git/cofferdam-rejected.patch"]).code(0).out;
    assert_eq!(seen, note, "a later session reads it");
    // What was left out is taken by its name, or in another review.
    let ran = place.sandbox(&["commit"]).code(1);
    assert!(ran.err.contains("3 names that you left out in a review wait"), "{}", ran.err);
    assert!(!place.exists("other") && place.read("many").as_deref() == Some(expected.as_str()), "{}", ran.out);
    // The rest waits, without a conflict; `yes` takes what hosts obey, and the end of the answers leaves the rest.
    let said = answered(&place, "yes\\na\\n");
    assert!(place.exists(".vscode/tasks.json") && !place.exists("other"), "{said}");
    let expected = place.host("seq 1 40 | sed '3s/$/ three/;20d;38s/$/ last/'").ok();
    assert_eq!(place.read("many").as_deref(), Some(expected.as_str()), "{said}");
}

#[test]
fn a_commit_is_taken_back_but_for_what_the_host_changed_since() {
    let Some(place) = Place::with_repository() else { return };
    place.sandbox(&["commit", "--undo"]).code(1).says(&["nothing was committed"]);
    place.run(&["--transaction=auto"], &["sh", "-c", "echo two >> first; mkdir d; echo n > d/n; echo m > m"]).code(0);
    assert!(place.exists("d/n") && place.exists("m"));
    place.write("m", "mine\n");
    let said = place.sandbox(&["commit", "--undo"]).code(1).out;
    assert!(said.contains("wait again") && said.contains("  m\n"), "{said}");
    assert_eq!(place.read("first").as_deref(), Some("one\n"));
    assert_eq!(place.read("m").as_deref(), Some("mine\n"));
    assert!(!place.exists("d"));
    place.sandbox(&["commit", "--undo"]).code(1).says(&["nothing was committed"]);
    place.sandbox(&["commit", "first", "d"]).code(0);
    assert!(place.exists("d/n"));
    // What is kept is removed by a word, where it is as old as was said.
    assert!(place.sandbox(&["changes", "--prune"]).ok().contains("0 sessions"));
    assert!(place.sandbox(&["changes", "--prune", "0"]).ok().contains("1 session"));
    place.sandbox(&["commit", "--undo"]).code(1);
}

#[test]
fn changes_become_a_commit_on_a_new_branch_and_nothing_else_is_touched() {
    let Some(place) = Place::with_repository() else { return };
    let prepare = "echo 'build/' > .gitignore; echo x > becomes-dir; echo g > gone; printf '* filter=evil\\n' > .gitattributes; \
                   git add .; git commit -qm base; git config filter.evil.clean 'touch ../ran; cat'; \
                   printf '#!/bin/sh\\ntouch ../ran\\n' > .git/hooks/reference-transaction; chmod +x .git/hooks/*; echo staged > staged; git add staged; rm -f ../ran";
    place.host(prepare).ok();
    let script = "set -e; echo two >> first; rm gone becomes-dir; mkdir becomes-dir build .vscode; echo i > becomes-dir/in; echo o > build/out; \
                  ln -s first link; echo run > tool; chmod +x tool; echo {} > .vscode/tasks.json";
    place.run(&["--transaction"], &["sh", "-c", script]).code(0);
    let state = "rm -f ../ran; git rev-parse HEAD; git symbolic-ref HEAD; sha1sum .git/index; ls -A";
    let before = place.host(state).ok();
    let said = [".vscode/tasks.json is not in it", "not in it, git ignores them: build/out"];
    place.sandbox(&["commit", "--as-branch", "agent"]).code(1).says(&said);
    assert!(!place.exists("../ran"), "a hook or a filter has run");
    assert_eq!(place.host(state).ok(), before);
    let told =
        place.host("git diff --raw --abbrev=4 HEAD agent | cut -d' ' -f1,2,5 | tr '\\t' ' '; git fsck --strict").ok();
    let expected = ":100644 000000 D becomes-dir\n:000000 100644 A becomes-dir/in\n:100644 100644 M first\n:100644 000000 D gone\n\
                    :000000 120000 A link\n:000000 100755 A tool\n";
    assert_eq!(told, expected);
    // A branch that is there is not moved; the changes wait.
    place.sandbox(&["commit", "--as-branch", "agent"]).code(125).says(&["cannot make the branch agent"]);
    place.sandbox(&["commit", "--as-branch", "../x"]).code(125);
    place.sandbox(&["commit", "--opens"]).code(0);
    assert!(place.exists("tool") && place.exists("build/out"));
}

#[test]
fn a_branch_is_made_in_a_repository_of_either_kind_and_says_what_is_not_in_it() {
    for format in ["sha1", "sha256"] {
        let Some(place) = Place::with(&["git"]) else { return };
        place.write("home:.gitconfig", "[user]\nname = T\nemail = t@example.org\n[init]\ndefaultBranch = main\n");
        let begin = format!(
            "git init -q --object-format={format} . && echo one > first && echo gone > gone && git add . && git commit -qm first"
        );
        place.host(&begin).ok();
        let script = "set -e; echo two >> first; rm gone; echo n > new; git add new; mkdir -p build; echo '*.o' > .gitignore; echo o > build/x.o";
        place.run(&["--transaction"], &["sh", "-c", script]).code(0);
        place.host("echo '*.o' >> .git/info/exclude").ok();
        let said = ["git ignores them: build/x.o", "git tracks no such names: .git/index"];
        place.sandbox(&["commit", "--as-branch", "agent"]).code(0).says(&said);
        let told = place.host("git diff --name-status HEAD agent; git fsck --strict").ok();
        assert_eq!(told, "A\t.gitignore\nM\tfirst\nD\tgone\nA\tnew\n", "{format}");
        place.sandbox(&["commit", "--as-branch", "agent"]).code(125);
    }
}

#[test]
fn a_mode_is_asked_about_by_itself_and_a_hunk_does_not_hide_it() {
    let Some(place) = Place::with_repository() else { return };
    place.host("seq 1 40 > many; chmod 644 many; git add many; git commit -qm many").ok();
    place.run(&["--transaction"], &["sh", "-c", "sed -i '3s/$/ three/;38s/$/ last/' many; chmod 755 many"]).code(0);
    // The mode is left, the first hunk is taken.
    let said = answered(&place, "n\ny\nn\n");
    assert!(said.contains("Take the mode 755 of many, which has 644"), "{said}");
    assert!(said.contains("mode 644 to 755"), "what waits is said: {said}");
    assert!(said.contains("the mode 755 of many was left out"), "{said}");
    place.host("grep -q '^3 three$' many && ! grep -q last many && test ! -x many").ok();
    let note = place.read(".git/cofferdam-rejected.patch").expect("it is written");
    assert!(note.contains("old mode 100644\nnew mode 100755\n") && note.contains("+38 last"), "{note}");
    // The mode alone.
    let said = answered(&place, "y\nn\n");
    assert!(said.contains("the mode 755 of many was taken") && said.contains("M many"), "{said}");
    assert!(!said.contains("mode 644 to 755") && !said.contains("hunks of"), "it does not wait any more: {said}");
    place.host("test -x many && ! grep -q last many").ok();
    place.host(&format!("printf 'y\\n' | {} commit --interactive", binary().display())).ok();
    place.host("grep -q last many").ok();
}

#[test]
fn a_file_in_a_new_directory_is_taken_where_only_the_file_is_named() {
    let Some(place) = Place::with_repository() else { return };
    place.run(&["--transaction"], &["sh", "-c", "mkdir -p new/deep; echo 1 > new/deep/one; echo 2 > new/two"]).code(0);
    place.host(&format!("printf 'y\\n' | {} commit -i new/deep/one", binary().display())).ok();
    assert!(place.exists("new/deep/one") && !place.exists("new/two"));
}

#[test]
fn a_pipe_under_the_name_of_the_note_does_not_stop_a_review() {
    let Some(place) = Place::with_repository() else { return };
    place.host("mkfifo .git/cofferdam-rejected.patch.next").ok();
    place.run(&["--transaction"], &["sh", "-c", "echo two >> first"]).code(0);
    let binary = binary();
    let said =
        place.host(&format!("printf 'n\\n' | timeout 20 {} commit --interactive 2>&1", binary.display())).code(1);
    assert!(said.out.contains("what you rejected is kept as a patch in"), "{}", said.out);
    assert!(place.read(".git/cofferdam-rejected.patch").is_some_and(|note| note.contains("+two")));
}

#[test]
fn what_was_overwritten_is_a_conflict_again_when_the_commit_is_taken_back() {
    let Some(place) = Place::with_repository() else { return };
    place.run(&["--transaction"], &["sh", "-c", "echo agent >> first; echo x > other"]).code(0);
    place.host("echo host >> first").ok();
    place.sandbox(&["commit", "--overwrite", "first"]).code(0);
    assert_eq!(place.read("first").as_deref(), Some("one\nagent\n"));
    place.sandbox(&["commit", "--undo"]).code(0);
    assert_eq!(place.read("first").as_deref(), Some("one\nhost\n"));
    place.sandbox(&["commit"]).code(1);
    assert_eq!(place.read("first").as_deref(), Some("one\nhost\n"), "the host's version stays");
    assert!(place.exists("other"));
}

#[test]
fn a_commit_whose_rest_was_rolled_back_is_not_offered_to_be_taken_back() {
    let Some(place) = Place::with_repository() else { return };
    place.run(&["--transaction"], &["sh", "-c", "echo a > a; echo b > b"]).code(0);
    place.sandbox(&["commit", "a"]).says(&[]);
    let preview = place.sandbox(&["rollback", "--preview"]).ok();
    assert!(preview.contains("cannot take that back any more"), "{preview}");
    place.sandbox(&["rollback", "--yes"]).code(0);
    for words in [&["undo", "--yes"][..], &["undo", "--preview"], &["commit", "--undo"]] {
        place.sandbox(words).code(125).says(&["the rest of which was rolled back"]);
    }
    assert!(place.exists("a") && !place.exists("b"));
}

#[test]
fn a_commit_does_not_take_the_repository_away_without_a_word() {
    for gone in [".git", ".git/HEAD .git/refs .git/index"] {
        let Some(place) = Place::with_repository() else { return };
        place.run(&["--transaction"], &["sh", "-c", &format!("rm -rf {gone}; echo x > x")]).code(0);
        place.sandbox(&["commit"]).code(1);
        assert_eq!(place.host("git log --format=%s; git fsck --strict; ls x").ok(), "first\nx\n", "{gone}");
    }
}
