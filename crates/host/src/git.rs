//! Where the project's git directories are. Owns the reading of `.git` files and the check that a linked worktree's
//! pointers agree in both directions: a pointer alone proves nothing (corpus E14). Called by `survey`.

pub mod changes;
mod config;
pub mod links;
pub mod root;

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use cofferdam_kernel::file::read_bytes;
use cofferdam_plan::{GitDir, GitRole, HostFacts};
use rustix::fs::FileType;

use self::config::Entry;
use crate::stand_ins::StandIns;

/// Most worktrees and most submodules that are protected one by one. Where there are more, `worktrees` or `modules` is
/// protected as a whole: a workload can make as many as it likes, and gains nothing by it.
const MOST: usize = 64;

/// Directories that are listed in the search for submodules; past it `modules` is protected as a whole.
const MOST_LISTED: usize = 256;

/// Names of any kind that are looked at in `worktrees` or below `modules`; past it they are protected as a whole, too. Git
/// makes directories there and no files.
const MOST_NAMES: usize = 4096;

/// What is left of the two.
struct Budget {
    directories: usize,
    names: usize,
}

/// Longest name of a submodule, in components; a deeper one protects `modules` as a whole.
const DEEPEST: usize = 8;

/// Files that the configurations of a directory or of the user include, and how deep. Where there are more, the
/// configuration that includes them is said.
const MOST_INCLUDED: usize = 32;
const DEEPEST_INCLUDE: usize = 5;

/// A configuration that is longer is not looked at further; git itself would still read it.
const LONGEST_CONFIG: u64 = 1 << 20;

/// A path with its prefix; git's own limit is the same.
const LONGEST_POINTER: u64 = 1 << 16;

/// Adds the git directories of the project and what git reads besides. Paths that begin with `~` may lead to one of the
/// homes, and git's configuration of the user lies there.
pub(crate) fn look(facts: &mut HostFacts, stand_ins: &StandIns) {
    let places = facts.places();
    let homes: Vec<&Path> = places.homes().collect();
    if let Some(project) = &places.project {
        facts.git = repositories(project, stand_ins);
    }
    for dir in &mut facts.git {
        dir.reads = names_read(dir, &homes, &mut facts.unfollowed);
    }
    // The user's own configuration may include files of the project, whether or not that is a repository.
    let mut users = Included::new(&homes);
    for file in homes.iter().flat_map(|home| [".gitconfig", ".config/git/config"].map(|name| home.join(name))) {
        users.follow(&file, configuration(&file), 0);
    }
    facts.git_includes = users.finish(&mut facts.unfollowed);
}

fn repositories(project: &Path, stand_ins: &StandIns) -> Vec<GitDir> {
    let dot_git = project.join(".git");
    // One look: a stand-in of another session may come and go between two. It is no repository.
    let found = rustix::fs::lstat(&dot_git).ok().filter(|stat| !stand_ins.knows(&dot_git, stat));
    let Some(kind) = found.map(|stat| FileType::from_raw_mode(stat.st_mode)) else {
        return if is_repository(project) { with_children(project, GitRole::Main, None) } else { Vec::new() };
    };
    if kind == FileType::Directory {
        return with_children(&dot_git, GitRole::Main, None);
    }
    let is_file = kind == FileType::RegularFile;
    if is_file && let Some(dirs) = linked_worktree(project, &dot_git) {
        return dirs;
    }
    // Any other pointer (a link, a separate git directory) grants nothing; but what it leads to inside the project can be
    // written, and is protected like a `.git` directory.
    let target = if is_file { pointer(&dot_git, "gitdir: ") } else { Some(dot_git) };
    match target.and_then(|target| resolve(project, target)) {
        Some(target) if target.starts_with(project) && target != project => with_children(&target, GitRole::Main, None),
        _ => Vec::new(),
    }
}

/// Git stops at a socket node under `commondir`: a session that was killed made what looks like a repository there.
fn is_repository(path: &Path) -> bool {
    let is_held = rustix::fs::lstat(path.join("commondir"))
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
    !is_held && path.join("HEAD").is_file() && path.join("objects").is_dir() && path.join("refs").is_dir()
}

