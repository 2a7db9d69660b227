//! Which system calls get which answer: the built-in table, the policy's additions, and the argument checks.
//! Owns the decision per call number; `bpf` owns the encoding, `kernel` the installing. Called by `plan()`.

mod bits;
mod bpf;
#[cfg(test)]
mod tests;
mod verdict;

use cofferdam_policy::{Policy, SyscallMode};
use serde::Serialize;

pub use bits::ModeCheck;
pub use bpf::Instruction;
pub use verdict::{Verdict, errno};

use crate::PlanError;
use crate::step::Trigger;

/// A row of `profiles/seccomp.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    Allow,
    Check,
    Debug,
    Refuse(u16),
    /// Refused and recorded, not counted.
    Record(u16),
    Notify(u16),
}

include!(concat!(env!("OUT_DIR"), "/seccomp_tables.rs"));

/// Calls that open, start or look at a path: where there is no FUSE, the supervisor is asked at each of them.
pub const GATED: &[&str] = &[
    "open",
    "openat",
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

/// The compiled filters and what the supervisor needs to answer notifications.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Filter {
    /// For pid 1 and everything it starts; carries the notification listener.
    pub program: Vec<Instruction>,
    /// What the program was compiled from, by call number.
    #[serde(skip)]
    verdicts: Vec<Verdict>,
    pub allowed: usize,
    pub notified: usize,
    pub mode: SyscallMode,
    /// Reported so that the gate decides about them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gated: Vec<u32>,
    /// Calls that start programs, reported for the record alone: mounts and Landlock decide.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub started: Vec<u32>,
    /// Refused and recorded, and not counted as violations.
    pub uncounted: Vec<u32>,
    /// Whether processes may be made.
    pub allows_fork: bool,
}

/// What the supervisor does with a call that the filter reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    GoOn,
    Refuse {
        errno: u16,
        /// Whether it counts as a violation.
        is_counted: bool,
    },
}

impl Filter {
    /// Every call by its name with its verdict, for those who write a filter in their own way.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, Verdict)> {
        let known = NUMBERS.iter().filter(|(_, number)| (*number as usize) < self.verdicts.len());
        known.map(|(name, number)| (*name, self.verdicts[*number as usize]))
    }

    /// `is_init` says that pid 1 called, which is ours: it starts the command. No argument here is a pointer.
    pub fn answer(&self, number: u32, arguments: &[u64; 6], is_init: bool) -> Answer {
        let makes_process = match name_of(number) {
            Some("fork" | "vfork") => true,
            Some("clone") => !bpf::makes_namespace(arguments[0]),
            _ => false,
        };
        if self.started.contains(&number) || (makes_process && is_init) {
            return Answer::GoOn;
        }
        let is_probed = makes_process || self.uncounted.contains(&number);
        Answer::Refuse { errno: refusal(number), is_counted: !is_probed }
    }
}

/// The number of a system call on the machine that this program is built for.
pub fn number_of(name: &str) -> Option<u32> {
    NUMBERS.binary_search_by_key(&name, |(n, _)| n).ok().map(|at| NUMBERS[at].1)
}

