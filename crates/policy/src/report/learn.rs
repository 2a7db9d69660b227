//! From what a run touched to the smallest sensible policy. Owns the grouping: toolchains, directories, what is never
//! granted; the run itself and its record are the caller's. Called by `sandbox learn`.
//!
//! What is readable already adds nothing. Secrets are reported, never granted. A directory stands for its files only
//! where nothing hidden lies below it, and never for the home directory, what lies above it, or a directory of the root.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::builtin::toolchains;
use crate::decide::files::ExpandedRule;
use crate::decide::index::RuleIndex;
use crate::language::case_fold::folds_at_or_below;
use crate::language::path::{PathExpr, Places, is_at_or_below};
use crate::types::files::Access;
use crate::types::origin::Origin;
use crate::types::setting::Setting;

/// What was done with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Touch {
    Read,
    /// The names in a directory.
    List,
    Exec,
    /// Changed what was there.
    Write,
    /// Made what was not there.
    Create,
}

/// One access: a real path, without links.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Accessed {
    pub path: PathBuf,
    pub touch: Touch,
}

/// What the run needed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Learned {
    /// Grants, every path once.
    pub settings: Vec<Setting>,
    /// Hidden or protected paths that were touched, and the rule that keeps them: for the user to decide by hand.
    pub refused: Vec<(PathBuf, Origin)>,
    /// Touched, and nothing sensible grants it: directly in the home directory, or no way to write the path.
    pub left: Vec<PathBuf>,
}

/// So many files of one directory stand for the directory.
const MANY: usize = 4;

/// The smallest sensible grants for these accesses, on top of the rules in force (see `rules_in_force`, `index_of`).
pub fn learn(accessed: &[Accessed], rules: &RuleIndex<ExpandedRule>, places: &Places) -> Learned {
    let ground = Ground { rules, places };
    let mut learned = Learned::default();
    let (mut reads, mut writes) = (BTreeSet::new(), BTreeSet::new());
    for Accessed { path, touch } in accessed.iter().collect::<BTreeSet<_>>() {
        let writing = matches!(touch, Touch::Write | Touch::Create);
        match rules.deciding(path).map(|rule| &rule.rule) {
            Some(rule) if rule.access == Access::Deny || writing && rule.access < Access::Read => {
                if !learned.refused.iter().any(|(known, _)| known == path) {
                    learned.refused.push((path.clone(), rule.origin.clone()));
                }
            }
            Some(rule) if !writing || rule.access >= Access::Overlay => {}
            _ => match (touch, path.parent()) {
                (Touch::Create, Some(directory)) if ground.may_stand_for_all(directory) => {
                    writes.insert(directory.to_path_buf());
                }
                (Touch::List, _) if ground.may_stand_for_all(path) => {
                    reads.insert(path.clone());
                }
                (Touch::Create | Touch::List, _) => learned.left.push(path.clone()),
                (Touch::Write, _) => {
                    writes.insert(path.clone());
                }
                (Touch::Read | Touch::Exec, _) => {
                    reads.insert(path.clone());
                }
            },
        }
    }
    ground.grant_writes(&writes, &mut learned);
    reads.retain(|path| !learned_covers(&learned, path, places));
    ground.grant_toolchains(&mut reads, &mut learned);
    ground.grant_reads(&reads, &mut learned);
    learned
}

/// What is granted to write can be read.
fn learned_covers(learned: &Learned, path: &Path, places: &Places) -> bool {
    let covers = |setting: &Setting| match setting {
        Setting::File { path: at, .. } => at.expand(places).iter().any(|at| is_at_or_below(path, at)),
        _ => false,
    };
    learned.settings.iter().any(covers)
}

/// What a grant has to fit into.
struct Ground<'a> {
    rules: &'a RuleIndex<ExpandedRule>,
    places: &'a Places,
}

