//! Holds the compiled filter against the table by interpreting it for every call number and for chosen arguments.

use cofferdam_policy::{Origin, Policy, Ruled, SyscallMode};

use super::*;

const X86_64: u32 = 0xC000_003E;
const AARCH64: u32 = 0xC000_00B7;
const HERE: u32 = if cfg!(target_arch = "aarch64") { AARCH64 } else { X86_64 };
/// i386, x86_64, arm, aarch64, riscv64.
const ABIS: [u32; 5] = [0x4000_0003, X86_64, 0x4000_0028, AARCH64, 0xC000_00F3];
const KILL: u32 = 0x8000_0000;
const ALLOW: u32 = 0x7fff_0000;
const NOTIFY: u32 = 0x7fc0_0000;

fn refused(errno: u16) -> u32 {
    0x0005_0000 | u32::from(errno)
}

fn run(program: &[Instruction], arch: u32, number: u32, args: [u64; 6]) -> u32 {
    walk(program, arch, number, args).0
}

/// A second, naive reading of classic BPF: what the kernel would return, and after how many instructions.
fn walk(program: &[Instruction], arch: u32, number: u32, args: [u64; 6]) -> (u32, usize) {
    let word = |offset: u32| -> u32 {
        let mut data = Vec::new();
        data.extend(number.to_le_bytes());
        data.extend(arch.to_le_bytes());
        data.extend(0u64.to_le_bytes());
        for arg in args {
            data.extend(arg.to_le_bytes());
        }
        let at = offset as usize;
        u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes"))
    };
    let (mut pc, mut accumulator, mut steps) = (0usize, 0u32, 0usize);
    loop {
        let i = program[pc];
        (pc, steps) = (pc + 1, steps + 1);
        let condition = match i.code {
            0x20 => {
                accumulator = word(i.k);
                continue;
            }
            0x54 => {
                accumulator &= i.k;
                continue;
            }
            0x05 => {
                pc += i.k as usize;
                continue;
            }
            0x06 => return (i.k, steps),
            0x15 => accumulator == i.k,
            0x35 => accumulator >= i.k,
            0x45 => accumulator & i.k != 0,
            other => panic!("unexpected instruction {other:#x}"),
        };
        pc += usize::from(if condition { i.jt } else { i.jf });
    }
}

fn developer() -> Policy {
    let mut policy = Policy { debug: Ruled::default_of(true), ..Policy::default() };
    policy.process.allow_fork = Ruled::default_of(true);
    policy.process.allow_exec = Ruled::default_of(true);
    policy
}

fn call(policy: &Policy, name: &str, args: [u64; 6]) -> u32 {
    let program = filter(policy, true, false, None).expect("compiles").program;
    run(&program, HERE, number_of(name).expect("known"), args)
}

/// Of these names those that this machine has: aarch64 never had the calls that one with a directory replaced.
fn had(name: &str) -> bool {
    assert!(exists(name), "{name}");
    assert!(number_of(name).is_some() || HERE != X86_64, "{name}");
    number_of(name).is_some()
}

#[test]
fn every_call_number_gets_the_answer_of_the_table() {
    let policy = developer();
    let program = filter(&policy, true, false, None).expect("compiles").program;
    for number in 0..1000u32 {
        let got = run(&program, HERE, number, [0; 6]);
        let want = match listed(number) {
            Some(Listed::Allow | Listed::Debug) => ALLOW,
            Some(Listed::Refuse(errno)) => refused(errno),
            Some(Listed::Notify(_) | Listed::Record(_)) => NOTIFY,
            Some(Listed::Check) => continue,
            None => refused(errno::ENOSYS),
        };
        assert_eq!(got, want, "call {number} ({:?})", name_of(number));
    }
}

#[test]
fn foreign_abis_are_killed() {
    let program = filter(&developer(), true, false, None).expect("compiles").program;
    for number in [0, 1, 2, 11, 102, 257, 400] {
        for abi in ABIS.into_iter().filter(|abi| *abi != HERE) {
            assert_eq!(run(&program, abi, number, [0; 6]), KILL, "{abi:#x}");
        }
        assert_eq!(run(&program, HERE, number | 0x4000_0000, [0; 6]), KILL);
    }
}

