//! Checks about limits. Who keeps one differs from host to host; these are small, so that no control harms the machine.

use cofferdam_wire::End;

use crate::spec::{Away, SPEC, Spec};

const GROUP: &str = "limits";

pub(super) const ALL: &[Spec] = &[
    Spec {
        id: "D1",
        title: "processes past the limit are refused, or the session is ended",
        group: GROUP,
        wall: "the limit of processes",
        probe: "many-processes",
        flags: &[("--max-processes", "40")],
        ends: &[End::ProcessLimit],
        away: Away::Flags,
        ..SPEC
    },
    Spec {
        id: "D2",
        title: "memory past the limit ends the session",
        group: GROUP,
        wall: "the limit of memory",
        probe: "much-memory",
        flags: &[("--memory", "64M")],
        ends: &[End::OutOfMemory],
        away: Away::Flags,
        ..SPEC
    },
    Spec {
        id: "D4",
        title: "output past the limit ends the session",
        group: GROUP,
        wall: "the limit of output",
        probe: "much-output",
        flags: &[("--max-output", "64K")],
        ends: &[End::OutputLimit],
        away: Away::Flags,
        ..SPEC
    },
    Spec {
        id: "D7",
        title: "descriptors past the limit are refused",
        group: GROUP,
        wall: "the limit of open files",
        probe: "many-descriptors",
        flags: &[("--open-files", "100")],
        away: Away::Flags,
        ..SPEC
    },
    Spec {
        id: "V10",
        title: "a session ends when its time is over",
        group: GROUP,
        wall: "the limit of time",
        probe: "much-time",
        flags: &[("--timeout", "1s")],
        ends: &[End::TimedOut],
        away: Away::Flags,
        ..SPEC
    },
];
