//! Which file of a crate uses which: an arrow for each path that leads from one to another, and the circles they make.
//! Owns resolving paths (`crate`, `super`, `self`, own modules, re-exports); reads no files and judges nothing. Called by `map`.

use std::collections::{BTreeMap, BTreeSet};

use crate::rust_source::{code_only, without_tests};

mod names;

use names::{Named, Names, names};

/// Re-exports that are followed from one path.
const MOST_STEPS: usize = 16;

/// A module's path below the crate, without `crate`; empty for the crate's root.
type Module = Vec<String>;

/// The files of a crate and their arrows. The root is no node: it declares modules and re-exports what is in them.
#[derive(Debug)]
pub(crate) struct ModuleGraph {
    /// From a file to the files it uses.
    arrows: BTreeMap<String, BTreeMap<String, Arrow>>,
    /// Modules that only tests have, with all below them.
    tests: Vec<Module>,
}

/// How one file uses another.
#[derive(Debug, Default, Clone)]
struct Arrow {
    names: BTreeSet<String>,
    /// Some path to it begins with `crate`, `super` or `self`. Others begin with a module that the file declares itself.
    is_rooted: bool,
}

impl ModuleGraph {
    /// From the files below a crate's `src`, as (path below `src`, content). Tests are left out.
    pub(crate) fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> ModuleGraph {
        let mut sources: BTreeMap<Module, String> = BTreeMap::new();
        for (path, source) in files {
            if let Some(module) = module_of(path) {
                sources.insert(module, code_only(source));
            }
        }
        let tests = test_modules(&sources);
        sources.retain(|module, _| !is_below(module, &tests));
        let files = sources.iter().map(|(module, code)| (module.clone(), names(&without_tests(code)))).collect();
        ModuleGraph { arrows: Crate { files }.arrows(), tests }
    }

    /// Whether the file at this path below `src` is declared by tests only.
    pub(crate) fn is_test(&self, path: &str) -> bool {
        module_of(path).is_some_and(|module| is_below(&module, &self.tests))
    }

    /// The same without what files use of the modules that they declare, by the bare name.
    pub(crate) fn without_own_modules(&self) -> ModuleGraph {
        let rooted = |to: &BTreeMap<String, Arrow>| {
            to.iter().filter(|(_, arrow)| arrow.is_rooted).map(|(to, arrow)| (to.clone(), arrow.clone())).collect()
        };
        let arrows = self.arrows.iter().map(|(from, to)| (from.clone(), rooted(to))).collect();
        ModuleGraph { arrows, tests: self.tests.clone() }
    }

    /// Files that use each other, directly or through others: every strongly connected component of two or more.
    pub(crate) fn circles(&self) -> Vec<Vec<&str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.arrows.keys().map(|file| (file.as_str(), self.reached_from(file))).collect();
        let mut circles: Vec<Vec<&str>> = Vec::new();
        for (file, ahead) in &reached {
            if circles.iter().any(|circle| circle.contains(file)) {
                continue;
            }
            let back = |other: &&&str| reached.get(**other).is_some_and(|reached| reached.contains(file));
            let circle: Vec<&str> = ahead.iter().filter(back).copied().collect();
            if circle.len() > 1 {
                circles.push(circle);
            }
        }
        circles
    }

    /// The arrows between these files, as (from, to, names).
    pub(crate) fn arrows_among<'a>(
        &'a self,
        files: &'a [&str],
    ) -> impl Iterator<Item = (&'a str, &'a str, &'a BTreeSet<String>)> {
        let within = |file: &str| files.contains(&file);
        let from = self.arrows.iter().filter(move |(from, _)| within(from));
        from.flat_map(move |(from, to)| {
            to.iter().filter(move |(to, _)| within(to)).map(|(to, arrow)| (from.as_str(), to.as_str(), &arrow.names))
        })
    }

    fn reached_from<'a>(&'a self, file: &'a str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut left = vec![file];
        while let Some(file) = left.pop() {
            let next = self.arrows.get(file).into_iter().flat_map(BTreeMap::keys).map(String::as_str);
            left.extend(next.filter(|next| reached.insert(*next)));
        }
        reached
    }
}

/// `a/b.rs` and `a/b/mod.rs` are `a::b`. None for tests, and for programs, which are roots of crates of their own.
fn module_of(path: &str) -> Option<Module> {
    let path = path.strip_suffix(".rs")?;
    let mut segments: Module = path.split('/').map(str::to_owned).collect();
    if segments.iter().any(|segment| segment == "tests") || segments.first().is_some_and(|first| first == "bin") {
        return None;
    }
    if segments.last().is_some_and(|last| last == "mod") || path == "lib" || path == "main" {
        segments.pop();
    }
    Some(segments)
}