/// `.git` says where the worktree's entry is; the entry must say that it belongs to this project, and lie in a repository.
fn linked_worktree(project: &Path, dot_git: &Path) -> Option<Vec<GitDir>> {
    let entry = resolve(project, pointer(dot_git, "gitdir: ")?)?;
    let back = resolve(&entry, pointer(&entry.join("gitdir"), "")?)?;
    if back != dot_git.canonicalize().ok()? {
        return None;
    }
    let common = resolve(&entry, pointer(&entry.join("commondir"), "")?)?;
    let entry_is_inside = entry.parent() == Some(common.join("worktrees").as_path());
    if !entry_is_inside || !is_repository(&common) {
        return None;
    }
    let mut dirs = with_children(&common, GitRole::Common, Some(&entry));
    // Submodules of a linked worktree have repositories of their own.
    dirs.extend(submodules(&common, entry.join("modules")));
    dirs.push(GitDir::new(entry, GitRole::ThisWorktree));
    Some(dirs)
}

fn pointer(file: &Path, prefix: &str) -> Option<PathBuf> {
    let mut line = read_bytes(file, LONGEST_POINTER).ok()?.strip_prefix(prefix.as_bytes())?.to_vec();
    line.truncate(line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1));
    (!line.is_empty() && !line.contains(&b'\n')).then(|| OsString::from_vec(line).into())
}

fn resolve(base: &Path, path: PathBuf) -> Option<PathBuf> {
    base.join(path).canonicalize().ok()
}

/// A repository with its submodules' repositories and its other worktrees' entries.
fn with_children(path: &Path, role: GitRole, this_worktree: Option<&Path>) -> Vec<GitDir> {
    let mut dirs = vec![GitDir::new(path.to_path_buf(), role)];
    dirs.extend(other_worktrees(path, this_worktree));
    dirs.extend(submodules(path, path.join("modules")));
    dirs
}

fn other_worktrees(repository: &Path, this_worktree: Option<&Path>) -> Vec<GitDir> {
    let worktrees = repository.join("worktrees");
    match subdirectories(&worktrees, &mut Budget { directories: MOST + 1, names: MOST_NAMES }) {
        Some(entries) => {
            let others = entries.into_iter().filter(|entry| Some(entry.as_path()) != this_worktree);
            others.map(|entry| GitDir::new(entry, GitRole::OtherWorktree)).collect()
        }
        None => vec![GitDir::new(worktrees, GitRole::Whole)],
    }
}

/// What lies in a repository's `modules` and `worktrees` now.
pub fn children(repository: &Path) -> Vec<GitDir> {
    with_children(repository, GitRole::Main, None).split_off(1)
}

/// The repositories of submodules below a directory `modules`: those that a configuration names, and what looks like one;
/// with the entries of their worktrees.
pub fn submodules(repository: &Path, modules: PathBuf) -> Vec<GitDir> {
    let (mut found, mut budget) = (Vec::new(), Budget { directories: MOST_LISTED, names: MOST_NAMES });
    let named = named_submodules(repository, &modules, &mut found, 0);
    if named.and_then(|()| search(&modules, 0, &mut budget, &mut found)).is_none() {
        return vec![GitDir::new(modules, GitRole::Whole)];
    }
    found.sort();
    found.dedup();
    let with_worktrees = |path: PathBuf| {
        let worktrees = other_worktrees(&path, None);
        std::iter::once(GitDir::new(path, GitRole::Submodule)).chain(worktrees)
    };
    found.into_iter().flat_map(with_worktrees).collect()
}

/// The submodules that a repository's configuration names: it is protected, so no workload can take one off this list by
/// making its repository look like something else. `None` if there are too many.
fn named_submodules(repository: &Path, modules: &Path, found: &mut Vec<PathBuf>, depth: usize) -> Option<()> {
    for entry in configuration(&repository.join("config")) {
        let part = OsStr::from_bytes(&entry.part);
        let is_plain = Path::new(part).components().all(|part| matches!(part, Component::Normal(_)));
        if entry.section != "submodule" || part.is_empty() || !is_plain {
            continue;
        }
        let path = modules.join(part);
        if !found.contains(&path) && is_directory(&path) {
            if found.len() >= MOST || depth >= DEEPEST {
                return None;
            }
            found.push(path.clone());
            named_submodules(&path, &path.join("modules"), found, depth + 1)?;
        }
    }
    Some(())
}

