//! Rules at their places, to be asked about paths (decisions 0004 and 0031). Owns precedence and what it means that a rule is
//! about a name; refuses nothing and knows no file system. Used by everything that enforces a rule or says what it does.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::builtin::dependency_directories;
use crate::language::case_fold::{EMPTY_HASH, fold_hash, folded_matches, folds_alike, folds_at_or_below};
use crate::language::path::{is_left_out, wildcard};
use crate::types::files::Access;
use crate::types::origin::Layer;

/// A rule at one absolute path. The last name is a pattern where the rule is a glob.
pub trait PlacedRule {
    fn place(&self) -> &Path;
    fn set_place(&mut self, place: PathBuf);
    fn is_glob(&self) -> bool;
    /// How many of its last names stand in any directory at or below what comes before them, but for directories that tools
    /// fill (docs/decisions/0039); none where it is about its place alone.
    fn tail(&self) -> usize;
    /// Patterns of names that a glob leaves out, with spaces between them.
    fn except(&self) -> &str;
    fn access(&self) -> Access;
    /// No later layer overrides it; where it is a deny, no longer path either.
    fn is_final(&self) -> bool;
    fn layer(&self) -> Layer;

    /// Whether it is the overlay of a transaction that lifts shipped protections in it: what is written there is looked at before it
    /// reaches the host.
    fn lifts(&self) -> bool;

    /// Whether it is a protection that such an overlay lifts: a shipped one, which is about what the host obeys. What a layer
    /// protects is its own word.
    fn is_liftable(&self) -> bool {
        self.access() == Access::Protect && self.layer() == Layer::BuiltIn
    }
}

/// The number of the rule in force at a path, where there is one.
pub type Ruling = Option<usize>;

/// Rules that can be found by what they are about.
pub struct RuleIndex<R> {
    first: Part<R>,
    late: Option<Late<R>>,
}

/// Rules about what lies in a few directories, made when a path there is first asked about.
struct Late<R> {
    directories: Vec<PathBuf>,
    make: Box<dyn Fn() -> Vec<R>>,
    made: OnceCell<Part<R>>,
}

#[derive(Debug)]
struct Part<R> {
    rules: Vec<R>,
    /// Rules about one path, by that path.
    exact: Chains,
    /// Rules with a pattern, by the directory that it is about.
    patterns: Chains,
    /// Rules about any directory of a tree: few, and compared one by one.
    deep: Vec<usize>,
}

impl<R: PlacedRule> RuleIndex<R> {
    pub fn new(rules: Vec<R>) -> Self {
        RuleIndex { first: Part::new(rules), late: None }
    }

    /// With more rules, all of them about one of `directories` or what lies below it.
    pub fn with_late(rules: Vec<R>, directories: Vec<PathBuf>, make: Box<dyn Fn() -> Vec<R>>) -> Self {
        let late = Late { directories, make, made: OnceCell::new() };
        RuleIndex { first: Part::new(rules), late: Some(late) }
    }

    /// Whether a first look into the directory of the late rules would have to wait for them.
    pub fn has_late(&self) -> bool {
        self.late.as_ref().is_some_and(|late| late.made.get().is_none())
    }

    pub fn make_late(&self) {
        if let Some(late) = &self.late {
            late.part();
        }
    }

    /// All that are made by now.
    pub fn rules(&self) -> impl Iterator<Item = &R> {
        let late = self.late.as_ref().and_then(|late| late.made.get());
        self.first.rules.iter().chain(late.into_iter().flat_map(|part| &part.rules))
    }

    pub fn rule(&self, ruling: Ruling) -> Option<&R> {
        let number = ruling?;
        match number.checked_sub(self.first.rules.len()) {
            None => self.first.rules.get(number),
            Some(late) => self.late.as_ref()?.made.get()?.rules.get(late),
        }
    }

    /// The rule that decides about a path without links.
    pub fn deciding(&self, path: &Path) -> Option<&R> {
        self.rule(self.ruling(path))
    }

    /// The rule that decides whether a path without links can be read: to protect says nothing about that.
    pub fn deciding_reads(&self, path: &Path) -> Option<&R> {
        let path = plain(path);
        self.rule(self.ruling_of(path.as_os_str().as_encoded_bytes(), |rule| rule.access() != Access::Protect))
    }

    /// The ruling about the root, which everything else begins with.
    pub fn root(&self) -> Ruling {
        self.child_of(b"", None, b"", every)
    }

