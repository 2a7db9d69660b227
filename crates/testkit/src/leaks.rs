//! Nothing may be left behind: no process, no mount, no stand-in, no session directory, no cgroup. Owns the looking; tests that run
//! a sandbox in a scene call it after each run.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::{Place, Report};

/// How the launcher marks the stand-ins it makes (docs/decisions/0003).
const STAND_INS: [u32; 2] = [0o1700, 0o1400];

/// What a session left of itself, in words; empty is what everybody wants.
pub fn find(place: &Place) -> Vec<String> {
    let mut found: Vec<String> =
        processes_within(place, Duration::from_secs(1)).iter().map(|pid| format!("process {pid}")).collect();
    found.extend(mounts(place.root()).into_iter().map(|mount| format!("mount {mount}")));
    stand_ins(place.root(), &mut found);
    let sessions = place.home().join(".local/state/cofferdam/sessions");
    for entry in fs::read_dir(sessions).into_iter().flatten().flatten() {
        found.push(format!("session {}", entry.path().display()));
    }
    let report = fs::read_to_string(place.report()).ok().and_then(|text| Report::parse(&text));
    let cgroup = report.and_then(|report| report.cgroup).filter(|cgroup| cgroup.exists());
    found.extend(cgroup.map(|cgroup| format!("cgroup {}", cgroup.display())));
    found
}

/// Processes of the scene that are still alive once `patience` is over.
pub fn processes_within(place: &Place, patience: Duration) -> Vec<u32> {
    let end = Instant::now() + patience;
    loop {
        let alive = processes(place);
        if alive.is_empty() || Instant::now() >= end {
            return alive;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Everything that runs for a scene has the scene's path on its command line: pid 1 that of its launcher, the command
/// that of its probe. The kernel shows command lines even of processes that cannot be traced.
pub fn processes(place: &Place) -> Vec<u32> {
    let marker = place.root().as_os_str().as_bytes();
    let has_marker = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.windows(marker.len()).any(|part| part == marker)
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(has_marker).collect()
}

fn mounts(root: &Path) -> Vec<String> {
    let root = root.to_string_lossy();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().filter(|line| line.contains(root.as_ref())).map(str::to_owned).collect()
}

fn stand_ins(path: &Path, found: &mut Vec<String>) {
    let Ok(metadata) = path.symlink_metadata() else { return };
    if !metadata.is_symlink() && STAND_INS.contains(&(metadata.permissions().mode() & 0o7777)) {
        found.push(format!("stand-in {}", path.display()));
    }
    // Where they wait for their next use.
    if metadata.is_dir() && !path.ends_with("cofferdam/stand-ins") {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            stand_ins(&entry.path(), found);
        }
    }
}
