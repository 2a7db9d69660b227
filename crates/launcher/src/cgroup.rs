//! The session's cgroup: finding a place where this user may make one, making it with its limits before anything runs in
//! it, ending everybody in it, removing it. Owns the layout on the host; which limits is `plan`'s. Called by `survey` and `launch`.
//!
//! ```text
//!   a cgroup that is this user's        (Delegated)      scope of the service manager   (Scope)
//!     |- where this process is                             |- supervisor
//!     '- cofferdam-<session>                               '- cofferdam-<session>
//! ```

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_kernel::cgroup::Cgroup;
use cofferdam_plan::{CgroupHome, CgroupPlan};
use rustix::fs::Access;
use rustix::io::Errno;

use crate::claim::Claim;
use crate::message::best_effort;
use crate::scope;

/// Where the hierarchy lies: alone, or beside the old ones.
const MOUNTS: &[&str] = &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// There while systemd runs the machine.
const MANAGER: &str = "/run/systemd/system";
pub(crate) const PREFIX: &str = "cofferdam-";
const OWN_LEAF: &str = "supervisor";
/// How often a cgroup is made again that somebody swept away.
const MOST_TRIES: u32 = 20;
/// The last process of a session leaves its cgroup a moment after it was collected.
const PATIENCE: Duration = Duration::from_millis(200);
/// A sweeper removes one directory, but may have to wait for a processor.
const SWEEPING: Duration = Duration::from_secs(5);

/// Where a session's cgroup could be made.
pub fn cgroup_home(environment: &[(String, String)]) -> CgroupHome {
    find(environment).unwrap_or_else(|why| CgroupHome::None { why })
}

fn find(environment: &[(String, String)]) -> Result<CgroupHome, String> {
    let table = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = table.lines().find_map(|line| line.strip_prefix("0::/"));
    let own = own.filter(|own| !own.contains("..")).ok_or("there is no cgroup v2")?;
    let (mount, root) = mounted().ok_or("no cgroup v2 is mounted below /sys/fs/cgroup")?;
    let available = words(&root.read("cgroup.controllers").unwrap_or_default());
    if !["cpu", "memory", "pids"].iter().any(|name| available.iter().any(|have| have == name)) {
        return Err(format!("cgroup v2 in `{}` has no controller for it", mount.display()));
    }
    let is_managed = Path::new(MANAGER).exists();
    if let Some(home) = delegated(mount, &mount.join(own), is_managed) {
        return Ok(home);
    }
    if is_managed && scope::has_manager(environment) {
        let uid = rustix::process::getuid().as_raw();
        let service = format!("user.slice/user-{uid}.slice/user@{uid}.service");
        let of_manager = if uid == 0 { mount.to_path_buf() } else { mount.join(service) };
        let controllers = list(&of_manager, "cgroup.controllers");
        if !controllers.is_empty() {
            return Ok(CgroupHome::Scope { controllers });
        }
    }
    Err(format!("no cgroup above `{}` is delegated to this user", mount.join(own).display()))
}

fn mounted() -> Option<(&'static Path, Cgroup)> {
    MOUNTS.iter().map(Path::new).find_map(|path| Some((path, Cgroup::open(path).ok()?)))
}

/// The nearest cgroup around this process that is ours to divide.
fn delegated(mount: &Path, own: &Path, is_managed: bool) -> Option<CgroupHome> {
    let ours = |path: &Path| is_writable(path) && (!is_managed || is_given_away(mount, path));
    // Only the root of the hierarchy may have processes and cgroups with limits side by side.
    let above = own.ancestors().skip(usize::from(own != mount)).take_while(|path| path.starts_with(mount));
    for path in above.filter(|path| ours(path)) {
        let mut controllers = list(path, "cgroup.subtree_control");
        if path == mount || list(path, "cgroup.procs").is_empty() {
            controllers = list(path, "cgroup.controllers");
        }
        if !controllers.is_empty() {
            return Some(CgroupHome::Delegated { path: path.to_path_buf(), controllers, alone: false });
        }
    }
    let pid = rustix::process::getpid().as_raw_nonzero().to_string();
    let alone = own != mount && ours(own) && list(own, "cgroup.procs") == [pid];
    let controllers = list(own, "cgroup.controllers");
    (alone && !controllers.is_empty()).then(|| CgroupHome::Delegated {
        path: own.to_path_buf(),
        controllers,
        alone: true,
    })
}

fn is_writable(path: &Path) -> bool {
    let may_write = |path: &Path| rustix::fs::access(path, Access::WRITE_OK).is_ok();
    may_write(path) && may_write(&path.join("cgroup.procs")) && may_write(&path.join("cgroup.subtree_control"))
}

/// Whether the service manager leaves this cgroup to others: it lies in a unit that is marked so. The manager of the
/// user's own units is marked as well, and divides what it has got by itself.
fn is_given_away(mount: &Path, path: &Path) -> bool {
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned).unwrap_or_default();
    let kind = |path: &Path| path.extension().and_then(|kind| kind.to_str()).map(str::to_owned).unwrap_or_default();
    let is_unit = |path: &&Path| ["scope", "service", "slice"].contains(&kind(path).as_str());
    let unit = path.ancestors().take_while(|path| *path != mount).find(is_unit);
    let Some(unit) = unit else { return path != mount };
    if kind(unit) == "slice" || name(unit).starts_with("user@") {
        return false;
    }
    let mut value = [0u8; 4];
    rustix::fs::getxattr(unit, "user.delegate", &mut value).is_ok_and(|length| &value[..length] == b"1")
}

