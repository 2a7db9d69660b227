//! What git on the host obeys, compared between the beginning and the end of a session (docs/decisions/0032). Owns the words
//! about it; the names are `profiles/protect.toml`'s. Protects and removes nothing. Called by `launch`.

use std::path::{Path, PathBuf};

use cofferdam_kernel::file::read_text;
use cofferdam_plan::{GitDir, GitRole, HostFacts};
use cofferdam_policy::{ObeyedClass, Policy, obeyed_names};
use rustix::fs::Stat;

use crate::git;
use crate::obeyed::{ObeyedFile, direct_project};
use crate::stand_ins::StandIns;

/// What `git rebase --continue` goes on with.
const TODO: &str = "rebase-merge/git-rebase-todo";

/// Most submodules and most hooks of a repository that are compared; they are protected all the same.
const MOST: usize = 64;

const LONGEST_HEAD: u64 = 1 << 12;
const LONGEST_TODO: u64 = 1 << 20;

/// What is compared of a file: who replaces or writes it cannot keep all of these.
type Stamp = (u64, u64, u32, i64, i64, i64, i64, i64);

/// What was there when the session started.
#[derive(Debug)]
pub(crate) struct GitNames {
    stand_ins: StandIns,
    obeyed: Vec<(PathBuf, Option<Stamp>)>,
    todos: Vec<(PathBuf, Option<Stamp>)>,
    heads: Vec<(PathBuf, String)>,
    project: PathBuf,
    dirs: Vec<GitDir>,
}

impl GitNames {
    /// Nothing where the session cannot write to the project.
    pub(crate) fn look(policy: &Policy, facts: &HostFacts, state: &Path) -> Option<Self> {
        let project = direct_project(policy, facts)?.to_path_buf();
        let stand_ins = StandIns::of(state);
        let is_compared = |dir: &&GitDir| !matches!(dir.role, GitRole::OtherWorktree | GitRole::Whole);
        let dirs: Vec<&GitDir> = facts.git.iter().filter(is_compared).take(MOST).collect();
        let mut obeyed: Vec<PathBuf> = Vec::new();
        for dir in &dirs {
            obeyed.extend(obeyed_names().filter(|name| name.in_git).map(|name| dir.path.join(name.name)));
            obeyed.extend(hooks_in(&dir.path));
            obeyed.extend(dir.reads.iter().cloned());
        }
        obeyed.extend(facts.git_includes.iter().cloned());
        obeyed.sort();
        obeyed.dedup();
        let stamped = |path: PathBuf| {
            let stamp = stamp(&path, &stand_ins);
            (path, stamp)
        };
        let has_head = |dir: &&&GitDir| dir.role != GitRole::Submodule;
        let head = |dir: &&GitDir| Some((dir.path.clone(), head_of(&dir.path)?));
        Some(GitNames {
            todos: dirs.iter().filter(has_head).map(|dir| stamped(dir.path.join(TODO))).collect(),
            // The common directory of a linked worktree has a `HEAD` of its own, too.
            heads: dirs.iter().filter(has_head).filter_map(head).collect(),
            obeyed: obeyed.into_iter().map(stamped).collect(),
            project,
            dirs: facts.git.clone(),
            stand_ins,
        })
    }

    /// What is different now, in words.
    pub(crate) fn differences(&self) -> Vec<String> {
        let mut told = Vec::new();
        for (path, before) in &self.obeyed {
            let what = match (before, stamp(path, &self.stand_ins)) {
                (None, Some(_)) => "was made",
                (Some(_), None) => "was removed",
                (Some(before), Some(after)) if *before != after => "was changed",
                _ => continue,
            };
            told.push(format!(
                "{} {what} while the session ran, and git obeys it: look at it before you run git",
                path.display()
            ));
        }
        for (path, before) in &self.todos {
            if stamp(path, &self.stand_ins) != *before && has_programs(path) {
                told.push(format!(
                    "{} names programs now (lines with exec): `git rebase --continue` would run them; `git rebase --edit-todo` shows them",
                    path.display()
                ));
            }
        }
        for (path, before) in &self.heads {
            if head_of(path).is_none() {
                told.push(format!(
                    "{} is no repository any more, its HEAD is gone or means nothing; it was `{before}`: put that into {}",
                    path.display(),
                    path.join("HEAD").display()
                ));
            }
        }
        told
    }
}

impl GitNames {
    /// Repositories of submodules and entries of worktrees that were made. The host's `git submodule update --init` takes one
    /// that is there, with its configuration; no name of theirs could be protected.
    pub(crate) fn made(&self) -> Vec<ObeyedFile> {
        let of_role =
            |role: GitRole| self.dirs.iter().filter(move |dir| dir.role == role).map(|dir| dir.path.as_path());
        let tops = of_role(GitRole::Main).chain(of_role(GitRole::Common));
        let mut now: Vec<GitDir> = tops.clone().flat_map(git::children).collect();
        for (top, entry) in tops.zip(of_role(GitRole::ThisWorktree)) {
            now.extend(git::submodules(top, entry.join("modules")));
        }
        now.retain(|dir| !self.dirs.iter().any(|known| known.path == dir.path));
        let file = |dir: GitDir| ObeyedFile {
            class: ObeyedClass::Opens,
            why: match dir.role {
                GitRole::OtherWorktree => "the entry of a worktree made inside: it says which repository git obeys",
                GitRole::Whole => {
                    "more repositories made inside than are looked at: git obeys their configuration and hooks"
                }
                _ => "a repository made inside: git obeys its configuration and hooks",
            },
            path: dir.path.strip_prefix(&self.project).unwrap_or(&dir.path).to_path_buf(),
        };
        now.into_iter().map(file).collect()
    }
}

fn exists(path: &Path) -> bool {
    rustix::fs::lstat(path).is_ok()
}

fn stamp(path: &Path, stand_ins: &StandIns) -> Option<Stamp> {
    let stat: Stat = rustix::fs::lstat(path).ok().filter(|stat| !stand_ins.knows(path, stat))?;
    let time = |seconds: i64, nanoseconds: u64| (seconds, i64::try_from(nanoseconds).unwrap_or_default());
    let (modified, changed) = (time(stat.st_mtime, stat.st_mtime_nsec), time(stat.st_ctime, stat.st_ctime_nsec));
    Some((stat.st_dev, stat.st_ino, stat.st_mode, stat.st_size, modified.0, modified.1, changed.0, changed.1))
}

/// Files that git would run; a sample it does not.
fn hooks_in(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir.join("hooks")) else { return Vec::new() };
    let hooks = entries.filter_map(Result::ok).map(|entry| entry.path());
    hooks.filter(|path| path.extension().is_none_or(|extension| extension != "sample")).take(MOST).collect()
}

/// What `HEAD` says, if git takes it for one.
pub(crate) fn head_of(dir: &Path) -> Option<String> {
    let path = dir.join("HEAD");
    let text = match std::fs::read_link(&path) {
        Ok(target) => format!("ref: {}", target.display()),
        Err(_) => read_text(&path, LONGEST_HEAD).ok()?,
    };
    let text = text.trim();
    let is_reference = text.strip_prefix("ref:").is_some_and(|name| name.trim().starts_with("refs/"));
    let is_commit = text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_reference || is_commit).then(|| text.to_owned())
}

/// A todo that cannot be read is told as well.
fn has_programs(path: &Path) -> bool {
    if !exists(path) {
        return false;
    }
    let Ok(text) = read_text(path, LONGEST_TODO) else { return true };
    text.lines().filter_map(|line| line.split_whitespace().next()).any(|word| matches!(word, "exec" | "x"))
}
