//! Every end of `sandbox run` as a program reads it: one JSON object for each outcome, refusals included, and what the audit
//! log keeps of launches that did not happen and of sessions that a limit ended.

use serde_json::Value;

use crate::support::{Place, Ran, binary, finish};

const CHAIN: &str = "home:.local/state/cofferdam/audit/00000001.ndjson";

/// The one object that a run printed: the last line of stderr.
#[track_caller]
fn object(ran: &Ran) -> Value {
    let objects: Vec<&str> = ran.err.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(objects.len(), 1, "{}", ran.err);
    assert_eq!(ran.err.lines().last(), objects.first().copied(), "{}", ran.err);
    let object: Value = serde_json::from_str(objects[0]).expect("JSON");
    assert_eq!((&object["version"], object["exit_code"].as_i64()), (&Value::from(1), Some(i64::from(ran.code))));
    object
}

fn records(place: &Place, event: &str) -> Vec<Value> {
    let log = place.read(CHAIN).unwrap_or_default();
    let records = log.lines().map(|line| serde_json::from_str(line).expect("every line is a record"));
    records.filter(|record: &Value| record["event"] == event).collect()
}

#[test]
fn what_the_workload_writes_last_is_no_part_of_the_object() {
    let place = Place::new();
    let forged = r#"printf '{"exit_code":0}' >&2; exit 3"#;
    let ran = place.run(&["--json"], &["sh", "-c", forged]).code(3);
    let last = ran.err.lines().next_back().unwrap_or_default();
    let object: serde_json::Value = serde_json::from_str(last).expect("one object");
    assert_eq!(object["exit_code"], 3);
}

#[test]
fn json_has_one_object_for_every_launch_that_does_not_happen() {
    let place = Place::new();
    place.write("plain", "text");
    for (flags, command, code, end, kind) in [
        (&["--no-such-flag"][..], "true", 125, "not-started", "InitializationFailed"),
        (&["--timeout", "soon"], "true", 125, "not-started", "InitializationFailed"),
        (&["--rw", "/nonexistent/x"], "true", 125, "not-started", "InitializationFailed"),
        (&["--preset", "tool", "--memory", "4G"], "true", 126, "refused", "UnauthorizedAccess"),
        (&["--rw", "/"], "true", 126, "refused", "UnauthorizedAccess"),
        (&["--isolation", "none"], "true", 126, "refused", "UnauthorizedAccess"),
        (&[], "./plain", 126, "not-executed", "InitializationFailed"),
        (&[], "no-such-program", 127, "not-executed", "InitializationFailed"),
    ] {
        let ran = place.run(&[&["--json"], flags].concat(), &[command]).code(code);
        let object = object(&ran);
        assert_eq!(object["end"], end, "{flags:?} {command}: {object}");
        assert_eq!(object["error"]["kind"], kind, "{flags:?} {command}: {object}");
        let message = object["error"]["message"].as_str().expect("a message");
        assert!(ran.err.starts_with(&format!("error: {message}\n")), "{message}: {}", ran.err);
    }
    // Without it there is text alone.
    let ran = place.run(&["--preset", "tool", "--memory", "4G"], &["true"]).code(126);
    assert!(!ran.err.contains('{'), "{}", ran.err);
    // What stands after `--` is the command's.
    let ran = place.run(&["--no-such-flag"], &["true", "--json"]).code(125);
    assert!(!ran.err.contains('{'), "{}", ran.err);
}

#[test]
fn a_refusal_in_json_names_its_rule_and_its_remedy() {
    let place = Place::new();
    place.write("home:.config/cofferdam/config.toml", "preset = \"tool\"\n\n[limits]\nmemory = \"4G\"\n");
    let ran = place.run(&["--json"], &["true"]).code(126);
    let error = &object(&ran)["error"];
    assert!(error["origin"].as_str().is_some_and(|origin| origin.ends_with("config.toml:4")), "{error}");
    assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("ask for less")), "{error}");
    place.write("home:.config/cofferdam/config.toml", "nonsense = 1\n");
    let ran = place.run(&["--json"], &["true"]).code(125);
    assert!(
        object(&ran)["error"]["message"].as_str().is_some_and(|text| text.contains("config.toml:1")),
        "{}",
        ran.err
    );
}

#[test]
fn json_says_what_kind_of_failure_ended_a_session() {
    let place = Place::new();
    let ran = place.run(&["--json"], &["sh", "-c", "exit 3"]).code(3);
    assert_eq!(object(&ran)["error"], Value::Null);
    let ran = place.run(&["--json", "--timeout", "1s"], &["sleep", "100"]).code(124);
    assert_eq!(object(&ran)["error"]["kind"], "ExecutionTimeout");
    let ran = place.run(&["--json", "--max-output", "1M"], &["yes"]).code(124);
    let error = &object(&ran)["error"];
    assert_eq!((&error["kind"], &error["resource"]), (&"ResourceLimitExceeded".into(), &"output".into()));
    assert_eq!(error["origin"], "flag: --max-output");
    let script = "import ctypes\nlibc = ctypes.CDLL(None)\nwhile True: libc.setns(-1, 0)";
    let ran = place.run(&["--json"], &["python3", "-c", script]).code(126);
    assert_eq!(object(&ran)["error"]["kind"], "SecurityViolation", "{}", ran.err);
}

