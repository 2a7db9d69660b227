//! A page that parent and child both see: how pid 1 tells the outcome without holding a descriptor.
//! Called by `launcher` and `supervisor`.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::raw;

/// How the command ended and what all processes that pid 1 and its children collected have used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Told {
    /// As a shell would say it: the exit code, or 128 and the signal.
    pub code: u8,
    /// Whether a signal ended the command.
    pub signalled: bool,
    pub user_micros: u64,
    pub system_micros: u64,
    /// Of the largest process.
    pub memory_peak: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

const VALUES: usize = 7;

/// Shared with every process forked after it was made; gone from those that execute a program.
#[derive(Debug, Clone, Copy)]
pub struct SharedEnd(&'static [AtomicU64]);

impl SharedEnd {
    pub fn new() -> Result<Self, Errno> {
        raw::memory::shared_page()?.get(..=VALUES).map(SharedEnd).ok_or(Errno::NOMEM)
    }

    /// Leaves the word, with what was used so far.
    pub fn tell(self, code: u8, signalled: bool) {
        let mut values = [u64::from(code), u64::from(signalled), 0, 0, 0, 0, 0];
        if let Ok(usage) = raw::process::usage_of_children() {
            let micros = |time: libc::timeval| {
                time.tv_sec.cast_unsigned().saturating_mul(1_000_000).saturating_add(time.tv_usec.cast_unsigned())
            };
            values[2..].copy_from_slice(&[
                micros(usage.ru_utime),
                micros(usage.ru_stime),
                usage.ru_maxrss.cast_unsigned().saturating_mul(1024),
                usage.ru_inblock.cast_unsigned().saturating_mul(512),
                usage.ru_oublock.cast_unsigned().saturating_mul(512),
            ]);
        }
        for (slot, value) in self.0[1..].iter().zip(values) {
            slot.store(value, Ordering::Relaxed);
        }
        self.0[0].store(1, Ordering::Release);
    }

    /// `None` until pid 1 has told.
    pub fn get(self) -> Option<Told> {
        if self.0[0].load(Ordering::Acquire) == 0 {
            return None;
        }
        let value = |index: usize| self.0[index + 1].load(Ordering::Relaxed);
        Some(Told {
            code: u8::try_from(value(0)).unwrap_or(u8::MAX),
            signalled: value(1) != 0,
            user_micros: value(2),
            system_micros: value(3),
            memory_peak: value(4),
            read_bytes: value(5),
            written_bytes: value(6),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_read_once_it_is_whole() {
        let end = SharedEnd::new().expect("a page");
        assert_eq!(end.get(), None);
        end.tell(7, true);
        assert!(matches!(end.get(), Some(Told { code: 7, signalled: true, .. })));
    }
}
