//! Which hidden files of the project say no more than its repository does (docs/decisions/0027). Owns the question "is this
//! file's content, byte by byte, what git's index names for it and its object store holds"; what follows from a yes is the
//! plan's. Called by `survey`, and by `cli` after a session.
//!
//! Whatever is read here may have been made by a session. An object counts only by its bytes, never by its name, so a forged
//! index or object shows nothing that its maker did not know.

mod index;
mod objects;
mod reading;
mod tips;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cofferdam_kernel::file::read_text;
use cofferdam_kernel::mount::open_source;
use cofferdam_plan::{Decision, GitDir, GitRole, Hold, HoldKind, HostFacts, LaunchPlan, TrackedFile, decide};
use cofferdam_policy::Access;
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::git::changes::{Stamp, stamp_of};

use objects::Kind;
use reading::{Budget, WITHIN, open_file, read_file};

pub(crate) use index::Entry;

const LONGEST_CONFIG: u64 = 1 << 16;

/// Files that a shipped list hides and that are shown all the same, because git has them, as they were when the session
/// started. Nothing covers them, so what a program of the host writes there is read.
#[derive(Debug, Default)]
pub struct Shown(Vec<(PathBuf, Stamp)>);

impl Shown {
    pub fn look(decisions: &[Decision], facts: &HostFacts) -> Self {
        let is_hidden = |path: &Path| decisions.iter().any(|one| one.path == path && one.access <= Access::Mask);
        let shown = facts.tracked.iter().filter(|file| file.object.is_some() && !is_hidden(&file.path));
        let stamped = |file: &TrackedFile| {
            let stat = rustix::fs::lstat(&file.path).ok()?;
            Some((file.path.clone(), stamp_of(&stat)))
        };
        Shown(shown.filter_map(stamped).collect())
    }

    /// What changed, in words, whichever process changed it.
    pub fn differences(&self) -> Vec<String> {
        let is_same =
            |path: &Path, before: &Stamp| rustix::fs::lstat(path).is_ok_and(|stat| stamp_of(&stat) == *before);
        let changed = self.0.iter().filter(|(path, before)| !is_same(path, before));
        changed
            .map(|(path, _)| {
                format!(
                    "{} was shown because git has it word for word, and changed while the session ran: what a program of \
                     the host wrote there may have been read",
                    path.display()
                )
            })
            .collect()
    }
}

/// The parts of a repository that are read, on descriptors: no link in it leads anywhere else.
#[derive(Debug)]
pub(crate) struct Repository {
    project: PathBuf,
    /// Where the index lies: the repository, or this worktree's entry in it.
    here: OwnedFd,
    /// Where branches and objects are.
    common: OwnedFd,
    objects: OwnedFd,
    objects_at: PathBuf,
    /// Bytes of a name of an object.
    width: usize,
    budget: Budget,
}

impl Repository {
    pub(crate) fn open(project: &Path, git: &[GitDir]) -> Option<Repository> {
        let with = |roles: &[GitRole]| git.iter().find(|dir| roles.contains(&dir.role)).map(|dir| &dir.path);
        let common = with(&[GitRole::Main, GitRole::Common])?;
        let here = with(&[GitRole::ThisWorktree]).unwrap_or(common);
        // A repository that the project itself is has no files beside it.
        if common == project {
            return None;
        }
        let objects_at = common.join("objects");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let common_at = open_source(common).ok()?;
        let objects = rustix::fs::openat2(&common_at, "objects", flags, Mode::empty(), WITHIN).ok()?;
        let config = read_text(&common.join("config"), LONGEST_CONFIG).unwrap_or_default().to_ascii_lowercase();
        let is_long = config.lines().any(|line| line.trim().starts_with("objectformat") && line.contains("sha256"));
        let width = if is_long { 32 } else { 20 };
        let (project, here, budget) = (project.to_path_buf(), open_source(here).ok()?, Budget::new());
        Some(Repository { project, here, common: common_at, objects, objects_at, width, budget })
    }

    /// The regular files of the index at or below these paths of the project; none where it cannot be read.
    pub(crate) fn entries(&self, paths: &[&Path]) -> Vec<Entry> {
        let names = paths.iter().filter_map(|path| path.strip_prefix(&self.project).ok());
        let wanted: Vec<&[u8]> =
            names.map(|name| name.as_os_str().as_bytes()).filter(|name| !name.is_empty()).collect();
        let file = (!wanted.is_empty()).then(|| open_file(&self.here, Path::new("index"))).flatten();
        file.and_then(|file| index::read(file, &wanted, self.width, &self.budget)).unwrap_or_default()
    }

    pub(crate) fn path_of(&self, entry: &Entry) -> PathBuf {
        self.project.join(std::ffi::OsStr::from_bytes(&entry.name))
    }

    /// The file of the object store in which the content of `path` lies as the object that the entry names.
    pub(crate) fn holds(&self, entry: &Entry) -> Option<PathBuf> {
        let content = read_file(&self.path_of(entry))?;
        let (at, bytes) = objects::find(&self.objects, Kind::Blob, &entry.object, &self.budget)?;
        (bytes == content).then(|| self.objects_at.join(at))
    }

