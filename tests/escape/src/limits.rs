//! The limits that rows about resources set, and that their probes run against. Small, so that no row can harm the machine it
//! runs on while its control is off.

use cofferdam_policy::{Origin, Ruled};

/// A limit as a flag would set it: where nothing can keep it, the session does not start.
pub(crate) fn named<T>(value: T) -> Ruled<T> {
    Ruled::new(value, Origin::flag("--test"))
}

pub(crate) const PROCESSES: u32 = 60;
pub(crate) const MEMORY: usize = 64 << 20;
pub(crate) const CPU_SECONDS: u64 = 2;
pub(crate) const OUTPUT: usize = 1 << 20;
pub(crate) const STORAGE: usize = 64 << 20;
pub(crate) const FILE_SIZE: u64 = 64 << 30;
pub(crate) const DESCRIPTORS: usize = 200;

/// What fits into each private file system.
pub(crate) struct Room {
    pub(crate) bytes: usize,
    pub(crate) files: usize,
}

pub(crate) const ROOM: Room = Room { bytes: 8 << 20, files: 100 };
