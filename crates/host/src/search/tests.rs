//! The search on real trees: what it finds, what it leaves and says so, and what it remembers.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use cofferdam_policy::Policy;

use super::*;
use crate::memory::tests::settle;

/// A project and the place for its memory; removed when dropped.
struct Tree {
    scene: PathBuf,
    policy: Policy,
}

impl Drop for Tree {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.scene).expect("it is ours");
    }
}

impl Tree {
    fn with(paths: &[&str]) -> Tree {
        let tree = Tree { scene: crate::memory::tests::scene("search"), policy: Policy::built_in() };
        fs::create_dir(tree.project()).expect("a directory");
        for path in paths {
            tree.write(path);
        }
        tree
    }

    fn project(&self) -> PathBuf {
        self.scene.join("project")
    }

    fn write(&self, path: &str) {
        let path = self.project().join(path);
        fs::create_dir_all(path.parent().expect("it is below the project")).expect("a directory");
        fs::write(path, "x").expect("a file");
    }

    fn search(&self, bounds: Bounds) -> Found {
        self.search_with(&[], bounds)
    }

    fn search_with(&self, given: &[&Path], bounds: Bounds) -> Found {
        self.search_all(given, &[], bounds)
    }

    fn search_all(&self, given: &[&Path], served: &[&Path], bounds: Bounds) -> Found {
        let project = self.project();
        search(&project, &Sought::all(&self.policy, &project), given, served, &self.scene.join("searched"), bounds)
    }

    fn names(&self, found: &Found) -> Vec<String> {
        let project = self.project();
        let below = |path: &PathBuf| path.strip_prefix(&project).expect("below the project").display().to_string();
        let mut names: Vec<String> = found.names.iter().map(|(_, path)| below(path)).collect();
        names.sort();
        names
    }

    fn forget(&self) {
        fs::remove_dir_all(self.scene.join("searched")).expect("it is there");
    }

    fn remembered(&self) -> usize {
        let project = self.project();
        let (root, rules) = (open_source(&project).expect("a directory"), Sought::all(&self.policy, &project));
        Memory::open(&self.scene.join("searched"), &project, &root, rules.as_slice()).0.remembered()
    }
}

#[test]
fn every_shipped_name_is_found_at_every_depth() {
    let hidden = [
        ".env",
        "a/b/c/d/e/f/g/h/i/.env.local",
        "infra/prod.tfvars",
        "infra/prod.tfvars.json",
        "infra/terraform.tfstate.backup",
        "packages/api/.ENV.Production",
        "packages/api/.dev.vars",
        "packages/api/.htpasswd",
        "packages/api/.netrc",
        "packages/api/.npmrc",
        "packages/api/.pypirc",
        "packages/api/.streamlit/secrets.toml",
        "packages/api/.vault-token",
        "packages/api/.vault_pass.txt",
        "packages/api/config/credentials/production.key",
        "packages/api/config/master.key",
        "packages/api/id_ecdsa",
        "packages/api/id_ed25519",
        "packages/api/id_rsa",
        "packages/api/service-account.json",
        "\u{e4}/.env",
    ];
    let shown = [
        "packages/api/.env.example",
        "packages/api/.env.test",
        "packages/api/master.key",
        "packages/api/secrets.toml",
        "packages/api/id_rsa.pub",
        "packages/api/tfvars",
        "packages/api/node_modules/x/.env",
        "target/debug/.env",
        ".git/.env",
    ];
    let tree = Tree::with(&[&hidden[..], &shown[..]].concat());
    fs::create_dir(tree.project().join(".env.d")).expect("a directory");
    tree.write(".env.d/not-looked-at/.env");
    symlink(tree.project(), tree.project().join("round")).expect("a link");
    let found = tree.search(BOUNDS);
    let mut expected = hidden.map(str::to_owned).to_vec();
    expected.push(".env.d".to_owned());
    expected.sort();
    assert_eq!(tree.names(&found), expected);
    assert_eq!(found.searched.tell_unseen(), None);
}

