//! One path: what it is, where it really is, and the links on the way. Owns resolution (links followed once, identity
//! recorded); which paths are looked at is `survey`'s.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use cofferdam_kernel::mount::{open_source, open_source_directory};
use cofferdam_plan::{FileId, Kind, PathFact};
use cofferdam_policy::Access;
use cofferdam_policy::decide::index::refuses;
use cofferdam_policy::path::is_at_or_below;
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;

use crate::stand_ins::StandIns;

/// The kernel follows as many.
const MOST_LINKS: usize = 40;

/// Directories that are kept open: many rules are about names in few directories, and a search may find names in thousands.
const MOST_OPEN: usize = 64;

/// The host's paths as one survey sees them: a directory is opened once for all names in it, and a name on the way is read once.
pub(super) struct Paths<'a> {
    stand_ins: &'a StandIns,
    /// Trees that earlier sessions wrote.
    before: Vec<PathBuf>,
    directories: RefCell<HashMap<PathBuf, Result<Rc<OwnedFd>, Errno>>>,
    /// Where links lead; nothing for what is none.
    links: RefCell<HashMap<PathBuf, Option<PathBuf>>>,
    /// The first look that failed for a reason that is not the path's.
    failed: RefCell<Option<String>>,
}

/// What was found at a path.
#[derive(Default)]
pub(super) struct Found {
    /// What it leads to.
    pub(super) fact: Option<PathFact>,
    /// The link itself, if its last part is one.
    pub(super) link: Option<PathFact>,
    /// A name on the way is missing, and no link leads elsewhere.
    pub(super) is_absent: bool,
}

impl<'a> Paths<'a> {
    pub(super) fn new(stand_ins: &'a StandIns, before: Vec<PathBuf>) -> Self {
        let (directories, links, failed) = Default::default();
        Paths { stand_ins, before, directories, links, failed }
    }

