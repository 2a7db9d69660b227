//! System calls that no policy can allow. Owns the list of names; numbers and filters are `plan`'s.
//! Asked by `file` when a policy names a call to allow, and by tests of the filter.

/// Sorted, so that a search is a binary search and a reviewer finds a name.
pub const ALWAYS_DENIED: &[&str] = &[
    "acct",
    "add_key",
    "bpf",
    "chroot",
    "clone3",
    "delete_module",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "init_module",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "ioperm",
    "iopl",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "lookup_dcookie",
    "mount",
    "mount_setattr",
    "move_mount",
    "nfsservctl",
    "open_by_handle_at",
    "open_tree",
    "open_tree_attr",
    "perf_event_open",
    "pivot_root",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "request_key",
    "setns",
    "settimeofday",
    "swapoff",
    "swapon",
    "syslog",
    "umount",
    "umount2",
    "unshare",
    "userfaultfd",
    "vhangup",
];

pub fn is_always_denied(call: &str) -> bool {
    ALWAYS_DENIED.binary_search(&call).is_ok()
}
