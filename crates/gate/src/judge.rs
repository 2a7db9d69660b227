//! What the rules say about a path, name by name on the way down. Owns the index over the rules; precedence is the one of
//! decision 0004: the longest path, then the later layer, then the stricter access; protecting never uncovers what is
//! hidden, and a final deny is the last word. Used by the triggers and by `Gate`.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_plan::GateRule;
use cofferdam_policy::path::{is_at_or_below, name_matches};
use cofferdam_policy::{Access, Places, toolchains};

/// Index of the rule in force, where there is one.
pub(crate) type Ruling = Option<usize>;

/// The rules about what lies in the user's home: four of five, and not one of them matters before somebody looks there.
pub struct RulesInHome {
    pub home: PathBuf,
    pub make: Box<dyn Fn() -> Vec<GateRule>>,
}

impl std::fmt::Debug for RulesInHome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RulesInHome").field("home", &self.home).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct Judge {
    first: Book,
    late: RulesInHome,
    in_home: OnceCell<Book>,
    /// Directories on the way to something that is mounted: they show even where a rule hides them.
    on_the_way: HashSet<OsString>,
    /// Directories with a file system of the sandbox's own.
    own: HashSet<OsString>,
    places: Places,
    /// Places of toolchains, once somebody asks for them.
    groups: OnceCell<Vec<(&'static str, PathBuf)>>,
}

/// Rules that can be found by what they are about.
#[derive(Debug, Default)]
struct Book {
    rules: Vec<GateRule>,
    /// Rules about one path, by that path.
    exact: Index,
    /// Rules with a pattern, by the directory that it is about.
    patterns: Index,
    /// Directories on the way to something that may be read.
    on_the_way: HashSet<OsString>,
}

impl Book {
    fn new(mut rules: Vec<GateRule>) -> Self {
        let (exact, patterns) = (Index::with_room(rules.len()), Index::with_room(rules.len()));
        let mut book = Book { exact, patterns, ..Book::default() };
        for (index, rule) in rules.iter_mut().enumerate() {
            if !is_plain(&rule.path) {
                rule.path = rule.path.components().collect();
            }
            if !matches!(rule.access, Access::Deny | Access::Protect) {
                pass(&mut book.on_the_way, &rule.path);
            }
            let (directory, name) = split(&rule.path);
            if rule.is_glob {
                book.patterns.add(hash(&[directory]), index);
            } else {
                book.exact.add(hash(&[directory, b"/", name]), index);
            }
        }
        book.rules = rules;
        book
    }

    /// The rules about a name in a directory.
    fn about(&self, directory: &[u8], name: &OsStr) -> impl Iterator<Item = usize> {
        let bytes = name.as_bytes();
        let exact = self.exact.find(hash(&[directory, b"/", bytes]));
        let exact = exact.filter(move |index| split(&self.rules[*index].path) == (directory, bytes));
        let patterns = self.patterns.find(hash(&[directory]));
        exact.chain(patterns.filter(move |index| {
            let (place, pattern) = split(&self.rules[*index].path);
            place == directory && name_matches(&String::from_utf8_lossy(pattern), &name.to_string_lossy())
        }))
    }
}

/// The directories above `path` show from now on.
fn pass(on_the_way: &mut HashSet<OsString>, path: &Path) {
    for above in path.ancestors().skip(1) {
        if !on_the_way.insert(above.as_os_str().to_owned()) {
            break;
        }
    }
}

/// Which rules may be about a path: those with the same hash of it, to be compared. The child waits for its first answer
/// until this is made of hundreds of rules, so no name is copied.
#[derive(Debug, Default)]
struct Index {
    newest: HashMap<u64, usize>,
    /// The one before, of the same hash, by rule.
    before: Vec<Option<usize>>,
}

impl Index {
    fn with_room(rules: usize) -> Self {
        Index { newest: HashMap::with_capacity(rules), before: vec![None; rules] }
    }

    fn add(&mut self, hash: u64, rule: usize) {
        self.before[rule] = self.newest.insert(hash, rule);
    }

    fn find(&self, hash: u64) -> impl Iterator<Item = usize> {
        std::iter::successors(self.newest.get(&hash).copied(), |rule| self.before[*rule])
    }
}

