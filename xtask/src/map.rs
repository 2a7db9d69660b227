//! `cargo xtask map`: ARCHITECTURE.md is true. Owns the comparison of its crate table with the real crates, their
//! dependency arrows, the purity of DATA and PURE crates, the place of `unsafe` and circles of files; draws no map itself,
//! and prints what `module_graph` and `inventory` found in the product.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::inventory::{Struct, contents};
use crate::module_graph::ModuleGraph;
use crate::problems::Problems;
use crate::rust_source::{code_only, lines_with_word, product_code};
use crate::workspace::{DependencyKind, Package, Workspace};

const MAP: &str = "ARCHITECTURE.md";
const MAP_LINES: usize = 250;

/// Outside crates that call Linux: what DATA and PURE crates must do without (docs/decisions/0001).
const LINUX_CRATES: &[&str] = &["libc", "rustix", "landlock", "nix", "caps", "linux-raw-sys"];

/// Parts of the standard library that reach outside the process. DATA and PURE crates take values instead.
/// Methods that do the same without naming these modules are listed in `VALUES_ONLY`, for clippy.
const OUTSIDE: &[&str] = &["std::fs", "std::net", "std::process", "std::env", "std::os::linux", "std::os::fd"];

/// The list for clippy, and its name in each crate that it holds for.
const VALUES_ONLY: &str = "crates/takes-values-only.toml";
const CLIPPY: &str = "clippy.toml";

/// The places for `unsafe`: the module of this name and its files below these directories. The product's is the first; tests
/// that have to make calls which no safe wrapper offers keep theirs apart in the same way.
const UNSAFE_DIRS: &[&str] = &["crates/kernel/src/", "tests/"];
const UNSAFE_FILE: &str = "/raw.rs";
const UNSAFE_FOLDER: &str = "/raw/";

/// Directories of the crates whose files may use each other in pairs at most, and are counted.
const PRODUCT_DIR: &str = "crates/";
/// What a file uses of the modules that it declares is shown and does not count against this.
const CIRCLE_FILES: usize = 2;
/// The largest structs that are shown.
const STRUCTS_SHOWN: usize = 10;

/// A row of the crate table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    dir: String,
    kind: String,
    uses: BTreeSet<String>,
}

pub(crate) fn check(workspace: &Workspace) -> Result<String, Problems> {
    let text = workspace.read(MAP)?;
    let rows = crate_table(&text)?;
    let mut problems = Problems::default();

    check_length(&text, &mut problems);
    check_presence(&rows, &workspace.packages, &mut problems);
    check_arrows(&rows, &workspace.packages, &mut problems);
    let values_only = Some(workspace.read(VALUES_ONLY)?);
    let mut product = Product::default();
    for package in &workspace.packages {
        let kind = rows.get(&package.dir).map_or("", |row| row.kind.as_str());
        if matches!(kind, "DATA" | "PURE") && workspace.read(&format!("{}/{CLIPPY}", package.dir)).ok() != values_only {
            problems.add(format!("{}/{CLIPPY} differs from {VALUES_ONLY}: make it a link to it", package.dir));
        }
        let sources = workspace.sources(package)?;
        for (file, source) in &sources {
            check_unsafe(file, source, &mut problems);
            if matches!(kind, "DATA" | "PURE") {
                check_purity(&package.dir, file, source, &mut problems);
            }
        }
        if package.dir.starts_with(PRODUCT_DIR) {
            product.add(&package.dir, &sources, &mut problems);
        }
    }
    // Printed where something is wrong too: the arrows of a circle show how to undo it.
    print!("{product}");
    problems.or(format!("map: {} crates, {} lines", rows.len(), text.lines().count()))
}

/// What is shown of the product's crates.
#[derive(Debug, Default)]
struct Product {
    crates: Vec<String>,
    circles: Vec<String>,
    /// With the file that each stands in.
    structs: Vec<(Struct, String)>,
}

