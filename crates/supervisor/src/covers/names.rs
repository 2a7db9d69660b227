//! The names that a keeper watches: directories of a tree that is written directly, each with its inotify watch and its
//! descriptor in the sandbox's view, and what has been heard of each covered name since it was last looked at. Owns the
//! reading of events and the look at a name; what follows from it is `covers`'s.
//!
//! Only events about directory entries are watched, and the end of writing: what workloads do most, opening and writing,
//! costs nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use cofferdam_kernel::best_effort;
use cofferdam_kernel::watches::Watches;
use cofferdam_plan::{Cover, Covered, Kind};
use rustix::fs::inotify::{self, ReadFlags, Reader, WatchFlags};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::covers::arrivals::Arrivals;
use crate::covers::search::Object;

const EVENTS: WatchFlags = WatchFlags::MOVED_TO
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// A name by the number of its directory.
pub(crate) type At = (usize, OsString);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Guard {
    pub(crate) what: Covered,
    pub(crate) kind: Kind,
    pub(crate) exec: bool,
    /// Nothing was there when its tree was given, and nothing holds the name: it is covered once something comes.
    pub(crate) is_absent: bool,
}

/// What was heard of a name since it was last known to be covered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Signs {
    /// How often something came under the name.
    pub(crate) appeared: u32,
    moved_in: bool,
    /// Written to after it had been moved there, which host programs that replace a file do not do.
    pub(crate) changed: bool,
    /// Moved away uncovered, to a place that may not be watched.
    pub(crate) left: bool,
}

#[derive(Debug, Default)]
struct Name {
    guard: Option<Guard>,
    /// The directory that lies there, where something below is watched.
    below: Option<usize>,
    /// The mount that covers it.
    mount: Option<u64>,
    signs: Signs,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    tree: PathBuf,
    above: Option<At>,
    watch: Option<i32>,
    object: Option<Object>,
    inside: Option<OwnedFd>,
    /// The one that the set-up found, in which it made its covers and nothing was missed since.
    is_first: bool,
    names: BTreeMap<OsString, Name>,
}

/// What a name leads to in the sandbox's view.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Seen {
    Gone,
    Covered { mount: u64 },
    Bare { object: Object, links: u32, is_directory: bool, changed: SystemTime },
}

#[derive(Debug)]
pub(crate) struct Names {
    inotify: Watches,
    directories: Vec<Directory>,
    by_path: HashMap<PathBuf, usize>,
    by_watch: HashMap<i32, Vec<usize>>,
    dirty: BTreeSet<At>,
    /// Names without a cover that came into being.
    fresh: BTreeSet<At>,
    /// What comes into being in the trees of a transaction.
    pub(crate) arrivals: Option<Arrivals>,
}

