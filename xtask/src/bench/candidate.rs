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
    /// In static mode.
    Sandbox,
    /// In dynamic mode; what asks depends on the worker: a FUSE root, or reported calls where it has no /dev/fuse.
    Dynamic,
}

/// Of two sandboxes that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Binary {
    /// The one under test.
    This,
    /// The one of `--against`.
    Other,
}

impl Binary {
    /// Both, the first of them in turns.
    pub(crate) fn order(round: usize) -> [Binary; 2] {
        if round.is_multiple_of(2) { [Binary::This, Binary::Other] } else { [Binary::Other, Binary::This] }
    }

    /// Its name in the directory of the bench.
    pub(crate) fn file_name(self) -> &'static str {
        match self {
            Binary::This => "sandbox",
            Binary::Other => "other/sandbox",
        }
    }
}

pub(crate) const ALL: [Candidate; 4] = [Candidate::Bare, Candidate::Bwrap, Candidate::Sandbox, Candidate::Dynamic];

/// In four rounds every candidate follows every other one once, so that none always runs in the wake of the same: the
/// kernel takes network namespaces apart after their processes have ended.
const ORDERS: [[usize; 4]; 4] = [[0, 1, 3, 2], [1, 2, 0, 3], [2, 3, 1, 0], [3, 0, 2, 1]];

pub(crate) const BWRAP: &[&str] = &[
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
    pub(crate) fn order(round: usize) -> [Candidate; 4] {
        ORDERS[round % ORDERS.len()].map(|index| ALL[index])
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Candidate::Bare => "bare",
            Candidate::Bwrap => "bwrap",
            Candidate::Sandbox => "sandbox",
            Candidate::Dynamic => "dynamic",
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
            Candidate::Dynamic => {
                let mut command = Command::new(sandbox);
                command.args(["run", "--mode", "dynamic", "--on-unknown", "deny", "--"]);
                command
            }
        };
        command.args(argv);
        command
    }

    /// A program of the bench in dynamic mode, where it is no part of the system: it is approved from the start.
    pub(crate) fn gated(sandbox: &Path, on_unknown: &str, program: &str, argv: &[&str]) -> Command {
        let mut command = Command::new(sandbox);
        command.args(["run", "--mode", "dynamic", "--on-unknown", on_unknown, "--ro", program, "--", program]);
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
        for round in 0..8 {
            let mut order = Candidate::order(round);
            order.sort_unstable();
            assert_eq!(order, ALL);
        }
    }

    #[test]
    fn every_candidate_comes_first_equally_often() {
        for candidate in ALL {
            assert_eq!((0..8).filter(|round| Candidate::order(*round)[0] == candidate).count(), 2);
        }
    }

    #[test]
    fn every_candidate_follows_every_other_one_equally_often() {
        let mut pairs: Vec<_> = (0..4)
            .flat_map(|round| Candidate::order(round).windows(2).map(<[_]>::to_vec).collect::<Vec<_>>())
            .collect();
        pairs.sort();
        pairs.dedup();
        assert_eq!(pairs.len(), 12);
    }
}
