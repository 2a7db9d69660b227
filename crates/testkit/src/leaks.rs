//! Nothing may be left behind: no process, no namespace, no mount, no cgroup, no stand-in, no session directory. Owns the
//! looking; tests that run a sandbox in a directory of their own call it after each run. Tests run side by side, so what is
//! found is told apart by the test's directory: on a command line, or in a table of mounts.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Place;

/// Modes of the stand-ins that the launcher makes (docs/decisions/0003). A test's directory has nothing else with such a mode, so
/// that here, and only here, looks are enough: a stand-in that no record names is found, too.
const STAND_INS: [u32; 2] = [0o1700, 0o1400];

/// Names that a socket node stands in for.
const NODES: [&str; 3] = ["commondir", "objects", "refs"];

/// What may still be on its way out when the command has returned (docs/decisions/0014); long for a busy machine's sake.
const PATIENCE: Duration = Duration::from_secs(5);

/// What sessions in a scene left of themselves, in words; empty is what every test wants.
pub fn find(place: &Place) -> Vec<String> {
    find_in(place.root(), &place.home())
}

/// The same for a directory of any shape, and a home in it.
pub fn find_in(root: &Path, home: &Path) -> Vec<String> {
    gone_within(PATIENCE, || look(root, home))
}

fn look(root: &Path, home: &Path) -> Vec<String> {
    let mut found: Vec<String> = processes_of(root).into_iter().map(Process::words).collect();
    found.extend(mounts(root).into_iter().map(|mount| format!("mount {mount}")));
    found.extend(empty_cgroups().iter().map(|path| format!("cgroup {}", path.display())));
    stand_ins(root, &mut found);
    for (directory, what) in [("sessions", "session"), ("holds", "record of stand-ins")] {
        let directory = home.join(".local/state/cofferdam").join(directory);
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            found.push(format!("{what} {}", entry.path().display()));
        }
    }
    found
}

/// What `look` finds every time until `patience` is over.
fn gone_within<T: PartialEq>(patience: Duration, look: impl Fn() -> Vec<T>) -> Vec<T> {
    let end = Instant::now() + patience;
    let mut found = look();
    while !found.is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
        let now = look();
        found.retain(|item| now.contains(item));
    }
    found
}

/// A process of a scene.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: u32,
    /// It is in a mount namespace in which the scene is mounted: inside a sandbox, whatever it executed.
    inside: bool,
}

impl Process {
    fn words(self) -> String {
        let namespace = fs::read_link(format!("/proc/{}/ns/mnt", self.pid)).unwrap_or_default();
        let inside = if self.inside { format!(" in the namespace {}", namespace.display()) } else { String::new() };
        format!("process {}{inside}", self.pid)
    }
}

/// Processes of the scene that are still alive once `patience` is over.
pub fn processes_within(place: &Place, patience: Duration) -> Vec<u32> {
    gone_within(patience, || processes(place))
}

/// Everything that runs for a scene.
pub fn processes(place: &Place) -> Vec<u32> {
    processes_of(place.root()).iter().map(|process| process.pid).collect()
}

/// What launches has the scene's path on its command line, and so has pid 1; what the command starts may have any command
/// line, but cannot leave a mount namespace in which the scene's project is mounted. The kernel shows both files even of
/// processes that cannot be traced.
fn processes_of(root: &Path) -> Vec<Process> {
    let marker = root.as_os_str().as_bytes();
    let own = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let look = |pid: u32| {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let table = read("mountinfo");
        let inside = table != own && names(&table, marker);
        (inside || names(&read("cmdline"), marker)).then_some(Process { pid, inside })
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(look).collect()
}

/// Whether a text has a path in it, or one below it: `/a/b-1` is not in `/a/b-12`.
fn names(text: &[u8], path: &[u8]) -> bool {
    let ends = |at: usize| !text.get(at + path.len()).is_some_and(u8::is_ascii_alphanumeric);
    text.windows(path.len()).enumerate().any(|(at, part)| part == path && ends(at))
}

/// Mounts of this namespace that have to do with the scene, and namespaces that are kept alive by a mount.
fn mounts(root: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let ours = |line: &&str| names(line.as_bytes(), root.as_os_str().as_bytes()) || line.contains(" - nsfs ");
    table.lines().filter(ours).map(str::to_owned).collect()
}

/// Cgroups of sessions in which no process is and that no supervisor holds: those of sessions that run beside this test
/// are held.
fn empty_cgroups() -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(own) = own.lines().find_map(|line| line.strip_prefix("0::/")) else { return Vec::new() };
    let mut found = Vec::new();
    for mount in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new) {
        if mount.join("cgroup.controllers").exists() {
            // A session's cgroup lies below that of its supervisor, or beside it.
            let own = mount.join(own);
            let parent = own.parent().filter(|parent| parent.starts_with(mount)).unwrap_or(&own);
            collect_empty_cgroups(parent, 3, &mut found);
        }
    }
    found
}

fn collect_empty_cgroups(directory: &Path, levels: usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        let events = fs::read_to_string(path.join("cgroup.events")).unwrap_or_default();
        if entry.file_name().as_bytes().starts_with(b"cofferdam-")
            && events.contains("populated 0")
            && is_unclaimed(&path)
        {
            found.push(path);
        } else if levels > 0 {
            collect_empty_cgroups(&path, levels - 1, found);
        }
    }
}

fn is_unclaimed(cgroup: &Path) -> bool {
    fs::File::open(cgroup).is_ok_and(|directory| directory.try_lock_shared().is_ok())
}

fn stand_ins(path: &Path, found: &mut Vec<String>) {
    let Ok(metadata) = path.symlink_metadata() else { return };
    let is_node = metadata.file_type().is_socket() && NODES.iter().any(|name| path.ends_with(name));
    if is_node || !metadata.is_symlink() && STAND_INS.contains(&(metadata.permissions().mode() & 0o7777)) {
        found.push(format!("stand-in {}", path.display()));
    }
    // Where they wait for their next use.
    if metadata.is_dir() && !path.ends_with("cofferdam/stand-ins") {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            stand_ins(&entry.path(), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_path_is_found_where_it_ends_or_goes_on_below() {
        for text in ["/a/b-1", "/a/b-1/c", "x\0/a/b-1\0y", "32 1 /a/b-1/home /x - ext4"] {
            assert!(names(text.as_bytes(), b"/a/b-1"), "{text}");
        }
        for text in ["/a/b-12", "/a/b", ""] {
            assert!(!names(text.as_bytes(), b"/a/b-1"), "{text}");
        }
    }
}
