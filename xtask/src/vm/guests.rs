//! The guests and what each promises. Owns the list: kernel, init, what is switched off, which tests run; how a guest is
//! booted is `machine`'s business, how it comes to be so is that of the scripts in `guest/`.

use std::time::Duration;

use crate::vm::kernel::Version;

/// Tests that meet the kernel: the escape suite, launcher and supervisor, the gate's table for both triggers, and of the command what mounts, namespaces, signals and
/// tracing decide. Policy and plan are the same on every kernel.
macro_rules! kernel_facing {
    () => {
        "(package(cofferdam-escape) + package(cofferdam-kernel) + package(cofferdam-host) + package(cofferdam-launcher) + package(cofferdam-supervisor) \
         + package(cofferdam-testkit) + package(cofferdam-verify) + (package(cofferdam-cli) & test(/^(isolation|guest|limits)::/))) \
         - test(/^debugging::gdb|guest_(without|systemd)_|::a_flood_of_new_directories|::many_first_opens_below|::more_files_than_are_served|::a_flood_of_questions/) \
         - (binary(neighbour) + binary(crowd) + test(/^escape_d08_deep|^escape_f(0[2-9]|1)|^escape_g(0[24-9]|1[0-79]|2|3)|^a_flood_of_refused|^html::tests::browser|remove_tree::tests::a_(hundred_thousand|tree_deeper)/) \
         + test(/^escape_(a1[7-9]|a2|c05_flipped|d09|d10_flood_of_q|d11|e0[34]|e1|e2)/) + test(/^((limits|store|approvals)::)?(dbus|systemd_scope|sweep|control_socket|prompt|tracked)::tests|^(persist|policy_files)::/) + binary(output) + binary(world) \
         + (package(cofferdam-verify) & test(/^(capabilities_that|a_shared_network|shared_processes|names_without|an_environment|limits_that|kernel_files_without|a_forged|a_policy_that|wrong_usage)/)))"
    };
}
const KERNEL_FACING: &str = kernel_facing!();
/// The second trigger's half of the gate's table runs on this kernel in the guest without FUSE.
const KERNEL_FACING_6_12: &str = concat!("(", kernel_facing!(), ") - (binary(gate) & test(/^calls::/))");
// Left to real processors, since they show little about a kernel and are slow or wrong at a tenth of the speed: terminals
// (bash itself, without a sandbox, then loses a trap in `read -t 0.1`), toolchains and gdb (long starts), what a neighbour
// waits (ratios of times), a hundred thousand files and a hundred megabytes (minutes), the bus, the sweeper, the control socket, git's index and packs, policy files and
// their lock (no kernel decides them),
// pages in a browser, the prompt and the limit of output (answers within 200 ms to five seconds), approvals and records but for the first (no kernel decides them), the world of servers (nothing of ours is in it), and
// most walls that verify is shown without (two remain), and what egress decides without a kernel: of its rows those remain that show how connections are caught; a flood of
// connections is none at this speed. Also left out, since each takes minutes there: what the command does with files, sharing and tracing, the
// rows about covers, aliases, streams, homes and git, those that race, and those with thousands of names or questions, or with hundreds of threads that open at once.
/// What is left out above because it takes minutes there: by hand, with `--long`.
const SLOW: &str = "(package(cofferdam-escape) & (test(guest_root_ten_thousand) + test(/^escape_(a1[7-9]|a2|c05_flipped|d09|d10_flood_of_q|d11|e0[34]|e1|e2)/))) \
     + (package(cofferdam-cli) & test(/^(files|sharing|debugging)::/)) - test(/^debugging::gdb/)";
/// What shows a guest that lacks something: tests named after it, which are skipped elsewhere.
const NO_USERNS: &str = "test(guest_without_user_namespaces)";
/// Without FUSE the other trigger asks: its half of the gate's table, and the rows about questions.
const NO_FUSE: &str = "test(guest_without_fuse) + binary(launch) + test(/^isolation::/) \
     + ((binary(gate) & test(/^calls::/)) - test(/::a_flood_of_questions/)) + test(/^escape_(b07_gate|c05|d10_flood_of_q|f01)/)";
