//! `sandbox policy` and `sandbox why`: what they say is what a run then does.

use crate::support::{Place, is_root, wait_for};

const USER: &str = "home:.config/cofferdam/config.toml";
const LOCAL: &str = ".cofferdam/policy.local.toml";

#[test]
fn policy_show_names_every_rule_with_its_origin() {
    let place = Place::new();
    place.write(USER, "[files]\nwrite = [\"~/data\"]\n");
    let shown = place.sandbox(&["policy", "show"]).ok();
    assert!(shown.contains("~/data") && shown.contains("config.toml:2"), "{shown}");
    let json = place.sandbox(&["policy", "show", "--json"]).ok();
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(json["version"], 1);
    assert_eq!(json["policy"]["isolation"]["value"], "full");
}

#[test]
fn policy_check_names_file_line_and_remedy_of_every_mistake() {
    let place = Place::new();
    place.write("good.toml", "preset = \"cargo\"\n");
    place.write("bad.toml", "[files]\nreed = []\n");
    place.write("worse.toml", "preset = \"carga\"\n");
    place.write("later.toml", "[network]\nallow = [\"*.co.uk\"]\n");
    place.write("requirements.toml", "mode = \"dynamic\"\nunknown = \"ask\"\n");
    let good = place.sandbox(&["policy", "check", "good.toml", "requirements.toml"]).ok();
    assert_eq!(good, "ok: good.toml\nok: requirements.toml\n");
    let ran = place.sandbox(&["policy", "check", "bad.toml", "worse.toml", "later.toml", "good.toml"]).code(125);
    assert_eq!(ran.out, "ok: good.toml\n");
    ran.says(&[
        "bad.toml:2:1",
        "did you mean `read`?",
        "worse.toml:1",
        "did you mean `cargo`?",
        "later.toml:2",
        "anyone can have a name below it",
    ]);
    place.sandbox(&["policy", "check", "missing.toml"]).code(125).says(&["missing.toml"]);
}

#[test]
fn policy_diff_says_what_is_newly_allowed_and_denied() {
    let place = Place::new();
    place.write("new.toml", "debug = false\n[files]\nwrite = [\"~/data\"]\ndeny = [\"~/clients\"]\n");
    let told = place.sandbox(&["policy", "diff", "effective", "new.toml"]).ok();
    let (allowed, denied) = told.split_once("newly denied").expect("both are there");
    assert!(allowed.contains("newly allowed\n  ~/data: ask -> write  [user: new.toml:3]"), "{told}");
    assert!(denied.contains("~/clients: ask -> deny") && denied.contains("debug: true -> false"), "{told}");
    assert_eq!(place.sandbox(&["policy", "diff", "effective", "effective"]).ok(), "no difference\n");
    assert!(place.sandbox(&["policy", "diff", "default", "new.toml"]).ok().contains("~/data: ask -> write"));
    place.write(USER, "[files]\nread = [\"~/.ssh\"]\n");
    // In the place of the user's file, what that file gives is gone.
    let told = place.sandbox(&["policy", "diff", "effective", "new.toml", "--as", "user"]).ok();
    assert!(told.contains("~/.ssh: read -> deny"), "{told}");
    place.sandbox(&["policy", "diff", "effective", "new.toml", "--as", "nobody"]).code(125).says(&["project.local"]);
}

#[test]
fn an_exported_policy_read_back_makes_no_difference() {
    let place = Place::new();
    place.write(
        USER,
        "preset = \"node\"\n[files]\nwrite = [\"~/data\"]\n[limits]\ntimeout = \"5m\"\n[env.set]\nA = \"x y\"\n",
    );
    place.write(".cofferdam/policy.toml", "[files]\ndeny = [\"./private\"]\nwrite = [\"~/other\"]\n");
    let text = place.sandbox(&["policy", "export"]).ok();
    assert!(text.contains("# not in force, so left out: files.write = \"~/other\""), "{text}");
    place.write("exported.toml", &text);
    assert_eq!(place.sandbox(&["policy", "diff", "effective", "exported.toml"]).ok(), "no difference\n");
    let json = place.sandbox(&["policy", "export", "--format", "json"]).ok();
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(json["limits"]["timeout"], "5m");
    place.sandbox(&["policy", "export", "--format", "xml"]).code(125).says(&["toml, json"]);
}

