//! Which files can be read and written, by default and with each flag.

use crate::support::{Place, binary, finish, is_root};

#[test]
fn only_the_project_is_writable() {
    let place = Place::new();
    place.write("home:other/file", "mine");
    place.inside("echo x > inside && mkdir -p deep/er && echo y > deep/er/file").ok();
    assert_eq!(place.read("deep/er/file").as_deref(), Some("y\n"));
    for attempt in [
        "echo x > ~/new",
        "echo x > ~/other/file",
        "rm ~/other/file",
        "mv ~/other ~/moved",
        "echo x > /etc/new",
        "chmod 777 ~/other",
    ] {
        assert_ne!(place.inside(attempt).code, 0, "`{attempt}` succeeded");
    }
    assert_eq!(place.read("home:other/file").as_deref(), Some("mine"));
}

#[test]
fn rw_makes_a_directory_and_a_single_file_writable() {
    let place = Place::new();
    place.write("home:data/file", "old");
    place.write("home:single", "old");
    let (dir, file) = (place.path("home:data").display().to_string(), place.path("home:single").display().to_string());
    place
        .run(
            &["--rw", &dir, "--rw", &file],
            &["bash", "-c", "echo new > ~/data/file; echo more > ~/data/more; echo new > ~/single"],
        )
        .ok();
    assert_eq!(place.read("home:data/file").as_deref(), Some("new\n"));
    assert_eq!(place.read("home:data/more").as_deref(), Some("more\n"));
    assert_eq!(place.read("home:single").as_deref(), Some("new\n"));
}

#[test]
fn rw_of_a_path_that_does_not_exist_is_an_error_with_a_remedy() {
    let place = Place::new();
    place.run(&["--rw", "nowhere/at/all"], &["true"]).code(125).says(&["nowhere/at/all", "hint:", "mkdir -p"]);
}

#[test]
fn ro_makes_part_of_the_project_read_only_and_shows_what_is_hidden() {
    let place = Place::new();
    place.write("kept/file", "old");
    place.write("home:.ssh/known_hosts", "a host");
    place.run(&["--ro", "kept"], &["bash", "-c", "echo new > kept/file"]).code(1).says(&["is read-only", "--ro"]);
    assert_eq!(place.read("kept/file").as_deref(), Some("old"));
    place.inside("cat ~/.ssh/known_hosts").code(1);
    let path = place.path("home:.ssh/known_hosts").display().to_string();
    assert_eq!(place.run(&["--ro", &path], &["bash", "-c", "cat ~/.ssh/known_hosts"]).ok(), "a host");
}

#[test]
fn blacklist_hides_directories_and_files() {
    let place = Place::new();
    place.write("home:clients/acme", "confidential");
    place.write("fixtures/private", "confidential");
    let (clients, file) = (place.path("home:clients").display().to_string(), "fixtures/private");
    let ran = place.run(
        &["--mode", "static", "--blacklist", &clients, "--blacklist", file],
        &["bash", "-c", "ls -A ~/clients; cat ~/clients/acme; cat fixtures/private"],
    );
    assert_eq!(ran.out, "");
    assert_ne!(ran.code, 0);
    let shown = place.run(&["--mode", "static"], &["bash", "-c", "cat ~/clients/acme"]).ok();
    assert_eq!(shown, "confidential", "the control: without the flag it is readable");
}

#[test]
fn what_is_denied_stays_hidden_beside_what_is_protected() {
    let place = Place::new();
    place.write("mixed/a-denied", "confidential");
    place.write("mixed/b-protected", "kept");
    let policy = "[files]\ndeny = [\"./mixed/a-denied\"]\nprotect = [\"./mixed/b-protected\"]\n";
    place.write("home:.config/cofferdam/config.toml", policy);
    for mode in ["static", "dynamic"] {
        let flags = ["--mode", mode];
        let ran = place.run(&flags, &["bash", "-c", "cat mixed/a-denied; cat mixed/b-protected; echo x > mixed/new"]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "kept"), "{mode}");
    }
    assert!(place.exists("mixed/new"));
}

