//! Links that a session leaves in a git directory where git on the host writes in place: it follows them, and would write
//! what the session chose into any file of the user (docs/decisions/0032). Owns the walk, its bounds and the removal. Called
//! by `supervisor::store` when no process is left inside, before held names are let go of.
//!
//! What lies there was made by the workload: every directory is opened below the git directory and without following links.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_kernel::mount::open_source;
use cofferdam_plan::{GitRole, HostFacts};
use cofferdam_policy::Policy;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::obeyed::{Start, direct_project};

/// Entries of one git directory that are looked at.
const MOST_ENTRIES: usize = 100_000;

/// Of each kind of message so many are told one by one; the rest is counted.
const MOST_NAMED: usize = 16;

/// What git replaces by a rename there and never writes through a link (`HEAD`, `refs`), what it names itself (`objects`), what
/// a session cannot write (`hooks`), and the stores of extensions.
const PASSED_BY: [&[u8]; 6] = [b"HEAD", b"refs", b"objects", b"hooks", b"lfs", b"annex"];

/// What git itself writes in place in every git directory, or replaces where a link leads. These are looked at by name, before
/// anything is listed: a session can make more names than are listed.
const WRITTEN: &[&str] = &[
    "ADD_EDIT.patch",
    "AUTO_MERGE",
    "BISECT_ANCESTORS_OK",
    "BISECT_EXPECTED_REV",
    "BISECT_FIRST_PARENT",
    "BISECT_HEAD",
    "BISECT_LOG",
    "BISECT_NAMES",
    "BISECT_RUN",
    "BISECT_START",
    "BISECT_TERMS",
    "CHERRY_PICK_HEAD",
    "COMMIT_EDITMSG",
    "EDIT_DESCRIPTION",
    "FETCH_HEAD",
    "GITGUI_EDITMSG",
    "GITGUI_MSG",
    "MERGE_AUTOSTASH",
    "MERGE_HEAD",
    "MERGE_MODE",
    "MERGE_MSG",
    "MERGE_RR",
    "NOTES_EDITMSG",
    "NOTES_MERGE_PARTIAL",
    "NOTES_MERGE_REF",
    "ORIG_HEAD",
    "PREPARE_COMMIT_MSG",
    "REBASE_HEAD",
    "REVERT_HEAD",
    "SQUASH_MSG",
    "TAG_EDITMSG",
    "addp-hunk-edit.diff",
    "gc.log",
    "gc.pid",
    "index",
    "info",
    "logs",
    "modules",
    "packed-refs",
    "rebase-apply",
    "rebase-merge",
    "rr-cache",
    "sequencer",
    "shallow",
    "worktrees",
];

/// The same in `logs` of a git directory.
const LOGS: &[&str] = &["HEAD", "refs"];
const LOGS_OF_REFS: &[&str] = &["heads", "remotes", "stash"];

/// The git directories of a project that a session writes directly.
#[derive(Debug)]
pub struct GitLinks {
    since: Start,
    /// Those that do not lie below another.
    tops: Vec<PathBuf>,
    /// All that were known when the session started.
    known: Vec<PathBuf>,
}

impl GitLinks {
    /// Nothing where the session cannot write to the project.
    pub fn look(policy: &Policy, facts: &HostFacts, since: Start) -> Option<Self> {
        direct_project(policy, facts)?;
        let is_top = |role: GitRole| matches!(role, GitRole::Main | GitRole::Common);
        let tops = facts.git.iter().filter(|dir| is_top(dir.role)).map(|dir| dir.path.clone()).collect();
        let known = facts.git.iter().map(|dir| dir.path.clone()).collect();
        Some(GitLinks { since, tops, known })
    }

    /// What was removed, or could not be, in words.
    pub fn remove(&self) -> Vec<String> {
        self.tops.iter().flat_map(|top| self.remove_in(top)).collect()
    }

