//! `cargo xtask bench density`: what a session that does nothing keeps of the machine's memory, when many run. Owns the sessions
//! and the reading of their processes; needs root, because a supervisor lets no other process of its user look into it.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::bench::report::{Limit, Report};
use crate::bench::stage::Stage;
use crate::bench::statistics::Samples;
use crate::bench::worker::as_number;
use crate::problems::Problems;
use crate::workspace::read;

const MEGABYTES_EACH: Limit = Limit::AtMost(0.6);
/// Kilobytes, as the kernel counts.
const MEGABYTE: f64 = 1000.0;

/// What of the kernel's own memory grows with processes and namespaces.
const OF_THE_KERNEL: [&str; 4] = ["Slab", "KernelStack", "PageTables", "Percpu"];

pub(crate) fn measure(stage: &Stage, sessions: usize) -> Result<Report, Problems> {
    if !rustix::process::getuid().is_root() {
        return Err(Problems::one(
            "bench density needs root: only root may read the memory of a supervisor".to_owned(),
        ));
    }
    let mut report = Report::new("density", sessions, stage.machine());
    // What the first one brings into memory for all.
    drop(Sessions::start(stage, 1)?);
    let before = meminfo()?;
    eprintln!("bench density: {sessions} sessions that do nothing");
    let running = Sessions::start(stage, sessions)?;
    let after = meminfo()?;
    let (mut supervisors, mut firsts) = (Samples::default(), Samples::default());
    for session in &running.0 {
        let supervisor = session.id();
        supervisors.push(pss(supervisor)?);
        for first in children(supervisor)? {
            firsts.push(pss(first)?);
        }
    }
    if firsts.len() != sessions {
        return Err(Problems::one(format!("{sessions} supervisors have {} children", firsts.len())));
    }
    let each = |samples: &Samples| samples.median() / MEGABYTE;
    let sum = each(&supervisors) + each(&firsts);
    report.judge("session_pss_mb", "supervisor and pid 1, MB of PSS each", sum, MEGABYTES_EACH);
    report.section(&format!("memory of a session when {sessions} run (PSS: what is shared counts in parts)"));
    for (name, label, value) in [("supervisor", "supervisor", each(&supervisors)), ("first", "pid 1", each(&firsts))] {
        report.figure(&format!("{name}_pss_mb"), value);
        report.row(label, &format!("{value:>9.3} MB"));
    }
    report.section("memory of the kernel, which no process is charged for, by what grew while they started");
    for name in OF_THE_KERNEL {
        let grown = after.get(name).zip(before.get(name)).map_or(0.0, |(after, before)| after - before);
        let value = grown / MEGABYTE / as_number(sessions);
        report.figure(&format!("kernel_{}_mb", name.to_lowercase()), value);
        report.row(name, &format!("{value:>9.3} MB a session"));
    }
    Ok(report)
}

struct Sessions(Vec<Child>);

impl Sessions {
    /// All of them, once each has started its command.
    fn start(stage: &Stage, count: usize) -> Result<Sessions, Problems> {
        let failed = |e: std::io::Error| Problems::one(format!("a session: {e}"));
        let mut sessions = Sessions(Vec::new());
        let mut outputs = Vec::new();
        for _ in 0..count {
            let mut command = stage.user_command(&stage.sandbox());
            command.args(["run", "--mode", "static", "--", "sh", "-c", "echo; exec sleep 3600"]);
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
            outputs.extend(child.stdout.take());
            sessions.0.push(child);
        }
        for output in &mut outputs {
            output.read_exact(&mut [0]).map_err(failed)?;
        }
        // What is written in idle moments after the start.
        std::thread::sleep(std::time::Duration::from_secs(1));
        Ok(sessions)
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        for session in &self.0 {
            let pid = rustix::process::Pid::from_child(session);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        }
        for session in &mut self.0 {
            session.wait().ok();
        }
    }
}

/// Kilobytes of a process, with its part of what it shares.
fn pss(pid: u32) -> Result<f64, Problems> {
    let text = read(&Path::new("/proc").join(pid.to_string()).join("smaps_rollup"))?;
    kilobytes(&text).remove("Pss").ok_or_else(|| Problems::one(format!("the kernel does not tell the PSS of {pid}")))
}

fn children(pid: u32) -> Result<Vec<u32>, Problems> {
    let text = read(Path::new(&format!("/proc/{pid}/task/{pid}/children")))?;
    Ok(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

fn meminfo() -> Result<BTreeMap<String, f64>, Problems> {
    read(Path::new("/proc/meminfo")).map(|text| kilobytes(&text))
}

/// `Slab:  123 kB`, by name.
fn kilobytes(text: &str) -> BTreeMap<String, f64> {
    let line = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_owned(), value.trim().strip_suffix(" kB")?.trim().parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_by_name() {
        let read = kilobytes("00400000-7ffe [rollup]\nRss:  100 kB\nPss:   42 kB\nHugePages_Total:  3\n");
        assert_eq!(read, BTreeMap::from([("Rss".to_owned(), 100.0), ("Pss".to_owned(), 42.0)]));
    }
}