impl Names {
    /// The instance and every watch, before anything runs inside.
    pub(crate) fn watch<'a>(
        covers: impl Iterator<Item = (&'a Cover, &'a Path, bool)>,
    ) -> Result<Names, (PathBuf, Errno)> {
        let inotify = Watches::new().map_err(|errno| (PathBuf::new(), errno))?;
        let (directories, by_path, by_watch) = (Vec::new(), HashMap::new(), HashMap::new());
        let (dirty, fresh) = (BTreeSet::new(), BTreeSet::new());
        let mut names = Names { inotify, directories, by_path, by_watch, dirty, fresh, arrivals: None };
        for (cover, tree, exec) in covers {
            let guard = Guard { what: cover.what, kind: cover.kind, exec, is_absent: false };
            match names.add(&cover.path, tree, guard, false) {
                // Its socket went before this look.
                Err((_, Errno::NOENT)) if cover.what == Covered::Socket => {}
                other => other?,
            }
        }
        Ok(names)
    }

    /// Watches one more name of a tree. Where its directory may come later, that may be missing.
    pub(crate) fn add(
        &mut self,
        path: &Path,
        tree: &Path,
        guard: Guard,
        may_come: bool,
    ) -> Result<(), (PathBuf, Errno)> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let parent = self.directory(parent, tree, may_come)?;
        self.directories[parent].names.entry(name.to_owned()).or_default().guard = Some(guard);
        Ok(())
    }

    /// A name of a watched directory that came into being and has to be covered.
    pub(crate) fn guard_new(&mut self, at: &At, guard: Guard) {
        let name = self.directories[at.0].names.entry(at.1.clone()).or_default();
        name.guard = Some(guard);
        name.signs.appeared = name.signs.appeared.max(1);
        self.dirty.insert(at.clone());
    }

    /// A tree of which no name is covered yet.
    pub(crate) fn add_tree(&mut self, tree: &Path) -> Result<(), (PathBuf, Errno)> {
        self.directory(tree, tree, false).map(drop)
    }

    /// A name that came into being somewhere in a tree and has to be covered.
    pub(crate) fn guard_arrival(&mut self, path: &Path, tree: &Path, guard: Guard) -> Result<(), Errno> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        self.add(path, tree, guard, true).map_err(|(_, errno)| errno)?;
        if let Some(root) = self.by_path.get(tree) {
            self.reopen_below(*root)?;
        }
        if let Some(parent) = self.by_path.get(parent) {
            self.guard_new(&(*parent, name.to_owned()), guard);
        }
        Ok(())
    }

    /// One that is gone again; what lies below a directory of that name is watched on.
    pub(crate) fn forget_arrival(&mut self, path: &Path) {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return };
        let Some(number) = self.by_path.get(parent).copied() else { return };
        let names = &mut self.directories[number].names;
        if names.get(name).is_some_and(|one| one.below.is_none()) {
            names.remove(name);
            self.dirty.remove(&(number, name.to_owned()));
        }
    }

    /// Looks through directories that came into being, for as long as this.
    pub(crate) fn look_through(&mut self, until: Instant) {
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.look_through(self.inotify.as_fd(), until);
        }
    }

    /// The sandbox's view of a whole tree.
    pub(crate) fn view_of(&self, tree: &Path) -> Option<BorrowedFd<'_>> {
        let root = self.by_path.get(tree)?;
        self.directories[*root].inside.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn tree_of(&self, at: &At) -> &Path {
        &self.directories[at.0].tree
    }

    /// Socket nodes among the names that came into being.
    pub(crate) fn new_sockets(&mut self) -> Vec<At> {
        let fresh = std::mem::take(&mut self.fresh);
        let is_socket = |at: &At| {
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
            match self.inside(at).map(|inside| rustix::fs::statat(inside, &at.1, flags)) {
                Some(Ok(stat)) => FileType::from_raw_mode(stat.st_mode) == FileType::Socket,
                // The workload closed its directory: it may be one.
                Some(Err(errno)) => errno == Errno::ACCESS,
                None => false,
            }
        };
        fresh.into_iter().filter(is_socket).collect()
    }

    /// A tree that the session has no more: nothing of it is watched.
    pub(crate) fn leave(&mut self, tree: &Path) {
        let numbers: Vec<usize> = (0..self.directories.len()).filter(|at| self.directories[*at].tree == tree).collect();
        for number in numbers {
            let directory = &mut self.directories[number];
            (directory.inside, directory.object, directory.above, directory.is_first) = (None, None, None, false);
            directory.names.clear();
            let (path, watch) = (std::mem::take(&mut directory.path), directory.watch.take());
            self.by_path.remove(&path);
            self.dirty.retain(|at| at.0 != number);
            if let Some(watch) = watch {
                self.unwatch(watch, number);
            }
        }
    }

    fn unwatch(&mut self, watch: i32, number: usize) {
        let sharing = self.by_watch.entry(watch).or_default();
        sharing.retain(|one| *one != number);
        if sharing.is_empty() {
            self.by_watch.remove(&watch);
            if self.arrivals.as_ref().is_some_and(|arrivals| arrivals.has(watch)) {
                return;
            }
            best_effort(inotify::remove_watch(&self.inotify, watch), "a directory that was removed has none");
        }
    }

    /// The number of a directory in `tree`; it and what leads to it are watched from now on, or from when they come.
    fn directory(&mut self, path: &Path, tree: &Path, may_come: bool) -> Result<usize, (PathBuf, Errno)> {
        if let Some(known) = self.by_path.get(path) {
            return Ok(*known);
        }
        let mut above = None;
        if let (true, Some(parent), Some(name)) = (path != tree, path.parent(), path.file_name()) {
            above = Some((self.directory(parent, tree, may_come)?, name.to_owned()));
        }
        let watch = match inotify::add_watch(&self.inotify, path, EVENTS) {
            Err(Errno::NOENT | Errno::NOTDIR) if may_come => None,
            other => Some(other.map_err(|errno| (path.to_path_buf(), errno))?),
        };
        let number = self.directories.len();
        if let Some((parent, name)) = &above {
            self.directories[*parent].names.entry(name.clone()).or_default().below = Some(number);
        }
        let (path, tree, names) = (path.to_path_buf(), tree.to_path_buf(), BTreeMap::new());
        self.by_path.insert(path.clone(), number);
        if let Some(watch) = watch {
            self.by_watch.entry(watch).or_default().push(number);
        }
        let is_first = !may_come;
        self.directories.push(Directory { path, tree, above, watch, object: None, inside: None, is_first, names });
        Ok(number)
    }

    pub(crate) fn path(&self, at: &At) -> PathBuf {
        self.directories[at.0].path.join(&at.1)
    }

    pub(crate) fn inside(&self, at: &At) -> Option<BorrowedFd<'_>> {
        self.directories[at.0].inside.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn guard(&self, at: &At) -> Option<Guard> {
        self.directories[at.0].names.get(&at.1).and_then(|name| name.guard)
    }

    pub(crate) fn signs(&self, at: &At) -> Signs {
        self.directories[at.0].names.get(&at.1).map(|name| name.signs).unwrap_or_default()
    }

    /// The sandbox's view of a tree; what lies below is opened from it.
    pub(crate) fn enter(&mut self, tree: &Path, inside: OwnedFd) -> Result<(), Errno> {
        let Some(root) = self.by_path.get(tree).copied() else { return Ok(()) };
        self.directories[root].object = Some(object_of(inside.as_fd())?);
        self.directories[root].inside = Some(inside);
        if self.directories[root].watch.is_none() {
            self.watch_again(root)?;
        }
        self.reopen_below(root)?;
        self.look_at_all();
        Ok(())
    }

    pub(crate) fn look_at_all(&mut self) {
        for (number, directory) in self.directories.iter().enumerate() {
            self.dirty.extend(directory.names.keys().map(|name| (number, name.clone())));
        }
    }

    /// Opens the directories below one again: another may lie under a name by now, or a mount on it.
    fn reopen_below(&mut self, number: usize) -> Result<(), Errno> {
        let below: Vec<(OsString, usize)> =
            self.directories[number].names.iter().filter_map(|(name, one)| Some((name.clone(), one.below?))).collect();
        for (name, child) in below {
            let opened = self.directories[number].inside.as_ref().ok_or(Errno::NOENT).and_then(|inside| {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(inside, &name, flags, Mode::empty())
            });
            let opened = match opened {
                Err(Errno::ACCESS) if self.may_be_closed(&(number, name.clone())) => continue,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => None,
                other => Some(other?),
            };
            let object = opened.as_ref().map(|fd| object_of(fd.as_fd())).transpose()?;
            let is_new = object.is_some() && object != self.directories[child].object;
            let is_watched = self.directories[child].object.is_none() && self.directories[child].watch.is_some();
            // A directory that is opened for the first time is the one that the set-up found, if nothing was heard of it.
            let is_known = is_watched && self.directories[number].names[&name].signs.are_none();
            self.directories[child].is_first &= object.is_some() && (!is_new || is_known);
            self.directories[child].inside = opened;
            if object.is_none() {
                // Its number may be given to the next one.
                self.directories[child].object = None;
                if let Some(watch) = self.directories[child].watch.take() {
                    self.unwatch(watch, child);
                }
            }
            if is_new {
                self.directories[child].object = object;
                if !is_watched {
                    self.watch_again(child)?;
                }
            }
            self.reopen_below(child)?;
        }
        Ok(())
    }

    /// Another directory lies there: its names are as good as new.
    fn watch_again(&mut self, number: usize) -> Result<(), Errno> {
        let Some(inside) = &self.directories[number].inside else { return Ok(()) };
        let way = format!("/proc/self/fd/{}", inside.as_raw_fd());
        let watch = inotify::add_watch(&self.inotify, way, EVENTS)?;
        let old = self.directories[number].watch.replace(watch);
        if old != Some(watch) {
            if let Some(old) = old {
                self.unwatch(old, number);
            }
            self.by_watch.entry(watch).or_default().push(number);
        }
        // Each directory that came under its name may have shown something else under each name in it, and nothing was heard
        // of what happened in those between.
        let above = self.directories[number].above.as_ref();
        let times = above.map_or(1, |above| self.signs(above).appeared.max(1));
        for (name, one) in &mut self.directories[number].names {
            // A name that was never there need not be in the new directory either: the look tells.
            if !one.guard.is_some_and(|guard| guard.is_absent) {
                one.signs.appeared += times;
            }
            self.dirty.insert((number, name.clone()));
        }
        Ok(())
    }

    /// Takes in what happened, up to about so many events; the names that it is about are dirty.
    pub(crate) fn hear(&mut self, most: usize) -> Result<(), Errno> {
        let mut buffer = [MaybeUninit::uninit(); 16384];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut replaced = BTreeSet::new();
        let mut is_over = false;
        let mut heard = 0;
        while heard < most || !reader.is_buffer_empty() {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            };
            let flags = event.events();
            heard += 1;
            is_over |= flags.contains(ReadFlags::QUEUE_OVERFLOW);
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            if let Some(arrivals) = &mut self.arrivals {
                arrivals.heard(event.wd(), name, flags);
            }
            let Some(numbers) = self.by_watch.get(&event.wd()) else { continue };
            for number in numbers {
                let directory = &mut self.directories[*number];
                let Some(name) = name else {
                    // The directory itself: gone, moved, or not watched any more.
                    replaced.extend(directory.above.as_ref().map(|above| above.0));
                    continue;
                };
                if let Some(one) = directory.names.get_mut(name) {
                    one.signs.heard(flags);
                    if one.below.is_some() {
                        replaced.insert(*number);
                    }
                    self.dirty.insert((*number, name.to_owned()));
                } else if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                    self.fresh.insert((*number, name.to_owned()));
                }
            }
        }
        for number in replaced {
            self.reopen_below(number)?;
        }
        if is_over {
            // Anything may have happened meanwhile.
            self.look_at_all();
            self.arrivals.iter_mut().for_each(Arrivals::look_again);
            for directory in &mut self.directories {
                directory.names.values_mut().for_each(|one| one.signs.appeared = one.signs.appeared.max(1));
            }
        }
        Ok(())
    }

    /// Names that are not as they should be, outer ones first. Those that are lose their signs.
    pub(crate) fn suspects(&mut self) -> Result<Vec<At>, Errno> {
        let unopened = self.directories.iter().filter(|directory| directory.is_first && directory.inside.is_none());
        let above: BTreeSet<usize> = unopened.filter_map(|directory| Some(directory.above.as_ref()?.0)).collect();
        for number in above {
            self.reopen_below(number)?;
        }
        let (mut suspects, mut closed) = (Vec::new(), Vec::new());
        for at in std::mem::take(&mut self.dirty) {
            if self.guard(&at).is_none() {
                continue;
            }
            match self.look(&at) {
                Err(Errno::ACCESS) if self.may_be_closed(&at) => closed.push(at),
                Err(errno) => return Err(errno),
                Ok(Seen::Covered { mount }) => self.settle(&at, mount)?,
                Ok(Seen::Gone | Seen::Bare { .. }) => suspects.push(at),
            }
        }
        self.dirty.extend(closed);
        suspects.sort_by_key(|at| self.directories[at.0].path.components().count());
        Ok(suspects)
    }

    /// Whether the last look left names out because the workload closed their directory.
    pub(crate) fn has_closed(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The workload closed the directory, and so nothing in it can be looked at. What the set-up covered there is covered still,
    /// for nothing was heard of it; of a directory that came later nothing is known.
    fn may_be_closed(&self, at: &At) -> bool {
        self.directories[at.0].is_first && self.signs(at).are_none()
    }

    /// To be looked at again, whether or not anything is heard of it.
    pub(crate) fn doubt(&mut self, at: &At) {
        self.dirty.insert(at.clone());
    }

    /// It is covered by this mount: what was heard before is over.
    pub(crate) fn settle(&mut self, at: &At, mount: u64) -> Result<(), Errno> {
        let below = self.directories[at.0].names.get_mut(&at.1).and_then(|name| {
            let is_new = name.mount.replace(mount) != Some(mount);
            name.signs = Signs::default();
            name.guard.iter_mut().for_each(|guard| guard.is_absent = false);
            name.below.filter(|_| is_new)
        });
        if below.is_some() {
            // What was opened before lies under the new mount.
            self.reopen_below(at.0)?;
        }
        Ok(())
    }

    pub(crate) fn forget_signs(&mut self, at: &At) {
        if let Some(name) = self.directories[at.0].names.get_mut(&at.1) {
            name.signs = Signs::default();
            name.mount = None;
        }
    }

    pub(crate) fn look(&self, at: &At) -> Result<Seen, Errno> {
        let directory = &self.directories[at.0];
        let Some(inside) = &directory.inside else {
            // Where it was there and could not be opened yet, what leads to it is closed.
            return if directory.is_first { Err(Errno::ACCESS) } else { Ok(Seen::Gone) };
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match rustix::fs::openat(inside, &at.1, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Seen::Gone),
            other => other?,
        };
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        // What covers it may be a file that the supervisor itself serves, and it would wait for its own answer.
        let quiet = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = rustix::fs::statx(&found, c"", quiet, wanted)?;
        if stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
            return Ok(Seen::Covered { mount: stat.stx_mnt_id });
        }
        let stat = rustix::fs::statx(&found, c"", AtFlags::EMPTY_PATH, wanted)?;
        let seconds = Duration::new(stat.stx_ctime.tv_sec.try_into().unwrap_or(0), stat.stx_ctime.tv_nsec);
        Ok(Seen::Bare {
            object: (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino),
            links: stat.stx_nlink,
            is_directory: FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory,
            changed: SystemTime::UNIX_EPOCH + seconds,
        })
    }
}

impl AsFd for Names {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl Signs {
    fn are_none(self) -> bool {
        self == Signs::default()
    }

    fn heard(&mut self, flags: ReadFlags) {
        if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            self.appeared += 1;
            self.moved_in = flags.contains(ReadFlags::MOVED_TO);
        }
        self.changed |= flags.contains(ReadFlags::CLOSE_WRITE) && self.moved_in;
        // What leaves with its cover on stays covered.
        self.left |= flags.contains(ReadFlags::MOVED_FROM) && self.appeared > 0;
    }
}

fn object_of(fd: BorrowedFd<'_>) -> Result<Object, Errno> {
    let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::INO)?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
}
