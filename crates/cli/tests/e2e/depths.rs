//! Names that are hidden in every directory of the project, and what the search for them leaves unseen.

use std::time::{Duration, Instant, SystemTime};

use crate::support::Place;

const MODES: [&str; 2] = ["static", "dynamic"];

#[test]
fn secrets_of_subdirectories_cannot_be_opened() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        let hidden = [
            ".env",
            "packages/api/.env",
            "packages/api/.env.production",
            "packages/api/.streamlit/secrets.toml",
            "infra/prod.tfvars",
            "infra/prod.tfvars.json",
            "rails/config/master.key",
            "rails/config/credentials/production.key",
        ];
        let shown = ["packages/api/.env.example", "packages/api/node_modules/dotenv/.env", "rails/master.key"];
        for name in hidden {
            place.write(name, "hunter2\n");
        }
        for name in shown {
            place.write(name, "shown\n");
        }
        let find = "find . -name .git -prune -o -type f -print0 | xargs -0 cat 2>/dev/null";
        let from = |script: &str| place.run(&["--mode", mode], &["bash", "-c", script]).out;
        let seen = from(&format!("{find}; cat {}", hidden.join(" ")));
        assert!(!seen.contains("hunter2"), "{mode}: {seen}");
        assert_eq!(seen.matches("shown").count(), shown.len(), "{mode}: {seen}");
        let mut command = place.command(crate::support::binary());
        command.current_dir(place.path("packages/api"));
        command.args([
            "run",
            "--mode",
            mode,
            "--",
            "bash",
            "-c",
            "cat .env .env.* ../../infra/*; mv .env away; ln .env b",
        ]);
        let output = command.output().expect("sandbox starts");
        let seen = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!seen.contains("hunter2") && seen.contains("shown"), "{mode}: {seen}");
        assert_eq!(place.read("packages/api/.env").as_deref(), Some("hunter2\n"), "{mode}");
        let written = from("echo x > packages/api/new && mkdir packages/api/made && cat packages/api/new");
        assert_eq!(written, "x\n", "{mode}: what lies beside can be written");
        for (path, word) in [
            ("packages/api/.env.production", "is hidden"),
            ("packages/web/.env", "is hidden"),
            ("packages/api/.env.example", "can be read and written"),
            ("packages/api/node_modules/dotenv/.env", "can be read and written"),
        ] {
            let why = place.sandbox(&["why", "--mode", mode, path]).ok();
            assert!(why.contains(word), "{mode}: {path}: {why}");
        }
    }
}

#[test]
fn what_git_has_word_for_word_is_shown_in_a_project_that_is_given_for_reading() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        for name in [".npmrc", ".netrc", ".env"] {
            place.write(name, "shown\n");
        }
        place.host("git add -f . && git commit -qm all").ok();
        let script = "cat .npmrc .netrc .env; git status --short";
        let seen = place.run(&["--mode", mode, "--ro", "."], &["bash", "-c", script]).out;
        assert_eq!(seen, "shown\nshown\nshown\n", "{mode}");
    }
}

#[test]
fn a_file_of_a_subdirectory_that_git_has_word_for_word_is_shown() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        place.write("packages/api/.env", "PORT=1\n");
        place.write("packages/web/.env", "PORT=2\n");
        place.host("git add -f packages && git commit -qm env").ok();
        place.write("packages/web/.env", "KEY=hunter2\n");
        let ran = place.run(&["--mode", mode], &["bash", "-c", "cat packages/*/.env"]);
        assert!(ran.out == "PORT=1\n", "{mode}: {} {}", ran.out, ran.err);
        assert!(ran.err.contains("git update-index --skip-worktree"), "{mode}: {}", ran.err);
    }
}

#[test]
fn a_hidden_directory_that_is_given_shows_no_hidden_name_in_it() {
    for (mode, access) in [("static", "read"), ("static", "write"), ("dynamic", "read"), ("dynamic", "write")] {
        let place = Place::new();
        for name in [".env.d/.env", ".env.d/deep/id_rsa", ".env.e/.env"] {
            place.write(name, "hunter2\n");
        }
        place.write(".env.d/list", "shown\n");
        place.write("home:.config/cofferdam/config.toml", &format!("[files]\n{access} = [\"./.env.d\"]\n"));
        let script = "cat .env.d/list .env.d/.env .env.d/deep/id_rsa .env.e/.env; mv .env.d/.env x; cat x";
        let ran = place.run(&["--mode", mode], &["bash", "-c", script]);
        assert_eq!(ran.out, "shown\n", "{mode}, {access}: {}", ran.err);
        let why = place.sandbox(&["why", "--mode", mode, ".env.d/.env"]).ok();
        assert!(why.contains("is hidden"), "{mode}, {access}: {why}");
    }
}

#[test]
fn a_project_can_hide_a_name_in_every_directory_and_a_user_can_show_one() {
    let place = Place::new();
    place.write("a/b/notes.key", "hunter2\n");
    place.write("packages/api/.env", "PORT=1\n");
    place.write(
        "home:.config/cofferdam/config.toml",
        "[files]\ndeny = [\"./**/*.key\"]\nread = [\"./packages/api/.env\"]\n",
    );
    let ran = place.inside("cat a/b/notes.key packages/api/.env");
    assert_eq!(ran.out, "PORT=1\n", "{}", ran.err);
    let why = place.sandbox(&["why", "c/x.key"]).ok();
    assert!(why.contains("is hidden") && why.contains("/**/*.key"), "{why}");
    place.write("home:.config/cofferdam/config.toml", "[files]\nread = [\"./**/.env\"]\n");
    place.inside("true").code(125).says(&["a path without `**`"]);
}

