//! A name that may be reached and leads to a private address: one question about the pair, what a yes gives and what it does not,
//! and where it is kept. In an internet of the test's own.

use std::time::{Duration, Instant};

use crate::internet::{Internet, PRIVATE, SECOND};
use crate::support::wait_for;

const ASK: [&str; 4] = ["--on-unknown", "ask", "--ask-timeout", "20s"];
const CONFIG: &str = "home:.config/cofferdam/config.toml";
const LOCAL: &str = ".cofferdam/policy.local.toml";
/// Where no answer leads.
const NEVER: [&str; 2] = ["loop.test", "metadata.test"];

fn get(place: &str) -> String {
    format!("curl -sS -m 30 -o /dev/null -w '%{{http_code}}\\n' http://{place}/; ")
}

/// A private registry at port 8081, under two names that the user's configuration allows.
fn company() -> Option<Internet> {
    let internet = Internet::with(&["curl"])?;
    for server in [format!("{PRIVATE}:8081"), format!("{SECOND}:8081")] {
        internet.world.http(&server);
    }
    internet.config("mode = \"egress\"\nallow = [\"private.test:8081\", \"alias.test:8081\"]\n");
    Some(internet)
}

/// Runs this with an operator to ask, answers the one question that comes, and gives its text and what was printed.
fn asked(internet: &Internet, script: &str, answer: &[&str]) -> (String, String) {
    let mut session = internet.start(&ASK, &format!("echo up; read x; {script}"));
    session.tell("\n");
    let text =
        wait_for("a question", || Some(internet.sandbox(&["questions"]).ok()).filter(|text| !text.trim().is_empty()));
    let name = text.split_whitespace().next().expect("its name").to_owned();
    assert!(internet.world.connections(&format!("{PRIVATE}:8081")).is_empty(), "it was reached before the answer");
    internet.sandbox(&[&answer[..1], &[&name], &answer[1..]].concat()).code(0);
    let (code, out) = session.end();
    assert_eq!(code, 0, "{out}");
    (text, out)
}

#[test]
fn a_name_and_its_private_address_are_approved_in_one_question() {
    let Some(internet) = company() else { return };
    let script = get("private.test:8081").repeat(2);
    let (text, out) = asked(&internet, &script, &["approve", "--keep", "session"]);
    assert!(text.contains("private.test:8081@10.0.0.5"), "{text}");
    assert!(
        text.contains("private.test leads to 10.0.0.5, a private address; the answer is about this pair"),
        "{text}"
    );
    assert_eq!(out, "200\n200\n");
    assert_eq!(internet.world.connections(&format!("{PRIVATE}:8081")).len(), 2);
}

#[test]
fn a_no_about_the_pair_refuses_it() {
    let Some(internet) = company() else { return };
    let (_, out) = asked(&internet, &get("private.test:8081").repeat(2), &["deny", "--keep", "session"]);
    assert_eq!(out, "403\n403\n");
    assert!(internet.world.connections(&format!("{PRIVATE}:8081")).is_empty());
}

#[test]
fn a_kept_pair_gives_that_name_at_that_address_and_nothing_else() {
    for (keep, file) in [("user", CONFIG), ("project", LOCAL)] {
        let Some(internet) = company() else { return };
        let (_, out) = asked(&internet, &get("private.test:8081"), &["approve", "--keep", keep]);
        assert_eq!(out, "200\n");
        let policy = internet.place.read(file).expect("it was written");
        assert!(policy.contains("\"private.test:8081@10.0.0.5\""), "{policy}");
        // With no operator to ask: the pair, and neither the address by another name nor by itself.
        assert_eq!(internet.run(&[], &get("private.test:8081")).ok(), "200\n", "{keep}");
        let others = format!("{}{} exit 3", get("alias.test:8081"), get(&format!("{PRIVATE}:8081")));
        let ran = internet.run(&[], &others).code(3);
        assert_eq!(ran.out, "403\n403\n");
        // The flag that would do it is named, and does it.
        ran.says(&["--allow-host alias.test:8081@10.0.0.5"]);
        let flags = ["--allow-host", "alias.test:8081@10.0.0.5"];
        assert_eq!(internet.run(&flags, &get("alias.test:8081")).ok(), "200\n");
        let why = internet.sandbox(&["why", "private.test:8081"]).ok();
        assert!(why.contains("at 10.0.0.5 too"), "{why}");
        // A name that leads to another address than its pair says: refused, and asked about where an operator is.
        let flags = ["--allow-host", "second.test:8081@10.0.0.5"];
        let ran = internet.run(&flags, &format!("{} exit 3", get("second.test:8081"))).code(3);
        assert_eq!(ran.out, "403\n");
        ran.says(&["leads to 10.0.0.6"]);
        assert!(internet.world.connections(&format!("{SECOND}:8081")).is_empty());
    }
}

#[test]
fn the_machine_itself_and_what_it_is_told_by_are_never_asked_about() {
    let Some(internet) = Internet::with(&["curl"]) else { return };
    internet.config("mode = \"egress\"\nallow = [\"loop.test\", \"metadata.test\"]\n");
    for (name, server) in NEVER.iter().zip(["127.0.0.1:80", "169.254.169.254:80"]) {
        internet.world.listener(server);
        let started = Instant::now();
        assert_eq!(internet.run(&ASK, &get(name)).ok(), "403\n", "{name}");
        assert!(started.elapsed() < Duration::from_secs(10), "{name}: it was asked about");
        // Nor does a rule about the pair open them.
        let address = server.trim_end_matches(":80");
        let flags = ["--allow-host", &format!("{name}:80@{address}")];
        let ran = internet.run(&flags, &format!("{} exit 3", get(name))).code(3);
        assert_eq!(ran.out, "403\n", "{name}: {}", ran.err);
        assert!(internet.world.dials(server).is_empty(), "{server}");
    }
    let log = internet.sandbox(&["audit", "--format", "json"]).ok();
    assert!(!log.contains("\"question\":"), "{log}");
}

#[test]
fn a_name_that_turns_to_a_private_address_is_asked_about_before_it_is_dialled() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    internet.world.listener(&format!("{PRIVATE}:80"));
    internet.config("mode = \"egress\"\nallow = [\"turns.test\"]\n");
    let script = get("turns.test").repeat(4);
    let flags = ["--on-unknown", "ask", "--ask-timeout", "1s"];
    internet.run(&flags, &format!("{script} true")).code(0);
    assert!(internet.world.dials(&format!("{PRIVATE}:80")).is_empty());
}
