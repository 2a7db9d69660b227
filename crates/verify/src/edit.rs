//! Edits of a plan that switch a control off: what a negative control runs. Owns the mechanics, not the choice of what to
//! switch off. A plan is plain data, so what enforces one needs no switch for any of this. Used by the checks here
//! and, through `testkit`, by the tests.

use std::path::Path;

use cofferdam_plan::seccomp::{Instruction, number_of};
use cofferdam_plan::{Kind, LaunchPlan, LimitsPlan, Mount, MountKind, Namespaces, Step};

const LOAD_WORD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const OFFSET_NUMBER: u32 = 0;
const ALLOW: u32 = 0x7fff_0000;

/// Removes the steps for which `which` holds.
pub fn drop_steps(plan: &mut LaunchPlan, which: impl Fn(&Step) -> bool) {
    let dropped = |step: &Step| match step {
        Step::Mount(mount) if which(step) => Some(mount.target.clone()),
        _ => None,
    };
    let bare: Vec<_> = plan.steps.iter().filter_map(dropped).collect();
    // It is not to be put there again.
    plan.covers.retain(|cover| !bare.contains(&cover.path));
    plan.steps.retain(|step| !which(step));
}

/// Removes the mounts for which `which` holds.
pub fn drop_mounts(plan: &mut LaunchPlan, which: impl Fn(&Mount) -> bool) {
    drop_steps(plan, |step| matches!(step, Step::Mount(mount) if which(mount)));
}

pub fn drop_mounts_below(plan: &mut LaunchPlan, directory: &Path) {
    drop_mounts(plan, |mount| mount.target.starts_with(directory) && mount.target != directory);
}

/// Whether it keeps something of /proc or /sys from the session.
pub fn covers_the_kernel(mount: &Mount) -> bool {
    let is_kernel = mount.target.starts_with("/proc") || mount.target.starts_with("/sys");
    is_kernel && mount.kind != MountKind::Proc
}

/// Nothing is held, and nothing waits for it.
pub fn drop_holds(plan: &mut LaunchPlan) {
    let held: Vec<_> = plan.holds.drain(..).map(|hold| hold.path).collect();
    drop_steps(plan, |step| *step == Step::AwaitHolds);
    drop_mounts(plan, |mount| held.contains(&mount.target));
}

/// The command keeps what capabilities the set-up had.
pub fn keep_capabilities(plan: &mut LaunchPlan) {
    drop_steps(plan, |step| *step == Step::DropCapabilities);
}

/// Lets these calls reach the kernel whatever their arguments are; the rest of the filter stays.
pub fn let_through(plan: &mut LaunchPlan, calls: &[&str]) {
    for name in calls {
        let Some(number) = number_of(name) else { continue };
        let shortcut = [
            Instruction { code: LOAD_WORD, jt: 0, jf: 0, k: OFFSET_NUMBER },
            Instruction { code: JUMP_EQUAL, jt: 0, jf: 1, k: number },
            Instruction { code: RETURN, jt: 0, jf: 0, k: ALLOW },
        ];
        plan.filter.program.splice(0..0, shortcut);
    }
}

/// A filter that lets everything through, every ABI included.
pub fn open_filter(plan: &mut LaunchPlan) {
    plan.filter.program = vec![Instruction { code: RETURN, jt: 0, jf: 0, k: ALLOW }];
}

/// No own process view: the command is the set-up child itself, and sees the host's `/proc`.
pub fn share_processes(plan: &mut LaunchPlan) {
    plan.namespaces.pid = false;
    drop_mounts(plan, |mount| mount.kind == MountKind::Proc);
    drop_steps(plan, |step| matches!(step, Step::Landlock(_) | Step::LargestPid { .. }));
}

/// The host's view of files.
pub fn share_files(plan: &mut LaunchPlan) {
    plan.namespaces.mount = false;
    plan.gate = None;
    plan.holds.clear();
    plan.covers.clear();
    plan.overlays = 0;
    plan.steps.retain(|step| {
        !matches!(
            step,
            Step::CloneRoot { .. }
                | Step::GateRoot { .. }
                | Step::Mount(_)
                | Step::MakeDirectory { .. }
                | Step::Link { .. }
                | Step::PivotRoot
                | Step::AwaitHolds
                | Step::OfferAgent { .. }
                | Step::OfferCheckpoints { .. }
        )
    });
}

