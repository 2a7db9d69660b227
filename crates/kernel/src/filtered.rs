//! A directory of the host, read-only, without some of the names below it. Owns the two ways to do that: an overlay whose top
//! layer has a whiteout for each name, and, where the kernel refuses an overlay there, a directory put together from binds.
//! Decides nothing about which names; called by `launcher::apply` and by the gate's broker.
//!
//! Nothing is mounted *on* a hidden name: the kernel takes a mount off when its mount point is removed or replaced in any
//! mount namespace. A whiteout counts by name, whatever a host program makes of the name below, in the directory that was on
//! the way to it at the start.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat, StatVfsMountFlags, Timestamps};
use rustix::io::Errno;

use crate::mount::{self, Attributes};

/// Names in a directory that is put together from binds; each is a mount.
const MOST_BOUND: usize = 4096;

/// A name below the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hidden {
    /// Relative to the directory.
    pub path: PathBuf,
    /// What is read there instead; otherwise there is no such name.
    pub text: Option<String>,
}

/// Where a filtered directory is mounted: a path below an open directory.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub root: BorrowedFd<'a>,
    pub path: &'a Path,
}

impl Place<'_> {
    fn open(self) -> Result<OwnedFd, Errno> {
        mount::open_in_root(self.root, self.path)
    }
}

/// Mounts `source` at `place`. `scratch` is an empty directory of a file system of the caller's own, which stays.
pub fn show(
    source: BorrowedFd<'_>,
    hidden: &[Hidden],
    attributes: Attributes,
    scratch: BorrowedFd<'_>,
    place: Place<'_>,
) -> Result<(), Errno> {
    let attributes = Attributes { exec: attributes.exec && may_execute(source)?, write: false, ..attributes };
    if folds_case(source)? {
        return compose(source, hidden, attributes, scratch, place);
    }
    make_directory(scratch, OsStr::new("layer"))?;
    let layer = open_own(scratch, OsStr::new("layer"))?;
    fill(source, layer.as_fd(), hidden)?;
    let options = format!("/proc/self/fd/{}:/proc/self/fd/{}", layer.as_raw_fd(), source.as_raw_fd());
    match mount::new_filesystem("overlay", &[("lowerdir", &options), ("userxattr", "")], attributes) {
        Ok(tree) => mount::attach(tree.as_fd(), place.open()?.as_fd()),
        // Something is mounted below it, or overlayfs does not take this file system.
        Err(Errno::INVAL | Errno::NODEV | Errno::OPNOTSUPP | Errno::LOOP) => {
            compose(source, hidden, attributes, scratch, place)
        }
        Err(errno) => Err(errno),
    }
}

/// A layer that hides these names of what lies below it, made in `scratch`, an empty directory of a file system of the caller's own.
/// Where the directory folds case there is none: a layer hides one spelling.
pub fn layer(source: BorrowedFd<'_>, hidden: &[Hidden], scratch: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
    if hidden.is_empty() || folds_case(source)? {
        return Ok(None);
    }
    // Below a file there is no name to hide, and the file is the project's.
    let hidden: Vec<Hidden> = hidden.iter().filter(|one| !is_below_file(source, &one.path)).cloned().collect();
    if hidden.is_empty() {
        return Ok(None);
    }
    make_directory(scratch, OsStr::new("layer"))?;
    let layer = open_own(scratch, OsStr::new("layer"))?;
    fill(source, layer.as_fd(), &hidden)?;
    Ok(Some(layer))
}

fn is_below_file(source: BorrowedFd<'_>, path: &Path) -> bool {
    path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).any(|above| {
        let stat = rustix::fs::statat(source, above, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    })
}

