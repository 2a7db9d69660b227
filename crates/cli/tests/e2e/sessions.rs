//! Sessions as others see them: listed while they live, ended by name, gone afterwards.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Place, wait_for};

fn listed(place: &Place) -> Vec<Value> {
    let text = place.sandbox(&["ps", "--json"]).ok();
    let list: Value = serde_json::from_str(&text).expect("JSON");
    list["sessions"].as_array().expect("a list").clone()
}

#[test]
fn a_session_is_found_by_its_name_and_no_other_that_runs_can_have_it() {
    let place = Place::new();
    let running = place.start(&["--name", "nightly"], "echo ready; read line");
    let listed: Value = serde_json::from_str(&place.sandbox(&["ps", "nightly", "--json"]).ok()).expect("JSON");
    assert_eq!(listed["sessions"][0]["name"], "nightly", "{listed}");
    assert!(place.sandbox(&["ps"]).ok().contains("nightly: bash"));
    assert_eq!(place.sandbox(&["attach", "nightly", "echo", "in"]).ok(), "in\n");
    place.run(&["--name", "nightly"], &["touch", "ran"]).code(125).says(&["runs already"]);
    for name in ["last", "", "a/b", "..", "local-x"] {
        place.run(&["--name", name], &["touch", "ran"]).code(125).says(&["can be no session's name"]);
    }
    assert!(!place.exists("ran"));
    assert!(place.sandbox(&["kill", "nightly"]).ok().contains("ended"));
    drop(running);
    place.run(&["--name", "nightly"], &["true"]).ok();
}

#[test]
fn a_session_is_listed_while_it_lives() {
    let place = Place::new();
    assert_eq!(place.sandbox(&["ps"]).ok(), "no session runs\n");
    let mut running = place.start(&["--mode", "static"], "echo ready; read line; exit 5");
    let sessions = listed(&place);
    assert_eq!(sessions.len(), 1);
    let session = &sessions[0];
    assert_eq!(session["pid"].as_u64(), Some(u64::from(running.pid())));
    assert_eq!((&session["argv"][0], &session["mode"]), (&Value::from("bash"), &Value::from("static")));
    assert_eq!(session["project"].as_str(), place.project.to_str());
    let monitored = || listed(&place).first().is_some_and(|one| one["lifecycle"] == "monitoring").then_some(());
    wait_for("a session that runs and is watched", monitored);
    assert!(session["usage"]["processes"].as_u64().is_some_and(|count| count >= 2), "{session}");
    let id = session["session"].as_str().expect("a name");
    for name in [id, &id[id.len() - 12..], &id[id.len() - 6..], &id[id.len() - 12..id.len() - 4], "last"] {
        assert!(place.sandbox(&["ps", name]).ok().contains("read line"), "{name}");
    }
    let table = place.sandbox(&["ps"]).ok();
    let places: Vec<Option<usize>> = table
        .lines()
        .zip(["PID", &running.pid().to_string()])
        .map(|(line, word)| line.find(word).map(|at| at + word.len()))
        .collect();
    assert!(places.len() == 2 && places[0] == places[1] && places[0].is_some(), "{table}");
    assert!(table.contains(&format!("\n{} ", &id[id.len() - 12..])), "{table}");
    running.tell("x\n");
    assert_eq!(running.end().0, 5);
    wait_for("the end of the list", || listed(&place).is_empty().then_some(()));
}

#[test]
fn a_command_line_does_not_draw_on_the_screen_of_whoever_lists_it() {
    let place = Place::new();
    let _running = place.start(&[], "echo ready; sleep 60 # \u{1b}[2J\u{202e}");
    let out = place.sandbox(&["ps"]).ok();
    assert!(!out.contains('\u{1b}') && !out.contains('\u{202e}') && out.contains("\\u{1b}"), "{out}");
}

#[test]
fn a_session_that_listens_ends_when_it_is_asked() {
    let place = Place::new();
    let running = place.start(&[], "trap 'echo asked; exit 7' TERM; echo ready; while :; do sleep 0.05; done");
    assert!(place.sandbox(&["kill", "last"]).ok().contains(" ended\n"));
    let (code, rest) = running.end();
    assert_eq!((code, rest.as_str()), (7, "asked\n"));
    place.sandbox(&["kill", "last"]).code(1).says(&["no live session", "sandbox ps"]);
}

#[test]
fn a_session_that_does_not_listen_is_killed_after_the_grace_and_leaves_nothing() {
    let place = Place::new();
    let running = place.start(&[], "trap '' TERM; echo ready; while :; do sleep 0.05; done");
    let started = Instant::now();
    assert!(place.sandbox(&["kill", "last", "--grace", "1s"]).ok().contains(" killed\n"));
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert_eq!(running.end().0, 137);
    assert!(listed(&place).is_empty());
    assert!(place.sandbox(&["audit", "last"]).ok().contains("SANDBOX_DESTROYED"));
}

#[test]
fn a_supervisor_that_is_stopped_can_be_ended_too() {
    let place = Place::new();
    let running = place.start(&[], "echo ready; sleep 60");
    place.host(&format!("kill -STOP {}", running.pid())).ok();
    place.sandbox(&["kill", "last"]).ok();
    assert_eq!(running.end().0, 143);
}

#[test]
fn what_several_sessions_are_called_ends_none() {
    let place = Place::new();
    let _one = place.start(&[], "echo ready; sleep 60");
    let _other = place.start(&[], "echo ready; sleep 60");
    let first = listed(&place)[0]["session"].as_str().expect("a name").to_owned();
    // The time they share, a letter that one of them ends with, nothing.
    for name in [&first[..first.len() - 12], &first[first.len() - 1..], ""] {
        place.sandbox(&["kill", name]).code(1).says(&["no live session is called", "hint:"]);
    }
    assert_eq!(listed(&place).len(), 2);
}

#[test]
fn what_a_killed_supervisor_left_is_not_listed_and_its_number_is_not_used() {
    let place = Place::new();
    let running = place.start(&[], "echo ready; sleep 60");
    drop(running);
    assert!(listed(&place).is_empty());
    place.sandbox(&["kill", "last"]).code(1);
    place.sweep(0);
    let log = place.sandbox(&["audit", "--event", "SANDBOX_DESTROYED"]).ok();
    assert!(log.contains("its supervisor was killed"), "{log}");
}