impl Product {
    fn add(&mut self, dir: &str, sources: &[(String, String)], problems: &mut Problems) {
        let files: Vec<_> =
            sources.iter().filter_map(|(file, source)| Some((file, product_file(dir, file)?, source))).collect();
        let graph = ModuleGraph::new(files.iter().map(|(_, path, source)| (*path, source.as_str())));
        let mut lines = 0;
        let mut siblings = BTreeSet::new();
        for (file, _, source) in files.iter().filter(|(_, path, _)| !graph.is_test(path)) {
            let contents = contents(source);
            lines += contents.lines;
            siblings.extend(contents.siblings);
            self.structs.extend(contents.structs.into_iter().map(|one| (one, (*file).clone())));
        }
        siblings.remove(short_name(dir));
        let siblings: Vec<String> = siblings.into_iter().collect();
        self.crates.push(format!("{dir}: {lines} lines of code, uses {}", listed(&siblings)));
        self.add_circles(dir, &graph, problems);
    }

    fn add_circles(&mut self, dir: &str, graph: &ModuleGraph, problems: &mut Problems) {
        for circle in graph.circles() {
            let shown = format!("circle of {} files in {dir}: {}", circle.len(), circle.join(", "));
            let arrows = graph.arrows_among(&circle).map(|(from, to, names)| {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                format!("    {from} -> {to} ({})", names.join(", "))
            });
            self.circles.push([shown].into_iter().chain(arrows).collect::<Vec<_>>().join("\n"));
        }
        for circle in graph.without_own_modules().circles() {
            if circle.len() > CIRCLE_FILES {
                problems.add(format!("circle of {} files in {dir}: {}", circle.len(), circle.join(", ")));
            }
        }
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.crates {
            writeln!(f, "{line}")?;
        }
        let mut structs: Vec<_> = self.structs.iter().collect();
        structs.sort_by(|(a, _), (b, _)| b.fields.cmp(&a.fields).then_with(|| a.name.cmp(&b.name)));
        for (one, file) in structs.into_iter().take(STRUCTS_SHOWN) {
            writeln!(f, "struct of {} fields: {} in {file}", one.fields, one.name)?;
        }
        for circle in &self.circles {
            writeln!(f, "{circle}")?;
        }
        writeln!(f, "circles of files: {}", self.circles.len())
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "no sibling".to_owned() } else { names.join(", ") }
}

/// The path below `src` of a file that ships; None for tests and build scripts.
fn product_file<'a>(dir: &str, file: &'a str) -> Option<&'a str> {
    let path = file.strip_prefix(dir)?.strip_prefix("/src/")?;
    let is_test = path.split('/').any(|part| part == "tests" || part == "tests.rs");
    (!is_test).then_some(path)
}

fn check_length(text: &str, problems: &mut Problems) {
    let lines = text.lines().count();
    if lines > MAP_LINES {
        problems.add(format!("{MAP} has {lines} lines; a map has at most {MAP_LINES}"));
    }
}

fn check_presence(rows: &BTreeMap<String, Row>, packages: &[Package], problems: &mut Problems) {
    for package in packages {
        if !rows.contains_key(&package.dir) {
            problems.add(format!("{MAP} does not name `{}`", package.dir));
        }
        let expected = expected_name(&package.dir);
        if package.name != expected {
            problems.add(format!("the package in `{}` is called `{}`, not `{expected}`", package.dir, package.name));
        }
    }
    for dir in rows.keys() {
        if !packages.iter().any(|p| p.dir == *dir) {
            problems.add(format!("{MAP} names `{dir}`, which is no crate of the workspace"));
        }
    }
}

fn check_arrows(rows: &BTreeMap<String, Row>, packages: &[Package], problems: &mut Problems) {
    for package in packages {
        let Some(row) = rows.get(&package.dir) else { continue };
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let is_dev = dependency.kind == Some(DependencyKind::Dev);
            if let Some(sibling) = packages.iter().find(|p| p.name == name) {
                let fixture = is_dev && rows.get(&sibling.dir).is_some_and(|r| r.kind == "DEV");
                if !row.uses.contains(short_name(&sibling.dir)) && !fixture {
                    problems.add(format!(
                        "`{}` depends on `{}`, an arrow that {MAP} does not allow",
                        package.dir, sibling.dir
                    ));
                }
            } else if !is_dev && matches!(row.kind.as_str(), "DATA" | "PURE") && LINUX_CRATES.contains(&name) {
                problems.add(format!("`{}` is {} and depends on `{name}`, which calls Linux", package.dir, row.kind));
            }
        }
    }
}