/// Whether any machine has a call of this name.
pub fn exists(name: &str) -> bool {
    number_of(name).is_some() || ELSEWHERE.contains(&name)
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
            verdicts[number as usize] = match verdicts[number as usize] {
                Verdict::Allow => Verdict::Notify,
                Verdict::Mode(check) => Verdict::Mode(check.gated()),
                // What the policy denies stays denied.
                _ => continue,
            };
            gated.push(number);
        }
    }
    if let Some(number) = number_of("sched_setaffinity").filter(|_| pinned) {
        verdicts[number as usize] = Verdict::Errno(errno::EPERM);
    }
    let started = if limits_programs(policy) { report_starts(&mut verdicts, &gated) } else { Vec::new() };
    let is_denied = |name: &&str| policy.syscalls.deny.iter().any(|rule| rule.value == **name);
    let uncounted = TABLE.iter().filter(|(_, listed)| matches!(listed, Listed::Record(_))).map(|(number, _)| *number);
    let uncounted = uncounted.chain(["socket", "socketpair"].iter().filter_map(|name| number_of(name)));
    let uncounted = uncounted.filter(|number| name_of(*number).is_some_and(|name| !is_denied(&name))).collect();
    let beyond = default_verdict(policy.syscalls.mode.value);
    let program = bpf::compile(&verdicts, beyond);
    Ok(Filter {
        program,
        started,
        uncounted,
        allows_fork: policy.process.allow_fork.value,
        allowed: verdicts.iter().filter(|v| matches!(v, Verdict::Allow | Verdict::Mode(_))).count(),
        notified: verdicts.iter().filter(|v| matches!(v, Verdict::Notify)).count(),
        mode: policy.syscalls.mode.value,
        gated,
        verdicts,
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
            Listed::Debug | Listed::Record(_) | Listed::Notify(_) => Verdict::Notify,
            Listed::Refuse(errno) => Verdict::Errno(*errno),
            Listed::Check => checked(*number, policy.debug.value, internet),
        };
    }
    if !policy.process.allow_fork.value {
        for (name, verdict) in
            [("fork", Verdict::Notify), ("vfork", Verdict::Notify), ("clone", Verdict::CloneThreadOnly)]
        {
            if let Some(number) = number_of(name) {
                verdicts[number as usize] = verdict;
            }
        }
    }
    if limits_programs(policy)
        && let Some(number) = number_of("memfd_create")
    {
        // A program in anonymous memory is on no mount and under no Landlock rule.
        verdicts[number as usize] = Verdict::Notify;
    }
    for rule in &policy.syscalls.allow {
        let Some(number) = known(&rule.value)? else { continue };
        if matches!(listed(number), Some(Listed::Notify(_) | Listed::Record(_) | Listed::Refuse(_) | Listed::Check)) {
            return Err(PlanError::SyscallAlwaysDenied { name: rule.value.clone(), origin: rule.origin.clone() });
        }
        verdicts[number as usize] = Verdict::Allow;
    }
    for rule in &policy.syscalls.deny {
        if let Some(number) = known(&rule.value)? {
            verdicts[number as usize] = Verdict::Notify;
        }
    }
    Ok(verdicts)
}

/// A policy is written for every machine: of a call that only others have there is nothing to allow or deny here.
fn known(name: &str) -> Result<Option<u32>, PlanError> {
    if exists(name) { Ok(number_of(name)) } else { Err(PlanError::UnknownSyscall { name: name.to_owned() }) }
}

fn listed(number: u32) -> Option<Listed> {
    TABLE.binary_search_by_key(&number, |(n, _)| *n).ok().map(|at| TABLE[at].1)
}

/// The errno with which the supervisor refuses a notified call.
pub fn refusal(number: u32) -> u16 {
    match listed(number) {
        Some(Listed::Notify(errno) | Listed::Record(errno) | Listed::Refuse(errno)) => errno,
        Some(Listed::Check) if matches!(name_of(number), Some("socket" | "socketpair")) => errno::EAFNOSUPPORT,
        _ => errno::EPERM,
    }
}

fn checked(number: u32, debug: bool, internet: bool) -> Verdict {
    match name_of(number) {
        Some(name) if ModeCheck::of(name).is_some() => ModeCheck::of(name).map_or(Verdict::Notify, Verdict::Mode),
        Some("clone") => Verdict::Clone,
        Some("ioctl") => Verdict::Ioctl,
        Some("socket") => Verdict::Socket { internet },
        Some("socketpair") => Verdict::SocketPair,
        Some("personality") => Verdict::Personality { debug },
        // A row marked `check` without a check is refused, not let through.
        _ => Verdict::Errno(errno::EPERM),
    }
}

fn limits_programs(policy: &Policy) -> bool {
    !policy.process.allow_exec.value || !policy.process.executables.is_empty()
}

/// Calls that start programs are reported, but for those that the gate hears of anyway.
fn report_starts(verdicts: &mut [Verdict], gated: &[u32]) -> Vec<u32> {
    let numbers = ["execve", "execveat"].into_iter().filter_map(number_of);
    let started: Vec<u32> =
        numbers.filter(|number| gated.contains(number) || verdicts[*number as usize] == Verdict::Allow).collect();
    for number in &started {
        verdicts[*number as usize] = Verdict::Notify;
    }
    started
}