#[test]
fn what_the_search_left_unseen_is_said_and_too_many_names_are_refused() {
    let place = Place::new();
    let deep: String = (0..17).map(|_| "d/").collect();
    place.write(&format!("{deep}.env"), "hunter2\n");
    for (command, out) in [(&["explain"][..], true), (&["run", "--", "true"][..], false)] {
        let ran = place.sandbox(command);
        let said = if out { &ran.out } else { &ran.err };
        assert!(said.contains("1 not searched (too deep): "), "{command:?}: {said}");
    }
    let why = place.sandbox(&["why", &format!("{deep}.env")]).ok();
    assert!(why.contains("was not searched for names to hide"), "{why}");
    // Past the directories that are named, too; and not of what was found.
    let unseen = Place::new();
    unseen.write("a/.env", "x");
    for number in 0..12 {
        unseen.write(&format!("{number}/{deep}.env"), "hunter2\n");
    }
    for number in 0..12 {
        let why = unseen.sandbox(&["why", &format!("{number}/{deep}.env")]).ok();
        assert!(why.contains("names to hide") && why.contains("not covered"), "{number}: {why}");
    }
    for path in ["a/.env", "a/other"] {
        let why = unseen.sandbox(&["why", path]).ok();
        assert!(!why.contains("not covered"), "{path}: {why}");
    }
    let many = Place::new();
    for number in 0..1000 {
        many.write(&format!("packages/.env.{number}"), "x");
    }
    many.inside("true").code(125).says(&["packages` has more names to hide", ".env.d"]);
    many.host("mkdir packages/.env.d && mv packages/.env.[0-9]* packages/.env.d").ok();
    assert_eq!(many.inside("ls packages/.env.d; echo ran").ok(), "ran\n");
}

/// The memory lies outside of a session's reach, and saves no name: a new one is found.
#[test]
fn a_large_project_is_remembered_and_what_is_new_in_it_is_hidden() {
    let place = Place::new();
    // Before the first, because a memory is written once enough of the directories are old enough.
    let changed = SystemTime::now();
    for number in 0..400 {
        place.write(&format!("packages/{}/{number}/file", number % 20), "x");
    }
    let memory = || std::fs::read_dir(place.path("home:.local/state/cofferdam/searched")).map_or(0, Iterator::count);
    let begin = Instant::now();
    while memory() == 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "nothing was remembered");
        place.inside("true").ok();
    }
    assert!(changed.elapsed().expect("a clock") >= Duration::from_secs(2), "what changed just now is not remembered");
    place.write("packages/7/7/.env", "hunter2\n");
    place.write("packages/new/.env", "hunter2\n");
    let ran = place.inside("cat packages/7/7/.env packages/new/.env; ls ~/.local/state/cofferdam");
    assert!(!ran.out.contains("hunter2") && !ran.out.contains("searched"), "{} {}", ran.out, ran.err);
}

/// Whatever a session makes, the next one finds what this one hid.
#[test]
fn a_session_cannot_use_up_the_search_of_the_next() {
    let Some(place) = Place::with(&["python3"]) else { return };
    place.write("zz/deep/.env", "KEY=hunter2\n");
    let fill = "import os\nos.mkdir('aa')\nfor n in range(55000): os.close(os.open(f'aa/{n}', os.O_CREAT))";
    place.run(&[], &["python3", "-c", fill]).ok();
    for mode in MODES {
        let ran = place.run(&["--mode", mode], &["cat", "zz/deep/.env"]);
        assert!(ran.code != 0 && ran.out.is_empty(), "{mode}: {} {}", ran.out, ran.err);
    }
    // Without what is remembered the bound comes first: this is what it is for.
    place.host("rm -r ../.local/state/cofferdam/searched").ok();
    let explained = place.sandbox(&["explain"]).ok();
    assert!(explained.contains("not searched") && explained.contains("/zz"), "{explained}");
}

#[test]
fn names_behind_links_to_directories_are_hidden() {
    for mode in MODES {
        let place = Place::new();
        for path in ["conf2/master.key", "node_modules/.app/.env", "node_modules/.app/deep/.env"] {
            place.write(path, "hunter2\n");
        }
        place.host("ln -s conf2 config; ln -s node_modules/.app app").ok();
        for path in ["config/master.key", "conf2/master.key", "app/.env", "app/deep/.env", "node_modules/.app/.env"] {
            let ran = place.run(&["--mode", mode], &["cat", path]);
            assert!(ran.code == 1 && ran.out.is_empty(), "{mode}: {path}: {} {}", ran.out, ran.err);
            place.host(&format!("cat {path}")).ok();
        }
        for link in ["config", "app"] {
            assert_ne!(place.run(&["--mode", mode], &["rm", link]).code, 0, "{mode}: {link}");
        }
    }
}

#[test]
fn names_in_a_tmpfs_that_is_mounted_in_the_project_are_hidden() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root can mount");
        return;
    }
    let place = Place::new();
    place.host("mkdir -p packages/mem && mount -t tmpfs none packages/mem && mkdir packages/mem/api").ok();
    place.write("packages/mem/api/.env", "hunter2\n");
    let ran = MODES.map(|mode| place.run(&["--mode", mode], &["cat", "packages/mem/api/.env"]));
    place.host("cat packages/mem/api/.env && umount packages/mem").ok();
    for ran in ran {
        assert!(ran.code == 1 && ran.out.is_empty(), "{} {}", ran.out, ran.err);
    }
}