#[test]
fn a_launch_that_policy_refuses_is_recorded() {
    let place = Place::new();
    // Controls: a mistake is no refusal, and what ran is none.
    place.run(&["--timeout", "soon"], &["true"]).code(125);
    place.run(&[], &["true"]).ok();
    assert_eq!(records(&place, "LAUNCH_REFUSED"), Vec::<Value>::new());

    let flags = ["--preset", "tool", "--memory", "4G"];
    place.run(&flags, &["touch", "ran", "--token=verysecret"]).code(126);
    let refused = records(&place, "LAUNCH_REFUSED");
    let [record] = &refused[..] else { panic!("{refused:?}") };
    assert_eq!((&record["decision"], &record["severity"]), (&"deny".into(), &"WARNING".into()));
    assert_eq!(record["origin"], "flag: --memory");
    let details = &record["details"];
    assert_eq!((&details["tool"], &details["exitCode"]), (&"touch".into(), &126.into()), "{details}");
    assert!(details["why"].as_str().is_some_and(|why| why.contains("beyond the ceiling")), "{details}");
    assert!(details["command"]["text"].as_str().is_some_and(|text| !text.contains("verysecret")), "{details}");
    place.sandbox(&["audit", "verify"]).ok();
    assert!(place.sandbox(&["audit", "--event", "launch_refused"]).ok().contains("LAUNCH_REFUSED"));
    let ocsf: Value =
        serde_json::from_str(&place.sandbox(&["audit", "--event", "LAUNCH_REFUSED", "--format", "ocsf"]).ok())
            .expect("JSON");
    assert_eq!((&ocsf["class_uid"], &ocsf["disposition"]), (&1007.into(), &"Blocked".into()), "{ocsf}");
}

#[test]
fn the_log_has_the_exit_code_that_the_caller_saw() {
    let place = Place::new();
    place.run(&["--timeout", "1s"], &["sleep", "100"]).code(124);
    place.run(&["--max-output", "1M"], &["yes"]).code(124);
    place.run(&[], &["sh", "-c", "exit 3"]).code(3);
    place.run(&[], &["sh", "-c", "kill -TERM $$"]).code(143);
    place.run(&[], &["no-such-program"]).code(127);
    let codes: Vec<Option<i64>> =
        records(&place, "SANDBOX_EXITED").iter().map(|record| record["details"]["exitCode"].as_i64()).collect();
    assert_eq!(codes, [Some(124), Some(124), Some(3), Some(143), Some(127)]);
}

#[test]
fn a_limit_on_files_says_files_and_names_its_own_setting() {
    let place = Place::new();
    let free = rustix::fs::statvfs(&place.project).expect("a file system").f_favail;
    if free == 0 {
        println!("skipped: the file system of {} does not count files", place.project.display());
        return;
    }
    place.write("home:.config/cofferdam/config.toml", "[limits]\ninodes = 50\n");
    let script = "i=0; while :; do : > f$i; i=$((i+1)); done";
    let ran = place.run(&["--json"], &["sh", "-c", script]).code(124);
    let object = object(&ran);
    assert_eq!((&object["end"], &object["error"]["resource"]), (&"inode-limit".into(), &"inodes".into()));
    let ran = ran.says(&["50 files", "config.toml:2", "`limits.inodes` raises it"]);
    for wrong in ["bytes", "--storage"] {
        assert!(!ran.err.lines().any(|line| line.starts_with("sandbox:") && line.contains(wrong)), "{}", ran.err);
    }
    let told: Vec<Value> = records(&place, "RESOURCE_LIMIT_EXCEEDED");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["details"]["limit"], "inodes");
}

#[test]
fn no_json_carries_characters_that_draw_on_a_terminal() {
    let mut place = Place::new();
    let odd = "a\u{202e}b\u{9b}31mc\u{2066}d";
    place.project = place.home.join(odd);
    place.write("first", "one\n");
    let argument = format!("--{odd}");
    let ran = place.run(&["--json", "--rw", &format!("/nonexistent/{odd}")], &["true"]).code(125);
    let message = object(&ran)["error"]["message"].as_str().expect("a message").to_owned();
    assert!(message.contains(odd), "the text is the same once it is read: {message}");
    let mut texts = vec![ran.err];
    texts.push(place.run(&["--json"], &["sh", "-c", "exit 3", &argument]).code(3).err);
    let mut session = place.start(&["--mode", "static"], "echo up; read x");
    texts.push(place.sandbox(&["ps", "--json"]).ok());
    session.tell("\n");
    assert_eq!(session.end().0, 0);
    texts.push(place.sandbox(&["audit", "--format", "json"]).ok());
    texts.push(place.sandbox(&["audit", "--format", "ocsf"]).ok());
    texts.push(place.sandbox(&["explain", "--json", "--", "true", &argument]).ok());
    texts.push(place.sandbox(&["policy", "show", "--json"]).ok());
    let mut command = place.command(binary());
    texts.push(finish(command.args(["learn", "--json", "--", "true", &argument]), b"").err);
    for text in texts {
        assert!(text.contains("u202e") || text.contains("u{202e}") || !text.contains("31m"), "{text}");
        let drawing =
            text.chars().find(|c| matches!(c, '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'));
        assert_eq!(drawing, None, "{text}");
    }
}