impl Ground<'_> {
    /// Whether a directory may be granted as a whole.
    fn may_stand_for_all(&self, directory: &Path) -> bool {
        let bytes = directory.as_os_str().as_encoded_bytes();
        let hides_in_it = |rule: &ExpandedRule| {
            rule.rule.access == Access::Deny && folds_at_or_below(rule.path.as_os_str().as_encoded_bytes(), bytes)
        };
        directory.components().count() > 2
            && !self.places.holds_a_home(directory)
            && !self.rules.rules().any(hides_in_it)
    }

    fn push(&self, access: Access, path: &Path, reason: String, learned: &mut Learned) {
        match PathExpr::for_path(path, self.places) {
            Some(expression) => learned.settings.push(Setting::File {
                access,
                path: expression,
                optional: true,
                reason: Cow::Owned(reason),
            }),
            None => learned.left.push(path.to_path_buf()),
        }
    }

    fn grant_writes(&self, writes: &BTreeSet<PathBuf>, learned: &mut Learned) {
        let (groups, left) = self.grouped(writes);
        learned.left.extend(left);
        for (path, count) in groups {
            // A cache runs again at the next build outside: what is written there stays in the session.
            let cache = self.cache_around(&path);
            let access = if cache.is_some() { Access::Overlay } else { Access::Write };
            let place = cache.unwrap_or(path);
            if !learned_covers(learned, &place, self.places) {
                self.push(access, &place, format!("learned: {}", counted(count, "written")), learned);
            }
        }
    }

    /// The cache that a path lies in: a toolchain's place, or the directory of one program below `.cache`.
    fn cache_around(&self, path: &Path) -> Option<PathBuf> {
        let toolchain = toolchains().flat_map(|(_, place)| place.expand(self.places));
        let own = path.strip_prefix(self.places.home.join(".cache")).ok().and_then(|rest| rest.components().next());
        let own = own.map(|program| self.places.home.join(".cache").join(program));
        let found =
            toolchain.filter(|place| is_at_or_below(path, place)).max_by_key(|place| place.components().count());
        found.or(own).filter(|place| self.may_stand_for_all(place))
    }

    /// The paths of one toolchain become all its places: the next run will want the others.
    fn grant_toolchains(&self, reads: &mut BTreeSet<PathBuf>, learned: &mut Learned) {
        let places: Vec<(&str, PathExpr, PathBuf)> = toolchains()
            .flat_map(|(name, expression)| {
                let paths = expression.expand(self.places);
                paths.into_iter().map(move |path| (name, expression.clone(), path))
            })
            .collect();
        let touched: BTreeSet<&str> = places
            .iter()
            .filter(|(_, _, place)| reads.iter().any(|path| is_at_or_below(path, place)))
            .map(|(name, ..)| *name)
            .collect();
        for (name, expression, place) in places.iter().filter(|(name, ..)| touched.contains(name)) {
            reads.retain(|path| !is_at_or_below(path, place));
            if self.rules.deciding(place).is_none() {
                learned.settings.push(Setting::File {
                    access: Access::Read,
                    path: expression.clone(),
                    optional: true,
                    reason: Cow::Owned(format!("learned: {name} toolchain")),
                });
            }
        }
    }

    fn grant_reads(&self, reads: &BTreeSet<PathBuf>, learned: &mut Learned) {
        let (groups, left) = self.grouped(reads);
        learned.left.extend(left);
        for (path, count) in groups {
            self.push(Access::Read, &path, format!("learned: {}", counted(count, "read")), learned);
        }
    }

    /// The paths, where many of one directory are the directory, and those that nothing may stand for.
    fn grouped(&self, paths: &BTreeSet<PathBuf>) -> (BTreeMap<PathBuf, usize>, Vec<PathBuf>) {
        let mut groups: BTreeMap<PathBuf, usize> = BTreeMap::new();
        let mut left = Vec::new();
        for path in paths {
            // A grant of a directory is a grant of all below it.
            if self.places.holds_a_home(path) || path.parent().is_none() {
                left.push(path.clone());
            } else {
                groups.insert(path.clone(), 1);
            }
        }
        while let Some(directory) = self.next_to_join(&groups) {
            let joined: Vec<PathBuf> = groups.keys().filter(|path| is_at_or_below(path, &directory)).cloned().collect();
            let count = joined.iter().filter_map(|path| groups.remove(path)).sum();
            groups.insert(directory, count);
        }
        drop_what_is_below(&mut groups);
        (groups, left)
    }

    /// The deepest directory that has many entries and may stand for them.
    fn next_to_join(&self, groups: &BTreeMap<PathBuf, usize>) -> Option<PathBuf> {
        let mut entries: BTreeMap<&Path, usize> = BTreeMap::new();
        for parent in groups.keys().filter_map(|path| path.parent()) {
            *entries.entry(parent).or_default() += 1;
        }
        let many = entries.into_iter().filter(|(directory, count)| *count >= MANY && self.may_stand_for_all(directory));
        many.map(|(directory, _)| directory.to_path_buf()).max_by_key(|directory| directory.components().count())
    }
}

fn drop_what_is_below(groups: &mut BTreeMap<PathBuf, usize>) {
    let all: Vec<PathBuf> = groups.keys().cloned().collect();
    for path in &all {
        if let Some(above) = all.iter().find(|above| *above != path && is_at_or_below(path, above)) {
            let count = groups.remove(path).unwrap_or(0);
            if let Some(sum) = groups.get_mut(above) {
                *sum += count;
            }
        }
    }
}

fn counted(count: usize, done: &str) -> String {
    if count == 1 { done.to_owned() } else { format!("{count} paths {done}") }
}
