//! Calls that a workload must not get through, with arguments such that nothing happens where one does. Owns the table; what an
//! answer means is the caller's. Called by the probe of `sandbox verify`, inside and, as its negative control, without a wall.

use rustix::io::Errno;

use crate::raw::attempt::{NOWHERE, call};

/// A call with the arguments that it is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    pub name: &'static str,
    number: libc::c_long,
    arguments: [usize; 6],
}

impl Call {
    /// Makes it. A descriptor that it returns stays open until this process ends.
    pub fn make(self) -> Result<(), Errno> {
        call(self.number, self.arguments)
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Call> {
        CALLS.iter().copied().find(|call| call.name == name)
    }
}

/// Asks to trace another process, without stopping it.
pub fn trace(process: u32) -> Result<(), Errno> {
    const SEIZE: usize = 0x4206;
    let process = usize::try_from(process).map_err(|_| Errno::SRCH)?;
    call(libc::SYS_ptrace, [SEIZE, process, 0, 0, 0, 0])
}

const fn row(name: &'static str, number: libc::c_long, arguments: [usize; 6]) -> Call {
    Call { name, number, arguments }
}

/// -1: no descriptor, no process.
const NONE: usize = usize::MAX;
const NEW_USER: usize = 0x1000_0000;
const PROCESS_KEYRING: usize = usize::MAX - 1;
const TIOCSTI: usize = 0x5412;
const READ_IMPLIES_EXEC: usize = 0x0040_0000;
/// Above the largest number of segments: refused before the kernel looks at them.
const TOO_MANY: usize = 99;
const READ_ALL: usize = 3;
const INET: usize = 2;
const NETLINK: usize = 16;
const PACKET: usize = 17;
const ALG: usize = 38;
const VSOCK: usize = 40;
const RAW: usize = 3;
/// No socket has this type: the kernel says EINVAL before it looks for the family, so only a filter says EAFNOSUPPORT.
const NO_TYPE: usize = 15;

const CALLS: &[Call] = &[
    row("unshare", libc::SYS_unshare, [NEW_USER, 0, 0, 0, 0, 0]),
    row("setns", libc::SYS_setns, [NONE, 0, 0, 0, 0, 0]),
    row("mount", libc::SYS_mount, [NOWHERE, NOWHERE, NOWHERE, 0, 0, 0]),
    row("umount2", libc::SYS_umount2, [NOWHERE, 0, 0, 0, 0, 0]),
    row("fsopen", libc::SYS_fsopen, [NOWHERE, 0, 0, 0, 0, 0]),
    row("open_tree", libc::SYS_open_tree, [NONE, NOWHERE, 1, 0, 0, 0]),
    row("move_mount", libc::SYS_move_mount, [NONE, NOWHERE, NONE, NOWHERE, 0, 0]),
    row("mount_setattr", libc::SYS_mount_setattr, [NONE, NOWHERE, 0, NOWHERE, 32, 0]),
    row("chroot", libc::SYS_chroot, [NOWHERE, 0, 0, 0, 0, 0]),
    row("pivot_root", libc::SYS_pivot_root, [NOWHERE, NOWHERE, 0, 0, 0, 0]),
    row("open_by_handle_at", libc::SYS_open_by_handle_at, [NONE, NOWHERE, 0, 0, 0, 0]),
    row("add_key", libc::SYS_add_key, [NOWHERE, NOWHERE, NOWHERE, 1, PROCESS_KEYRING, 0]),
    row("keyctl", libc::SYS_keyctl, [0, PROCESS_KEYRING, 0, 0, 0, 0]),
    row("request_key", libc::SYS_request_key, [NOWHERE, NOWHERE, 0, PROCESS_KEYRING, 0, 0]),
    row("bpf", libc::SYS_bpf, [0, NOWHERE, 64, 0, 0, 0]),
    row("perf_event_open", libc::SYS_perf_event_open, [NOWHERE, 0, NONE, NONE, 0, 0]),
    row("io_uring_setup", libc::SYS_io_uring_setup, [1, NOWHERE, 0, 0, 0, 0]),
    row("userfaultfd", libc::SYS_userfaultfd, [1, 0, 0, 0, 0, 0]),
    row("init_module", libc::SYS_init_module, [NOWHERE, 0, NOWHERE, 0, 0, 0]),
    row("finit_module", libc::SYS_finit_module, [NONE, NOWHERE, 0, 0, 0, 0]),
    row("kexec_load", libc::SYS_kexec_load, [0, TOO_MANY, NOWHERE, NONE, 0, 0]),
    // Without its two magic numbers the kernel refuses it whoever asks.
    row("reboot", libc::SYS_reboot, [0, 0, 0, 0, 0, 0]),
    row("swapon", libc::SYS_swapon, [NOWHERE, 0, 0, 0, 0, 0]),
    row("personality", libc::SYS_personality, [READ_IMPLIES_EXEC, 0, 0, 0, 0, 0]),
    row("clock_settime", libc::SYS_clock_settime, [0, NOWHERE, 0, 0, 0, 0]),
    row("sethostname", libc::SYS_sethostname, [NOWHERE, 1, 0, 0, 0, 0]),
    row("syslog", libc::SYS_syslog, [READ_ALL, NOWHERE, 1, 0, 0, 0]),
    row("ioctl TIOCSTI", libc::SYS_ioctl, [NONE, TIOCSTI, NOWHERE, 0, 0, 0]),
    row("ioctl (1<<32)|TIOCSTI", libc::SYS_ioctl, [NONE, (1 << 32) | TIOCSTI, NOWHERE, 0, 0, 0]),
    row("raw socket", libc::SYS_socket, [INET, RAW, 1, 0, 0, 0]),
    row("packet socket", libc::SYS_socket, [PACKET, RAW, 0x0300, 0, 0, 0]),
    row("AF_VSOCK", libc::SYS_socket, [VSOCK, NO_TYPE, 0, 0, 0, 0]),
    row("AF_ALG", libc::SYS_socket, [ALG, NO_TYPE, 0, 0, 0, 0]),
    row("netlink NETFILTER", libc::SYS_socket, [NETLINK, RAW, 12, 0, 0, 0]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_of_the_table_has_an_address_of_this_process() {
        for call in CALLS {
            // Programs and their memory lie above.
            let is_number = |argument: usize| !((1 << 33)..NOWHERE).contains(&argument);
            assert!(call.arguments.into_iter().all(is_number), "{}", call.name);
            assert_eq!(Call::named(call.name), Some(*call));
        }
        assert_eq!(Call::named("no such call"), None);
    }

    #[test]
    fn calls_with_nothing_to_work_on_do_nothing() {
        for name in ["mount", "setns", "finit_module", "kexec_load", "clock_settime", "ioctl TIOCSTI"] {
            let answer = Call::named(name).map(Call::make);
            assert!(matches!(answer, Some(Err(_))), "{name} {answer:?}");
        }
    }
}
