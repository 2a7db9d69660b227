//! What can be wrong with a policy. Owns the error type and its hints; renders nothing (the edge does).
//! Returned by `format` and `resolve`.

use thiserror::Error;

use crate::language::endpoint::EndpointError;
use crate::language::path::PathError;
use crate::types::origin::{Layer, Origin, Ruled};

/// Every variant names the rule and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyError {
    #[error("{file}:{line}:{column}: {message}")]
    Syntax { file: String, line: u32, column: u32, message: String, hint: Option<String> },
    #[error("policy version {version} is not known here ({origin})")]
    Version { version: u32, origin: Origin },
    #[error("`{setting}` names no usable path ({origin})")]
    Path {
        setting: &'static str,
        origin: Origin,
        #[source]
        cause: PathError,
    },
    #[error("`{setting}` names no usable host ({origin})")]
    Host {
        setting: &'static str,
        origin: Origin,
        #[source]
        cause: EndpointError,
    },
    #[error("`{setting}` cannot be `{value}`: expected {expected} ({origin})")]
    Value { setting: String, value: String, expected: String, origin: Origin },
    #[error("`{setting}` is not enforced yet, so it is refused: {message} ({origin})")]
    Unbuilt { setting: String, message: &'static str, origin: Origin },
    #[error("system call `{call}` is always denied and cannot be allowed ({origin})")]
    AlwaysDenied { call: String, origin: Origin },
    #[error("there is no preset `{name}` ({origin})")]
    UnknownPreset { name: String, origin: Origin, hint: Option<String> },
    #[error("variable `{name}` is not known")]
    UnknownVariable { name: String, hint: Option<String> },
    #[error("`{setting}` counts in the org's policy only ({origin})")]
    OrgOnly { setting: String, origin: Origin },
    #[error("`{setting}` does not count in a project's policy, approved or not ({origin})")]
    NotForProjects { setting: String, origin: Origin },
    #[error("`{setting}` counts in shipped presets only ({origin})")]
    PresetOnly { setting: &'static str, origin: Origin },
    #[error("isolation `none` needs the approval of the org's policy ({origin})")]
    NoneNotApproved { origin: Origin },
    #[error("`{request}` ({origin}) is beyond the ceiling: {} ({})", ceiling.value, ceiling.origin)]
    BeyondCeiling { request: String, origin: Origin, ceiling: Box<Ruled<String>> },
}

impl PolicyError {
    /// What the reader could do about it, apart from the message.
    pub fn hint(&self) -> Option<String> {
        match self {
            PolicyError::Syntax { hint, .. }
            | PolicyError::UnknownPreset { hint, .. }
            | PolicyError::UnknownVariable { hint, .. } => hint.clone(),
            PolicyError::Version { .. } => Some("write `version = 1`, or use a newer sandbox".to_owned()),
            PolicyError::NoneNotApproved { .. } => Some(
                "the org's policy (`/etc/cofferdam/policy.toml`) must say `allow_isolation_none = true`".to_owned(),
            ),
            PolicyError::BeyondCeiling { ceiling, .. } if ceiling.origin.layer == Layer::BuiltIn => {
                Some("ask for less, or do without the preset".to_owned())
            }
            PolicyError::BeyondCeiling { .. } => {
                Some("ask for less, or ask the operator who keeps the ceiling".to_owned())
            }
            PolicyError::PresetOnly { .. } => {
                Some("an organisation's maxima stand in `/etc/cofferdam/requirements.toml`".to_owned())
            }
            PolicyError::Unbuilt { .. } => Some("remove the setting".to_owned()),
            PolicyError::OrgOnly { .. } => Some("remove the setting here".to_owned()),
            PolicyError::NotForProjects { .. } => {
                Some("write it into your own policy: `~/.config/cofferdam/config.toml`".to_owned())
            }
            PolicyError::AlwaysDenied { .. }
            | PolicyError::Path { .. }
            | PolicyError::Host { .. }
            | PolicyError::Value { .. } => None,
        }
    }

    pub fn origin(&self) -> Option<&Origin> {
        match self {
            PolicyError::Version { origin, .. }
            | PolicyError::Path { origin, .. }
            | PolicyError::Host { origin, .. }
            | PolicyError::NotForProjects { origin, .. }
            | PolicyError::Value { origin, .. }
            | PolicyError::Unbuilt { origin, .. }
            | PolicyError::AlwaysDenied { origin, .. }
            | PolicyError::UnknownPreset { origin, .. }
            | PolicyError::OrgOnly { origin, .. }
            | PolicyError::PresetOnly { origin, .. }
            | PolicyError::NoneNotApproved { origin }
            | PolicyError::BeyondCeiling { origin, .. } => Some(origin),
            PolicyError::Syntax { .. } | PolicyError::UnknownVariable { .. } => None,
        }
    }
}

/// `did you mean ...?` for the nearest candidate, where one is near enough to be a slip.
pub fn did_you_mean<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    const LONGEST: usize = 64;
    if wrong.len() > LONGEST {
        return None;
    }
    let allowed = (wrong.len() / 3).max(1);
    let (distance, best) = candidates.into_iter().map(|candidate| (edits(wrong, candidate), candidate)).min()?;
    (distance <= allowed).then(|| format!("did you mean `{best}`?"))
}

/// Levenshtein distance in bytes.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.bytes().enumerate() {
            let change = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}
