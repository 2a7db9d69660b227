//! Decisions about paths become mounts: masks over secrets, binds for grants, stand-ins for names that must not appear.
//! Owns the order (parents before children) and the pinning of parents; knows nothing of how a mount is made.
//! Called by `plan()`.

mod hidden;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cofferdam_policy::decide::index::refuses;
use cofferdam_policy::path::is_at_or_below;
use cofferdam_policy::{Access, Hold as HoldRule, Stand};

use crate::PlanError;
use crate::cover::{Cover, Covered, KeptBy, StandsOn};
use crate::facts::{HostFacts, Kind, PathFact};
use crate::limits::Room;
use crate::rules::Decision;
use crate::step::{Hold, HoldKind, Mount, MountKind, Step, Trigger};

/// Private file systems that cover what the host has there.
const PRIVATE: &[&str] = &["/tmp", "/var/tmp", "/run"];
const OWN: &[&str] = &["/proc", "/sys", "/dev"];

/// Sockets and locks live in /run; nothing but our own nodes in /dev.
const RUN: Room = Room { size: 1 << 26, inodes: 1 << 14 };
const DEV: Room = Room { size: 1 << 16, inodes: 64 };

/// Entries of /proc that say too much about the host or change it. Those marked for root belong to root and nobody else
/// can open them; without capabilities that holds inside too.
pub(crate) const PROC_MASKED: &[(&str, Kind, For)] = &[
    ("/proc/acpi", Kind::Directory, For::All),
    ("/proc/scsi", Kind::Directory, For::All),
    ("/proc/keys", Kind::File, For::All),
    ("/proc/key-users", Kind::File, For::All),
    ("/proc/kallsyms", Kind::File, For::All),
    ("/proc/latency_stats", Kind::File, For::All),
    ("/proc/sched_debug", Kind::File, For::All),
    ("/proc/interrupts", Kind::File, For::All),
    ("/proc/timer_list", Kind::File, For::Root),
    ("/proc/kcore", Kind::File, For::Root),
    ("/proc/kmsg", Kind::File, For::Root),
    ("/proc/sysrq-trigger", Kind::File, For::Root),
    ("/proc/kpagecgroup", Kind::File, For::Root),
    ("/proc/kpagecount", Kind::File, For::Root),
    ("/proc/kpageflags", Kind::File, For::Root),
    ("/proc/slabinfo", Kind::File, For::Root),
    ("/proc/vmallocinfo", Kind::File, For::Root),
];

/// Directories of /proc whose files are switches of the whole machine.
pub(crate) const PROC_SEALED: &[(&str, For)] =
    &[("/proc/sys", For::All), ("/proc/bus", For::Root), ("/proc/fs", For::Root), ("/proc/irq", For::Root)];

/// For whom an entry has to be covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    All,
    Root,
}

/// What programs read in /sys to size themselves; the rest of it describes the host.
pub(crate) const SYS_SHOWN: &[&str] = &["/sys/devices/system/cpu", "/sys/devices/system/node"];

const DEVICES: &[(&str, u32, u32)] =
    &[("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

/// Directories in which the sandbox has a file system of its own.
pub fn own_areas() -> impl Iterator<Item = &'static str> {
    PRIVATE.iter().chain(OWN).copied()
}

/// Whether the host's names mean nothing there, because the sandbox has its own. By parts: a workload or a user may have
/// written the path.
pub fn is_in_own_area(path: &Path) -> bool {
    own_areas().any(|area| path.starts_with(area))
}

/// Paths whose existence the survey reports in `HostFacts::system`.
pub fn system_candidates() -> impl Iterator<Item = &'static str> {
    own_areas().chain(SYS_SHOWN.iter().copied())
}

fn mount(target: impl Into<PathBuf>, kind: MountKind, why: &str) -> Step {
    Step::Mount(Mount { target: target.into(), kind, create: None, if_present: false, why: why.to_owned() })
}

fn if_present(target: impl Into<PathBuf>, kind: MountKind, why: &str) -> Step {
    Step::Mount(Mount { target: target.into(), kind, create: None, if_present: true, why: why.to_owned() })
}

fn make(target: impl Into<PathBuf>, kind: MountKind, create: Kind, why: &str) -> Step {
    Step::Mount(Mount { target: target.into(), kind, create: Some(create), if_present: false, why: why.to_owned() })
}

