//! Rows about system calls: each control is a row of the filter, some with a capability behind it.

use std::process::Stdio;
use std::time::Duration;

use cofferdam_plan::Step;
use cofferdam_policy::{OnCritical, Origin, Policy, Ruled};
use cofferdam_testkit::{Place, edit};

use crate::raw;
use crate::row::{Finding, Off, ROW, Row, Trial, Walls};

pub(crate) static B09: Row = Row {
    what: "nested user namespaces",
    control: "max_user_namespaces is 0, and seccomp",
    reported: &["unshare", "clone"],
    off: Off::Edit(|plan, _| {
        edit::drop_steps(plan, |step| *step == Step::ForbidUserNamespaces);
        edit::let_through(plan, &["unshare", "clone", "clone3"]);
    }),
    ..ROW
};

/// These rows are about the refusal of each call: a session that ends at the first would try no other and say nothing. That it
/// ends is the command's tests'.
fn go_on_after_critical(policy: &mut Policy, _: &Place) {
    policy.response.critical = Ruled::new(OnCritical::Record, Origin::flag("--test"));
}

pub(crate) static B10: Row = Row {
    what: "setns",
    control: "no capability, seccomp",
    policy: go_on_after_critical,
    reported: &["setns"],
    off: Off::Edit(|plan, _| {
        edit::keep_capabilities(plan);
        edit::let_through(plan, &["setns"]);
    }),
    off_as_root: true,
    ..ROW
};

pub(crate) static B15: Row = Row {
    what: "kernel keyrings",
    control: "seccomp",
    reported: &["add_key", "keyctl", "request_key"],
    off: Off::Edit(|plan, _| edit::let_through(plan, &["add_key", "keyctl", "request_key"])),
    ..ROW
};

pub(crate) static B16: Row = Row {
    what: "terminal injection",
    control: "seccomp; own session",
    reported: &["ioctl"],
    off: Off::Edit(|plan, _| edit::let_through(plan, &["ioctl"])),
    ..ROW
};

pub(crate) static B17: Row = Row {
    what: "terminal injection with high bits",
    control: "ioctl requests are compared in 32 bits",
    reported: &["ioctl"],
    off: Off::Edit(|plan, _| edit::let_through(plan, &["ioctl"])),
    ..ROW
};

pub(crate) static B18: Row = Row {
    what: "clock and host name",
    control: "no capability, seccomp",
    off: Off::Edit(|plan, _| {
        edit::keep_capabilities(plan);
        edit::let_through(plan, &["sethostname", "setdomainname", "clock_settime", "settimeofday"]);
    }),
    off_as_root: true,
    ..ROW
};

pub(crate) static C01: Row = Row {
    what: "io_uring",
    control: "seccomp",
    off: Off::Edit(|plan, _| edit::let_through(plan, &["io_uring_setup", "io_uring_enter", "io_uring_register"])),
    ..ROW
};

pub(crate) static C02: Row = Row {
    what: "the i386 ABI",
    control: "the filter kills what is not x86_64",
    off: Off::Edit(|plan, _| edit::open_filter(plan)),
    ..ROW
};

pub(crate) static C03: Row = Row {
    what: "the x32 ABI",
    control: "the filter kills numbers with bit 30",
    off: Off::Edit(|plan, _| edit::open_filter(plan)),
    ..ROW
};

pub(crate) static C04: Row = Row {
    what: "unknown system calls",
    control: "what is not listed does not exist",
    off: Off::Edit(|plan, _| edit::open_filter(plan)),
    ..ROW
};

pub(crate) static C06: Row = Row {
    what: "callers that die while they wait for the supervisor",
    control: "the supervisor drops stale notifications and answers the next",
    policy: |policy, _| policy.syscalls.max_violations = Ruled::new(1000, Origin::flag("--test")),
    run: stale_notifications,
    // The supervisor is stopped: it does not answer.
    off: Off::Edit(|_, _| {}),
    ..ROW
};

fn stale_notifications(trial: &Trial) -> Finding {
    let mut helper = trial.start("c06", Stdio::null());
    let ready = helper.wait_for(&trial.project().join("ready"), Duration::from_secs(30));
    let supervisor = helper.child.id() as usize;
    let signal = |number: usize| raw::syscall(libc::SYS_kill, [supervisor, number, 0, 0, 0, 0]);
    let stopped = if trial.walls == Walls::Open { signal(19) } else { Ok(0) };
    trial.scene.write("home/project/go", "");
    let judged = helper.wait_for(&trial.project().join("judged"), Duration::from_secs(20));
    let continued = if trial.walls == Walls::Open { signal(18) } else { Ok(0) };
    match (ready, stopped, judged, continued, helper.finish()) {
        (Ok(true), Ok(_), Ok(true), Ok(_), Ok(launched)) => trial.answer(&launched),
        other => Finding::Broken(format!("{other:?}")),
    }
}

const MOUNTS: &[&str] =
    &["fsopen", "open_tree", "move_mount", "mount_setattr", "fspick", "mount", "umount2", "pivot_root", "chroot"];

pub(crate) static C07: Row = Row {
    what: "mounts, by the old and the new calls",
    control: "no capability, seccomp",
    policy: go_on_after_critical,
    reported: MOUNTS,
    off: Off::Edit(|plan, _| {
        edit::keep_capabilities(plan);
        edit::let_through(plan, MOUNTS);
    }),
    off_as_root: true,
    ..ROW
};

pub(crate) static C08: Row = Row {
    what: "open_by_handle_at",
    control: "seccomp",
    policy: go_on_after_critical,
    reported: &["open_by_handle_at"],
    off: Off::Edit(|plan, _| edit::let_through(plan, &["open_by_handle_at"])),
    ..ROW
};

pub(crate) static C09: Row = Row {
    what: "bpf and perf_event_open",
    control: "seccomp",
    reported: &["bpf", "perf_event_open"],
    off: Off::Edit(|plan, _| edit::let_through(plan, &["bpf", "perf_event_open"])),
    ..ROW
};

pub(crate) static C10: Row = Row {
    what: "userfaultfd",
    control: "seccomp",
    reported: &["userfaultfd"],
    off: Off::Edit(|plan, _| edit::let_through(plan, &["userfaultfd"])),
    ..ROW
};

const ADMINISTRATION: &[&str] = &[
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "kexec_file_load",
    "reboot",
    "swapon",
    "swapoff",
    "acct",
    "quotactl",
    "iopl",
    "ioperm",
];

pub(crate) static C11: Row = Row {
    what: "modules, kexec, reboot, swap, accounting, quota",
    control: "no capability, seccomp",
    policy: go_on_after_critical,
    reported: ADMINISTRATION,
    // The kernel refuses these to a user namespace as well; what the control adds is that they do not get that far.
    off: Off::Edit(|plan, _| edit::let_through(plan, ADMINISTRATION)),
    ..ROW
};

pub(crate) static C19: Row = Row {
    what: "execution domains and local descriptor tables",
    control: "seccomp",
    off: Off::Edit(|plan, _| edit::let_through(plan, &["personality", "modify_ldt"])),
    ..ROW
};