/// Modules that only tests have: what is declared in a file, and not without its tests.
fn test_modules(sources: &BTreeMap<Module, String>) -> Vec<Module> {
    let mut found = Vec::new();
    for (module, code) in sources {
        let shipped = names(&without_tests(code)).declared;
        let declared = names(code).declared.into_iter().filter(|name| !shipped.contains(name));
        found.extend(declared.map(|name| [module.as_slice(), &[name]].concat()));
    }
    found
}

fn is_below(module: &Module, modules: &[Module]) -> bool {
    modules.iter().any(|above| module.starts_with(above))
}

/// All files of a crate, by module.
struct Crate {
    files: BTreeMap<Module, Names>,
}

impl Crate {
    fn arrows(&self) -> BTreeMap<String, BTreeMap<String, Arrow>> {
        let mut arrows = BTreeMap::new();
        for (module, names) in self.files.iter().filter(|(module, _)| !module.is_empty()) {
            let mut used: BTreeMap<String, Arrow> = BTreeMap::new();
            for named in &names.paths {
                let Some((target, item)) = self.target(module, named) else { continue };
                if target != *module && !target.is_empty() && !is_re_export(module, &target, named) {
                    let arrow = used.entry(target.join("::")).or_default();
                    arrow.names.insert(item);
                    arrow.is_rooted |= named.is_rooted();
                }
            }
            arrows.insert(module.join("::"), used);
        }
        arrows
    }

    /// The file in which what a path names is defined, and its name there; None outside the crate.
    fn target(&self, module: &Module, named: &Named) -> Option<(Module, String)> {
        let mut path = self.absolute(module, &named.within, &named.segments)?;
        for _ in 0..MOST_STEPS {
            let (file, rest) = self.split(&path);
            let Some((name, behind)) = rest.split_first() else { return Some((file, "self".to_owned())) };
            match self.re_exported(&file, name) {
                Some(origin) => path = [origin.as_slice(), behind].concat(),
                None => return Some((file, name.clone())),
            }
        }
        None
    }

    /// From the crate's root, where the path leads anywhere in it.
    fn absolute(&self, module: &Module, within: &[String], segments: &[String]) -> Option<Module> {
        let here = [module.as_slice(), within].concat();
        let (first, rest) = segments.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([here.as_slice(), rest].concat()),
            "super" => {
                let ups = segments.iter().take_while(|segment| *segment == "super").count();
                let above = here.get(..here.len().checked_sub(ups)?)?;
                Some([above, &segments[ups..]].concat())
            }
            // Only what the file itself declares: another word is a crate, a type or something in scope.
            _ => self.is_declared(module, within, first).then(|| [here.as_slice(), segments].concat()),
        }
    }

    fn is_declared(&self, module: &Module, within: &[String], name: &String) -> bool {
        within.is_empty() && self.files.get(module).is_some_and(|names| names.declared.contains(name))
    }

    /// The longest beginning of a path that is a file, and what is behind it.
    fn split<'a>(&self, path: &'a [String]) -> (Module, &'a [String]) {
        let length = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length])).unwrap_or(0);
        (path[..length].to_vec(), &path[length..])
    }

    /// Where a name that a `use` of this file brings into scope comes from.
    fn re_exported(&self, file: &Module, name: &str) -> Option<Module> {
        let names = self.files.get(file)?;
        let binds =
            |named: &&Named| named.within.is_empty() && named.bound.as_ref().is_some_and(|bound| bound.name == name);
        let named = names.paths.iter().find(binds)?;
        let origin = self.absolute(file, &named.within, &named.segments)?;
        // `use crate::a::{self}` in `a` itself would lead nowhere.
        (origin != [file.as_slice(), &[name.to_owned()]].concat()).then_some(origin)
    }
}