#[test]
fn an_imported_policy_is_enforced_and_nothing_of_it_is_dropped_in_silence() {
    let place = Place::new();
    place.write("home:out/file", "old");
    place.write("home:keys/file", "confidential");
    let tool = "{ \"isolationLevel\": \"LEVEL_2\", \"filesystem\": { \"readWritePaths\": [\"~/out\"], \"deniedPaths\": [\"~/keys\"] },
        \"network\": { \"allowNetwork\": true, \"allowedHosts\": [\"a.example\", \"*\"] }, \"process\": { \"maxProcesses\": 200 }, \"colour\": \"green\" }";
    place.write("home:tool.json", tool);
    let path = place.path("home:tool.json").display().to_string();
    let text = place.sandbox(&["policy", "import", &path]).ok();
    assert!(
        text.contains("allow = [\"a.example\"]") && text.contains("# network.allowedHosts = \"*\": names every host"),
        "{text}"
    );
    assert!(text.contains("# colour = \"green\": has no equal here"), "{text}");
    let diff =
        place.sandbox(&["policy", "import", &path, "--save", "user"]).code(0).says(&["colour", "every host"]).out;
    assert!(diff.contains("+max = 200"), "{diff}");
    place.inside("echo new > ~/out/file").ok();
    assert_eq!(place.read("home:out/file").as_deref(), Some("new\n"));
    place.inside("cat ~/keys/file").code(1);
    assert!(place.sandbox(&["why", "a.example"]).ok().contains("can be reached"));
    place.sandbox(&["policy", "import", &path, "--from", "nosuch"]).code(125).says(&["tool-json"]);
}

