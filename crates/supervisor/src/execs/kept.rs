//! What is kept of one stream of an exec: its last bytes, by their offset in all that was written. Owns the bound; the workload never
//! waits for a reader.

use std::collections::VecDeque;

#[derive(Debug)]
pub(crate) struct Kept {
    /// Offset of the first byte that is kept.
    first: u64,
    bytes: VecDeque<u8>,
    most: usize,
}

/// What was asked for is not kept any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) first_kept: u64,
}

impl Kept {
    pub(crate) fn new(most: usize) -> Self {
        Kept { first: 0, bytes: VecDeque::new(), most }
    }

    pub(crate) fn add(&mut self, written: &[u8]) {
        let skipped = written.len().saturating_sub(self.most);
        let over = (self.bytes.len() + written.len() - skipped).saturating_sub(self.most);
        drop(self.bytes.drain(..over));
        self.bytes.extend(&written[skipped..]);
        self.first += (over + skipped) as u64;
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// The offset after the last byte that was written.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.bytes.len() as u64
    }

    /// At most so many bytes from an offset on; none where nothing was written there yet.
    pub(crate) fn read(&self, from: u64, most: usize) -> Result<Vec<u8>, Gone> {
        let at = from.checked_sub(self.first).ok_or(Gone { first_kept: self.first })?;
        let at = usize::try_from(at).unwrap_or(usize::MAX).min(self.bytes.len());
        Ok(self.bytes.range(at..self.bytes.len().min(at.saturating_add(most))).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against all that was ever written, for pieces and bounds of many sizes.
    #[test]
    fn every_offset_is_read_as_it_was_written_or_told_as_gone() {
        let mut state = 7_u64;
        let mut pick = |most: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).map_or(0, |number| number % most)
        };
        for most in [0, 1, 7, 64, 1000] {
            let (mut kept, mut all) = (Kept::new(most), Vec::new());
            for _ in 0..200 {
                let piece: Vec<u8> = (0..pick(97)).map(|_| u8::try_from(pick(256)).unwrap_or_default()).collect();
                kept.add(&piece);
                all.extend_from_slice(&piece);
                let first = all.len().saturating_sub(most);
                assert_eq!((kept.first(), kept.end()), (first as u64, all.len() as u64));
                let (from, count) = (pick(all.len() + 2), pick(50));
                let expected = if from < first {
                    Err(Gone { first_kept: first as u64 })
                } else {
                    Ok(all.iter().skip(from).take(count).copied().collect())
                };
                assert_eq!(kept.read(from as u64, count), expected);
            }
        }
        assert_eq!(Kept::new(5).read(u64::MAX, 3), Ok(Vec::new()));
    }
}
