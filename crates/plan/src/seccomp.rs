//! Which system calls get which answer: the built-in table, the policy's additions, and the argument checks.
//! Owns the decision per call number; `bpf` owns the encoding, `kernel` the installing. Called by `plan()`.

mod bpf;
#[cfg(test)]
mod tests;

use cofferdam_policy::{Policy, SyscallMode};
use serde::Serialize;

pub use bpf::Instruction;

use crate::PlanError;
use crate::step::Trigger;

/// The errno values that refusals use; numbers are the kernel's generic ones.
pub mod errno {
    pub const EPERM: u16 = 1;
    pub const EAFNOSUPPORT: u16 = 97;
    pub const ENOSYS: u16 = 38;
}

/// A row of `profiles/seccomp.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    Allow,
    Check,
    Debug,
    Refuse(u16),
    Notify(u16),
}

include!(concat!(env!("OUT_DIR"), "/seccomp_tables.rs"));

/// Calls that open, start or look at a path: where there is no FUSE, the supervisor is asked at each of them.
pub const GATED: &[&str] = &[
    "open",
    "openat",
    "openat2",
    "creat",
    "execve",
    "execveat",
    "stat",
    "lstat",
    "newfstatat",
    "statx",
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
    "chdir",
];

/// One past the highest call number the tables know.
const TABLE_SIZE: usize = 512;

/// What the filter answers for one call number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Errno(u16),
    /// Hand to the supervisor, which logs, counts and refuses with `Filter::refusal`.
    Notify,
    /// `clone`: refuse new namespaces.
    Clone,
    /// `clone`: refuse new namespaces and everything that is not a thread.
    CloneThreadOnly,
    /// `ioctl`: refuse terminal injection.
    Ioctl,
    Socket {
        internet: bool,
    },
    SocketPair,
    Personality {
        debug: bool,
    },
}

/// The compiled filters and what the supervisor needs to answer notifications.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Filter {
    /// For pid 1 and everything it starts; carries the notification listener.
    pub program: Vec<Instruction>,
    /// Installed on top by the workload just before it executes: what pid 1 itself still needs (fork).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workload_program: Vec<Instruction>,
    pub allowed: usize,
    pub notified: usize,
    pub mode: SyscallMode,
    /// Reported so that the gate decides about them; everything else that is reported is refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gated: Vec<u32>,
}

/// The number of a system call on x86_64.
pub fn number_of(name: &str) -> Option<u32> {
    NUMBERS.binary_search_by_key(&name, |(n, _)| n).ok().map(|at| NUMBERS[at].1)
}

/// The name of a system call number, for messages.
pub fn name_of(number: u32) -> Option<&'static str> {
    NUMBERS.iter().find(|(_, n)| *n == number).map(|(name, _)| *name)
}

/// Decides and compiles. `internet` says whether AF_INET and AF_INET6 sockets may be made, `pinned` whether processes
/// have to stay on the CPUs they were given.
pub fn filter(policy: &Policy, internet: bool, pinned: bool, trigger: Option<Trigger>) -> Result<Filter, PlanError> {
    let mut verdicts = verdicts(policy, internet)?;
    let mut gated = Vec::new();
    if trigger == Some(Trigger::Notify) {
        for number in GATED.iter().filter_map(|name| number_of(name)) {
            // What the policy denies stays denied.
            if verdicts[number as usize] == Verdict::Allow {
                verdicts[number as usize] = Verdict::Notify;
                gated.push(number);
            }
        }
    }
    if let Some(number) = number_of("sched_setaffinity").filter(|_| pinned) {
        verdicts[number as usize] = Verdict::Errno(errno::EPERM);
    }
    let beyond = default_verdict(policy.syscalls.mode.value);
    let program = bpf::compile(&verdicts, beyond);
    let workload_program =
        if policy.process.allow_fork.value { Vec::new() } else { bpf::compile(&no_fork(), Verdict::Allow) };
    Ok(Filter {
        program,
        workload_program,
        allowed: verdicts.iter().filter(|v| matches!(v, Verdict::Allow)).count(),
        notified: verdicts.iter().filter(|v| matches!(v, Verdict::Notify)).count(),
        mode: policy.syscalls.mode.value,
        gated,
    })
}

