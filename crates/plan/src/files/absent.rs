//! Names that rules hide and that do not exist when a session starts: what a host program makes there later has to be hidden
//! too, wherever a directory is given by which it could be seen. Owns which names those are; `mounts` hides them. Patterns
//! stand for no name yet and are left to the gate. Called by `plan()`.
//!
//! In static mode the whole home is given, and the shipped lists have some four hundred names there: making a whiteout for
//! each would take longer than the rest of the launch. Those that do not exist then are not hidden when they appear.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use cofferdam_policy::path::Base;
use cofferdam_policy::{Access, Layer, Policy, RuleIndex};

use crate::facts::host::HostFacts;
use crate::facts::path::{Kind, PathFact};
use crate::files::decision::Decision;

/// Those below `given`; in static mode everything but the home.
pub(crate) fn absent(
    policy: &Policy,
    facts: &HostFacts,
    decisions: &[Decision],
    given: Option<&[PathBuf]>,
) -> Vec<PathBuf> {
    if given.is_some_and(<[PathBuf]>::is_empty) {
        return Vec::new();
    }
    let places = facts.places();
    // What git has word for word is there, and shown: no decision is about it any more.
    let shown = facts.tracked.iter().filter(|file| file.object.is_some()).map(|file| file.path.as_os_str());
    let decided: HashSet<&OsStr> = decisions.iter().map(|decision| decision.path.as_os_str()).chain(shown).collect();
    // Below these something else decides what can be seen, or there is no below.
    let is_closed = |decision: &&Decision| match decision.fact {
        PathFact::Present { kind, .. } => {
            kind != Kind::Directory || matches!(decision.access, Access::Deny | Access::Overlay | Access::Write)
        }
        PathFact::Missing { .. } => false,
    };
    let closed: Vec<&OsStr> = decisions.iter().filter(is_closed).map(|decision| decision.path.as_os_str()).collect();
    let is_wanted = |rule: &&cofferdam_policy::FileRule| {
        rule.access >= Access::Read && rule.origin.layer != Layer::BuiltIn && !rule.path.is_glob()
    };
    let wanted: Vec<PathBuf> = policy.files.iter().filter(is_wanted).flat_map(|rule| rule.expand(&places)).collect();
    let mut found = Vec::new();
    let hides = |rule: &&cofferdam_policy::FileRule| {
        let is_meant = given.is_some() || rule.path.base != Base::Home;
        is_meant && rule.access <= Access::Mask && !rule.only_missing && !rule.path.is_glob()
    };
    for path in policy.files.iter().filter(hides).flat_map(|rule| rule.expand(&places)) {
        let is_below = |above: &OsStr| is_below(path.as_os_str(), above);
        let is_given = match given {
            Some(given) => given.iter().any(|tree| is_below(tree.as_os_str())),
            None => !places.homes().any(|home| is_below(home.as_os_str())),
        };
        if is_given
            && !decided.contains(path.as_os_str())
            && !closed.iter().any(|above| is_below(above))
            && !wanted.iter().any(|wanted| wanted.starts_with(&path))
        {
            found.push(path);
        }
    }
    found
}

/// Those in the overlays of a transaction, at the place where a rule begins: of a name at any depth the one in the project itself,
/// of a pattern like `.env*` the name without more. What could be masked is not among them: the workload may make it.
pub(crate) fn absent_in_overlays(
    policy: &Policy,
    facts: &HostFacts,
    decisions: &[Decision],
    overlays: &[PathBuf],
) -> Vec<PathBuf> {
    if overlays.is_empty() {
        return Vec::new();
    }
    let shown = facts.tracked.iter().filter(|file| file.object.is_some()).map(|file| file.path.as_os_str());
    let decided: HashSet<&OsStr> = decisions.iter().map(|decision| decision.path.as_os_str()).chain(shown).collect();
    let index = RuleIndex::new(decisions.iter().collect());
    let is_given = |path: &PathBuf| {
        overlays.iter().any(|tree| is_below(path.as_os_str(), tree.as_os_str()))
            && !decided.contains(path.as_os_str())
            // Below something else that was decided that decides what can be seen.
            && index.deciding(path).is_some_and(|deciding| overlays.contains(&deciding.path))
    };
    let rules = policy.files.iter().filter(|rule| rule.access == Access::Deny && !rule.only_missing);
    let places = facts.places();
    let paths = rules.flat_map(|rule| rule.expand(&places)).filter_map(|path| without_pattern(&path));
    paths.filter(is_given).collect()
}

/// `None` for a pattern that does not begin with a name.
fn without_pattern(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let stem = name.strip_suffix('*').unwrap_or(name);
    let is_name = !stem.is_empty() && !stem.contains(['*', '?', '[']);
    is_name.then(|| path.with_file_name(stem))
}

/// As bytes: this is asked for each shipped rule at every start.
pub(crate) fn is_below(path: &OsStr, above: &OsStr) -> bool {
    let (path, above) = (path.as_encoded_bytes(), above.as_encoded_bytes());
    path.len() > above.len() && path[above.len()] == b'/' && path.starts_with(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_means_by_whole_names() {
        for (path, above, is) in [("/a/b", "/a", true), ("/ab", "/a", false), ("/a", "/a", false)] {
            assert_eq!(is_below(OsStr::new(path), OsStr::new(above)), is, "{path} {above}");
        }
    }
}
