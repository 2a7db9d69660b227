//! The rule in force at one real path, and what it means there. Owns the type and the question which of several decisions is
//! about a path; making them is `rules`', mounting them `mounts`'. Used by everything in this crate that is about files, and
//! by commands that explain a denial (`decide`).

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use cofferdam_policy::{Access, FileRule, Hold, Layer, Origin, PlacedRule, RuleIndex, Stand};
use serde::Serialize;

use crate::facts::path::{Kind, PathFact};

/// What a rule has to do with the session's transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionRole {
    None,
    /// What is written there is part of it.
    Kept,
    /// The same, and shipped protections in it are lifted, see [`PlacedRule::lifts`].
    Lifting,
    /// It is about what does not belong to the project: a transaction does not lift it.
    OfOthers,
}

/// The rule in force at one real path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    pub path: PathBuf,
    pub access: Access,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
    pub origin: Origin,
    #[serde(skip)]
    pub(crate) stand: Stand,
    #[serde(skip)]
    pub(crate) hold: Hold,
    #[serde(skip)]
    pub(crate) is_final: bool,
    /// Some rule gives this very path for reading, though a stricter one decides.
    #[serde(skip)]
    pub(crate) is_given: bool,
    /// What a masked file reads as.
    #[serde(skip)]
    pub(crate) masked: Option<String>,
    /// No rule names this path: it is another name of one, or a mount that may show one.
    #[serde(skip)]
    pub(crate) is_other_name: bool,
    #[serde(skip)]
    pub(crate) role: TransactionRole,
    #[serde(skip)]
    pub(crate) fact: PathFact,
}

impl Decision {
    pub(crate) fn new(rule: &FileRule, access: Access, fact: &PathFact) -> Decision {
        Decision {
            path: fact.canonical().to_path_buf(),
            access,
            reason: rule.reason.clone(),
            origin: rule.origin.clone(),
            stand: rule.stand.clone(),
            hold: rule.hold.clone(),
            is_final: false,
            is_given: false,
            masked: None,
            is_other_name: false,
            role: TransactionRole::None,
            fact: fact.clone(),
        }
    }

    /// Whether it follows from a mount of the host, and not from a rule about this path.
    pub fn is_other_name(&self) -> bool {
        self.is_other_name
    }

    /// Whether it lets the session write there: a protected name that was missing and is not held can be made.
    pub fn leaves_open(&self) -> bool {
        let is_only_a_name = matches!(self.fact, PathFact::Missing { .. }) && self.hold == Hold::Nothing;
        self.access == Access::Write || self.access == Access::Protect && is_only_a_name
    }

    /// What the file reads as inside, where it is masked.
    pub fn masked_text(&self) -> Option<&str> {
        self.masked.as_deref()
    }

    /// Whether what is written there is part of the session's transaction.
    pub fn in_transaction(&self) -> bool {
        matches!(self.role, TransactionRole::Kept | TransactionRole::Lifting)
    }

    /// Whether what is written there outlives the session: shipped overlays are of caches, but for a transaction that a preset
    /// asks for.
    pub(crate) fn is_kept_overlay(&self) -> bool {
        self.origin.layer != Layer::BuiltIn || self.in_transaction()
    }

    /// Whether it is about a socket of the host.
    pub fn is_about_socket(&self) -> bool {
        matches!(self.fact, PathFact::Present { kind: Kind::Socket, .. })
    }
}

impl PlacedRule for &Decision {
    fn place(&self) -> &Path {
        &self.path
    }

    /// A resolved path is plain already.
    fn set_place(&mut self, _: PathBuf) {}

    fn is_glob(&self) -> bool {
        false
    }

    fn tail(&self) -> usize {
        0
    }

    fn except(&self) -> &'static str {
        ""
    }

    fn access(&self) -> Access {
        self.access
    }

    fn is_final(&self) -> bool {
        self.is_final
    }

    fn layer(&self) -> Layer {
        self.origin.layer
    }

    fn lifts(&self) -> bool {
        self.role == TransactionRole::Lifting
    }

    fn is_liftable(&self) -> bool {
        let is_shipped = self.access == Access::Protect && self.origin.layer == Layer::BuiltIn;
        is_shipped && self.role != TransactionRole::OfOthers
    }
}

/// The decision about `path`, by the policy's precedence.
pub fn decide<'a>(decisions: &'a [Decision], path: &Path) -> Option<&'a Decision> {
    RuleIndex::new(decisions.iter().collect()).deciding(path).copied()
}

/// A decision about something that was found, and that no rule about files names.
pub(crate) fn found_out(path: PathBuf, access: Access, reason: &str, origin: &Origin, fact: PathFact) -> Decision {
    Decision {
        path,
        access,
        reason: Cow::Owned(reason.to_owned()),
        origin: origin.clone(),
        stand: Stand::Refuse,
        hold: Hold::Nothing,
        is_final: false,
        is_given: false,
        masked: None,
        is_other_name: false,
        role: TransactionRole::None,
        fact,
    }
}
