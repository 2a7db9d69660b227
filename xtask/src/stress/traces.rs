//! What a sandbox could leave behind, on the whole machine: processes, namespaces, mounts, cgroups, session directories,
//! stand-ins. Owns looking before and after. Whose a process is, is told by descent: this program adopts orphans, so
//! whatever a run started is below it, in whatever namespace and under whatever name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::WaitOptions;

use crate::stress::ground::Ground;

/// How long what has ended may still be on its way out.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
const KINDS: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

/// What was there before the first run.
#[derive(Debug)]
pub(crate) struct Traces {
    mounts: BTreeSet<String>,
    cgroups: BTreeSet<PathBuf>,
    namespaces: BTreeSet<String>,
}

impl Traces {
    pub(crate) fn look(ground: &Ground) -> Self {
        Traces { mounts: mounts(), cgroups: cgroups(), namespaces: namespaces(&marked(&ground.dir)) }
    }

    /// What is there now and was not before, in words.
    pub(crate) fn left(&self, ground: &Ground) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = self.left_now(ground);
            if left.is_empty() || Instant::now() >= end {
                return left;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn left_now(&self, ground: &Ground) -> Vec<String> {
        reap_orphans();
        let mut ours: BTreeSet<u32> = descendants().into_iter().collect();
        ours.extend(marked(&ground.dir));
        let mut left: Vec<String> =
            ours.iter().map(|pid| format!("process {pid} is left: {}", name_of(*pid))).collect();
        let new = namespaces(&ours).difference(&self.namespaces).cloned().collect::<Vec<_>>();
        left.extend(new.into_iter().map(|namespace| format!("the namespace {namespace} is left")));
        left.extend(mounts().difference(&self.mounts).map(|mount| format!("a mount is left: {mount}")));
        left.extend(cgroups().difference(&self.cgroups).map(|path| format!("a cgroup is left: {}", path.display())));
        left.extend(entries(&ground.state().join("sessions")).map(|name| format!("the session {name} is left")));
        // No command of a run writes anything, so whatever is there is a stand-in.
        left.extend(entries(&ground.project()).map(|name| format!("the stand-in {name} is left")));
        left
    }
}

/// Collects children that this program adopted and that have ended. No other thread may wait for children meanwhile.
pub(crate) fn reap_orphans() -> usize {
    let mut count = 0;
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => count += 1,
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return count,
        }
    }
}

/// Everything below this process that has not ended.
pub(crate) fn descendants() -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for pid in pids() {
        if let Some(stat) = Stat::of(pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![std::process::id()];
    while let Some(pid) = next.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        found.extend(&below);
        next.extend(below);
    }
    found
}

/// What `/proc/PID/stat` says.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: u32,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// `pid (name) state ppid ...`; the name may hold anything.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        Some(Stat { state: fields.next()?.chars().next()?, parent: fields.next()?.parse().ok()? })
    }
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Processes with the directory on their command line: a second look, by other means.
fn marked(dir: &Path) -> BTreeSet<u32> {
    let marker = dir.as_os_str().as_bytes();
    let own = std::process::id();
    let is_marked = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        *pid != own && line.windows(marker.len()).any(|part| part == marker)
    };
    pids().filter(is_marked).collect()
}

/// Its state and its command line.
pub(crate) fn name_of(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let state = Stat::of(pid).map_or(' ', |stat| stat.state);
    format!("{state} {}", String::from_utf8_lossy(&line).replace('\0', " ").trim())
}

/// Namespaces of these processes that are not our own. Only root sees those of processes that cannot be traced.
fn namespaces(pids: &BTreeSet<u32>) -> BTreeSet<String> {
    let of = |pid: &str| KINDS.map(|kind| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()).into_iter().flatten();
    let own: BTreeSet<PathBuf> = of("self").collect();
    let theirs = pids.iter().flat_map(|pid| of(&pid.to_string()));
    theirs.filter(|link| !own.contains(link)).map(|link| link.display().to_string()).collect()
}

fn mounts() -> BTreeSet<String> {
    fs::read_to_string("/proc/self/mountinfo").unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Cgroups that are called as those of sessions are.
fn cgroups() -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for mount in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new) {
        if mount.join("cgroup.controllers").exists() {
            collect_cgroups(mount, 8, &mut found);
        }
    }
    found
}

fn collect_cgroups(directory: &Path, levels: usize, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && levels > 0 {
            if entry.file_name().as_bytes().starts_with(b"cofferdam-") {
                found.insert(entry.path());
            }
            collect_cgroups(&entry.path(), levels - 1, found);
        }
    }
}

fn entries(directory: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_hide_the_parent() {
        assert_eq!(Stat::parse("12 (a) R 1 (b)) S 7 12 12 0"), Some(Stat { state: 'S', parent: 7 }));
        assert_eq!(Stat::parse("12 (sh"), None);
    }

    #[test]
    fn a_child_is_found_by_descent() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("there is a cat");
        assert!(descendants().contains(&child.id()));
        drop(child.stdin.take());
        child.wait().expect("it is ours");
        assert!(!descendants().contains(&child.id()));
    }
}