/// /proc, /sys, /dev and the temporary directories of the sandbox.
pub(crate) fn system(facts: &HostFacts, room: Room, exec: bool, trigger: Option<Trigger>) -> Vec<Step> {
    let exists = |path: &str| facts.system.iter().any(|p| p.as_os_str() == path);
    // On a root without the host's directories every mount point has to be made.
    let bare = trigger == Some(Trigger::Notify);
    let mount = |target: &str, kind, why: &str| {
        if bare { make(target, kind, Kind::Directory, why) } else { mount(target, kind, why) }
    };
    let mut steps = vec![mount("/proc", MountKind::Proc, "the sandbox's processes only")];
    let covers = |who: For| who == For::All || facts.uid == 0;
    for (path, _) in PROC_SEALED.iter().filter(|(_, who)| covers(*who)) {
        steps.push(if_present(*path, MountKind::Seal, "switches of the whole machine"));
    }
    for (path, kind, _) in PROC_MASKED.iter().filter(|(_, _, who)| covers(*who)) {
        let mask = if *kind == Kind::Directory { MountKind::Empty { inside: Vec::new() } } else { MountKind::Refused };
        steps.push(if_present(*path, mask, "describes or changes the host's kernel"));
    }
    if exists("/sys") {
        let shown: Vec<&str> = SYS_SHOWN.iter().copied().filter(|p| exists(p)).collect();
        let inside = shown.iter().map(|p| (PathBuf::from(p.trim_start_matches("/sys/")), Kind::Directory)).collect();
        steps.push(mount("/sys", MountKind::Empty { inside }, "describes the host"));
        for path in shown {
            let bind = MountKind::Bind { source: path.into(), id: None, write: false, exec: false };
            steps.push(self::mount(path, bind, "programs size themselves by it"));
        }
    }
    steps.extend(devices(room, bare));
    for path in PRIVATE.iter().filter(|p| exists(p)) {
        let (mode, room) = if *path == "/run" { (0o755, room.at_most(RUN)) } else { (0o1777, room) };
        let kind = MountKind::Tmpfs { mode, size: room.size, inodes: room.inodes, exec };
        steps.push(mount(path, kind, "private"));
    }
    if exists("/run") {
        steps.push(Step::MakeDirectory { at: "/run/user".into(), mode: 0o755 });
        steps.push(Step::MakeDirectory { at: format!("/run/user/{}", facts.uid).into(), mode: 0o700 });
        steps.push(Step::MakeDirectory { at: "/run/lock".into(), mode: 0o1777 });
    }
    steps
}

fn devices(room: Room, bare: bool) -> Vec<Step> {
    let Room { size, inodes } = DEV;
    let dev = MountKind::Tmpfs { mode: 0o755, size, inodes, exec: false };
    let why = "minimal devices";
    let mut steps = vec![if bare { make("/dev", dev, Kind::Directory, why) } else { mount("/dev", dev, why) }];
    for (name, major, minor) in DEVICES {
        let device = MountKind::Device { major: *major, minor: *minor };
        steps.push(make(format!("/dev/{name}"), device, Kind::File, "harmless device"));
    }
    steps.push(make("/dev/pts", MountKind::Devpts, Kind::Directory, "own terminals"));
    let Room { size, inodes } = room;
    let shm = MountKind::Tmpfs { mode: 0o1777, size, inodes, exec: false };
    steps.push(make("/dev/shm", shm, Kind::Directory, "private"));
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
    /// Nothing is there until it is granted.
    Unknown,
}

/// The mounts for the policy's decisions, in order, and the names to hold.
pub(crate) struct FileMounts {
    pub(crate) steps: Vec<Step>,
    pub(crate) holds: Vec<Hold>,
    pub(crate) overlays: usize,
    pub(crate) covers: Vec<Cover>,
    /// Directories of the host's tree with hidden names, where that tree is the root; they come before everything else.
    pub(crate) trees: Vec<Step>,
    mounted: BTreeSet<PathBuf>,
    exec: bool,
    trigger: Option<Trigger>,
}