/// An overlay does not pass on what its lower mount forbids.
fn may_execute(source: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(!rustix::fs::fstatvfs(source)?.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

/// Overlayfs compares bytes. It refuses file systems that fold case where the kernel knows that they do; others fold by
/// themselves (FUSE, shares of other machines, ZFS), and a whiteout would hide one spelling. One name tells, if it
/// is listed: there are others that the file system finds in one spelling alone (`.zfs`, `.snapshot`).
fn folds_case(directory: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(folds_names(directory)?.unwrap_or(false))
}

/// Whether the directory at this path folds case. Where nothing in it tells, its own name does, if that is part of the same
/// file system.
pub fn folds_case_at(path: &Path) -> Result<bool, Errno> {
    let open = |path: &Path| rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let directory = open(path)?;
    if let Some(folds) = folds_names(directory.as_fd())? {
        return Ok(folds);
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(false) };
    let (parent, this) = (open(parent)?, rustix::fs::fstat(&directory)?);
    if rustix::fs::fstat(&parent)?.st_dev != this.st_dev {
        return Ok(false);
    }
    Ok(other_spelling(parent.as_fd(), name.as_bytes())?.unwrap_or(false))
}

/// `None` where no name tells.
fn folds_names(directory: BorrowedFd<'_>) -> Result<Option<bool>, Errno> {
    let listed = match open_own(directory, OsStr::new(".")) {
        // Nothing in it can be listed by the session either.
        Err(Errno::ACCESS) => return Ok(None),
        listed => listed?,
    };
    let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(listed, &mut buffer);
    while let Some(entry) = entries.next() {
        if let Some(folds) = other_spelling(directory, entry?.file_name().to_bytes())? {
            return Ok(Some(folds));
        }
    }
    Ok(None)
}

/// Whether a name is found in another case too; `None` where it has no letters or is not there. Some file systems have
/// another inode number for each spelling, so one that is found and not listed tells as well.
fn other_spelling(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Option<bool>, Errno> {
    let other: Vec<u8> = name.iter().map(|byte| swap_case(*byte)).collect();
    if other == name {
        return Ok(None);
    }
    let Some(this) = look(directory, OsStr::from_bytes(name))? else { return Ok(None) };
    let Some(found) = look(directory, OsStr::from_bytes(&other))? else {
        // Or the name went in between, and tells nothing.
        return Ok(look(directory, OsStr::from_bytes(name))?.map(|_| false));
    };
    Ok(Some(id(&this) == id(&found) || !is_listed(directory, &other)?))
}

fn is_listed(directory: BorrowedFd<'_>, name: &[u8]) -> Result<bool, Errno> {
    let listed = match open_own(directory, OsStr::new(".")) {
        Err(Errno::ACCESS) => return Ok(true),
        listed => listed?,
    };
    let mut buffer = [std::mem::MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(listed, &mut buffer);
    while let Some(entry) = entries.next() {
        if entry?.file_name().to_bytes() == name {
            return Ok(true);
        }
    }
    Ok(false)
}

fn swap_case(byte: u8) -> u8 {
    if byte.is_ascii_alphabetic() { byte ^ 0x20 } else { byte }
}

/// The names of the top layer, in directories that look like those that they are merged with.
fn fill(source: BorrowedFd<'_>, layer: BorrowedFd<'_>, hidden: &[Hidden]) -> Result<(), Errno> {
    let mut made: HashMap<PathBuf, Option<(OwnedFd, OwnedFd)>> = HashMap::new();
    // Outer names first: below one that is hidden there is nothing to hide.
    let mut hidden: Vec<&Hidden> = hidden.iter().collect();
    hidden.sort_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
    'names: for one in hidden {
        let mut names = one.path.components();
        let Some(Component::Normal(last)) = names.next_back() else { return Err(Errno::INVAL) };
        let mut above = PathBuf::new();
        for component in names {
            let Component::Normal(name) = component else { return Err(Errno::INVAL) };
            let (host, ours) = match made.get(&above) {
                Some(Some((host, ours))) => (host.as_fd(), ours.as_fd()),
                _ => (source, layer),
            };
            let next = above.join(name);
            if !made.contains_key(&next) {
                let step = descend(host, ours, name)?;
                made.insert(next.clone(), step);
            }
            // The way to it is hidden itself, whole: it is absent, now and later.
            if matches!(made.get(&next), Some(None)) {
                continue 'names;
            }
            above = next;
        }
        let ours = match made.get(&above) {
            Some(Some((_, ours))) => ours.as_fd(),
            _ => layer,
        };
        hide(ours, last, one.text.as_deref())?;
    }
    // Last, because each name that is made changes the time of its directory.
    for (host, ours) in made.values().flatten() {
        resemble(host.as_fd(), ours.as_fd())?;
    }
    resemble(source, layer)
}

/// A directory on the way to a hidden name, on the host and in the layer; none where the host has no such directory, which
/// hides that name.
fn descend(host: BorrowedFd<'_>, ours: BorrowedFd<'_>, name: &OsStr) -> Result<Option<(OwnedFd, OwnedFd)>, Errno> {
    let below = match open_directory(host, name) {
        Ok(below) => below,
        Err(Errno::NOTDIR | Errno::LOOP) => {
            keep_link(host, ours, name)?;
            return Ok(None);
        }
        // It may be there one day, and can be reached.
        Err(Errno::NOENT | Errno::ACCESS) => {
            hide(ours, name, None)?;
            return Ok(None);
        }
        Err(errno) => return Err(errno),
    };
    match rustix::fs::mkdirat(ours, name, Mode::RWXU) {
        Ok(()) => {}
        // An outer name is hidden already.
        Err(Errno::EXIST) => return Ok(None),
        Err(errno) => return Err(errno),
    }
    Ok(Some((below, open_own(ours, name)?)))
}

/// What a link leads to is another path, and has names of its own to hide. The link stays as it is now, because a host
/// program may put a directory in its place; so it may where a file is, which is hidden.
fn keep_link(host: BorrowedFd<'_>, ours: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    let kept = match rustix::fs::readlinkat(host, name, Vec::new()) {
        Ok(target) => rustix::fs::symlinkat(target, ours, name),
        Err(_) => return hide(ours, name, None),
    };
    if kept == Err(Errno::EXIST) { Ok(()) } else { kept }
}

/// A whiteout, which takes no capability, or a text.
fn hide(directory: BorrowedFd<'_>, name: &OsStr, text: Option<&str>) -> Result<(), Errno> {
    let made = match text {
        None => rustix::fs::mknodat(directory, name, FileType::CharacterDevice, Mode::empty(), 0),
        Some(text) => write_text(directory, name, text),
    };
    if made == Err(Errno::EXIST) { Ok(()) } else { made }
}

/// A new read-only file with this text.
pub fn write_text(directory: BorrowedFd<'_>, name: &OsStr, text: &str) -> Result<(), Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o444))?;
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    Ok(())
}

/// Which number has the part of a second depends on what rustix is built on: the kernel's headers, or the C library's (Miri).
fn time(tv_sec: i64, nanoseconds: impl TryInto<i64>) -> rustix::fs::Timespec {
    rustix::fs::Timespec { tv_sec, tv_nsec: nanoseconds.try_into().unwrap_or(0) }
}

/// Merged directories have the mode and the times of the top layer.
fn resemble(host: BorrowedFd<'_>, ours: BorrowedFd<'_>) -> Result<(), Errno> {
    let stat = rustix::fs::fstat(host)?;
    rustix::fs::fchmod(ours, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    };
    rustix::fs::futimens(ours, &times)
}

/// The same from binds: what the host makes later is not there.
fn compose(
    source: BorrowedFd<'_>,
    hidden: &[Hidden],
    attributes: Attributes,
    scratch: BorrowedFd<'_>,
    place: Place<'_>,
) -> Result<(), Errno> {
    make_directory(scratch, OsStr::new("points"))?;
    let points = open_own(scratch, OsStr::new("points"))?;
    let hidden = found_below(source, hidden)?;
    let mut shown: Vec<(OsString, FileType, Vec<Hidden>)> = Vec::new();
    for name in names(source)? {
        let Some(stat) = look(source, &name)? else { continue };
        let about = hidden.iter().filter(|one| one.name == name || one.id == Some(id(&stat)));
        let (here, inside): (Vec<Hidden>, Vec<Hidden>) =
            about.map(|one| one.inside.clone()).partition(|one| one.path.as_os_str().is_empty());
        if let Some(here) = here.first() {
            if let Some(text) = &here.text {
                write_text(points.as_fd(), &name, text)?;
            }
        } else if let Some(kind) = stand_for(source, points.as_fd(), &name, &stat)? {
            shown.push((name, kind, inside));
        }
        if shown.len() > MOST_BOUND {
            return Err(Errno::TOOBIG);
        }
    }
    resemble(source, points.as_fd())?;
    let tree = mount::clone_tree(points.as_fd())?;
    mount::restrict_tree(tree.as_fd(), Attributes { exec: false, ..attributes })?;
    mount::attach(tree.as_fd(), place.open()?.as_fd())?;
    make_directory(scratch, OsStr::new("below"))?;
    let below = open_directory(scratch, OsStr::new("below"))?;
    for (name, kind, inside) in shown {
        let child = match open_child(source, &name) {
            Ok(child) => child,
            // Gone meanwhile; what stands for it is empty.
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno),
        };
        let path = place.path.join(&name);
        let at = Place { root: place.root, path: &path };
        if kind == FileType::Directory && !inside.is_empty() {
            make_directory(below.as_fd(), &name)?;
            show(child.as_fd(), &inside, attributes, open_directory(below.as_fd(), &name)?.as_fd(), at)?;
        } else {
            let tree = mount::clone_tree(child.as_fd())?;
            mount::restrict_tree(tree.as_fd(), attributes)?;
            mount::attach(tree.as_fd(), at.open()?.as_fd())?;
        }
    }
    Ok(())
}

/// A hidden path by its first name, and what lies there: a file system that folds case lists it in another spelling.
struct Found<'a> {
    name: &'a OsStr,
    id: Option<(u64, u64)>,
    /// The rest, which is empty where the name itself is hidden.
    inside: Hidden,
}

