//! Reading records back, for people and for export. Owns nothing but the walk over the files: what is no record is passed
//! over, because telling whether it should be one is `verify`'s. Called by `cli`.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use serde::Deserialize;
use serde_json::Value;

use crate::files;
use crate::prune::begun;
use crate::record::Severity;

/// How much of a file is read at a time.
const CHUNK: u64 = 1 << 20;

/// A record as it was written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub sequence: u64,
    pub event_id: String,
    #[serde(rename = "sandboxId")]
    pub session: String,
    pub time: String,
    pub event: String,
    pub actor: String,
    pub severity: Severity,
    #[serde(default)]
    pub decision: Option<String>,
    #[serde(default)]
    pub origin: Option<String>,
    /// Microseconds.
    #[serde(default)]
    pub latency: Option<u64>,
    #[serde(default)]
    pub details: Value,
    /// The line itself, without its newline.
    #[serde(skip)]
    pub line: String,
}

impl Entry {
    fn parse(line: &[u8]) -> Option<Entry> {
        let text = str::from_utf8(line).ok()?;
        let entry: Entry = serde_json::from_str(text).ok()?;
        Some(Entry { line: text.to_owned(), ..entry })
    }
}

/// Every record of the chain below a state directory, oldest first, as far as they are written now.
pub fn entries(state: &Path) -> Result<Follow, Errno> {
    Follow::new(state)
}

/// The walk. `next` says `None` at the end of what is written; called again later it goes on with what was added.
#[derive(Debug)]
pub struct Follow {
    directory: Option<OwnedFd>,
    path: std::path::PathBuf,
    number: u32,
    file: Option<OwnedFd>,
    offset: u64,
    /// Read, but not given out; begins at `at`.
    buffer: Vec<u8>,
    at: usize,
    /// Up to this record they were pruned, although some may still lie there.
    begun: u64,
}

impl Follow {
    fn new(state: &Path) -> Result<Self, Errno> {
        let path = crate::directory(state);
        let mut follow =
            Follow { directory: None, path, number: 0, file: None, offset: 0, buffer: Vec::new(), at: 0, begun: 0 };
        follow.open_directory()?;
        Ok(follow)
    }

    fn open_directory(&mut self) -> Result<(), Errno> {
        self.directory = match files::open_directory(&self.path) {
            Ok(directory) => Some(directory),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno),
        };
        self.begun = self.directory.as_ref().map_or(Ok(0), |directory| begun(directory.as_fd()))?;
        Ok(())
    }

    /// The next record, or what kept it from being read.
    pub fn try_next(&mut self) -> Result<Option<Entry>, Errno> {
        loop {
            while let Some(length) = self.buffer[self.at..].iter().position(|byte| *byte == b'\n') {
                let line = self.at..self.at + length;
                self.at += length + 1;
                if let Some(entry) = Entry::parse(&self.buffer[line]).filter(|entry| entry.sequence > self.begun) {
                    return Ok(Some(entry));
                }
            }
            if !self.read_more()? && !self.next_file()? {
                return Ok(None);
            }
        }
    }

    fn read_more(&mut self) -> Result<bool, Errno> {
        let Some(file) = &self.file else { return Ok(false) };
        let bytes = files::read_at(file.as_fd(), self.offset, CHUNK)?;
        self.buffer.drain(..self.at);
        self.at = 0;
        self.offset += bytes.len() as u64;
        self.buffer.extend_from_slice(&bytes);
        Ok(!bytes.is_empty())
    }

    fn next_file(&mut self) -> Result<bool, Errno> {
        if self.directory.is_none() {
            self.open_directory()?;
        }
        let Some(directory) = &self.directory else { return Ok(false) };
        let numbers = files::numbers(directory.as_fd())?;
        let Some(number) = numbers.into_iter().find(|number| *number > self.number) else { return Ok(false) };
        self.file = files::open_to_read(directory.as_fd(), &files::name_of(number))?;
        self.number = number;
        self.offset = 0;
        self.buffer.clear();
        self.at = 0;
        Ok(true)
    }
}

impl Iterator for Follow {
    type Item = Entry;

    /// What cannot be read ends the walk; [`Follow::try_next`] says why.
    fn next(&mut self) -> Option<Entry> {
        self.try_next().ok().flatten()
    }
}
