//! The facts that `size` needs of an ELF file. Owns reading program headers and relocations; knows nothing of cargo.

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
/// The file names a dynamic loader.
const PT_INTERP: u32 = 3;

/// Sizes of the tables of relocations in `PT_DYNAMIC`, and where the packed one lies.
const DT_RELASZ: u64 = 8;
const DT_RELRSZ: u64 = 35;
const DT_RELR: u64 = 36;
/// Bytes of one entry of the table that is not packed.
const ENTRY_BYTES: u64 = 24;
const TRUNCATED: &str = "the ELF file is cut short";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linkage {
    Static,
    Dynamic,
}

/// How a 64-bit little-endian ELF file is linked, or what is wrong with it.
pub(crate) fn linkage(file: &[u8]) -> Result<Linkage, &'static str> {
    if file.get(..6) != Some(b"\x7fELF\x02\x01") {
        return Err("not a 64-bit little-endian ELF file");
    }
    let headers = headers(file).ok_or(TRUNCATED)?;
    let is_dynamic = headers.iter().any(|header| header.kind == PT_INTERP);
    Ok(if is_dynamic { Linkage::Dynamic } else { Linkage::Static })
}

/// The field `e_machine` of programs for aarch64.
pub(crate) const AARCH64: u16 = 183;

/// What a file is for, by its field `e_machine`.
pub(crate) fn machine(file: &[u8]) -> Option<u16> {
    file.get(18..20)?.try_into().ok().map(u16::from_le_bytes)
}

/// How many words of itself the program changes at each start.
pub(crate) fn relocations(file: &[u8]) -> Result<u64, &'static str> {
    let headers = headers(file).ok_or(TRUNCATED)?;
    let Some(dynamic) = headers.iter().find(|header| header.kind == PT_DYNAMIC) else { return Ok(0) };
    let entries = words(file, dynamic.offset, dynamic.size).ok_or(TRUNCATED)?;
    let entry = |tag| entries.chunks_exact(2).find(|entry| entry[0] == tag).map_or(0, |entry| entry[1]);
    let packed = entry(DT_RELR);
    let load = headers.iter().find(|header| header.kind == PT_LOAD && header.holds(packed));
    let packed = match load {
        Some(load) => words(file, packed - load.address + load.offset, entry(DT_RELRSZ)).ok_or(TRUNCATED)?,
        None => Vec::new(),
    };
    // An even word is an address; an odd one says by its other bits which of the next 63 words are meant.
    let counted = packed.iter().map(|word| if word % 2 == 0 { 1 } else { u64::from((word >> 1).count_ones()) });
    Ok(entry(DT_RELASZ) / ENTRY_BYTES + counted.sum::<u64>())
}

struct Header {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

impl Header {
    fn holds(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|offset| offset < self.size)
    }
}

fn headers(file: &[u8]) -> Option<Vec<Header>> {
    let table = usize::try_from(u64_at(file, 32)?).ok()?;
    let (size, count) = (usize::from(u16_at(file, 54)?), usize::from(u16_at(file, 56)?));
    let header = |index: usize| {
        let at = index.checked_mul(size)?.checked_add(table)?;
        let field = |offset: usize| u64_at(file, at.checked_add(offset)?);
        Some(Header { kind: u32_at(file, at)?, offset: field(8)?, address: field(16)?, size: field(32)? })
    };
    (0..count).map(header).collect()
}

fn words(file: &[u8], offset: u64, size: u64) -> Option<Vec<u64>> {
    let from = usize::try_from(offset).ok()?;
    let bytes = file.get(from..from.checked_add(usize::try_from(size).ok()?)?)?;
    Some(bytes.chunks_exact(8).filter_map(|word| u64_at(word, 0)).collect())
}

fn bytes_at<const N: usize>(file: &[u8], at: usize) -> Option<[u8; N]> {
    file.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(file: &[u8], at: usize) -> Option<u16> {
    bytes_at(file, at).map(u16::from_le_bytes)
}

fn u32_at(file: &[u8], at: usize) -> Option<u32> {
    bytes_at(file, at).map(u32::from_le_bytes)
}

fn u64_at(file: &[u8], at: usize) -> Option<u64> {
    bytes_at(file, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with `types` as its program headers.
    fn elf(types: &[u32]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = 64;
        file[54] = 56;
        file[56] = u8::try_from(types.len()).expect("few headers");
        for kind in types {
            let mut header = [0; 56];
            header[..4].copy_from_slice(&kind.to_le_bytes());
            file.extend(header);
        }
        file
    }

    #[test]
    fn an_interpreter_makes_it_dynamic() {
        assert_eq!(linkage(&elf(&[1, 6, PT_INTERP])), Ok(Linkage::Dynamic));
        assert_eq!(linkage(&elf(&[1, 6])), Ok(Linkage::Static));
    }

    #[test]
    fn this_test_itself_is_read() {
        let file = std::fs::read(std::env::current_exe().expect("own path")).expect("own file");
        assert!(linkage(&file).is_ok());
    }

    #[test]
    fn packed_relocations_are_counted_by_their_bits() {
        let mut file = elf(&[PT_LOAD, PT_DYNAMIC]);
        let mut put = |at: usize, word: u64| {
            file.resize(file.len().max(at + 8), 0);
            file[at..at + 8].copy_from_slice(&word.to_le_bytes());
        };
        // Loaded at 0x1000 from 0, 0x200 bytes; the dynamic table at 0x100, the packed one at 0x180.
        (put)(64 + 16, 0x1000);
        (put)(64 + 32, 0x200);
        (put)(64 + 56 + 8, 0x100);
        (put)(64 + 56 + 32, 64);
        for (index, word) in [DT_RELASZ, 2 * ENTRY_BYTES, DT_RELR, 0x1180, DT_RELRSZ, 16, 0, 0].into_iter().enumerate()
        {
            (put)(0x100 + index * 8, word);
        }
        (put)(0x180, 0x2000);
        (put)(0x188, 0b1011);
        assert_eq!(relocations(&file), Ok(2 + 1 + 2));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(linkage(b"#!/bin/sh").is_err());
        assert!(linkage(&elf(&[1, 1])[..90]).is_err());
        let mut far = elf(&[1]);
        far[32..40].fill(0xff);
        assert!(linkage(&far).is_err());
    }
}