    /// A look that fails for want of descriptors or memory says nothing about what is there: no session starts by it.
    pub(super) fn note(&self, path: &Path, errno: Errno) {
        if matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::AGAIN | Errno::INTR) {
            self.failed.borrow_mut().get_or_insert_with(|| format!("`{}`: {errno}", path.display()));
        }
    }

    pub(super) fn failed(&self) -> Option<String> {
        self.failed.borrow().clone()
    }

    /// What is at a path; `LOOP` where a link is on the way to its last name.
    fn stat(&self, path: &Path) -> Result<Stat, Errno> {
        let found = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => {
                let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
                self.directory(parent).and_then(|parent| rustix::fs::statat(parent, name, flags))
            }
            _ => open_source(path).and_then(rustix::fs::fstat),
        };
        found.inspect_err(|errno| self.note(path, *errno))
    }

    fn directory(&self, path: &Path) -> Result<Rc<OwnedFd>, Errno> {
        if let Some(known) = self.directories.borrow().get(path) {
            return known.clone();
        }
        let opened = open_source_directory(path).map(Rc::new);
        // Any other error (a server that is gone) may be about one look alone.
        let is_answer = match &opened {
            Ok(_) => true,
            Err(errno) => matches!(*errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM),
        };
        let mut directories = self.directories.borrow_mut();
        if is_answer && directories.len() < MOST_OPEN {
            directories.insert(path.to_path_buf(), opened.clone());
        }
        opened
    }

    /// What a session wrote into the project may be a link. It does not lead a grant for something there to something elsewhere.
    pub(super) fn look_at_grant(&self, path: &Path, writable: &[PathBuf]) -> PathFact {
        let fact = self.look(path);
        if self.is_led_out(path, fact.canonical(), writable) { self.missing(path) } else { fact }
    }

    /// A session that wrote a tree may have left links in it: none of them leads a grant out of that tree, unless to what this session
    /// writes anyhow.
    pub(super) fn is_led_out(&self, path: &Path, canonical: &Path, writable: &[PathBuf]) -> bool {
        if canonical == path || writable.iter().any(|root| is_at_or_below(canonical, root)) {
            return false;
        }
        let (links, _) = self.followed(path);
        let left = || writable.iter().chain(&self.before).filter(|root| !is_at_or_below(canonical, root));
        links.iter().any(|link| left().any(|root| link != root && is_at_or_below(link, root)))
    }

    /// Whether a link on the way is this user's, as one is that a session left.
    pub(super) fn is_led(&self, path: &Path) -> bool {
        let own = rustix::process::geteuid().as_raw();
        self.followed(path).0.iter().any(|link| rustix::fs::lstat(link).is_ok_and(|stat| stat.st_uid == own))
    }

    /// One path: what it is and where it really is.
    pub(super) fn look(&self, path: &Path) -> PathFact {
        self.find(path).fact.unwrap_or_else(|| self.missing(path))
    }

    pub(super) fn find(&self, path: &Path) -> Found {
        match self.stat(path) {
            Ok(stat) if is_link(&stat) => {
                Found { fact: self.find_target(path), link: self.present(path.to_path_buf(), &stat), is_absent: false }
            }
            Ok(stat) => Found { fact: self.present(path.to_path_buf(), &stat), ..Found::default() },
            Err(Errno::LOOP) => Found { fact: self.find_target(path), ..Found::default() },
            Err(errno) => {
                let is_absent = matches!(errno, Errno::NOENT | Errno::NOTDIR);
                Found { is_absent, ..Found::default() }
            }
        }
    }

    /// The links through which the kernel goes to what a rule refuses, where the session can write: each of them decides where
    /// it leads, and so what the next session hides or protects.
    pub(super) fn links_on_the_way(
        &self,
        access: Access,
        path: &Path,
        found: Option<&PathFact>,
        writable: &[PathBuf],
    ) -> Vec<PathFact> {
        let is_plain =
            |fact: &PathFact| fact.canonical() == path && !matches!(fact, PathFact::Present { kind: Kind::Other, .. });
        if !refuses(access) || found.is_none_or(is_plain) {
            return Vec::new();
        }
        self.links_to(path, writable).collect()
    }

    /// The links on the way to a path that a session could replace, as they are.
    pub(super) fn links_to(&self, path: &Path, writable: &[PathBuf]) -> impl Iterator<Item = PathFact> {
        let (links, _) = self.followed(path);
        let is_written = |link: &PathBuf| writable.iter().any(|root| is_at_or_below(link, root));
        links.into_iter().filter(is_written).filter_map(|canonical| {
            let stat = rustix::fs::lstat(&canonical).ok()?;
            let id = FileId { device: stat.st_dev, inode: stat.st_ino };
            Some(PathFact::Present { canonical, kind: Kind::Other, id })
        })
    }

    /// The links through which the kernel goes, and where they lead, whether something is there or not; `None` where they are
    /// too many to follow.
    fn followed(&self, path: &Path) -> (Vec<PathBuf>, Option<PathBuf>) {
        let parts = |path: &Path| path.iter().map(OsStr::to_os_string).rev().collect::<Vec<_>>();
        let (mut here, mut ahead, mut links) = (PathBuf::from("/"), parts(path), Vec::new());
        while let Some(part) = ahead.pop() {
            match part.as_bytes() {
                b"/" => here = PathBuf::from("/"),
                b".." => _ = here.pop(),
                b"." => {}
                _ => here.push(&part),
            }
            let Some(target) = self.read_link(&here) else { continue };
            if links.len() >= MOST_LINKS {
                return (links, None);
            }
            links.push(here.clone());
            here.pop();
            ahead.extend(parts(&target));
        }
        (links, Some(here))
    }

    fn read_link(&self, path: &Path) -> Option<PathBuf> {
        if let Some(known) = self.links.borrow().get(path) {
            return known.clone();
        }
        let target = rustix::fs::readlink(path, Vec::new()).inspect_err(|errno| self.note(path, *errno)).ok();
        let target = target.map(|target| PathBuf::from(OsStr::from_bytes(target.as_bytes())));
        self.links.borrow_mut().insert(path.to_path_buf(), target.clone());
        target
    }

    /// What a link that leads nowhere would lead to: made inside, it would be found under the link's name.
    pub(super) fn behind_link(&self, path: &Path) -> Option<PathFact> {
        self.followed(path).1.map(|target| self.missing(&target))
    }

    /// A link at the end or on the way: what it leads to is what the rule is about (dotfile managers make such links).
    /// Resolved once; the result is then looked at without following anything.
    fn find_target(&self, path: &Path) -> Option<PathFact> {
        let real = self.followed(path).1?;
        let stat = self.stat(&real).ok().filter(|stat| !is_link(stat))?;
        self.present(real, &stat)
    }

    /// `None` for a stand-in of another session: the name counts as missing.
    fn present(&self, canonical: PathBuf, stat: &Stat) -> Option<PathFact> {
        if self.stand_ins.knows(&canonical, stat) {
            return None;
        }
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Kind::Directory,
            FileType::RegularFile => Kind::File,
            FileType::Socket => Kind::Socket,
            _ => Kind::Other,
        };
        Some(PathFact::Present { canonical, kind, id: FileId { device: stat.st_dev, inode: stat.st_ino } })
    }

    /// Looks for the first part of the name that is missing; its parent is where it would be created.
    pub(super) fn missing(&self, path: &Path) -> PathFact {
        let is_real = |parent: &Path| self.stat(parent).is_ok_and(|stat| !self.stand_ins.knows(parent, &stat));
        if path.parent().is_some_and(is_real) {
            return PathFact::Missing { canonical: path.to_path_buf(), first: path.to_path_buf() };
        }
        let mut first = path.to_path_buf();
        while let Some(parent) = first.parent() {
            match rustix::fs::lstat(parent) {
                Ok(stat) if !self.stand_ins.knows(parent, &stat) => break,
                _ => first = parent.to_path_buf(),
            }
        }
        let parent = first.parent().and_then(|p| p.canonicalize().ok());
        let rebase = |p: &Path| match (&parent, first.parent().and_then(|old| p.strip_prefix(old).ok())) {
            (Some(parent), Some(rest)) => parent.join(rest),
            _ => p.to_path_buf(),
        };
        PathFact::Missing { canonical: rebase(path), first: rebase(&first) }
    }
}

