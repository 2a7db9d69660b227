//! Hidden names of the project beside git and programs that look for them: nothing is emptied, and nothing is shown that
//! is not readable elsewhere inside anyway.

use crate::support::{Place, which};

const MODES: [&str; 2] = ["static", "dynamic"];

/// Names that the shipped list leaves out of `.env*`.
const SAMPLES: [&str; 6] =
    [".env.example", ".env.sample", ".env.local.template", ".env.dist", ".env.test", ".dev.vars.example"];

fn inside(place: &Place, mode: &str, script: &str) -> crate::support::Ran {
    place.run(&["--mode", mode], &["bash", "-c", script])
}

#[test]
fn samples_are_files_like_any_other_and_commits_keep_them() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        for name in SAMPLES {
            place.write(name, "KEY=fill-me-in\n");
        }
        place.write(".gitignore", ".env\n");
        place.write(".env", "KEY=hunter2\n");
        place.host("git add -A && git commit -qm samples").ok();
        assert_eq!(inside(&place, mode, "git status --short").ok(), "", "{mode}");
        let commit = "echo new > f; echo more >> .env.example; git add -A && git commit -qm agent && git show --stat";
        let shown = inside(&place, mode, commit).ok();
        assert!(shown.contains("2 files changed, 2 insertions(+)"), "{mode}: {shown}");
        for name in SAMPLES {
            let shown = place.host(&format!("git show HEAD:{name}")).ok();
            assert!(shown.starts_with("KEY=fill-me-in\n"), "{mode}: {name}: {shown}");
        }
        let ran = inside(&place, mode, "cat .env .env.example");
        assert!(ran.out.contains("fill-me-in") && !ran.out.contains("hunter2"), "{mode}: {}", ran.out);
        for name in [".env.example", ".env.test", ".env.local.template"] {
            let why = place.sandbox(&["why", "--mode", mode, name]).ok();
            assert!(why.contains("can be read and written"), "{mode}: {why}");
        }
        let why = place.sandbox(&["why", "--mode", mode, ".env.test.local"]).ok();
        assert!(why.contains("is hidden"), "{mode}: {why}");
    }
}

#[test]
fn a_hidden_file_is_no_file_cannot_be_opened_and_carries_nothing() {
    for mode in MODES {
        let Some(place) = Place::with(&["python3"]) else { return };
        place.write(".env", "KEY=hunter2\n");
        let script = "
            stat -c %F:%a .env; test -f .env && echo file; test -r .env && echo readable
            cat .env; echo x > .env; chmod 666 .env; rm -f .env; mv .env other; ln .env link; truncate -s 0 .env
            python3 - <<'P'
import socket
for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
    for act in 'connect', 'bind':
        try: getattr(socket.socket(socket.AF_UNIX, kind), act)('.env'); print(act, kind)
        except OSError as error: pass
P
            ls -A";
        let ran = inside(&place, mode, script);
        assert!(ran.out.starts_with("socket:0\n"), "{mode}: {}{}", ran.out, ran.err);
        let said = ["file", "readable", "connect", "bind", "other", "link"];
        let said = ran.out.lines().skip(1).find(|line| said.iter().any(|word| line.starts_with(word)));
        assert_eq!(said, None, "{mode}: {}", ran.out);
        assert_eq!(place.read(".env").as_deref(), Some("KEY=hunter2\n"), "{mode}");
    }
}

#[test]
fn a_tracked_hidden_file_that_differs_stops_git_add_and_is_never_emptied() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        place.write(".env", "KEY=committed\n");
        place.host("git add -f .env && git commit -qm tracked").ok();
        place.write(".env", "KEY=hunter2\n");
        let ran = inside(&place, mode, "echo new > f; git add -A && git commit -qm agent");
        assert_ne!(ran.code, 0, "{mode}: {}{}", ran.out, ran.err);
        ran.says(&["sandbox: .env is hidden and differs", "git update-index --skip-worktree -- .env"]);
        assert_eq!(place.host("git show HEAD:.env").ok(), "KEY=committed\n", "{mode}");
        assert_eq!(place.host("git ls-files .env").ok(), ".env\n", "{mode}");
        // What fits goes on: the other files can be committed by name.
        inside(&place, mode, "git add f && git commit -qm agent").ok();
        assert_eq!(place.host("git show HEAD:.env && git show HEAD:f").ok(), "KEY=committed\nnew\n", "{mode}");
        assert_eq!(place.read(".env").as_deref(), Some("KEY=hunter2\n"), "{mode}");
    }
}