#[test]
fn overlay_leaves_the_host_unchanged_and_its_changes_can_be_committed() {
    let place = Place::new();
    place.write("home:data/kept", "old");
    place.write("home:data/gone", "old");
    let dir = place.path("home:data").display().to_string();
    let script = "echo new > ~/data/kept; echo more > ~/data/more; rm ~/data/gone; ls ~/data; cat ~/data/kept";
    let ran = place.run(&["--overlay", &dir], &["bash", "-c", script]).code(0);
    assert_eq!(ran.out, "kept\nmore\nnew\n");
    assert_eq!(place.read("home:data/kept").as_deref(), Some("old"));
    assert!(place.exists("home:data/gone") && !place.exists("home:data/more"));
    let line = ran.err.lines().find(|line| line.contains("changes to")).expect("it says where");
    assert!(line.contains(&dir) && line.contains("1 new, 1 changed, 1 removed"), "{line}");
    place.host(&format!("cd ~/data && {} commit more", crate::support::binary().display())).code(0);
    assert_eq!(place.read("home:data/more").as_deref(), Some("more\n"));
    assert_eq!(place.read("home:data/kept").as_deref(), Some("old"));
}

#[test]
fn nothing_of_a_cache_overlay_is_left_whatever_the_command_did_to_it() {
    let place = Place::new();
    place.write("home:.npm/dir/file", "old");
    let script = "mkdir -p ~/.npm/a/b; touch ~/.npm/a/b/c; chmod 000 ~/.npm/a/b ~/.npm/a ~/.npm/dir; ln -s / ~/.npm/link; chmod 000 ~/.npm; exit 5";
    let ran = place.inside(script).code(5);
    // Nothing else is said, and this only where what the command closed can be looked into.
    let told = "/.npm; --preset node keeps it\n";
    assert!(ran.err.is_empty() || ran.err.lines().count() == 1 && ran.err.ends_with(told), "{}", ran.err);
    assert_eq!(place.read("home:.npm/dir/file").as_deref(), Some("old"));
    let sessions = place.path("home:.local/state/cofferdam/sessions");
    assert_eq!(sessions.read_dir().expect("it was made").count(), 0);
}

#[test]
fn an_overlay_of_the_project_lets_a_command_play_without_consequence() {
    let Some(place) = Place::with_repository() else { return };
    let script = "rm -rf * .git/refs; echo x > new; ls -A | wc -l";
    place.run(&["--overlay", "."], &["bash", "-c", script]).code(0);
    assert_eq!(place.read("first").as_deref(), Some("one\n"));
    assert!(!place.exists("new"));
    place.host("git fsck --strict").ok();
}

#[test]
fn a_transaction_takes_what_is_written_and_the_host_keeps_what_it_has() {
    let listing = "find . -path ./.git/index -prune -o -printf '%p %y %m %s %T@\\n' | sort; cat .env first";
    for mode in ["static", "dynamic"] {
        let Some(place) = Place::with_repository() else { return };
        place.write(".env", "TOKEN=hunter2\n");
        let before = place.host(listing).ok();
        let script = "set -e; echo x > a; git init -q sub; echo h > .git/hooks/pre-commit; mkdir -p .vscode; \
                      echo {} > .vscode/tasks.json; git add a; git commit -qm second; \
                      cat a .git/hooks/pre-commit .vscode/tasks.json sub/.git/HEAD | wc -l; ! grep hunter2 .env 2>/dev/null; \
                      ! { echo x > .env; } 2>/dev/null; echo; read line || true";
        let running = place.start(&["--mode", mode, "--transaction"], script);
        assert_eq!(running.first_line, "4", "{mode}");
        assert_eq!(place.host(listing).ok(), before, "{mode}: no stand-ins while it runs");
        assert_eq!(running.end(), (0, "\n".to_owned()), "{mode}");
        assert_eq!(place.host(listing).ok(), before, "{mode}");
        let control = place.run(&["--mode", mode], &["sh", "-c", "echo h > .git/hooks/pre-commit"]);
        assert_ne!(control.code, 0, "{mode}: the control: without a transaction it is protected");
    }
}

#[test]
fn why_says_that_what_is_written_is_kept_for_review() {
    let Some(place) = Place::with_repository() else { return };
    for mode in ["static", "dynamic"] {
        for path in ["first", "missing", ".git/hooks", ".vscode/tasks.json"] {
            let why = |flag: &str| place.sandbox(&["why", "--mode", mode, flag, "--write", path]).ok();
            let said = why("--transaction");
            assert!(said.contains("what is written is kept for review"), "{mode} {path}: {said}");
            assert!(said.contains("[flag: --transaction"), "{mode} {path}: {said}");
            let said = why("--transaction=auto");
            assert!(said.contains("what is written is applied when the session ends"), "{mode} {path}: {said}");
            assert!(!why("--transaction=off").contains("what is written"), "{mode} {path}");
        }
    }
    place
        .sandbox(&["explain", "--transaction"])
        .ok()
        .lines()
        .find(|line| line.contains("waits for review"))
        .expect("told");
    place.run(&["--transaction=maybe"], &["true"]).code(125).says(&["--transaction", "review, auto, off"]);
}

