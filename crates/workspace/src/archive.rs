//! Changes as an archive: what a session made or changed, with names relative to the tree, as any `tar` reads it. Owns that format
//! (ustar, and pax where a name or a size does not fit) and its bounds; no link is followed and no hidden name is in it, because none
//! is among the changes. Called by `cli`.

use std::io::{self, Read as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::changes::Change;
use crate::entry::{Entry, Kind};
use crate::transaction::Transaction;

const BLOCK: usize = 512;
/// A larger file is left out: a sparse one costs the workload nothing, and the archive all of it.
const LARGEST: u64 = 4 << 30;
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
            (Kind::File, _) => match transaction.changed_file(tree, &change.path) {
                Some((file, size)) if size <= LARGEST => {
                    header(out, path, after, b'0', size, &[])?;
                    let copied = io::copy(&mut file.take(size), out)?;
                    if copied != size {
                        // It became shorter while it was read: what follows would be read as its content.
                        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file changed while it was read"));
                    }
                    pad(out, size)?;
                }
                _ => not_held.left.push(change.path.clone()),
            },
            _ => not_held.left.push(change.path.clone()),
        }
    }
    out.write_all(&[0; 2 * BLOCK])?;
    Ok(not_held)
}

fn pad(out: &mut dyn Write, size: u64) -> io::Result<()> {
    let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
    out.write_all(&[0; BLOCK][..(BLOCK - over) % BLOCK])
}

fn header(out: &mut dyn Write, name: &[u8], entry: &Entry, kind: u8, size: u64, target: &[u8]) -> io::Result<()> {
    let mut records = Vec::new();
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
