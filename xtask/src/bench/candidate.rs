//! What is compared: the same command bare, under bubblewrap and under the sandbox. Owns the command lines, so that every
//! measurement means the same by each name. Called by the worker.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Candidate {
    Bare,
    Bwrap,
    Sandbox,
}

pub(crate) const ALL: [Candidate; 3] = [Candidate::Bare, Candidate::Bwrap, Candidate::Sandbox];

/// Every order of three, so that no candidate always runs in the wake of the same other one: the kernel takes network
/// namespaces apart after their processes have ended.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [2, 1, 0], [1, 0, 2]];

const BWRAP: &[&str] = &[
    "--unshare-all",
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
    "--proc",
    "/proc",
    "--tmpfs",
    "/tmp",
    "--die-with-parent",
    "--",
];

impl Candidate {
    /// The order of a round.
    pub(crate) fn order(round: usize) -> [Candidate; 3] {
        ORDERS[round % ORDERS.len()].map(|index| ALL[index])
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Candidate::Bare => "bare",
            Candidate::Bwrap => "bwrap",
            Candidate::Sandbox => "sandbox",
        }
    }

    /// `argv` as this candidate runs it; `sandbox` is the binary under test.
    pub(crate) fn command(self, sandbox: &Path, argv: &[&str]) -> Command {
        let mut command = match self {
            Candidate::Bare => {
                let mut command = Command::new(argv[0]);
                command.args(&argv[1..]);
                return command;
            }
            Candidate::Bwrap => {
                let mut command = Command::new("/usr/bin/bwrap");
                command.args(BWRAP);
                command
            }
            Candidate::Sandbox => {
                let mut command = Command::new(sandbox);
                command.args(["run", "--mode", "static", "--"]);
                command
            }
        };
        command.args(argv);
        command
    }

    /// From spawn to reaped. Nothing but a success is a measurement.
    pub(crate) fn launch(self, sandbox: &Path, argv: &[&str]) -> Result<Duration, String> {
        let mut command = self.command(sandbox, argv);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let failed = |what: String| format!("{} {}: {what}", self.name(), argv.join(" "));
        let before = Instant::now();
        let status = command.status().map_err(|e| failed(e.to_string()))?;
        let took = before.elapsed();
        if status.success() { Ok(took) } else { Err(failed(status.to_string())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_every_candidate_once() {
        for round in 0..12 {
            let mut order = Candidate::order(round);
            order.sort_unstable();
            assert_eq!(order, ALL);
        }
    }

    #[test]
    fn every_candidate_comes_first_equally_often() {
        for candidate in ALL {
            assert_eq!((0..6).filter(|round| Candidate::order(*round)[0] == candidate).count(), 2);
        }
    }
}
