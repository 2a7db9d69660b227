//! Processes of the host, pid 1, and what this process is.

use std::fs::{self, OpenOptions};
use std::time::Duration;

use cofferdam_kernel::{attempt, process};
use rustix::process::{Pid, Signal};

use super::{Attempts, files};
use crate::answer::Answer;
use crate::canaries::{CODE_VARIABLES, SECRET_VARIABLES};
use crate::errand::Errand;
use crate::scratch::contains;

pub(super) fn read(errand: &Errand) -> Answer {
    match fs::read(format!("/proc/{}/cmdline", errand.process)) {
        Ok(text) if contains(&text, &errand.token) => Answer::Reached("its command line was read".to_owned()),
        Ok(_) => Answer::Refused("that number is another process here".to_owned()),
        Err(error) => Answer::Refused(format!("its command line: {error}")),
    }
}

pub(super) fn end(errand: &Errand) -> Answer {
    let number = i32::try_from(errand.process).ok().and_then(Pid::from_raw);
    // Inside, low numbers are processes of this session.
    let Some(process) = number.filter(|_| errand.process > 64) else {
        return Answer::Unclear("its number is one that this session has as well".to_owned());
    };
    let mut attempts = Attempts::default();
    attempts.add("SIGTERM", rustix::process::kill_process(process, Signal::TERM).map_err(Into::into));
    attempts.answer()
}

pub(super) fn trace(errand: &Errand) -> Answer {
    let mut attempts = Attempts::default();
    attempts.add("PTRACE_SEIZE", attempt::trace(errand.process).map_err(Into::into));
    attempts.answer()
}

pub(super) fn open(directory: &str, traced: Option<u32>) -> Answer {
    let mut attempts = Attempts::default();
    let memory = format!("{directory}/mem");
    attempts.add(&memory, OpenOptions::new().read(true).write(true).open(&memory));
    let variables = format!("{directory}/environ");
    attempts.add(&variables, fs::File::open(&variables));
    let root = format!("{directory}/root");
    attempts.add(&root, fs::read_link(&root));
    if let Some(traced) = traced {
        attempts.add("PTRACE_SEIZE", attempt::trace(traced).map_err(Into::into));
    }
    attempts.answer()
}

/// Leaves a process that would leave a mark later.
pub(super) fn outlive(errand: &Errand) -> Answer {
    let mark = errand.scratch().project().join("outlived");
    match process::fork() {
        Ok(Some(_)) => Answer::Refused("a process was left behind".to_owned()),
        Ok(None) => {
            let own_session = rustix::process::setsid().is_ok();
            std::thread::sleep(Duration::from_millis(400));
            let marked = own_session && fs::write(mark, "").is_ok();
            process::exit_now(i32::from(!marked))
        }
        Err(errno) => Answer::Unclear(format!("no process could be made: {errno}")),
    }
}

pub(super) fn inherited_descriptors(errand: &Errand) -> Answer {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return Answer::Unclear("no /proc/self/fd".to_owned()) };
    let targets = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    let canary = errand.scratch().canary();
    let targets: Vec<_> = targets.collect();
    if targets.contains(&canary) {
        Answer::Reached("a descriptor of the canary came along".to_owned())
    } else {
        Answer::Refused(format!("{} descriptors, none of them the canary's", targets.len()))
    }
}

fn variables(errand: &Errand, names: &[&str]) -> Answer {
    let has_token = |name: &&&str| std::env::var(name).is_ok_and(|value| value.contains(&errand.token));
    let found: Vec<&str> = names.iter().filter(has_token).copied().collect();
    if found.is_empty() {
        Answer::Refused(format!("{} are absent", names.join(", ")))
    } else {
        Answer::Reached(format!("{} came along", found.join(", ")))
    }
}

pub(super) fn secrets_in_environment(errand: &Errand) -> Answer {
    variables(errand, SECRET_VARIABLES)
}

pub(super) fn code_in_environment(errand: &Errand) -> Answer {
    variables(errand, CODE_VARIABLES)
}

/// Reached if one of the namespaces is that of the host, but for those that need not be others.
pub(super) fn namespaces(errand: &Errand, unasked: &[&str]) -> Answer {
    let kind_of = |link: &str| link.split(':').next().unwrap_or_default().to_owned();
    let asked: Vec<&String> =
        errand.namespaces.iter().filter(|link| !unasked.contains(&kind_of(link).as_str())).collect();
    let is_shared = |link: &&&String| {
        let own = fs::read_link(format!("/proc/self/ns/{}", kind_of(link)));
        own.is_ok_and(|own| own.to_string_lossy() == link.as_str())
    };
    let shared: Vec<&str> = asked.iter().filter(is_shared).map(|link| link.as_str()).collect();
    match (asked.is_empty(), shared.is_empty()) {
        (true, _) => Answer::Unclear("the namespaces of the host are not known".to_owned()),
        (false, true) => Answer::Refused(format!("{} namespaces are others", asked.len())),
        (false, false) => Answer::Reached(format!("shared with the host: {}", shared.join(", "))),
    }
}

/// A line of this thread's status.
fn status(name: &str) -> String {
    let text = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_default().trim().to_owned()
}

pub(super) fn no_new_privileges() -> Answer {
    let set = status("NoNewPrivs");
    if set != "1" {
        return Answer::Reached(format!("NoNewPrivs: {set}"));
    }
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let counts = |line: &&str| !line.split(' ').nth(5).unwrap_or_default().split(',').any(|option| option == "nosuid");
    match table.lines().find(counts) {
        Some(line) => Answer::Reached(format!("set-user-ID bits count on {line}")),
        None => Answer::Refused(format!("NoNewPrivs: 1, nosuid on {} mounts", table.lines().count())),
    }
}

pub(super) fn capabilities() -> Answer {
    let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map(|set| (set, status(set)));
    let kept: Vec<String> = sets
        .iter()
        .filter(|(_, value)| value.is_empty() || value.bytes().any(|digit| digit != b'0'))
        .map(|(set, value)| format!("{set} {value}"))
        .collect();
    if kept.is_empty() { Answer::Refused("five empty sets".to_owned()) } else { Answer::Reached(kept.join(", ")) }
}

pub(super) fn filter_of_threads() -> Answer {
    let own = status("Seccomp");
    let other = std::thread::spawn(|| status("Seccomp")).join().unwrap_or_default();
    if own == "2" && other == "2" {
        Answer::Refused("Seccomp: 2 in two threads".to_owned())
    } else {
        Answer::Reached(format!("Seccomp: {own}, {other} in a second thread"))
    }
}

/// What isolation `process` promises: all but network, host name and cgroup view of its own.
pub(super) fn walls_of_process(errand: &Errand) -> Answer {
    let parts = [
        no_new_privileges(),
        capabilities(),
        filter_of_threads(),
        namespaces(errand, &["net", "uts", "cgroup"]),
        files::read_home_secrets(errand),
    ];
    let mut held = Vec::new();
    for part in parts {
        match part {
            Answer::Refused(text) => held.push(text),
            other => return other,
        }
    }
    Answer::Refused(held.join("; "))
}
