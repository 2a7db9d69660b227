//! Checks about system calls: each wall is a row of the filter, some with a capability behind it. A call that no harmless program
//! makes ends its session, so each of those has a session of its own.

use cofferdam_plan::{LaunchPlan, Step};
use cofferdam_wire::End;

use crate::edit;
use crate::errand::Errand;
use crate::spec::{Away, SPEC, Spec};

const GROUP: &str = "system calls";
const FILTER: &str = "the system call filter";
const ENDS: &[End] = &[End::EscapeAttempt, End::TooManyViolations];

const CALL: Spec = Spec { group: GROUP, wall: FILTER, ends: ENDS, ..SPEC };

/// A control that lets these calls through and keeps the rest of the filter.
macro_rules! through {
    ($($name:literal),+) => {
        Away::Edited { what: concat!("the filter's rows for", $(" ", $name),+), edit: |plan: &mut LaunchPlan, _: &Errand| edit::let_through(plan, &[$($name),+]) }
    };
}

/// The same, with capabilities.
macro_rules! through_as_root {
    ($($name:literal),+) => {
        Away::EditedAsRoot {
            what: concat!("dropping capabilities and the filter's rows for", $(" ", $name),+),
            edit: |plan: &mut LaunchPlan, _: &Errand| {
                edit::keep_capabilities(plan);
                edit::let_through(plan, &[$($name),+]);
            },
        }
    };
}

pub(super) const ALL: &[Spec] = &[
    Spec {
        id: "B9",
        title: "no user namespace is made",
        probe: "calls:unshare",
        reported: &["unshare"],
        away: Away::Edited {
            what: "the count of user namespaces and the filter's row for unshare",
            edit: |plan, _| {
                edit::drop_steps(plan, |step| *step == Step::ForbidUserNamespaces);
                edit::let_through(plan, &["unshare"]);
            },
        },
        ..CALL
    },
    Spec {
        id: "B10",
        title: "no other namespace is entered",
        probe: "calls:setns",
        reported: &["setns"],
        away: through!("setns"),
        ..CALL
    },
    Spec {
        id: "C7",
        title: "nothing is mounted, by old and new calls",
        probe: "calls:mount,umount2,fsopen,open_tree,move_mount,mount_setattr,chroot",
        reported: &["mount", "umount2", "fsopen", "open_tree", "move_mount", "mount_setattr", "chroot"],
        away: through_as_root!("mount", "umount2", "fsopen", "open_tree", "move_mount", "mount_setattr", "chroot"),
        ..CALL
    },
    Spec {
        id: "V7",
        title: "the root is not exchanged",
        probe: "calls:pivot_root",
        reported: &["pivot_root"],
        away: through_as_root!("pivot_root"),
        ..CALL
    },
    Spec {
        id: "C8",
        title: "no file is opened by its handle",
        probe: "calls:open_by_handle_at",
        reported: &["open_by_handle_at"],
        away: through!("open_by_handle_at"),
        ..CALL
    },
    Spec {
        id: "C11",
        title: "no module is loaded",
        probe: "calls:finit_module",
        reported: &["finit_module"],
        away: through!("finit_module"),
        ..CALL
    },
    Spec {
        id: "V8",
        title: "no other kernel is loaded",
        probe: "calls:kexec_load",
        reported: &["kexec_load"],
        away: through!("kexec_load"),
        ..CALL
    },
    Spec {
        id: "C9",
        title: "bpf and perf are refused",
        probe: "calls:bpf,perf_event_open",
        reported: &["bpf", "perf_event_open"],
        away: through!("bpf", "perf_event_open"),
        ..CALL
    },
    Spec {
        id: "C1",
        title: "io_uring is absent",
        probe: "calls:io_uring_setup",
        away: through!("io_uring_setup"),
        ..CALL
    },
    Spec {
        id: "B15",
        title: "kernel keyrings are refused",
        probe: "calls:add_key,keyctl,request_key",
        reported: &["add_key", "keyctl", "request_key"],
        away: through!("add_key", "keyctl", "request_key"),
        ..CALL
    },
    Spec {
        id: "C10",
        title: "userfaultfd is refused",
        probe: "calls:userfaultfd",
        reported: &["userfaultfd"],
        away: through!("userfaultfd"),
        ..CALL
    },
    Spec {
        id: "C19",
        title: "execution domains are refused",
        probe: "calls:personality",
        away: through!("personality"),
        ..CALL
    },
    Spec {
        id: "B16",
        title: "nothing is typed into a terminal",
        probe: "calls:ioctl TIOCSTI,ioctl (1<<32)|TIOCSTI",
        reported: &["ioctl"],
        away: through!("ioctl"),
        ..CALL
    },
    Spec {
        id: "B18",
        title: "clock and host name are not set",
        probe: "calls:clock_settime,sethostname",
        away: through_as_root!("clock_settime", "sethostname"),
        ..CALL
    },
    Spec {
        id: "V9",
        title: "swap and reboot are refused",
        probe: "calls:swapon,reboot",
        reported: &["swapon", "reboot"],
        away: through_as_root!("swapon", "reboot"),
        ..CALL
    },
    Spec { id: "C20", title: "the kernel's log is not read", probe: "calls:syslog", away: through!("syslog"), ..CALL },
];
