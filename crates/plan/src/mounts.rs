//! Decisions about paths become mounts: masks over secrets, binds for grants, stand-ins for names that must not appear.
//! Owns the order (parents before children) and the pinning of parents; knows nothing of how a mount is made.
//! Called by `plan()`.

use std::path::{Path, PathBuf};

use cofferdam_policy::{Access, Hold as HoldRule, Stand};

use crate::PlanError;
use crate::facts::{HostFacts, Kind, PathFact};
use crate::rules::Decision;
use crate::step::{Hold, HoldKind, Mount, MountKind, Step};

/// Private file systems that cover what the host has there.
const PRIVATE: &[&str] = &["/tmp", "/var/tmp", "/run"];
const OWN: &[&str] = &["/proc", "/sys", "/dev"];

/// Files of /proc that say too much about the host or change it.
pub(crate) const PROC_MASKED: &[(&str, Kind)] = &[
    ("/proc/acpi", Kind::Directory),
    ("/proc/scsi", Kind::Directory),
    ("/proc/kcore", Kind::File),
    ("/proc/keys", Kind::File),
    ("/proc/key-users", Kind::File),
    ("/proc/kallsyms", Kind::File),
    ("/proc/kmsg", Kind::File),
    ("/proc/latency_stats", Kind::File),
    ("/proc/sched_debug", Kind::File),
    ("/proc/sysrq-trigger", Kind::File),
    ("/proc/timer_list", Kind::File),
    ("/proc/interrupts", Kind::File),
    ("/proc/kpagecgroup", Kind::File),
    ("/proc/kpagecount", Kind::File),
    ("/proc/kpageflags", Kind::File),
    ("/proc/slabinfo", Kind::File),
    ("/proc/vmallocinfo", Kind::File),
];

/// Directories of /proc whose files are switches of the whole machine.
pub(crate) const PROC_SEALED: &[&str] = &["/proc/sys", "/proc/bus", "/proc/fs", "/proc/irq"];

/// What programs read in /sys to size themselves; the rest of it describes the host.
pub(crate) const SYS_SHOWN: &[&str] = &["/sys/devices/system/cpu", "/sys/devices/system/node"];

const DEVICES: &[(&str, u32, u32)] =
    &[("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

/// Paths whose existence the survey reports in `HostFacts::system`.
pub fn system_candidates() -> impl Iterator<Item = &'static str> {
    PRIVATE
        .iter()
        .chain(OWN)
        .copied()
        .chain(PROC_MASKED.iter().map(|(path, _)| *path))
        .chain(PROC_SEALED.iter().copied())
        .chain(SYS_SHOWN.iter().copied())
}

fn mount(target: impl Into<PathBuf>, kind: MountKind, why: &str) -> Step {
    Step::Mount(Mount { target: target.into(), kind, create: None, why: why.to_owned() })
}

fn make(target: impl Into<PathBuf>, kind: MountKind, create: Kind, why: &str) -> Step {
    Step::Mount(Mount { target: target.into(), kind, create: Some(create), why: why.to_owned() })
}

/// /proc, /sys, /dev and the temporary directories of the sandbox.
pub(crate) fn system(facts: &HostFacts, tmp_size: u64, exec: bool) -> Vec<Step> {
    let exists = |path: &str| facts.system.iter().any(|p| p == Path::new(path));
    let mut steps = vec![mount("/proc", MountKind::Proc, "the sandbox's processes only")];
    for path in PROC_SEALED.iter().filter(|p| exists(p)) {
        steps.push(mount(*path, MountKind::Seal, "switches of the whole machine"));
    }
    for (path, kind) in PROC_MASKED.iter().filter(|(p, _)| exists(p)) {
        let mask = if *kind == Kind::Directory { MountKind::Empty { inside: Vec::new() } } else { MountKind::Refused };
        steps.push(mount(*path, mask, "describes or changes the host's kernel"));
    }
    if exists("/sys") {
        let shown: Vec<&str> = SYS_SHOWN.iter().copied().filter(|p| exists(p)).collect();
        let inside = shown.iter().map(|p| (PathBuf::from(p.trim_start_matches("/sys/")), Kind::Directory)).collect();
        steps.push(mount("/sys", MountKind::Empty { inside }, "describes the host"));
        for path in shown {
            let bind = MountKind::Bind { source: path.into(), id: None, write: false, exec: false };
            steps.push(mount(path, bind, "programs size themselves by it"));
        }
    }
    steps.extend(devices());
    for path in PRIVATE.iter().filter(|p| exists(p)) {
        let mode = if *path == "/run" { 0o755 } else { 0o1777 };
        steps.push(mount(*path, MountKind::Tmpfs { mode, size: tmp_size, exec }, "private"));
    }
    if exists("/run") {
        steps.push(Step::MakeDirectory { at: "/run/user".into(), mode: 0o755 });
        steps.push(Step::MakeDirectory { at: format!("/run/user/{}", facts.uid).into(), mode: 0o700 });
        steps.push(Step::MakeDirectory { at: "/run/lock".into(), mode: 0o1777 });
    }
    steps
}

fn devices() -> Vec<Step> {
    let mut steps =
        vec![mount("/dev", MountKind::Tmpfs { mode: 0o755, size: 1 << 16, exec: false }, "minimal devices")];
    for (name, major, minor) in DEVICES {
        let device = MountKind::Device { major: *major, minor: *minor };
        steps.push(make(format!("/dev/{name}"), device, Kind::File, "harmless device"));
    }
    steps.push(make("/dev/pts", MountKind::Devpts, Kind::Directory, "own terminals"));
    steps.push(make("/dev/shm", MountKind::Tmpfs { mode: 0o1777, size: 0, exec: false }, Kind::Directory, "private"));
    for (at, to) in [
        ("/dev/ptmx", "pts/ptmx"),
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
    ] {
        steps.push(Step::Link { at: at.into(), to: to.into() });
    }
    steps
}

/// What surrounds a decision's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Around {
    ReadOnly,
    Private,
    Denied,
    Overlaid,
    Writable,
}

