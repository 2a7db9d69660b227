//! The index of git, as bytes that a workload may have written. Owns the format, versions 2 and 3: what it says but for the times of
//! files, and its entries. Called by `sums`, `transaction`, `checkpoint` and
//! `beginnings`. `host` has a reader of its own, for the first names of a long index.

use std::fmt::Write as _;

use crate::entry::Entry;

/// An index of half a million files.
pub(crate) const LARGEST_INDEX: u64 = 64 << 20;

const SHA1: usize = 20;
const SHA256: usize = 32;
/// Times, device, inode, mode, owner and size.
const STAT: usize = 40;
const MODE: std::ops::Range<usize> = 24..28;
/// Where the times, the inode and the size stand in that.
const FIELDS: [usize; 6] = [0, 4, 8, 12, 20, 36];
/// Where the first entry begins.
const HEADER: usize = 12;
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
    match (said(one), said(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// An entry of an index. Of its fields git has the lower half of each number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexEntry<'a> {
    stat: &'a [u8],
    pub(crate) id: &'a [u8],
    flags: &'a [u8],
    pub(crate) name: &'a [u8],
}

/// The entries of an index, one after the other.
#[derive(Debug)]
pub(crate) struct Entries {
    index: Vec<u8>,
    id_length: usize,
    at: usize,
    left: u32,
}

impl Entries {
    /// None where it is not understood.
    pub(crate) fn open(index: Vec<u8>) -> Option<Self> {
        let left = count_of(&index)?;
        let id_length = [SHA1, SHA256].into_iter().find(|id| walk(&index, *id, &mut |_| ()).is_some())?;
        Some(Entries { index, id_length, at: HEADER, left })
    }

    pub(crate) fn next(&mut self) -> Option<IndexEntry<'_>> {
        self.left = self.left.checked_sub(1)?;
        let (entry, next) = IndexEntry::at(&self.index, self.at, self.id_length)?;
        self.at = next;
        Some(entry)
    }
}

fn number(index: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(index.get(at..at + 4)?.try_into().ok()?))
}

fn count_of(index: &[u8]) -> Option<u32> {
    let is_known = index.get(..4)? == b"DIRC" && (2..=3).contains(&number(index, 4)?);
    is_known.then(|| number(index, 8)).flatten()
}

impl<'a> IndexEntry<'a> {
    /// With where the next one begins.
    fn at(index: &'a [u8], at: usize, id: usize) -> Option<(Self, usize)> {
        let (stat, rest) = index.get(at..)?.split_at_checked(STAT)?;
        let (id, rest) = rest.split_at_checked(id)?;
        let is_extended = rest.first()? & 0x40 != 0;
        let (flags, rest) = rest.split_at_checked(if is_extended { 4 } else { 2 })?;
        let name = rest.split(|byte| *byte == 0).next()?;
        // Entries begin at multiples of eight bytes, and a name is followed by one zero at least.
        let length = stat.len() + id.len() + flags.len() + name.len();
        Some((IndexEntry { stat, id, flags, name }, at + ((length + 8) & !7)))
    }

    /// A regular file without a conflict.
    pub(crate) fn is_plain(&self) -> bool {
        self.stat[MODE][2] & 0xf0 == REGULAR && self.flags[0] & STAGE == 0
    }

    /// Whether a file looks as it did when git entered it: times, inode and size.
    pub(crate) fn is_of(&self, file: &Entry) -> bool {
        let times = [file.changed.0, file.changed.1, file.modified.0, file.modified.1];
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "git keeps the lower halves")]
        let fields = times.map(|time| time as u32).into_iter().chain([file.inode as u32, file.size as u32]);
        fields.map(Some).eq(FIELDS.into_iter().map(|at| number(self.stat, at)))
    }
}

/// Everything that an index says but times, numbers and sizes of files, caches, and the sum at its end.
pub(crate) fn said(index: &[u8]) -> Option<Vec<u8>> {
    let with = |id: usize| {
        let mut kept = index.get(..HEADER)?.to_vec();
        walk(index, id, &mut |bytes| kept.extend_from_slice(bytes))?;
        Some(kept)
    };
    with(SHA1).or_else(|| with(SHA256))
}

/// To its very end, by which it is known how long its ids are.
fn walk(index: &[u8], id: usize, keep: &mut dyn FnMut(&[u8])) -> Option<()> {
    let mut at = HEADER;
    for _ in 0..count_of(index)? {
        let (entry, next) = IndexEntry::at(index, at, id)?;
        for bytes in [&entry.stat[MODE], entry.id, entry.flags, entry.name, &[0]] {
            keep(bytes);
        }
        at = next;
    }
    let end = index.len().checked_sub(id)?;
    while at < end {
        let next = at.checked_add(8)?.checked_add(usize::try_from(number(index, at + 4)?).ok()?)?;
        let extension = index.get(at..next).filter(|_| next <= end)?;
        // One that begins with a capital is a cache, which git makes anew.
        if !extension[0].is_ascii_uppercase() {
            keep(extension);
        }
        at = next;
    }
    (at == end).then_some(())
}
