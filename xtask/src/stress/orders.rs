//! Sessions that a client's library starts by an order: at once and in a row from a program with 16 threads, and with their clients
//! killed. Owns how many; what each must show is in the tests (`crates/cli/tests/e2e/ordered.rs`). Called by `stress`.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::problems::Problems;
use crate::stress::instances::Raised;

const AT_ONCE: usize = 200;
const IN_A_ROW: usize = 2000;
const CLIENTS_KILLED: usize = 100;
const TESTS: [&str; 2] =
    ["ordered::many_sessions_at_once_and_in_a_row_lose_nothing", "ordered::clients_that_are_killed_leave_nothing"];

pub(crate) fn run(binary: &Path) -> Result<String, Problems> {
    let raised = Raised::for_sessions(AT_ONCE).map_err(|e| Problems::one(e.to_string()))?;
    let mut tests = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    tests.args(["test", "--quiet", "--package", "cofferdam-cli", "--test", "e2e", "--"]);
    // One after the other: each compares what it finds on the machine before and after.
    tests.args(["--exact", "--nocapture", "--test-threads", "1"]).args(TESTS);
    tests.env("COFFERDAM_SANDBOX_BIN", binary);
    for (variable, count) in [
        ("COFFERDAM_SESSIONS_AT_ONCE", AT_ONCE),
        ("COFFERDAM_SESSIONS_IN_A_ROW", IN_A_ROW),
        ("COFFERDAM_CLIENTS_KILLED", CLIENTS_KILLED),
    ] {
        tests.env(variable, count.to_string());
    }
    let ended = tests.stderr(Stdio::inherit()).output();
    drop(raised);
    let output = ended.map_err(|e| Problems::one(format!("cannot run cargo: {e}")))?;
    let told = String::from_utf8_lossy(&output.stdout);
    print!("{told}");
    // A test of another name runs nothing, and cargo calls that a success.
    let all_passed = told.contains(&format!("{} passed; 0 failed", TESTS.len())) && !told.contains("skipped:");
    if output.status.success() && all_passed {
        Ok(String::new())
    } else {
        Err(Problems::one(format!("orders: not every test passed ({})", output.status)))
    }
}