/// What the filter answers for one call, without its arguments. `None` for a name that no call has.
pub fn verdict_of(policy: &Policy, internet: bool, name: &str) -> Result<Option<Verdict>, PlanError> {
    let Some(number) = number_of(name) else { return Ok(None) };
    let beyond = default_verdict(policy.syscalls.mode.value);
    Ok(Some(verdicts(policy, internet)?.get(number as usize).copied().unwrap_or(beyond)))
}

fn default_verdict(mode: SyscallMode) -> Verdict {
    match mode {
        SyscallMode::AllowList => Verdict::Errno(errno::ENOSYS),
        SyscallMode::DenyList => Verdict::Allow,
    }
}

fn verdicts(policy: &Policy, internet: bool) -> Result<Vec<Verdict>, PlanError> {
    let mut verdicts = vec![default_verdict(policy.syscalls.mode.value); TABLE_SIZE];
    for (number, listed) in TABLE {
        verdicts[*number as usize] = match listed {
            Listed::Allow => Verdict::Allow,
            Listed::Debug if policy.debug.value => Verdict::Allow,
            Listed::Debug | Listed::Notify(_) => Verdict::Notify,
            Listed::Refuse(errno) => Verdict::Errno(*errno),
            Listed::Check => checked(*number, policy.debug.value, internet),
        };
    }
    if (!policy.process.allow_exec.value || !policy.process.executables.is_empty())
        && let Some(number) = number_of("memfd_create")
    {
        // A program in anonymous memory is on no mount and under no Landlock rule.
        verdicts[number as usize] = Verdict::Notify;
    }
    for rule in &policy.syscalls.allow {
        let number = known(&rule.value)?;
        if matches!(listed(number), Some(Listed::Notify(_) | Listed::Refuse(_) | Listed::Check)) {
            return Err(PlanError::SyscallAlwaysDenied { name: rule.value.clone(), origin: rule.origin.clone() });
        }
        verdicts[number as usize] = Verdict::Allow;
    }
    for rule in &policy.syscalls.deny {
        verdicts[known(&rule.value)? as usize] = Verdict::Notify;
    }
    Ok(verdicts)
}

fn known(name: &str) -> Result<u32, PlanError> {
    number_of(name).ok_or_else(|| PlanError::UnknownSyscall { name: name.to_owned() })
}

fn listed(number: u32) -> Option<Listed> {
    TABLE.binary_search_by_key(&number, |(n, _)| *n).ok().map(|at| TABLE[at].1)
}

/// The errno with which the supervisor refuses a notified call.
pub fn refusal(number: u32) -> u16 {
    match listed(number) {
        Some(Listed::Notify(errno) | Listed::Refuse(errno)) => errno,
        _ => errno::EPERM,
    }
}

fn checked(number: u32, debug: bool, internet: bool) -> Verdict {
    match name_of(number) {
        Some("clone") => Verdict::Clone,
        Some("ioctl") => Verdict::Ioctl,
        Some("socket") => Verdict::Socket { internet },
        Some("socketpair") => Verdict::SocketPair,
        Some("personality") => Verdict::Personality { debug },
        // A row marked `check` without a check is refused, not let through.
        _ => Verdict::Errno(errno::EPERM),
    }
}

fn no_fork() -> Vec<Verdict> {
    let mut verdicts = vec![Verdict::Allow; TABLE_SIZE];
    for (name, verdict) in [
        ("fork", Verdict::Errno(errno::EPERM)),
        ("vfork", Verdict::Errno(errno::EPERM)),
        ("clone", Verdict::CloneThreadOnly),
    ] {
        if let Some(number) = number_of(name) {
            verdicts[number as usize] = verdict;
        }
    }
    verdicts
}
