//! What the filter answers for one call number. Owns the cases and the errno values of refusals; which call gets which is the
//! parent's, the encoding `bpf`'s. Used by both.

use crate::seccomp::bits::ModeCheck;

/// The errno values that refusals use; numbers are the kernel's generic ones.
pub mod errno {
    pub const EPERM: u16 = 1;
    pub const EAFNOSUPPORT: u16 = 97;
    pub const ENOSYS: u16 = 38;
}

/// What the filter answers for one call number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Errno(u16),
    /// Hand to the supervisor, which does what `Filter::answer` says.
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
    /// A call that takes a file mode: refuse the bits that lend rights to other users (docs/decisions/0033).
    Mode(ModeCheck),
}
