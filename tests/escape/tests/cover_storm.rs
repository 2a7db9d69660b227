//! The storm of `cargo xtask storm` in small: every configuration that this machine has, with its negative control.

use std::process::Command;

use cofferdam_testkit::program;

#[test]
fn what_is_seen_while_host_programs_work_on_covered_names_is_reported() {
    if std::env::var_os("COFFERDAM_TEST_GUEST").is_some() {
        println!("skipped: a processor in software gives the workload too few turns; the rows A18 run there");
        return;
    }
    let mut command = Command::new(program("escape-runner").expect("it is built"));
    command.args(["cover-storm", "--count", "60", "--others", "60", "--programs", "1"]);
    let output = command.output().expect("it starts");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{output:?}");
}
