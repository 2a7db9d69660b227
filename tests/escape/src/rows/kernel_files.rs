//! Rows about /proc, /sys and /dev.

use cofferdam_plan::{LaunchPlan, Step};
use cofferdam_testkit::{Place, edit};

use crate::row::{Off, ROW, Row};

/// /proc and /sys as the kernel makes them.
fn uncover(plan: &mut LaunchPlan, _: &Place) {
    edit::drop_mounts(plan, edit::covers_the_kernel);
}

pub(crate) static B01: Row =
    Row { what: "core_pattern", control: "/proc/sys is read-only", off: Off::Edit(uncover), ..ROW };

pub(crate) static B02: Row = Row {
    what: "switches of the machine in /proc and /sys",
    control: "read-only or absent",
    off: Off::Edit(uncover),
    ..ROW
};

pub(crate) static B03: Row = Row {
    what: "cgroup release_agent and membership",
    control: "no cgroup file system in the view, and none can be mounted",
    reported: &["mount"],
    off: Off::Edit(|plan, place| {
        uncover(plan, place);
        edit::keep_capabilities(plan);
        edit::let_through(plan, &["mount"]);
    }),
    off_as_root: true,
    ..ROW
};

pub(crate) static B04: Row = Row {
    what: "a file that everybody may open for writing",
    control: "/proc/sys is read-only, no capability",
    off: Off::Edit(|plan, place| {
        uncover(plan, place);
        edit::keep_capabilities(plan);
    }),
    off_as_root: true,
    ..ROW
};

pub(crate) static B05: Row =
    Row { what: "files that describe the kernel", control: "masked", off: Off::Edit(uncover), ..ROW };

pub(crate) static C18: Row = Row {
    what: "device nodes",
    control: "cannot be made; nodev on every mount but the few devices",
    off: Off::Bare,
    ..ROW
};

pub(crate) static C20: Row = Row {
    what: "the kernel's log",
    control: "no node, masked, seccomp",
    off: Off::Edit(|plan, place| {
        uncover(plan, place);
        edit::let_through(plan, &["syslog"]);
        // The host's /dev, which has the node; stdin needs the sandbox's own device.
        edit::drop_steps(plan, |step| match step {
            Step::Mount(mount) => mount.target.starts_with("/dev") && !mount.target.ends_with("null"),
            Step::Link { at, .. } => at.starts_with("/dev"),
            _ => false,
        });
    }),
    ..ROW
};