    /// Whether git has entered another version than the file has, and could not write it: it knows no times of the file.
    fn is_unwritten(&self, entry: &Entry) -> bool {
        let path = self.path_of(entry);
        let object = objects::find(&self.objects, Kind::Blob, &entry.object, &self.budget);
        entry.is_unseen && object.is_some_and(|(_, bytes)| read_file(&path).is_none_or(|content| content != bytes))
    }

    /// Of these paths those that git has entered, with the object that holds a file's bytes.
    pub(crate) fn tracked(&self, paths: &[&Path]) -> Vec<TrackedFile> {
        let wanted: HashSet<&Path> = paths.iter().copied().collect();
        let entries = self.entries(paths);
        let known = entries.iter().filter(|entry| wanted.contains(self.path_of(entry).as_path()));
        known.map(|entry| TrackedFile { path: self.path_of(entry), object: self.holds(entry) }).collect()
    }

    /// Names at the root that no session may make, and that git may have to make for a branch.
    fn held_of_branches(&self, holds: &[Hold]) -> Vec<Unserved> {
        let is_file_of_git = |hold: &&Hold| hold.kind == HoldKind::Socket || hold.path.ends_with(".git");
        let own = holds.iter().filter(|hold| !is_file_of_git(hold) && hold.path.parent() == Some(&self.project));
        let held: Vec<&OsStr> = own.filter_map(|hold| hold.path.file_name()).collect();
        if held.is_empty() {
            return Vec::new();
        }
        let known = tips::root_names(&self.common, &self.objects, self.width, &self.budget);
        let met = held.into_iter().filter(|name| known.contains(*name));
        met.map(|name| Unserved { name: name.into(), why: Unmet::Held }).collect()
    }

    /// Whether git has written one of these names here since; an empty one is the directory itself.
    fn is_written_since(&self, names: &[&str], start: SystemTime) -> bool {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
        let stats = names.iter().filter_map(|name| rustix::fs::statat(&self.here, *name, flags).ok());
        stats.into_iter().any(|stat| {
            let seconds = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
            SystemTime::UNIX_EPOCH + seconds + Duration::from_nanos(stat.st_mtime_nsec) >= start
        })
    }
}

/// A file that git's index names and that git inside could not work on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    /// Relative to the project.
    pub name: PathBuf,
    pub why: Unmet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmet {
    /// It is hidden, and differs from what git has.
    Hidden,
    /// It is masked, and differs from what git has: git inside reads the masked text.
    Masked,
    /// It is protected, and git has entered a version that it could not write.
    Unwritten,
    /// It is protected, and the command failed: git may have stopped half-way because of it.
    Stopped,
    /// The same for one that is missing and cannot be made, and that a branch has.
    Held,
}

/// What git met in a session that began at `start`, and whose command failed or not.
pub fn unserved(plan: &LaunchPlan, facts: &HostFacts, start: SystemTime, failed: bool) -> Vec<Unserved> {
    let Some(project) = facts.project.as_deref() else { return Vec::new() };
    let is_about = |decision: &&Decision| {
        let in_git = facts.git.iter().any(|git| decision.path.starts_with(&git.path));
        decision.access < Access::Read && decision.path.starts_with(project) && !in_git
    };
    let paths: Vec<&Path> = plan.decisions.iter().filter(is_about).map(|decision| decision.path.as_path()).collect();
    let Some(repository) = Repository::open(project, &facts.git) else { return Vec::new() };
    if paths.is_empty() || !repository.is_written_since(&["", "index"], start) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for entry in repository.entries(&paths) {
        let path = repository.path_of(&entry);
        let why = match decide(&plan.decisions, &path).map(|rule| rule.access) {
            Some(Access::Mask) if repository.holds(&entry).is_none() => Unmet::Masked,
            Some(Access::Deny) if repository.holds(&entry).is_none() => Unmet::Hidden,
            Some(Access::Protect) if repository.is_unwritten(&entry) => Unmet::Unwritten,
            Some(Access::Protect) if failed && changes_by_git(&plan.command.argv) => Unmet::Stopped,
            _ => continue,
        };
        // What could not be looked at in time is not spoken of.
        if repository.budget.is_spent() {
            break;
        }
        found.extend(path.strip_prefix(project).ok().map(|name| Unserved { name: name.to_path_buf(), why }));
    }
    if failed && changes_by_git(&plan.command.argv) {
        found.extend(repository.held_of_branches(&plan.holds));
    }
    found
}

/// Commands of git that change files of the project.
const CHANGING: &[&str] = &[
    "am",
    "apply",
    "bisect",
    "checkout",
    "cherry-pick",
    "merge",
    "pull",
    "rebase",
    "reset",
    "restore",
    "revert",
    "stash",
    "switch",
];

/// Whether a command line has git in it, and a command that changes files: the launch itself makes names in the repository,
/// so its times say too little.
fn changes_by_git(argv: &[String]) -> bool {
    let is_no_part = |c: char| !c.is_alphanumeric() && !"._-".contains(c);
    let has =
        |meant: &[&str]| argv.iter().flat_map(|argument| argument.split(is_no_part)).any(|word| meant.contains(&word));
    has(&["git"]) && has(CHANGING)
}

#[cfg(test)]
mod tests;
