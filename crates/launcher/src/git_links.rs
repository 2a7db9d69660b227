//! Links that a session leaves in a git directory where git on the host writes in place: it follows them, and would write
//! what the session chose into any file of the user (docs/decisions/0032). Owns the walk, its bounds and the removal. Called
//! by `holds` when no process is left inside, before held names are let go of.
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

/// Named one by one; the rest is counted.
const MOST_NAMED: usize = 16;

/// What git replaces by a rename there and never writes through a link (`HEAD`, `refs`), what it names itself (`objects`), what
/// a session cannot write (`hooks`), and the stores of extensions.
const PASSED_BY: [&[u8]; 6] = [b"HEAD", b"refs", b"objects", b"hooks", b"lfs", b"annex"];

/// The git directories of a project that a session writes directly.
#[derive(Debug)]
pub(crate) struct GitLinks {
    since: Start,
    /// Those that do not lie below another.
    tops: Vec<PathBuf>,
    /// All that were known when the session started.
    known: Vec<PathBuf>,
}

impl GitLinks {
    /// Nothing where the session cannot write to the project.
    pub(crate) fn look(policy: &Policy, facts: &HostFacts, since: Start) -> Option<Self> {
        direct_project(policy, facts)?;
        let is_top = |role: GitRole| matches!(role, GitRole::Main | GitRole::Common);
        let tops = facts.git.iter().filter(|dir| is_top(dir.role)).map(|dir| dir.path.clone()).collect();
        let known = facts.git.iter().map(|dir| dir.path.clone()).collect();
        Some(GitLinks { since, tops, known })
    }

    /// What was removed, or could not be, in words.
    pub(crate) fn remove(&self) -> Vec<String> {
        self.tops.iter().flat_map(|top| self.remove_in(top)).collect()
    }

    fn remove_in(&self, top: &Path) -> Vec<String> {
        let root = match open_source(top) {
            Ok(root) => root,
            Err(Errno::NOENT) => return Vec::new(),
            Err(errno) => return vec![unsearched(top, &errno.to_string())],
        };
        let mut walk = Walk { links: self, top, root, entries: 0, removed: 0, told: Vec::new() };
        let mut queue = VecDeque::from([Visit { at: PathBuf::new(), is_log: false, is_of_modules: false }]);
        // In the order of their depth: what git writes most lies near the top.
        while let Some(visit) = queue.pop_front() {
            if let Err(why) = walk.look_into(&visit, &mut queue) {
                walk.told.push(unsearched(&top.join(&visit.at), &why));
                if walk.entries > MOST_ENTRIES {
                    break;
                }
            }
        }
        if let Some(more) = walk.removed.checked_sub(MOST_NAMED).filter(|more| *more > 0) {
            walk.told.push(format!("{more} more links in {} were removed", top.display()));
        }
        walk.told
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
    removed: usize,
    told: Vec<String>,
}

impl Walk<'_> {
    fn look_into(&mut self, visit: &Visit, queue: &mut VecDeque<Visit>) -> Result<(), String> {
        let directory = match self.open(&visit.at) {
            Ok(directory) => directory,
            // Another session, or the host, was faster.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(errno) => return Err(errno.to_string()),
        };
        let entries = self.list(&directory)?;
        let has = |name: &str| entries.iter().any(|(found, _)| found == name);
        let looks_like_one = || visit.is_of_modules && ["HEAD", "objects", "refs"].into_iter().all(has);
        let is_git = !visit.is_log && (self.links.known.contains(&self.top.join(&visit.at)) || looks_like_one());
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
            let at = visit.at.join(&name);
            match kind {
                FileType::Directory => queue.push_back(Visit {
                    is_log: visit.is_log || is_git && name == "logs",
                    is_of_modules: visit.is_of_modules || is_git && name == "modules",
                    at,
                }),
                FileType::Symlink if self.is_to_go(&directory, visit, is_git, &name) => {
                    let target = rustix::fs::readlinkat(&directory, &name, Vec::new());
                    let target = target.map(|target| target.to_string_lossy().into_owned()).unwrap_or_default();
                    self.unlink(&directory, &name, &at, &format!("a link to {target}"));
                }
                FileType::RegularFile if is_git && self.is_second_name(&directory, &name) => {
                    self.unlink(&directory, &name, &at, "a second name of another file");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn open(&self, at: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let at = if at.as_os_str().is_empty() { Path::new(".") } else { at };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.root, at, flags, Mode::empty(), resolve)
    }

    fn list(&mut self, directory: &OwnedFd) -> Result<Vec<(OsString, FileType)>, String> {
        let mut buffer = [MaybeUninit::uninit(); 16384];
        let mut entries = RawDir::new(directory, &mut buffer);
        let mut found = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|errno| errno.to_string())?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                return Err(format!("more than {MOST_ENTRIES} names"));
            }
            found.push((OsStr::from_bytes(name).to_owned(), entry.file_type()));
        }
        Ok(found)
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
            Ok(()) | Err(Errno::NOENT) => {
                self.removed += 1;
                if self.removed <= MOST_NAMED {
                    self.told.push(format!(
                        "{path} was {what}, and git on this machine would have written through it: it is removed"
                    ));
                }
            }
            Err(errno) => self.told.push(format!(
                "{path} is {what}, git on this machine writes through it, and it cannot be removed ({errno}): remove it before you run git"
            )),
        }
    }
}

fn status(directory: &OwnedFd, name: &OsStr) -> Option<Stat> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()
}
