//! What git on the host obeys, compared between the beginning and the end of a session (docs/decisions/0032). Owns the words
//! about it; the names are `profiles/protect.toml`'s. Protects and removes nothing. Called by `supervisor::launch`.

use std::path::{Path, PathBuf};

use cofferdam_kernel::file::read_text;
use cofferdam_plan::{GitDir, GitRole, HostFacts};
use cofferdam_policy::{ObeyedClass, Policy, obeyed_names};
use rustix::fs::Stat;

use crate::git;
use crate::obeyed::{ObeyedFile, direct_project};
use crate::stand_ins::StandIns;

/// A file that `git rebase --continue` or its like goes on with.
struct Continued {
    name: &'static str,
    names_programs: fn(&str) -> bool,
    told: &'static str,
}

/// A strategy `NAME` is the program `git-merge-NAME`, which a `../` in it makes one of the project.
const CONTINUED: [Continued; 3] = [
    Continued {
        name: "rebase-merge/git-rebase-todo",
        names_programs: has_exec,
        told: "names programs now (lines with exec): `git rebase --continue` would run them; `git rebase --edit-todo` shows them",
    },
    Continued {
        name: "rebase-merge/strategy",
        names_programs: is_strange_strategy,
        told: "names a merge strategy that is not one of git's own: `git rebase --continue` would run a program for it",
    },
    Continued {
        name: "sequencer/opts",
        names_programs: sets_strange_strategy,
        told: "names a merge strategy that is not one of git's own: `git cherry-pick --continue` would run a program for it",
    },
];

/// Whether it is one of those files, in whichever repository.
pub fn is_continued(path: &Path) -> bool {
    let in_git = path.iter().any(|part| part.eq_ignore_ascii_case(".git"));
    in_git && CONTINUED.iter().any(|continued| path.ends_with(continued.name))
}

const STRATEGIES: [&str; 7] = ["octopus", "ort", "ours", "recursive", "resolve", "subtree", "theirs"];

/// Most submodules and most hooks of a repository that are compared; they are protected all the same.
const MOST: usize = 64;

const LONGEST_HEAD: u64 = 1 << 12;
const LONGEST_TODO: u64 = 1 << 20;

/// What is compared of a file: who replaces or writes it cannot keep all of these.
pub(crate) type Stamp = (u64, u64, u32, i64, i64, i64, i64, i64);

/// What was there when the session started.
#[derive(Debug)]
pub struct GitNames {
    stand_ins: StandIns,
    obeyed: Vec<(PathBuf, Option<Stamp>)>,
    continued: Vec<(PathBuf, Option<Stamp>)>,
    heads: Vec<(PathBuf, String)>,
    project: PathBuf,
    dirs: Vec<GitDir>,
}

impl GitNames {
    /// Nothing where the session cannot write to the project.
    pub fn look(policy: &Policy, facts: &HostFacts, state: &Path) -> Option<Self> {
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
            continued: dirs.iter().flat_map(|dir| CONTINUED.map(|file| stamped(dir.path.join(file.name)))).collect(),
            // The common directory of a linked worktree has a `HEAD` of its own, too.
            heads: dirs.iter().filter(has_head).filter_map(head).collect(),
            obeyed: obeyed.into_iter().map(stamped).collect(),
            project,
            dirs: facts.git.clone(),
            stand_ins,
        })
    }

    /// What is different now, in words.
    pub fn differences(&self) -> Vec<String> {
        let mut told = Vec::new();
        for (path, before) in &self.obeyed {
            let what = match (before, stamp(path, &self.stand_ins)) {
                (None, Some(_)) => "was made",
                (Some(_), None) => "was removed or made unreadable",
                (Some(before), Some(after)) if *before != after => "was changed",
                _ => continue,
            };
            told.push(format!(
                "{} {what} while the session ran, and git obeys it: look at it before you run git",
                path.display()
            ));
        }
        for ((path, before), file) in self.continued.iter().zip(CONTINUED.iter().cycle()) {
            let now = stamp(path, &self.stand_ins);
            // What cannot be read is told as well.
            if now.is_some()
                && now != *before
                && !read_text(path, LONGEST_TODO).is_ok_and(|text| !(file.names_programs)(&text))
            {
                told.push(format!("{} {}", path.display(), file.told));
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
    pub fn made(&self) -> Vec<ObeyedFile> {
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

fn stamp(path: &Path, stand_ins: &StandIns) -> Option<Stamp> {
    rustix::fs::lstat(path).ok().filter(|stat| !stand_ins.knows(path, stat)).map(|stat| stamp_of(&stat))
}

pub(crate) fn stamp_of(stat: &Stat) -> Stamp {
    let time = |seconds: i64, nanoseconds: u64| (seconds, i64::try_from(nanoseconds).unwrap_or_default());
    let (modified, changed) = (time(stat.st_mtime, stat.st_mtime_nsec), time(stat.st_ctime, stat.st_ctime_nsec));
    (stat.st_dev, stat.st_ino, stat.st_mode, stat.st_size, modified.0, modified.1, changed.0, changed.1)
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

fn has_exec(todo: &str) -> bool {
    todo.lines().filter_map(|line| line.split_whitespace().next()).any(|word| matches!(word, "exec" | "x"))
}

fn is_strange_strategy(name: &str) -> bool {
    !STRATEGIES.contains(&name.trim())
}

/// Any line of a configuration that could set it.
fn sets_strange_strategy(options: &str) -> bool {
    options.lines().map(str::to_ascii_lowercase).filter(|line| line.contains("strategy")).any(|line| {
        let (key, value) = line.split_once('=').unwrap_or((&line, ""));
        let key = key.trim_start().strip_prefix("[options]").unwrap_or(key).trim();
        key != "strategy-option" && is_strange_strategy(value.trim().trim_matches('"'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_is_told_by_its_key_alone() {
        for (options, is_strange) in [
            ("[options]\n\tstrategy = ort\n\tstrategy-option = theirs\n", false),
            ("[options] strategy-option = strategy\n", false),
            ("[options]\n\tstrategy = ../../../evil\n", true),
            ("[options]\n\tstrategy = ../../../evil ; strategy-option\n", true),
            ("[options] strategy = ../evil # strategy-option\n", true),
            ("[x \"strategy-option = \"] [options] strategy = ../evil\n", true),
            ("[options]\n\tstrategy\n", true),
        ] {
            assert_eq!(sets_strange_strategy(options), is_strange, "{options}");
        }
    }
}
