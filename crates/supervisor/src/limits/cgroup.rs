//! The session's cgroup: making it with its limits before anything runs in
//! it, ending every process in it, removing it. Owns the layout on the host; which limits is `plan`'s. Where is found by
//! `host::cgroup_home`. Called by `launch`.
//!
//! ```text
//!   a cgroup that is this user's        (Delegated)      scope of the service manager   (Scope)
//!     |- where this process is                             |- supervisor
//!     '- cofferdam-<session>                               '- cofferdam-<session>
//! ```

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_host::cgroup_home::{mounted, words};
use cofferdam_kernel::best_effort;
use cofferdam_kernel::cgroup::Cgroup;
use cofferdam_plan::{CgroupHome, CgroupPlan};
use rustix::io::Errno;

use crate::limits::systemd_scope;
use crate::store::lock::Claim;

pub(crate) const PREFIX: &str = "cofferdam-";
const OWN_LEAF: &str = "supervisor";
/// How often a cgroup is made again that another supervisor swept away.
const MOST_TRIES: u32 = 20;
/// The last process of a session leaves its cgroup a moment after it was collected.
const PATIENCE: Duration = Duration::from_millis(200);
/// A sweeper removes one directory, but may have to wait for a processor.
const SWEEPING: Duration = Duration::from_secs(5);

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
    /// Makes it and writes its limits; no process is in it yet.
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
    let entered = systemd_scope::enter(&format!("{PREFIX}{session}"), "Cofferdam session", environment);
    let below = entered.map_err(|error| CgroupError { what: error.in_full(), errno: error.errno() })?;
    let (mount, _) = mounted().ok_or(CgroupError { what: "cgroup v2".to_owned(), errno: Errno::NOENT })?;
    Ok(mount.join(below))
}

/// A supervisor that sweeps may take a new cgroup for a leftover until it is claimed: then it is made again.
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
    // 0 is the process that writes.
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
