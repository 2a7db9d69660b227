//! A session for which no layer said a word about the network, without a terminal: nothing is reached, the first refusal is
//! final and told at once with the flag that would allow it, and no process is started before a program asks for a host.

use std::path::{Path, PathBuf};

use crate::internet::{ALLOWED, Internet};
use crate::support::{Place, wait_for};

const GET: &str = "curl -sS -o /dev/null -w '%{http_code}\\n' --max-time 10";

/// Processes of this name below the supervisor, from outside.
fn egress_processes(supervisor: u32) -> Vec<PathBuf> {
    let children = std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"));
    let children = children.unwrap_or_default();
    let directories = children.split_whitespace().map(|pid| PathBuf::from("/proc").join(pid));
    directories
        .filter(|one| std::fs::read_to_string(one.join("comm")).is_ok_and(|name| name == "sandbox-egress\n"))
        .collect()
}

/// What a process could reach: the routes of the network in which it is.
fn routes(process: &Path) -> String {
    std::fs::read_to_string(process.join("net/fib_trie")).unwrap_or_default()
}

#[test]
fn without_a_word_the_first_refusal_is_final_and_told_at_once() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    // The command ends only once the line is there.
    let waits = "n=0; until grep -q allow-host told; do n=$((n+1)); test $n -lt 100 || exit 9; sleep 0.1; done";
    let script = format!(
        "$SANDBOX run -- bash -c '{GET} http://other.test/; {GET} http://other.test/; {GET} https://{ALLOWED}/; {waits}; exit 3' 2>told"
    );
    let mut command = internet.command("bash");
    command.env("SANDBOX", crate::support::binary()).args(["-c", &script]);
    let ran = crate::support::finish(&mut command, b"").code(3);
    assert!(ran.out.starts_with("403n403n"), "{}", ran.out);
    let told = internet.place.read("told").expect("stderr");
    for line in [
        "sandbox: no network here; to allow it: --allow-host other.test:80\n",
        &format!("sandbox: no network here; to allow it: --allow-host {ALLOWED}:443\n"),
    ] {
        assert_eq!(told.matches(line).count(), 1, "{line}{told}");
    }
    // Not again at the end.
    assert_eq!(told.matches("other.test:80: no rule").count(), 0, "{told}");
    internet.assert_untouched("93.184.216.35:80", "other.test");
    // The control: with the flag of the line it is reached.
    assert_eq!(internet.run(&["--allow-host", "other.test:80"], &format!("{GET} http://other.test/")).ok(), "200\n");
}

#[test]
fn a_name_that_is_looked_up_does_not_exist_and_is_told() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    let ran = internet.direct(&[], &format!("{GET} http://other.test/; exit 4")).code(4);
    ran.says(&["sandbox: no network here; to allow it: --allow-host other.test\n"]);
    internet.assert_untouched("93.184.216.35:80", "other.test");
}

#[test]
fn hosts_without_end_are_not_told_without_end() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    let ran = internet.run(&[], &format!("for n in {{1..30}}; do {GET} http://h$n.test/; done; exit 4")).code(4);
    let told = ran.err.matches("sandbox: no network here; to allow it: ").count();
    assert_eq!(told, 8, "{}", ran.err);
    assert!(ran.err.contains("could not reach h9.test:80"), "{}", ran.err);
}

#[test]
fn no_process_is_started_before_a_program_asks_and_that_one_has_no_network() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    let mut session = internet.start(&[], &format!("echo up; read x; {GET} http://other.test/; read y"));
    assert!(egress_processes(session.pid()).is_empty());
    session.tell("\n");
    let process = wait_for("the refusal", || egress_processes(session.pid()).pop());
    let own = routes(&PathBuf::from(format!("/proc/{}", session.pid())));
    assert!(own.contains("LOCAL"), "the control: the supervisor has routes");
    wait_for("its network", || (!routes(&process).contains("LOCAL")).then_some(()));
    session.tell("\n");
    assert!(session.end().1.contains("403"));
    // The control: one that may reach a host has the network of the supervisor from the start.
    let mut session = internet.start(&["--allow-host", "allowed.test"], "echo up; read x");
    let process = egress_processes(session.pid()).pop().expect("it is there");
    assert_eq!(routes(&process), own);
    session.tell("\n");
    session.end();
}

#[test]
fn a_chosen_none_is_an_empty_network_without_a_process() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    let ran = internet.run(&["--network", "none"], &format!("{GET} http://{ALLOWED}/; env | grep -i proxy; exit 7"));
    let ran =
        ran.code(7).says(&["there is none inside but an own loopback", "usually needs --network egress --allow-host"]);
    assert_eq!(ran.out, "000\n");
}

/// Nothing but the name in the hint depends on it.
#[test]
fn without_the_second_program_hosts_are_refused_all_the_same() {
    let place = Place::new();
    let directory = place.path("home:bin");
    std::fs::create_dir(&directory).expect("a directory");
    let alone = directory.join("sandbox");
    std::fs::copy(crate::support::binary(), &alone).expect("a copy");
    let script = "exec 3<>/dev/tcp/93.184.216.34/80 || exit 4; read -t 10 x <&3; exit 5";
    let mut command = place.command(&alone);
    command.args(["run", "--", "bash", "-c", script]);
    let ran = crate::support::finish(&mut command, b"");
    assert!(ran.code == 4 || ran.code == 5, "{}", ran.err);
    ran.says(&["hosts are refused without their names: "]);
}
