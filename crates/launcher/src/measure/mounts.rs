//! Whether the mounts of the new root are those of the plan: at each target something is mounted, and it is as closed as planned.
//! Owns what each kind of mount has to say of itself; asks by calls on paths, which mean the new root by now. Called by `apply`
//! once the root is changed, while no filter reports opening.

use std::collections::HashSet;
use std::path::Path;

use cofferdam_plan::{MountKind, Step};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatVfsMountFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::differs;
use crate::report::StepError;

/// What the kernel says of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    is_mount: bool,
    flags: StatVfsMountFlags,
}

pub(crate) fn check(steps: &[Step]) -> Result<(), StepError> {
    difference(steps, look).map_or(Ok(()), |what| Err(differs(&what)))
}

/// The first mount that is missing or more open than the steps say.
fn difference(steps: &[Step], look: impl Fn(&Path) -> Result<Found, Errno>) -> Option<String> {
    let mut later: HashSet<&Path> = HashSet::new();
    for step in steps.iter().rev() {
        let Step::Mount(mount) = step else { continue };
        let is_under_a_later_one = mount.target.ancestors().any(|above| later.contains(above));
        later.insert(&mount.target);
        let Some(planned) = planned(&mount.kind).filter(|_| !is_under_a_later_one) else { continue };
        let missing = match look(&mount.target) {
            Err(Errno::NOENT | Errno::ACCESS) if mount.if_present => continue,
            Err(errno) => format!("cannot be looked at ({errno})"),
            Ok(found) if !found.is_mount => "is no mount".to_owned(),
            Ok(found) => match named(planned - found.flags) {
                missing if missing.is_empty() => continue,
                missing => format!("is not {}", missing.join(", ")),
            },
        };
        return Some(format!("{} {missing}", mount.target.display()));
    }
    None
}

/// By path, in two calls: there are some sixty mounts at each start.
fn look(path: &Path) -> Result<Found, Errno> {
    // The mount tells, and what is mounted need not be asked: it may be served by the supervisor.
    let quiet = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let seen = rustix::fs::statx(CWD, path, quiet, StatxFlags::TYPE)?;
    let is_mount = seen.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    let is_link = FileType::from_raw_mode(seen.stx_mode.into()) == FileType::Symlink;
    let flags = if is_link {
        // Not what it leads to: links are mounted, too.
        let opened = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        rustix::fs::fstatvfs(&opened)?.f_flag
    } else {
        rustix::fs::statvfs(path)?.f_flag
    };
    Ok(Found { is_mount, flags })
}

/// None where the file system itself would have to answer, which the supervisor serves.
fn planned(kind: &MountKind) -> Option<StatVfsMountFlags> {
    let (write, exec, devices) = match kind {
        MountKind::Rendered => return None,
        MountKind::Bind { write, exec, .. } => (*write, *exec, false),
        MountKind::Filtered { exec, .. } => (false, *exec, false),
        MountKind::Tmpfs { exec, .. } => (true, *exec, false),
        MountKind::Overlay { .. } => (true, true, false),
        MountKind::Proc => (true, false, false),
        MountKind::Devpts => (true, false, true),
        MountKind::Device { .. } => (false, false, true),
        MountKind::Empty { .. }
        | MountKind::Refused
        | MountKind::Text(_)
        | MountKind::Trust { .. }
        | MountKind::Seal => (false, false, false),
    };
    let unless = |allowed: bool, flag: StatVfsMountFlags| if allowed { StatVfsMountFlags::empty() } else { flag };
    Some(
        StatVfsMountFlags::NOSUID
            | unless(write, StatVfsMountFlags::RDONLY)
            | unless(exec, StatVfsMountFlags::NOEXEC)
            | unless(devices, StatVfsMountFlags::NODEV),
    )
}

fn named(flags: StatVfsMountFlags) -> Vec<&'static str> {
    let names = [
        (StatVfsMountFlags::RDONLY, "read-only"),
        (StatVfsMountFlags::NOSUID, "nosuid"),
        (StatVfsMountFlags::NODEV, "nodev"),
        (StatVfsMountFlags::NOEXEC, "noexec"),
    ];
    names.into_iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use cofferdam_plan::Mount;

    use super::*;

    fn mount(target: &str, kind: MountKind) -> Step {
        Step::Mount(Mount { target: target.into(), kind, create: None, if_present: false, why: String::new() })
    }

    fn bind(write: bool) -> MountKind {
        MountKind::Bind { source: "/".into(), id: None, write, exec: true }
    }

    const CLOSED: StatVfsMountFlags =
        StatVfsMountFlags::RDONLY.union(StatVfsMountFlags::NOSUID).union(StatVfsMountFlags::NODEV);

    #[test]
    fn a_mount_that_is_missing_or_more_open_than_planned_is_a_difference() {
        let steps = [mount("/a", bind(false))];
        let of = |found: Result<Found, Errno>| difference(&steps, |_| found);
        assert_eq!(of(Ok(Found { is_mount: true, flags: CLOSED })), None);
        assert_eq!(of(Ok(Found { is_mount: false, flags: CLOSED })).as_deref(), Some("/a is no mount"));
        for (flag, name) in [
            (StatVfsMountFlags::RDONLY, "read-only"),
            (StatVfsMountFlags::NOSUID, "nosuid"),
            (StatVfsMountFlags::NODEV, "nodev"),
        ] {
            let open = Found { is_mount: true, flags: CLOSED - flag };
            assert_eq!(of(Ok(open)), Some(format!("/a is not {name}")));
        }
        assert!(of(Err(Errno::NOENT)).is_some(), "it was to be there");
        // A mount that may be written need not be read-only; more closed than planned is no difference.
        let writable = [mount("/a", bind(true))];
        assert_eq!(difference(&writable, |_| Ok(Found { is_mount: true, flags: CLOSED })), None);
    }

    #[test]
    fn only_the_last_mount_of_a_place_is_seen() {
        let steps =
            [mount("/a/b", bind(false)), mount("/c", bind(false)), mount("/a", bind(true)), mount("/c", bind(true))];
        let flags = StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV;
        assert_eq!(difference(&steps, |_| Ok(Found { is_mount: true, flags })), None);
        assert!(difference(&steps[..2], |_| Ok(Found { is_mount: true, flags })).is_some(), "the control");
    }

    /// As the kernel tells it of this process, in which none of this was mounted.
    #[test]
    fn a_process_without_these_mounts_does_not_pass() {
        assert!(difference(&[mount("/", bind(false))], look).is_some());
        assert_eq!(difference(&[mount("/proc/self", bind(true))], look).as_deref(), Some("/proc/self is no mount"));
        assert!(check(&[mount("/", bind(false))]).is_err());
    }
}