/// `decisions` are sorted, so what encloses one has come before it and what lies below follows it directly.
pub(crate) fn files(
    decisions: &[Decision],
    exec: bool,
    trigger: Option<Trigger>,
    programs: Vec<Step>,
) -> Result<FileMounts, PlanError> {
    let (steps, holds, mounted) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut out =
        FileMounts { steps, holds, overlays: 0, covers: Vec::new(), trees: Vec::new(), mounted, exec, trigger };
    // Where nothing is given around a program, it comes first: what hides parts of its libraries has to lie on top.
    // In static mode they lie on the root itself, before everything else.
    let is_alone = |step: &Step| trigger.is_none() || !decisions.iter().any(|decision| is_in(step, &decision.path));
    let (alone, mut programs): (Vec<Step>, Vec<Step>) = programs.into_iter().partition(is_alone);
    let mut visible: Vec<PathBuf> = Vec::new();
    out.show(alone, &mut visible);
    let mut enclosing: Vec<&Decision> = Vec::new();
    let mut contents: Vec<Around> = Vec::new();
    for (index, decision) in decisions.iter().enumerate() {
        refuse_own_area(decision)?;
        while enclosing.last().is_some_and(|outer| !is_at_or_below(&decision.path, &outer.path)) {
            enclosing.pop();
            contents.pop();
        }
        let around = contents.last().copied().unwrap_or_else(|| outermost(&decision.path, trigger.is_some()));
        let is_shown = visible.iter().any(|program| is_at_or_below(&decision.path, program));
        // A program and its libraries are seen wherever they lie.
        let seen =
            if is_shown && matches!(around, Around::Unknown | Around::Denied) { Around::ReadOnly } else { around };
        let before = out.steps.len();
        out.add(decision, &decisions[index + 1..], seen, &enclosing);
        let covering: Vec<&Path> = out.steps[before..].iter().filter_map(target_of).collect();
        visible.retain(|program| !covering.iter().any(|target| program.starts_with(target)));
        if around == Around::Unknown {
            // A program that may run lies on top of the place that was just given, below what hides parts of it.
            let (here, elsewhere) = programs.into_iter().partition(|step| is_in(step, &decision.path));
            programs = elsewhere;
            out.show(here, &mut visible);
        }
        if matches!(decision.fact, PathFact::Present { .. }) {
            enclosing.push(decision);
            let asks = decision.access == Access::Protect && !decision.is_given && seen == Around::Unknown;
            contents.push(if asks { Around::Unknown } else { inside(decision.access, seen) });
        }
    }
    out.steps.extend(programs);
    Ok(out)
}

fn why(decision: &Decision) -> String {
    match decision.reason.as_str() {
        "" => decision.origin.to_string(),
        reason => format!("{} ({reason})", decision.origin),
    }
}

/// What the mount of a decision covers; none where it gives something.
fn covered(decision: &Decision, kind: &MountKind, around: Around) -> Option<Covered> {
    match (decision.access, &decision.fact) {
        (_, PathFact::Missing { .. }) => Some(Covered::Held),
        (Access::Deny, _) if decision.is_about_socket() => Some(Covered::Socket),
        (Access::Deny, _) => Some(Covered::Hidden),
        (Access::Mask, _) => Some(Covered::Masked),
        (Access::Protect, _) if matches!(kind, MountKind::Bind { .. }) => Some(Covered::Protected),
        (Access::Read, _) if around == Around::Writable => Some(Covered::Protected),
        _ => None,
    }
}

/// A stand-in may be of another kind than the name that it holds.
fn kind_of(mount: &MountKind, decision: &Decision) -> Kind {
    match (mount, &decision.fact) {
        (_, PathFact::Present { kind, .. }) => *kind,
        (MountKind::Empty { .. }, _) => Kind::Directory,
        _ => Kind::File,
    }
}

fn is_in(step: &Step, place: &Path) -> bool {
    target_of(step).is_some_and(|target| target.starts_with(place))
}

fn target_of(step: &Step) -> Option<&Path> {
    match step {
        Step::Mount(mount) => Some(&mount.target),
        _ => None,
    }
}

impl FileMounts {
    /// Programs that may run, and their libraries.
    fn show(&mut self, programs: Vec<Step>, visible: &mut Vec<PathBuf>) {
        visible.extend(programs.iter().filter_map(target_of).map(Path::to_path_buf));
        self.steps.extend(programs);
    }

    fn add(&mut self, decision: &Decision, following: &[Decision], around: Around, enclosing: &[&Decision]) {
        if decision.access <= Access::Mask && around == Around::ReadOnly {
            return self.hide_decided(decision, following, enclosing);
        }
        let Some((target, kind)) = self.mount_for(decision, following, around) else { return };
        let is_socket_cover = decision.access == Access::Deny && decision.is_about_socket();
        // Under another name of its directory the next session would find what is hidden from this one, and the host obey a copy
        // of what was given for reading.
        let takes = refuses(decision.access) || decision.access == Access::Read;
        if takes && around == Around::Writable {
            self.pin_parents(&target, enclosing, is_socket_cover || decision.is_other_name);
        }
        // Two missing names below one missing directory are held by one stand-in.
        if !self.mounted.insert(target.clone()) {
            return;
        }
        let has_no_point =
            around == Around::Private || (around == Around::Unknown && self.trigger == Some(Trigger::Notify));
        let create = has_no_point.then_some(match decision.fact {
            PathFact::Present { kind, .. } => kind,
            PathFact::Missing { .. } => Kind::Directory,
        });
        // It may be gone by now: who listened there has ended.
        // Another name may lie where this user cannot go.
        let if_present = is_socket_cover || decision.is_other_name;
        if let Some(what) = covered(decision, &kind, around) {
            self.cover(target.clone(), what, kind_of(&kind, decision), around, enclosing);
        }
        let why = why(decision);
        self.steps.push(Step::Mount(Mount { target, kind, create, if_present, why }));
    }

