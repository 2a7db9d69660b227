//! Calls that are made to be refused.

use super::{Result, done};

/// An address that no process has: the kernel answers EFAULT if it gets that far.
pub(crate) const NOWHERE: usize = usize::MAX - 4095;

/// Makes system call `number`. Only for calls of `attempt::Call`, whose arguments are numbers, closed descriptors or [`NOWHERE`].
pub(crate) fn call(number: libc::c_long, arguments: [usize; 6]) -> Result<()> {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: the one caller passes rows of a fixed table. No row holds the address of memory of this process, and none unmaps,
    // closes or executes anything, so no reference of Rust's can become wrong by it.
    done(unsafe { libc::syscall(number, first, second, third, fourth, fifth, sixth) })
}