fn found_below<'a>(source: BorrowedFd<'_>, hidden: &'a [Hidden]) -> Result<Vec<Found<'a>>, Errno> {
    let mut ids: HashMap<&OsStr, Option<(u64, u64)>> = HashMap::new();
    let mut found = Vec::new();
    for one in hidden {
        let mut rest = one.path.components();
        let Some(Component::Normal(name)) = rest.next() else { return Err(Errno::INVAL) };
        if !ids.contains_key(name) {
            ids.insert(name, look(source, name)?.as_ref().map(id));
        }
        let inside = Hidden { path: rest.as_path().to_path_buf(), text: one.text.clone() };
        found.push(Found { name, id: ids.get(name).copied().flatten(), inside });
    }
    Ok(found)
}

fn id(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// None where nothing can be reached under this name.
fn look(directory: BorrowedFd<'_>, name: &OsStr) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT | Errno::ACCESS) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Makes the mount point for a child, or copies it where it is a link.
fn stand_for(
    source: BorrowedFd<'_>,
    points: BorrowedFd<'_>,
    name: &OsStr,
    stat: &Stat,
) -> Result<Option<FileType>, Errno> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(source, name, Vec::new())?;
            rustix::fs::symlinkat(target, points, name)?;
            Ok(None)
        }
        FileType::Directory => {
            make_directory(points, name)?;
            Ok(Some(FileType::Directory))
        }
        kind => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(points, name, flags, Mode::empty())?;
            Ok(Some(kind))
        }
    }
}