    /// The mount that a decision needs where it stands, or none where its surroundings already give the answer.
    fn mount_for(
        &mut self,
        decision: &Decision,
        following: &[Decision],
        around: Around,
    ) -> Option<(PathBuf, MountKind)> {
        let path = decision.path.clone();
        let (kind, id) = match &decision.fact {
            PathFact::Missing { first, .. } => return self.hold(decision, first, around),
            PathFact::Present { kind, id, .. } => (*kind, *id),
        };
        let exec = self.exec;
        let bind = |write| MountKind::Bind { source: path.clone(), id: Some(id), write, exec };
        match (decision.access, around) {
            // What nobody can see needs no cover.
            (Access::Deny, Around::Denied | Around::Private | Around::Unknown) => None,
            // Nobody listens at an overlay's copy.
            (Access::Deny, Around::Overlaid) if kind == Kind::Socket => None,
            (Access::Deny, _) if kind == Kind::Directory => {
                Some((path.clone(), MountKind::Empty { inside: grants_below(&path, following) }))
            }
            (Access::Deny, _) => match &decision.stand {
                Stand::Refuse => Some((path, MountKind::Refused)),
                Stand::Text(text) => Some((path, MountKind::Text(text.clone()))),
            },
            // The gate shows it, or nothing around it can be seen.
            (Access::Mask, Around::Denied | Around::Private) => None,
            (Access::Mask, Around::Unknown) if self.trigger == Some(Trigger::Fuse) || decision.is_other_name => None,
            (Access::Mask, _) => Some((path, self.masked(decision))),
            // A socket is itself only on a mount of its own: seen through an overlay it is another one.
            (Access::Read, Around::ReadOnly) if kind == Kind::Socket => Some((path.clone(), bind(false))),
            // Protecting is about writes: it never uncovers what is hidden.
            (Access::Protect, Around::Unknown) if !decision.is_given => None,
            (Access::Protect, Around::Denied | Around::Private)
            | (Access::Read | Access::Protect, Around::ReadOnly) => None,
            (Access::Read | Access::Protect, _) => Some((path.clone(), bind(false))),
            (Access::Write, Around::Writable) => None,
            (Access::Write, _) => Some((path.clone(), bind(true))),
            (Access::Overlay, _) => {
                let slot = self.overlays;
                self.overlays += 1;
                Some((path.clone(), MountKind::Overlay { lower: path, id, slot }))
            }
        }
    }

    /// A masked file always has its text; without one it would be hidden. The gate renders it anew at each open.
    fn masked(&self, decision: &Decision) -> MountKind {
        match &decision.masked {
            None => MountKind::Refused,
            Some(_) if self.trigger == Some(Trigger::Fuse) && !decision.is_other_name => MountKind::Rendered,
            Some(text) => MountKind::Text(text.clone()),
        }
    }

    /// Notes what a mount is for, and whose the name is that it stands on.
    fn cover(&mut self, path: PathBuf, what: Covered, kind: Kind, around: Around, enclosing: &[&Decision]) {
        let (stands_on, kept_by) = match around {
            Around::Writable => (StandsOn::Host, KeptBy::Keeper),
            Around::ReadOnly => (StandsOn::Host, KeptBy::Nothing),
            Around::Private | Around::Denied | Around::Overlaid | Around::Unknown => (StandsOn::Own, KeptBy::Itself),
        };
        let written = |outer: &&&Decision| outer.access == Access::Write && outer.path != path;
        let tree = match around {
            Around::Writable => enclosing.iter().rev().find(written).map(|outer| outer.path.clone()),
            _ => None,
        };
        self.covers.push(Cover { path, what, kind, stands_on, kept_by, tree });
    }

