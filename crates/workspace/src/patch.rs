//! A change in the form that `git apply` takes: modes, links, binary content, names with any bytes. Owns that form and what cannot
//! be said in it; which changes are written and for whom is `cli`'s. Called by `cli`.

use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use sha1::{Digest as _, Sha1};

use crate::changes::Change;
use crate::diff::{self, Difference, Tag};
use crate::entry::{Entry, Kind};
use crate::git_index::id_text;
use crate::transaction::Transaction;

/// A larger file is in no patch: it is held in memory, compressed and written as text.
pub const LARGEST: u64 = 64 << 20;

/// What a line of a patch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Names and modes.
    Header,
    /// Content that is not text, as letters.
    Binary,
    /// Where a hunk lies.
    Position,
    Line(Tag),
}

/// Gets every line, without its end.
pub type Sink<'a> = &'a mut dyn FnMut(Part, &[u8]) -> io::Result<()>;

/// How much of a change a patch can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    Whole,
    /// Nothing: a directory, or permissions other than that to execute.
    Nothing,
    /// It is too large, or cannot be read.
    Left,
}

/// A file or a link on one side of a change.
struct Side {
    mode: &'static str,
    content: Vec<u8>,
}

/// Writes one change.
pub fn write(transaction: &Transaction, tree: usize, change: &Change, sink: Sink<'_>) -> io::Result<Held> {
    let (before, after) = transaction.contents(tree, &change.path, LARGEST);
    let (before, after) = match (side(change.before.as_ref(), before), side(change.after.as_ref(), after)) {
        (Err(Unread), _) | (_, Err(Unread)) => return Ok(Held::Left),
        (Ok(before), Ok(after)) => (before, after),
    };
    match (&before, &after) {
        (None, None) => Ok(Held::Nothing),
        (Some(old), Some(new)) if old.mode == new.mode && old.content == new.content => Ok(Held::Nothing),
        // Something of another kind is what was there removed and something new.
        (Some(old), Some(new)) if (old.mode == LINK) != (new.mode == LINK) => {
            one(&change.path, before.as_ref(), None, sink)?;
            one(&change.path, None, after.as_ref(), sink)
        }
        _ => one(&change.path, before.as_ref(), after.as_ref(), sink),
    }
}

const LINK: &str = "120000";

struct Unread;

fn side(entry: Option<&Entry>, content: Option<Vec<u8>>) -> Result<Option<Side>, Unread> {
    let Some(entry) = entry else { return Ok(None) };
    match (entry.kind, entry.target.as_deref(), content) {
        (Kind::File, _, Some(content)) => {
            let mode = if entry.mode & 0o100 == 0 { "100644" } else { "100755" };
            Ok(Some(Side { mode, content }))
        }
        (Kind::File, _, None) => Err(Unread),
        (Kind::Link, Some(target), _) => Ok(Some(Side { mode: LINK, content: target.as_os_str().as_bytes().to_vec() })),
        _ => Ok(None),
    }
}

fn one(path: &Path, before: Option<&Side>, after: Option<&Side>, sink: Sink<'_>) -> io::Result<Held> {
    let (old_name, new_name) = (quoted("a/", path), quoted("b/", path));
    let mut header = |text: String| sink(Part::Header, text.as_bytes());
    header(format!("diff --git {old_name} {new_name}"))?;
    match (before, after) {
        (None, Some(after)) => header(format!("new file mode {}", after.mode))?,
        (Some(before), None) => header(format!("deleted file mode {}", before.mode))?,
        (Some(before), Some(after)) if before.mode != after.mode => {
            header(format!("old mode {}", before.mode))?;
            header(format!("new mode {}", after.mode))?;
        }
        _ => {}
    }
    let content = |side: Option<&Side>| side.map(|side| side.content.clone());
    let (old, new) = (content(before), content(after));
    match diff::compare(old.as_deref(), new.as_deref()) {
        Difference::Text { hunks, .. } if hunks.is_empty() => {}
        Difference::Text { hunks, .. } => {
            let name = |side: Option<&Side>, name: &str| {
                // A name with a space in it ends where a tab stands.
                let tab = if name.contains(' ') && !name.starts_with('"') { "\t" } else { "" };
                side.map_or_else(|| "/dev/null".to_owned(), |_| format!("{name}{tab}"))
            };
            header(format!("--- {}", name(before, &old_name)))?;
            header(format!("+++ {}", name(after, &new_name)))?;
            for hunk in &hunks {
                sink(Part::Position, hunk.position().as_bytes())?;
                for line in &hunk.lines {
                    write_line(line, sink)?;
                }
            }
        }
        Difference::Binary => {
            let id = |side: Option<&Vec<u8>>| side.map_or_else(|| "0".repeat(40), |content| blob_id(content));
            header(format!("index {}..{}", id(old.as_ref()), id(new.as_ref())))?;
            header("GIT binary patch".to_owned())?;
            literal(new.as_deref().unwrap_or_default(), sink)?;
            literal(old.as_deref().unwrap_or_default(), sink)?;
        }
    }
    Ok(Held::Whole)
}

