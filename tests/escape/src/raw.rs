//! The unsafe calls of the suite: a probe has to make calls that no safe wrapper would offer. Owns nothing else.
//! Called by the probe inside and by the trials outside; part of no product.

use std::arch::asm;

/// Makes system call `number`. The rows pass plain numbers, pointers to live buffers that are large enough for the call,
/// or addresses that the kernel must reject; each row says which.
pub fn syscall(number: libc::c_long, arguments: [usize; 6]) -> Result<i64, i32> {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: the caller upholds the contract above: every pointer among the arguments is to a live buffer of the size that
    // the call writes, or is one that the kernel answers with EFAULT. No row passes memory that Rust still borrows.
    let result = unsafe { libc::syscall(number, first, second, third, fourth, fifth, sixth) };
    if result < 0 { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)) } else { Ok(result) }
}

/// How a forked child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    Signalled(i32),
}

/// Runs `then` in a forked child and returns its pid. The caller has one thread only, so no lock is held in the child.
pub fn fork(then: impl FnOnce() -> i32) -> Result<i32, i32> {
    // SAFETY: the probe is single-threaded wherever it forks, so the child finds no lock taken by another thread.
    match unsafe { libc::fork() } {
        // SAFETY: ends the child at once, without the parent's exit handlers.
        0 => unsafe { libc::_exit(then()) },
        pid if pid > 0 => Ok(pid),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// Waits for a child.
pub fn wait(pid: i32) -> Result<Ended, i32> {
    let mut status = 0;
    // SAFETY: `status` is a live integer that the kernel fills.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    if waited != pid {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
    }
    Ok(if libc::WIFSIGNALED(status) {
        Ended::Signalled(libc::WTERMSIG(status))
    } else {
        Ended::Exited(libc::WEXITSTATUS(status))
    })
}

/// `getpid` through the i386 door.
pub fn getpid_i386() -> i32 {
    const GETPID_I386: i32 = 20;
    let result: i32;
    // SAFETY: the call takes no pointer and changes no memory; the kernel may clobber r8 to r11 on this entry, as said here.
    unsafe {
        asm!("int 0x80", inlateout("eax") GETPID_I386 => result, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    result
}
