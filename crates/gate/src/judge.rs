//! What the rules say about a path, name by name on the way down. Owns the index over the rules; precedence is the one of
//! decision 0004: the longest path, then the later layer, then the stricter access; protecting never uncovers what is
//! hidden, and a final deny is the last word. Used by the triggers and by `Gate`.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use cofferdam_plan::GateRule;
use cofferdam_policy::Access;
use cofferdam_policy::path::name_matches;

/// Index of the rule in force, where there is one.
pub(crate) type Ruling = Option<usize>;

#[derive(Debug, Default)]
pub(crate) struct Judge {
    rules: Vec<GateRule>,
    /// Rules by the directory that their last name lies in.
    by_parent: HashMap<OsString, Vec<usize>>,
    /// Directories on the way to something that is mounted or may be read: they show even where a rule hides them.
    on_the_way: HashSet<OsString>,
    /// Directories with a file system of the sandbox's own.
    own: HashSet<OsString>,
    groups: Vec<(String, PathBuf)>,
}

/// What a rule means for somebody who wants in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No rule gives it.
    Unknown,
    /// As unknown, and must never be written.
    Protected,
    Hidden,
    Readable,
    Writable,
}

impl Judge {
    pub(crate) fn new(rules: Vec<GateRule>, groups: Vec<(String, PathBuf)>, own: HashSet<PathBuf>) -> Self {
        let own = own.into_iter().map(PathBuf::into_os_string).collect();
        let mut judge = Judge { own, groups, ..Judge::default() };
        for rule in &rules {
            if !matches!(rule.access, Access::Deny | Access::Protect) {
                judge.pass(&rule.path);
            }
        }
        for own in judge.own.clone() {
            judge.pass(Path::new(&own));
        }
        for (index, rule) in rules.iter().enumerate() {
            if let Some(parent) = rule.path.parent() {
                judge.by_parent.entry(parent.as_os_str().to_owned()).or_default().push(index);
            }
        }
        judge.rules = rules;
        judge
    }

    /// The directories above `path` show from now on.
    pub(crate) fn pass(&mut self, path: &Path) {
        for above in path.ancestors().skip(1) {
            if !self.on_the_way.insert(above.as_os_str().to_owned()) {
                break;
            }
        }
    }

    pub(crate) fn rule(&self, ruling: Ruling) -> Option<&GateRule> {
        self.rules.get(ruling?)
    }

    pub(crate) fn is_own(&self, path: &Path) -> bool {
        self.own.contains(path.as_os_str())
    }

    pub(crate) fn is_on_the_way(&self, path: &Path) -> bool {
        self.on_the_way.contains(path.as_os_str())
    }

    /// The ruling about a name in a directory that has the ruling `above`.
    pub(crate) fn child(&self, directory: &Path, above: Ruling, name: &OsStr) -> Ruling {
        let Some(here) = self.by_parent.get(directory.as_os_str()) else { return above };
        if self.rule(above).is_some_and(|rule| rule.is_final && rule.access == Access::Deny) {
            return above;
        }
        let text = name.to_string_lossy();
        let is_about = |index: &&usize| {
            let rule = &self.rules[**index];
            let last = rule.path.file_name().unwrap_or_default();
            if rule.is_glob { name_matches(&last.to_string_lossy(), &text) } else { last == name }
        };
        let strength = |index: &usize| {
            let rule = &self.rules[*index];
            (rule.is_final, !rule.is_glob, rule.origin.layer, std::cmp::Reverse(rule.access))
        };
        let mut found: Vec<usize> = here.iter().filter(is_about).copied().collect();
        found.sort_by_key(strength);
        let hides = |ruling: Ruling| self.rule(ruling).is_some_and(|rule| rule.access == Access::Deny);
        found.into_iter().fold(above, |now, index| {
            let protects = self.rules[index].access == Access::Protect;
            if protects && hides(now) { now } else { Some(index) }
        })
    }