    /// The ruling about a whole path without links.
    pub fn ruling(&self, path: &Path) -> Ruling {
        if !is_plain(path) {
            return self.ruling_of(plain(path).as_os_str().as_encoded_bytes(), every);
        }
        self.ruling_of(path.as_os_str().as_encoded_bytes(), every)
    }

    /// As if there were only the rules that count.
    fn ruling_of(&self, path: &[u8], counts: impl Fn(&R) -> bool + Copy) -> Ruling {
        let mut ruling = self.child_of(b"", None, b"", counts);
        let mut slash = 0;
        while slash + 1 < path.len() {
            let begin = slash + 1;
            let end = path[begin..].iter().position(|byte| *byte == b'/').map_or(path.len(), |at| begin + at);
            ruling = self.child_of(&path[..slash], ruling, &path[begin..end], counts);
            slash = end;
        }
        ruling
    }

    /// The ruling about a name in a directory that has the ruling `above`.
    pub fn child(&self, directory: &Path, above: Ruling, name: &OsStr) -> Ruling {
        let bytes = directory.as_os_str().as_encoded_bytes();
        self.child_of(bytes.strip_suffix(b"/").unwrap_or(bytes), above, name.as_encoded_bytes(), every)
    }

    fn child_of(&self, directory: &[u8], above: Ruling, name: &[u8], counts: impl Fn(&R) -> bool) -> Ruling {
        let above = above.and_then(|number| Some((number, self.rule(Some(number))?)));
        if above.is_some_and(|(_, rule)| rule.is_final() && rule.access() == Access::Deny) {
            return above.map(|(number, _)| number);
        }
        let place = Place::of(directory, name);
        let mut contest = Contest::default();
        for number in self.first.about(&place).filter(|number| counts(&self.first.rules[*number])) {
            contest.enter(number, &self.first.rules[number]);
        }
        if let Some(late) = self.late.as_ref().filter(|late| late.reaches(&place)) {
            let part = late.part();
            for number in part.about(&place).filter(|number| counts(&part.rules[*number])) {
                contest.enter(self.first.rules.len() + number, &part.rules[number]);
            }
        }
        contest.won_over(above)
    }

    /// The rules that refuse something below `tree`, each with its place as it is spelled from there: `tree` itself may be
    /// spelled otherwise than in the rule.
    pub fn refusing_below(&self, tree: &Path) -> Vec<(&R, PathBuf)> {
        let bytes = tree.as_os_str().as_encoded_bytes();
        let leads_there = |directory: &PathBuf| {
            let directory = directory.as_os_str().as_encoded_bytes();
            folds_at_or_below(bytes, directory) || folds_at_or_below(directory, bytes)
        };
        let reached = |late: &&Late<R>| late.directories.iter().any(leads_there);
        let late = self.late.as_ref().filter(reached).map(|late| &late.part().rules);
        let rules = self.first.rules.iter().chain(late.into_iter().flatten());
        let refusing = rules.filter(|rule| refuses(rule.access()));
        refusing.filter_map(|rule| Some((rule, place_below(tree, rule)?))).collect()
    }
}

fn every<R>(_: &R) -> bool {
    true
}

impl<R> Late<R>
where
    R: PlacedRule,
{
    fn part(&self) -> &Part<R> {
        self.made.get_or_init(|| Part::new((self.make)()))
    }

    /// Whether a rule may be about this very place.
    fn reaches(&self, place: &Place<'_>) -> bool {
        self.directories.iter().any(|own| {
            let (parent, last) = split(own);
            let is_itself = || folds_alike(last, place.name) && folds_alike(parent, place.directory);
            folds_at_or_below(place.directory, own.as_os_str().as_encoded_bytes()) || is_itself()
        })
    }
}

impl<R: std::fmt::Debug> std::fmt::Debug for RuleIndex<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let late = self.late.as_ref().map(|late| &late.directories);
        f.debug_struct("RuleIndex").field("first", &self.first).field("late", &late).finish_non_exhaustive()
    }
}

impl<R: PlacedRule> Part<R> {
    fn new(mut rules: Vec<R>) -> Self {
        let (mut exact, mut patterns) = (Chains::with_room(rules.len()), Chains::with_room(rules.len()));
        let mut deep = Vec::new();
        for (number, rule) in rules.iter_mut().enumerate() {
            if !is_plain(rule.place()) {
                rule.set_place(plain(rule.place()));
            }
            let (directory, name) = split(rule.place());
            let place = Place::of(directory, name);
            if rule.tail() > 0 {
                deep.push(number);
            } else if rule.is_glob() {
                patterns.add(place.directory_hash, number);
            } else {
                exact.add(place.hash, number);
            }
        }
        Part { rules, exact, patterns, deep }
    }

