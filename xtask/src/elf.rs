//! The two facts that `size` needs of an ELF file. Owns reading program headers; knows nothing of cargo.

/// `PT_INTERP`: the file names a dynamic loader.
const PT_INTERP: u32 = 3;

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
    let truncated = "the ELF header is cut short";
    let table = usize::try_from(u64_at(file, 32).ok_or(truncated)?).map_err(|_| truncated)?;
    let size = usize::from(u16_at(file, 54).ok_or(truncated)?);
    let count = usize::from(u16_at(file, 56).ok_or(truncated)?);
    for index in 0..count {
        let at = index.checked_mul(size).and_then(|offset| offset.checked_add(table)).ok_or(truncated)?;
        if u32_at(file, at).ok_or(truncated)? == PT_INTERP {
            return Ok(Linkage::Dynamic);
        }
    }
    Ok(Linkage::Static)
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
    fn nonsense_is_refused() {
        assert!(linkage(b"#!/bin/sh").is_err());
        assert!(linkage(&elf(&[1, 1])[..90]).is_err());
        let mut far = elf(&[1]);
        far[32..40].fill(0xff);
        assert!(linkage(&far).is_err());
    }
}
