//! Checks about /proc, /sys and /dev.

use crate::edit;
use crate::spec::{Away, SPEC, Spec};

const GROUP: &str = "kernel interfaces";

const UNCOVERED: Away = Away::Edited {
    what: "the covers over /proc and /sys",
    edit: |plan, _| edit::drop_mounts(plan, edit::covers_the_kernel),
};

pub(super) const ALL: &[Spec] = &[
    Spec {
        id: "B1",
        title: "the pattern of core dumps is not written",
        group: GROUP,
        wall: "/proc/sys is read-only",
        probe: "switches:/proc/sys/kernel/core_pattern",
        away: UNCOVERED,
        ..SPEC
    },
    Spec {
        id: "B2",
        title: "switches of the machine are read-only or absent",
        group: GROUP,
        wall: "covers over /proc and /sys",
        probe: "switches:/proc/sysrq-trigger,/proc/sys/kernel/modprobe,/proc/sys/vm/drop_caches,/proc/sys/kernel/printk,/proc/irq/default_smp_affinity",
        away: UNCOVERED,
        ..SPEC
    },
    Spec {
        id: "B3",
        title: "cgroups of the host are out of reach",
        group: GROUP,
        wall: "covers over /sys",
        probe: "visible:/sys/fs/cgroup/cgroup.procs,/sys/fs/cgroup/cgroup.controllers,/sys/fs/cgroup/memory",
        ..SPEC
    },
    Spec {
        id: "B5",
        title: "descriptions of the kernel are masked",
        group: GROUP,
        wall: "covers over /proc and /sys",
        probe: "visible:/proc/keys,/proc/kallsyms,/sys/kernel/mm,/sys/module",
        away: UNCOVERED,
        ..SPEC
    },
    Spec {
        id: "C18",
        title: "devices of the host are absent",
        group: GROUP,
        wall: "a /dev of its own",
        probe: "visible:/dev/kmsg,/dev/mem,/dev/kvm,/dev/vda,/dev/sda,/dev/nvme0,/dev/loop-control,/dev/net/tun,/dev/fuse",
        ..SPEC
    },
];
