//! Amounts as a person reads them. Owns their notation in messages; policy's own notation is `cofferdam_policy`'s.
//! Used by `choice` and by the edge.

use std::fmt;

/// Bytes as a person reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        match units.into_iter().find(|(_, shift)| self.0 >> shift > 0) {
            Some((unit, shift)) if self.0.trailing_zeros() >= shift => write!(f, "{} {unit}", self.0 >> shift),
            Some((unit, shift)) => {
                let tenths = (u128::from(self.0) * 10) >> shift;
                write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
            }
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// Thousandths of a CPU as a person reads them.
pub(crate) struct Cpus(pub(crate) u32);

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / 1000.0)
    }
}
