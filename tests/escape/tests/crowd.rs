//! Connections in numbers that need a machine which lets a process have so many descriptors: a guest with root of its own.

use std::process::Command;

use cofferdam_testkit::program;

const GUEST: &str = "6.12";

#[test]
fn guest_root_ten_thousand_idle_connections_leave_a_neighbour_its_pace() {
    if std::env::var("COFFERDAM_TEST_GUEST").as_deref() != Ok(GUEST) {
        println!(
            "skipped: the guest {GUEST} shows it; `cargo xtask stress egress` holds as many as this machine lets it"
        );
        return;
    }
    let mut command = Command::new(program("escape-runner").expect("it is built"));
    // Half-open requests that go on byte by byte keep a processor in software busy; the stress run has them.
    command.args(["storm", "--lookups", "0", "--connections", "10000", "--half-open", "0", "--rounds", "400"]);
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{said}");
    assert!(output.status.success() && said.contains("crowd: 10000 idle connections and 0 half-open"), "{output:?}");
}
