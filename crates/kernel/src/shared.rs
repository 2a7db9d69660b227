//! One number that parent and child both see: how pid 1 tells the outcome without holding a descriptor.
//! Called by `launcher`.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

/// Shared with every process forked after it was made; gone from those that execute a program.
#[derive(Debug, Clone, Copy)]
pub struct SharedNumber(&'static AtomicU64);

impl SharedNumber {
    pub fn new() -> Result<Self, Errno> {
        crate::raw::shared_page()?.first().map(SharedNumber).ok_or(Errno::NOMEM)
    }

    pub fn set(self, value: u32) {
        self.0.store(u64::from(value) + 1, Ordering::Release);
    }

    /// `None` until somebody has set it.
    pub fn get(self) -> Option<u32> {
        self.0.load(Ordering::Acquire).checked_sub(1).and_then(|value| u32::try_from(value).ok())
    }
}
