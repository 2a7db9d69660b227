//! System calls that must not reach the kernel. Arguments are such that nothing happens where one does.

use std::time::{Duration, Instant};

use cofferdam_testkit::Place;

use super::{Attempt, NONE, NOWHERE, call, judge};
use crate::raw::{self, Ended};
use crate::row::Finding;

const REFUSED: &[i32] = &[libc::EPERM];
/// What a clone tells its parent when it ends.
const SIGCHLD: usize = 0x11;
const ABSENT: &[i32] = &[libc::ENOSYS];
const FAMILY: &[i32] = &[libc::EAFNOSUPPORT];

/// No socket has this type: the kernel says EINVAL before it looks for the family, so only a filter says EAFNOSUPPORT.
const NO_TYPE: usize = 15;

/// In a child, so that a killed probe is a result too.
fn fate(then: impl FnOnce() -> i32) -> Result<Ended, i32> {
    raw::wait(raw::fork(then)?)
}

pub(super) fn b09_user_namespaces() -> Finding {
    let flag = usize::try_from(libc::CLONE_NEWUSER).unwrap_or(0);
    let child = |what: &'static str, run: fn(usize) -> Result<i64, i32>, expected| {
        let ended = fate(|| match run(flag) {
            Ok(_) => 0,
            Err(errno) => errno,
        });
        let result = match ended {
            Ok(Ended::Exited(0)) => Ok(0),
            Ok(Ended::Exited(errno)) | Err(errno) => Err(errno),
            Ok(Ended::Signalled(signal)) => Err(128 + signal),
        };
        Attempt::new(what, result, expected)
    };
    judge(&[
        child("unshare", |flag| call(libc::SYS_unshare, &[flag]), REFUSED),
        child("unshare all", |flag| call(libc::SYS_unshare, &[flag | 0x6c02_0000]), REFUSED),
        // The new process, if there is one, runs on a copy of this stack and ends with its parent's code.
        child("clone", |flag| call(libc::SYS_clone, &[flag | SIGCHLD, 0, 0, 0, 0]), REFUSED),
        child("clone3", |_| call(libc::SYS_clone3, &[NOWHERE, 88]), ABSENT),
    ])
}

pub(super) fn b10_setns() -> Finding {
    let path = c"/proc/self/ns/net";
    let Ok(fd) = call(libc::SYS_open, &[path.as_ptr() as usize, 0]) else {
        return Finding::Broken("no /proc/self/ns/net".to_owned());
    };
    judge(&[Attempt::new("setns", call(libc::SYS_setns, &[usize::try_from(fd).unwrap_or(0), 0]), REFUSED)])
}

pub(super) fn b15_keyrings() -> Finding {
    const PROCESS_KEYRING: usize = usize::MAX - 1;
    let (kind, name, data) = (c"user", c"cofferdam-test", c"x");
    let (kind, name, data) = (kind.as_ptr() as usize, name.as_ptr() as usize, data.as_ptr() as usize);
    judge(&[
        Attempt::new("add_key", call(libc::SYS_add_key, &[kind, name, data, 1, PROCESS_KEYRING]), REFUSED),
        Attempt::new("keyctl", call(libc::SYS_keyctl, &[0, PROCESS_KEYRING, 1]), REFUSED),
        Attempt::new("request_key", call(libc::SYS_request_key, &[kind, name, 0, PROCESS_KEYRING]), REFUSED),
    ])
}

/// On a terminal of our own that controls us, where the kernel itself would allow it.
pub(super) fn b16_terminal_injection() -> Finding {
    const TIOCSPTLCK: usize = 0x4004_5431;
    const TIOCGPTPEER: usize = 0x5441;
    const TIOCSCTTY: usize = 0x540e;
    let path = c"/dev/ptmx";
    let unlocked = 0i32;
    let byte = *b"x";
    let answer = fate(|| {
        let terminal = || -> Result<usize, i32> {
            call(libc::SYS_setsid, &[])?;
            let master = usize::try_from(call(libc::SYS_open, &[path.as_ptr() as usize, 2])?).unwrap_or(0);
            call(libc::SYS_ioctl, &[master, TIOCSPTLCK, (&raw const unlocked) as usize])?;
            let slave = usize::try_from(call(libc::SYS_ioctl, &[master, TIOCGPTPEER, 2])?).unwrap_or(0);
            call(libc::SYS_ioctl, &[slave, TIOCSCTTY, 0])?;
            Ok(slave)
        };
        let Ok(slave) = terminal() else { return 255 };
        let pointer = (&raw const byte) as usize;
        let requests = [libc::TIOCSTI, libc::TIOCLINUX].map(|request| usize::try_from(request).unwrap_or(0));
        let refused =
            requests.iter().filter(|request| call(libc::SYS_ioctl, &[slave, **request, pointer]) == Err(libc::EPERM));
        i32::try_from(refused.count()).unwrap_or(254)
    });
    match answer {
        Ok(Ended::Exited(2)) => Finding::Contained("TIOCSTI EPERM, TIOCLINUX EPERM on an own terminal".to_owned()),
        Ok(Ended::Exited(255)) => Finding::Broken("no terminal could be made".to_owned()),
        other => Finding::Open(format!("injection reached the terminal: {other:?}")),
    }
}