/// FNV-1a.
fn hash(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().copied().flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A path of plain names as bytes: the directory, without its last slash, and the name in it.
fn split(path: &Path) -> (&[u8], &[u8]) {
    let bytes = path.as_os_str().as_bytes();
    let slash = bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    (&bytes[..slash], bytes.get(slash + 1..).unwrap_or_default())
}

/// A directory as [`split`] says it.
fn without_slash(directory: &Path) -> &[u8] {
    let bytes = directory.as_os_str().as_bytes();
    bytes.strip_suffix(b"/").unwrap_or(bytes)
}

/// Whether bytes can be compared: a variable may hold `/a//b/`.
fn is_plain(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    !(has(b"//") || has(b"/./") || bytes.ends_with(b"/") || bytes.ends_with(b"/."))
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
    pub(crate) fn new(rules: Vec<GateRule>, late: RulesInHome, places: Places, own: HashSet<PathBuf>) -> Self {
        let mut on_the_way = HashSet::new();
        for own in &own {
            pass(&mut on_the_way, own);
        }
        let own = own.into_iter().map(PathBuf::into_os_string).collect();
        let (in_home, groups) = (OnceCell::new(), OnceCell::new());
        Judge { first: Book::new(rules), late, in_home, on_the_way, own, places, groups }
    }

    /// Whether the first look into the home would have to wait for rules.
    pub(crate) fn has_to_learn(&self) -> bool {
        self.in_home.get().is_none()
    }

    pub(crate) fn learn(&self) {
        self.in_home();
    }

    fn in_home(&self) -> &Book {
        self.in_home.get_or_init(|| Book::new((self.late.make)()))
    }

    /// The rules about the home, if any of them can lie above, at or below `path`.
    fn late_rules(&self, path: &Path) -> Option<&Book> {
        let home = &self.late.home;
        (is_at_or_below(path, home) || is_at_or_below(home, path)).then(|| self.in_home())
    }

    /// The directories above `path` show from now on.
    pub(crate) fn pass(&mut self, path: &Path) {
        pass(&mut self.on_the_way, path);
    }

    pub(crate) fn rule(&self, ruling: Ruling) -> Option<&GateRule> {
        let index = ruling?;
        match index.checked_sub(self.first.rules.len()) {
            None => self.first.rules.get(index),
            Some(late) => self.in_home.get()?.rules.get(late),
        }
    }

    pub(crate) fn is_own(&self, path: &Path) -> bool {
        self.own.contains(path.as_os_str())
    }

    pub(crate) fn is_on_the_way(&self, path: &Path) -> bool {
        let path_name = path.as_os_str();
        self.on_the_way.contains(path_name)
            || self.first.on_the_way.contains(path_name)
            || self.late_rules(path).is_some_and(|late| late.on_the_way.contains(path_name))
    }

    /// The ruling about a name in a directory that has the ruling `above`.
    pub(crate) fn child(&self, directory: &Path, above: Ruling, name: &OsStr) -> Ruling {
        if self.rule(above).is_some_and(|rule| rule.is_final && rule.access == Access::Deny) {
            return above;
        }
        let first = self.first.rules.len();
        let place = without_slash(directory);
        let mut found: Vec<usize> = self.first.about(place, name).collect();
        // A name beside the home is not worth a path of its own here.
        if is_at_or_below(directory, self.late.home.parent().unwrap_or(Path::new("/"))) {
            found.extend(self.in_home().about(place, name).map(|index| first + index));
        }
        let strength = |index: &usize| {
            let rule = self.rule(Some(*index));
            rule.map(|rule| (rule.is_final, !rule.is_glob, rule.origin.layer, std::cmp::Reverse(rule.access)))
        };
        found.sort_by_key(|index| (strength(index), *index));
        let hides = |ruling: Ruling| self.rule(ruling).is_some_and(|rule| rule.access == Access::Deny);
        found.into_iter().fold(above, |now, index| {
            let protects = self.rule(Some(index)).is_some_and(|rule| rule.access == Access::Protect);
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
        let late = self.late_rules(path).map(|late| &late.rules);
        let rules = self.first.rules.iter().chain(late.into_iter().flatten());
        rules.filter(|rule| matches!(rule.access, Access::Deny | Access::Protect)).filter(below).collect()
    }

    fn groups(&self) -> &[(&'static str, PathBuf)] {
        let places = &self.places;
        self.groups.get_or_init(|| {
            toolchains().flat_map(|(name, path)| path.expand(places).into_iter().map(move |p| (name, p))).collect()
        })
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
    use cofferdam_policy::{Layer, Origin};

    fn rule(path: &str, access: Access, layer: Layer, is_final: bool) -> GateRule {
        let origin = Origin { layer, source: "test".into(), line: None };
        let is_glob = path.contains('*');
        GateRule { path: path.into(), is_glob, access, is_final, origin, reason: "".into() }
    }

    fn nothing_at(home: &str) -> RulesInHome {
        RulesInHome { home: home.into(), make: Box::new(Vec::new) }
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
        let late = RulesInHome { home: "/home/u".into(), make: Box::new(make) };
        let first = vec![
            rule("/boot", Access::Deny, Layer::BuiltIn, false),
            rule("/home/u/.ssh", Access::Read, Layer::Flag, false),
        ];
        let judge = Judge::new(first, late, Places::default(), HashSet::new());
        let standing = |path: &str| judge.standing(judge.ruling(Path::new(path)));
        assert_eq!(standing("/boot/x"), Standing::Hidden);
        assert!(!judge.is_on_the_way(Path::new("/boot")));
        assert_eq!(standing("/usr/bin"), Standing::Unknown);
        assert!(judge.in_home.get().is_none(), "nobody has looked there");
        assert_eq!(standing("/home/u"), Standing::Protected);
        assert!(judge.in_home.get().is_some());
        assert_eq!(standing("/home/u/.ssh/id"), Standing::Readable, "the later layer");
        assert!(judge.is_on_the_way(Path::new("/home/u/.ssh")));
        assert!(judge.is_on_the_way(Path::new("/home")));
        assert_eq!(judge.covers_below(Path::new("/home")).len(), 2);
        assert!(judge.covers_below(Path::new("/usr")).is_empty());
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
        Judge::new(rules, nothing_at("/h"), Places::default(), HashSet::from([PathBuf::from("/proc")]))
    }

    #[test]
    fn a_rule_is_found_however_its_path_is_spelled() {
        let rules = [("//h/./s/", Layer::User), ("/h/s/.", Layer::User), ("/top", Layer::User), ("/t*", Layer::User)];
        let rules = rules.map(|(path, layer)| rule(path, Access::Deny, layer, false));
        let judge = Judge::new(rules.to_vec(), nothing_at("/h"), Places::default(), HashSet::new());
        for (path, standing) in [
            ("/h/s/x", Standing::Hidden),
            ("/h", Standing::Unknown),
            ("/top", Standing::Hidden),
            ("/tmp2", Standing::Hidden),
            ("/h/top", Standing::Unknown),
        ] {
            assert_eq!(judge.standing(judge.ruling(Path::new(path))), standing, "{path}");
        }
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