    /// The rules about a name in a directory.
    fn about<'a>(&'a self, place: &'a Place<'a>) -> impl Iterator<Item = usize> + 'a {
        let found = self.exact.find(place.hash).chain(self.patterns.find(place.directory_hash));
        let found = found.chain(self.deep.iter().copied());
        found.filter(|number| is_about(&self.rules[*number], place.directory, place.name))
    }
}

/// Whether a rule is about this very path, and not only about something above it.
pub fn stands_at(rule: &impl PlacedRule, path: &Path) -> bool {
    let (directory, name) = split(path);
    is_about(rule, directory, name)
}

fn is_about(rule: &impl PlacedRule, directory: &[u8], name: &[u8]) -> bool {
    let (own, last) = split(rule.place());
    if !Written::of(rule, last).means(name) {
        return false;
    }
    let alike = |a: &[u8], b: &[u8]| if refuses(rule.access()) { folds_alike(a, b) } else { a == b };
    if rule.tail() == 0 {
        return alike(own, directory);
    }
    let names = |path: &'_ [u8]| path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).count();
    let (own_names, here) = (names(own), names(directory));
    let root = (own_names + 1).saturating_sub(rule.tail());
    let tail = own_names - root;
    let Some(between) = here.checked_sub(own_names) else { return false };
    let mut own = own.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let mut here = directory.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    own.by_ref().take(root).zip(here.by_ref()).all(|(own, here)| alike(own, here))
        && here.by_ref().take(between).all(|name| !is_filled_by_tools(name))
        && own.by_ref().take(tail).zip(here).all(|(own, here)| alike(own, here))
}

/// Whether rules about any directory leave this one out. To leave out is to give: that is about the very bytes.
pub fn is_filled_by_tools(name: &[u8]) -> bool {
    dependency_directories().any(|known| known.as_bytes() == name)
}

/// A name in a directory, and the hashes by which rules about them are found.
struct Place<'a> {
    directory: &'a [u8],
    name: &'a [u8],
    directory_hash: u64,
    hash: u64,
}

impl<'a> Place<'a> {
    fn of(directory: &'a [u8], name: &'a [u8]) -> Self {
        let directory_hash = fold_hash(EMPTY_HASH, directory);
        let hash = fold_hash(fold_hash(directory_hash, b"/"), name);
        Place { directory, name, directory_hash, hash }
    }
}

/// Whether rules with this access refuse. They are about every spelling of a name; what gives is about its very bytes.
pub fn refuses(access: Access) -> bool {
    access <= Access::Protect
}

/// A name in the path of a rule.
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    pub access: Access,
    pub name: &'a [u8],
    /// Whether it is a pattern: only the last name of a glob is one.
    pub is_glob: bool,
    /// Patterns of names that it leaves out.
    pub except: &'a str,
}

impl<'a> Written<'a> {
    /// The last name of a rule.
    fn of(rule: &'a impl PlacedRule, name: &'a [u8]) -> Self {
        Written { access: rule.access(), name, is_glob: rule.is_glob(), except: rule.except() }
    }

    /// Whether a rule that is written so is about `name`. To leave out is to give: that is about the very bytes.
    pub fn means(&self, name: &[u8]) -> bool {
        let is_meant = match (refuses(self.access), self.is_glob) {
            (true, true) => folded_matches(self.name, name),
            (true, false) => folds_alike(self.name, name),
            (false, true) => wildcard(self.name, name, |a, b| a == b),
            (false, false) => self.name == name,
        };
        is_meant && !(self.is_glob && is_left_out(self.except, name))
    }
}

