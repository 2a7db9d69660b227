//! Masks, dispositions and waiting.

use std::os::fd::OwnedFd;
use std::ptr;

use super::{Result, check, done, last_errno, own_fd};

fn all_signals() -> libc::sigset_t {
    // SAFETY: sigset_t is plain old data; sigfillset initialises it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        set
    }
}

pub(crate) fn block_all_signals() -> Result<()> {
    let set = all_signals();
    // SAFETY: `set` is initialised and borrowed for the call.
    done(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut()) })
}

/// Default dispositions and an empty mask: what a program expects to find after exec.
pub(crate) fn reset_signals() -> Result<()> {
    for signal in 1..=64 {
        if signal != libc::SIGKILL && signal != libc::SIGSTOP && !(32..=34).contains(&signal) {
            // SAFETY: SIG_DFL is a valid disposition for every signal but the two left out (32-34 belong to libc).
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
    // SAFETY: sigset_t is plain old data; sigemptyset initialises it.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        set
    };
    // SAFETY: `set` is initialised and borrowed for the call.
    done(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut()) })
}

/// Waits for any blocked signal: (number, sending pid as seen from here).
pub(crate) fn wait_for_signal() -> Result<(i32, i32)> {
    let set = all_signals();
    // SAFETY: siginfo_t is plain old data; the kernel fills it.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values.
    let signal = unsafe { libc::sigwaitinfo(&raw const set, &raw mut info) };
    if signal < 0 {
        return Err(last_errno());
    }
    // SAFETY: si_pid is at the same place for every signal that has a sender and reads as zero otherwise.
    Ok((signal, unsafe { info.si_pid() }))
}

/// A non-blocking descriptor that reports all signals.
pub(crate) fn signal_fd() -> Result<OwnedFd> {
    let set = all_signals();
    // SAFETY: `set` is initialised and borrowed for the call.
    own_fd(check(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })?)
}
