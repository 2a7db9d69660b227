//! Leaving and looking back: records that are pruned, what `sandbox clean` removes, a home as it was before, answers that are revoked.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use cofferdam_host::policy_files::approvals::content_hash;
use serde_json::{Value, json};

use crate::screen::Screen;
use crate::support::{Place, wait_for};

const STATIC: &[&str] = &["--mode", "static"];
const AUDIT: &str = "home:.local/state/cofferdam/audit";
const CONFIG: &str = "home:.config/cofferdam/config.toml";

fn files_of_log(place: &Place) -> Vec<String> {
    let entries = place.path(AUDIT).read_dir().into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| name.ends_with(".ndjson"));
    names.sort();
    names
}

fn records(place: &Place) -> Vec<Value> {
    let text = place.sandbox(&["audit", "--format", "json"]).ok();
    text.lines().map(|line| serde_json::from_str(line).expect("every line is a record")).collect()
}

/// Writes the log as it would be if all of it had happened 100 days earlier. Nothing in it is signed yet.
fn age_log(place: &Place) {
    let mut previous = "0".repeat(64);
    let mut head = String::new();
    for name in files_of_log(place) {
        let mut aged = String::new();
        for line in place.read(&format!("{AUDIT}/{name}")).expect("it is there").lines() {
            let record: Value = serde_json::from_str(line).expect("a record");
            let text = |field: &str| record[field].as_str().expect("text").to_owned();
            let time = cofferdam_audit::parse_stamp(&text("time")).expect("a time");
            let earlier = time.before(Duration::from_hours(24 * 100));
            let (body, _) = line.rsplit_once(",\"hash\":").expect("it is sealed");
            let body = body.replacen(&text("previous"), &previous, 1).replacen(&text("time"), &earlier.to_string(), 1);
            previous = content_hash(&body);
            aged.extend([&body, ",\"hash\":\"", &previous, "\"}\n"]);
            head = format!("{:020} {previous} {:020}\n", record["sequence"].as_u64().expect("a number"), 0);
        }
        place.write(&format!("{AUDIT}/{name}"), &aged);
    }
    place.write(&format!("{AUDIT}/head"), &head);
    place.sandbox(&["audit", "verify"]).ok();
}

#[test]
fn records_are_pruned_by_the_operator_and_verify_tells_that_from_a_deletion() {
    let place = Place::new();
    place.run(STATIC, &["true"]).ok();
    place.sandbox(&["audit", "prune"]).code(125);
    place.sandbox(&["audit", "prune", "--keep", "1"]).code(125).says(&["90d"]);
    std::thread::sleep(Duration::from_millis(1100));
    let mut running = place.start(STATIC, "echo ready; read line");
    let live = records(&place).last().expect("records")["sandboxId"].as_str().expect("a name").to_owned();
    std::thread::sleep(Duration::from_millis(1100));
    let before = records(&place).len();
    place.sandbox(&["audit", "prune", "--keep", "1s"]).code(125).says(&["no terminal", "--yes"]);
    let would = place.sandbox(&["audit", "prune", "--keep", "1s", "--dry-run"]).ok();
    assert!(would.contains("would remove 5 records") && would.contains("stay: it runs"), "{would}");
    assert_eq!(records(&place).len(), before, "nothing was removed so far");
    let json = place.sandbox(&["audit", "prune", "--keep-size", "1", "--yes", "--json"]).ok();
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["pruned"]["records"], &json["spared"]["session"]), (&json!(5), &json!(live)));
    let left = records(&place);
    assert!(left.iter().all(|record| record["sandboxId"] == live.as_str() || record["sandboxId"] == ""), "{left:?}");
    assert_eq!(left.iter().filter(|record| record["event"] == "SANDBOX_CREATED").count(), 1);
    running.tell("\n");
    assert_eq!(running.end().0, 0);
    let verified = place.sandbox(&["audit", "verify"]).ok();
    assert!(verified.contains("whole;") && verified.contains("pruned until 20"), "{verified}");
    assert!(verified.contains("(record 5) by the operator, with `sandbox audit prune`"), "{verified}");
    // Deleted by hand, with an editor.
    let first = format!("{AUDIT}/{}", files_of_log(&place)[0]);
    let text = place.read(&first).expect("it is there");
    place.write(&first, text.split_once('\n').expect("lines").1);
    let broken = place.sandbox(&["audit", "verify"]).code(1).out;
    assert!(broken.contains("missing") && broken.contains("NOT whole"), "{broken}");
    place.sandbox(&["audit", "prune", "--keep-size", "1", "--yes"]).code(1).says(&["is not whole", "--force"]);
    place.sandbox(&["audit", "prune", "--keep-size", "1", "--yes", "--force"]).ok();
    let pruned = records(&place).into_iter().rfind(|record| record["event"] == "CHAIN_PRUNED").expect("it is recorded");
    assert!(pruned["details"]["problems"].as_u64().is_some_and(|count| count > 0), "{pruned}");
    place.sandbox(&["audit", "verify"]).ok();
}