pub(super) fn b17_wide_ioctl() -> Finding {
    let wide = |request: libc::c_ulong| usize::try_from(request).unwrap_or(0) | (1 << 32);
    judge(&[
        Attempt::new("(1<<32)|TIOCSTI", call(libc::SYS_ioctl, &[NONE, wide(libc::TIOCSTI), NOWHERE]), REFUSED),
        Attempt::new("(1<<32)|TIOCLINUX", call(libc::SYS_ioctl, &[NONE, wide(libc::TIOCLINUX), NOWHERE]), REFUSED),
    ])
}

pub(super) fn b18_clock_and_hostname() -> Finding {
    let name = c"cofferdam";
    judge(&[
        Attempt::new("sethostname", call(libc::SYS_sethostname, &[name.as_ptr() as usize, 9]), REFUSED),
        Attempt::new("setdomainname", call(libc::SYS_setdomainname, &[name.as_ptr() as usize, 9]), REFUSED),
        // A time that does not exist, at an address that does not exist.
        Attempt::new("clock_settime", call(libc::SYS_clock_settime, &[0, NOWHERE]), REFUSED),
        Attempt::new("settimeofday", call(libc::SYS_settimeofday, &[NOWHERE, 0]), REFUSED),
    ])
}

pub(super) fn c01_io_uring() -> Finding {
    judge(&[
        Attempt::new("io_uring_setup", call(libc::SYS_io_uring_setup, &[1, NOWHERE]), ABSENT),
        Attempt::new("io_uring_enter", call(libc::SYS_io_uring_enter, &[NONE, 0, 0, 0, 0, 0]), ABSENT),
        Attempt::new("io_uring_register", call(libc::SYS_io_uring_register, &[NONE, 0, 0, 0]), ABSENT),
    ])
}

pub(super) fn c02_i386() -> Finding {
    match fate(|| i32::from(raw::getpid_i386() > 0)) {
        Ok(Ended::Signalled(libc::SIGSYS)) => Finding::Contained("int 0x80: SIGSYS".to_owned()),
        Ok(Ended::Signalled(libc::SIGSEGV)) => Finding::Skipped("this kernel has no i386 system calls".to_owned()),
        other => Finding::Open(format!("int 0x80: {other:?}")),
    }
}

pub(super) fn c03_x32() -> Finding {
    const X32: libc::c_long = 0x4000_0000;
    match fate(|| call(libc::SYS_getpid | X32, &[]).err().unwrap_or(0)) {
        Ok(Ended::Signalled(libc::SIGSYS)) => Finding::Contained("getpid|0x40000000: SIGSYS".to_owned()),
        other => Finding::Open(format!("the number reached the kernel: {other:?}")),
    }
}

/// Numbers of no kernel, and calls that kernels have but the table does not.
pub(super) fn c04_unknown() -> Finding {
    const SYSFS: libc::c_long = 139;
    const LSM_LIST_MODULES: libc::c_long = 461;
    judge(&[
        Attempt::new("number 600", call(600, &[]), ABSENT),
        Attempt::new("number 0x3fffffff", call(0x3fff_ffff, &[]), ABSENT),
        Attempt::new("sysfs", call(SYSFS, &[3]), ABSENT),
        Attempt::new("lsm_list_modules", call(LSM_LIST_MODULES, &[NOWHERE, NOWHERE, 0]), ABSENT),
    ])
}

/// Callers that die while they wait must not confuse the supervisor, and the next caller gets its answer.
pub(super) fn c06_notifications(place: &Place) -> Finding {
    let finding = answers_after_deaths(place);
    // The test that stopped the supervisor may let it go on.
    place.write("home/project/judged", "");
    finding
}

