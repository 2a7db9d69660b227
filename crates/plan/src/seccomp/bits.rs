//! Which calls can put set-user-ID and set-group-ID bits on a file, and where their mode stands among the arguments.
//! Owns that list and what is refused of it (docs/decisions/0033); the encoding is in `bpf`. Called by `seccomp`.

const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;

/// How the mode of a call is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeCheck {
    /// Refused when any of these is in the mode.
    pub(super) bits: u32,
    /// The mode's place among the arguments.
    pub(super) mode: u32,
    /// For calls that look at their mode only when they make a file: the place of the flags that say so.
    pub(super) flags: Option<u32>,
    /// Refused by the supervisor, which writes it down. Not so for opens: a report of one is the gate's to answer.
    pub(super) is_reported: bool,
    /// Without such bits the gate decides, where it listens to system calls.
    pub(super) is_gated: bool,
}

impl ModeCheck {
    pub(super) fn of(name: &str) -> Option<Self> {
        // chmod cannot tell a directory, where set-group-ID is about inheritance, from a file.
        let (bits, mode, flags) = match name {
            "chmod" | "fchmod" => (S_ISUID, 1, None),
            "fchmodat" | "fchmodat2" => (S_ISUID, 2, None),
            "mknod" | "creat" => (S_ISUID | S_ISGID, 1, None),
            "mknodat" => (S_ISUID | S_ISGID, 2, None),
            "open" => (S_ISUID | S_ISGID, 2, Some(1)),
            "openat" => (S_ISUID | S_ISGID, 3, Some(2)),
            _ => return None,
        };
        let is_reported = !matches!(name, "open" | "openat" | "creat");
        Some(ModeCheck { bits, mode, flags, is_reported, is_gated: false })
    }

    pub(super) fn gated(self) -> Self {
        ModeCheck { is_gated: true, ..self }
    }
}
