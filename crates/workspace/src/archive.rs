//! Changes as an archive: what a session made or changed, with names relative to the tree, as any `tar` reads it. Owns that format
//! (ustar, and pax where a name does not fit or a file has holes) and its bounds; no link is followed and no hidden name is in it, because none
//! is among the changes. Called by `cli`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::changes::Change;
use crate::entry::{Entry, Kind};
use crate::sparse;
use crate::transaction::Transaction;

const BLOCK: usize = 512;
/// A file that holds more is left out. Holes are not written.
const LARGEST: u64 = 4 << 30;
/// A file with more parts between holes is written as if it had none.
const MOST_PARTS: usize = 1 << 16;
/// The most that eleven octal digits say.
const MOST_IN_HEADER: u64 = 0o777_7777_7777;

/// What an archive does not hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NotHeld {
    /// Names that the session removed.
    pub removed: Vec<PathBuf>,
    /// Too large, or not to be read.
    pub left: Vec<PathBuf>,
}

/// Writes what was made or changed.
pub fn write<'a>(
    transaction: &Transaction,
    tree: usize,
    changes: impl IntoIterator<Item = &'a Change>,
    out: &mut dyn Write,
) -> io::Result<NotHeld> {
    let mut not_held = NotHeld::default();
    for change in changes {
        let Some(after) = &change.after else {
            not_held.removed.push(change.path.clone());
            continue;
        };
        let path = change.path.as_os_str().as_bytes();
        match (after.kind, after.target.as_deref()) {
            (Kind::Directory, _) => header(out, &[path, b"/"].concat(), after, b'5', 0, &[])?,
            (Kind::Link, Some(target)) => header(out, path, after, b'2', 0, target.as_os_str().as_bytes())?,
            (Kind::File, _) => {
                let file = transaction.changed_file(tree, &change.path);
                let is_held = file.map_or(Ok(false), |(file, size)| write_file(out, path, after, &file, size))?;
                not_held.left.extend((!is_held).then(|| change.path.clone()));
            }
            _ => not_held.left.push(change.path.clone()),
        }
    }
    out.write_all(&[0; 2 * BLOCK])?;
    Ok(not_held)
}

/// `false` where it is too large.
fn write_file(out: &mut dyn Write, path: &[u8], entry: &Entry, file: &File, size: u64) -> io::Result<bool> {
    let parts: Vec<Range<u64>> = sparse::data(file, size).take(MOST_PARTS + 1).collect::<Result<_, _>>()?;
    let held: u64 = parts.iter().map(|part| part.end - part.start).sum();
    if held == size || parts.len() > MOST_PARTS {
        if size > LARGEST {
            return Ok(false);
        }
        header(out, path, entry, b'0', size, &[])?;
        write_part(out, file, 0..size)?;
        return pad(out, size).map(|()| true);
    }
    if held > LARGEST {
        return Ok(false);
    }
    // As GNU tar writes a file with holes (format 1.0): where its parts lie, and the parts.
    let end = Range { start: size, end: size };
    let mut map = format!("{}\n", parts.len() + 1);
    for part in parts.iter().chain([&end]) {
        // Writing to a string does not fail.
        write!(map, "{}\n{}\n", part.start, part.end - part.start).unwrap_or_default();
    }
    map.extend(std::iter::repeat_n('\0', map.len().next_multiple_of(BLOCK) - map.len()));
    let records = [
        record("GNU.sparse.major", b"1"),
        record("GNU.sparse.minor", b"0"),
        record("GNU.sparse.name", path),
        record("GNU.sparse.realsize", size.to_string().as_bytes()),
    ];
    header_with(out, records.concat(), path, entry, b'0', map.len() as u64 + held, &[])?;
    out.write_all(map.as_bytes())?;
    for part in parts {
        write_part(out, file, part)?;
    }
    pad(out, held).map(|()| true)
}

fn write_part(out: &mut dyn Write, mut file: &File, part: Range<u64>) -> io::Result<()> {
    let length = part.end - part.start;
    file.seek(io::SeekFrom::Start(part.start))?;
    if io::copy(&mut file.take(length), out)? != length {
        // It became shorter while it was read: what follows would be read as its content.
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file changed while it was read"));
    }
    Ok(())
}

fn pad(out: &mut dyn Write, size: u64) -> io::Result<()> {
    let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
    out.write_all(&[0; BLOCK][..(BLOCK - over) % BLOCK])
}

fn header(out: &mut dyn Write, name: &[u8], entry: &Entry, kind: u8, size: u64, target: &[u8]) -> io::Result<()> {
    header_with(out, Vec::new(), name, entry, kind, size, target)
}

fn header_with(
    out: &mut dyn Write,
    mut records: Vec<u8>,
    name: &[u8],
    entry: &Entry,
    kind: u8,
    size: u64,
    target: &[u8],
) -> io::Result<()> {
    if name.len() > 100 {
        records.extend(record("path", name));
    }
    if target.len() > 100 {
        records.extend(record("linkpath", target));
    }
    if !records.is_empty() {
        let length = records.len() as u64;
        out.write_all(&block(b"././@PaxHeader", 0o644, 0, b'x', length, &[]))?;
        out.write_all(&records)?;
        pad(out, length)?;
    }
    let modified = u64::try_from(entry.modified.0).unwrap_or(0);
    out.write_all(&block(name, entry.mode, modified, kind, size, target))
}

/// `LENGTH key=value`, where the length counts itself.
fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

fn block(name: &[u8], mode: u32, modified: u64, kind: u8, size: u64, target: &[u8]) -> [u8; BLOCK] {
    let mut block = [0u8; BLOCK];
    let mut put = |at: usize, most: usize, text: &[u8]| {
        let length = text.len().min(most);
        block[at..at + length].copy_from_slice(&text[..length]);
    };
    put(0, 100, name);
    put(100, 7, format!("{mode:07o}").as_bytes());
    put(108, 7, b"0000000");
    put(116, 7, b"0000000");
    put(124, 11, format!("{size:011o}").as_bytes());
    put(136, 11, format!("{:011o}", modified.min(MOST_IN_HEADER)).as_bytes());
    put(148, 8, b"        ");
    put(156, 1, &[kind]);
    put(157, 100, target);
    put(257, 8, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}
