//! Rules about paths: what each gives or refuses, what is shown instead, and what holds a missing name. Owns the types and
//! their order of strictness; which rule wins is `decide`'s, and mounts are `plan`'s. Part of `Policy`.

use std::borrow::Cow;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::language::path::{PathExpr, Places};
use crate::types::names::display_as;
use crate::types::origin::Origin;

/// What a rule does to a path and everything below it. Ordered: stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Content is absent: a directory looks empty, a file cannot be opened.
    Deny,
    /// Read-only, without the values of secret names in it. Shipped lists alone say so.
    #[serde(skip_deserializing)]
    Mask,
    /// Read-only, and if the name does not exist it cannot be created either.
    Protect,
    /// Read-only.
    Read,
    /// Looks writable; writes go to the session and never to the host.
    Overlay,
    /// Writable for real.
    Write,
}

display_as!(Access { Deny => "deny", Mask => "mask", Protect => "protect", Read => "read", Overlay => "overlay", Write => "write" });

/// What a denied or held file shows instead of its content.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stand {
    /// Opening it fails with EACCES.
    #[default]
    Refuse,
    /// Opening it gives this text: for files that tools insist on reading.
    Text(String),
}

/// What keeps a missing name from being created inside a writable directory, for as long as the sandbox runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// Nothing does: the rule counts only where the path exists.
    #[default]
    Nothing,
    /// An empty directory stands in.
    Directory,
    /// A socket node stands in: git neither opens it nor shows it.
    Socket,
    /// A file with this text stands in.
    File(Cow<'static, str>),
}

/// When programs of the host obey a name in a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObeyedClass {
    /// Without being asked for: on `cd`, when the project is opened, at `git status`, when an agent starts.
    Opens,
    /// When a person runs the program that reads it.
    Runs,
}

/// A name in a project that programs of the host obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObeyedName {
    /// Names with slashes between them, the last a pattern if `is_glob`.
    pub name: &'static str,
    /// Below a `.git`.
    pub in_git: bool,
    pub is_glob: bool,
    /// A directory of that name is obeyed by what other entries name in it.
    pub only_files: bool,
    pub class: ObeyedClass,
    /// What obeys it, and how.
    pub why: &'static str,
}

/// One rule about one path. The rule with the longest path that contains a file decides about that file;
/// on the same path the later layer wins, within a layer the stricter access.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct FileRule {
    pub path: PathExpr,
    pub access: Access,
    pub stand: Stand,
    pub hold: Hold,
    /// The rule is about the name while nothing is there: what exists at the path keeps the access it has without it.
    pub only_missing: bool,
    /// A missing path is no error (lists of well-known places).
    pub optional: bool,
    /// Never overridden by a longer path or a later layer (org requirements).
    pub is_final: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
    pub origin: Origin,
}

impl FileRule {
    /// The absolute paths this is about. A rule that closes is about every home, one that gives about the first: a second
    /// home widens nothing.
    pub fn expand(&self, places: &Places) -> Vec<PathBuf> {
        match self.access {
            Access::Deny | Access::Mask | Access::Protect => self.path.expand_in_homes(places),
            Access::Read | Access::Overlay | Access::Write => self.path.expand(places),
        }
    }
}
