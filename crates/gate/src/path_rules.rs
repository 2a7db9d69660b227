//! What the rules say about a path, name by name on the way down. Owns what a rule means for the workload, and which
//! directories show because of what lies below; precedence is `policy`'s index. Used by the triggers and by `Gate`.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use cofferdam_plan::GateRule;
use cofferdam_policy::{Access, Places, RuleIndex, Ruling, folds_at_or_below, toolchains};

/// The rules about what lies in the user's homes: four of five, and not one of them matters before the workload looks there.
pub struct RulesInHome {
    pub homes: Vec<PathBuf>,
    pub make: Box<dyn Fn() -> Vec<GateRule>>,
}

impl std::fmt::Debug for RulesInHome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RulesInHome").field("homes", &self.homes).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct PathRules {
    rules: RuleIndex<GateRule>,
    root: Ruling,
    homes: Vec<PathBuf>,
    /// How many rules there are without those about the home.
    first: usize,
    /// Directories on the way to something that is mounted, or that a rule gives: they show even where a rule hides them.
    on_the_way: HashSet<OsString>,
    /// The same for rules about the home.
    in_home: OnceCell<HashSet<OsString>>,
    /// Directories with a file system of the sandbox's own.
    own: HashSet<OsString>,
    places: Places,
    /// Places of toolchains, once a caller asks for them.
    groups: OnceCell<Vec<(&'static str, PathBuf)>>,
}

/// The directories above `path` show from now on.
fn pass(on_the_way: &mut HashSet<OsString>, path: &Path) {
    for above in path.ancestors().skip(1) {
        if !on_the_way.insert(above.as_os_str().to_owned()) {
            break;
        }
    }
}

/// The directories above what these rules give.
fn pass_grants<'a>(on_the_way: &mut HashSet<OsString>, rules: impl Iterator<Item = &'a GateRule>) {
    for rule in rules.filter(|rule| rule.access > Access::Protect) {
        pass(on_the_way, &rule.path);
    }
}

/// What a rule means for the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No rule gives it.
    Unknown,
    /// As unknown, and must never be written.
    Protected,
    Hidden,
    /// It reads without the values of secret names.
    Masked,
    Readable,
    Writable,
}

impl PathRules {
    pub(crate) fn new(rules: Vec<GateRule>, late: RulesInHome, places: Places, own: HashSet<PathBuf>) -> Self {
        let RulesInHome { homes, make } = late;
        let rules = RuleIndex::with_late(rules, homes.clone(), make);
        let mut on_the_way = HashSet::new();
        pass_grants(&mut on_the_way, rules.rules());
        for own in &own {
            pass(&mut on_the_way, own);
        }
        let (first, in_home, groups) = (rules.rules().count(), OnceCell::new(), OnceCell::new());
        let own = own.into_iter().map(PathBuf::into_os_string).collect();
        PathRules { root: rules.root(), rules, homes, first, on_the_way, in_home, own, places, groups }
    }

    /// Whether the first look into the home would have to wait for rules.
    pub(crate) fn has_to_learn(&self) -> bool {
        self.rules.has_late()
    }

    pub(crate) fn learn(&self) {
        self.in_home();
    }

    fn in_home(&self) -> &HashSet<OsString> {
        self.in_home.get_or_init(|| {
            self.rules.make_late();
            let mut on_the_way = HashSet::new();
            pass_grants(&mut on_the_way, self.rules.rules().skip(self.first));
            on_the_way
        })
    }

    /// The directories above `path` show from now on.
    pub(crate) fn pass(&mut self, path: &Path) {
        pass(&mut self.on_the_way, path);
    }

    pub(crate) fn rule(&self, ruling: Ruling) -> Option<&GateRule> {
        self.rules.rule(ruling)
    }

    pub(crate) fn is_own(&self, path: &Path) -> bool {
        self.own.contains(path.as_os_str())
    }

    pub(crate) fn is_on_the_way(&self, path: &Path) -> bool {
        let bytes = path.as_os_str().as_encoded_bytes();
        let may_lead_there = |home: &PathBuf| {
            let home = home.as_os_str().as_encoded_bytes();
            folds_at_or_below(bytes, home) || folds_at_or_below(home, bytes)
        };
        self.on_the_way.contains(path.as_os_str())
            || self.homes.iter().any(may_lead_there) && self.in_home().contains(path.as_os_str())
    }

    /// The ruling about a name in a directory that has the ruling `above`.
    pub(crate) fn child(&self, directory: &Path, above: Ruling, name: &OsStr) -> Ruling {
        self.rules.child(directory, above.or(self.root), name)
    }

    /// The ruling about a whole path without links.
    pub(crate) fn ruling(&self, path: &Path) -> Ruling {
        self.rules.ruling(path)
    }

    pub(crate) fn standing(&self, ruling: Ruling) -> Standing {
        match self.rule(ruling).map(|rule| rule.access) {
            None => Standing::Unknown,
            Some(Access::Protect) => Standing::Protected,
            Some(Access::Deny) => Standing::Hidden,
            Some(Access::Mask) => Standing::Masked,
            Some(Access::Read | Access::Overlay) => Standing::Readable,
            Some(Access::Write) => Standing::Writable,
        }
    }

    pub(crate) fn gives(&self, path: &Path) -> bool {
        matches!(self.standing(self.ruling(path)), Standing::Masked | Standing::Readable | Standing::Writable)
    }