pub(super) fn is_link(stat: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

/// Where a path leads through a directory that this process cannot enter or list, and that a session could open again
/// because it can write there and belongs to the same user: that directory.
pub(super) fn closed_at(path: &Path, writable: &[PathBuf]) -> Option<PathFact> {
    // Any other error (a server that is gone, a broken disk) says nothing about the directories on the way, and a session
    // gets it as well: to hide what lies above would hide the project.
    let is_refused = |errno: Errno| matches!(errno, Errno::ACCESS | Errno::PERM);
    let whole = rustix::fs::Access::READ_OK | rustix::fs::Access::EXEC_OK;
    let is_closed = |stat: &rustix::fs::Stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::Directory && rustix::fs::access(path, whole).is_err()
    };
    match rustix::fs::stat(path) {
        Err(errno) if is_refused(errno) => {}
        Ok(stat) if is_closed(&stat) => {}
        _ => return None,
    }
    // The last link of a chain leads to it; those on the way are followed below.
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = path.parent()?.join(target);
    }
    let canonical = path.ancestors().find_map(|at| at.canonicalize().ok())?;
    let stat = rustix::fs::lstat(&canonical).ok()?;
    let is_own = stat.st_uid == rustix::process::getuid().as_raw();
    let is_meant = is_own && writable.iter().any(|root| is_at_or_below(&canonical, root));
    let id = FileId { device: stat.st_dev, inode: stat.st_ino };
    is_meant.then_some(PathFact::Present { canonical, kind: Kind::Directory, id })
}

/// A protected name is kept as the link it is, or the link could be replaced. To hide or to give is about what the link
/// leads to.
pub(super) fn kept(access: Access, link: Option<PathFact>) -> Option<PathFact> {
    link.filter(|_| access == Access::Protect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_is_no_refusal_closes_no_directory() {
        let directory = crate::memory::tests::scene("survey-errors");
        // Stands for a broken disk: no path has a NUL in it, and the error is none of those that mean a missing name.
        assert_eq!(closed_at(&directory.join("a\0b"), std::slice::from_ref(&directory)), None);
        std::fs::remove_dir_all(directory).expect("ours");
    }

    #[test]
    fn a_look_that_fails_for_want_of_anything_is_no_answer_and_is_made_again() {
        let scene = crate::memory::tests::scene("survey-wants");
        let stand_ins = StandIns::of(&scene);
        let paths = Paths::new(&stand_ins, Vec::new());
        for errno in [Errno::NOENT, Errno::ACCESS, Errno::LOOP, Errno::STALE] {
            paths.note(&scene, errno);
            assert_eq!(paths.failed(), None, "{errno}");
        }
        assert!(paths.find(&scene.join("missing")).is_absent);
        assert_eq!(paths.failed(), None, "the name is missing");
        let long = scene.join("a".repeat(300));
        assert!(paths.find(&long.join("below")).fact.is_none());
        assert!(!paths.directories.borrow().contains_key(&long), "an error that is no answer is not kept");
        paths.note(&scene, Errno::NFILE);
        assert!(paths.failed().is_some_and(|why| why.contains("survey-wants")));
        std::fs::remove_dir_all(scene).expect("ours");
    }
}
