//! The time of day as the C library knows it of this machine's zone.

/// A moment, broken down for the zone of `TZ` or /etc/localtime.
pub(crate) fn local(seconds: i64) -> Option<libc::tm> {
    // SAFETY: all of its fields are numbers or a pointer that may be null.
    let mut broken_down: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of this function; the program has one thread, so the zone is read by it alone.
    let result = unsafe { libc::localtime_r(&raw const seconds, &raw mut broken_down) };
    (!result.is_null()).then_some(broken_down)
}