const SYSTEMD: &str = "test(guest_systemd) + binary(launch) + test(/^isolation::/)";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Init {
    /// The rig's own script, which delegates a cgroup by hand.
    Script,
    /// systemd, with a user manager and a session bus for the test user.
    Systemd,
}

#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) name: &'static str,
    pub(crate) kernel: Version,
    pub(crate) init: Init,
    pub(crate) user_namespaces: bool,
    pub(crate) fuse: bool,
    /// A filter expression of nextest.
    pub(crate) tests: &'static str,
    /// Past it the guest hangs.
    pub(crate) patience: Duration,
}

const MINUTE: u64 = 60;
/// Booting, facts and handing results over. Tests that take longer than what is left are ended in the guest, so that
/// their results reach the host.
const FOR_THE_REST: Duration = Duration::from_secs(MINUTE);

pub(crate) const GUESTS: [Guest; 5] = [
    Guest {
        name: "6.1",
        kernel: Version::V6_1,
        init: Init::Script,
        user_namespaces: true,
        fuse: true,
        tests: KERNEL_FACING,
        patience: Duration::from_secs(45 * MINUTE),
    },
    Guest {
        name: "6.12",
        kernel: Version::V6_12,
        init: Init::Script,
        user_namespaces: true,
        fuse: true,
        tests: KERNEL_FACING_6_12,
        patience: Duration::from_secs(45 * MINUTE),
    },
    Guest {
        name: "no-userns",
        kernel: Version::V6_12,
        init: Init::Script,
        user_namespaces: false,
        fuse: true,
        tests: NO_USERNS,
        patience: Duration::from_secs(6 * MINUTE),
    },
    Guest {
        name: "no-fuse",
        kernel: Version::V6_12,
        init: Init::Script,
        user_namespaces: true,
        fuse: false,
        tests: NO_FUSE,
        patience: Duration::from_secs(20 * MINUTE),
    },
    Guest {
        name: "systemd",
        kernel: Version::V6_12,
        init: Init::Systemd,
        user_namespaces: true,
        fuse: true,
        tests: SYSTEMD,
        patience: Duration::from_secs(15 * MINUTE),
    },
];

/// The guests of `--long`.
pub(crate) const LONG: [Guest; 2] = [long(&GUESTS[0]), long(&GUESTS[1])];

const fn long(guest: &Guest) -> Guest {
    Guest { tests: SLOW, patience: Duration::from_secs(90 * MINUTE), ..*guest }
}

impl Guest {
    /// What the scripts in the guest read: assignments of a shell.
    pub(crate) fn settings(&self, toolchain: &str, tests: &str) -> String {
        let yes_no = |flag: bool| if flag { "yes" } else { "no" };
        let init = match self.init {
            Init::Script => "script",
            Init::Systemd => "systemd",
        };
        let settings = [
            ("GUEST", self.name),
            ("KERNEL", self.kernel.number()),
            ("LANDLOCK", &self.kernel.landlock().to_string()),
            ("INIT", init),
            ("USER_NAMESPACES", yes_no(self.user_namespaces)),
            ("FUSE", yes_no(self.fuse)),
            ("SECONDS_FOR_TESTS", &self.patience.saturating_sub(FOR_THE_REST).as_secs().to_string()),
            ("TOOLCHAIN", toolchain),
            ("TESTS", tests),
        ];
        settings.map(|(name, value)| format!("{name}={}\n", quoted(value))).concat()
    }
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_a_shell() {
        let settings = GUESTS[2].settings("/opt/it's here", "test(a) | test(b)");
        assert!(settings.contains("GUEST='no-userns'\n"), "{settings}");
        assert!(settings.contains("USER_NAMESPACES='no'\n"), "{settings}");
        assert!(settings.contains(r"TOOLCHAIN='/opt/it'\''s here'"), "{settings}");
        assert!(settings.contains("TESTS='test(a) | test(b)'\n"), "{settings}");
    }
}
