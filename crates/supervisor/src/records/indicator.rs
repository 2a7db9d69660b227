//! What a refused call is a sign of: the wall that it goes against, how grave that is, and a description. Owns that table, with
//! `Critical` for calls that no program makes without meaning it; ends nothing. Used by `log`.

use cofferdam_wire::{Level, Wall};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Indicator {
    pub(crate) wall: Wall,
    pub(crate) level: Level,
    pub(crate) description: &'static str,
}

const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;

pub(crate) fn of(call: &str, arguments: &[u64; 6]) -> Indicator {
    let (wall, level, description) = match call {
        "open_by_handle_at" => (Wall::Filesystem, Level::Critical, "opens files by handle, around their paths"),
        "pivot_root" => (Wall::Filesystem, Level::Critical, "replaces the root"),
        "setns" => (Wall::Process, Level::Critical, "joins a foreign namespace"),
        "init_module" | "finit_module" | "delete_module" => {
            (Wall::Syscall, Level::Critical, "changes the kernel's modules")
        }
        "kexec_load" | "kexec_file_load" => (Wall::Syscall, Level::Critical, "replaces the kernel"),
        "mount" | "umount2" | "chroot" | "fsopen" | "fsconfig" | "fsmount" | "fspick" | "open_tree"
        | "open_tree_attr" | "move_mount" | "mount_setattr" | "statmount" | "listmount" => {
            (Wall::Filesystem, Level::Medium, "changes or lists mounts")
        }
        "unshare" => (Wall::Process, Level::Medium, "makes a namespace"),
        "clone" | "fork" | "vfork" => {
            (Wall::Process, Level::Medium, "makes a process or a namespace that policy does not allow")
        }
        "execve" | "execveat" => (Wall::Process, Level::Medium, "starts a program that policy does not list"),
        "ptrace" | "process_vm_readv" | "process_vm_writev" | "kcmp" | "pidfd_getfd" => {
            (Wall::Process, Level::Medium, "looks into another process")
        }
        "ioctl" => (Wall::Process, Level::High, "puts input into a terminal"),
        "io_uring_setup" | "io_uring_enter" | "io_uring_register" => {
            (Wall::Syscall, Level::Medium, "makes calls that no filter sees")
        }
        "add_key" | "request_key" | "keyctl" => (Wall::Syscall, Level::Medium, "uses kernel keyrings"),
        "bpf" | "perf_event_open" | "userfaultfd" | "lookup_dcookie" => {
            (Wall::Syscall, Level::Medium, "programs the kernel")
        }
        "memfd_create" => (Wall::Process, Level::Medium, "makes a file in memory where programs are listed"),
        // The low half, as the kernel reads it.
        "socket" if matches!(arguments[0] & 0xffff_ffff, AF_INET | AF_INET6) => {
            (Wall::Network, Level::Low, "makes an internet socket where there is no network")
        }
        "socket" | "socketpair" => (Wall::Network, Level::Low, "makes a socket of a family that is not on the list"),
        _ => (Wall::Syscall, Level::Low, "a call that the filter refuses"),
    };
    Indicator { wall, level, description }
}
