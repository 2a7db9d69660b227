//! The entries of git's index, versions 2 to 4, read from the front and no further than needed. Owns the format; what is
//! malformed, too long or of another version has no entries. Called by `tracked`.
//!
//! Extensions are not looked at: a name that only a shared index holds (split index) is not found, and so stays hidden.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};

use super::reading::Budget;

/// A regular file of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) object: Vec<u8>,
    /// git has never looked at the file with this version in mind.
    pub(crate) is_unseen: bool,
}

/// A hidden name may stand at any depth (decision 0039), so the last one decides how much is read; an index that is longer
/// than this has no entries.
const MOST_READ: u64 = 16 << 20;
const LONGEST_NAME: usize = 4096;
/// As many as the search for names to hide finds (decision 0039). Of more the first ones count.
const MOST_FOUND: usize = 4096;

/// Times, device, inode, mode, owner and size.
const STAT: usize = 40;
const MODE_AT: usize = 24;
const REGULAR: u32 = 0o10;
/// Which side of a conflict an entry is.
const STAGE: u16 = 0x3000;

/// The entries at or below the wanted names; `None` where the file is not an index that is understood, or takes too long.
pub(super) fn read(file: impl Read, wanted: &[&[u8]], width: usize, budget: &Budget) -> Option<Vec<Entry>> {
    let mut reader = BufReader::with_capacity(1 << 15, file.take(MOST_READ));
    let mut header = [0u8; 12];
    reader.read_exact(&mut header).ok()?;
    let version = number(&header[4..8])?;
    if &header[..4] != b"DIRC" || !(2..=4).contains(&version) {
        return None;
    }
    let last = wanted.iter().max()?;
    let wanted: HashSet<&[u8]> = wanted.iter().copied().collect();
    let mut found = Vec::new();
    let mut name = Vec::new();
    for _ in 0..number(&header[8..12])? {
        let entry = next(&mut reader, version, width, &mut name)?;
        budget.spend(STAT + name.len())?;
        // Names are sorted; what lies below a name comes after it, and shares its beginning.
        if name.as_slice() > *last && !name.starts_with(last) {
            break;
        }
        let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let is_wanted = || slashes.chain([name.len()]).any(|end| wanted.contains(&name[..end]));
        if let Some((object, is_unseen)) = entry.filter(|_| is_wanted()) {
            if found.len() == MOST_FOUND {
                break;
            }
            found.push(Entry { name: name.clone(), object, is_unseen });
        }
    }
    Some(found)
}

/// Reads one entry; its object where it is a regular file without a conflict. `name` is the name before, and then its own.
#[expect(clippy::option_option, reason = "no entry can be read, or one that is no plain file")]
fn next(reader: &mut impl BufRead, version: u32, width: usize, name: &mut Vec<u8>) -> Option<Option<(Vec<u8>, bool)>> {
    let mut fixed = [0u8; STAT + 32 + 2];
    let fixed = &mut fixed[..STAT + width + 2];
    reader.read_exact(fixed).ok()?;
    let mode = number(&fixed[MODE_AT..MODE_AT + 4])?;
    let object = fixed[STAT..STAT + width].to_vec();
    let is_unseen = fixed[..MODE_AT].iter().all(|byte| *byte == 0);
    let flags = u16::from_be_bytes(fixed[STAT + width..].try_into().ok()?);
    let mut length = fixed.len();
    if flags & 0x4000 != 0 {
        if version == 2 {
            return None;
        }
        reader.read_exact(&mut [0u8; 2]).ok()?;
        length += 2;
    }
    let kept = if version == 4 { name.len().checked_sub(prefix(reader)?)? } else { 0 };
    name.truncate(kept);
    let read = reader.by_ref().take(LONGEST_NAME as u64).read_until(0, name).ok()?;
    if name.pop() != Some(0) {
        return None;
    }
    if version < 4 {
        // Entries begin at multiples of eight bytes; one of the bytes in between is the name's end.
        let padding = (8 - (length + read) % 8) % 8;
        reader.read_exact(&mut [0u8; 8][..padding]).ok()?;
    }
    let is_plain = mode >> 12 == REGULAR && flags & STAGE == 0;
    Some(is_plain.then_some((object, is_unseen)))
}

/// How many bytes of the name before do not belong to this one.
fn prefix(reader: &mut impl BufRead) -> Option<usize> {
    let mut value = 0usize;
    loop {
        let mut byte = [0u8];
        reader.read_exact(&mut byte).ok()?;
        value = value.checked_shl(7)?.checked_add(usize::from(byte[0] & 0x7f))?;
        if byte[0] & 0x80 == 0 {
            return Some(value);
        }
        if value > LONGEST_NAME {
            return None;
        }
        value += 1;
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}