#[test]
fn a_retention_is_the_users_and_sessions_carry_it_out_on_their_way() {
    let place = Place::new();
    place.run(STATIC, &["true"]).ok();
    age_log(&place);
    // A project may not shorten it, and says what it would have said only to the operator.
    place.write(".cofferdam/policy.toml", "[audit]\nkeep = \"1d\"\n");
    place.run(STATIC, &["sleep", "0.5"]).ok();
    assert_eq!(files_of_log(&place), ["00000001.ndjson"]);
    place.sandbox(&["policy", "check", &place.path(".cofferdam/policy.toml").display().to_string()]).ok();
    std::fs::remove_dir_all(place.path(".cofferdam")).expect("it was made here");
    place.write(CONFIG, "[audit]\nkeep = \"90\"\n");
    place.run(STATIC, &["true"]).code(125).says(&["90d"]);
    place.write(CONFIG, "[audit]\nkeep = \"90d\"\n");
    assert!(place.sandbox(&["policy", "show"]).ok().contains("audit records are kept 90d"));
    // Its first record is old: the file is closed, and goes once its last record is old.
    place.run(STATIC, &["sleep", "0.5"]).ok();
    assert_eq!(files_of_log(&place), ["00000001.ndjson", "00000002.ndjson"]);
    age_log(&place);
    place.run(STATIC, &["sleep", "0.5"]).ok();
    assert!(!files_of_log(&place).contains(&"00000001.ndjson".to_owned()), "{:?}", files_of_log(&place));
    let verified = place.sandbox(&["audit", "verify"]).ok();
    assert!(verified.contains("pruned until 20") && verified.contains("by the setting `audit.keep`"), "{verified}");
}

