//! Files of /proc, /sys and /dev that describe or change the whole machine.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use cofferdam_testkit::Place;

use super::{Attempt, NOWHERE, call, file_system, judge, open};
use crate::row::Finding;
use crate::words;

const READ_ONLY: u64 = 1;

/// A switch cannot be opened for writing, and not only because of its mode: the mount is read-only, or it is not there.
/// Outside /proc/sys the mode is enough for a user who is not root: the owner is nobody inside.
fn switch(path: &str) -> Result<String, String> {
    let mode_is_enough = !path.starts_with("/proc/sys/") && fs::metadata("/proc/self").is_ok_and(|own| own.uid() != 0);
    match (open(path, libc::O_WRONLY), file_system(path)) {
        (Ok(_), _) => Err(format!("{path} opened for writing")),
        (Err(libc::ENOENT), _) => Ok(format!("{path} ENOENT")),
        (Err(errno), Ok((_, flags))) if flags & READ_ONLY != 0 => {
            Ok(format!("{path} {} read-only", words::errno(errno)))
        }
        (Err(libc::EACCES), _) if mode_is_enough => Ok(format!("{path} EACCES")),
        (Err(errno), _) => Err(format!("{path} {} by its mode only", words::errno(errno))),
    }
}

fn switches_of(paths: &[&str]) -> Finding {
    let (mut closed, mut opened) = (Vec::new(), Vec::new());
    for path in paths {
        match switch(path) {
            Ok(text) => closed.push(text),
            Err(text) => opened.push(text),
        }
    }
    if opened.is_empty() { Finding::Contained(closed.join(", ")) } else { Finding::Open(opened.join(", ")) }
}

pub(super) fn core_pattern() -> Finding {
    switches_of(&["/proc/sys/kernel/core_pattern"])
}

pub(super) fn switches() -> Finding {
    switches_of(&[
        "/proc/sysrq-trigger",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/hotplug",
        "/proc/sys/fs/binfmt_misc/register",
        "/sys/kernel/uevent_helper",
        "/sys/power/state",
        "/proc/sys/kernel/printk",
        "/proc/sys/vm/drop_caches",
        "/proc/sys/fs/file-max",
        "/proc/irq/default_smp_affinity",
    ])
}

pub(super) fn cgroups() -> Finding {
    let mount = |kind: &str| {
        let (kind, target) = (CString::new(kind).unwrap_or_default(), c"/tmp");
        let (kind, target) = (kind.as_ptr() as usize, target.as_ptr() as usize);
        call(libc::SYS_mount, &[kind, target, kind, 0, 0])
    };
    let mut attempts = vec![
        Attempt::new("mount cgroup", mount("cgroup"), &[libc::EPERM]),
        Attempt::new("mount cgroup2", mount("cgroup2"), &[libc::EPERM]),
    ];
    for path in ["/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/release_agent", "/sys/fs/cgroup/cgroup.subtree_control"]
    {
        attempts.push(Attempt::new(path, open(path, libc::O_WRONLY), &[libc::EROFS, libc::EACCES, libc::ENOENT]));
    }
    judge(&attempts)
}

/// Any process may open it; the write is what counts.
pub(super) fn last_pid() -> Finding {
    const FILE: &str = "/proc/sys/kernel/ns_last_pid";
    let Ok(value) = fs::read_to_string(FILE) else {
        return Finding::Skipped("this kernel has no ns_last_pid".to_owned());
    };
    let written = fs::write(FILE, value.trim());
    judge(&[Attempt::io("write ns_last_pid", written, &[libc::EPERM, libc::EROFS, libc::EACCES])])
}

pub(super) fn readable() -> Finding {
    let paths = [
        "/proc/kcore",
        "/proc/keys",
        "/proc/key-users",
        "/proc/kallsyms",
        "/proc/timer_list",
        "/proc/sched_debug",
        "/proc/slabinfo",
        "/proc/vmallocinfo",
        "/proc/kpagecount",
        "/proc/interrupts",
        "/sys/firmware",
        "/sys/kernel",
        "/sys/class",
        "/sys/fs",
        "/sys/module",
        "/sys/devices/virtual",
    ];
    let attempts: Vec<Attempt> = paths
        .iter()
        .map(|path| Attempt::new(*path, open(path, libc::O_RDONLY), &[libc::ENOENT, libc::EACCES]))
        .collect();
    judge(&attempts)
}

pub(super) fn kernel_log() -> Finding {
    const READ_ALL: usize = 3;
    judge(&[
        Attempt::new(
            "/proc/kmsg",
            open("/proc/kmsg", libc::O_RDONLY | libc::O_NONBLOCK),
            &[libc::EACCES, libc::ENOENT],
        ),
        Attempt::new("/dev/kmsg", open("/dev/kmsg", libc::O_RDONLY), &[libc::ENOENT]),
        // The buffer is nowhere, so that nothing is read even where it is allowed.
        Attempt::new("syslog", call(libc::SYS_syslog, &[READ_ALL, NOWHERE, 1]), &[libc::EPERM]),
    ])
}

/// No node can be made, and none that lies around would work: every mount but those of the few devices says nodev.
pub(super) fn device_nodes(place: &Place) -> Finding {
    let mut attempts = Vec::new();
    // Without a sandbox around it, root would really make them: then only where they are cleaned up.
    let is_inside = std::os::unix::process::parent_id() == 1;
    let private = ["/tmp", "/dev/shm"].into_iter().filter(|_| is_inside).map(std::path::PathBuf::from);
    for directory in private.chain([place.project()]) {
        let name = CString::new(directory.join("node").to_string_lossy().into_owned()).unwrap_or_default();
        for (kind, device) in [(libc::S_IFCHR, 0x103), (libc::S_IFBLK, 0x800)] {
            let mode = usize::try_from(kind | 0o600).unwrap_or(0);
            let made = call(libc::SYS_mknod, &[name.as_ptr() as usize, mode, device]);
            attempts.push(Attempt::new(format!("mknod in {}", directory.display()), made, &[libc::EPERM]));
        }
    }
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for line in table.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (Some(target), Some(options)) = (fields.get(4), fields.get(5)) else { continue };
        let is_device = *target != "/dev" && *target != "/dev/shm" && target.starts_with("/dev/");
        let nodev = options.split(',').any(|o| o == "nodev");
        if !is_device {
            let answer = if nodev { Err(libc::EACCES) } else { Ok(0) };
            attempts.push(Attempt::new(format!("devices on {target}"), answer, &[libc::EACCES]));
        }
    }
    judge(&attempts)
}
