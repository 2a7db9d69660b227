//! Making and ending processes: clone3 into namespaces, fork, pidfds, parent-death signal, dumpability.
//! Owns no policy about which namespaces. Called by `launcher`, `supervisor` and `gate`.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Signal};

use crate::raw;

/// Namespace flags of clone3.
pub mod namespace {
    pub const MOUNT: u64 = 0x0002_0000;
    pub const CGROUP: u64 = 0x0200_0000;
    pub const UTS: u64 = 0x0400_0000;
    pub const IPC: u64 = 0x0800_0000;
    pub const USER: u64 = 0x1000_0000;
    pub const PID: u64 = 0x2000_0000;
    pub const NET: u64 = 0x4000_0000;
}

/// Which side of a clone this is.
#[derive(Debug)]
pub enum Side {
    Parent { pid: i32, pidfd: OwnedFd },
    Child,
}

/// A child in new namespaces, born in `cgroup` if there is one. The caller must be single-threaded: a child of a threaded process may find locks held for ever.
pub fn clone_into(namespaces: u64, cgroup: Option<BorrowedFd<'_>>) -> Result<Side, Errno> {
    Ok(match raw::process::clone3(namespaces, cgroup)? {
        Some((pid, pidfd)) => Side::Parent { pid, pidfd },
        None => Side::Child,
    })
}

/// Moves this process into a new cgroup namespace, whose root is the cgroup that it is in.
pub fn own_cgroup_view() -> Result<(), Errno> {
    raw::namespace::unshare(namespace::CGROUP)
}

/// A plain child: its pid, or `None` in the child. Works under the sandbox's own filter, which refuses clone3.
pub fn fork() -> Result<Option<i32>, Errno> {
    raw::process::fork()
}

/// A child that executes a program, or ends, on this process's memory; this one does `then` with the child's pid, and ends with
/// the code that it gives. `then` changes nothing that the child reads. Works under the sandbox's own filter.
pub fn spawn(child: &mut dyn FnMut(), then: impl FnOnce(Result<i32, Errno>) -> i32) -> ! {
    raw::process::start_on_this_memory(child, then)
}

/// Ends this process without running destructors or exit handlers: for children that share the parent's state by copy.
pub fn exit_now(code: i32) -> ! {
    raw::process::exit_now(code)
}

/// The kernel kills this process when its parent ends.
pub fn die_with_parent() -> Result<(), Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
}

/// Undoes [`forbid_tracing`] in a child that inherited it: the files of its own /proc directory belong to root until then.
pub fn allow_tracing() -> Result<(), Errno> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)
}

/// No other process may trace this one, read its memory or take its descriptors.
pub fn forbid_tracing() -> Result<(), Errno> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

/// Every descriptor from `first` on will be closed when a program is executed.
pub fn close_at_exec_from(first: u32) -> Result<(), Errno> {
    raw::process::close_from(first, true)
}

/// This descriptor stays open when a program is executed.
pub fn keep_at_exec(number: i32) -> Result<(), Errno> {
    raw::process::keep_at_exec(number)
}

/// Runs `then` with no descriptor open but those below `first`, and never returns: owned descriptors of the caller are
/// not dropped a second time.
pub fn without_descriptors_from(first: u32, then: impl FnOnce() -> i32) -> ! {
    let code = match raw::process::close_from(first, false) {
        Ok(()) => then(),
        Err(_) => 125,
    };
    raw::process::exit_now(code)
}

/// In a child that goes on without its parent's things: closes every descriptor but the standard ones and these. Whatever
/// else the child's copy of memory owns must never be dropped: end it with [`exit_now`].
pub fn keep_only(kept: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut numbers: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd().cast_unsigned()).filter(|fd| *fd > 2).collect();
    numbers.sort_unstable();
    let mut first = 3;
    for number in numbers {
        if number > first {
            raw::process::close_between(first, number - 1)?;
        }
        first = number + 1;
    }
    raw::process::close_between(first, u32::MAX)
}

/// A descriptor that this process was started with, by its number. In the place of a standard stream stays /dev/null.
pub fn inherited(number: i32) -> Result<OwnedFd, Errno> {
    let taken = raw::process::take_inherited(number)?;
    if number <= 2 {
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        match number {
            0 => rustix::stdio::dup2_stdin(null)?,
            1 => rustix::stdio::dup2_stdout(null)?,
            _ => rustix::stdio::dup2_stderr(null)?,
        }
    }
    Ok(taken)
}

/// These variables instead of those that this process was started with. The caller must be single-threaded.
pub fn replace_environment(variables: &[(String, String)]) {
    raw::process::replace_environment(variables);
}

/// Whether this program was started with more rights than its caller has (set-user-ID, file capabilities).
pub fn has_raised_privilege() -> bool {
    raw::process::is_secure_exec()
}

/// Kills every other process of this pid namespace. Only for its pid 1: any other caller would hit processes that
/// are not its to end.
pub fn kill_all_others() -> Result<(), Errno> {
    if rustix::process::getpid().is_init() { raw::process::kill_all() } else { Err(Errno::PERM) }
}

/// As many open files as the system lets this process have; returns how many.
pub fn raise_open_files() -> Result<u64, Errno> {
    let now = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: now.maximum, maximum: now.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised)?;
    Ok(now.maximum.unwrap_or(u64::MAX))
}