#[test]
fn clean_removes_what_is_of_no_more_use_and_never_work_that_waits() {
    let place = Place::new();
    assert!(place.sandbox(&["clean"]).ok().contains("nothing is there"));
    place.run(&["--transaction"], &["sh", "-c", "echo work > work"]).ok();
    let script = format!("home:.local/state/cofferdam/shell-prefix/{}", "0".repeat(16));
    place.write(&script, "#!/bin/sh\nexec '/nonexistent/sandbox' 'shell-prefix' -- \"$@\"\n");
    place.write("home:gone/.cofferdam/policy.toml", "[limits]\ntimeout = \"5m\"\n");
    let gone = place.path("home:gone");
    place.host(&format!("cd '{}' && '{}' trust --yes", gone.display(), crate::support::binary().display())).ok();
    std::fs::remove_dir_all(&gone).expect("it was made here");
    let shown = place.sandbox(&["clean", "--dry-run"]).code(1).out;
    for text in [
        "stays",
        "not committed: `--transactions` drops it",
        "goes",
        "/nonexistent/sandbox",
        "gone/.cofferdam/policy.toml",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert!(place.exists(&script), "only shown");
    place.sandbox(&["clean"]).code(1).says(&["sandbox clean --yes"]);
    let json: Value = serde_json::from_str(&place.sandbox(&["clean", "--yes", "--json"]).ok()).expect("JSON");
    assert_eq!((&json["removed"], &json["failures"]), (&json!(true), &json!([])));
    assert!(
        !place.exists(&script)
            && !place.read("home:.local/state/cofferdam/approved-policies.json").expect("there").contains("gone")
    );
    assert!(place.sandbox(&["diff"]).ok().contains("+work"), "the work is still there");
    // A session that runs keeps what it has, whatever is said.
    let running = place.start(&["--transaction"], "echo more > more; echo ready; read line || true");
    assert!(place.sandbox(&["clean", "--transactions", "--dry-run"]).code(1).out.contains("its session runs"));
    place.sandbox(&["clean", "--all", "--yes"]).code(1).says(&["sessions still run", "sandbox kill"]);
    running.end();
    place.sandbox(&["clean", "--all", "--yes"]).code(1).says(&["changes of 2 sessions wait", "--transactions"]);
    place.sandbox(&["clean", "--transactions", "--yes"]).ok();
    place.sandbox(&["diff"]).code(1).says(&["no changes of a session wait"]);
    place.sandbox(&["clean"]).ok();
}

#[test]
fn clean_leaves_alone_what_is_a_link_or_another_users() {
    let place = Place::new();
    place.run(STATIC, &["true"]).ok();
    let state = place.path("home:.local/state/cofferdam");
    let elsewhere = place.path("home:elsewhere");
    std::fs::rename(&state, &elsewhere).expect("ours");
    symlink(&elsewhere, &state).expect("writable");
    for flags in [["clean", "--yes"].as_slice(), &["clean", "--all", "--yes"]] {
        place.sandbox(flags).code(125).says(&["is not cleaned", "is a link"]);
    }
    assert!(elsewhere.join("audit").is_dir());
    std::fs::remove_file(&state).expect("a link");
    std::fs::rename(&elsewhere, &state).expect("ours");
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o777)).expect("ours");
    place.sandbox(&["clean", "--all", "--yes"]).code(125).says(&["can be written by other users"]);
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o700)).expect("ours");
    // A directory of settings that a link leads to is the operator's arrangement.
    let dotfiles = place.path("home:dotfiles");
    std::fs::create_dir_all(&dotfiles).expect("writable");
    std::fs::write(dotfiles.join("config.toml"), "debug = true\n").expect("writable");
    std::fs::create_dir_all(place.path("home:.config")).expect("writable");
    symlink(&dotfiles, place.path("home:.config/cofferdam")).expect("writable");
    place.sandbox(&["clean", "--all", "--yes"]).code(125).says(&["is a link"]);
    assert!(dotfiles.join("config.toml").is_file() && !state.exists());
}

/// Every name below the home, with what tells whether it is as it was.
fn listing(place: &Place) -> Vec<String> {
    let listed = place.host("cd ~ && find . -printf '%p %y %m %l\\n' | sort").ok();
    listed.lines().map(str::to_owned).collect()
}

