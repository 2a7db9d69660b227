//! The audit log of real sessions: what is in it, that no process inside can reach it, that a change is found, and what is
//! printed of it.

use serde_json::Value;

use crate::support::{Place, wait_for};

/// The operator is not asked, so that a session has the same records every time.
const STATIC: &[&str] = &["--mode", "static"];

const CHAIN: &str = "home:.local/state/cofferdam/audit/00000001.ndjson";

fn records(place: &Place) -> Vec<Value> {
    let log = place.read(CHAIN).unwrap_or_default();
    log.lines().map(|line| serde_json::from_str(line).expect("every line is a record")).collect()
}

fn names(records: &[Value]) -> Vec<&str> {
    records.iter().filter_map(|record| record["event"].as_str()).collect()
}

#[test]
fn a_session_is_recorded_from_its_creation_to_its_end() {
    let place = Place::new();
    place.run(STATIC, &["sh", "-c", "exit 3", "--token=verysecret"]).code(3);
    let records = records(&place);
    let expected = ["SANDBOX_CREATED", "SANDBOX_ENTERED", "COMMAND_STARTED", "SANDBOX_EXITED", "SANDBOX_DESTROYED"];
    assert_eq!(names(&records), expected);
    let states: Vec<&Value> = records.iter().map(|record| &record["details"]["state"]).collect();
    assert_eq!(states, ["created", "initialized", "running", "completed", "cleanup"]);
    let session = records[0]["sandboxId"].as_str().expect("a name");
    for record in &records {
        assert_eq!((&record["version"], record["sandboxId"].as_str()), (&Value::from(1), Some(session)));
        for field in ["eventId", "time", "actor", "severity", "hash", "previous"] {
            assert!(record[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {record}");
        }
    }
    let created = &records[0]["details"];
    assert_eq!((&created["isolation"], &created["network"]), (&Value::from("full"), &Value::from("own")));
    assert_eq!(created["command"]["text"], "sh -c exit 3 --token=***");
    assert_eq!(created["command"]["sha256"].as_str().map(str::len), Some(64));
    let exited = &records[3]["details"];
    assert_eq!((&exited["exitCode"], exited["durationMillis"].is_u64()), (&Value::from(3), true));
    assert!(!place.read(CHAIN).expect("a log").contains("verysecret"));
    place.sandbox(&["audit", "verify"]).ok();
}

#[test]
fn a_command_that_cannot_be_started_is_recorded_too() {
    let place = Place::new();
    place.run(&[], &["no-such-program"]).code(127);
    let records = records(&place);
    assert!(!names(&records).contains(&"COMMAND_STARTED"), "{:?}", names(&records));
    let exited = records.iter().find(|record| record["event"] == "SANDBOX_EXITED").expect("recorded");
    assert_eq!((&exited["details"]["end"], &exited["details"]["state"]), (&"not-started".into(), &"error".into()));
}

#[test]
fn refused_calls_and_the_threshold_are_recorded_as_the_workloads_doing() {
    let Some(place) = Place::with(&["unshare"]) else { return };
    place.write("home:.config/cofferdam/config.toml", "[syscalls]\nmax_violations = 3\n");
    place.inside("for i in 1 2 3 4 5 6 7 8; do unshare -U true; done; sleep 5").code(126);
    let records = records(&place);
    let blocked: Vec<_> = records.iter().filter(|record| record["event"] == "SYSCALL_BLOCKED").collect();
    assert_eq!(blocked.len(), 4);
    assert_eq!((&blocked[0]["actor"], &blocked[0]["decision"]), (&Value::from("workload"), &Value::from("deny")));
    let violation = records.iter().find(|record| record["event"] == "POLICY_VIOLATION").expect("recorded");
    assert_eq!((&violation["severity"], &violation["details"]["allowed"]), (&Value::from("ERROR"), &Value::from(3)));
    let exited = records.iter().find(|record| record["event"] == "SANDBOX_EXITED").expect("recorded");
    assert_eq!(exited["details"]["end"], "too-many-violations");
}

#[test]
fn a_call_that_only_an_escape_needs_is_recorded_as_an_attempt() {
    let Some(place) = Place::with(&["nsenter"]) else { return };
    place.inside("nsenter --uts=/proc/self/ns/uts true; true").code(126);
    let records = records(&place);
    let attempt = records.iter().find(|record| record["event"] == "ESCAPE_ATTEMPT").expect("recorded");
    assert_eq!((&attempt["severity"], &attempt["decision"]), (&Value::from("CRITICAL"), &Value::from("deny")));
    assert_eq!(
        (&attempt["details"]["syscall"], &attempt["details"]["indicator"]),
        (&"setns".into(), &"PROCESS".into())
    );
}

#[test]
fn the_signal_that_ended_a_session_is_recorded() {
    let place = Place::new();
    place.inside("kill -USR1 $$").code(138);
    let records = records(&place);
    let exited = records.iter().find(|record| record["event"] == "SANDBOX_EXITED").expect("recorded");
    assert_eq!(
        (&exited["details"]["end"]["signalled"]["signal"], &exited["details"]["exitCode"]),
        (&10.into(), &138.into())
    );
}

#[test]
fn a_path_that_nobody_approved_is_recorded_with_who_asked_and_who_decided() {
    let place = Place::new();
    place.write("home:notes/file", "x");
    let path = place.path("home:notes/file").display().to_string();
    let ran = place.run(&["--mode", "dynamic"], &["cat", &path]);
    if ran.code == 125 {
        println!("skipped: no dynamic mode here: {}", ran.err);
        return;
    }
    assert_ne!(ran.code, 0);
    let records = records(&place);
    let is_it = |record: &&Value| record["event"] == "FILE_DECIDED" && record["details"]["path"] == path.as_str();
    let decided = records.iter().find(is_it).expect("recorded");
    assert_eq!((&decided["decision"], &decided["details"]["op"]), (&"deny".into(), &"read".into()));
    assert!(decided["latency"].is_u64() && decided["details"]["pid"].is_u64(), "{decided}");
    assert!(decided["details"]["program"].as_str().is_some_and(|program| program.ends_with("/cat")), "{decided}");
    place.sandbox(&["audit", "verify"]).ok();
}

#[test]
fn trust_in_a_project_policy_is_recorded_as_a_persons_doing() {
    let place = Place::new();
    place.write(".cofferdam/policy.toml", "[limits]\ntimeout = \"5m\"\n");
    place.sandbox(&["trust", "--dry-run"]).ok();
    assert!(records(&place).is_empty());
    place.sandbox(&["trust", "--yes"]).ok();
    place.sandbox(&["trust", "--revoke"]).ok();
    let records = records(&place);
    let actions: Vec<_> = records.iter().map(|record| record["details"]["action"].as_str()).collect();
    assert_eq!((actions, names(&records)), (vec![Some("trusted"), Some("trust-revoked")], vec!["POLICY_CHANGED"; 2]));
    assert_eq!(records[0]["actor"], "person");
    assert_eq!(records[0]["details"]["sha256"].as_str().map(str::len), Some(64));
}

#[test]
fn signatures_of_another_key_are_not_taken() {
    let place = Place::new();
    place.run(STATIC, &["true"]).ok();
    place.sandbox(&["audit", "verify", "--key", &"0".repeat(64)]).code(1);
}

#[test]
fn the_first_session_of_a_user_sees_nothing_of_its_own_state() {
    let place = Place::new();
    let out = place.inside("ls -A ~/.local/state/cofferdam 2>&1; cat ~/.local/state/cofferdam/*/* 2>&1; true").ok();
    assert!(!out.contains("sessions") && !out.contains("version"), "{out}");
}

#[test]
fn nobody_inside_reads_or_changes_the_log() {
    let place = Place::new();
    place.inside("true").ok();
    let ran =
        place.inside("cat ~/.local/state/cofferdam/audit/* ; echo x >> ~/.local/state/cofferdam/audit/00000001.ndjson");
    assert_ne!(ran.code, 0);
    assert!(!ran.out.contains("SANDBOX_CREATED"), "{}", ran.out);
    place.sandbox(&["audit", "verify"]).ok();
}

#[test]
fn sessions_at_the_same_time_make_one_chain_that_verifies() {
    let place = Place::new();
    let running: Vec<_> = (0..8).map(|_| place.start(STATIC, "echo ready; read line; true")).collect();
    for session in running {
        session.end();
    }
    let report: Value = serde_json::from_str(&place.sandbox(&["audit", "verify", "--json"]).ok()).expect("JSON");
    assert_eq!((&report["whole"], &report["report"]["records"]), (&Value::from(true), &Value::from(40)));
    let sessions: std::collections::BTreeSet<_> = records(&place).iter().map(|r| r["sandboxId"].to_string()).collect();
    assert_eq!(sessions.len(), 8);
}

#[test]
fn a_changed_a_missing_and_a_cut_record_are_found_where_they_are() {
    let place = Place::new();
    place.run(STATIC, &["true"]).ok();
    let log = place.read(CHAIN).expect("a log");
    let lines: Vec<&str> = log.split_inclusive('\n').collect();
    let cases = [
        (log.replacen("\"exitCode\":0", "\"exitCode\":1", 1), "00000001.ndjson:4 (record 4)"),
        (lines[..2].concat() + &lines[3..].concat(), "00000001.ndjson:3 (record 3)"),
        (lines[..4].concat(), "00000001.ndjson:5 (record 5)"),
        (log[..log.len() - 9].to_owned(), "00000001.ndjson:5 (record 5)"),
    ];
    for (changed, at) in cases {
        assert_ne!(changed, log);
        place.write(CHAIN, &changed);
        let ran = place.sandbox(&["audit", "verify"]).code(1);
        assert!(ran.out.contains(at), "{at} is not in {}", ran.out);
    }
    place.write(CHAIN, &log);
    place.sandbox(&["audit", "verify"]).ok();
}

#[test]
fn what_a_crash_tore_is_closed_off_by_the_next_session() {
    let place = Place::new();
    place.run(STATIC, &["true"]).ok();
    let log = place.read(CHAIN).expect("a log");
    place.write(CHAIN, &(log + "{\"version\":1,\"sequence\":6,\"prev"));
    place.sandbox(&["audit", "verify"]).code(1);
    place.run(STATIC, &["true"]).ok();
    let out = place.sandbox(&["audit", "verify"]).ok();
    assert!(out.contains("torn by a crash, and closed off: 00000001.ndjson:6"), "{out}");
}

#[test]
fn records_are_printed_escaped_by_session_event_time_and_format() {
    let place = Place::new();
    place.run(STATIC, &["true", "\u{1b}[31mred\nline"]).ok();
    place.run(STATIC, &["bash", "-c", "exit 4"]).code(4);
    let text = place.sandbox(&["audit"]).ok();
    assert!(!text.contains('\u{1b}') && text.lines().count() == 10, "{text}");
    let text = place.sandbox(&["logs", "last"]).ok();
    assert!(text.contains("ended: exit code 4") && !text.contains('\u{1b}'), "{text}");
    assert_eq!(place.sandbox(&["logs", "last", "--json"]).ok().lines().count(), 5);
    let text = place.sandbox(&["audit", "last", "--event", "SANDBOX_EXITED", "--format", "json"]).ok();
    let record: Value = serde_json::from_str(&text).expect("one record");
    assert_eq!(record["details"]["exitCode"], 4);
    assert_eq!(place.sandbox(&["audit", "--since", "2999-01-01"]).ok(), "");
    assert_eq!(place.sandbox(&["audit", "--since", "1h"]).ok().lines().count(), 10);
    let text = place.sandbox(&["audit", "--format", "ocsf", "--event", "COMMAND_STARTED"]).ok();
    let event: Value = serde_json::from_str(text.lines().next().expect("an event")).expect("JSON");
    assert_eq!((&event["class_uid"], &event["type_uid"]), (&Value::from(1007), &Value::from(100_701)));
    place.sandbox(&["audit", "--event", "NONSENSE"]).code(125).says(&["SANDBOX_CREATED"]);
    place.sandbox(&["audit", "--since", "nonsense"]).code(125).says(&["hint:"]);
    place.sandbox(&["logs", "zzz"]).code(1).says(&["no recorded session", "hint:"]);
}

#[test]
fn the_log_of_a_session_is_told_to_a_person() {
    let place = Place::new();
    place.write("home:notes/list.h", "x");
    place.run(&[], &["sh", "-c", "cat ~/notes/list.h; cat ~/notes/list.h; touch ~/notes/new; exit 3"]).code(3);
    let mut command = place.command(crate::support::binary());
    command.env("TZ", "UTC-5").args(["logs", "last"]);
    let text = crate::support::finish(&mut command, b"").ok();
    let json = place.sandbox(&["logs", "last", "--json"]).ok();
    let first: Value = serde_json::from_str(json.lines().next().expect("a record")).expect("JSON");
    let (hour, rest) = first["time"].as_str().expect("a time")[11..19].split_once(':').expect("a time");
    let hour: u32 = hour.parse().expect("a number");
    let line = format!("{:02}:{rest} session ", (hour + 5) % 24);
    assert!(text.contains(&line), "{line}:\n{text}");
    assert!(text.contains("denied read ~/notes/list.h (cat < "), "{text}");
    assert!(!text.contains("sha256") && text.lines().all(|line| line.chars().count() < 200), "{text}");
    assert!(text.contains("\ndenied    read ~/notes/list.h, create ~/notes/new\n"), "{text}");
    assert!(text.contains("\nended     exit code 3 after ") && text.contains(" of CPU time; "), "{text}");
}

#[test]
fn a_log_that_is_followed_shows_what_comes() {
    let place = Place::new();
    let script = format!(
        "timeout 10 '{}' audit --follow --event SANDBOX_EXITED | head -n 1",
        crate::support::binary().display()
    );
    let followed = std::thread::scope(|scope| {
        let follower = scope.spawn(|| place.host(&script));
        wait_for("a line of the log", || {
            place.run(&[], &["true"]).ok();
            follower.is_finished().then_some(())
        });
        follower.join().expect("it ends")
    });
    assert!(followed.ok().contains("SANDBOX_EXITED"));
}

#[test]
fn a_log_that_cannot_be_written_stops_nobody_and_is_told() {
    let place = Place::new();
    place.write("home:.local/state/cofferdam/audit", "a file where the directory should be");
    place.inside("echo ran").says(&["the log in", "could not be written"]).ok();
}

#[test]
fn the_state_of_a_session_says_how_it_ended() {
    let Some(place) = Place::with(&["nsenter"]) else { return };
    place.run(&["--timeout", "1s"], &["sleep", "100"]).code(124);
    place.inside("nsenter --uts=/proc/self/ns/uts true").code(126);
    let records = records(&place);
    let exited = records.iter().filter(|record| record["event"] == "SANDBOX_EXITED");
    let states: Vec<&Value> = exited.map(|record| &record["details"]["state"]).collect();
    assert_eq!(states, ["timeout", "error"]);
}
