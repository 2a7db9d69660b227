//! Programs that save by a temporary name, in places that were approved by an answer; and caches that do not exist yet.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::support::{Place, binary, finish};

/// Writes down what it is asked, and approves it for the session.
const HOOK: &str = r#"#!/bin/bash
read -r line
echo "$line" >> "${0%/*}/asked"
id=${line#*\"id\":}
echo "{\"type\":\"cmd.approve\",\"id\":${id%%[,\}]*},\"scope\":\"file\",\"persist\":\"session\"}"
"#;

/// None where /dev/fuse cannot be opened: what an answer made is a mount there.
fn approving(programs: &[&str]) -> Option<Place> {
    if let Err(error) = std::fs::File::options().read(true).write(true).open("/dev/fuse") {
        println!("skipped: /dev/fuse cannot be opened: {error}");
        return None;
    }
    let place = Place::with(programs)?;
    place.write("home:hook", HOOK);
    let hook = place.path("home:hook");
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let unknown = format!("[unknown]\nverdict = \"ask\"\nhook = [\"{}\"]\nper_minute = 10000\n", hook.display());
    place.write("home:.config/cofferdam/config.toml", &format!("mode = \"dynamic\"\n{unknown}"));
    Some(place)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("it is there");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn programs_that_save_by_a_temporary_name_leave_no_litter() {
    let Some(place) = approving(&["git", "python3", "node", "vim"]) else { return };
    for (directory, script, left) in [
        (
            "git",
            "git config -f ~/git/config a.b c && git config -f ~/git/config a.d e && git config -f ~/git/config a.b",
            "config",
        ),
        (
            "vim",
            "vim -u NONE -es -c 'normal ihello' -c 'wq' ~/vim/notes; vim -u NONE -es -c 'normal ohello' -c 'wq' ~/vim/notes; cat ~/vim/notes",
            "notes",
        ),
        (
            "sed",
            "cd ~/sed; echo one > list; sed -i s/one/two/ list.tmp.1234 2>/dev/null; f=$(mktemp ./XXXXXX) && rm $f; cat list",
            "list",
        ),
        (
            "node",
            "node -e \"const fs = require('fs'), f = process.env.HOME + '/node/settings.json'; for (let i = 0; i < 3; i++) { \
             const t = f + '.' + (1000 + i); fs.writeFileSync(t, 'v' + i); fs.fsyncSync(fs.openSync(t, 'r+')); \
             fs.chmodSync(t, 0o600); fs.renameSync(t, f) }\"",
            "settings.json",
        ),
        (
            "python",
            "python3 -c \"import os, tempfile; d = os.path.expanduser('~/python'); p = d + '/state'\nfor i in range(3):\n    \
             fd, t = tempfile.mkstemp(prefix='state.tmp.', dir=d); os.write(fd, b'v%d' % i); os.close(fd)\n    \
             os.replace(t, p) if t.split('.')[-1].isalnum() else os.unlink(t)\"; true",
            "",
        ),
    ] {
        std::fs::create_dir(place.path(&format!("home:{directory}"))).expect("it is ours");
        let ran = place.run(&["--network", "none"], &["bash", "-c", script]);
        assert_eq!(ran.code, 0, "{directory}: {}\n{}", ran.out, ran.err);
        if !left.is_empty() {
            assert_eq!(names(&place.path(&format!("home:{directory}"))), [left], "{directory}: {}", ran.err);
        }
    }
    let asked = place.read("home:asked").expect("the hook wrote it");
    assert!(!asked.contains("\"op\":\"write\""), "what the session made needs no further question: {asked}");
}

#[test]
fn a_cache_that_does_not_exist_yet_just_works() {
    let Some(place) = approving(&[]) else { return };
    let script = "mkdir -p ~/.npm/_cacache ~/.cache/go-build/00 ~/.cargo/registry/index && echo x > ~/.npm/_cacache/a && \
                  echo y > ~/.cache/go-build/00/b && echo z > ~/.cargo/registry/index/c && \
                  cat ~/.npm/_cacache/a ~/.cache/go-build/00/b ~/.cargo/registry/index/c";
    for verdict in ["ask", "deny"] {
        let ran = place.run(&["--network", "none", "--on-unknown", verdict], &["bash", "-c", script]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "x\ny\nz\n"), "{}", ran.err);
        let told = ran.err.lines().find(|line| line.contains("written for this session only")).unwrap_or_default();
        assert!([".npm", ".cache/go-build", ".cargo/registry"].iter().all(|cache| told.contains(cache)), "{}", ran.err);
        assert!(["--preset node", "--preset go", "--preset cargo"].iter().all(|flag| told.contains(flag)), "{told}");
    }
    assert!([".npm", ".cache", ".cargo"].iter().all(|name| !place.exists(&format!("home:{name}"))));
    assert_eq!(place.read("home:asked"), None, "a cache is no question");
    let flags = ["--network", "none", "--preset", "node", "--preset", "go", "--preset", "cargo"];
    place.run(&flags, &["bash", "-c", &format!("{script}; echo lock > ~/.cargo/.package-cache")]).ok();
    for (name, text) in [
        (".npm/_cacache/a", "x\n"),
        (".cache/go-build/00/b", "y\n"),
        (".cargo/registry/index/c", "z\n"),
        (".cargo/.package-cache", "lock\n"),
    ] {
        assert_eq!(place.read(&format!("home:{name}")).as_deref(), Some(text), "{name}");
    }
    assert_eq!(place.read("home:asked"), None, "what a preset gives is no question");
}

/// As rustup leaves a home: the directory is given for reading, and nothing inside can make one there.
#[test]
fn a_cache_below_a_toolchain_that_is_there_just_works() {
    let Some(place) = approving(&[]) else { return };
    place.write("home:.cargo/env", "");
    place.write("home:elsewhere/file", "");
    std::os::unix::fs::symlink(place.path("home:elsewhere"), place.path("home:.bun")).expect("a link");
    let script =
        "mkdir -p ~/.cargo/registry/index && echo z > ~/.cargo/registry/index/c && cat ~/.cargo/registry/index/c";
    for mode in ["dynamic", "static"] {
        let ran = place.run(&["--network", "none", "--mode", mode], &["bash", "-c", script]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "z\n"), "{mode}: {}", ran.err);
        assert!(ran.err.contains("written for this session only") && ran.err.contains("--preset cargo"), "{}", ran.err);
        assert_eq!(names(&place.path("home:.cargo")), ["env", "git", "registry"]);
        assert!(names(&place.path("home:.cargo/registry")).is_empty(), "{mode}: it stays in the session");
        assert_eq!(names(&place.path("home:elsewhere")), ["file"], "{mode}: no link is followed");
    }
    // Where a preset keeps it, it is made as well.
    place.host("rm -r ~/.cargo/registry").ok();
    place.run(&["--network", "none", "--preset", "cargo"], &["bash", "-c", script]).ok();
    assert_eq!(place.read("home:.cargo/registry/index/c").as_deref(), Some("z\n"));
    assert_eq!(place.read("home:asked"), None, "a cache is no question");
}

