//! Merges the oldest checkpoints where there are too many of them, and gives back what no later one needs. Owns how many are kept.
//! Called by `checkpoint` after each one.

use std::collections::HashSet;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::layer::{Copy, Layer};
use super::record::{self, Delta, Record, deltas};
use crate::beneath;

/// Past the first number the oldest are merged until the second is left.
const MOST: usize = 64;
const LEAST: usize = 32;
/// Past so many bytes of copies the older half is merged.
const MERGED_PAST: u64 = 8 << 30;
/// And past so many there are no more, where none is left to be merged.
pub(super) const REFUSED_PAST: u64 = 2 * MERGED_PAST;

pub(super) fn squash(own: BorrowedFd<'_>, records: &mut Vec<Record>, slots: usize) -> Result<(), Errno> {
    let kept: u64 = records.iter().map(|record| record.bytes).sum();
    if records.len() <= MOST && (kept <= MERGED_PAST || records.len() < 2) {
        return Ok(());
    }
    let keep = if records.len() > MOST { LEAST } else { records.len().div_ceil(2) };
    let merged = records.len() - keep;
    let target = records[merged].number;
    let mut layers: Vec<Layer> = (0..slots).map(|_| Layer::new()).collect();
    for record in &records[..=merged] {
        for (layer, delta) in layers.iter_mut().zip(deltas(own, record.number)?) {
            delta.apply(layer);
        }
    }
    let whole: Vec<Delta> = layers.iter().map(|layer| Delta::between(&Layer::new(), layer)).collect();
    records[merged].is_squashed = true;
    let directory = beneath::directory(own, Path::new(&target.to_string()))?;
    record::write(directory.as_fd(), &records[merged], &whole)?;
    let gone: Vec<usize> = records.drain(..merged).map(|record| record.number).collect();
    for record in records.iter_mut() {
        // What it put back is none of its own any more.
        if record.of.is_some_and(|of| gone.contains(&of)) {
            record.of = None;
            let directory = beneath::directory(own, Path::new(&record.number.to_string()))?;
            record::write_record(directory.as_fd(), record)?;
        }
    }
    for number in &gone {
        let directory = beneath::directory(own, Path::new(&number.to_string()))?;
        rustix::fs::unlinkat(&directory, record::RECORD, AtFlags::empty())?;
    }
    drop_unused(own, records)
}

/// Copies that no checkpoint refers to.
fn drop_unused(own: BorrowedFd<'_>, records: &mut [Record]) -> Result<(), Errno> {
    let mut used: HashSet<Copy> = HashSet::new();
    for record in records.iter() {
        used.extend(deltas(own, record.number)?.iter().flat_map(Delta::copies));
    }
    let mut of_merged = 0;
    for name in beneath::names(own, 1 << 16)? {
        let Some(number) = name.to_str().and_then(|name| name.parse::<usize>().ok()) else { continue };
        let directory = beneath::directory(own, Path::new(&name))?;
        let mut bytes = 0;
        for file in beneath::names(directory.as_fd(), 1 << 20)? {
            let Some(copy) = file.to_str().and_then(|file| file.parse().ok()) else { continue };
            if used.contains(&(number, copy)) {
                bytes += rustix::fs::statat(&directory, &file, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
            } else {
                rustix::fs::unlinkat(&directory, &file, AtFlags::empty())?;
            }
        }
        match records.iter_mut().find(|record| record.number == number) {
            Some(record) => record.bytes = bytes,
            None if bytes == 0 && !used.iter().any(|(of, _)| *of == number) => {
                crate::stages::remove(own, number.to_string())?;
            }
            None => of_merged += bytes,
        }
    }
    if let Some(first) = records.first_mut() {
        first.bytes += of_merged;
    }
    Ok(())
}