fn answers_after_deaths(place: &Place) -> Finding {
    let notified = || call(libc::SYS_add_key, &[NOWHERE, NOWHERE, 0, 0, 0]).err().unwrap_or(0);
    place.write("home/project/ready", "");
    let go = place.project().join("go");
    let deadline = Instant::now() + Duration::from_secs(10);
    while !go.exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    for round in 0..40u64 {
        let Ok(child) = raw::fork(notified) else { return Finding::Broken("cannot fork".to_owned()) };
        std::thread::sleep(Duration::from_micros(round * 20));
        if call(libc::SYS_kill, &[usize::try_from(child).unwrap_or(0), 9]).is_err() || raw::wait(child).is_err() {
            return Finding::Broken("a waiting caller could not be killed".to_owned());
        }
    }
    let Ok(child) = raw::fork(notified) else { return Finding::Broken("cannot fork".to_owned()) };
    let deadline = Instant::now() + Duration::from_secs(2);
    let pid = usize::try_from(child).unwrap_or(0);
    let mut status = 0i32;
    loop {
        match call(libc::SYS_wait4, &[pid, (&raw mut status) as usize, 1, 0]) {
            Ok(0) if Instant::now() >= deadline => {
                let killed = call(libc::SYS_kill, &[pid, 9]);
                return Finding::Open(format!("the call hangs: nobody answers (ended: {})", killed.is_ok()));
            }
            Ok(0) => std::thread::sleep(Duration::from_millis(2)),
            _ if status == libc::EPERM << 8 => {
                return Finding::Contained("EPERM after 40 callers that died".to_owned());
            }
            _ => return Finding::Open(format!("status {status:#x}")),
        }
    }
}

pub(super) fn c07_mounts() -> Finding {
    const CLONE: usize = 1;
    let (kind, root, empty) = (c"tmpfs", c"/", c"");
    let (kind, root, empty) = (kind.as_ptr() as usize, root.as_ptr() as usize, empty.as_ptr() as usize);
    let here = usize::try_from(libc::AT_FDCWD).unwrap_or(NONE - 99);
    judge(&[
        Attempt::new("fsopen", call(libc::SYS_fsopen, &[kind, 0]), REFUSED),
        Attempt::new("open_tree", call(libc::SYS_open_tree, &[here, root, CLONE]), REFUSED),
        Attempt::new("move_mount", call(libc::SYS_move_mount, &[NONE, empty, NONE, empty, 0]), REFUSED),
        Attempt::new("mount_setattr", call(libc::SYS_mount_setattr, &[NONE, empty, 0, 0, 0]), REFUSED),
        Attempt::new("fspick", call(libc::SYS_fspick, &[here, root, 0]), REFUSED),
        Attempt::new("mount", call(libc::SYS_mount, &[kind, NOWHERE, kind, 0, 0]), REFUSED),
        Attempt::new("umount2", call(libc::SYS_umount2, &[NOWHERE, 0]), REFUSED),
        Attempt::new("pivot_root", call(libc::SYS_pivot_root, &[NOWHERE, NOWHERE]), REFUSED),
        Attempt::new("chroot", call(libc::SYS_chroot, &[NOWHERE]), REFUSED),
    ])
}

pub(super) fn c08_handles() -> Finding {
    judge(&[Attempt::new("open_by_handle_at", call(libc::SYS_open_by_handle_at, &[NONE, NOWHERE, 0]), REFUSED)])
}

pub(super) fn c09_bpf() -> Finding {
    judge(&[
        Attempt::new("bpf", call(libc::SYS_bpf, &[0, NOWHERE, 64]), REFUSED),
        Attempt::new("perf_event_open", call(libc::SYS_perf_event_open, &[NOWHERE, 0, NONE, NONE, 0]), REFUSED),
    ])
}

pub(super) fn c10_userfaultfd() -> Finding {
    const USER_MODE_ONLY: usize = 1;
    judge(&[Attempt::new("userfaultfd", call(libc::SYS_userfaultfd, &[USER_MODE_ONLY]), REFUSED)])
}