#[test]
fn clone_refuses_every_namespace_flag_and_allows_threads() {
    let policy = developer();
    for bit in [0x0002_0000u64, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000] {
        assert_eq!(call(&policy, "clone", [bit | 0x11, 0, 0, 0, 0, 0]), NOTIFY);
    }
    assert_eq!(call(&policy, "clone", [0x3d_0f00, 0, 0, 0, 0, 0]), ALLOW, "pthread_create's flags");
    assert_eq!(call(&policy, "clone", [17, 0, 0, 0, 0, 0]), ALLOW, "fork's flags");
}

#[test]
fn terminal_injection_is_refused_whatever_the_high_half_says() {
    let policy = developer();
    for request in [0x5412u64, 0x541C, 0x5423] {
        for high in [0u64, 1 << 32, 0xffff_ffff << 32] {
            assert_eq!(call(&policy, "ioctl", [0, request | high, 0, 0, 0, 0]), NOTIFY, "{request:#x} {high:#x}");
        }
    }
    assert_eq!(call(&policy, "ioctl", [0, 0x5401, 0, 0, 0, 0]), ALLOW, "TCGETS");
}

#[test]
fn socket_families_are_an_allow_list() {
    let policy = developer();
    for family in 0..64u64 {
        let got = call(&policy, "socket", [family, 1, 0, 0, 0, 0]);
        let want = if [1, 2, 10, 16].contains(&family) { ALLOW } else { NOTIFY };
        assert_eq!(got, want, "family {family}");
    }
    for protocol in 1..32u64 {
        assert_eq!(call(&policy, "socket", [16, 3, protocol, 0, 0, 0]), NOTIFY);
    }
}

#[test]
fn without_internet_only_local_families_remain() {
    let program = filter(&developer(), false, false, None).expect("compiles").program;
    let socket = number_of("socket").expect("known");
    for family in [2u64, 10] {
        assert_eq!(run(&program, HERE, socket, [family, 1, 0, 0, 0, 0]), NOTIFY);
    }
    assert_eq!(run(&program, HERE, socket, [1, 1, 0, 0, 0, 0]), ALLOW);
}

#[test]
fn tracing_is_notified_with_debugging_off() {
    let mut policy = developer();
    policy.debug = Ruled::default_of(false);
    assert_eq!(call(&policy, "ptrace", [0; 6]), NOTIFY);
    assert_eq!(call(&policy, "personality", [0x0004_0000, 0, 0, 0, 0, 0]), refused(errno::EPERM));
    assert_eq!(call(&developer(), "personality", [0x0004_0000, 0, 0, 0, 0, 0]), ALLOW);
    assert_eq!(call(&developer(), "personality", [0x0044_0000, 0, 0, 0, 0, 0]), refused(errno::EPERM));
}

#[test]
fn limiting_programs_takes_anonymous_files_away() {
    let mut policy = developer();
    assert_eq!(call(&policy, "memfd_create", [0; 6]), ALLOW);
    policy.process.allow_exec = Ruled::default_of(false);
    assert_eq!(call(&policy, "memfd_create", [0; 6]), NOTIFY);
}

#[test]
fn no_fork_lets_threads_through_only_and_pid_1_start_the_command() {
    let mut policy = developer();
    policy.process.allow_fork = Ruled::default_of(false);
    for name in ["fork", "vfork"].into_iter().filter(|name| had(name)) {
        assert_eq!(call(&policy, name, [0; 6]), NOTIFY);
    }
    assert_eq!(call(&policy, "clone", [17, 0, 0, 0, 0, 0]), NOTIFY);
    assert_eq!(call(&policy, "clone", [0x3d_0f00, 0, 0, 0, 0, 0]), ALLOW);
    assert_eq!(call(&policy, "clone", [0x1000_0000 | 0x3d_0f00, 0, 0, 0, 0, 0]), NOTIFY);
    assert_eq!(call(&policy, "execve", [0; 6]), ALLOW);
    let filter = filter(&policy, true, false, None).expect("compiles");
    let answer =
        |name, flags: u64, is_init| filter.answer(number_of(name).expect("known"), &[flags, 0, 0, 0, 0, 0], is_init);
    let refused = |is_counted| Answer::Refuse { errno: errno::EPERM, is_counted };
    for name in ["fork", "vfork", "clone"].into_iter().filter(|name| had(name)) {
        assert_eq!(answer(name, 17, true), Answer::GoOn);
        assert_eq!(answer(name, 17, false), refused(false));
    }
    for is_init in [true, false] {
        assert_eq!(answer("clone", 0x1000_0000, is_init), refused(true), "a namespace is a violation");
        assert_eq!(answer("mount", 0, is_init), refused(true));
    }
}

