//! What a commit is about to do, written down before it does anything, and what it has done. Owns the two records and how paths
//! are spelled in them; `commit` writes and obeys them.
//!
//! ```text
//!   journal.json            the intent: from here on the commit is carried through, by this process or a later one
//!   commit-N/K              what operation K puts in place, and then what it replaced
//!   commit-N/done.json      which operations were carried out; the journal is removed after it
//!   commit-N/undone.json    which of them were taken back; commit-N/K is what the session had made then
//!   staging.json            where else something was staged, before there is a journal
//! ```

use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::entry::{Entry, Time};
use crate::state::{create_anew, read_file, write_durably};

pub(crate) const JOURNAL: &str = "journal.json";
pub(crate) const STAGING: &str = "staging.json";
pub(crate) const DONE: &str = "done.json";
pub(crate) const UNDONE: &str = "undone.json";

/// A journal of 2^20 names of moderate length.
const MOST_BYTES: u64 = 1 << 30;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Action {
    /// The name does not exist.
    Create,
    /// Something has the name, and is kept beside the journal.
    Exchange,
    Remove,
    /// Of a directory; everything else is exchanged.
    SetMode {
        to: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Operation {
    pub(crate) tree: usize,
    #[serde(with = "path_text")]
    pub(crate) path: PathBuf,
    pub(crate) action: Action,
    /// What had the name when the operation was staged.
    pub(crate) base: Option<Entry>,
    /// What lay in it, where it is a directory that goes as a whole.
    pub(crate) below: Option<Below>,
    /// What was staged for it.
    pub(crate) staged: Option<Entry>,
    /// A sum of everything that was staged, where that is a directory.
    #[serde(default)]
    pub(crate) staged_sum: Option<u64>,
    /// The same of what must have the name, where an undo takes a directory away.
    #[serde(default)]
    pub(crate) base_sum: Option<u64>,
    /// Every name that is taken over or removed with it.
    #[serde(with = "path_texts")]
    pub(crate) takes: Vec<PathBuf>,
    /// Not the session's version of a file: the layer keeps that.
    #[serde(default)]
    pub(crate) is_part: bool,
    /// It is in there as a whole, and does not wait.
    #[serde(default)]
    pub(crate) is_whole: bool,
    /// The permissions that a file gets of which some hunks are taken, where they are not the host's.
    #[serde(default)]
    pub(crate) part_mode: Option<u32>,
    /// A sum of the content of what was staged, where that is not too much to read; of an index of git without times of files.
    #[serde(default, alias = "index_sum")]
    pub(crate) content_sum: Option<u64>,
    /// Where it lies among what was staged, where that is not its own place in the list.
    #[serde(default)]
    pub(crate) slot: Option<usize>,
}

impl Operation {
    /// The name of what was staged for operation number `at`.
    pub(crate) fn staged_name(&self, at: usize) -> String {
        self.slot.unwrap_or(at).to_string()
    }
}

/// Everything in a directory when it was looked at: how many names, and when the last of them was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Below {
    pub(crate) names: usize,
    pub(crate) newest: Option<Time>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Intent {
    pub(crate) version: u32,
    /// Number of the commit in its transaction.
    pub(crate) number: usize,
    pub(crate) operations: Vec<Operation>,
    pub(crate) staging: Staging,
    /// Whether this takes the commit of that number back.
    #[serde(default)]
    pub(crate) is_undo: bool,
    /// Directories that the host has changed before.
    #[serde(default)]
    pub(crate) worked_in: Vec<Settled>,
}

impl Intent {
    /// The record that it was carried out.
    pub(crate) fn record(&self) -> &'static str {
        if self.is_undo { UNDONE } else { DONE }
    }
}

/// Directories beside what is committed, one for each tree that lies on another file system than the transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Staging {
    pub(crate) beside: Vec<(usize, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) operations: Vec<Operation>,
    /// For each of them whether it was carried out.
    pub(crate) applied: Vec<bool>,
    /// The directories in which something was put in place, and by no other program since the session began; and names that were put
    /// back.
    pub(crate) directories: Vec<Settled>,
}

/// A name of the host's and when it was changed last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settled {
    pub(crate) tree: usize,
    #[serde(with = "path_text")]
    pub(crate) path: PathBuf,
    pub(crate) changed: Time,
}

/// What earlier commits of a transaction have done to a tree.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    /// Names that were taken.
    pub(crate) taken: HashSet<PathBuf>,
    /// When a commit has changed a directory last.
    pub(crate) directories: HashMap<PathBuf, Time>,
    /// Names that were put back and began as copies of the host's.
    pub(crate) origins: HashSet<PathBuf>,
}

pub(crate) fn read<T: serde::de::DeserializeOwned>(directory: BorrowedFd<'_>, name: &str) -> Result<Option<T>, Errno> {
    match read_file(directory, name, MOST_BYTES) {
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|_| Errno::INVAL),
    }
}

pub(crate) fn write(directory: BorrowedFd<'_>, name: &str, record: &impl Serialize) -> Result<(), Errno> {
    let text = serde_json::to_vec(record).map_err(|_| Errno::INVAL)?;
    if text.len() as u64 > MOST_BYTES {
        // It could not be read again.
        return Err(Errno::FBIG);
    }
    write_durably(directory, &format!("{name}.next"), name, &text)
}

/// There as a whole or not at all, unless the machine goes down.
pub(crate) fn write_plainly(directory: BorrowedFd<'_>, name: &str, record: &impl Serialize) -> Result<(), Errno> {
    let text = serde_json::to_vec(record).map_err(|_| Errno::INVAL)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(Errno::FBIG);
    }
    let next = format!("{name}.next");
    let mut file = create_anew(directory, &next)?;
    file.write_all(&text).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    rustix::fs::renameat(directory, &next, directory, name)
}

/// Names of files need not be UTF-8: other bytes, and the sign itself, are written as `%` and two digits.
pub(crate) mod path_text {
    use std::ffi::OsString;
    use std::fmt::Write as _;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn text(path: &Path) -> String {
        let mut text = String::new();
        for chunk in path.as_os_str().as_bytes().utf8_chunks() {
            text.push_str(&chunk.valid().replace('%', "%25"));
            for byte in chunk.invalid() {
                // Writing to a string does not fail.
                write!(text, "%{byte:02x}").unwrap_or_default();
            }
        }
        text
    }

    pub(crate) fn path(text: &str) -> Option<PathBuf> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let Some((first, after)) = rest.split_first() {
            if *first == b'%' {
                let digits = std::str::from_utf8(after.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &after[2..];
            } else {
                bytes.push(*first);
                rest = after;
            }
        }
        Some(PathBuf::from(OsString::from_vec(bytes)))
    }

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text(path))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        let text = String::deserialize(deserializer)?;
        path(&text).ok_or_else(|| D::Error::custom("not a path"))
    }
}

pub(crate) mod path_texts {
    use std::path::PathBuf;

    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use super::path_text;

    pub(crate) fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| path_text::text(path)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| path_text::path(text).ok_or_else(|| D::Error::custom("not a path"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    use super::path_text;

    #[test]
    fn every_name_is_read_as_it_was_written() {
        let names: [&[u8]; 6] = [b"a", b"100%", b"%41", b"\xff\xfe", b"a/\xe2\x82/b", "\u{20ac}".as_bytes()];
        for name in names {
            let path = Path::new(OsStr::from_bytes(name));
            assert_eq!(path_text::path(&path_text::text(path)).as_deref(), Some(path));
        }
        assert_eq!(path_text::path("%4"), None);
        assert_eq!(path_text::path("%zz"), None);
    }
}
