//! `sandbox run --transaction` and what a person does with its changes: list, read, commit, drop.

use serde_json::Value;

use crate::support::{Place, is_root, wait_for};

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("it says JSON")
}

/// Every changed path with what became of it and its class.
fn changed(place: &Place) -> Vec<(String, String, String)> {
    let said = json(&place.sandbox(&["diff", "--json"]).ok());
    let trees = said["trees"].as_array().expect("trees");
    let changes = trees.iter().flat_map(|tree| tree["changes"].as_array().expect("changes"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    changes.map(|change| (text(&change["path"]), text(&change["what"]), text(&change["class"]))).collect()
}

fn states(place: &Place) -> Vec<String> {
    let said = json(&place.sandbox(&["changes", "--all", "--json"]).ok());
    let listed = said["transactions"].as_array().expect("transactions").iter();
    listed.map(|one| one["state"].as_str().unwrap_or_default().to_owned()).collect()
}

const EDIT: &str = "set -e; echo two >> first; mkdir -p src .vscode; echo new > src/new; echo {} > .vscode/tasks.json; \
                    echo '#!/bin/sh' > .git/hooks/pre-commit; git add first src; git commit -qm second";

#[test]
fn what_a_session_changed_is_listed_read_and_committed_and_what_hosts_obey_needs_its_own_word() {
    for mode in ["static", "dynamic"] {
        let Some(place) = Place::with_repository() else { return };
        place.write(".env", "TOKEN=hunter2\n");
        let ran = place.run(&["--mode", mode, "--transaction"], &["sh", "-c", EDIT]).code(0);
        ran.says(&["nothing there is touched until you decide", "sandbox commit"]);
        assert_eq!(place.read("first").as_deref(), Some("one\n"), "{mode}");
        assert_eq!(states(&place), ["sealed"], "{mode}");
        let changes = changed(&place);
        let of = |path: &str| {
            changes.iter().find(|change| change.0 == path).map(|(_, what, class)| (what.as_str(), class.as_str()))
        };
        assert_eq!(of("first"), Some(("modified", "")), "{mode}");
        assert_eq!(of("src/new"), Some(("added", "")), "{mode}");
        assert_eq!(of(".vscode/tasks.json"), Some(("added", "opens")), "{mode}");
        assert_eq!(of(".git/hooks/pre-commit"), Some(("added", "opens")), "{mode}");
        assert!(!changes.iter().any(|change| change.0.contains(".env")), "{mode}: {changes:?}");
        let patch = place.sandbox(&["diff", "first"]).ok();
        assert!(patch.contains("+two\n") && !patch.contains("src/new"), "{mode}: {patch}");
        // Some of it waits: that is no success.
        let said = place.sandbox(&["commit"]).code(1).out;
        assert!(said.contains("needs --opens") && said.contains(".vscode/tasks.json"), "{mode}: {said}");
        assert_eq!(place.read("first").as_deref(), Some("one\ntwo\n"), "{mode}");
        assert!(!place.exists(".vscode") && !place.exists(".git/hooks/pre-commit"), "{mode}");
        assert_eq!(
            place.host("git log --format=%s; git status --short first src; git fsck --strict").ok(),
            "second\nfirst\n",
            "{mode}"
        );
        place.sandbox(&["commit", "--opens"]).code(0);
        assert!(place.exists(".vscode/tasks.json") && place.exists(".git/hooks/pre-commit"), "{mode}");
        assert_eq!(place.read(".env").as_deref(), Some("TOKEN=hunter2\n"), "{mode}");
        assert_eq!(states(&place), ["committed"], "{mode}");
        place.sandbox(&["commit"]).code(1);
    }
}

#[test]
fn a_part_is_committed_and_the_rest_dropped() {
    let Some(place) = Place::with_repository() else { return };
    place.run(&["--transaction"], &["sh", "-c", "echo a > a; mkdir d; echo b > d/b; rm first"]).code(0);
    place.sandbox(&["commit", "d"]).code(0);
    assert!(place.exists("d/b") && !place.exists("a") && place.exists("first"));
    place.sandbox(&["commit", "nosuch"]).code(1).says(&["nothing that waits is called nosuch"]);
    place.sandbox(&["commit", "/etc/passwd"]).code(1).says(&["none of the session's directories"]);
    let said = place.sandbox(&["rollback"]).ok();
    assert!(said.contains("is dropped"), "{said}");
    assert!(place.exists("d/b") && !place.exists("a") && place.exists("first"));
    place.sandbox(&["rollback"]).code(1).says(&["no changes of a session wait"]);
}

#[test]
fn what_the_host_changed_meanwhile_waits_and_can_be_overwritten_by_name() {
    let Some(place) = Place::with_repository() else { return };
    let running = place.start(&["--transaction"], "echo inside >> first; echo x > other; echo; read line || true");
    place.host("sed -i s/one/host/ first").ok();
    place.sandbox(&["commit"]).code(125).says(&["still runs"]);
    assert!(place.sandbox(&["diff", "--stat"]).ok().contains("first"), "it can be looked at while it runs");
    assert_eq!(running.end().0, 0);
    let said = place.sandbox(&["commit"]).code(1).out;
    assert!(said.contains("the host changed it meanwhile"), "{said}");
    assert_eq!(place.read("first").as_deref(), Some("host\n"));
    assert!(place.exists("other"));
    place.sandbox(&["commit", "--overwrite"]).code(125);
    place.sandbox(&["commit", "--overwrite", "first"]).code(0);
    assert_eq!(place.read("first").as_deref(), Some("one\ninside\n"));
}

#[test]
fn what_both_changed_is_merged_where_it_is_known_what_they_began_with() {
    const MAKE: &str = "seq 9 > lines; mkdir .vscode; for f in same script back .vscode/tasks.json; do seq 9 > $f; done; \
                        git add .; git commit -qm lines; sed -i s/5/five/ lines back; seq 9 > new";
    const INSIDE: &str = "for f in lines same new script back .vscode/tasks.json; do sed -i s/9/inside/ $f; done; echo; \
                          read line || true";
    const HOST: &str = "sed -i s/1/host/ lines new script .vscode/tasks.json; chmod +x script; sed -i s/9/host/ same; \
                        git checkout -q back; sed -i s/1/host/ back";
    let Some(place) = Place::with_repository() else { return };
    let is = |name: &str, first: &str, fifth: &str, last: &str| {
        let expected = format!("{first}\n2\n3\n4\n{fifth}\n6\n7\n8\n{last}\n");
        assert_eq!(place.read(name), Some(expected), "{name}");
    };
    place.host(MAKE).ok();
    let running = place.start(&["--transaction"], INSIDE);
    place.host(HOST).ok();
    assert_eq!(running.end().0, 0);
    let ran = place.sandbox(&["commit", "--merge"]).code(1);
    for said in [
        "lines: your version and the session's are merged",
        "same is not merged: both have changed the same lines",
        "back: your version and the session's are merged",
        "new is not merged: what both began with is not known: git did not track it",
        "script is not merged: the host's version has other permissions",
    ] {
        assert!(ran.err.contains(said), "{said}: {}", ran.err);
    }
    // Also what was not committed when the session began.
    is("lines", "host", "five", "inside");
    is("same", "1", "5", "host");
    // Lines that the host has taken back meanwhile do not come again.
    is("back", "host", "5", "inside");
    is(".vscode/tasks.json", "host", "5", "9");
    place.sandbox(&["commit", "--undo"]).code(0);
    is("lines", "host", "five", "9");
    // And the session's own waits, of what was merged and of what was not.
    place.sandbox(&["commit", "--overwrite", "--opens", "lines", ".vscode"]).code(0);
    is("lines", "1", "five", "inside");
    is(".vscode/tasks.json", "1", "5", "inside");
}

#[test]
fn what_git_keeps_in_another_form_is_not_merged() {
    let Some(place) = Place::with_repository() else { return };
    let make = "echo '*.txt text eol=crlf' > .gitattributes; seq 9 | sed 's/$/\\r/' > a.txt; git add .; git commit -qm a; \
                sleep 0.1; touch .git/index";
    place.host(make).ok();
    place.run(&["--transaction"], &["sed", "-i", "s/9/inside/", "a.txt"]).code(0);
    place.host("sed -i 's/\\r$//' a.txt").ok();
    let ran = place.sandbox(&["commit", "--merge"]).code(1);
    assert!(ran.err.contains("a.txt is not merged: what both began with is not known"), "{}", ran.err);
    assert_eq!(place.host("grep -c '\\r' a.txt || true").ok(), "0\n", "the host's line ends stay");
}

#[test]
fn a_merge_by_root_keeps_the_owner_that_the_host_gave_a_file() {
    if !is_root() {
        return;
    }
    let Some(place) = Place::with_repository() else { return };
    place.host("seq 9 > lines; git add .; git commit -qm lines").ok();
    let running = place.start(&["--transaction"], "sed -i s/9/inside/ lines; echo; read line || true");
    place.host("sed -i s/1/host/ lines; chown 1002:1003 lines").ok();
    assert_eq!(running.end().0, 0);
    place.sandbox(&["commit", "--merge"]).code(0);
    assert_eq!(place.host("stat -c %u:%g lines; head -1 lines; tail -1 lines").ok(), "1002:1003\nhost\ninside\n");
}

#[test]
fn auto_applies_at_the_end_but_for_what_hosts_obey() {
    let Some(place) = Place::with_repository() else { return };
    let ran = place.run(&["--transaction=auto"], &["sh", "-c", EDIT]).code(0);
    ran.says(&["applied to the project", "wait for you"]);
    assert_eq!(place.read("src/new").as_deref(), Some("new\n"));
    assert!(!place.exists(".vscode"));
    assert_eq!(place.host("git log --format=%s; git fsck --strict").ok(), "second\nfirst\n");
    assert_eq!(states(&place), ["sealed"]);
    place.sandbox(&["rollback"]).code(0);
    assert!(!place.exists(".vscode"));
}

#[test]
fn what_a_killed_session_wrote_waits_too() {
    let Some(place) = Place::with_repository() else { return };
    let running = place.start(&["--transaction"], "echo x > made; echo; read line || true");
    place.host(&format!("kill -9 {}", running.pid())).ok();
    drop(running);
    wait_for("its processes to end", || {
        let ran = place.sandbox(&["commit"]);
        (ran.code == 0).then_some(())
    });
    assert_eq!(place.read("made").as_deref(), Some("x\n"));
}

#[test]
fn a_session_that_was_undone_to_nothing_is_not_meant_beside_another() {
    let Some(place) = Place::with_repository() else { return };
    place.run(&["--transaction"], &["sh", "-c", "echo 1 > one"]).code(0);
    place.run(&["--transaction"], &["sh", "-c", "echo 2 > two"]).code(0);
    place.sandbox(&["undo", "--session", "last"]).code(0);
    let waits = place.sandbox(&["diff", "--stat"]).ok();
    assert!(waits.contains("one") && !waits.contains("two"), "{waits}");
    // What is dropped or put back has to be named: the one that was undone may be meant.
    place.sandbox(&["rollback"]).code(1).says(&["2 sessions wait here"]);
    place.sandbox(&["rollback", "--to", "1"]).code(1).says(&["2 sessions wait here"]);
    place.sandbox(&["commit"]).code(0);
    assert!(place.exists("one") && !place.exists("two"));
    // The one that is left is meant again: the undo can be taken back.
    place.sandbox(&["undo", "--preview"]).code(1);
    place.sandbox(&["rollback", "--to", "1"]).code(0);
    place.sandbox(&["commit"]).code(0);
    assert!(place.exists("two"));
}

#[test]
fn an_ended_session_whose_output_is_kept_says_how_its_changes_are_opened() {
    let Some(place) = Place::with_repository() else { return };
    let name = place.run(&["--detach", "--transaction"], &["sh", "-c", "echo 1 > one; echo said"]).ok();
    // Its command ends before it does.
    wait_for("its end", || place.sandbox(&["commit"]).err.contains("has ended").then_some(()));
    for command in [&["commit"][..], &["undo"], &["rollback"]] {
        // On a busy machine one of its processes is seen for a moment longer.
        let refused =
            || Some(place.sandbox(command)).filter(|ran| ran.err.contains("has ended, and its output is kept"));
        wait_for("it says so", refused).code(125).says(&["`sandbox output SESSION` reads it"]);
    }
    assert_eq!(place.sandbox(&["output", name.trim()]).ok(), "said\n");
    wait_for("its changes", || (place.sandbox(&["commit"]).code == 0).then_some(()));
    assert!(place.exists("one"));
    // A commit ends the checkpoints, and that is said.
    place.sandbox(&["undo", "2"]).code(1);
}

#[test]
fn two_sessions_of_one_project_are_told_apart() {
    let Some(place) = Place::with_repository() else { return };
    place.run(&["--transaction"], &["sh", "-c", "echo 1 > made"]).code(0);
    place.run(&["--transaction"], &["sh", "-c", "echo 2 > made"]).code(0);
    place.sandbox(&["diff"]).code(1).says(&["2 sessions wait here", "--session"]);
    place.write("home:elsewhere/x", "");
    place.run(&["--transaction"], &["true"]).code(0).says(&["no changes wait"]);
    assert_eq!(states(&place).len(), 2, "a session that changed nothing leaves nothing");
    let elsewhere = format!("cd ~/elsewhere && {} commit --session last", crate::support::binary().display());
    place.host(&elsewhere).code(1).says(&["no waiting session"]);
    place.sandbox(&["commit", "--session", "last"]).code(0);
    assert_eq!(place.read("made").as_deref(), Some("2\n"));
    let said = place.sandbox(&["commit"]).code(1).out;
    assert!(said.contains("the host changed it meanwhile"), "the other one would take that back: {said}");
}

#[test]
fn a_name_that_a_rule_begins_with_and_the_host_makes_meanwhile_is_not_there() {
    for mode in ["static", "dynamic"] {
        let Some(place) = Place::with_repository() else { return };
        let script = "echo ready; read line; cat .env 2>/dev/null || echo absent; ls -A | grep -c '^.env$'; true";
        let mut running = place.start(&["--mode", mode, "--transaction"], script);
        place.write(".env", "TOKEN=hunter2\n");
        running.tell("\n");
        assert_eq!(running.end(), (0, "absent\n0\n".to_owned()), "{mode}");
        assert_eq!(place.sandbox(&["changes"]).ok(), "No changes wait.\n", "{mode}");
        assert_eq!(place.read(".env").as_deref(), Some("TOKEN=hunter2\n"), "{mode}");
    }
}

#[test]
fn names_that_hosts_obey_by_a_detour_need_their_own_word_too() {
    let Some(place) = Place::with_repository() else { return };
    // A bare repository in the project, and a link under which a configuration is found.
    let script = "mkdir -p objects refs conf .vscode; echo 'ref: x' > HEAD; echo x > objects/x; echo x > conf/config.toml; ln -s conf .cargo; \
                  echo {} > .vscode/tasks.json";
    let ran = place.run(&["--transaction=auto"], &["sh", "-c", script]).code(0);
    assert!(place.exists("HEAD") && place.exists("conf/config.toml"), "{}", ran.err);
    for name in ["objects", "refs", ".cargo", ".vscode"] {
        assert!(!place.exists(name), "{name}");
    }
    place.sandbox(&["commit"]).code(1);
    for name in ["objects", "refs", ".cargo", ".vscode"] {
        assert!(!place.exists(name), "{name}");
    }
    place.sandbox(&["rollback"]).code(0);
    // Behind a link of the host's; a unit with what looks like its log; a directory that something obeyed is in.
    place.host("mkdir ed; ln -s ed .claude").ok();
    let script = "echo {} > ed/settings.json; echo {} > .mcp.json; echo > .mcp.json-wal; mkdir -p s/.git/objects s/.git/refs; echo x > s/.git/HEAD; \
                  echo x > s/.git/config; echo x > s/.git/config-wal; echo x > s/plain";
    let ran = place.run(&["--transaction=auto"], &["sh", "-c", script]).code(0);
    assert!(place.exists("s/plain"), "{}", ran.err);
    for name in ["ed/settings.json", ".mcp.json", "s/.git"] {
        assert!(!place.exists(name), "{name}");
    }
}

#[test]
fn an_index_that_the_host_only_read_again_is_no_conflict() {
    let Some(place) = Place::with_repository() else { return };
    place.run(&["--transaction"], &["sh", "-c", "echo two > second; git add second; git commit -qm second"]).code(0);
    place.host("touch first; git status --short").ok();
    place.sandbox(&["commit"]).code(0);
    assert_eq!(place.host("git log --format=%s; git status --short").ok(), "second\nfirst\n");
    // The control: what the host staged itself stays.
    place.run(&["--transaction"], &["sh", "-c", "echo three > third; git add third; git commit -qm third"]).code(0);
    place.host("echo mine > mine; git add mine").ok();
    place.sandbox(&["commit"]).code(1);
    assert_eq!(place.host("git log --format=%s; git diff --cached --name-only").ok(), "second\nfirst\nmine\n");
}

#[test]
fn auto_leaves_other_overlays_to_wait() {
    let Some(place) = Place::with_repository() else { return };
    place.write("home:data/x", "old");
    let dir = place.path("home:data").display().to_string();
    let script = format!("echo new > {dir}/x; echo a > a");
    place.run(&["--transaction=auto", "--overlay", &dir], &["sh", "-c", &script]).code(0);
    assert!(place.exists("a"));
    assert_eq!(place.read("home:data/x").as_deref(), Some("old"));
}

#[test]
fn what_cannot_be_committed_yet_is_not_thrown_away() {
    let Some(place) = Place::with_repository() else { return };
    place.write("home:.config/cofferdam/config.toml", "limits.file_size = \"80G\"\n");
    place.run(&["--transaction"], &["sh", "-c", "truncate -s 65G huge"]).code(0);
    assert_eq!(states(&place), ["sealed"], "it is too large to commit, and it is the session's work");
    place.sandbox(&["rollback"]).code(0);
}

#[test]
fn the_project_looks_as_on_the_host_but_for_what_is_hidden() {
    let Some(place) = Place::with_repository() else { return };
    // The names of hidden files begin with it, and it is none of them.
    place.write("config", "of the project\n");
    place.host("chmod 755 .").ok();
    let listing = "ls -A | grep -v '^.git$'; stat -c '%a' .; cat config";
    let inside = place.run(&["--transaction"], &["bash", "-c", listing]).ok();
    assert_eq!(inside, place.host(listing).ok());
}
