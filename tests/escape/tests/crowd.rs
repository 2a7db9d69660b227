//! Thousands of connections that say nothing, and a neighbour beside them that keeps its pace.

use std::process::Command;

use cofferdam_testkit::program;
use cofferdam_testkit::world::lacks;

const GUEST: &str = "6.12";

/// As many as two descriptors for each allow.
#[test]
fn thousands_of_idle_connections_leave_a_neighbour_its_pace() {
    if let Some(reason) = lacks(&["unshare", "nsenter", "ip", "setpriv", "bash"]) {
        println!("skipped: {reason}");
        return;
    }
    let said = crowd();
    assert!(said.contains(" idle connections"), "{said}");
}

/// Few machines let a process have so many descriptors: a guest with root of its own.
#[test]
fn guest_root_ten_thousand_idle_connections_leave_a_neighbour_its_pace() {
    if std::env::var("COFFERDAM_TEST_GUEST").as_deref() != Ok(GUEST) {
        println!("skipped: `cargo xtask vm --long --guest {GUEST}` shows it");
        return;
    }
    let said = crowd();
    assert!(said.contains("crowd: 10000 idle connections and 0 half-open"), "{said}");
}

/// Half-open requests that go on byte by byte keep a processor in software busy; `cargo xtask stress egress` has them.
fn crowd() -> String {
    let mut command = Command::new(program("escape-runner").expect("it is built"));
    command.args(["storm", "--lookups", "0", "--connections", "10000", "--half-open", "0", "--rounds", "400"]);
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{said}");
    assert!(output.status.success(), "{output:?}");
    said
}