    fn remove_in(&self, top: &Path) -> Vec<String> {
        let root = match open_source(top) {
            Ok(root) => root,
            Err(Errno::NOENT) => return Vec::new(),
            Err(errno) => return vec![unsearched(top, &errno.to_string())],
        };
        let mut walk = Walk {
            links: self,
            top,
            root,
            entries: 0,
            stuck: Told::new("that git writes through cannot be removed"),
            unsearched: Told::new("were not all searched for links"),
            removed: Told::new("were removed"),
        };
        for at in self.known.iter().filter_map(|known| known.strip_prefix(top).ok()) {
            walk.look_by_name(at);
        }
        let mut queue = VecDeque::from([Visit { at: PathBuf::new(), is_log: false, is_of_modules: false }]);
        // In the order of their depth: what git writes most lies near the top.
        while let Some(visit) = queue.pop_front() {
            if let Err(why) = walk.look_into(&visit, &mut queue) {
                walk.unsearched.add(|| unsearched(&top.join(&visit.at), &why));
                if walk.entries > MOST_ENTRIES {
                    break;
                }
            }
        }
        // What the user has to do something about comes first.
        [walk.stuck, walk.unsearched, walk.removed].into_iter().flat_map(|told| told.lines(top)).collect()
    }
}

/// Messages of one kind: a session can cause any number of them, and would bury the others.
struct Told {
    lines: Vec<String>,
    more: usize,
    what: &'static str,
}

impl Told {
    fn new(what: &'static str) -> Self {
        Told { lines: Vec::new(), more: 0, what }
    }

    fn add(&mut self, line: impl FnOnce() -> String) {
        if self.lines.len() < MOST_NAMED {
            self.lines.push(line());
        } else {
            self.more += 1;
        }
    }

    fn lines(self, top: &Path) -> Vec<String> {
        let Told { mut lines, more, what } = self;
        lines.extend((more > 0).then(|| format!("and {more} more in {} {what}", top.display())));
        lines
    }
}

fn unsearched(at: &Path, why: &str) -> String {
    let at = at.display();
    format!(
        "{at} was not all searched for links that git on this machine would write through ({why}): look at what `find {at} -type l` shows before you run git"
    )
}

/// A directory that is still to be listed.
struct Visit {
    at: PathBuf,
    /// In `logs` of a git directory.
    is_log: bool,
    /// In `modules`, where other git directories lie at any depth.
    is_of_modules: bool,
}

struct Walk<'a> {
    links: &'a GitLinks,
    top: &'a Path,
    root: OwnedFd,
    entries: usize,
    stuck: Told,
    unsearched: Told,
    removed: Told,
}