#[test]
fn copies_and_archives_go_on_past_a_hidden_file() {
    if which("tar").is_none() {
        println!("skipped: `tar` is not installed");
        return;
    }
    for mode in MODES {
        let place = Place::new();
        place.write("src/main", "text\n");
        place.write("src/after", "text\n");
        place.write(".env", "KEY=hunter2\n");
        let script =
            "mkdir copy && cp -r src .env copy && tar cf all.tar src .env && tar tf all.tar | sort && ls -A copy/src
            rm -rf copy all.tar";
        let out = inside(&place, mode, script).ok();
        assert_eq!(out, "src/\nsrc/after\nsrc/main\nafter\nmain\n", "{mode}");
    }
}

#[test]
fn a_hidden_file_that_git_has_word_for_word_is_shown() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        place.write(".env", "KEY=default\n");
        place.write(".env.local", "KEY=hunter2\n");
        place.write(".gitignore", ".env.local\n");
        place.host("git add -f .gitignore .env && git commit -qm tracked").ok();
        let ran = inside(&place, mode, "cat .env .env.local; git status --short");
        assert_eq!(ran.out, "KEY=default\n", "{mode}: {}", ran.err);
        let why = place.sandbox(&["why", "--mode", mode, ".env"]).ok();
        assert!(why.contains("can be read and written"), "{mode}: {why}");
        // A branch on which it is another: git works as outside.
        place
            .host("git checkout -qb other && echo KEY=other > .env && git commit -qam other && git checkout -q main")
            .ok();
        inside(
            &place,
            mode,
            "git checkout -q other && git merge -q main && echo x > x && git add x && git commit -qm x",
        )
        .ok();
        assert_eq!(place.host("git status --short && git show HEAD:.env && cat .env").ok(), "KEY=other\nKEY=other\n");
        // A rule of the user's own is his word: git or not.
        let path = place.path(".env").display().to_string();
        let ran = place.run(&["--mode", mode, "--blacklist", &path], &["cat", ".env"]);
        assert!(ran.code != 0 && ran.out.is_empty(), "{mode}: {}", ran.out);
        // Packed, and in a linked worktree.
        place.host("git gc -q && git worktree add -q ../linked main").ok();
        let linked = place.home.join("linked");
        let mut command = place.command(crate::support::binary());
        command.args(["run", "--mode", mode, "--", "cat", ".env"]).current_dir(linked);
        assert_eq!(crate::support::finish(&mut command, b"").ok(), "KEY=default\n", "{mode}");
    }
}

/// Corpus E26: a session that knows what a file reads as (a copy of the example) has git track it, and the next one is shown
/// it. What the user writes into it then may have been read: that is said.
#[test]
fn e26_a_file_that_changes_while_it_is_shown_because_git_has_it_is_told() {
    const TOLD: &str = "was shown because git has it word for word, and changed while the session ran";
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        place.write(".env.example", "KEY=changeme\n");
        place.write(".gitignore", ".env\n");
        place.host("git add -A && git commit -qm 1 && cp .env.example .env").ok();
        let track = "git update-index --add --cacheinfo 100644,$(git hash-object -w .env.example),.env";
        inside(&place, mode, track).ok();
        let quiet = inside(&place, mode, "cat .env");
        assert!(!quiet.err.contains("was shown"), "{mode}: {}", quiet.err);
        assert_eq!(quiet.ok(), "KEY=changeme\n", "{mode}");
        for (count, given) in [(1, &[][..]), (2, &["--ro", "."])] {
            let mut command = place.command(crate::support::binary());
            command.args(["run", "--mode", mode]).args(given).args([
                "--",
                "bash",
                "-c",
                "echo ready; read line; cat .env",
            ]);
            let mut session = place.begin_session(command);
            place.write(".env", "KEY=hunter2\n");
            session.tell("\n");
            assert_eq!(session.end(), (0, "KEY=hunter2\n".to_owned()), "{mode} {given:?}: nothing was tried");
            let log = place.sandbox(&["audit", "--format", "json"]).ok();
            assert_eq!(log.matches(TOLD).count(), count, "{mode} {given:?}: {log}");
            place.host("cp .env.example .env").ok();
        }
    }
}