#[test]
fn secrets_of_the_home_and_the_project_are_absent() {
    let place = Place::new();
    let secrets = [
        "home:.ssh/id_ed25519",
        "home:.aws/credentials",
        "home:.npmrc",
        "home:.netrc",
        "home:.config/gh/hosts.yml",
        "home:.docker/config.json",
        "home:.kube/config",
        "home:.gnupg/private-keys-v1.d/key",
        "home:.git-credentials",
        "home:.bash_history",
        "home:.cargo/credentials.toml",
        "home:.pypirc",
        "home:.config/gcloud/credentials.db",
        ".env",
        ".env.local",
    ];
    // The one that is shown is shown without its values of secrets.
    let content = |name: &str| if name.ends_with("npmrc") { "_authToken=hunter2" } else { "hunter2" };
    for name in secrets {
        place.write(name, content(name));
    }
    let script = "grep -rs hunter2 ~ . ; true";
    assert_eq!(place.inside(script).ok(), "");
    // The control: the host sees all of them. The log has the command line, which names what it looks for.
    let seen = place.host("grep -rls --exclude-dir=audit hunter2 ~ | wc -l").ok();
    assert_eq!(seen.trim(), secrets.len().to_string());
    for name in secrets {
        assert_eq!(place.read(name).as_deref(), Some(content(name)), "{name} was changed");
    }
}

#[test]
fn a_secret_that_appears_while_the_session_runs_in_a_hidden_directory_stays_hidden() {
    let place = Place::new();
    place.write("home:.ssh/config", "x");
    let mut session = place.start(&[], "echo ready; read line; cat ~/.ssh/late; ls -A ~/.ssh | wc -l");
    place.write("home:.ssh/late", "hunter2");
    session.tell("\n");
    assert_eq!(session.end(), (0, "0\n".to_owned()));
}

#[test]
fn tmp_is_private_and_ends_with_the_session() {
    let place = Place::new();
    let name = format!("/tmp/cofferdam-e2e-{}", std::process::id());
    std::fs::write(&name, "outside").expect("/tmp is writable");
    let ran = place.inside(&format!("cat {name}; echo x > {name}; ls -A /tmp | wc -l; stat -c %a /tmp"));
    let outside = std::fs::read_to_string(&name).expect("it is still there");
    std::fs::remove_file(&name).expect("it is ours");
    assert_eq!(outside, "outside");
    assert_eq!(ran.out, "1\n1777\n");
    assert_eq!(place.inside("ls -A /tmp | wc -l").ok(), "0\n");
}

