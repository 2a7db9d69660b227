//! Processes: starting and ending them, and what they take along (arguments, environment, descriptors).

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::Errno;

use super::{Result, check, done, last_errno, own_fd};

/// `struct clone_args`, as far as clone3 of Linux 5.7 reads it.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The parent gets pid and pidfd, the child gets `None`.
pub(crate) fn clone3(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> Result<Option<(i32, OwnedFd)>> {
    let mut pidfd: RawFd = -1;
    let into = cgroup.map_or(0, |_| CLONE_INTO_CGROUP);
    let args = CloneArgs {
        flags: flags | into | libc::CLONE_PIDFD as u64,
        pidfd: &raw mut pidfd as u64,
        exit_signal: libc::SIGCHLD as u64,
        cgroup: cgroup.map_or(0, |fd| u64::from(fd.as_raw_fd().cast_unsigned())),
        ..CloneArgs::default()
    };
    // SAFETY: `args` outlives the call and its size is passed; without CLONE_VM and without a stack the child runs on a
    // copy of this memory, so no Rust value is shared. `pidfd` is written by the kernel in the parent only.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) })?;
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: CLONE_PIDFD stored a new descriptor, owned by no other value.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Some((i32::try_from(pid).map_err(|_| Errno::OVERFLOW)?, pidfd)))
}

/// The parent gets the pid, the child gets `None`.
pub(crate) fn fork() -> Result<Option<i32>> {
    // SAFETY: the supervisor is single-threaded (it starts no runtime), so the child inherits no lock held by another thread.
    let pid = check(unsafe { libc::fork() })?;
    Ok(if pid == 0 { None } else { Some(i32::try_from(pid).map_err(|_| Errno::OVERFLOW)?) })
}

/// Bytes of stack of a process that shares this one's memory: enough for what comes before an exec.
const BORROWED_STACK: usize = 256 << 10;

/// A child on this memory, with a stack of its own, beside what this process does then. Spares the copy of every page table and
/// of each page that either of them touches. Never returns, so that what `child` borrows stays as long as the child needs it.
pub(crate) fn start_on_this_memory(child: &mut dyn FnMut(), then: impl FnOnce(Result<i32>) -> i32) -> ! {
    extern "C" fn enter(child: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the pointer is to a local of a function that never returns.
        unsafe { (*child.cast::<&mut dyn FnMut()>())() }
        exit_now(125)
    }
    let mut child = child;
    let flags = libc::CLONE_VM | libc::SIGCHLD;
    let pid = map_stack(BORROWED_STACK).and_then(|stack| {
        // SAFETY: the stack is mapped, its end is aligned, and no other code uses it. From here on there are two processes on this
        // memory, as two threads are: what both reach is only read, but for the heap, which has a lock, and `errno`: where calls of
        // both fail at one moment, one of them may be told the other's reason. The child neither returns from `enter` nor unwinds
        // out of it: the shipped profile aborts at a panic, as does `extern "C"` in every other one.
        let pid = unsafe { libc::clone(enter, stack.byte_add(BORROWED_STACK), flags, (&raw mut child).cast()) };
        i32::try_from(check(pid)?).map_err(|_| Errno::OVERFLOW)
    });
    exit_now(then(pid))
}

/// A child that has no other descriptor than this one, and ends at once. It is on this memory, which the kernel frees once both
/// are gone: the one that is waited for is gone sooner.
pub(crate) fn hold_in_a_child(descriptor: BorrowedFd<'_>) -> Result<()> {
    extern "C" fn enter(kept: *mut libc::c_void) -> libc::c_int {
        let kept = kept.addr();
        // SAFETY: no memory but this stack is touched while the parent goes on: the calls take numbers, and fail on no kernel
        // that this program runs on, so that they set no `errno`.
        unsafe {
            if kept > 0 {
                libc::syscall(libc::SYS_close_range, 0usize, kept - 1, 0usize);
            }
            libc::syscall(libc::SYS_close_range, kept + 1, u32::MAX as usize, 0usize);
        }
        exit_now(0)
    }
    const STACK: usize = 16 << 10;
    // Never unmapped: when the child has left it is not known.
    let stack = map_stack(STACK)?;
    let kept = ptr::without_provenance_mut(descriptor.as_raw_fd().cast_unsigned() as usize);
    // SAFETY: the stack is mapped, its end is aligned, and stays the child's; `enter` says what else it touches.
    check(libc::c_long::from(unsafe {
        libc::clone(enter, stack.byte_add(STACK), libc::CLONE_VM | libc::SIGCHLD, kept)
    }))?;
    Ok(())
}

fn map_stack(size: usize) -> Result<*mut libc::c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
    // SAFETY: an anonymous mapping has no preconditions.
    let stack = unsafe { libc::mmap(ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if stack == libc::MAP_FAILED { Err(last_errno()) } else { Ok(stack) }
}

pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes any integer and does not return.
    unsafe { libc::_exit(code) }
}

pub(crate) fn execve(path: &CStr, argv: &[CString], envp: &[CString]) -> Errno {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
    };
    let (argv, envp) = (pointers(argv), pointers(envp));
    // SAFETY: both arrays end with a null pointer and point into strings that outlive the call.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    last_errno()
}

/// Closes every descriptor from `first` to `last`, open or not.
pub(crate) fn close_between(first: u32, last: u32) -> Result<()> {
    // SAFETY: no pointers; the caller uses none of these any more.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0u32) })
}

/// Closes every descriptor from `first` on, or only marks them to close at exec.
pub(crate) fn close_from(first: u32, at_exec: bool) -> Result<()> {
    let flags: u32 = if at_exec { libc::CLOSE_RANGE_CLOEXEC } else { 0 };
    // SAFETY: no pointers. The caller holds no owned descriptor in the range that it will use or drop afterwards.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) })
}

/// Takes the mark off a descriptor that closes it at exec.
pub(crate) fn keep_at_exec(number: i32) -> Result<()> {
    // SAFETY: no pointers; a number that is not open is an error.
    check(libc::c_long::from(unsafe { libc::fcntl(number, libc::F_SETFD, 0) })).map(drop)
}

/// A copy of a descriptor by its number, closed at exec; the number itself stays open for a standard stream alone.
pub(crate) fn take_inherited(number: i32) -> Result<OwnedFd> {
    // SAFETY: no pointers; a number that is not open is an error.
    let copy = own_fd(check(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) })?)?;
    if let Some(own) = u32::try_from(number).ok().filter(|number| *number > 2) {
        close_between(own, own)?;
    }
    Ok(copy)
}

pub(crate) fn replace_environment(variables: &[(String, String)]) {
    // SAFETY: called before any thread is started, so no other one reads the environment meanwhile.
    unsafe {
        for (name, _) in std::env::vars_os() {
            std::env::remove_var(name);
        }
        for (name, value) in variables {
            std::env::set_var(name, value);
        }
    }
}

/// Whether the kernel started this program with more rights than its caller has (set-user-ID, file capabilities).
pub(crate) fn is_secure_exec() -> bool {
    // SAFETY: no pointers; an absent entry reads as 0.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

pub(crate) fn kill_all() -> Result<()> {
    // SAFETY: no pointers.
    done(unsafe { libc::kill(-1, libc::SIGKILL) })
}

/// What this process's ended and collected children used, and theirs.
pub(crate) fn usage_of_children() -> Result<libc::rusage> {
    // SAFETY: rusage is plain integers, for which zero is a value; the kernel fills it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        check(libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage))?;
        Ok(usage)
    }
}
