//! Merges the oldest checkpoints where there are too many of them, and gives back what no later one needs. Owns how many are kept.
//! Called by `checkpoint` after each one.

use std::collections::HashSet;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::layer::Copy;
use super::record::{self, By, Delta, Record, deltas};
use crate::beneath;

/// Past the first number the oldest are merged until the second is left. Those of an operator count apart, so that labels of the
/// workload push none of them out; the beginning is an empty layer and is always there.
const MOST: usize = 64;
const LEAST: usize = 32;
const MOST_OF_OPERATOR: usize = 256;
/// Past so many bytes of copies the older half is merged.
const MERGED_PAST: u64 = 8 << 30;
/// And past so many there are no more, where none is left to be merged.
pub(super) const REFUSED_PAST: u64 = 2 * MERGED_PAST;

pub(super) fn squash(own: BorrowedFd<'_>, records: &mut Vec<Record>) -> Result<(), Errno> {
    let merged = to_merge(records);
    if merged.is_empty() {
        return Ok(());
    }
    let mut before: Option<Vec<Delta>> = None;
    for record in records.iter_mut() {
        let own_delta = deltas(own, record.number)?;
        let whole = match before.take() {
            Some(earlier) => earlier.into_iter().zip(own_delta).map(|(one, other)| one.then(other)).collect(),
            None if merged.contains(&record.number) => own_delta,
            None => continue,
        };
        if merged.contains(&record.number) {
            before = Some(whole);
            continue;
        }
        // Written before those that it holds are gone: applied after them it changes nothing.
        record.is_squashed = true;
        let directory = beneath::directory(own, Path::new(&record.number.to_string()))?;
        record::write(directory.as_fd(), record, &whole)?;
    }
    records.retain(|record| !merged.contains(&record.number));
    for record in records.iter_mut() {
        // What it put back is none of its own any more.
        if record.of.is_some_and(|of| merged.contains(&of)) {
            record.of = None;
            let directory = beneath::directory(own, Path::new(&record.number.to_string()))?;
            record::write_record(directory.as_fd(), record)?;
        }
    }
    for number in &merged {
        let directory = beneath::directory(own, Path::new(&number.to_string()))?;
        rustix::fs::unlinkat(&directory, record::RECORD, AtFlags::empty())?;
    }
    drop_unused(own, records)
}

/// The numbers of those that go. The last one stays: the layers are as it says.
fn to_merge(records: &[Record]) -> HashSet<usize> {
    let is_operators = |record: &&Record| record.by == By::Operator;
    let kept: u64 = records.iter().map(|record| record.bytes).sum();
    let operators: Vec<usize> = records.iter().filter(is_operators).map(|record| record.number).collect();
    let others: Vec<usize> =
        records.iter().filter(|record| !is_operators(record)).map(|record| record.number).collect();
    let keep = match others.len() {
        count if count > MOST => LEAST,
        count if kept > MERGED_PAST && records.len() > 1 => count.div_ceil(2),
        count => count,
    };
    let last = records.last().map(|record| record.number);
    let oldest = others.into_iter().rev().skip(keep);
    let oldest_of_operator = operators.into_iter().rev().skip(MOST_OF_OPERATOR);
    oldest.chain(oldest_of_operator).filter(|number| Some(*number) != last).collect()
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
