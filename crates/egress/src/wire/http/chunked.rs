//! The chunked coding, followed byte by byte so that bodies are forwarded as they came.
//! Owns where a chunked body ends and that both sides see the same end; keeps no byte of it. Called by `connections` for
//! either direction.

use super::head::{is_token_byte, is_value_byte};

/// The most bytes of one chunk's extensions; hardly any program uses them, except to make readers disagree.
const EXTENSION_MAX: usize = 256;
/// The most bytes of trailers after the last chunk.
const TRAILERS_MAX: usize = 8 * 1024;
/// Hexadecimal digits of a chunk size: what fits in 60 bits.
const DIGITS_MAX: u8 = 15;

/// What `Chunked::scan` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Bytes from the front of the buffer that belong to the body, framing included. All of them unless it ended.
    pub used: usize,
    /// The body ended with the last of them.
    pub ended: bool,
}

/// A chunked body on its way through.
#[derive(Debug, Clone)]
pub(crate) struct Chunked {
    at: At,
    extension: usize,
    trailers: usize,
}

#[derive(Debug, Clone, Copy)]
enum At {
    Size { size: u64, digits: u8 },
    Extension { size: u64 },
    SizeLf { size: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    LastLf,
    Ended,
}

const FIRST: At = At::Size { size: 0, digits: 0 };

impl Default for Chunked {
    fn default() -> Self {
        Self { at: FIRST, extension: 0, trailers: 0 }
    }
}

impl Chunked {
    /// Follows the body through the next bytes. After an error or the end the value is of no further use.
    pub(crate) fn scan(&mut self, buf: &[u8]) -> Result<Scan, &'static str> {
        let mut used = 0;
        while used < buf.len() {
            if let At::Data { left } = self.at {
                let here = left.min(u64::try_from(buf.len() - used).unwrap_or(u64::MAX));
                used += usize::try_from(here).unwrap_or(0);
                self.at = if here == left { At::DataCr } else { At::Data { left: left - here } };
                continue;
            }
            if matches!(self.at, At::Ended) {
                break;
            }
            self.at = self.step(buf[used])?;
            used += 1;
        }
        Ok(Scan { used, ended: matches!(self.at, At::Ended) })
    }

    fn step(&mut self, byte: u8) -> Result<At, &'static str> {
        match (self.at, byte) {
            (At::Size { digits: DIGITS_MAX, .. }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                Err("chunk size too large")
            }
            (At::Size { size, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let value = char::from(byte).to_digit(16).unwrap_or(0);
                Ok(At::Size { size: size << 4 | u64::from(value), digits: digits + 1 })
            }
            (At::Size { digits: 0, .. }, _) => Err("chunk without a size"),
            (At::Size { size, .. } | At::Extension { size }, b'\r') => Ok(At::SizeLf { size }),
            (At::Size { size, .. }, b';') => {
                self.extension = 0;
                Ok(At::Extension { size })
            }
            (At::Size { .. }, _) => Err("chunk size is not hexadecimal"),
            (At::Extension { size }, _) if is_value_byte(byte) => {
                self.extension += 1;
                if self.extension > EXTENSION_MAX {
                    Err("chunk extension too long")
                } else {
                    Ok(At::Extension { size })
                }
            }
            (At::Extension { .. }, _) => Err("control byte in a chunk extension"),
            (At::SizeLf { size: 0 }, b'\n') => Ok(At::TrailerStart),
            (At::SizeLf { size }, b'\n') => Ok(At::Data { left: size }),
            (At::DataCr, b'\r') => Ok(At::DataLf),
            (At::DataCr, _) => Err("chunk longer than its size"),
            (At::DataLf, b'\n') => Ok(FIRST),
            (At::TrailerStart, b'\r') => Ok(At::LastLf),
            (At::LastLf, b'\n') => Ok(At::Ended),
            (At::TrailerLf, b'\n') => Ok(At::TrailerStart),
            (At::SizeLf { .. } | At::DataLf | At::LastLf | At::TrailerLf, _) => Err("CR without LF in chunk framing"),
            (At::TrailerStart | At::TrailerName | At::TrailerValue, _) => self.trailer(byte),
            (At::Data { .. } | At::Ended, _) => Ok(self.at),
        }
    }

    fn trailer(&mut self, byte: u8) -> Result<At, &'static str> {
        self.trailers += 1;
        if self.trailers > TRAILERS_MAX {
            return Err("trailers too long");
        }
        match (self.at, byte) {
            (At::TrailerName, b':') => Ok(At::TrailerValue),
            (At::TrailerStart | At::TrailerName, _) if is_token_byte(byte) => Ok(At::TrailerName),
            (At::TrailerValue, b'\r') => Ok(At::TrailerLf),
            (At::TrailerValue, _) if is_value_byte(byte) => Ok(At::TrailerValue),
            _ => Err("malformed trailer"),
        }
    }
}
