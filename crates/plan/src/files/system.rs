//! /proc, /sys, /dev and the temporary directories of the sandbox, which are its own. Owns what is shown in them and what is
//! masked (docs/decisions/0011); what policy says about other paths is `mounts`'. Called by `plan()`.

use std::path::PathBuf;

use crate::facts::host::HostFacts;
use crate::facts::path::Kind;
use crate::files::own_areas::{PRIVATE, SYS_SHOWN};
use crate::limits::plan::Room;
use crate::step::{self, MountKind, Step, Trigger, if_present, make, mount};

/// Sockets and locks live in /run; nothing but our own nodes in /dev.
const RUN: Room = Room { size: 1 << 26, inodes: 1 << 14 };
const DEV: Room = Room { size: 1 << 16, inodes: 64 };

/// Entries of /proc that say too much about the host or change it. Those marked for root belong to root and no other
/// user can open them; without capabilities that holds inside too.
const PROC_MASKED: &[(&str, Kind, For)] = &[
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
const PROC_SEALED: &[(&str, For)] =
    &[("/proc/sys", For::All), ("/proc/bus", For::Root), ("/proc/fs", For::Root), ("/proc/irq", For::Root)];

/// For whom an entry has to be covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    All,
    Root,
}

const DEVICES: &[(&str, u32, u32)] =
    &[("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

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
            steps.push(step::mount(path, bind, "programs size themselves by it"));
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