#[test]
fn probes_are_refused_as_before_and_not_counted_unless_the_policy_denies_them() {
    let mut policy = developer();
    let answer = |policy: &Policy, name| {
        let filter = filter(policy, true, false, None).expect("compiles");
        filter.answer(number_of(name).expect("known"), &[0; 6], false)
    };
    assert_eq!(answer(&policy, "io_uring_setup"), Answer::Refuse { errno: errno::ENOSYS, is_counted: false });
    assert_eq!(answer(&policy, "socket"), Answer::Refuse { errno: errno::EAFNOSUPPORT, is_counted: false });
    policy.syscalls.deny = vec![Ruled::new("io_uring_setup".to_owned(), Origin::flag("--x"))];
    assert_eq!(answer(&policy, "io_uring_setup"), Answer::Refuse { errno: errno::ENOSYS, is_counted: true });
    assert_eq!(call(&developer(), "clone3", [0; 6]), refused(errno::ENOSYS), "the way to fall back, and no violation");
}

#[test]
fn starts_of_programs_are_reported_only_where_programs_are_listed_and_always_go_on() {
    let mut policy = developer();
    assert_eq!(call(&policy, "execve", [0; 6]), ALLOW);
    policy.process.executables = vec![Ruled::new("sh".to_owned(), Origin::flag("--x"))];
    assert_eq!(call(&policy, "execve", [0; 6]), NOTIFY);
    let filter = filter(&policy, true, false, None).expect("compiles");
    assert_eq!(filter.answer(number_of("execve").expect("known"), &[0; 6], false), Answer::GoOn);
}

#[test]
fn deny_list_mode_keeps_the_dangerous_calls_refused() {
    let mut policy = developer();
    policy.syscalls.mode = Ruled::default_of(SyscallMode::DenyList);
    let program = filter(&policy, true, false, None).expect("compiles").program;
    for (number, listed) in TABLE {
        let got = run(&program, HERE, *number, [0; 6]);
        match listed {
            Listed::Notify(_) | Listed::Record(_) => assert_eq!(got, NOTIFY),
            Listed::Refuse(errno) => assert_eq!(got, refused(*errno)),
            _ => {}
        }
    }
    assert_eq!(run(&program, HERE, 999, [0; 6]), ALLOW);
}

#[test]
fn a_rule_about_a_call_of_another_machine_is_none_here_and_one_about_no_call_is_an_error() {
    let mut policy = developer();
    let ruled = |name: &str| vec![Ruled::new(name.to_owned(), Origin::flag("--x"))];
    for name in ["open", "fork"] {
        policy.syscalls.deny = ruled(name);
        assert!(filter(&policy, true, false, None).is_ok(), "{name}");
    }
    policy.syscalls.deny = ruled("no_such_call");
    assert!(matches!(filter(&policy, true, false, None), Err(PlanError::UnknownSyscall { .. })));
}

#[test]
fn an_always_denied_call_cannot_be_allowed() {
    let mut policy = developer();
    policy.syscalls.allow = vec![Ruled::new("mount".to_owned(), Origin::flag("--x"))];
    assert!(matches!(filter(&policy, true, false, None), Err(PlanError::SyscallAlwaysDenied { .. })));
}

#[test]
fn the_tree_stays_small_enough_to_install_quickly() {
    let program = filter(&developer(), true, false, None).expect("compiles").program;
    assert!(program.len() < 400, "{} instructions", program.len());
}

#[test]
fn an_open_that_makes_nothing_is_let_through_after_few_instructions() {
    for trigger in [None, Some(Trigger::Fuse)] {
        let program = filter(&developer(), true, false, trigger).expect("compiles").program;
        for (name, most) in [("openat", 7), ("open", 8)].into_iter().filter(|(name, _)| had(name)) {
            let (answer, steps) = walk(&program, HERE, number_of(name).expect("known"), [0; 6]);
            assert_eq!(answer, ALLOW);
            assert!(steps <= most, "{name}: {steps} instructions");
        }
    }
}