#[test]
fn a_cache_is_made_where_its_program_has_it_and_for_a_session_that_starts() {
    let Some(place) = approving(&[]) else { return };
    place.write("home:.cargo/env", "");
    place.write("home:moved/env", "");
    place.write("own.toml", "");
    let moved = place.path("home:moved");
    let run = |flags: &[&str]| {
        let mut command = place.command(binary());
        command.env("CARGO_HOME", &moved).arg("run").args(["--network", "none"]).args(flags);
        finish(command.args(["--", "bash", "-c", "echo z > $CARGO_HOME/registry/c && cat $CARGO_HOME/registry/c"]), b"")
    };
    // What is refused, or has a rule of the operator's about the cache, makes nothing.
    run(&["--policy", "own.toml"]).code(126).says(&["own.toml"]);
    assert_eq!(names(&moved), ["env"]);
    place.write("home:denies.toml", "[files]\ndeny = [\"~/moved/registry\"]\n");
    let denied = run(&["--policy", &place.path("home:denies.toml").display().to_string()]);
    assert_ne!(denied.code, 0, "{}", denied.out);
    assert_eq!(names(&moved), ["env", "git"], "{}", denied.err);
    assert_eq!(run(&[]).ok(), "z\n");
    assert_eq!(names(&moved), ["env", "git", "registry"]);
    assert_eq!(names(&place.path("home:.cargo")), ["env"]);
}