fn names(directory: BorrowedFd<'_>) -> Result<Vec<OsString>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = rustix::fs::openat(directory, c".", flags, Mode::empty())?;
    let mut buffer = vec![std::mem::MaybeUninit::uninit(); 16384];
    let mut entries = RawDir::new(listed, &mut buffer);
    let mut found = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            found.push(OsStr::from_bytes(name).to_os_string());
        }
    }
    Ok(found)
}

fn make_directory(at: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o755))
}

fn open_directory(at: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

/// A directory that was made here, opened so that its mode and times can be set on the descriptor: two walks through /proc
/// cost as much as making the directory.
fn open_own(at: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

fn open_child(at: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(at, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_found_in_another_spelling_tells_that_case_is_folded() {
        let directory = std::env::temp_dir().join(format!("cofferdam-folds-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("it can be made");
        let opened = rustix::fs::open(&directory, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("it is there");
        let folds = || folds_case(opened.as_fd());
        assert_eq!(other_spelling(opened.as_fd(), b"absent"), Ok(None), "a name that is not there tells nothing");
        assert_eq!(folds(), Ok(false), "it is empty");
        std::fs::write(directory.join("2 names"), "").expect("it can be made");
        assert_eq!(folds(), Ok(false));
        std::fs::write(directory.join("2 NAMES"), "").expect("it can be made");
        assert_eq!(folds(), Ok(false), "they are two");
        std::fs::remove_file(directory.join("2 NAMES")).expect("it is there");
        // As a file system that folds case has it.
        std::fs::hard_link(directory.join("2 names"), directory.join("2 NAMES")).expect("it can be linked");
        assert_eq!(folds(), Ok(true));
        std::fs::remove_dir_all(&directory).expect("it is there");
    }
}
