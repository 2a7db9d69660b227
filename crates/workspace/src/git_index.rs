//! The index of git, as bytes that a workload may have written. Owns the format, versions 2 and 3: what it says but for the times of
//! files, and its entries. Called by `commit`, `transaction` and `began`.

use std::fmt::Write as _;

/// An index of half a million files.
pub(crate) const LARGEST_INDEX: u64 = 64 << 20;

const SHA1: usize = 20;
const SHA256: usize = 32;
/// Times, device, inode, mode, owner and size.
const STAT: usize = 40;
const MODE: std::ops::Range<usize> = 24..28;
/// Where the first entry begins.
pub(crate) const HEADER: usize = 12;
const REGULAR: u8 = 0x80;
/// Which side of a conflict an entry is.
const STAGE: u8 = 0x30;

/// An id as git writes it.
pub(crate) fn id_text(id: &[u8]) -> String {
    id.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}

/// Whether two indexes of git differ in nothing but what they know of the files' times: `git status` writes such a one.
pub(crate) fn is_only_refreshed(one: &[u8], other: &[u8]) -> bool {
    match (entries(one), entries(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// An entry of an index. Of its fields git has the lower half of each number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexEntry<'a> {
    pub(crate) stat: &'a [u8],
    pub(crate) id: &'a [u8],
    flags: &'a [u8],
    pub(crate) name: &'a [u8],
    /// Where the next one begins.
    pub(crate) next: usize,
}

/// How many entries there are. Versions 2 and 3.
pub(crate) fn count_of(index: &[u8]) -> Option<u32> {
    let number = |at: usize| Some(u32::from_be_bytes(index.get(at..at + 4)?.try_into().ok()?));
    let is_known = index.get(..4)? == b"DIRC" && (2..=3).contains(&number(4)?);
    is_known.then(|| number(8)).flatten()
}

/// How long its ids are, which is told by where its parts end.
pub(crate) fn id_length(index: &[u8]) -> Option<usize> {
    [SHA1, SHA256].into_iter().find(|id| entries_with(index, *id).is_some())
}

impl<'a> IndexEntry<'a> {
    pub(crate) fn at(index: &'a [u8], at: usize, id: usize) -> Option<Self> {
        let (stat, rest) = index.get(at..)?.split_at_checked(STAT)?;
        let (id, rest) = rest.split_at_checked(id)?;
        let is_extended = rest.first()? & 0x40 != 0;
        let (flags, rest) = rest.split_at_checked(if is_extended { 4 } else { 2 })?;
        let name = rest.split(|byte| *byte == 0).next()?;
        // Entries begin at multiples of eight bytes, and a name is followed by one zero at least.
        let length = stat.len() + id.len() + flags.len() + name.len();
        Some(IndexEntry { stat, id, flags, name, next: at + ((length + 8) & !7) })
    }

    /// A regular file without a conflict.
    pub(crate) fn is_plain(&self) -> bool {
        self.stat[MODE][2] & 0xf0 == REGULAR && self.flags[0] & STAGE == 0
    }
}

/// Everything that an index says but times, numbers and sizes of files, caches, and the sum at its end.
pub(crate) fn entries(index: &[u8]) -> Option<Vec<u8>> {
    entries_with(index, SHA1).or_else(|| entries_with(index, SHA256))
}

fn entries_with(index: &[u8], id: usize) -> Option<Vec<u8>> {
    let count = count_of(index)?;
    let mut kept = index.get(..HEADER)?.to_vec();
    let mut at = HEADER;
    for _ in 0..count {
        let entry = IndexEntry::at(index, at, id)?;
        kept.extend_from_slice(&entry.stat[MODE]);
        kept.extend_from_slice(entry.id);
        kept.extend_from_slice(entry.flags);
        kept.extend_from_slice(entry.name);
        kept.push(0);
        at = entry.next;
    }
    let number = |at: usize| Some(u32::from_be_bytes(index.get(at..at + 4)?.try_into().ok()?));
    let end = index.len().checked_sub(id)?;
    while at < end {
        let next = at.checked_add(8)?.checked_add(usize::try_from(number(at + 4)?).ok()?)?;
        let extension = index.get(at..next).filter(|_| next <= end)?;
        // One that begins with a capital is a cache, which git makes anew.
        if !extension[0].is_ascii_uppercase() {
            kept.extend_from_slice(extension);
        }
        at = next;
    }
    (at == end).then_some(kept)
}
