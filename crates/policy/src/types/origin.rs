//! Where a rule came from. Owns layers and origins; does not decide which rule wins (see `layers`).
//! Every other module of this crate attaches an [`Origin`] to what it produces.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The layers of policy, weakest first. A later layer overrides an earlier one on the same key or path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    BuiltIn,
    Org,
    User,
    Project,
    ProjectLocal,
    Environment,
    Flag,
    /// Org ceilings (`requirements.toml`): not overridden by anything.
    Requirements,
}

impl Layer {
    /// A project's files come with a repository: they may tighten, and widen only once their content was approved.
    pub fn is_untrusted(self) -> bool {
        matches!(self, Layer::Project | Layer::ProjectLocal)
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::BuiltIn => "built-in",
            Layer::Org => "org",
            Layer::User => "user",
            Layer::Project => "project",
            Layer::ProjectLocal => "project.local",
            Layer::Environment => "environment",
            Layer::Flag => "flag",
            Layer::Requirements => "requirements",
        })
    }
}

/// Layer, file (or variable, or flag) and line of one rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    pub layer: Layer,
    /// File path, variable name or flag as the user would recognise it.
    pub source: Cow<'static, str>,
    /// 1-based line in `source`, where `source` is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

impl Origin {
    pub fn built_in(source: &'static str, line: u32) -> Self {
        Origin { layer: Layer::BuiltIn, source: Cow::Borrowed(source), line: Some(line) }
    }

    /// A default that no data file states.
    pub fn default_value() -> Self {
        Origin { layer: Layer::BuiltIn, source: Cow::Borrowed("default"), line: None }
    }

    pub fn flag(flag: &'static str) -> Self {
        Origin { layer: Layer::Flag, source: Cow::Borrowed(flag), line: None }
    }

    pub fn variable(name: impl Into<Cow<'static, str>>) -> Self {
        Origin { layer: Layer::Environment, source: name.into(), line: None }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.layer, self.source)?;
        match self.line {
            Some(line) => write!(f, ":{line}"),
            None => Ok(()),
        }
    }
}

/// A value and the rule that set it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ruled<T> {
    pub value: T,
    pub origin: Origin,
}

impl<T> Ruled<T> {
    pub fn new(value: T, origin: Origin) -> Self {
        Ruled { value, origin }
    }

    pub fn default_of(value: T) -> Self {
        Ruled { value, origin: Origin::default_value() }
    }

    /// The same rule about what `change` makes of the value.
    pub(crate) fn map<U>(&self, change: impl FnOnce(T) -> U) -> Ruled<U>
    where
        T: Clone,
    {
        Ruled { value: change(self.value.clone()), origin: self.origin.clone() }
    }
}
