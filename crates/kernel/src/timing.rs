//! Time stamps that parent and child both write, for `sandbox run --timing`; they cost nothing unless switched on. And how
//! long `poll` may wait for a moment to come, and the time of day as records and questions have it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::Timespec;
use rustix::io::Errno;

/// Seconds since 1970.
pub fn seconds_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// A moment as clocks on this machine's walls show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// `2026-11-15`
    pub day: String,
    /// `12:03:07`
    pub time: String,
}

/// In the zone of this machine. Only for a program with one thread.
pub fn local(seconds: u64) -> Option<Local> {
    let at = crate::raw::timing::local(i64::try_from(seconds).ok()?)?;
    let day = format!("{:04}-{:02}-{:02}", at.tm_year.checked_add(1900)?, at.tm_mon + 1, at.tm_mday);
    Some(Local { day, time: format!("{:02}:{:02}:{:02}", at.tm_hour, at.tm_min, at.tm_sec) })
}

/// Whole seconds until a time of day; none left once it has come.
pub fn seconds_left(until: f64) -> u64 {
    Duration::try_from_secs_f64(until - seconds_now()).map_or(0, |left| left.as_secs())
}

/// For `poll`: zero if it has come.
pub fn time_until(at: Instant) -> Timespec {
    let left = at.saturating_duration_since(Instant::now());
    Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(left.subsec_nanos()) }
}

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
    crate::raw::memory::shared_page()
}

/// Nanoseconds since this program (or the parent it was forked from) first asked.
pub fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = START.get_or_init(Instant::now);
    // One more than nothing: a mark of 0 means that nothing was recorded.
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(1)
}
