//! What git on the host obeys, compared between the beginning and the end of a session (docs/decisions/0032). Owns the words
//! about it; the names are `profiles/protect.toml`'s. Protects nothing, and puts only a `HEAD` aside that made a project a
//! repository. Called by `launch`, and by `holds` before it lets go of a project's names.

use std::path::{Path, PathBuf};

use cofferdam_kernel::file::read_text;
use cofferdam_plan::{GitDir, GitRole, HostFacts};
use cofferdam_policy::{Policy, obeyed_names};
use rustix::fs::{CWD, RenameFlags, Stat};

use crate::obeyed::direct_project;
use crate::stand_ins::StandIns;

/// What `git rebase --continue` goes on with.
const TODO: &str = "rebase-merge/git-rebase-todo";

/// Where a `HEAD` goes that made the project's own directory a repository.
const SET_ASIDE: &str = "HEAD.set-aside";

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
    project: PathBuf,
    obeyed: Vec<(PathBuf, Option<Stamp>)>,
    todos: Vec<(PathBuf, Option<Stamp>)>,
    heads: Vec<(PathBuf, String)>,
    has_set_aside: bool,
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
        obeyed.sort();
        obeyed.dedup();
        let stamped = |path: PathBuf| {
            let stamp = stamp(&path, &stand_ins);
            (path, stamp)
        };
        let has_head = |dir: &&&GitDir| dir.role != GitRole::Submodule;
        let head = |dir: &&GitDir| Some((dir.path.clone(), head_of(&dir.path)?));
        Some(GitNames {
            has_set_aside: exists(&project.join(SET_ASIDE)),
            todos: dirs.iter().filter(has_head).map(|dir| stamped(dir.path.join(TODO))).collect(),
            // The common directory of a linked worktree has a `HEAD` of its own, too.
            heads: dirs.iter().filter(has_head).filter_map(head).collect(),
            obeyed: obeyed.into_iter().map(stamped).collect(),
            project,
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
        if !self.has_set_aside && exists(&self.project.join(SET_ASIDE)) {
            told.push(format!(
                "a HEAD was made in {}, which made it a repository of its own to git: it is now {SET_ASIDE}; look at it and at `config` and `hooks` there",
                self.project.display()
            ));
        }
        told
    }
}

/// Whether a directory that is no repository could become one without a name that is held: both others are there.
pub(crate) fn may_become_a_repository(project: &Path) -> bool {
    !exists(&project.join("HEAD")) && is_directory(&project.join("objects")) && is_directory(&project.join("refs"))
}

/// Takes the `HEAD` away that would make it one once its names are held no longer.
pub(crate) fn set_head_aside(project: &Path) {
    if !exists(&project.join("HEAD")) || !is_directory(&project.join("objects")) || !is_directory(&project.join("refs"))
    {
        return;
    }
    let (from, to) = (project.join("HEAD"), project.join(SET_ASIDE));
    if rustix::fs::renameat_with(CWD, &from, CWD, &to, RenameFlags::NOREPLACE).is_err() {
        // One of an earlier session is there: the newer one takes its place.
        crate::message::best_effort(rustix::fs::rename(&from, &to), "it is told as what it is: a change of HEAD");
    }
}

fn exists(path: &Path) -> bool {
    rustix::fs::lstat(path).is_ok()
}

/// Through links: git follows them, too.
fn is_directory(path: &Path) -> bool {
    path.is_dir()
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
fn head_of(dir: &Path) -> Option<String> {
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