/// The mounts for the policy's decisions, in order, and the names to hold.
pub(crate) struct FileMounts {
    pub(crate) steps: Vec<Step>,
    pub(crate) holds: Vec<Hold>,
    pub(crate) overlays: usize,
}

pub(crate) fn files(decisions: &[Decision], exec: bool) -> Result<FileMounts, PlanError> {
    let mut out = FileMounts { steps: Vec::new(), holds: Vec::new(), overlays: 0 };
    let mut mounted: Vec<PathBuf> = Vec::new();
    for decision in decisions {
        refuse_own_area(decision)?;
        let around = around(decisions, &decision.path);
        let why = format!(
            "{}{}",
            decision.origin,
            if decision.reason.is_empty() { String::new() } else { format!(" ({})", decision.reason) }
        );
        let Some((target, kind)) = mount_for(decision, decisions, around, exec, &mut out) else { continue };
        if decision.access == Access::Protect && around == Around::Writable {
            pin_parents(&target, decisions, &mut mounted, &mut out.steps, exec);
        }
        if mounted.contains(&target) {
            // Two missing names below one missing directory are held by one stand-in.
            continue;
        }
        let create = (around == Around::Private).then_some(match decision.fact {
            PathFact::Present { kind, .. } => kind,
            PathFact::Missing { .. } => Kind::Directory,
        });
        mounted.push(target.clone());
        out.steps.push(Step::Mount(Mount { target, kind, create, why }));
    }
    Ok(out)
}

fn refuse_own_area(decision: &Decision) -> Result<(), PlanError> {
    let own = OWN.iter().find(|area| decision.path.starts_with(area));
    match own {
        Some(area) if decision.access != Access::Deny => Err(PlanError::OwnArea {
            path: decision.path.clone(),
            area: area.trim_start_matches('/'),
            origin: decision.origin.clone(),
        }),
        _ => Ok(()),
    }
}

fn around(decisions: &[Decision], path: &Path) -> Around {
    let enclosing = decisions
        .iter()
        .filter(|d| d.path != path && path.starts_with(&d.path) && matches!(d.fact, PathFact::Present { .. }))
        .max_by_key(|d| d.path.as_os_str().len());
    match enclosing.map(|d| d.access) {
        Some(Access::Deny) => Around::Denied,
        Some(Access::Protect | Access::Read) => Around::ReadOnly,
        Some(Access::Overlay) => Around::Overlaid,
        Some(Access::Write) => Around::Writable,
        None if PRIVATE.iter().chain(OWN).any(|area| path.starts_with(area)) => Around::Private,
        None => Around::ReadOnly,
    }
}