fn check_unsafe(file: &str, source: &str, problems: &mut Problems) {
    let is_raw = file.ends_with(UNSAFE_FILE) || file.contains(UNSAFE_FOLDER);
    if is_raw && UNSAFE_DIRS.iter().any(|dir| file.starts_with(dir)) {
        return;
    }
    for line in lines_with_word(&code_only(source), "unsafe") {
        problems.add(format!("{file}:{line}: `unsafe` outside the module `raw` of {}", UNSAFE_DIRS[0]));
    }
}

fn check_purity(dir: &str, file: &str, source: &str, problems: &mut Problems) {
    // Tests may read fixtures, in `tests.rs` or in what `#[cfg(test)]` marks. Build scripts run at home.
    if product_file(dir, file).is_none() {
        return;
    }
    let code = product_code(source);
    for (index, line) in code.lines().enumerate() {
        if let Some(outside) = OUTSIDE.iter().find(|&&path| line.contains(path)) {
            problems.add(format!("{file}:{}: `{outside}` in a crate that takes values only", index + 1));
        }
    }
}

fn crate_table(text: &str) -> Result<BTreeMap<String, Row>, Problems> {
    let section = text.lines().skip_while(|line| *line != "## Crates").skip(1).take_while(|l| !l.starts_with("## "));
    let rows: BTreeMap<_, _> = section.filter_map(row).map(|row| (row.dir.clone(), row)).collect();
    if rows.is_empty() {
        return Err(Problems::one(format!("{MAP} has no section `## Crates` with a table of crates")));
    }
    Ok(rows)
}

/// A row reads ``|`crates/plan`|PURE|`policy`|why|``.
fn row(line: &str) -> Option<Row> {
    let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
    let dir = cells.next()?.strip_prefix('`')?.strip_suffix('`')?.to_owned();
    let kind = cells.next()?.to_owned();
    let uses = cells.next()?.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    Some(Row { dir, kind, uses })
}

fn short_name(dir: &str) -> &str {
    dir.rsplit('/').next().unwrap_or(dir)
}