    /// The ruling about a whole path without links.
    pub(crate) fn ruling(&self, path: &Path) -> Ruling {
        let mut directory = PathBuf::from("/");
        let mut ruling = None;
        for name in path.components().filter_map(|part| match part {
            std::path::Component::Normal(name) => Some(name),
            _ => None,
        }) {
            ruling = self.child(&directory, ruling, name);
            directory.push(name);
        }
        ruling
    }

    pub(crate) fn standing(&self, ruling: Ruling) -> Standing {
        match self.rule(ruling).map(|rule| rule.access) {
            None => Standing::Unknown,
            Some(Access::Protect) => Standing::Protected,
            Some(Access::Deny) => Standing::Hidden,
            Some(Access::Read | Access::Overlay) => Standing::Readable,
            Some(Access::Write) => Standing::Writable,
        }
    }

    /// Rules that cover something below `path`: what must stay hidden or unwritable when all of it is given.
    pub(crate) fn covers_below(&self, path: &Path) -> Vec<&GateRule> {
        let below = |rule: &&GateRule| rule.path != path && rule.path.starts_with(path);
        self.rules.iter().filter(|rule| matches!(rule.access, Access::Deny | Access::Protect)).filter(below).collect()
    }

    pub(crate) fn toolchain_of(&self, path: &Path) -> Option<&str> {
        self.groups.iter().find(|(_, place)| path.starts_with(place)).map(|(name, _)| name.as_str())
    }

    pub(crate) fn places_of(&self, toolchain: &str) -> Vec<PathBuf> {
        self.groups.iter().filter(|(name, _)| name == toolchain).map(|(_, place)| place.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_policy::{Layer, Origin};

    fn rule(path: &str, access: Access, layer: Layer, is_final: bool) -> GateRule {
        let origin = Origin { layer, source: "test".into(), line: None };
        let is_glob = path.contains('*');
        GateRule { path: path.into(), is_glob, access, is_final, origin, reason: String::new() }
    }

    fn judge() -> Judge {
        let rules = vec![
            rule("/h/.ssh", Access::Deny, Layer::BuiltIn, false),
            rule("/h/.ssh/known", Access::Read, Layer::User, false),
            rule("/h/.ssh/config", Access::Protect, Layer::User, false),
            rule("/h/p/.env*", Access::Deny, Layer::BuiltIn, false),
            rule("/h/p/.env.sample", Access::Read, Layer::User, false),
            rule("/h/p", Access::Write, Layer::BuiltIn, false),
            rule("/h/org", Access::Deny, Layer::Org, true),
            rule("/h/org/x", Access::Read, Layer::Flag, false),
            rule("/h/same", Access::Read, Layer::User, false),
            rule("/h/same", Access::Deny, Layer::BuiltIn, false),
        ];
        Judge::new(rules, Vec::new(), HashSet::from([PathBuf::from("/proc")]))
    }

    #[test]
    fn the_longest_path_decides_then_the_later_layer() {
        let judge = judge();
        for (path, standing) in [
            ("/h/other", Standing::Unknown),
            ("/h/.ssh", Standing::Hidden),
            ("/h/.ssh/id", Standing::Hidden),
            ("/h/.ssh/known", Standing::Readable),
            ("/h/.ssh/config", Standing::Hidden),
            ("/h/p/src/x", Standing::Writable),
            ("/h/p/.env.local", Standing::Hidden),
            ("/h/p/.env.sample", Standing::Readable),
            ("/h/org/x", Standing::Hidden),
            ("/h/same/y", Standing::Readable),
        ] {
            assert_eq!(judge.standing(judge.ruling(Path::new(path))), standing, "{path}");
        }
        assert!(judge.is_on_the_way(Path::new("/h/.ssh")));
        assert!(!judge.is_on_the_way(Path::new("/h/same")));
        assert!(judge.is_own(Path::new("/proc")));
    }
}