/// The mount that a decision needs where it stands, or none where its surroundings already give the answer.
fn mount_for(
    decision: &Decision,
    decisions: &[Decision],
    around: Around,
    exec: bool,
    out: &mut FileMounts,
) -> Option<(PathBuf, MountKind)> {
    let path = decision.path.clone();
    let (kind, id) = match &decision.fact {
        PathFact::Missing { first, .. } => return hold(decision, first, around, out),
        PathFact::Present { kind, id, .. } => (*kind, *id),
    };
    let bind = |write| MountKind::Bind { source: path.clone(), id: Some(id), write, exec };
    match (decision.access, around) {
        (Access::Deny, Around::Denied | Around::Private) => None,
        (Access::Deny, _) if kind == Kind::Directory => {
            Some((path.clone(), MountKind::Empty { inside: grants_below(decisions, &path) }))
        }
        (Access::Deny, _) => match &decision.stand {
            Stand::Refuse => Some((path, MountKind::Refused)),
            Stand::Text(text) => Some((path, MountKind::Text(text.clone()))),
        },
        // Protecting is about writes: it never uncovers what is hidden.
        (Access::Protect, Around::Denied) | (Access::Read | Access::Protect, Around::ReadOnly) => None,
        (Access::Read | Access::Protect, _) => Some((path.clone(), bind(false))),
        (Access::Write, Around::Writable) => None,
        (Access::Write, _) => Some((path.clone(), bind(true))),
        (Access::Overlay, _) => {
            let slot = out.overlays;
            out.overlays += 1;
            Some((path.clone(), MountKind::Overlay { lower: path, id, slot }))
        }
    }
}

/// A missing protected name inside a writable directory: the supervisor makes a stand-in, and an empty read-only mount covers it.
fn hold(decision: &Decision, first: &Path, around: Around, out: &mut FileMounts) -> Option<(PathBuf, MountKind)> {
    if around != Around::Writable {
        return None;
    }
    // A file can stand in only for the name itself, not for a directory on the way to it.
    let (kind, mount) = match &decision.hold {
        HoldRule::Nothing => return None,
        HoldRule::File(text) if first == decision.path => {
            (HoldKind::File(text.to_string()), MountKind::Text(text.to_string()))
        }
        HoldRule::Directory | HoldRule::File(_) => (HoldKind::Directory, MountKind::Empty { inside: Vec::new() }),
    };
    if !out.holds.iter().any(|h| h.path == first) {
        out.holds.push(Hold { path: first.to_path_buf(), kind });
    }
    Some((first.to_path_buf(), mount))
}

/// Mount points that a denied directory must offer, relative to it.
fn grants_below(decisions: &[Decision], denied: &Path) -> Vec<(PathBuf, Kind)> {
    decisions
        .iter()
        .filter(|d| !matches!(d.access, Access::Deny | Access::Protect) && d.path != denied)
        .filter(|d| {
            decisions
                .iter()
                .filter(|a| a.path != d.path && d.path.starts_with(&a.path))
                .max_by_key(|a| a.path.as_os_str().len())
                .is_some_and(|a| a.path == denied)
        })
        .filter_map(|d| match d.fact {
            PathFact::Present { kind, .. } => Some((d.path.strip_prefix(denied).ok()?.to_path_buf(), kind)),
            PathFact::Missing { .. } => None,
        })
        .collect()
}

/// A directory that holds a protected name can be renamed away and replaced, unless it is a mount point itself.
fn pin_parents(target: &Path, decisions: &[Decision], mounted: &mut Vec<PathBuf>, steps: &mut Vec<Step>, exec: bool) {
    let root = decisions
        .iter()
        .filter(|d| d.access == Access::Write && d.path != target && target.starts_with(&d.path))
        .max_by_key(|d| d.path.as_os_str().len());
    let Some(root) = root else { return };
    let mut parents: Vec<&Path> =
        target.ancestors().skip(1).take_while(|p| *p != root.path && p.starts_with(&root.path)).collect();
    parents.reverse();
    for parent in parents {
        if !mounted.iter().any(|m| m == parent) {
            mounted.push(parent.to_path_buf());
            let bind = MountKind::Bind { source: parent.to_path_buf(), id: None, write: true, exec };
            steps.push(mount(parent, bind, "cannot be renamed: something protected lies below"));
        }
    }
}