fn expected_name(dir: &str) -> String {
    if dir == "xtask" { dir.to_owned() } else { format!("cofferdam-{}", short_name(dir)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
# Map

## Crates

|directory|kind|may use|why|
|-|-|-|-|
|`crates/policy`|DATA||what may be asked|
|`crates/plan`|PURE|`policy`|what will be done|
|`crates/testkit`|DEV|`policy`, `plan`|fixtures|

## Elsewhere

|`crates/none`|DATA||not of the table|
";

    fn packages(json: &str) -> Vec<Package> {
        let mut packages: Vec<Package> = serde_json::from_str(json).expect("fixture");
        for package in &mut packages {
            package.dir = format!("crates/{}", package.name.trim_start_matches("cofferdam-"));
        }
        packages
    }

    fn arrows_of(json: &str) -> Vec<String> {
        let mut problems = Problems::default();
        check_arrows(&crate_table(TABLE).expect("table"), &packages(json), &mut problems);
        problems.lines().to_vec()
    }

    #[test]
    fn the_table_is_read_from_its_section_only() {
        let rows = crate_table(TABLE).expect("table");
        assert_eq!(rows.keys().collect::<Vec<_>>(), ["crates/plan", "crates/policy", "crates/testkit"]);
        assert_eq!(rows["crates/testkit"].uses, BTreeSet::from(["policy".to_owned(), "plan".to_owned()]));
    }

    #[test]
    fn a_crate_missing_from_the_map_and_a_name_without_a_crate_are_found() {
        let mut problems = Problems::default();
        let packages = packages(
            r#"[{"name":"cofferdam-policy","manifest_path":"","dependencies":[]},
                {"name":"cofferdam-gate","manifest_path":"","dependencies":[]}]"#,
        );
        check_presence(&crate_table(TABLE).expect("table"), &packages, &mut problems);
        let found = problems.lines().join("\n");
        assert!(found.contains("does not name `crates/gate`"), "{found}");
        assert!(found.contains("names `crates/plan`"), "{found}");
    }

    #[test]
    fn an_arrow_against_the_map_is_found() {
        let with = |kind: &str| {
            arrows_of(&format!(
                r#"[{{"name":"cofferdam-policy","manifest_path":"","dependencies":[{{"name":"cofferdam-plan","kind":{kind}}}]}},
                    {{"name":"cofferdam-plan","manifest_path":"","dependencies":[{{"name":"cofferdam-policy","kind":null}}]}}]"#
            ))
        };
        assert_eq!(with("null").len(), 1);
        assert_eq!(with("\"build\"").len(), 1);
        assert_eq!(with("\"dev\"").len(), 1);
    }

    #[test]
    fn fixtures_may_be_used_by_tests_of_any_crate_and_by_nothing_else() {
        let with = |kind: &str| {
            arrows_of(&format!(
                r#"[{{"name":"cofferdam-policy","manifest_path":"","dependencies":[{{"name":"cofferdam-testkit","kind":{kind}}}]}},
                    {{"name":"cofferdam-testkit","manifest_path":"","dependencies":[]}}]"#
            ))
        };
        assert_eq!(with("\"dev\""), Vec::<String>::new());
        assert_eq!(with("null").len(), 1);
    }

    #[test]
    fn a_pure_crate_that_calls_linux_is_found() {
        let found = arrows_of(
            r#"[{"name":"cofferdam-plan","manifest_path":"","dependencies":[{"name":"rustix","kind":null}]}]"#,
        );
        assert_eq!(found.len(), 1);
        let mut problems = Problems::default();
        let source = "use std::fs;\n#[cfg(test)]\nmod tests { use std::env; }\n";
        check_purity("crates/plan", "crates/plan/src/lib.rs", source, &mut problems);
        check_purity("crates/plan", "crates/plan/build.rs", source, &mut problems);
        assert_eq!(problems.lines().len(), 1);
    }

    #[test]
    fn a_circle_of_three_files_is_a_problem_and_one_of_two_is_shown() {
        let with = |files: &[(&str, &str)]| {
            let sources: Vec<_> =
                files.iter().map(|(file, source)| (format!("crates/plan/src/{file}"), (*source).to_owned())).collect();
            let (mut product, mut problems) = (Product::default(), Problems::default());
            product.add("crates/plan", &sources, &mut problems);
            (product.to_string(), problems.lines().to_vec())
        };
        let two = [("a.rs", "use crate::b::B;\nstruct A(u8);"), ("b.rs", "use cofferdam_policy::P;\nuse crate::a::A;")];
        let (shown, problems) = with(&two);
        let expected = "\
crates/plan: 4 lines of code, uses policy
struct of 1 fields: A in crates/plan/src/a.rs
circle of 2 files in crates/plan: a, b
    a -> b (B)
    b -> a (A)
circles of files: 1
";
        assert_eq!((shown.as_str(), problems.len()), (expected, 0));
        let (_, problems) = with(&[two[0], ("b.rs", "use crate::c::C;"), ("c.rs", "use crate::a::A;")]);
        assert_eq!(problems, ["circle of 3 files in crates/plan: a, b, c"]);
    }

    #[test]
    fn what_follows_a_test_is_looked_at_again() {
        let mut problems = Problems::default();
        let source =
            "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nfn helper() {\n  std::env::var(\"X\");\n}\nuse std::fs;\n";
        check_purity("crates/plan", "crates/plan/src/lib.rs", source, &mut problems);
        let found: Vec<&str> = problems.lines().iter().map(AsRef::as_ref).collect();
        assert_eq!(found, ["crates/plan/src/lib.rs:7: `std::fs` in a crate that takes values only"]);
    }

    #[test]
    fn unsafe_is_found_everywhere_but_in_raw_files_of_kernel_and_tests() {
        let count = |file: &str| {
            let mut problems = Problems::default();
            check_unsafe(file, "unsafe { call() }", &mut problems);
            problems.lines().len()
        };
        assert_eq!(count("crates/kernel/src/raw.rs"), 0);
        assert_eq!(count("crates/kernel/src/raw/mount.rs"), 0);
        assert_eq!(count("crates/kernel/src/mount.rs"), 1);
        assert_eq!(count("crates/kernel/src/draw/mount.rs"), 1);
        assert_eq!(count("crates/launcher/src/raw.rs"), 1);
        assert_eq!(count("crates/launcher/src/raw/mount.rs"), 1);
        assert_eq!(count("tests/escape/src/raw.rs"), 0);
        assert_eq!(count("tests/escape/src/probe.rs"), 1);
    }
}
