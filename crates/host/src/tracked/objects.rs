//! The bytes that git's object store has under a name: loose, or in a pack, differences applied. Owns the formats;
//! what it does not understand it does not find: alternates, old indexes of packs, objects that are too long. Called by
//! `tracked`.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use rustix::fs::{Mode, OFlags};

use super::reading::{Budget, LONGEST_FILE, WITHIN, open_file, read_at_most};

/// Longest object that a difference may be about.
const LONGEST_BASE: usize = 1 << 20;
/// A file that is compared, and its header.
const LONGEST_LOOSE: usize = (1 << 16) + 32;
const MOST_PACKS: usize = 64;
/// To look for a name in a pack takes about as long as to read so many bytes.
const PACK_WORK: usize = 1 << 12;
/// git makes chains of 50.
const LONGEST_CHAIN: usize = 64;

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Commit,
    Tree,
    Blob,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Commit => "commit",
            Kind::Tree => "tree",
            Kind::Blob => "blob",
        }
    }

    fn in_packs(self) -> u8 {
        match self {
            Kind::Commit => 1,
            Kind::Tree => 2,
            Kind::Blob => 3,
        }
    }
}

/// Where in the object store the object of this kind and name lies, and its bytes; nothing once the budget is spent.
pub(super) fn find(objects: &OwnedFd, kind: Kind, name: &[u8], budget: &Budget) -> Option<(PathBuf, Vec<u8>)> {
    budget.spend(PACK_WORK)?;
    let hex = data_encoding::HEXLOWER.encode(name);
    let loose = PathBuf::from(hex.get(..2)?).join(hex.get(2..)?);
    if let Some(file) = open_file(objects, &loose) {
        let packed = read_at_most(file, LONGEST_FILE * 2)?;
        let bytes = decompress_to_vec_zlib_with_limit(&packed, LONGEST_LOOSE).ok()?;
        budget.spend(packed.len() + bytes.len())?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        let (header, content) = (&bytes[..end], &bytes[end + 1..]);
        let is_meant = header == format!("{} {}", kind.word(), content.len()).as_bytes();
        return is_meant.then(|| (loose, content.to_vec()));
    }
    packs(objects)?.into_iter().find_map(|at| {
        budget.spend(PACK_WORK)?;
        let pack = Pack::open(objects, &at, name.len())?;
        let (found, bytes) = pack.object(pack.offset_of(name)?, LONGEST_CHAIN, budget)?;
        (found == kind.in_packs()).then_some((at, bytes))
    })
}

/// The packs' indexes; `None` where there are too many.
fn packs(objects: &OwnedFd) -> Option<Vec<PathBuf>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat2(objects, "pack", flags, Mode::empty(), WITHIN).ok()?;
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::new(directory).ok()?.take(MOST_PACKS * 8) {
        let entry = entry.ok()?;
        let name = entry.file_name().to_str().unwrap_or_default();
        if Path::new(name).extension().is_some_and(|extension| extension == "idx") {
            found.push(Path::new("pack").join(name));
        }
    }
    found.sort();
    (found.len() <= MOST_PACKS).then_some(found)
}

const OFFSET_DELTA: u8 = 6;
const NAME_DELTA: u8 = 7;

struct Pack {
    index: File,
    data: File,
    count: u64,
    width: u64,
}

/// Magic and version, then how many names begin with at most each byte.
const FANOUT: u64 = 8;
const NAMES: u64 = FANOUT + 256 * 4;

impl Pack {
    fn open(objects: &OwnedFd, index: &Path, width: usize) -> Option<Pack> {
        let data = open_file(objects, &index.with_extension("pack"))?;
        let index = open_file(objects, index)?;
        if bytes::<8>(&index, 0)? != [0xff, b't', b'O', b'c', 0, 0, 0, 2] {
            return None;
        }
        let count = u64::from(number(&index, FANOUT + 255 * 4)?);
        Some(Pack { index, data, count, width: width as u64 })
    }