#[test]
fn after_clean_all_the_home_is_as_it_was_before_the_first_session() {
    let Some(place) = Place::with_repository() else { return };
    place.write("home:notes/list", "known\n");
    place.host("chmod 755 ~ ~/project ~/notes").ok();
    let before = listing(&place);
    place.run(STATIC, &["true"]).ok();
    place.inside("echo more >> first; git status --short; cat ~/notes/list; true").ok();
    place.host("git checkout -q first").ok();
    place.run(&["--transaction"], &["sh", "-c", "echo x >> first; echo y > made"]).ok();
    place.sandbox(&["commit"]).ok();
    place.sandbox(&["commit", "--undo"]).ok();
    place.sandbox(&["shell-prefix"]).ok();
    place.sandbox(&["policy", "allow", &place.path("home:notes/list").display().to_string(), "--keep", "user"]).ok();
    place.sandbox(&["policy", "allow", &place.path("home:notes").display().to_string()]).ok();
    drop(place.start(&[], "echo ready; sleep 60"));
    wait_for("the end of the killed session", || place.sandbox(&["ps"]).ok().lines().count().le(&1).then_some(()));
    let shown = place.sandbox(&["clean", "--all", "--transactions", "--dry-run"]).code(1).out;
    for name in [".local/state/cofferdam", ".config/cofferdam", "policy.local.toml"] {
        assert!(shown.contains(name), "{name}: {shown}");
    }
    let told = place.sandbox(&["clean", "--all", "--transactions", "--yes"]).ok();
    assert!(told.contains("stays") && told.contains("policy.local.toml"), "a project's file is named and left: {told}");
    let left: Vec<String> = listing(&place).into_iter().filter(|line| !before.contains(line)).collect();
    assert!(left.iter().all(|line| line.starts_with("./project/.cofferdam")), "{left:#?}");
    assert_eq!(listing(&place).len(), before.len() + 3, "the directory, the answers and .gitignore: {left:#?}");
    // Once more, with those: they were approved, so they are found as long as there is a state.
    place.sandbox(&["trust", "--yes"]).ok();
    place.sandbox(&["clean", "--all", "--projects", "--yes"]).ok();
    assert_eq!(listing(&place), before);
    assert!(place.sandbox(&["clean", "--all", "--yes"]).ok().contains("nothing is there"));
}

#[test]
fn a_kept_answer_is_found_in_the_history_and_revoked_there() {
    let Some(screen) = Screen::open(&[]) else { return };
    let place = &screen.place;
    place.write("home:notes/list", "known\n");
    place.write("home:notes/other", "known\n");
    let hook = place.path("home:hook");
    let answer = r#"echo "{\"type\":\"cmd.approve\",\"id\":${id%%[,\}]*},\"scope\":\"file\",\"persist\":\"$keep\"}""#;
    place.write(
        "home:hook",
        &format!("#!/bin/bash\nread -r line\nid=${{line#*\\\"id\\\":}}\nkeep=user\n[[ $line == *'notes/other\",'* ]] && keep=session\n{answer}\n"),
    );
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("ours");
    let settings = format!("mode = \"dynamic\"\n[unknown]\nverdict = \"ask\"\nhook = [\"{}\"]\n", hook.display());
    place.write(CONFIG, &settings);
    let running =
        place.start(&["--network", "none"], "cat ~/notes/list ~/notes/other >/dev/null; echo ready; read line || true");
    wait_for("the answer that is kept", || place.read(CONFIG).filter(|text| text.contains("notes/list")));
    let listed = place.sandbox(&["policy", "revoke"]).ok();
    assert!(listed.contains("1  files.read = \"~/notes/list\"  (user)"), "{listed}");
    assert!(listed.contains("UTC by hook, asked by") && listed.contains("reason: approved 20"), "{listed}");
    screen.line("sandbox inbox");
    screen.wait_for("no open questions");
    screen.keys(&["h"]);
    let text = screen.wait_for("answers in force: 2");
    assert!(text.contains("> allowed read") && text.contains("notes/other (session"), "{text}");
    screen.keys(&["r"]);
    screen.wait_for("cannot be revoked: counts until the session ends");
    screen.keys(&["j"]);
    screen.wait_for("[r] revoke");
    screen.capture("inbox-history");
    screen.keys(&["r"]);
    screen.wait_for("press r again");
    assert!(place.read(CONFIG).expect("there").contains("notes/list"), "not at the first key");
    screen.keys(&["r"]);
    screen.wait_for("revoked: files.read = \"~/notes/list\"");
    screen.wait_for("answers in force: 1");
    let left = place.read(CONFIG).expect("there");
    assert!(left.starts_with(settings.trim_end()) && !left.contains("notes/list"), "{left}");
    screen.keys(&["q", "q"]);
    screen.prompt();
    running.end();
    place.sandbox(&["policy", "revoke", "1"]).code(1).says(&["no kept answer is called `1`"]);
}
