//! What a refused call is a sign of: the wall that it goes against, how grave that is, and a description. Owns that table, with
//! `Critical` for calls that no program makes without meaning it; ends nothing. Used by `log`.

use serde::Serialize;

pub(crate) const FILESYSTEM: &str = "FILESYSTEM";
pub(crate) const NETWORK: &str = "NETWORK";
const PROCESS: &str = "PROCESS";
const SYSCALL: &str = "SYSCALL";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Level {
    /// Harmless programs do it as well.
    Low,
    /// Few do, and all can do without.
    Medium,
    /// It has one use inside, and that is an attack.
    High,
    /// No program does it without meaning to leave.
    Critical,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Indicator {
    pub(crate) wall: &'static str,
    pub(crate) level: Level,
    pub(crate) description: &'static str,
}

const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;

pub(crate) fn of(call: &str, arguments: &[u64; 6]) -> Indicator {
    let (wall, level, description) = match call {
        "open_by_handle_at" => (FILESYSTEM, Level::Critical, "opens files by handle, around their paths"),
        "pivot_root" => (FILESYSTEM, Level::Critical, "replaces the root"),
        "setns" => (PROCESS, Level::Critical, "joins a foreign namespace"),
        "init_module" | "finit_module" | "delete_module" => (SYSCALL, Level::Critical, "changes the kernel's modules"),
        "kexec_load" | "kexec_file_load" => (SYSCALL, Level::Critical, "replaces the kernel"),
        "mount" | "umount2" | "chroot" | "fsopen" | "fsconfig" | "fsmount" | "fspick" | "open_tree"
        | "open_tree_attr" | "move_mount" | "mount_setattr" | "statmount" | "listmount" => {
            (FILESYSTEM, Level::Medium, "changes or lists mounts")
        }
        "unshare" => (PROCESS, Level::Medium, "makes a namespace"),
        "clone" | "fork" | "vfork" => {
            (PROCESS, Level::Medium, "makes a process or a namespace that policy does not allow")
        }
        "execve" | "execveat" => (PROCESS, Level::Medium, "starts a program that policy does not list"),
        "ptrace" | "process_vm_readv" | "process_vm_writev" | "kcmp" | "pidfd_getfd" => {
            (PROCESS, Level::Medium, "looks into another process")
        }
        "ioctl" => (PROCESS, Level::High, "puts input into a terminal"),
        "io_uring_setup" | "io_uring_enter" | "io_uring_register" => {
            (SYSCALL, Level::Medium, "makes calls that no filter sees")
        }
        "add_key" | "request_key" | "keyctl" => (SYSCALL, Level::Medium, "uses kernel keyrings"),
        "bpf" | "perf_event_open" | "userfaultfd" | "lookup_dcookie" => (SYSCALL, Level::Medium, "programs the kernel"),
        "memfd_create" => (PROCESS, Level::Medium, "makes a file in memory where programs are listed"),
        // The low half, as the kernel reads it.
        "socket" if matches!(arguments[0] & 0xffff_ffff, AF_INET | AF_INET6) => {
            (NETWORK, Level::Low, "makes an internet socket where there is no network")
        }
        "socket" | "socketpair" => (NETWORK, Level::Low, "makes a socket of a family that is not on the list"),
        _ => (SYSCALL, Level::Low, "a call that the filter refuses"),
    };
    Indicator { wall, level, description }
}