/// What looks for settings around a project lists the directories above it.
#[test]
fn the_home_lists_what_the_session_knows_without_a_question() {
    let Some(place) = approving(&[]) else { return };
    place.write("home:private/notes", "x");
    place.write("home:.gitconfig", "");
    for verdict in ["ask", "deny"] {
        let ran = place.run(&["--network", "none", "--on-unknown", verdict], &["bash", "-c", "ls -a ~; ls ~/private"]);
        let (listed, after) = (ran.out.lines().collect::<Vec<_>>(), ran.out.contains("notes"));
        assert!(listed.contains(&".gitconfig") && !listed.contains(&"private"), "{verdict}: {}{}", ran.out, ran.err);
        assert_eq!(after, verdict == "ask", "the control: another directory is asked about: {}", ran.err);
    }
    let asked = place.read("home:asked").expect("the hook wrote it");
    assert_eq!(asked.lines().count(), 1, "{asked}");
}

#[test]
fn what_goes_with_the_session_is_told_with_what_keeps_it() {
    let Some(place) = approving(&[]) else { return };
    place.write("home:.npm/old", "old");
    place.write("home:.cache/pre-commit/old", "old");
    let only = "written for this session only";
    let read = place.run(&["--network", "none"], &["sh", "-c", "cat ~/.npm/old"]);
    assert!(!read.err.contains(only), "{}", read.err);
    let script = "echo new > ~/.npm/new; echo new > ~/.cache/pre-commit/new";
    let wrote = place.run(&["--network", "none"], &["sh", "-c", script]);
    let without = place.path("home:.cache/pre-commit");
    wrote.code(0).says(&[only, "/.npm", "--preset node", &format!("--rw {}", without.display())]);
    let kept = place.run(&["--network", "none", "--preset", "node"], &["sh", "-c", "echo new > ~/.npm/new"]);
    assert!(!kept.err.contains(only), "{}", kept.err);
    assert_eq!(place.read("home:.npm/new").as_deref(), Some("new\n"));
}

/// The working directory is from before the answer: names are looked up beside the mount of it, where one was missing a moment ago.
#[test]
fn a_second_save_after_an_answer_for_the_directory_keeps_the_first() {
    let Some(place) = approving(&["git"]) else { return };
    place.write("home:hook", &HOOK.replace("file", "dir"));
    place.write("home:saves/other", "");
    let script =
        "cd ~/saves && git config -f settings a.b c && git config -f settings a.d e; git config -f settings -l";
    place.run(&["--network", "none"], &["bash", "-c", script]).code(0);
    let saved = place.read("home:saves/settings").expect("it was saved");
    assert!(saved.contains("b = c") && saved.contains("d = e"), "{saved}");
    assert_eq!(names(&place.path("home:saves")), ["other", "settings"]);
}

#[test]
fn a_directory_that_nothing_was_opened_in_is_told() {
    let Some(place) = approving(&[]) else { return };
    let ran = place.run(&["--network", "none"], &["sh", "-c", "mkdir ~/left ~/gone && rmdir ~/gone; false"]);
    ran.code(1).says(&["could not make the directory ", "/left"]);
    assert!(!place.exists("home:left"));
    // Where no operator can be asked it is refused at once.
    let ran = place.run(&["--network", "none", "--on-unknown", "deny"], &["sh", "-c", "mkdir ~/left || echo refused"]);
    assert_eq!(ran.ok(), "refused\n");
}
