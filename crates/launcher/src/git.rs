//! Where the project's git directories are. Owns the reading of `.git` files and the check that a linked worktree's
//! pointers agree in both directions: a pointer alone proves nothing (corpus E14). Called by `survey`.

use std::path::{Path, PathBuf};

use cofferdam_kernel::file::read_text;
use cofferdam_plan::{GitDir, GitRole};
use rustix::fs::FileType;

use crate::holds;

/// Most submodules and worktrees looked at: a repository with more gets the rest protected as a whole.
const MOST: usize = 64;

/// A path with its prefix; git's own limit is the same.
const LONGEST_POINTER: u64 = 1 << 16;

pub(crate) fn git_dirs(project: &Path) -> Vec<GitDir> {
    let dot_git = project.join(".git");
    // One look: a stand-in of another session may come and go between two. It is no repository.
    let found = rustix::fs::lstat(&dot_git).ok().filter(|stat| !holds::is_stand_in(stat));
    let Some(kind) = found.map(|stat| FileType::from_raw_mode(stat.st_mode)) else {
        return if is_repository(project) {
            with_children(project.to_path_buf(), GitRole::Main, None)
        } else {
            Vec::new()
        };
    };
    if kind == FileType::Directory {
        return with_children(dot_git, GitRole::Main, None);
    }
    let is_file = kind == FileType::RegularFile;
    if is_file && let Some(dirs) = linked_worktree(project, &dot_git) {
        return dirs;
    }
    // Any other pointer (a link, a separate git directory) grants nothing; but what it leads to inside the project can be
    // written, and is protected like a `.git` directory.
    let target = if is_file { pointer(&dot_git, "gitdir: ") } else { Some(dot_git) };
    match target.and_then(|target| resolve(project, target)) {
        Some(target) if target.starts_with(project) && target != project => with_children(target, GitRole::Main, None),
        _ => Vec::new(),
    }
}

fn is_repository(path: &Path) -> bool {
    path.join("HEAD").is_file() && path.join("objects").is_dir() && path.join("refs").is_dir()
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
    let mut dirs = with_children(common, GitRole::Common, Some(&entry));
    dirs.push(GitDir { path: entry, role: GitRole::ThisWorktree });
    Some(dirs)
}

fn pointer(file: &Path, prefix: &str) -> Option<PathBuf> {
    let text = read_text(file, LONGEST_POINTER).ok()?;
    let line = text.strip_prefix(prefix)?.trim_end_matches(['\n', '\r']);
    (!line.is_empty() && !line.contains('\n')).then(|| PathBuf::from(line))
}

fn resolve(base: &Path, path: PathBuf) -> Option<PathBuf> {
    base.join(path).canonicalize().ok()
}

/// A repository with its submodules' repositories and its other worktrees' entries.
fn with_children(path: PathBuf, role: GitRole, this_worktree: Option<&Path>) -> Vec<GitDir> {
    let mut dirs = Vec::new();
    for entry in subdirectories(&path.join("worktrees")) {
        if Some(entry.as_path()) != this_worktree {
            dirs.push(GitDir { path: entry, role: GitRole::OtherWorktree });
        }
    }
    collect_submodules(&path.join("modules"), 0, &mut dirs);
    dirs.insert(0, GitDir { path, role });
    dirs
}

fn collect_submodules(modules: &Path, depth: usize, dirs: &mut Vec<GitDir>) {
    for entry in subdirectories(modules) {
        if dirs.len() >= MOST {
            return;
        }
        if is_repository(&entry) {
            collect_submodules(&entry.join("modules"), depth + 1, dirs);
            dirs.push(GitDir { path: entry, role: GitRole::Submodule });
        } else if depth < 4 {
            // A submodule's name may hold slashes.
            collect_submodules(&entry, depth + 1, dirs);
        }
    }
}

fn subdirectories(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
        .map(|e| e.path())
        .take(MOST)
        .collect();
    found.sort();
    found
}