    /// A missing protected name inside a writable directory: the supervisor makes a stand-in, and an empty read-only mount
    /// covers it.
    fn hold(&mut self, decision: &Decision, first: &Path, around: Around) -> Option<(PathBuf, MountKind)> {
        if around != Around::Writable {
            return None;
        }
        // A file can stand in only for the name itself, not for a directory on the way to it.
        let (kind, mount) = match &decision.hold {
            HoldRule::Nothing => return None,
            HoldRule::File(text) if first == decision.path => {
                (HoldKind::File(text.to_string()), MountKind::Text(text.to_string()))
            }
            HoldRule::Socket if first == decision.path => {
                let bind = MountKind::Bind { source: first.to_path_buf(), id: None, write: false, exec: false };
                (HoldKind::Socket, bind)
            }
            HoldRule::Directory | HoldRule::File(_) | HoldRule::Socket => {
                (HoldKind::Directory, MountKind::Empty { inside: Vec::new() })
            }
        };
        if !self.holds.iter().any(|h| h.path == first) {
            self.holds.push(Hold { path: first.to_path_buf(), kind });
        }
        Some((first.to_path_buf(), mount))
    }

    /// A directory that holds a protected name can be renamed away and replaced, unless it is a mount point itself. It comes
    /// before whatever is mounted in it already, or it would hide that.
    fn pin_parents(&mut self, target: &Path, enclosing: &[&Decision], may_be_gone: bool) {
        // What is given in a tree that is given has no mount of its own: the way through it can be renamed as well.
        let outwards = enclosing.iter().rev().skip_while(|d| d.access != Access::Write || d.path == target);
        let Some(root) = outwards.take_while(|d| d.access == Access::Write).last() else { return };
        let inside = |p: &&Path| *p != root.path && is_at_or_below(p, &root.path);
        let mut parents: Vec<&Path> = target.ancestors().skip(1).take_while(inside).collect();
        parents.reverse();
        for parent in parents {
            if self.mounted.insert(parent.to_path_buf()) {
                let bind = MountKind::Bind { source: parent.to_path_buf(), id: None, write: true, exec: self.exec };
                let make = if may_be_gone { if_present } else { mount };
                let step = make(parent.to_path_buf(), bind, "cannot be renamed: something protected lies below");
                let first = self.steps.iter().position(|step| is_in(step, parent)).unwrap_or(self.steps.len());
                self.steps.insert(first, step);
                self.cover(parent.to_path_buf(), Covered::Parent, Kind::Directory, Around::Writable, enclosing);
            }
        }
    }
}

fn refuse_own_area(decision: &Decision) -> Result<(), PlanError> {
    let own = OWN.iter().find(|area| is_at_or_below(&decision.path, Path::new(area)));
    match own {
        // Neither denying nor protecting gives anything: a link in the project may well lead to `/dev/null`.
        Some(area) if !refuses(decision.access) => Err(PlanError::OwnArea {
            path: decision.path.clone(),
            area: area.trim_start_matches('/'),
            origin: decision.origin.clone(),
        }),
        _ => Ok(()),
    }
}

fn outermost(path: &Path, gated: bool) -> Around {
    if own_areas().any(|area| is_at_or_below(path, Path::new(area))) {
        Around::Private
    } else if gated {
        Around::Unknown
    } else {
        Around::ReadOnly
    }
}

/// What surrounds whatever lies in a directory with this access that is itself surrounded by `around`.
fn inside(access: Access, around: Around) -> Around {
    match (access, around) {
        // What the gate hides or asks about has no mount of its own.
        (Access::Deny, Around::Unknown) => Around::Unknown,
        (Access::Deny, _) => Around::Denied,
        (Access::Mask | Access::Protect | Access::Read, _) => Around::ReadOnly,
        (Access::Overlay, _) => Around::Overlaid,
        (Access::Write, _) => Around::Writable,
    }
}

/// Mount points that a denied directory must offer, relative to it: for grants with nothing else in between.
fn grants_below(denied: &Path, following: &[Decision]) -> Vec<(PathBuf, Kind)> {
    let mut inside: Vec<(PathBuf, Kind)> = Vec::new();
    let mut covered: Option<&Path> = None;
    for decision in following.iter().take_while(|d| is_at_or_below(&d.path, denied)) {
        let PathFact::Present { kind, .. } = decision.fact else { continue };
        let is_grant = !refuses(decision.access);
        if is_grant && !covered.is_some_and(|outer| is_at_or_below(&decision.path, outer)) {
            covered = Some(&decision.path);
            if let Ok(relative) = decision.path.strip_prefix(denied) {
                inside.push((relative.to_path_buf(), kind));
            }
        }
    }
    inside
}