/// Corpus E26: what a session does to the index and the object store opens nothing to the next one.
#[test]
fn e26_a_session_that_puts_a_hidden_file_into_the_index_does_not_show_it_to_the_next() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        place.write(".env", "KEY=hunter2\n");
        let name = place.host("git hash-object .env").ok().trim().to_owned();
        // The best that a session could do: it was told the right name of the object.
        let forge = format!(
            "git update-index --add --cacheinfo 100644,{name},.env
             echo KEY=guess > guess; forged=$(git hash-object -w guess)
             mkdir -p .git/objects/{0}; cp .git/objects/${{forged:0:2}}/${{forged:2}} .git/objects/{0}/{1}
             git add -f .env; cat .env",
            &name[..2],
            &name[2..],
        );
        let forged = inside(&place, mode, &forge);
        assert!(!forged.out.contains("hunter2"), "{mode}: {}", forged.out);
        assert_eq!(place.host("git ls-files -s .env").ok(), format!("100644 {name} 0\t.env\n"), "{mode}");
        let ran = inside(&place, mode, "cat .env; git cat-file blob :.env; git diff; git show :.env");
        assert!(!ran.out.contains("hunter2") && ran.err.contains(".env: Permission denied"), "{mode}: {ran:?}");
        // Without any object.
        place.host(&format!("rm -f .git/objects/{}/{}", &name[..2], &name[2..])).ok();
        let ran = inside(&place, mode, "cat .env");
        assert!(ran.code != 0 && ran.out.is_empty(), "{mode}: {ran:?}");
        // The control: the user has given it to git, so every session has it anyway.
        place.host("git add -f .env").ok();
        assert_eq!(inside(&place, mode, "cat .env").ok(), "KEY=hunter2\n", "{mode}");
    }
}

#[test]
fn a_protected_file_that_git_could_not_write_is_named_with_the_command_that_repairs_it() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        place.write(".vscode/two words.json", "{}\n");
        let make =
            "git add -A && git commit -qm one && git checkout -qb other && echo '{ }' > .vscode/'two words.json' &&
            git commit -qam two && git checkout -q main";
        place.host(make).ok();
        let ran = inside(&place, mode, "git checkout -q other; git status --short");
        assert!(ran.out.contains(" M \".vscode/two words.json\""), "{mode}: {ran:?}");
        let line = "sandbox: .vscode/two words.json is protected";
        let line = ran.err.lines().find(|told| told.starts_with(line)).unwrap_or_else(|| panic!("{mode}: {ran:?}"));
        let (_, command) = line.split_once("outside: ").expect("it names a command");
        place.host(command).ok();
        assert_eq!(place.host("git status --short && git branch --show-current").ok(), "other\n", "{mode}: {command}");
        // Nothing to say where git had nothing to do with it, however the command ends.
        let failed = inside(&place, mode, "exit 3").code(3);
        assert!(!failed.err.contains(".vscode"), "{mode}: {}", failed.err);
        let quiet = inside(&place, mode, "echo x > new; git add new && git commit -qm new");
        assert!(!quiet.err.contains(".vscode"), "{mode}: {}", quiet.err);
    }
}

/// A session that could lead a hidden name elsewhere would have the next session read what it led to before.
#[test]
fn no_link_on_the_way_to_a_hidden_name_can_be_replaced() {
    for mode in MODES {
        let Some(place) = Place::with(&[]) else { return };
        let made = "mkdir -p real/dev sub deep; echo hunter2 > real/dev/values; echo hunter2 > deep/values
            ln -s cfg/dev/values .env; ln -s real cfg; ln -s ../deep/values sub/.env.local; ln -s real/dev/values .ENV.prod";
        place.host(made).ok();
        let attempts = [
            "ln -sfn other .env",
            "rm .env",
            "mv .env x",
            "ln -sfn other cfg",
            "mv cfg x",
            "rm sub/.env.local",
            "mv sub x",
            "rm .ENV.prod",
            "mv real x",
            "mv deep/values x",
            "cat .env",
            "cat sub/.env.local",
            "cat .ENV.prod",
            "cat real/dev/values",
            "cat deep/values",
        ];
        for attempt in attempts {
            let ran = inside(&place, mode, attempt);
            assert!(ran.code != 0 && !ran.out.contains("hunter2"), "{mode}: {attempt}: {} {}", ran.out, ran.err);
        }
        assert_eq!(inside(&place, mode, "echo x > new && readlink cfg").ok(), "real\n", "{mode}");
        place.host("ln -sfn other .env && rm cfg sub/.env.local .ENV.prod && cat real/dev/values deep/values").ok();
    }
}