/// One line of a hunk, and whether the file ends without an end of line there.
pub fn write_line(line: &diff::Line, sink: Sink<'_>) -> io::Result<()> {
    let sign = match line.tag {
        Tag::Context => b' ',
        Tag::Removed => b'-',
        Tag::Added => b'+',
    };
    let text = line.text.strip_suffix(b"\n");
    sink(Part::Line(line.tag), &[&[sign], text.unwrap_or(&line.text)].concat())?;
    if text.is_none() {
        sink(Part::Line(Tag::Context), b"\\ No newline at end of file")?;
    }
    Ok(())
}

/// The name of a file's content among git's objects.
pub fn blob_id(content: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", content.len()));
    hash.update(content);
    id_text(&hash.finalize())
}

/// Content as git writes it: compressed, 52 bytes to a line, four bytes as five letters.
fn literal(content: &[u8], sink: Sink<'_>) -> io::Result<()> {
    sink(Part::Binary, format!("literal {}", content.len()).as_bytes())?;
    for chunk in miniz_oxide::deflate::compress_to_vec_zlib(content, 6).chunks(52) {
        sink(Part::Binary, &base85_line(chunk))?;
    }
    sink(Part::Binary, b"")
}

const BASE85: &[u8; 85] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

fn base85_line(chunk: &[u8]) -> Vec<u8> {
    let length = u8::try_from(chunk.len()).unwrap_or(52);
    let mut line = vec![if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 }];
    for four in chunk.chunks(4) {
        let mut bytes = [0u8; 4];
        bytes[..four.len()].copy_from_slice(four);
        let number = u32::from_be_bytes(bytes);
        for power in [85 * 85 * 85 * 85, 85 * 85 * 85, 85 * 85, 85, 1] {
            line.push(BASE85[(number / power % 85) as usize]);
        }
    }
    line
}

/// A name as git writes it: between quotes where a byte of it could be taken for something else.
pub fn quoted(prefix: &str, path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let is_plain = |byte: &u8| (b' '..0x7f).contains(byte) && !matches!(byte, b'"' | b'\\');
    if bytes.iter().all(is_plain) {
        return format!("{prefix}{}", path.display());
    }
    let mut text = format!("\"{prefix}");
    for byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            byte if is_plain(byte) => text.push(char::from(*byte)),
            // Writing to a string does not fail.
            byte => write!(text, "\\{byte:03o}").unwrap_or_default(),
        }
    }
    text.push('"');
    text
}

/// Whether `git apply` refuses a whole patch with this name in it: what could be a repository's own file on some file system.
pub fn is_refused_by_git(change: &Change) -> bool {
    let is_repository = |name: &std::ffi::OsStr| {
        let name = name.to_string_lossy().to_ascii_lowercase();
        let name = name.split(':').next().unwrap_or_default();
        matches!(name.trim_end_matches([' ', '.']), ".git" | "git~1")
    };
    let is_link = change.kind() == Kind::Link;
    let name = change.path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    change.path.iter().any(is_repository) || is_link && (name.starts_with(".gitmodules") || name.starts_with("gi7eba"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_git_quotes_them() {
        for (name, expected) in [
            (&b"a b"[..], "a/a b"),
            (b"tab\there", "\"a/tab\\there\""),
            (b"quote\"", "\"a/quote\\\"\""),
            (b"\xff", "\"a/\\377\""),
            (b"\x1b[2J", "\"a/\\033[2J\""),
        ] {
            assert_eq!(quoted("a/", Path::new(std::ffi::OsStr::from_bytes(name))), expected);
        }
    }

    #[test]
    fn the_name_of_an_object_is_what_git_calls_it() {
        assert_eq!(blob_id(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(blob_id(b"hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
    }
}