pub(super) fn c11_administration() -> Finding {
    let calls: &[(&str, libc::c_long, &[usize])] = &[
        ("init_module", libc::SYS_init_module, &[NOWHERE, 0, NOWHERE]),
        ("finit_module", libc::SYS_finit_module, &[NONE, NOWHERE, 0]),
        ("delete_module", libc::SYS_delete_module, &[NOWHERE, 0]),
        ("kexec_load", libc::SYS_kexec_load, &[0, 99, NOWHERE, NONE]),
        ("kexec_file_load", libc::SYS_kexec_file_load, &[NONE, NONE, 0, NOWHERE, NONE]),
        ("reboot", libc::SYS_reboot, &[0, 0, 0, 0]),
        ("swapon", libc::SYS_swapon, &[NOWHERE, 0]),
        ("swapoff", libc::SYS_swapoff, &[NOWHERE]),
        ("acct", libc::SYS_acct, &[NOWHERE]),
        ("quotactl", libc::SYS_quotactl, &[NONE, NOWHERE, 0, 0]),
        ("iopl", libc::SYS_iopl, &[3]),
        ("ioperm", libc::SYS_ioperm, &[0, 1, 1]),
    ];
    let attempts: Vec<Attempt> =
        calls.iter().map(|(name, number, arguments)| Attempt::new(*name, call(*number, arguments), REFUSED)).collect();
    judge(&attempts)
}

/// A family is refused by name, with a good type and with one that the kernel would complain about first.
fn family(name: &str, number: usize, protocol: usize) -> [Attempt; 2] {
    [
        Attempt::new(name, call(libc::SYS_socket, &[number, 3, protocol]), FAMILY),
        Attempt::new(name, call(libc::SYS_socket, &[number, NO_TYPE, protocol]), FAMILY),
    ]
}

pub(super) fn c12_vsock() -> Finding {
    let mut attempts: Vec<Attempt> = family("AF_VSOCK", 40, 0).into();
    attempts.push(Attempt::new("AF_VSOCK stream", call(libc::SYS_socket, &[40, 1, 0]), FAMILY));
    judge(&attempts)
}

pub(super) fn c13_families() -> Finding {
    let named = [("AF_ALG", 38), ("AF_RXRPC", 33), ("AF_KEY", 15), ("AF_TIPC", 30)];
    let mut attempts: Vec<Attempt> = named.into_iter().flat_map(|(name, number)| family(name, number, 0)).collect();
    for number in (3..46).filter(|n| ![10, 16].contains(n)) {
        attempts.extend(family(&format!("family {number}"), number, 0));
    }
    for number in [15usize, 38, 40] {
        let mut pair = [0i32; 2];
        let made = call(libc::SYS_socketpair, &[number, NO_TYPE, 0, (&raw mut pair) as usize]);
        attempts.push(Attempt::new(format!("socketpair of {number}"), made, FAMILY));
    }
    judge(&attempts)
}

pub(super) fn c14_raw_sockets() -> Finding {
    const ICMP: usize = 1;
    judge(&[
        Attempt::new("raw IPv4", call(libc::SYS_socket, &[2, 3, ICMP]), REFUSED),
        Attempt::new("raw IPv6", call(libc::SYS_socket, &[10, 3, 58]), REFUSED),
        Attempt::new("packet", call(libc::SYS_socket, &[17, 3, 0x0300]), FAMILY),
    ])
}

pub(super) fn c15_netlink() -> Finding {
    let protocols = [
        ("NETFILTER", 12),
        ("XFRM", 6),
        ("UEVENT", 15),
        ("AUDIT", 9),
        ("CONNECTOR", 11),
        ("GENERIC", 16),
        ("SOCK_DIAG", 4),
        ("CRYPTO", 21),
    ];
    let attempts: Vec<Attempt> = protocols.into_iter().flat_map(|(name, number)| family(name, 16, number)).collect();
    judge(&attempts)
}

pub(super) fn c19_personality() -> Finding {
    const LINUX32: usize = 8;
    const READ_IMPLIES_EXEC: usize = 0x0040_0000;
    const ADDR_COMPAT_LAYOUT: usize = 0x0020_0000;
    let mut attempts: Vec<Attempt> = [
        ("PER_LINUX32", LINUX32),
        ("READ_IMPLIES_EXEC", READ_IMPLIES_EXEC),
        ("ADDR_COMPAT_LAYOUT", ADDR_COMPAT_LAYOUT),
    ]
    .into_iter()
    .map(|(name, persona)| Attempt::new(name, call(libc::SYS_personality, &[persona]), REFUSED))
    .collect();
    attempts.push(Attempt::new("modify_ldt", call(libc::SYS_modify_ldt, &[99, 0, 0]), REFUSED));
    judge(&attempts)
}