impl Walk<'_> {
    /// What git writes in a git directory, without listing it.
    fn look_by_name(&mut self, at: &Path) {
        for (below, names, is_log) in [("", WRITTEN, false), ("logs", LOGS, true), ("logs/refs", LOGS_OF_REFS, true)] {
            let visit = Visit { at: at.join(below), is_log, is_of_modules: false };
            // One that cannot be opened is told when it is listed.
            let Ok(directory) = self.open(&visit.at) else { continue };
            for name in names.iter().map(OsStr::new) {
                let Some(stat) = status(&directory, name) else { continue };
                self.look_at(&directory, &visit, !is_log, name, FileType::from_raw_mode(stat.st_mode));
            }
        }
    }

    fn look_into(&mut self, visit: &Visit, queue: &mut VecDeque<Visit>) -> Result<(), String> {
        let directory = match self.open(&visit.at) {
            Ok(directory) => directory,
            // Another session, or the host, was faster.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(errno) => return Err(errno.to_string()),
        };
        let is_known = self.links.known.contains(&self.top.join(&visit.at));
        let has = |name: &str| status(&directory, OsStr::new(name)).is_some();
        let looks_like_one = || visit.is_of_modules && ["HEAD", "objects", "refs"].into_iter().all(has);
        let is_git = !visit.is_log && (is_known || looks_like_one());
        if is_git && !is_known {
            self.look_by_name(&visit.at);
        }
        let (entries, listed) = self.list(&directory);
        for (name, kind) in entries {
            if is_git && PASSED_BY.contains(&name.as_bytes()) {
                continue;
            }
            let kind = match kind {
                FileType::Unknown => {
                    status(&directory, &name).map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode))
                }
                kind => kind,
            };
            if kind != FileType::Directory {
                self.look_at(&directory, visit, is_git, &name, kind);
                continue;
            }
            queue.push_back(Visit {
                is_log: visit.is_log || is_git && name == "logs",
                is_of_modules: visit.is_of_modules || is_git && name == "modules",
                at: visit.at.join(&name),
            });
        }
        listed
    }

    fn look_at(&mut self, directory: &OwnedFd, visit: &Visit, is_git: bool, name: &OsStr, kind: FileType) {
        let at = visit.at.join(name);
        match kind {
            FileType::Symlink if self.is_to_go(directory, visit, is_git, name) => {
                let target = rustix::fs::readlinkat(directory, name, Vec::new());
                let target = target.map(|target| target.to_string_lossy().into_owned()).unwrap_or_default();
                self.unlink(directory, name, &at, &format!("a link to {target}"));
            }
            FileType::RegularFile if is_git && self.is_second_name(directory, name) => {
                self.unlink(directory, name, &at, "a second name of another file");
            }
            _ => {}
        }
    }

    fn open(&self, at: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let at = if at.as_os_str().is_empty() { Path::new(".") } else { at };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.root, at, flags, Mode::empty(), resolve)
    }

    /// What was listed counts also where the rest was not.
    fn list(&mut self, directory: &OwnedFd) -> (Vec<(OsString, FileType)>, Result<(), String>) {
        let mut buffer = [MaybeUninit::uninit(); 16384];
        let mut entries = RawDir::new(directory, &mut buffer);
        let mut found = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => return (found, Err(errno.to_string())),
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                return (found, Err(format!("more than {MOST_ENTRIES} names")));
            }
            found.push((OsStr::from_bytes(name).to_owned(), entry.file_type()));
        }
        (found, Ok(()))
    }

    /// Links that other tools make (`logs`, `logs/refs`, `packed-refs`, `rr-cache` of shared repositories) are there before a
    /// session. A message, a state of git's own or a log never is one, also where a killed session left it.
    fn is_to_go(&self, directory: &OwnedFd, visit: &Visit, is_git: bool, name: &OsStr) -> bool {
        let is_state = is_git && name.as_bytes().iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_');
        let is_log = visit.is_log && name != "refs";
        is_state || is_log || self.is_changed(status(directory, name))
    }

    /// Only names whose content git makes anew each time: copies of whole repositories by hard links are in use, and their logs
    /// must stay.
    fn is_second_name(&self, directory: &OwnedFd, name: &OsStr) -> bool {
        let name_of_message = name.as_bytes();
        let is_message = name_of_message.ends_with(b"_MSG") || name_of_message.ends_with(b"_EDITMSG");
        (is_message || name == "FETCH_HEAD")
            && self.is_changed(status(directory, name).filter(|stat| stat.st_nlink > 1))
    }

    fn is_changed(&self, stat: Option<Stat>) -> bool {
        stat.is_some_and(|stat| self.links.since.is_before_change_of(&stat))
    }

    fn unlink(&mut self, directory: &OwnedFd, name: &OsStr, at: &Path, what: &str) {
        let path = self.top.join(at);
        let path = path.display();
        match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => self.removed.add(|| {
                format!("{path} was {what}, and git on this machine would have written through it: it is removed")
            }),
            Err(errno) => self.stuck.add(|| {
                format!(
                    "{path} is {what}, git on this machine writes through it, and it cannot be removed ({errno}): remove it before you run git"
                )
            }),
        }
    }
}

fn status(directory: &OwnedFd, name: &OsStr) -> Option<Stat> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()
}
