//! One path of the host: what stands there and its identity, or what is missing. Owns these types; resolving a path is
//! `host::survey`'s. Used by every module of this crate that is about files.

use std::path::{Path, PathBuf};

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Directory,
    File,
    Socket,
    Other,
}

/// The identity of a file: what was surveyed is what must be bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathFact {
    /// The name does not exist. `canonical` is where it would be, with every existing ancestor resolved; `first` its
    /// first component that does not exist: a program that creates the name has to create that one.
    Missing {
        canonical: PathBuf,
        first: PathBuf,
    },
    Present {
        canonical: PathBuf,
        kind: Kind,
        id: FileId,
    },
}

impl PathFact {
    pub fn canonical(&self) -> &Path {
        match self {
            PathFact::Missing { canonical, .. } | PathFact::Present { canonical, .. } => canonical,
        }
    }
}