#[test]
fn an_import_adds_to_what_a_file_says_already() {
    let place = Place::new();
    place.write(USER, "# mine\nisolation = \"process\"\n[limits]\ntimeout = \"5m\"\n");
    place.write("home:sandbox.json", "{ \"type\": \"workspace_readonly\", \"additionalReadwritePaths\": [\"~/out\"] }");
    let path = place.path("home:sandbox.json").display().to_string();
    let ran = place.sandbox(&["policy", "import", &path, "--save", "user"]).code(0);
    ran.says(&["isolation = \"full\": stays \"process\""]);
    let text = place.read(USER).expect("it is there");
    for part in ["# mine", "timeout = \"5m\"", "project = \"read\"", "~/out"] {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
    place.sandbox(&["policy", "check", &place.path(USER).display().to_string()]).ok();
    let again = place.sandbox(&["policy", "import", &path, "--save", "user"]).ok();
    assert!(again.contains("says so already"), "{again}");
}

#[test]
fn a_rule_that_was_added_by_hand_counts_in_the_next_run() {
    let place = Place::new();
    place.write("home:.aws/credentials", "hunter2");
    place.inside("cat ~/.aws/credentials").code(1);
    let path = place.path("home:.aws/credentials").display().to_string();
    let diff = place.sandbox(&["policy", "allow", &path]).ok();
    assert!(diff.contains("+++ ") && diff.contains("+  { path = \"~/.aws/credentials\", optional = true"), "{diff}");
    assert_eq!(place.inside("cat ~/.aws/credentials").ok(), "hunter2");
    assert_eq!(place.read(".cofferdam/.gitignore").as_deref(), Some("/.gitignore\n/policy.local.toml\n"));
    place.sandbox(&["policy", "deny", &path]).ok();
    place.inside("cat ~/.aws/credentials").code(1);

    place.write(LOCAL, "[files]\nwrite = [\"~/data\"]\n");
    place.sandbox(&["policy", "allow", &path]).code(125).says(&["not approved", "sandbox trust"]);
    place.sandbox(&["policy", "allow", &path, "--keep", "session"]).code(125).says(&["project, user, org"]);
}

#[test]
fn what_is_allowed_for_good_is_not_asked_about_again() {
    let place = Place::new();
    place.write("home:data/file", "known by now\n");
    let flags = ["--mode", "dynamic", "--on-unknown", "deny"];
    let read = || place.run(&flags, &["cat", &place.path("home:data/file").display().to_string()]);
    assert_ne!(read().code, 0);
    let told = place.sandbox(&["policy", "allow", &place.path("home:data").display().to_string()]).ok();
    assert!(told.contains("~/data"), "{told}");
    assert_eq!(read().ok(), "known by now\n");
}

#[test]
fn an_answer_that_is_kept_is_a_rule_in_the_next_session() {
    let place = Place::new();
    place.write("home:data/file", "known by now\n");
    let path = place.path("home:data/file").display().to_string();
    let asking = ["--mode", "dynamic", "--on-unknown", "ask"];
    let session = place.start(&asking, "echo ready; cat ~/data/file");
    let number = wait_for("the question", || {
        let open = place.sandbox(&["questions"]).out;
        open.lines()
            .find(|line| line.contains(&path))
            .and_then(|line| line.split_whitespace().next().map(str::to_owned))
    });
    place.sandbox(&["approve", &number, "--keep", "project"]).code(0);
    assert_eq!(session.end(), (0, "known by now\n".to_owned()));
    let text = place.read(LOCAL).expect("it was made");
    assert!(text.contains("path = \"~/data/file\", optional = true, reason = \"approved "), "{text}");
    let silent = ["--mode", "dynamic", "--on-unknown", "deny"];
    assert_eq!(place.run(&silent, &["cat", &path]).ok(), "known by now\n");
}

#[test]
fn a_rule_that_is_added_while_a_session_runs_is_there_afterwards() {
    let place = Place::new();
    place.write("home:.aws/credentials", "hunter2");
    let session = place.start(&[], "echo ready; read line");
    assert_eq!(session.first_line, "ready");
    // While it runs, `.cofferdam` is a stand-in that nothing inside can write to.
    let path = place.path("home:.aws/credentials").display().to_string();
    place.sandbox(&["policy", "allow", &path]).ok();
    session.end();
    assert_eq!(place.inside("cat ~/.aws/credentials").ok(), "hunter2");
    assert!(place.sandbox(&["policy", "show"]).ok().contains("policy.local.toml:"));
}

#[test]
fn the_organisations_policy_is_not_for_everybody_to_change() {
    if is_root() {
        println!("skipped: root may");
        return;
    }
    let place = Place::new();
    place.sandbox(&["policy", "deny", "/srv", "--keep", "org"]).code(125).says(&["cannot write", "/etc/cofferdam"]);
}

#[test]
fn nothing_inside_can_keep_the_writer_of_policies_waiting() {
    let place = Place::new();
    place.sandbox(&["policy", "deny", "x"]).code(0);
    for lock in ["~/.local/state/cofferdam/policy.lock", ".cofferdam/policy.local.toml"] {
        let ran = place.inside(&format!("exec 9>>{lock}"));
        assert_ne!(ran.code, 0, "{lock} can be opened for writing inside");
    }
}

#[test]
fn why_names_the_rule_and_the_smallest_change() {
    let place = Place::new();
    place.write("home:.ssh/id", "key");
    place.write("home:data/file", "x");
    let why = |arguments: &[&str]| place.sandbox(&[&["why", "--mode", "static"], arguments].concat()).ok();
    let home = place.home.display().to_string();
    let key = format!("{home}/.ssh/id");
    let told = why(&[&key]);
    assert!(
        told.contains("is hidden") && told.contains("profiles/secrets.toml") && told.contains(&format!("--ro {key}")),
        "{told}"
    );
    let told = why(&[&format!("{home}/data/file")]);
    assert!(
        told.contains("can be read") && told.contains("--blacklist") && told.contains("files.deny = [\"~/data/file\"]"),
        "{told}"
    );
    let told = why(&[&format!("{home}/data/file"), "--write"]);
    assert!(told.contains("cannot be written") && told.contains("--rw"), "{told}");
    let told = why(&["made", "--write"]);
    assert!(told.contains("can be read and written by the rule about") && told.contains("the project"), "{told}");
    let told = why(&[".git/hooks/x", "--write"]);
    assert!(told.contains("cannot be created inside"), "{told}");
    let told = why(&["/tmp/x"]);
    assert!(told.contains("has its own there"), "{told}");
    place.write(USER, "\n[files]\ndeny = [\"~/data\"]\n");
    let told = why(&[&format!("{home}/data/missing")]);
    assert!(told.contains("is hidden") && told.contains("config.toml:3"), "{told}");
}

#[test]
fn why_says_that_an_unknown_path_would_be_asked_about() {
    let place = Place::new();
    place.write("home:data/file", "x");
    let path = place.path("home:data/file").display().to_string();
    let ran = place.sandbox(&["why", &path, "--mode", "dynamic"]);
    assert!(ran.out.contains("no rule is about it: it would be asked"), "{ran:?}");
    assert!(ran.out.contains("sandbox policy allow"), "{ran:?}");
    let ran = place.sandbox(&["why", "/usr/bin/env", "--mode", "dynamic"]);
    assert!(ran.out.contains("can be read") && ran.out.contains("profiles/known.toml"), "{ran:?}");
}

#[test]
fn why_knows_system_calls_and_hosts() {
    let place = Place::new();
    let why = |arguments: &[&str]| place.sandbox(&[&["why"], arguments].concat()).ok();
    assert!(why(&["openat"]).contains("is allowed"));
    assert!(why(&["kexec_load"]).contains("always denied"));
    assert!(why(&["ptrace", "--no-debug"]).contains("is refused and recorded"));
    place.write(USER, "[syscalls]\ndeny = [\"socket\"]\n");
    let told = why(&["socket"]);
    assert!(
        told.contains("refused") && told.contains("config.toml:2") && told.contains("drop `syscalls.deny"),
        "{told}"
    );
    let told = why(&["crates.io"]);
    assert!(told.contains("it would be asked") && told.contains("--allow-host crates.io"), "{told}");
    let told = why(&["crates.io", "--network", "none"]);
    assert!(told.contains("no network inside") && told.contains("--allow-host crates.io"), "{told}");
}

#[test]
fn recorded_sessions_are_replayed_against_a_changed_policy() {
    let place = Place::new();
    let home = place.home.display().to_string();
    let record = |session: &str, op: &str, path: &str, decision: &str| {
        let record = serde_json::json!({
            "sequence": 1, "eventId": "e", "sandboxId": session, "time": "t", "event": "FILE_DECIDED", "actor": "person",
            "severity": "INFO", "decision": decision,
            "details": { "op": op, "path": format!("{home}/{path}"), "cause": "person" },
        });
        format!("{record}\n")
    };
    let log = [
        record("s1", "read", "data/a", "allow"),
        record("s1", "write", "data/a", "deny"),
        record("s2", "read", "clients/b", "allow"),
        "not a record\n".to_owned(),
        record("s2", "read", "unknown", "allow"),
    ];
    place.write("home:.local/state/cofferdam/audit/00000001.ndjson", &log.concat());
    place.write("new.toml", "mode = \"dynamic\"\n[files]\nwrite = [\"~/data\"]\ndeny = [\"~/clients\"]\n");
    let told = place.sandbox(&["policy", "test", "new.toml"]).ok();
    let expected = format!(
        "newly allowed\n  write {home}/data/a\nnewly denied\n  read {home}/clients/b\nwould be asked\n  read {home}/unknown\n4 recorded requests of 2 sessions\n"
    );
    assert_eq!(told, expected);
    let one = place.sandbox(&["policy", "test", "new.toml", "--against", "s1", "--json"]).ok();
    let one: serde_json::Value = serde_json::from_str(&one).expect("it is JSON");
    assert_eq!(one["newly_allowed"][0], format!("write {home}/data/a"));
    assert_eq!(one["newly_denied"].as_array().map(Vec::len), Some(0));
    place.sandbox(&["policy", "test", "new.toml", "--against", "nobody"]).code(125).says(&["nobody"]);

    let told = place.sandbox(&["why", &format!("{home}/data"), "--session", "s1"]).ok();
    assert_eq!(told, format!("allowed read {home}/data/a [person]\n"));
    let told = place.sandbox(&["why", &format!("{home}/data/a"), "--session", "s1", "--write"]).ok();
    assert_eq!(told, format!("denied write {home}/data/a [person]\n"));
    let told = place.sandbox(&["why", "/srv", "--session", "s1"]).ok();
    assert!(told.contains("never asked about /srv"), "{told}");
}
