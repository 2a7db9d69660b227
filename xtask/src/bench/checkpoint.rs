//! What a checkpoint of a transaction costs: one of an idle session, and how long a session with 500 MB in its layer stands still for
//! one of 20 changed files. Owns that session; the project is that of `transaction`, which comes before.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use crate::bench::report::{Limit, Report};
use crate::bench::stage::Stage;
use crate::bench::statistics::Samples;
use crate::bench::transaction::{MILLISECONDS, run, sandbox, time};
use crate::problems::Problems;

/// Stays alive and does what it is told itself: a child that ends would lead to a checkpoint of its own.
const AGENT: &str = "while read -r line; do eval \"$line\"; echo done; done";
const LARGE: &str = "mkdir large; for f in $(seq 500); do head -c 1048576 /dev/urandom > large/$f; done";
const FILES: usize = 20;

/// A session that is told what to do.
struct Agent {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Agent {
    fn start(stage: &Stage) -> Result<Self, Problems> {
        let mut command = sandbox(stage, &["run", "--mode", "static", "--transaction", "--", "sh", "-c", AGENT]);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = spawned.map_err(|e| Problems::one(format!("{command:?}: {e}")))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Problems::one("no pipes"));
        };
        Ok(Agent { child, input, output: BufReader::new(output) })
    }

    fn tell(&mut self, line: &str) -> Result<(), Problems> {
        let mut answer = String::new();
        let told = writeln!(self.input, "{line}").and_then(|()| self.output.read_line(&mut answer));
        told.map_err(|e| Problems::one(format!("{line}: {e}")))?;
        if answer == "done\n" { Ok(()) } else { Err(Problems::one(format!("{line}: {answer:?}"))) }
    }

    fn end(mut self) -> Result<(), Problems> {
        drop(self.input);
        self.child.wait().map(drop).map_err(|e| Problems::one(format!("the session: {e}")))
    }
}

pub(crate) fn measure(stage: &Stage, rounds: usize, report: &mut Report) -> Result<(), Problems> {
    let mut agent = Agent::start(stage)?;
    let [mut idle, mut changed] = [(); 2].map(|()| Samples::default());
    agent.tell(":")?;
    for round in 0..rounds.max(5) {
        agent.tell(&format!("echo {round} > idle"))?;
        idle.push(time(sandbox(stage, &["checkpoint"]))?);
    }
    agent.tell(LARGE)?;
    run(sandbox(stage, &["checkpoint"]))?;
    for round in 0..rounds.max(5) {
        let files: Vec<String> = (1..=FILES).map(|file| format!("echo {round} >> src/d{file}/f1")).collect();
        agent.tell(&files.join("; "))?;
        changed.push(time(sandbox(stage, &["checkpoint", &format!("round {round}")]))?);
    }
    agent.end()?;
    let log = run(sandbox(stage, &["audit", "--format", "json", "--event", "WORKSPACE_CHECKPOINT"]))?.0;
    let mut stopped = Samples::default();
    for line in log.lines().filter(|line| line.contains("\"round ")) {
        let record: serde_json::Value =
            serde_json::from_str(line).map_err(|e| Problems::one(format!("{line}: {e}")))?;
        let millis = record["details"]["stoppedMillis"].as_f64();
        stopped.push(millis.ok_or_else(|| Problems::one(format!("no time in {line}")))? * MILLISECONDS);
    }
    run(sandbox(stage, &["rollback"]))?;
    let at = |samples: &Samples| samples.median() / MILLISECONDS;
    report.judge("checkpoint_idle_ms", "a checkpoint of one file, command and all, ms", at(&idle), Limit::AtMost(10.0));
    report.judge(
        "checkpoint_stopped_ms",
        "the session stands still for 20 files beside 500 MB, ms",
        at(&stopped),
        Limit::AtMost(50.0),
    );
    report.samples("checkpoint_ms", "checkpoint of 20 files beside 500 MB", &changed, "ms", MILLISECONDS);
    Ok(())
}
