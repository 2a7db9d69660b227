//! The formats of the shipped lists: secrets, protected paths, environment. Owns their parsing and checks, and is
//! compiled into the build script only: the program itself holds the finished tables. Called by `build.rs`.

use serde::Deserialize;

use crate::format::file::from_toml;
use crate::format::spanned::{At, Lines};
use crate::language::path::PathExpr;
use crate::types::error::PolicyError;
use crate::types::files::ObeyedClass;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Secret {
    pub(crate) path: String,
    pub(crate) reason: String,
    pub(crate) text: Option<String>,
    /// It reads as it is, without the values of secret names.
    #[serde(default)]
    pub(crate) mask: bool,
    /// Names that the pattern leaves out.
    #[serde(default)]
    pub(crate) except: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Protect {
    pub(crate) path: String,
    pub(crate) reason: String,
    pub(crate) class: ObeyedClass,
    /// An empty directory, unless it says otherwise.
    pub(crate) hold: Option<String>,
    #[serde(default)]
    pub(crate) only_missing: bool,
}

impl Protect {
    /// What is only reported is neither held nor protected, and only names of projects are reported.
    pub(crate) fn is_consistent(&self) -> bool {
        let is_of_project = self.path.starts_with("./") || self.path.starts_with("{git}/");
        let is_reported = is_of_project && self.hold.is_none() && !self.only_missing;
        self.class == ObeyedClass::Opens || is_reported
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Secrets {
    pub(crate) secret: Vec<At<Secret>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Protects {
    pub(crate) protect: Vec<At<Protect>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Environment {
    pub(crate) clean: Vec<At<Variable>>,
    pub(crate) block: Vec<At<Variable>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dependencies {
    pub(crate) directory: Vec<At<Dependency>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Known {
    pub(crate) path: String,
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) toolchain: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KnownPlaces {
    pub(crate) known: Vec<At<Known>>,
    pub(crate) asked: Vec<At<Known>>,
}

/// What a program usually reaches.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandHosts {
    pub(crate) programs: Vec<String>,
    #[serde(default)]
    pub(crate) words: Vec<String>,
    #[serde(default)]
    pub(crate) hosts: Vec<String>,
    pub(crate) preset: Option<String>,
    #[serde(default)]
    pub(crate) in_arguments: bool,
    pub(crate) reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Commands {
    pub(crate) command: Vec<At<CommandHosts>>,
}

impl CommandHosts {
    /// Where its hosts stand: in exactly one place.
    pub(crate) fn is_consistent(&self) -> bool {
        let places = [!self.hosts.is_empty(), self.preset.is_some(), self.in_arguments];
        let is_named = self.programs.iter().chain(&self.hosts).all(|name| !name.is_empty());
        is_named
            && !self.programs.is_empty()
            && !self.reason.trim().is_empty()
            && places.iter().filter(|is| **is).count() == 1
    }
}

pub(crate) fn read<T: serde::de::DeserializeOwned>(source: &str, text: &str) -> Result<(T, Lines), PolicyError> {
    let lines = Lines::new(text);
    let list = from_toml(source, text, &lines)?;
    Ok((list, lines))
}

/// A path of a shipped list, or why the build must stop.
pub(crate) fn checked_path(source: &str, line: u32, path: &str, reason: &str) -> Result<PathExpr, String> {
    if reason.trim().is_empty() {
        return Err(format!("{source}:{line}: `{path}` has no reason"));
    }
    PathExpr::parse(path).map_err(|error| format!("{source}:{line}: {error}"))
}
