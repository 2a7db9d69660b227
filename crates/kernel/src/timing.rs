//! Time stamps that parent and child both write, for `sandbox run --timing`. Costs nothing unless switched on.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// Marks in one shared page; index by the order of steps.
#[derive(Debug, Clone, Copy)]
pub struct Marks(Option<&'static [AtomicU64]>);

impl Marks {
    pub fn off() -> Self {
        Marks(None)
    }

    pub fn shared() -> Result<Self, Errno> {
        raw_page().map(|page| Marks(Some(page)))
    }

    /// Records now under `index`; indices past the page are dropped.
    pub fn mark(self, index: usize) {
        if let Some(slot) = self.0.and_then(|page| page.get(index)) {
            slot.store(now(), Ordering::Relaxed);
        }
    }

    /// Nanoseconds on the monotonic clock, if something was recorded.
    pub fn read(self, index: usize) -> Option<u64> {
        let value = self.0?.get(index)?.load(Ordering::Relaxed);
        (value != 0).then_some(value)
    }
}

fn raw_page() -> Result<&'static [AtomicU64], Errno> {
    crate::raw::shared_page()
}

/// The monotonic clock in nanoseconds.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