    /// Rules that cover something below `path`, and where: what must stay hidden or unwritable when all of it is given.
    pub(crate) fn covers_below(&self, path: &Path) -> Vec<(&GateRule, PathBuf)> {
        self.rules.refusing_below(path)
    }

    fn groups(&self) -> &[(&'static str, PathBuf)] {
        let places = &self.places;
        self.groups.get_or_init(|| {
            toolchains().flat_map(|(name, path)| path.expand(places).into_iter().map(move |p| (name, p))).collect()
        })
    }

    pub(crate) fn holds_a_home(&self, path: &Path) -> bool {
        self.places.holds_a_home(path)
    }

    pub(crate) fn toolchain_of(&self, path: &Path) -> Option<&str> {
        self.groups().iter().find(|(_, place)| path.starts_with(place)).map(|(name, _)| *name)
    }

    pub(crate) fn places_of(&self, toolchain: &str) -> Vec<PathBuf> {
        self.groups().iter().filter(|(name, _)| *name == toolchain).map(|(_, place)| place.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_plan::TransactionRole;
    use cofferdam_policy::{Layer, Origin};

    fn rule(path: &str, access: Access, layer: Layer, is_final: bool) -> GateRule {
        let origin = Origin { layer, source: "test".into(), line: None };
        let is_glob = path.contains('*');
        let (except, reason) = ("".into(), "".into());
        GateRule {
            path: path.into(),
            is_glob,
            tail: 0,
            except,
            access,
            is_final,
            role: TransactionRole::None,
            origin,
            reason,
        }
    }

    fn nothing_at(home: &str) -> RulesInHome {
        RulesInHome { homes: vec![home.into()], make: Box::new(Vec::new) }
    }

    #[test]
    fn rules_about_the_home_are_made_at_the_first_look_there() {
        let make = || {
            vec![
                rule("/home/u/.ssh", Access::Deny, Layer::BuiltIn, false),
                rule("/home/u/.ssh/known", Access::Read, Layer::User, false),
                rule("/home/u", Access::Protect, Layer::User, false),
            ]
        };
        let late = RulesInHome { homes: vec!["/home/u".into()], make: Box::new(make) };
        let first = vec![
            rule("/boot", Access::Deny, Layer::BuiltIn, false),
            rule("/home/u/.ssh", Access::Read, Layer::Flag, false),
        ];
        let rules = PathRules::new(first, late, Places::default(), HashSet::new());
        let standing = |path: &str| rules.standing(rules.ruling(Path::new(path)));
        assert_eq!(standing("/boot/x"), Standing::Hidden);
        assert!(!rules.is_on_the_way(Path::new("/boot")));
        assert_eq!(standing("/usr/bin"), Standing::Unknown);
        assert!(rules.has_to_learn(), "the workload has not looked there");
        assert_eq!(standing("/home/u"), Standing::Protected);
        assert!(!rules.has_to_learn());
        assert_eq!(standing("/home/u/.ssh/id"), Standing::Readable, "the later layer");
        assert!(rules.is_on_the_way(Path::new("/home/u/.ssh")));
        assert!(rules.is_on_the_way(Path::new("/home")));
        assert_eq!(rules.covers_below(Path::new("/home")).len(), 2);
        assert!(rules.covers_below(Path::new("/usr")).is_empty());
    }

    fn rules() -> PathRules {
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
        PathRules::new(rules, nothing_at("/h"), Places::default(), HashSet::from([PathBuf::from("/proc")]))
    }

    #[test]
    fn a_rule_is_found_however_its_path_is_spelled() {
        let rules = [("//h/./s/", Layer::User), ("/h/s/.", Layer::User), ("/top", Layer::User), ("/t*", Layer::User)];
        let rules = rules.map(|(path, layer)| rule(path, Access::Deny, layer, false));
        let rules = PathRules::new(rules.to_vec(), nothing_at("/h"), Places::default(), HashSet::new());
        for (path, standing) in [
            ("/h/s/x", Standing::Hidden),
            ("/h", Standing::Unknown),
            ("/top", Standing::Hidden),
            ("/tmp2", Standing::Hidden),
            ("/h/top", Standing::Unknown),
        ] {
            assert_eq!(rules.standing(rules.ruling(Path::new(path))), standing, "{path}");
        }
    }

    #[test]
    fn a_pattern_is_not_about_names_that_it_leaves_out() {
        let mut hides = rule("/p/.env*", Access::Deny, Layer::BuiltIn, false);
        hides.except = "*.example .env.test".into();
        let rules = vec![hides, rule("/p", Access::Write, Layer::BuiltIn, false)];
        let rules = PathRules::new(rules, nothing_at("/h"), Places::default(), HashSet::new());
        for (path, standing) in [
            ("/p/.env", Standing::Hidden),
            ("/p/.env.example", Standing::Writable),
            ("/p/.ENV.EXAMPLE", Standing::Hidden),
            ("/p/.env.test", Standing::Writable),
            ("/p/.env.test.local", Standing::Hidden),
        ] {
            assert_eq!(rules.standing(rules.ruling(Path::new(path))), standing, "{path}");
        }
    }

    #[test]
    fn the_longest_path_decides_then_the_later_layer() {
        let rules = rules();
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
            assert_eq!(rules.standing(rules.ruling(Path::new(path))), standing, "{path}");
        }
        assert!(rules.is_on_the_way(Path::new("/h/.ssh")));
        assert!(!rules.is_on_the_way(Path::new("/h/same")));
        assert!(rules.is_own(Path::new("/proc")));
    }
}