#[test]
fn bits_that_lend_rights_are_refused_in_every_call_that_takes_a_mode() {
    const CREATE: u64 = 0o100;
    const NAMELESS: u64 = 0o20_200_000;
    let policy = developer();
    let at = |place: usize, mode: u64, flags: Option<(usize, u64)>| {
        let mut args = [0; 6];
        args[place] = mode;
        if let Some((place, flags)) = flags {
            args[place] = flags;
        }
        args
    };
    for high in [0u64, 1 << 32, 0xffff_ffff << 32] {
        let changes = [("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2)];
        for (name, place) in changes.into_iter().filter(|(name, _)| had(name)) {
            assert_eq!(call(&policy, name, at(place, high | 0o4755, None)), NOTIFY, "{name}");
            assert_eq!(call(&policy, name, at(place, high | 0o6000, None)), NOTIFY, "{name}");
            assert_eq!(call(&policy, name, at(place, high | 0o2775, None)), ALLOW, "{name} of a shared directory");
            assert_eq!(call(&policy, name, at(place, high | 0o1777, None)), ALLOW, "{name}");
        }
        for bits in [0o4000u64, 0o2000, 0o6000] {
            for (name, place) in [("mknod", 1), ("mknodat", 2)].into_iter().filter(|(name, _)| had(name)) {
                assert_eq!(call(&policy, name, at(place, high | bits | 0o100_755, None)), NOTIFY, "{name}");
                assert_eq!(call(&policy, name, at(place, high | 0o100_755, None)), ALLOW, "{name}");
            }
            if had("creat") {
                assert_eq!(call(&policy, "creat", at(1, high | bits | 0o755, None)), refused(errno::EPERM));
            }
            let opens = [("open", 2, 1), ("openat", 3, 2)];
            for (name, mode, flags) in opens.into_iter().filter(|(name, ..)| had(name)) {
                for makes in [CREATE, NAMELESS, CREATE | 0o2] {
                    let args = at(mode, high | bits | 0o755, Some((flags, high | makes)));
                    assert_eq!(call(&policy, name, args), refused(errno::EPERM), "{name} {makes:o}");
                    assert_eq!(call(&policy, name, at(mode, 0o644, Some((flags, makes)))), ALLOW, "{name} {makes:o}");
                }
                let args = at(mode, bits, Some((flags, 0o200_000)));
                assert_eq!(call(&policy, name, args), ALLOW, "{name}: without making a file there is no mode");
            }
        }
    }
    assert_eq!(call(&policy, "openat2", [0; 6]), refused(errno::ENOSYS), "its mode cannot be seen");
}

#[test]
fn a_gate_that_listens_to_calls_is_not_asked_about_such_bits() {
    let program = filter(&developer(), true, false, Some(Trigger::Notify)).expect("compiles").program;
    let answer = |name, args| run(&program, HERE, number_of(name).expect("known"), args);
    assert_eq!(answer("openat", [0, 0, 0o100, 0o4755, 0, 0]), refused(errno::EPERM));
    assert_eq!(answer("openat", [0, 0, 0o100, 0o644, 0, 0]), NOTIFY);
    if had("creat") {
        assert_eq!(answer("creat", [0, 0o2755, 0, 0, 0, 0]), refused(errno::EPERM));
        assert_eq!(answer("open", [0; 6]), NOTIFY);
    }
    assert_eq!(answer("openat2", [0; 6]), refused(errno::ENOSYS));
}

#[test]
fn calls_by_name_have_the_verdict_that_the_program_gives() {
    let filter = filter(&Policy::default(), true, true, None).expect("a filter");
    let mut seen = 0;
    for (name, verdict) in filter.calls() {
        let expected = match verdict {
            Verdict::Allow => ALLOW,
            Verdict::Notify => NOTIFY,
            Verdict::Errno(errno) => refused(errno),
            // These depend on arguments.
            _ => continue,
        };
        let number = number_of(name).expect("a call");
        assert_eq!(run(&filter.program, HERE, number, [0; 6]), expected, "{name}");
        seen += 1;
    }
    assert!(seen > 300, "{seen}");
}