    fn offset_of(&self, name: &[u8]) -> Option<u64> {
        let first = u64::from(*name.first()?);
        let mut low = if first == 0 { 0 } else { u64::from(number(&self.index, FANOUT + (first - 1) * 4)?) };
        let mut high = u64::from(number(&self.index, FANOUT + first * 4)?).min(self.count);
        let mut here = vec![0u8; name.len()];
        while low < high {
            let middle = u64::midpoint(low, high);
            self.index.read_exact_at(&mut here, NAMES + middle * self.width).ok()?;
            match here.as_slice().cmp(name) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return self.offset(middle),
            }
        }
        None
    }

    fn offset(&self, at: u64) -> Option<u64> {
        let offsets = NAMES + self.count * (self.width + 4);
        let short = number(&self.index, offsets + at * 4)?;
        if short & 0x8000_0000 == 0 {
            return Some(u64::from(short));
        }
        let long = offsets + self.count * 4 + u64::from(short & 0x7fff_ffff) * 8;
        Some(u64::from_be_bytes(bytes(&self.index, long)?))
    }

    /// An object's kind and its bytes, what it is the difference to applied.
    fn object(&self, offset: u64, chain: usize, budget: &Budget) -> Option<(u8, Vec<u8>)> {
        let mut cursor = Cursor { file: &self.data, at: offset };
        let first = cursor.byte()?;
        let (kind, mut size, mut shift, mut more) = (first >> 4 & 7, usize::from(first & 15), 4, first);
        while more & 0x80 != 0 {
            more = cursor.byte()?;
            size |= usize::from(more & 0x7f).checked_shl(shift).filter(|_| shift < 28)?;
            shift += 7;
        }
        if size > LONGEST_BASE {
            return None;
        }
        let base = match kind {
            OFFSET_DELTA => Some(offset.checked_sub(cursor.distance()?)?),
            NAME_DELTA => {
                let mut name = vec![0u8; usize::try_from(self.width).ok()?];
                self.data.read_exact_at(&mut name, cursor.at).ok()?;
                cursor.at += self.width;
                Some(self.offset_of(&name)?)
            }
            _ => None,
        };
        budget.spend(size)?;
        let data = self.inflate(cursor.at, size)?;
        let Some(base) = base else { return Some((kind, data)) };
        let (kind, base) = self.object(base, chain.checked_sub(1)?, budget)?;
        budget.spend(base.len())?;
        Some((kind, apply(&base, &data)?))
    }

    /// What is stored without compression is a little longer than itself.
    fn inflate(&self, at: u64, size: usize) -> Option<Vec<u8>> {
        let mut packed = vec![0u8; size + size / 512 + 256];
        let mut read = 0;
        while read < packed.len() {
            match self.data.read_at(&mut packed[read..], at + read as u64).ok()? {
                0 => break,
                more => read += more,
            }
        }
        decompress_to_vec_zlib_with_limit(&packed[..read], size).ok().filter(|data| data.len() == size)
    }
}

struct Cursor<'a> {
    file: &'a File,
    at: u64,
}

impl Cursor<'_> {
    fn byte(&mut self) -> Option<u8> {
        let [byte] = bytes(self.file, self.at)?;
        self.at = self.at.checked_add(1)?;
        Some(byte)
    }

    /// How far before an object the one lies that it is the difference to.
    fn distance(&mut self) -> Option<u64> {
        let mut byte = self.byte()?;
        let mut value = u64::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.byte()?;
            value = value.checked_add(1)?.checked_mul(128)?.checked_add(u64::from(byte & 0x7f))?;
        }
        Some(value)
    }
}

/// A difference applied to what it is about.
fn apply(base: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    let mut rest = delta;
    let size = |rest: &mut &[u8]| {
        let (mut value, mut shift) = (0usize, 0);
        loop {
            let byte = take(rest)?;
            value |= usize::from(byte & 0x7f).checked_shl(shift).filter(|_| shift < 28)?;
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    };
    let (from, to) = (size(&mut rest)?, size(&mut rest)?);
    if from != base.len() || to > LONGEST_BASE {
        return None;
    }
    let mut made = Vec::with_capacity(to);
    while let Some(op) = take(&mut rest) {
        let piece = if op & 0x80 == 0 {
            let (piece, after) = rest.split_at_checked(usize::from(op)).filter(|_| op != 0)?;
            rest = after;
            piece
        } else {
            let mut field = |bits: std::ops::Range<u32>| {
                let mut value = 0usize;
                for (place, bit) in bits.enumerate() {
                    if op & 1 << bit != 0 {
                        value |= usize::from(take(&mut rest)?) << (8 * place);
                    }
                }
                Some(value)
            };
            let (start, length) = (field(0..4)?, field(4..7)?);
            let length = if length == 0 { 0x10000 } else { length };
            base.get(start..start.checked_add(length)?)?
        };
        if made.len() + piece.len() > to {
            return None;
        }
        made.extend_from_slice(piece);
    }
    (made.len() == to).then_some(made)
}

fn take(rest: &mut &[u8]) -> Option<u8> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    Some(*first)
}

fn bytes<const N: usize>(file: &File, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0u8; N];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

fn number(file: &File, at: u64) -> Option<u32> {
    bytes(file, at).map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_that_lies_in_no_file_is_none() {
        let file = File::open("/proc/self/exe").expect("it is there");
        for at in [u64::MAX, u64::MAX - 1, 1 << 63] {
            assert_eq!(Cursor { file: &file, at }.byte(), None);
        }
    }
}
