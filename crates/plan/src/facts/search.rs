//! How far the search of the project for names to hide got (docs/decisions/0039). Owns what is counted and told of it; the
//! search itself is the `host` crate's. Part of `HostFacts`.

use std::path::PathBuf;

use serde::Serialize;

/// Why something of the project was not searched for names to hide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unseen {
    Depth,
    Entries,
    Time,
    /// One that a server keeps, mounted in the project: it may never answer.
    OtherFileSystem,
    Unreadable,
}

/// How far the search for what rules about any directory of the project are about got (docs/decisions/0039).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Searched {
    pub directories: usize,
    /// Directories that were not looked into, or not to the end, as far as they are worth naming; what lies in them is not
    /// covered.
    pub unseen: Vec<(PathBuf, Unseen)>,
    /// How many there are, named or not.
    pub left: usize,
    /// A directory with more names to hide than are covered one by one.
    pub crowded: Option<PathBuf>,
}

impl Searched {
    /// What a person reads through.
    const NAMED: usize = 8;

    pub fn leave(&mut self, directory: PathBuf, why: Unseen) {
        self.left += 1;
        if self.unseen.len() < Self::NAMED {
            self.unseen.push((directory, why));
        }
    }

    /// What was not looked at, in words; `None` where the search was complete.
    pub fn tell_unseen(&self) -> Option<String> {
        let (_, first) = self.unseen.first()?;
        let why = match first {
            Unseen::Depth => "too deep",
            Unseen::Entries => "too many names",
            Unseen::Time => "out of time",
            Unseen::OtherFileSystem => "another file system",
            Unseen::Unreadable => "cannot be listed",
        };
        let named: Vec<String> = self.unseen.iter().map(|(path, _)| path.display().to_string()).collect();
        let more =
            if self.left > named.len() { format!(" and {} more", self.left - named.len()) } else { String::new() };
        Some(format!("{} not searched ({why}): {}{more}", self.left, named.join(", ")))
    }
}
