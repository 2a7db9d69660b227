//! Caches that do not exist yet, below directories that a session is given for reading. Owns which of them are made: a session's
//! overlay needs a directory to lie on, and inside nothing can make one there. Called by `preparation` once a start has a plan.

use std::path::{Path, PathBuf};

use cofferdam_plan::HostFacts;
use cofferdam_policy::decide::index::refuses;
use cofferdam_policy::{Access, FileRule, Layer, Places, Policy};

use crate::home_directories;

/// Makes them empty, as their programs would; whether there was one to make. Where one cannot be made, the session is without it.
pub(crate) fn make_missing(policy: &Policy, facts: &HostFacts) -> bool {
    let places = facts.places();
    let given: Vec<PathBuf> = shipped(policy, Access::Read, &places).filter(|path| *path != facts.home).collect();
    let is_missing = |cache: &PathBuf| {
        let above = given.iter().find(|given| cache != *given && cache.starts_with(given));
        above.is_some_and(|given| is_directory(given)) && cache.symlink_metadata().is_err()
    };
    let mut missing: Vec<PathBuf> = shipped(policy, Access::Overlay, &places).filter(is_missing).collect();
    let kept: Vec<PathBuf> = shipped(policy, Access::Write, &places).filter(is_missing).collect();
    if !kept.is_empty() {
        // Of what a preset keeps, the caches: other places are files.
        let built_in = Policy::built_in();
        missing.extend(shipped(&built_in, Access::Overlay, &places).filter(|cache| kept.contains(cache)));
    }
    let wanted = missing.iter().filter(|cache| !is_refused(policy, &places, cache));
    wanted.filter(|cache| home_directories::make(&facts.home, cache).is_ok()).count() > 0
}

fn shipped<'a>(policy: &'a Policy, access: Access, places: &'a Places) -> impl Iterator<Item = PathBuf> + 'a {
    let is_such =
        move |rule: &&FileRule| rule.access == access && rule.origin.layer == Layer::BuiltIn && !rule.path.is_glob();
    policy.files.iter().filter(is_such).flat_map(|rule| rule.expand(places))
}

/// Whether a rule of the operator's closes it.
fn is_refused(policy: &Policy, places: &Places, cache: &Path) -> bool {
    let is_closing = |rule: &&FileRule| rule.origin.layer != Layer::BuiltIn && refuses(rule.access);
    let closed = policy.files.iter().filter(is_closing);
    closed.flat_map(|rule| rule.expand(places)).any(|path| cache.starts_with(path))
}

fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|about| about.is_dir())
}