/// Rules about one and the same path. The strongest of them wins: of the later layer, then the stricter. A protect rule
/// uncovers neither what a deny rule hides nor what a mask rule masks, and a mask rule uncovers nothing that is hidden: each
/// wins only where the strongest of the others, or without any what stands above, says no such thing. A shipped protect rule
/// yields to the overlay of a transaction above it: nothing that is written there reaches the host by itself.
#[derive(Debug)]
pub struct Contest<'a, R> {
    strongest: Option<(usize, &'a R)>,
    without_protect: Option<(usize, &'a R)>,
    without_mask: Option<(usize, &'a R)>,
}

impl<R> Default for Contest<'_, R> {
    fn default() -> Self {
        Contest { strongest: None, without_protect: None, without_mask: None }
    }
}

impl<'a, R: PlacedRule> Contest<'a, R> {
    pub fn enter(&mut self, number: usize, rule: &'a R) {
        let strength = |rule: &R| (rule.is_final(), rule.layer(), Reverse(rule.access()));
        let beats = |other: Option<(usize, &R)>| other.is_none_or(|(_, other)| strength(rule) >= strength(other));
        if beats(self.strongest) {
            self.strongest = Some((number, rule));
        }
        if rule.access() != Access::Protect && beats(self.without_protect) {
            self.without_protect = Some((number, rule));
        }
        if !matches!(rule.access(), Access::Protect | Access::Mask) && beats(self.without_mask) {
            self.without_mask = Some((number, rule));
        }
    }

    /// Who wins where `above` is what the directory has.
    pub fn won_over(&self, above: Option<(usize, &'a R)>) -> Ruling {
        let mut winner = self.strongest.or(above)?;
        if winner.1.access() == Access::Protect
            && let Some(other) = self.without_protect.or(above).filter(|(_, other)| other.access() < Access::Protect)
        {
            winner = other;
        }
        if winner.1.is_liftable()
            && let Some(other) = above.filter(|(_, above)| self.without_protect.is_none() && above.lifts())
        {
            winner = other;
        }
        if winner.1.access() == Access::Mask
            && let Some(other) = self.without_mask.or(above).filter(|(_, other)| other.access() == Access::Deny)
        {
            winner = other;
        }
        Some(winner.0)
    }

    /// Whether one of them gives the path for reading, whatever a stricter one says about writing.
    pub fn is_given(&self) -> bool {
        self.without_mask.is_some_and(|(_, rule)| rule.access() >= Access::Read)
    }
}

/// Which rules may be about a path: those with the same hash of it, to be compared. A launch waits until this is made of
/// hundreds of rules, so no name is copied.
#[derive(Debug, Default)]
struct Chains {
    newest: HashMap<u64, usize>,
    /// The one before, of the same hash, by rule.
    before: Vec<Option<usize>>,
}

impl Chains {
    fn with_room(rules: usize) -> Self {
        Chains { newest: HashMap::with_capacity(rules), before: vec![None; rules] }
    }

    fn add(&mut self, hash: u64, rule: usize) {
        self.before[rule] = self.newest.insert(hash, rule);
    }

    fn find(&self, hash: u64) -> impl Iterator<Item = usize> {
        std::iter::successors(self.newest.get(&hash).copied(), |rule| self.before[*rule])
    }
}

/// A path of plain names as bytes: the directory, without its last slash, and the name in it.
fn split(path: &Path) -> (&[u8], &[u8]) {
    let bytes = path.as_os_str().as_encoded_bytes();
    let slash = bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    (&bytes[..slash], bytes.get(slash + 1..).unwrap_or_default())
}

/// Where a rule is about something below `tree`, as it is spelled from there. In a tree below its own root a rule about any
/// directory begins with that tree.
fn place_below(tree: &Path, rule: &impl PlacedRule) -> Option<PathBuf> {
    let place = rule.place();
    let root = place.ancestors().nth(rule.tail()).filter(|_| rule.tail() > 0);
    let is_within =
        |root: &Path| folds_at_or_below(tree.as_os_str().as_encoded_bytes(), root.as_os_str().as_encoded_bytes());
    match root.filter(|root| is_within(root)).and_then(|root| place.strip_prefix(root).ok()) {
        Some(tail) => Some(tree.join(tail)),
        None => below(tree, place),
    }
}

/// A rule's place below `tree`, as it is spelled from there.
fn below(tree: &Path, place: &Path) -> Option<PathBuf> {
    let mut rest = place.components();
    for above in tree.components() {
        let name = rest.next()?;
        if !folds_alike(above.as_os_str().as_encoded_bytes(), name.as_os_str().as_encoded_bytes()) {
            return None;
        }
    }
    let rest = rest.as_path();
    (!rest.as_os_str().is_empty()).then(|| tree.join(rest))
}

/// Whether bytes can be compared: a variable may hold `/a//b/`.
pub(crate) fn is_plain(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    let mut before = b'/';
    let mut is_plain = bytes.first() == Some(&b'/');
    for (at, byte) in bytes.iter().enumerate().skip(1) {
        let is_dot = *byte == b'.' && before == b'/' && matches!(bytes.get(at + 1), None | Some(b'/'));
        is_plain &= !(is_dot || *byte == b'/' && before == b'/');
        before = *byte;
    }
    is_plain && (bytes.len() == 1 || before != b'/')
}

fn plain(path: &Path) -> PathBuf {
    Path::new("/").join(path.components().collect::<PathBuf>())
}
