//! The list of obeyed names, arranged so that a walk can ask of each entry which of them begin or go on with it. Owns no name:
//! the list is `profiles/protect.toml`. Called by `obeyed`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use cofferdam_policy::decide::index::Written;
use cofferdam_policy::{Access, ObeyedClass, ObeyedName, fold_hash, obeyed_names};

/// A name of the list of which the first parts were met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) rule: usize,
    met: usize,
}

pub(super) struct Names {
    list: Vec<(ObeyedName, Vec<&'static str>)>,
    /// By the hash of their first part; patterns have none.
    first: HashMap<u64, Vec<usize>>,
    patterns: Vec<usize>,
}

/// What a memory of a walk is about.
impl Hash for Names {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (entry, parts) in &self.list {
            (entry.is_glob, entry.only_files, parts).hash(state);
        }
    }
}

impl Names {
    pub(super) fn shipped() -> Self {
        let mut names = Names { list: Vec::new(), first: HashMap::new(), patterns: Vec::new() };
        for (rule, name) in obeyed_names().enumerate() {
            let parts: Vec<&'static str> =
                name.in_git.then_some(".git").into_iter().chain(name.name.split('/')).collect();
            if name.is_glob && parts.len() == 1 {
                names.patterns.push(rule);
            } else if let Some(first) = parts.first() {
                names.first.entry(fold_hash(0, first.as_bytes())).or_default().push(rule);
            }
            names.list.push((name, parts));
        }
        names
    }

    /// The name that ends with this entry, and those that go on below it.
    pub(super) fn go_on(&self, begun: &[Begun], only_begun: bool, name: &OsStr) -> (Option<usize>, Vec<Begun>) {
        let name = name.as_bytes();
        let first = || self.first.get(&fold_hash(0, name)).into_iter().flatten().chain(&self.patterns);
        let new = (!only_begun).then(first).into_iter().flatten().map(|rule| Begun { rule: *rule, met: 0 });
        let (mut whole, mut further) = (None, Vec::new());
        for Begun { rule, met } in begun.iter().copied().chain(new) {
            if !self.means(rule, met, name) {
                continue;
            }
            if met + 1 == self.list[rule].1.len() {
                whole = whole.or(Some(rule));
            } else {
                further.push(Begun { rule, met: met + 1 });
            }
        }
        (whole, further)
    }

    fn means(&self, rule: usize, part: usize, name: &[u8]) -> bool {
        let (entry, parts) = &self.list[rule];
        let is_glob = entry.is_glob && part + 1 == parts.len();
        Written { access: Access::Protect, name: parts[part].as_bytes(), is_glob, except: "" }.means(name)
    }

    /// How a name that was begun ends, if that is a name and not a pattern.
    pub(super) fn path_of_rest(&self, begun: Begun) -> Option<PathBuf> {
        let (entry, parts) = &self.list[begun.rule];
        (!entry.is_glob).then(|| parts[begun.met..].iter().collect())
    }

    pub(super) fn only_files(&self, rule: usize) -> bool {
        self.list[rule].0.only_files
    }

    pub(super) fn class(&self, rule: usize) -> ObeyedClass {
        self.list[rule].0.class
    }

    pub(super) fn why(&self, rule: usize) -> &'static str {
        self.list[rule].0.why
    }
}