/// Other repositories below `modules`, by their looks. `None` if there are too many, or if they lie too deep.
fn search(modules: &Path, depth: usize, budget: &mut Budget, found: &mut Vec<PathBuf>) -> Option<()> {
    for entry in subdirectories(modules, budget)? {
        if depth >= DEEPEST {
            return None;
        }
        if found.contains(&entry) || looks_like_one(&entry) {
            search(&entry.join("modules"), depth + 1, budget, found)?;
            found.push(entry);
            found.sort();
            found.dedup();
            if found.len() > MOST {
                return None;
            }
        } else {
            // A submodule's name may hold slashes.
            search(&entry, depth + 1, budget, found)?;
        }
    }
    Some(())
}

/// Also one that lacks something, which a later session could put there.
fn looks_like_one(path: &Path) -> bool {
    let is_file = |name: &str| rustix::fs::lstat(path.join(name)).is_ok_and(|stat| !is_directory_mode(&stat));
    is_file("HEAD") || is_file("config") || is_file("commondir") || is_directory(&path.join("objects"))
}

fn is_directory(path: &Path) -> bool {
    rustix::fs::lstat(path).is_ok_and(|stat| is_directory_mode(&stat))
}

fn is_directory_mode(stat: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// `None` if there are more than the budget allows, which each one lowers, or if they cannot be listed or entered now: a
/// session may have seen to that, and could undo it.
fn subdirectories(path: &Path, budget: &mut Budget) -> Option<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Some(Vec::new()),
        entries => entries.ok()?,
    };
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).ok()?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.ok()?;
        budget.names = budget.names.checked_sub(1)?;
        if !entry.file_type().ok()?.is_dir() {
            continue;
        }
        budget.directories = budget.directories.checked_sub(1)?;
        found.push(entry.path());
    }
    found.sort();
    Some(found)
}

fn configuration(path: &Path) -> Vec<Entry> {
    read_bytes(path, LONGEST_CONFIG).map(|bytes| config::parse(&bytes)).unwrap_or_default()
}

/// What else git reads because the configuration in this directory says so. The worktree's own counts whether or not git
/// looks at it now: a host program may set `extensions.worktreeConfig` at any time.
fn names_read(dir: &GitDir, homes: &[&Path], unfollowed: &mut Vec<PathBuf>) -> Vec<PathBuf> {
    let files = ["config", "config.worktree"].map(|name| dir.path.join(name));
    let entries = files.each_ref().map(|file| configuration(file));
    let mut included = Included::new(homes);
    if dir.role == GitRole::Submodule {
        // The file in its working tree that leads to it.
        let is_place = |entry: &&Entry| (entry.section.as_str(), entry.key.as_str()) == ("core", "worktree");
        let places = entries.iter().flatten().filter(is_place);
        let worktrees = places.filter_map(|entry| resolve(&dir.path, OsString::from_vec(entry.value.clone()).into()));
        included.names.extend(worktrees.map(|at| at.join(".git")));
    }
    for (file, entries) in files.iter().zip(entries) {
        included.follow(file, entries, 0);
    }
    included.finish(unfollowed)
}

/// Files that configurations include, whatever the condition: a condition may come true while a session runs.
struct Included<'a> {
    homes: &'a [&'a Path],
    names: Vec<PathBuf>,
    /// Configurations that include more than is followed.
    cut: Vec<PathBuf>,
}