/// `pub use x::Y` of a module below: it says what the folder offers and uses nothing itself.
fn is_re_export(module: &Module, target: &Module, named: &Named) -> bool {
    named.bound.as_ref().is_some_and(|bound| bound.is_public) && target.starts_with(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let graph = ModuleGraph::new(files.iter().copied());
        graph.circles().iter().map(|circle| circle.join(" ")).collect()
    }

    /// What `a.rs` uses, as `file(name, name)`.
    fn used_by_a(files: &[(&str, &str)]) -> Vec<String> {
        let graph = ModuleGraph::new(files.iter().copied());
        let show = |(file, arrow): (&String, &Arrow)| {
            format!("{file}({})", arrow.names.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
        };
        graph.arrows["a"].iter().map(show).collect()
    }

    #[test]
    fn a_circle_of_three_is_found_and_what_leads_to_it_is_not_of_it() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "fn f() { crate::c::g(); }"),
            ("c.rs", "use super::a::{A};"),
            ("d.rs", "use crate::a::A;"),
        ];
        assert_eq!(circles(&files), ["a b c"]);
    }

    #[test]
    fn two_circles_stay_apart() {
        let files = [
            ("a.rs", "use crate::b::B; use crate::c::C;"),
            ("b.rs", "use crate::a::A;"),
            ("c.rs", "use crate::d::D;"),
            ("d.rs", "use crate::c::C;"),
        ];
        assert_eq!(circles(&files), ["a b", "c d"]);
    }

    #[test]
    fn comments_strings_and_tests_are_not_counted() {
        let files = [
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod fixture;"),
            (
                "a.rs",
                "//! See [`crate::b`].\nconst S: &str = \"crate::b\";\n#[cfg(test)]\nmod tests { use crate::b::B; }\n",
            ),
            ("a/tests.rs", "use crate::b::B;"),
            ("a/tests/more.rs", "use crate::b::B;"),
            ("fixture.rs", "use crate::b::B;"),
            ("b.rs", "use crate::a::A; use crate::fixture::F;"),
        ];
        assert_eq!(circles(&files), Vec::<String>::new());
        let graph = ModuleGraph::new(files);
        assert_eq!(graph.arrows.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert!(graph.is_test("fixture.rs") && !graph.is_test("a.rs"));
    }

    #[test]
    fn super_is_resolved_from_files_and_from_inline_modules() {
        let from = |code: &str| used_by_a(&[("a.rs", code), ("b.rs", ""), ("c.rs", ""), ("c/d.rs", "")]);
        assert_eq!(from("use super::{b::B, c::d::D};"), ["b(B)", "c::d(D)"]);
        assert_eq!(from("mod inner { use super::X; use super::super::b::B; }"), ["b(B)"]);
        let files =
            [("c.rs", ""), ("c/d.rs", "use super::super::a::A; use super::e::E;"), ("c/e.rs", ""), ("a.rs", "")];
        let graph = ModuleGraph::new(files);
        assert_eq!(graph.arrows["c::d"].keys().collect::<Vec<_>>(), ["a", "c::e"]);
    }

    #[test]
    fn a_re_export_leads_to_where_the_item_is() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use b::{Item as Renamed, Other}; fn of_the_root() {}"),
            ("a.rs", "use crate::{Other, Renamed, of_the_root}; use crate::b::Deep;"),
            ("b.rs", "mod deep; pub use deep::Deep; struct Item;"),
            ("b/deep.rs", ""),
        ];
        assert_eq!(used_by_a(&files), ["b(Item, Other)", "b::deep(Deep)"]);
    }

    #[test]
    fn a_module_that_declares_and_uses_another_points_to_it_and_one_that_offers_it_does_not() {
        let with = |code: &str| circles(&[("lib.rs", "mod a;"), ("a.rs", code), ("a/b.rs", "use super::A;")]);
        assert_eq!(with("mod b; fn f() { b::g(); }"), ["a a::b"]);
        assert_eq!(with("mod b; use b::B;"), ["a a::b"]);
        assert_eq!(with("mod b; pub use b::B;"), Vec::<String>::new());
        assert_eq!(with("mod b;"), Vec::<String>::new());
    }

    #[test]
    fn what_a_file_uses_of_its_own_modules_can_be_left_out() {
        let with = |code: &str| {
            let files = [("lib.rs", "mod a;"), ("a.rs", code), ("a/b.rs", "use super::A;")];
            ModuleGraph::new(files).without_own_modules().circles().len()
        };
        assert_eq!(with("mod b; fn f() { b::g(); }"), 0);
        assert_eq!(with("mod b; fn f() { b::g(); self::b::h(); }"), 1);
    }

    #[test]
    fn a_re_export_of_itself_ends() {
        assert_eq!(used_by_a(&[("lib.rs", "pub use crate::x;"), ("a.rs", "use crate::x;")]), Vec::<String>::new());
        let files = [
            ("lib.rs", ""),
            ("a.rs", "use crate::b::X;"),
            ("b.rs", "pub use crate::c::X;"),
            ("c.rs", "pub use crate::b::X;"),
        ];
        assert_eq!(used_by_a(&files), Vec::<String>::new());
    }
}