fn list(path: &Path, file: &str) -> Vec<String> {
    words(&std::fs::read_to_string(path.join(file)).unwrap_or_default())
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// What went wrong, and with which file or directory.
#[derive(Debug)]
pub(crate) struct CgroupError {
    pub(crate) what: String,
    pub(crate) errno: Errno,
}

/// A session's cgroup; removed when dropped.
#[derive(Debug)]
pub(crate) struct SessionCgroup {
    home: Cgroup,
    name: String,
    own: Cgroup,
    _claim: Claim,
}

impl SessionCgroup {
    /// Makes it and writes its limits; nobody is in it yet.
    pub(crate) fn create(
        plan: &CgroupPlan,
        session: &str,
        environment: &[(String, String)],
    ) -> Result<Self, CgroupError> {
        let (path, alone) = match &plan.home {
            CgroupHome::Delegated { path, alone, .. } => (path.clone(), *alone),
            CgroupHome::Scope { .. } => (enter_scope(session, environment)?, true),
            CgroupHome::None { why } => return Err(CgroupError { what: why.clone(), errno: Errno::NOTSUP }),
        };
        let about = |what: &str| {
            let what = format!("{}/{what}", path.display());
            move |errno| CgroupError { what, errno }
        };
        let home = Cgroup::open(&path).map_err(about(""))?;
        if alone {
            move_down(&home).map_err(about(OWN_LEAF))?;
        }
        enable(&home, &plan.controllers).map_err(about("cgroup.subtree_control"))?;
        let name = format!("{PREFIX}{session}");
        let (own, claim) = make_claimed(&home, &name).map_err(about(&name))?;
        let made = SessionCgroup { home, name, own, _claim: claim };
        for setting in &plan.settings {
            match made.own.write(setting.file, &setting.value) {
                Err(Errno::NOENT) if setting.if_present => {}
                result => result.map_err(about(&format!("{}/{}", made.name, setting.file)))?,
            }
        }
        Ok(made)
    }

    pub(crate) fn kill(&self) -> Result<(), Errno> {
        self.own.kill()
    }

    pub(crate) fn write(&self, file: &str, text: &str) -> Result<(), Errno> {
        self.own.write(file, text)
    }

    pub(crate) fn read(&self, file: &str) -> Option<String> {
        self.own.read(file).ok()
    }
}

impl AsFd for SessionCgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }
}

impl Drop for SessionCgroup {
    fn drop(&mut self) {
        let end = Instant::now() + PATIENCE;
        while self.home.remove(&self.name) == Err(Errno::BUSY) && Instant::now() < end {
            best_effort(self.own.kill(), "it may be empty by now");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn enter_scope(session: &str, environment: &[(String, String)]) -> Result<PathBuf, CgroupError> {
    let entered = scope::enter(&format!("{PREFIX}{session}"), "Cofferdam session", environment);
    let below = entered.map_err(|error| CgroupError { what: error.in_full(), errno: error.errno() })?;
    let (mount, _) = mounted().ok_or(CgroupError { what: "cgroup v2".to_owned(), errno: Errno::NOENT })?;
    Ok(mount.join(below))
}

/// Whoever sweeps may take a new cgroup for a leftover until it is claimed: then it is made again.
fn make_claimed(home: &Cgroup, name: &str) -> Result<(Cgroup, Claim), Errno> {
    for _ in 0..MOST_TRIES {
        let made = match home.create(name) {
            // Swept between its making and its opening.
            Err(Errno::NOENT | Errno::NODEV) => continue,
            made => made?,
        };
        if let Some(claim) = claim_new(home, name)? {
            return Ok((made, claim));
        }
    }
    Err(Errno::BUSY)
}

/// `None` when a sweeper was first. Removing is left to the sweeper: it removes by name, and if ours were gone already it
/// would hit the one that is made next.
fn claim_new(home: &Cgroup, name: &str) -> Result<Option<Claim>, Errno> {
    let end = Instant::now() + SWEEPING;
    loop {
        match Claim::take(home.as_fd(), Path::new(name)) {
            Ok(Some(claim)) => return Ok(Some(claim)),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_micros(200)),
            Ok(None) => return Err(Errno::BUSY),
            Err(Errno::NOENT | Errno::NODEV) => return Ok(None),
            Err(errno) => return Err(errno),
        }
    }
}

/// Limits can be set only below a cgroup that has no processes itself.
fn move_down(home: &Cgroup) -> Result<(), Errno> {
    let leaf = match home.create(OWN_LEAF) {
        Err(Errno::EXIST) => home.open_below(OWN_LEAF),
        made => made,
    }?;
    // 0 is whoever writes.
    leaf.write("cgroup.procs", "0")
}

fn enable(home: &Cgroup, controllers: &[&str]) -> Result<(), Errno> {
    let enabled = words(&home.read("cgroup.subtree_control")?);
    let missing: Vec<String> = controllers
        .iter()
        .filter(|name| !enabled.iter().any(|have| have == *name))
        .map(|name| format!("+{name}"))
        .collect();
    if missing.is_empty() { Ok(()) } else { home.write("cgroup.subtree_control", &missing.join(" ")) }
}

/// Removes cgroups of sessions that were killed with their supervisor.
pub(crate) fn sweep(plan: &CgroupPlan) {
    let CgroupHome::Delegated { path, .. } = &plan.home else { return };
    let Ok(home) = Cgroup::open(path) else { return };
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        if let Ok(Some(_claim)) = Claim::take(home.as_fd(), Path::new(name)) {
            best_effort(home.remove(name), "a process of it may be ending still; the next session removes it");
        }
    }
}