impl<'a> Included<'a> {
    fn new(homes: &'a [&'a Path]) -> Self {
        Included { homes, names: Vec::new(), cut: Vec::new() }
    }

    fn finish(self, unfollowed: &mut Vec<PathBuf>) -> Vec<PathBuf> {
        unfollowed.extend(self.cut);
        self.names
    }

    fn follow(&mut self, file: &Path, entries: Vec<Entry>, depth: usize) {
        for entry in entries {
            let is_include = matches!(entry.section.as_str(), "include" | "includeif") && entry.key == "path";
            let Some(parent) = file.parent().filter(|_| is_include) else { continue };
            // `~name/` leads to one of the homes, if it leads to anything that a session can write.
            let slash = entry.value.iter().position(|byte| *byte == b'/').filter(|_| entry.value.starts_with(b"~"));
            let targets: Vec<PathBuf> = match slash.and_then(|at| entry.value.get(at + 1..)) {
                Some(rest) => self.homes.iter().map(|home| home.join(OsStr::from_bytes(rest))).collect(),
                None => vec![parent.join(OsStr::from_bytes(&entry.value))],
            };
            for target in targets {
                if self.names.contains(&target) {
                    continue;
                }
                if self.names.len() >= MOST_INCLUDED || depth >= DEEPEST_INCLUDE {
                    if !self.cut.iter().any(|known| known == file) {
                        self.cut.push(file.to_path_buf());
                    }
                    continue;
                }
                self.names.push(target.clone());
                let real = target.canonicalize().unwrap_or_else(|_| target.clone());
                self.follow(&target, configuration(&real), depth + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_in(project: &Path) -> HostFacts {
        let (home, project) = (project.join("home"), Some(project.to_path_buf()));
        let stand_ins = StandIns::of(&home.join("state"));
        let mut facts = HostFacts { home, project, ..HostFacts::default() };
        look(&mut facts, &stand_ins);
        facts
    }

    #[test]
    fn a_configuration_that_includes_more_than_is_followed_is_said() {
        let project = crate::memory::tests::scene("git-includes");
        let write = |name: &str, text: &str| {
            let path = project.join(name);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("writable");
            std::fs::write(path, text).expect("writable");
        };
        let include = |n: usize| format!("[include]\n\tpath = {n}\n");
        let includes = |many: usize| (0..many).map(include).collect::<Vec<_>>().concat();
        write("home/.gitconfig", &includes(MOST_INCLUDED));
        let facts = look_in(&project);
        assert_eq!((facts.git_includes.len(), facts.unfollowed.len()), (MOST_INCLUDED, 0));
        write("home/.gitconfig", &includes(MOST_INCLUDED + 2));
        assert_eq!(look_in(&project).unfollowed, [project.join("home/.gitconfig")]);
        write("home/.gitconfig", "[include]\n\tpath = d0\n");
        for depth in 0..=DEEPEST_INCLUDE {
            write(&format!("home/d{depth}"), &format!("[include]\n\tpath = d{}\n", depth + 1));
        }
        assert_eq!(look_in(&project).unfollowed, [project.join(format!("home/d{}", DEEPEST_INCLUDE - 1))]);
        write(".git/config", &includes(MOST_INCLUDED + 1));
        assert!(look_in(&project).unfollowed.contains(&project.join(".git/config")));
        std::fs::remove_dir_all(project).expect("ours");
    }

    #[test]
    fn any_number_of_files_among_submodules_or_worktrees_protects_them_whole() {
        let project = crate::memory::tests::scene("git-files");
        for name in ["modules", "worktrees"] {
            let directory = project.join(".git").join(name);
            std::fs::create_dir_all(directory.join("one/objects")).expect("writable");
            for number in 0..5000 {
                std::fs::write(directory.join(number.to_string()), "").expect("writable");
            }
        }
        let dirs = look_in(&project).git;
        for name in ["modules", "worktrees"] {
            let whole = project.join(".git").join(name);
            assert!(dirs.iter().any(|dir| dir.role == GitRole::Whole && dir.path == whole), "{dirs:?}");
        }
        std::fs::remove_dir_all(project).expect("ours");
    }

    #[test]
    fn a_configuration_that_is_no_text_names_submodules_and_files_all_the_same() {
        let project = crate::memory::tests::scene("git-bytes");
        let git = project.join(".git");
        let submodule = git.join("modules").join(OsStr::from_bytes(b"a\xff"));
        std::fs::create_dir_all(&submodule).expect("writable");
        let config = b"[user]\n\tname = J\xe9r\xf4me\n[submodule \"a\xff\"]\n\turl = x\n[include]\n\tpath = ../b\xfe\n";
        std::fs::write(git.join("config"), config).expect("writable");
        let dirs = look_in(&project).git;
        assert!(dirs.iter().any(|dir| dir.role == GitRole::Submodule && dir.path == submodule), "{dirs:?}");
        let included = git.join("..").join(OsStr::from_bytes(b"b\xfe"));
        assert!(dirs.iter().any(|dir| dir.role == GitRole::Main && dir.reads.contains(&included)), "{dirs:?}");
        std::fs::remove_file(git.join("config")).expect("ours");
        std::fs::rename(&git, project.join(OsStr::from_bytes(b"r\xff"))).expect("ours");
        std::fs::write(&git, b"gitdir: r\xff\n").expect("writable");
        let dirs = look_in(&project).git;
        assert!(dirs.iter().any(|dir| dir.path == project.join(OsStr::from_bytes(b"r\xff"))), "{dirs:?}");
        std::fs::remove_dir_all(project).expect("ours");
    }
}