#[test]
fn what_a_bound_leaves_unseen_is_said() {
    let tree = Tree::with(&["1/2/3/.env", "1/.env", "1/2/.env", "z/y/x/f"]);
    let shallow = tree.search(Bounds { depth: 2, ..BOUNDS });
    assert_eq!(tree.names(&shallow), ["1/.env", "1/2/.env"]);
    let said = shallow.searched.tell_unseen().expect("something was left");
    assert!(said.starts_with("2 not searched (too deep): ") && said.contains("/project/1/2"), "{said}");
    tree.forget();
    let few = tree.search(Bounds { entries: 3, ..BOUNDS });
    assert!(few.searched.tell_unseen().expect("something was left").contains("too many names"));
    let late = tree.search(Bounds { time: Duration::ZERO, least: 1, ..BOUNDS });
    assert!(late.searched.tell_unseen().expect("something was left").contains("out of time"));
    let whole = tree.search(Bounds { time: Duration::ZERO, ..BOUNDS });
    assert_eq!(whole.searched.tell_unseen(), None, "a small project is seen however long it takes");
    assert_eq!(tree.names(&whole), ["1/.env", "1/2/.env", "1/2/3/.env"]);
}

#[test]
fn a_directory_that_cannot_be_listed_is_closed() {
    if rustix::process::getuid().is_root() {
        println!("skipped: root can list every directory");
        return;
    }
    let tree = Tree::with(&["closed/.env", "open/.env"]);
    let closed = tree.project().join("closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o0)).expect("it is ours");
    let found = tree.search(BOUNDS);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("it is ours");
    assert_eq!(tree.names(&found), ["open/.env"]);
    assert_eq!((found.closed, found.searched.tell_unseen()), (vec![closed], None));
}

#[test]
fn too_many_names_in_one_directory_end_the_search() {
    let tree = Tree::with(&[]);
    for number in 0..20 {
        tree.write(&format!("many/.env.{number}"));
    }
    assert_eq!(tree.search(Bounds { in_one: 20, ..BOUNDS }).searched.crowded, None);
    let found = tree.search(Bounds { in_one: 19, ..BOUNDS });
    assert_eq!(found.searched.crowded, Some(tree.project().join("many")));
    let found = tree.search(Bounds { in_all: 19, ..BOUNDS });
    assert_eq!(found.searched.crowded, Some(tree.project().join("many")));
}

#[test]
fn a_remembered_directory_that_changed_is_listed_again() {
    let tree = Tree::with(&["2/.env"]);
    for number in 0..40 {
        tree.write(&format!("{number}/sub/file"));
    }
    tree.search(BOUNDS);
    assert_eq!(tree.remembered(), 0, "what changed just now is not passed by");
    settle();
    let first = tree.search(BOUNDS);
    assert_eq!(tree.names(&first), ["2/.env"]);
    assert!(tree.remembered() > 40);
    tree.write("7/sub/.env");
    tree.write("8/new/deep/id_rsa");
    fs::remove_dir_all(tree.project().join("9")).expect("it is there");
    fs::rename(tree.project().join("10"), tree.project().join("11/moved")).expect("it is there");
    tree.write("11/moved/sub/.netrc");
    let second = tree.search(BOUNDS);
    assert_eq!(tree.names(&second), ["11/moved/sub/.netrc", "2/.env", "7/sub/.env", "8/new/deep/id_rsa"]);
    // A directory of another time in the place of a remembered one.
    fs::rename(tree.project().join("12"), tree.scene.join("away")).expect("it is there");
    tree.write("12/.env");
    assert!(tree.names(&tree.search(BOUNDS)).contains(&"12/.env".to_owned()));
}

#[test]
fn other_rules_remember_for_themselves() {
    let mut tree = Tree::with(&["2/secret.txt"]);
    for number in 0..40 {
        tree.write(&format!("{number}/file"));
    }
    settle();
    assert!(tree.names(&tree.search(BOUNDS)).is_empty());
    assert!(tree.remembered() > 40);
    let mut rule = tree.policy.files.iter().find(|rule| rule.path.is_deep()).expect("shipped").clone();
    rule.path = cofferdam_policy::PathExpr::parse("./**/secret.txt").expect("a path");
    tree.policy.files.push(rule);
    assert_eq!(tree.names(&tree.search(BOUNDS)), ["2/secret.txt"]);
}

#[test]
fn a_hidden_directory_is_searched_where_a_rule_gives_it_or_something_in_it() {
    let tree = Tree::with(&[".env.d/.env", ".env.d/readme", "a/.env.x/b/.env", "a/.env.y/.env"]);
    let project = tree.project();
    let all = [".env.d", ".env.d/.env", "a/.env.x", "a/.env.x/b/.env", "a/.env.y"];
    let (whole, part) = (project.join(".env.d"), project.join("a/.env.x/b"));
    assert_eq!(tree.names(&tree.search_with(&[&whole, &part], BOUNDS)), all);
    assert_eq!(tree.names(&tree.search_with(&[&project], BOUNDS)), [".env.d", "a/.env.x", "a/.env.y"]);
    // One that stays hidden takes any number of names, and one that is given does not.
    assert_eq!(tree.search_with(&[&project], Bounds { in_all: 3, ..BOUNDS }).searched.crowded, None);
    assert!(tree.search_with(&[&whole, &part], Bounds { in_all: 3, ..BOUNDS }).searched.crowded.is_some());
}

#[test]
fn a_directory_without_end_is_left_and_said_and_its_likely_names_are_found() {
    let tree = Tree::with(&[".env", ".netrc", ".streamlit/secrets.toml", "prod.tfvars"]);
    for number in 0..2000 {
        tree.write(&format!("{number}"));
    }
    let cut = tree.search(Bounds { entries: 100, time: Duration::ZERO, ..BOUNDS });
    let names = tree.names(&cut);
    let likely = [".env", ".netrc", ".streamlit/secrets.toml"];
    assert!(likely.iter().all(|name| names.iter().filter(|found| found == name).count() == 1), "{names:?}");
    let said = cut.searched.tell_unseen().expect("something was left");
    assert!(said.contains("too many names") && said.contains(&tree.project().display().to_string()), "{said}");
    // As long as there is time it is listed to its end.
    let whole = tree.search(Bounds { entries: 100, time: Duration::from_hours(1), ..BOUNDS });
    assert_eq!(tree.names(&whole), [".env", ".netrc", ".streamlit/secrets.toml", "prod.tfvars"]);
    assert_eq!(tree.names(&tree.search(BOUNDS)), tree.names(&whole));
}

#[test]
fn what_was_found_before_is_found_however_much_was_added() {
    let mut tree = Tree::with(&["zz/deep/.env", "zz/deep/er/prod.tfvars", ".env.local"]);
    let names = [".env.local", "zz/deep/.env", "zz/deep/er/prod.tfvars"];
    assert_eq!(tree.names(&tree.search(BOUNDS)), names);
    for number in 0..500 {
        tree.write(&format!("{number}"));
        tree.write(&format!("aa/{number}/f"));
    }
    let few = Bounds { entries: 100, time: Duration::ZERO, least: 1, ..BOUNDS };
    assert_eq!(tree.names(&tree.search(few)), names);
    // Also with other rules than before, and by the next walk, which writes it down again.
    let rule = tree.policy.files.iter().find(|rule| rule.path.is_deep()).expect("shipped").clone();
    tree.policy.files.push(rule);
    assert_eq!(tree.search(few).names.len(), names.len() + 2, "two rules are about each `.env`");
    fs::remove_file(tree.project().join("zz/deep/.env")).expect("it is there");
    assert_eq!(tree.search(few).names.len(), names.len());
    tree.forget();
    assert_ne!(tree.names(&tree.search(few)), names, "this is what it is for");
}

#[test]
fn names_behind_links_are_found_and_their_directories_listed_again() {
    let tree = Tree::with(&["conf2/other", "node_modules/.app/src/f", "plain/.env"]);
    let project = tree.project();
    for (target, link) in
        [("conf2", "config"), ("node_modules/.app", "app"), (".", "round"), ("..", "out"), ("plain", "again")]
    {
        symlink(target, project.join(link)).expect("a link");
    }
    for number in 0..40 {
        tree.write(&format!("{number}/file"));
    }
    settle();
    assert_eq!(tree.names(&tree.search(BOUNDS)), ["plain/.env"]);
    assert!(tree.remembered() > 39);
    for path in ["conf2/master.key", "node_modules/.app/.env", "node_modules/.app/src/prod.tfvars"] {
        tree.write(path);
    }
    let all = ["app/.env", "app/src/prod.tfvars", "config/master.key", "plain/.env"];
    assert_eq!(tree.names(&tree.search(BOUNDS)), all);
    // Also where a later search ends before it gets there.
    assert_eq!(tree.names(&tree.search(Bounds { entries: 1, ..BOUNDS })), all);
}

#[test]
fn a_link_that_leads_nowhere_yet_is_looked_at_again() {
    let tree = Tree::with(&["real/config/f"]);
    let project = tree.project();
    for number in 0..40 {
        tree.write(&format!("{number}/file"));
    }
    fs::create_dir(project.join("lib")).expect("a directory");
    fs::create_dir(project.join("node_modules")).expect("a directory");
    for (target, link) in [
        ("../lib/conf2", "1/config"),
        ("../node_modules/.app", "2/app"),
        ("../lib/conf3", "3/config"),
        ("../../lib/creds", "real/config/credentials"),
        ("../lib/one", "4/.streamlit"),
    ] {
        symlink(target, project.join(link)).expect("a link");
    }
    symlink("two", project.join("lib/one")).expect("a link");
    settle();
    assert!(tree.names(&tree.search(BOUNDS)).is_empty());
    assert!(tree.remembered() > 30);
    for path in [
        "lib/conf2/master.key",
        "node_modules/.app/.env",
        "lib/conf3/credentials/production.key",
        "lib/creds/staging.key",
        "lib/two/secrets.toml",
    ] {
        tree.write(path);
    }
    let all = [
        "1/config/master.key",
        "2/app/.env",
        "3/config/credentials/production.key",
        "4/.streamlit/secrets.toml",
        "real/config/credentials/staging.key",
    ];
    assert_eq!(tree.names(&tree.search(BOUNDS)), all);
}

#[test]
fn links_into_the_project_are_followed_however_they_are_written() {
    let tree = Tree::with(&["lib/conf/master.key", "lib/conf/.env"]);
    let project = tree.project();
    symlink(&project, tree.scene.join("alias")).expect("a link");
    for (link, target) in [
        ("1/config", project.join("lib/conf")),
        ("2/config", tree.scene.join("alias/lib/../lib/./conf")),
        ("3/config", PathBuf::from("../../project/lib/conf/")),
        ("4/config", PathBuf::from("config")),
    ] {
        tree.write(&format!("{}/f", &link[..1]));
        symlink(target, project.join(link)).expect("a link");
    }
    let all = ["1/config/master.key", "2/config/master.key", "3/config/master.key", "lib/conf/.env"];
    assert_eq!(tree.names(&tree.search(BOUNDS)), all);
}

#[test]
fn a_directory_behind_a_link_has_the_bounds_of_every_other() {
    let tree = Tree::with(&["src/.env"]);
    for number in 0..300 {
        tree.write(&format!("node_modules/big/.env.{number}"));
    }
    symlink("node_modules/big", tree.project().join("x")).expect("a link");
    let link = tree.project().join("x");
    assert_eq!(tree.search(BOUNDS).searched.crowded, Some(link.clone()));
    tree.forget();
    fs::remove_dir_all(tree.project().join("node_modules/big")).expect("it is there");
    for number in 0..2000 {
        tree.write(&format!("node_modules/big/{number}"));
    }
    tree.write("node_modules/big/.env");
    tree.write("node_modules/big/config/master.key");
    let cut = tree.search(Bounds { entries: 100, time: Duration::ZERO, ..BOUNDS });
    assert!(cut.searched.unseen.contains(&(link, Unseen::Entries)), "{:?}", cut.searched);
    assert_eq!(tree.names(&cut), ["src/.env", "x/.env", "x/config/master.key"]);
}

/// A server may never answer: nothing that a link leads to there is asked for.
#[test]
fn no_link_leads_the_search_to_what_a_server_keeps() {
    let tree = Tree::with(&["mnt/conf/master.key", "1/f", "2/f"]);
    let project = tree.project();
    symlink("../mnt/conf", project.join("1/config")).expect("a link");
    symlink(tree.scene.join("away/conf"), project.join("2/config")).expect("a link");
    fs::create_dir(tree.scene.join("away")).expect("a directory");
    symlink(project.join("lib"), tree.scene.join("away/conf")).expect("a link");
    tree.write("lib/master.key");
    let (mount, away) = (project.join("mnt"), tree.scene.join("away"));
    let found = tree.search_all(&[], &[&mount, &away], BOUNDS);
    assert!(tree.names(&found).is_empty(), "{:?}", found.names);
    assert_eq!(found.searched.unseen, [(mount, Unseen::OtherFileSystem)]);
    // The project itself may lie in one.
    let found = tree.search_all(&[], &[&tree.scene, &away], BOUNDS);
    assert_eq!(tree.names(&found), ["1/config/master.key"], "{:?}", found.names);
}

#[test]
fn links_without_end_are_left_and_said() {
    let tree = Tree::with(&["conf/master.key"]);
    let long: String = "conf/../".repeat(500);
    for number in 0..100 {
        symlink(format!("{long}{}", number + 1), tree.project().join(number.to_string())).expect("a link");
    }
    symlink("conf", tree.project().join("config")).expect("a link");
    let begin = Instant::now();
    let found = tree.search(Bounds { time: Duration::ZERO, least: 1, ..BOUNDS });
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert_eq!(tree.names(&found), ["config/master.key"]);
    assert!(found.searched.tell_unseen().is_some_and(|said| said.contains("out of time")), "{:?}", found.searched);
}