/// The host's network stack.
pub fn share_network(plan: &mut LaunchPlan) {
    plan.namespaces.net = false;
    drop_steps(plan, |step| matches!(step, Step::CreateNetwork | Step::JoinNetwork | Step::Landlock(_)));
}

/// No sandbox at all: the command runs as the supervisor's child.
pub fn no_walls(plan: &mut LaunchPlan) {
    plan.namespaces =
        Namespaces { user: false, pid: false, mount: false, net: false, ipc: false, uts: false, cgroup: false };
    plan.steps.clear();
    plan.holds.clear();
}

/// Nothing limits the session: no cgroup, no rlimit, no pinning, no supervisor that looks. The filter lets go of what it
/// refused for their sake.
pub fn drop_limits(plan: &mut LaunchPlan) {
    plan.limits = LimitsPlan::default();
    drop_steps(plan, |step| {
        let is_cgroup = *step == Step::OwnCgroupView;
        let is_count = matches!(step, Step::Limit { .. } | Step::CountedLimit { .. } | Step::LargestPid { .. });
        is_cgroup || is_count || matches!(step, Step::Pin { .. })
    });
    let_through(plan, &["sched_setaffinity"]);
    for step in &mut plan.steps {
        if let Step::Mount(Mount { kind: MountKind::Tmpfs { size, inodes, .. }, .. }) = step {
            (*size, *inodes) = (0, 0);
        }
    }
}

/// A directory or file of the host becomes writable inside, as if a rule had granted it.
pub fn grant(plan: &mut LaunchPlan, path: &Path) {
    let kind = MountKind::Bind { source: path.to_path_buf(), id: None, write: true, exec: true };
    let mount =
        Mount { target: path.to_path_buf(), kind, create: None, if_present: false, why: "negative control".to_owned() };
    before_pivot(plan, Step::Mount(mount));
}

/// The same below one of the private file systems, where the mount point has to be made.
pub fn grant_in_private(plan: &mut LaunchPlan, path: &Path, kind: Kind) {
    let bind = MountKind::Bind { source: path.to_path_buf(), id: None, write: true, exec: true };
    let mount = Mount {
        target: path.to_path_buf(),
        kind: bind,
        create: Some(kind),
        if_present: false,
        why: "negative control".to_owned(),
    };
    before_pivot(plan, Step::Mount(mount));
}

fn before_pivot(plan: &mut LaunchPlan, step: Step) {
    let at = plan.steps.iter().position(|s| *s == Step::PivotRoot).unwrap_or(plan.steps.len());
    plan.steps.insert(at, step);
}

/// Bind mounts no longer compare what they find with what the survey saw.
pub fn forget_identities(plan: &mut LaunchPlan) {
    for step in &mut plan.steps {
        if let Step::Mount(Mount { kind: MountKind::Bind { id, .. }, .. }) = step {
            *id = None;
        }
    }
}

/// What is hidden in read-only trees is covered by mounts on the host's own names, as it once was.
pub fn cover_by_mounts(plan: &mut LaunchPlan) {
    let mut covers = Vec::new();
    for step in &mut plan.steps {
        let Step::Mount(mount) = step else { continue };
        let MountKind::Filtered { source, id, exec, hidden } = &mount.kind else { continue };
        for one in hidden {
            let kind = match source.join(&one.path).symlink_metadata() {
                Ok(found) if found.is_dir() => MountKind::Empty { inside: Vec::new() },
                Ok(_) => MountKind::Refused,
                Err(_) => continue,
            };
            let (target, why) = (mount.target.join(&one.path), "negative control".to_owned());
            covers.push(Mount { target, kind, create: None, if_present: true, why });
        }
        mount.kind = MountKind::Bind { source: source.clone(), id: *id, write: false, exec: *exec };
    }
    for cover in covers {
        before_pivot(plan, Step::Mount(cover));
    }
}
