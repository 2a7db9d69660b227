//! Which names of a tree the policy hides from the session, kept in the manifest: a later process asks the same rules, whatever
//! the policy says by then. Owns that form of them; precedence is `policy`'s index. Called by `transaction`.

use std::path::{Path, PathBuf};

use cofferdam_policy::{Access, Layer, PlacedRule, RuleIndex};
use serde::{Deserialize, Serialize};

use crate::journal::path_text;

/// One rule about names in a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenRule {
    #[serde(with = "path_text")]
    place: PathBuf,
    is_glob: bool,
    tail: usize,
    except: String,
    /// Whether it hides what it is about, or shows it.
    hides: bool,
    is_final: bool,
    layer: Layer,
}

impl HiddenRule {
    /// `None` where the rule neither hides nor shows: one that protects leaves a name as visible as it is, and of what one masks
    /// only what the workload made itself can be written.
    pub fn of(rule: &impl PlacedRule) -> Option<Self> {
        let access = rule.access();
        (!matches!(access, Access::Mask | Access::Protect)).then(|| HiddenRule {
            place: rule.place().to_path_buf(),
            is_glob: rule.is_glob(),
            tail: rule.tail(),
            except: rule.except().to_owned(),
            hides: access == Access::Deny,
            is_final: rule.is_final(),
            layer: rule.layer(),
        })
    }
}

impl HiddenRule {
    /// A rule that masks, as one that hides: for what must not come from the host at all.
    pub fn of_mask(rule: &impl PlacedRule) -> Option<Self> {
        (rule.access() == Access::Mask).then(|| HiddenRule {
            place: rule.place().to_path_buf(),
            is_glob: rule.is_glob(),
            tail: rule.tail(),
            except: rule.except().to_owned(),
            hides: true,
            is_final: rule.is_final(),
            layer: rule.layer(),
        })
    }
}

impl PlacedRule for HiddenRule {
    fn place(&self) -> &Path {
        &self.place
    }

    fn set_place(&mut self, place: PathBuf) {
        self.place = place;
    }

    fn is_glob(&self) -> bool {
        self.is_glob
    }

    fn tail(&self) -> usize {
        self.tail
    }

    fn except(&self) -> &str {
        &self.except
    }

    fn access(&self) -> Access {
        if self.hides { Access::Deny } else { Access::Write }
    }

    fn is_final(&self) -> bool {
        self.is_final
    }

    fn layer(&self) -> Layer {
        self.layer
    }

    fn lifts(&self) -> bool {
        // What protects is not among these rules.
        false
    }
}

#[derive(Debug)]
pub(crate) struct Hidden(RuleIndex<HiddenRule>);

impl Hidden {
    pub(crate) fn new(rules: &[HiddenRule]) -> Self {
        Hidden(RuleIndex::new(rules.to_vec()))
    }

    pub(crate) fn is_hidden(&self, path: &Path) -> bool {
        self.0.deciding(path).is_some_and(|rule| rule.hides)
    }
}
