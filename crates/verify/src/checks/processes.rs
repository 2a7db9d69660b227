//! Checks about processes: those of the host, pid 1, and what the probe itself is.

use cofferdam_plan::Step;

use crate::edit;
use crate::spec::{Away, SPEC, Seen, Spec};

const GROUP: &str = "processes and privilege";
const PIDS: &str = "the pid namespace";

pub(super) const ALL: &[Spec] = &[
    Spec {
        id: "V5",
        title: "processes of the host are not seen",
        group: GROUP,
        wall: PIDS,
        probe: "read-process",
        ..SPEC
    },
    Spec {
        id: "V6",
        title: "processes of the host get no signal",
        group: GROUP,
        wall: PIDS,
        probe: "end-process",
        seen: Seen::OnHost(|_, canaries| canaries.process_was_ended()),
        ..SPEC
    },
    Spec {
        id: "B7",
        title: "processes of the host are not traced",
        group: GROUP,
        wall: PIDS,
        probe: "trace-process",
        ..SPEC
    },
    Spec {
        id: "B6",
        title: "pid 1 is no deputy: its memory, variables and root are closed",
        group: GROUP,
        wall: "pid 1 is not dumpable",
        probe: "open-first-process",
        away: Away::Probe { what: "the same on the probe's own process", name: "open-own-process" },
        ..SPEC
    },
    Spec {
        id: "B20",
        title: "processes end with their session",
        group: GROUP,
        wall: PIDS,
        probe: "outlive",
        seen: Seen::OnHost(|errand, _| {
            std::thread::sleep(std::time::Duration::from_millis(900));
            let mark = errand.scratch().project().join("outlived");
            mark.exists().then(|| "a process went on after the end".to_owned())
        }),
        ..SPEC
    },
    Spec {
        id: "A1",
        title: "descriptors of the caller do not come along",
        group: GROUP,
        wall: "descriptors are closed",
        probe: "inherited-descriptors",
        ..SPEC
    },
    Spec {
        id: "B21",
        title: "secrets of the caller's environment do not come along",
        group: GROUP,
        wall: "the environment is built",
        probe: "secrets-in-environment",
        ..SPEC
    },
    Spec {
        id: "A12",
        title: "variables that carry code do not come along",
        group: GROUP,
        wall: "the environment is built",
        probe: "code-in-environment",
        ..SPEC
    },
    Spec {
        id: "A14",
        title: "namespaces are not the host's",
        group: GROUP,
        wall: "namespaces",
        probe: "namespaces",
        ..SPEC
    },
    Spec {
        id: "C16",
        title: "set-user-ID programs give no rights",
        group: GROUP,
        wall: "no_new_privs and nosuid",
        probe: "no-new-privileges",
        ..SPEC
    },
    Spec {
        id: "C17",
        title: "all capability sets are empty",
        group: GROUP,
        wall: "capabilities are dropped",
        probe: "capabilities",
        away: Away::Edited {
            what: "dropping capabilities",
            edit: |plan, _| edit::drop_steps(plan, |step| *step == Step::DropCapabilities),
        },
        ..SPEC
    },
    Spec {
        id: "C21",
        title: "every thread has the system call filter",
        group: GROUP,
        wall: "the system call filter",
        probe: "filter-of-threads",
        ..SPEC
    },
];
