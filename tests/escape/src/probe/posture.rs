//! What a process inside is: its descriptors, environment, privileges, filter and namespaces.

use std::fs;
use std::sync::mpsc;

use cofferdam_testkit::Place;

use super::status_line;
use crate::row::Finding;

pub(super) fn descriptors(place: &Place) -> Finding {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return Finding::Broken("no /proc/self/fd".to_owned()) };
    let open: Vec<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    // The listing itself is open while it is read; it has the lowest free number.
    let more: Vec<&String> = open.iter().filter(|fd| !["0", "1", "2", "3"].contains(&fd.as_str())).collect();
    let listing = fs::read_link("/proc/self/fd/3").ok();
    let cwd = std::env::current_dir().ok();
    if !more.is_empty() || listing.is_some() {
        return Finding::Open(format!("descriptors {open:?}, 3 is {listing:?}"));
    }
    if cwd != Some(place.project()) {
        return Finding::Open(format!("the working directory is {cwd:?}"));
    }
    // A mount stacked on the root is where `/..` ends.
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let roots = table.lines().filter(|line| line.split(' ').nth(4) == Some("/")).count();
    if roots != 1 {
        return Finding::Open(format!("{roots} mounts on the root: `/..` is another place"));
    }
    Finding::Contained("descriptors 0, 1, 2; working directory in the project; one root".to_owned())
}

pub(super) fn code_in_environment() -> Finding {
    const CODE: &[&str] = &[
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "BASH_ENV",
        "ENV",
        "GIT_DIR",
        "GIT_SSH_COMMAND",
        "GIT_EXTERNAL_DIFF",
        "NODE_OPTIONS",
        "PYTHONSTARTUP",
        "PERL5OPT",
        "RUBYOPT",
        "PROMPT_COMMAND",
        "BASH_FUNC_ls%%",
    ];
    let found: Vec<&&str> = CODE.iter().filter(|name| std::env::var_os(name).is_some()).collect();
    if found.is_empty() {
        Finding::Contained(format!("{} variables that carry code are absent", CODE.len()))
    } else {
        Finding::Open(format!("{found:?} came along"))
    }
}

/// No environment that can be read here holds the canary: not ours, not pid 1's.
pub(super) fn secrets_in_environments() -> Finding {
    // Put together here, so that this program's own text is no match.
    let canary = ["canary", "of", "the", "host"].join("-");
    let mut seen = 0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
        seen += 1;
        if environment.windows(canary.len()).any(|part| part == canary.as_bytes()) {
            return Finding::Open(format!("the canary is in {}", entry.path().display()));
        }
    }
    if seen == 0 {
        Finding::Broken("no environment could be read".to_owned())
    } else {
        Finding::Contained(format!("absent in {seen} environments"))
    }
}

/// Namespaces differ from those of the launcher, whose links lie in the project, and the filter is on.
pub(super) fn same_everywhere(place: &Place) -> Finding {
    let Ok(host) = fs::read_to_string(place.project().join("host-namespaces")) else {
        return Finding::Broken("the launcher's namespaces are unknown".to_owned());
    };
    let shared: Vec<&str> = host
        .lines()
        .filter(|link| {
            let kind = link.split(':').next().unwrap_or("");
            fs::read_link(format!("/proc/self/ns/{kind}")).is_ok_and(|own| own.to_string_lossy() == **link)
        })
        .collect();
    let filter = status_line("/proc/self/status", "Seccomp");
    if filter.as_deref() != Some("2") {
        return Finding::Open(format!("Seccomp: {filter:?}"));
    }
    if !shared.is_empty() {
        return Finding::Open(format!("shares {shared:?} with the host"));
    }
    Finding::Contained(format!("Seccomp: 2, {} namespaces of its own", host.lines().count()))
}

pub(super) fn no_new_privileges() -> Finding {
    let set = status_line("/proc/self/status", "NoNewPrivs");
    if set.as_deref() != Some("1") {
        return Finding::Open(format!("NoNewPrivs: {set:?}"));
    }
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let count = table.lines().count();
    let honoured = table.lines().find(|line| !line.split(' ').nth(5).unwrap_or("").split(',').any(|o| o == "nosuid"));
    match honoured {
        Some(line) => Finding::Open(format!("set-user-ID bits count on {line}")),
        None => Finding::Contained(format!("NoNewPrivs: 1, nosuid on {count} mounts")),
    }
}

pub(super) fn capabilities() -> Finding {
    let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let kept: Vec<String> = sets
        .iter()
        .filter_map(|set| {
            let value = status_line("/proc/self/status", set).unwrap_or_default();
            (value.bytes().any(|b| b != b'0') || value.is_empty()).then(|| format!("{set} {value}"))
        })
        .collect();
    if kept.is_empty() { Finding::Contained("five sets are empty".to_owned()) } else { Finding::Open(kept.join(", ")) }
}

/// Every thread and every process that can be seen carries the same filter.
pub(super) fn threads() -> Finding {
    let (stop, stops): (Vec<_>, Vec<_>) = (0..8).map(|_| mpsc::channel::<()>()).unzip();
    let threads: Vec<_> = stops.into_iter().map(|stop| std::thread::spawn(move || stop.recv().is_ok())).collect();
    let mut seen = 0;
    let mut open = Vec::new();
    let processes = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()));
    for task in processes.flat_map(|process| fs::read_dir(process.path().join("task")).into_iter().flatten().flatten())
    {
        let status = task.path().join("status").to_string_lossy().into_owned();
        let posture = ["Seccomp", "NoNewPrivs", "CapEff"].map(|name| status_line(&status, name).unwrap_or_default());
        seen += 1;
        if posture != ["2", "1", "0000000000000000"] {
            open.push(format!("{status} {posture:?}"));
        }
    }
    drop(stop);
    let ended = threads.into_iter().filter_map(|thread| thread.join().ok()).count();
    if open.is_empty() && seen >= 10 && ended == 8 {
        Finding::Contained(format!("same posture on {seen} threads"))
    } else {
        Finding::Open(format!("{} of {seen} threads differ: {}", open.len(), open.first().cloned().unwrap_or_default()))
    }
}