/// A session that closes a directory would keep the next one from looking into it, and then open it again.
#[test]
fn what_a_directory_holds_that_was_closed_stays_hidden_and_protected() {
    if rustix::process::getuid().is_root() {
        println!("skipped: root can look into every directory");
        return;
    }
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        place.host("git init -q --bare .git/modules/sub").ok();
        for path in ["packages/api/.env", "config/master.key", "sec/x", ".cargo/config.toml", "linked/values"] {
            place.write(path, "hunter2\n");
        }
        place.host("ln -s linked/values .env").ok();
        let denied = format!("--blacklist={}", place.path("sec/x").display());
        let attempts = [
            ("packages/api", "cat packages/api/.env"),
            ("packages/api", "cat packages/api/../api/.env"),
            ("packages", "chmod 755 packages/*; cat packages/api/.env"),
            ("config", "cat config/master.key"),
            ("sec", "cat sec/x"),
            ("linked", "cat .env; cat linked/values"),
            (".cargo", "echo x > .cargo/config.toml"),
            (".git/modules", "echo x >> .git/modules/sub/config"),
            (".git/modules/sub", "echo x >> .git/modules/sub/config"),
        ];
        for closed in ["000", "300", "600"] {
            for (directory, attempt) in attempts {
                place.host(&format!("chmod {closed} {directory}")).ok();
                let script = format!("chmod 755 {directory}; {attempt}");
                let ran = place.run(&["--mode", mode, &denied], &["bash", "-c", &script]);
                place.host(&format!("chmod 755 {directory}")).ok();
                let what = format!("{mode}: {closed} {directory}: {attempt}: {} {}", ran.out, ran.err);
                let is_refused = ran.code != 0 && (ran.code != 125 || directory.starts_with(".git"));
                assert!(is_refused && !ran.out.contains("hunter2"), "{what}");
            }
        }
        place.host("cat packages/api/.env config/master.key sec/x .env && echo x > .cargo/config.toml").ok();
    }
}

/// A tree may be given by a link: what counts is where it really is.
#[test]
fn what_is_hidden_in_a_tree_that_is_given_by_another_name_stays_hidden() {
    for mode in MODES {
        let place = Place::new();
        place.write("home:real/conf/x", "hunter2\n");
        place.write("home:real/sec/x", "hunter2\n");
        place.host("cd; ln -s real dots; ln -s conf real/cfg").ok();
        let config = "[files]\nwrite = [\"~/dots\"]\ndeny = [\"~/real/cfg/x\", \"~/real/sec/x\"]\n";
        place.write("home:.config/cofferdam/config.toml", config);
        inside(&place, mode, "echo x > ~/real/made").ok();
        for attempt in ["rm ~/real/cfg", "mv ~/real/cfg ~/real/other", "ln -sfn other ~/real/cfg"] {
            let ran = inside(&place, mode, attempt);
            assert_ne!(ran.code, 0, "{mode}: {attempt}: {}", ran.err);
        }
        if rustix::process::getuid().is_root() {
            println!("skipped: root can look into every directory");
            continue;
        }
        // As a session can leave it. (One that lives on after this is ended: its keeper cannot look after the name any more.)
        place.host("chmod 000 ~/real/sec").ok();
        let ran = inside(&place, mode, "chmod 755 ~/real/sec; cat ~/real/sec/x");
        assert!(ran.code != 0 && !ran.out.contains("hunter2"), "{mode}: {} {}", ran.out, ran.err);
    }
}

/// Corpus B: `export KUBECONFIG=$PWD/kubeconfig` is a common line of direnv.
#[test]
fn secrets_that_a_variable_moves_into_the_project_are_hidden_or_masked() {
    const HIDDEN: [&str; 8] = [
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_CONFIG_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "KUBECONFIG",
        "NETRC",
        "PGPASSFILE",
        "SOPS_AGE_KEY_FILE",
        "AZURE_CONFIG_DIR",
    ];
    const MASKED: [&str; 3] = ["PIP_CONFIG_FILE", "UV_CONFIG_FILE", "GIT_CONFIG_GLOBAL"];
    let place = Place::new();
    place.write("moved", "kept = 1\ntoken = hunter2\n");
    let run = |mode: &str, variable: &str, value: &std::path::Path| {
        let mut command = place.command(crate::support::binary());
        command.env(variable, value);
        let script = "cat moved; echo more >> moved; echo x > /dev/null && echo null";
        crate::support::finish(command.args(["run", "--mode", mode, "--", "sh", "-c", script]), b"")
    };
    for mode in MODES {
        for variable in HIDDEN.into_iter().chain(MASKED) {
            let ran = run(mode, variable, &place.path("moved"));
            let shown = if MASKED.contains(&variable) { "kept = 1\ntoken = ***\nnull\n" } else { "null\n" };
            assert_eq!(ran.out, shown, "{mode} {variable}: {}", ran.err);
            // Many set them to this, to have none.
            let control = run(mode, variable, std::path::Path::new("/dev/null"));
            assert!(control.out.starts_with("kept = 1\ntoken = hunter2\n"), "{mode} {variable}: {}", control.out);
            assert!(control.out.ends_with("null\n"), "{mode} {variable}: {}", control.err);
            place.write("moved", "kept = 1\ntoken = hunter2\n");
        }
    }
}