#[test]
fn sqlite_works_in_the_workspace_in_wal_mode() {
    let Some(place) = Place::with(&["sqlite3"]) else { return };
    let script = "set -e
        sqlite3 db 'pragma journal_mode=wal; create table t(x); insert into t values (1);'
        (for i in 1 2 3 4 5; do sqlite3 -cmd '.timeout 5000' db \"insert into t values ($i)\"; done) & 
        for i in 1 2 3 4 5; do sqlite3 -cmd '.timeout 5000' db \"insert into t values ($i)\"; done; wait
        sqlite3 db 'select count(*) from t; pragma integrity_check'";
    assert_eq!(place.inside(script).ok(), "wal\n11\nok\n");
}

#[test]
fn sort_spills_to_tmp() {
    let place = Place::new();
    let script = "seq 200000 -1 1 | sort -n -S 64k --parallel=1 | (head -1; tail -1)";
    let strict = format!("set -o pipefail; {script}; TMPDIR=/var/tmp; export TMPDIR; seq 50000 | sort -S 64k | wc -l");
    let out = place.inside(&strict).out;
    assert_eq!(out, "1\n200000\n50000\n");
}

#[test]
fn files_made_inside_belong_to_the_user_with_the_users_mask() {
    let place = Place::new();
    place
        .host(&format!("umask 027; '{}' run -- bash -c 'touch made; mkdir dir'", crate::support::binary().display()))
        .ok();
    let stat = place.host("stat -c '%a %u' made dir").ok();
    let uid = rustix::process::getuid().as_raw();
    assert_eq!(stat, format!("640 {uid}\n750 {uid}\n"));
    assert!(is_root() || uid != 0);
}

#[test]
fn two_sessions_of_one_project_run_side_by_side() {
    let Some(place) = Place::with_repository() else { return };
    let mut first = place.start(&[], "echo ready; read line; ls -A .vscode; echo x > from-first");
    let mut second = place.start(&[], "echo ready; read line; mkdir .vscode/x; echo x > from-second");
    first.tell("\n");
    assert_eq!(first.end().0, 0);
    // The first session's end must not take the stand-ins away from the second.
    assert!(place.exists(".vscode"));
    second.tell("\n");
    assert_eq!(second.end().0, 0);
    assert_eq!(place.host("git status --porcelain").ok(), "?? from-first\n?? from-second\n");
    assert!(!place.exists(".vscode"));
}

#[test]
fn stand_ins_of_a_killed_session_are_swept_by_the_next() {
    let Some(place) = Place::with_repository() else { return };
    let session = place.start(&[], "echo ready; sleep 60");
    drop(session);
    place.inside("true").ok();
    assert!(!place.exists(".vscode") && !place.exists(".git/commondir"));
}

#[test]
fn in_the_home_directory_itself_nothing_is_writable_and_that_is_said() {
    let mut place = Place::new();
    place.project = place.home.clone();
    place.inside("echo x > new").code(1).says(&["nothing here is writable", "--rw"]);
    assert!(!place.exists("new"));
}

#[test]
fn a_variable_that_leads_a_known_place_to_the_home_opens_nothing() {
    let place = Place::new();
    place.write("home:notes", "private");
    let home = place.home.display().to_string();
    for value in [home.as_str(), "/"] {
        let ran =
            finish(place.command(binary()).env("GOROOT", value).args(["run", "--", "bash", "-c", "cat ~/notes"]), b"");
        assert_eq!((ran.out.as_str(), ran.code), ("", 1), "{value}: {}", ran.err);
    }
}

/// Its name leads to it in the next session, so the directories of that name stay where they are.
#[test]
fn one_session_does_not_uncover_for_the_next_what_is_hidden() {
    let place = Place::new();
    place.write("config/keys/secret", "hush");
    let hidden = place.path("config/keys/secret").display().to_string();
    for mode in ["static", "dynamic"] {
        let flags = ["--mode", mode, "--on-unknown", "deny", "--blacklist", &hidden];
        for (from, to) in [("config/keys", "config/moved"), ("config", "moved"), ("config/keys/secret", "moved")] {
            assert_ne!(place.run(&flags, &["mv", from, to]).code, 0, "{mode} {from}");
        }
        let found = place.run(&flags, &["grep", "-rs", "hush", "."]);
        assert_eq!(found.out, "", "{mode}");
    }
}

/// A session may have left the link: the next one is not given what it leads to.
#[test]
fn no_link_in_the_project_leads_a_grant_out_of_it() {
    for mode in ["static", "dynamic"] {
        let place = Place::new();
        place.write("home:.ssh/id_ed25519", "hunter2\n");
        place.write("home:other/file", "mine\n");
        place.host("mkdir f; ln -s ~/.ssh/id_ed25519 f/a; ln -s ~/other out; ln -s f/b f/c; echo here > f/b").ok();
        let grants =
            [["--ro", "f/a"], ["--rw", "out"], ["--overlay", "out"], ["--ro", "out/file"], ["--rw", "out/file"]];
        for grant in grants {
            let ran = place.run(&["--mode", mode, grant[0], grant[1]], &["sh", "-c", "cat f/a; echo x > out/file"]);
            ran.code(125).says(&["out of a directory that sessions write"]);
        }
        let given = place.home.join("other").display().to_string();
        place.run(&["--mode", mode, "--rw", &given], &["sh", "-c", "echo x >> out/file"]).ok();
        place.host("rm f/c; ln -s b f/c").ok();
        assert_eq!(place.run(&["--mode", mode, "--ro", "f/c"], &["cat", "f/c"]).ok(), "here\n", "{mode}");
        place.host("rm -rf .gocache; ln -s ~/other .gocache").ok();
        let cache = format!("GOCACHE={}", place.path(".gocache").display());
        let script = "echo x > .gocache/made; cat .gocache/file";
        let ran = place
            .run(&["--mode", mode, "--preset", "go", "--on-unknown", "deny", "--env", &cache], &["sh", "-c", script]);
        assert!(!place.exists("home:other/made"), "{mode}: {} {}", ran.out, ran.err);
    }
}
