//! One path: what it is, where it really is, and the links on the way. Owns resolution (links followed once, identity
//! recorded); which paths are looked at is `survey`'s.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_kernel::mount::open_source;
use cofferdam_plan::{FileId, Kind, PathFact};
use cofferdam_policy::Access;
use cofferdam_policy::decide::index::refuses;
use cofferdam_policy::path::is_at_or_below;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::stand_ins::StandIns;

/// The kernel follows as many.
const MOST_LINKS: usize = 40;

pub(super) fn is_link(stat: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

/// What a session wrote into the project may be a link. It does not lead a grant for something there to something elsewhere.
pub(super) fn look_at_grant(path: &Path, writable: &[PathBuf], stand_ins: &StandIns) -> PathFact {
    let fact = look(path, stand_ins);
    if is_led_out(path, fact.canonical(), writable) { missing(path, stand_ins) } else { fact }
}

/// One path: what it is and where it really is.
pub(super) fn look(path: &Path, stand_ins: &StandIns) -> PathFact {
    find_with_link(path, stand_ins).0.unwrap_or_else(|| missing(path, stand_ins))
}

/// What a path leads to, and the link itself if its last part is one.
pub(super) fn find_with_link(path: &Path, stand_ins: &StandIns) -> (Option<PathFact>, Option<PathFact>) {
    match open_source(path) {
        Ok(fd) => match rustix::fs::fstat(&fd) {
            Ok(stat) if is_link(&stat) => (find_target(path, stand_ins), present(path.to_path_buf(), &stat, stand_ins)),
            Ok(stat) => (present(path.to_path_buf(), &stat, stand_ins), None),
            Err(_) => (None, None),
        },
        Err(Errno::LOOP) => (find_target(path, stand_ins), None),
        Err(_) => (None, None),
    }
}

/// What a session wrote may be a link. It does not lead a grant for something in a tree that sessions write to what lies
/// outside of all such trees.
pub(super) fn is_led_out(path: &Path, canonical: &Path, writable: &[PathBuf]) -> bool {
    let is_below = |path: &Path| writable.iter().any(|root| path != root && is_at_or_below(path, root));
    let is_within = |path: &Path| writable.iter().any(|root| is_at_or_below(path, root));
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    canonical != path && (is_below(path) || parent.as_deref().is_some_and(is_within)) && !is_within(canonical)
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

/// The links through which the kernel goes to what a rule refuses, where the session can write: each of them decides where
/// it leads, and so what the next session hides or protects.
pub(super) fn links_on_the_way(
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
    links_to(path).into_iter().filter_map(|link| link_fact(link, writable)).collect()
}

/// A link as it is, where a session could replace it.
pub(super) fn link_fact(link: PathBuf, writable: &[PathBuf]) -> Option<PathFact> {
    let stat = rustix::fs::lstat(&link).ok().filter(|_| writable.iter().any(|root| is_at_or_below(&link, root)))?;
    let id = FileId { device: stat.st_dev, inode: stat.st_ino };
    Some(PathFact::Present { canonical: link, kind: Kind::Other, id })
}

pub(super) fn links_to(path: &Path) -> Vec<PathBuf> {
    followed(path).0
}

/// The links through which the kernel goes, and where they lead, whether something is there or not; `None` where they are
/// too many to follow.
pub(super) fn followed(path: &Path) -> (Vec<PathBuf>, Option<PathBuf>) {
    let parts = |path: &Path| path.iter().map(OsStr::to_os_string).rev().collect::<Vec<_>>();
    let (mut here, mut ahead, mut links) = (PathBuf::from("/"), parts(path), Vec::new());
    while let Some(part) = ahead.pop() {
        match part.as_bytes() {
            b"/" => here = PathBuf::from("/"),
            b".." => _ = here.pop(),
            _ => here.push(&part),
        }
        let Ok(target) = std::fs::read_link(&here) else { continue };
        if links.len() >= MOST_LINKS {
            return (links, None);
        }
        links.push(here.clone());
        here.pop();
        ahead.extend(parts(&target));
    }
    (links, Some(here))
}

/// What a link that leads nowhere would lead to: made inside, it would be found under the link's name.
pub(super) fn behind_link(path: &Path, stand_ins: &StandIns) -> Option<PathFact> {
    followed(path).1.map(|target| missing(&target, stand_ins))
}

/// A link at the end or on the way: what it leads to is what the rule is about (dotfile managers make such links).
/// Resolved once; the result is then looked at without following anything.
pub(super) fn find_target(path: &Path, stand_ins: &StandIns) -> Option<PathFact> {
    let real = path.canonicalize().ok()?;
    let fd = open_source(&real).ok()?;
    let stat = rustix::fs::fstat(&fd).ok()?;
    present(real, &stat, stand_ins)
}

/// `None` for a stand-in of another session: the name counts as missing.
pub(super) fn present(canonical: PathBuf, stat: &rustix::fs::Stat, stand_ins: &StandIns) -> Option<PathFact> {
    if stand_ins.knows(&canonical, stat) {
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
pub(super) fn missing(path: &Path, stand_ins: &StandIns) -> PathFact {
    let is_real = |parent: &Path| {
        let stat = open_source(parent).ok().and_then(|fd| rustix::fs::fstat(fd).ok());
        stat.is_some_and(|stat| !stand_ins.knows(parent, &stat))
    };
    if path.parent().is_some_and(is_real) {
        return PathFact::Missing { canonical: path.to_path_buf(), first: path.to_path_buf() };
    }
    let mut first = path.to_path_buf();
    while let Some(parent) = first.parent() {
        match rustix::fs::lstat(parent) {
            Ok(stat) if !stand_ins.knows(parent, &stat) => break,
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
}
