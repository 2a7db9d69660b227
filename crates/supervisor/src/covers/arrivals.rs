//! Names that come into being in the trees of a transaction and that the policy hides: on the host, below the overlay, and in
//! the session's own layer. Owns the watches on the directories of both and the rules they are asked about; covering is
//! `covers`'s. An overlay tells the two apart, which a tree that is written directly does not (decision 0050).
//!
//! A directory is watched first and listed then, so that nothing comes unnoticed in between. Not entered are links, directories
//! that tools fill, what is hidden as a whole, and what is another mount in the session.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use cofferdam_host::preparation::Known;
use cofferdam_plan::{Covered, GateRule, LaunchPlan, MountKind, Step, all_gate_rules};
use cofferdam_policy::decide::index::is_filled_by_tools;
use cofferdam_policy::{Access, RuleIndex, Ruling};
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

/// As deep as names are searched for at the start (decision 0039).
const MOST_LEVELS: usize = 16;
/// Watched directories of a tree. The session makes those of its own layer, and the user has only so many watches.
const MOST_BELOW: usize = 16_384;
const MOST_OWN: usize = 4_096;
/// Directories between two looks at the clock.
const AT_ONCE: usize = 16;

const EVENTS: WatchFlags =
    WatchFlags::MOVED_TO.union(WatchFlags::CREATE).union(WatchFlags::ONLYDIR).union(WatchFlags::MASK_ADD);

/// Whose directory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The host's, below the overlay.
    Host,
    /// The session's own layer.
    Session,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) tree: PathBuf,
    /// As the session calls it.
    pub(crate) path: PathBuf,
    pub(crate) what: Covered,
    pub(crate) side: Side,
}

#[derive(Debug)]
struct Root {
    tree: PathBuf,
    /// Where the directory lies on the host.
    place: OwnedFd,
    side: Side,
    watched: usize,
}

/// A directory that was not looked through yet, from its root.
#[derive(Debug)]
struct Waiting {
    root: usize,
    path: PathBuf,
    /// It came while the session ran, so every name in it did.
    is_new: bool,
}

#[derive(Debug)]
pub(crate) struct Arrivals {
    rules: RuleIndex<GateRule>,
    roots: Vec<Root>,
    by_watch: HashMap<i32, (usize, PathBuf)>,
    waiting: VecDeque<Waiting>,
    /// Names that have a cover from the start, and what else is mounted in the overlays.
    mounted: HashSet<PathBuf>,
    /// Names of the host that a layer of the overlay hides.
    hidden: HashSet<PathBuf>,
    found: Vec<Arrival>,
    /// The first directory of the host's that is not watched, and how many.
    unwatched: Option<(PathBuf, usize)>,
}

impl Arrivals {
    /// `None` where the plan has no transaction. `session` has the layers.
    pub(crate) fn of(plan: &LaunchPlan, known: &Known, session: &Path) -> Result<Option<Arrivals>, (PathBuf, Errno)> {
        let mut roots = Vec::new();
        for (tree, slot) in plan.transaction_trees() {
            let upper = session.join(slot.to_string()).join("upper");
            // Over a copy lies nothing of the host's.
            let host = (!plan.is_copied(tree)).then_some((tree, Side::Host));
            for (place, side) in host.into_iter().chain([(&*upper, Side::Session)]) {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let opened = rustix::fs::open(place, flags, Mode::empty());
                let opened = opened.map_err(|errno| (place.to_path_buf(), errno))?;
                roots.push(Root { tree: tree.to_path_buf(), place: opened, side, watched: 0 });
            }
        }
        if roots.is_empty() {
            return Ok(None);
        }
        let mounts = plan.steps.iter().filter_map(|step| match step {
            Step::Mount(mount) => Some(mount),
            _ => None,
        });
        let hidden = mounts.clone().filter_map(|mount| match &mount.kind {
            MountKind::Overlay { absent, .. } => Some(absent.iter().map(|name| mount.target.join(&name.path))),
            _ => None,
        });
        let targets = mounts.clone().map(|mount| &mount.target);
        let covered = plan.covers.iter().map(|cover| &cover.path);
        Ok(Some(Arrivals {
            rules: all_gate_rules(&known.policy, &known.facts, &plan.decisions),
            waiting: (0..roots.len()).map(|root| Waiting { root, path: PathBuf::new(), is_new: false }).collect(),
            mounted: targets.chain(covered).cloned().collect(),
            hidden: hidden.flatten().collect(),
            roots,
            by_watch: HashMap::new(),
            found: Vec::new(),
            unwatched: None,
        }))
    }

    pub(crate) fn take(&mut self) -> Vec<Arrival> {
        std::mem::take(&mut self.found)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.found.is_empty()
    }

    pub(crate) fn has(&self, watch: i32) -> bool {
        self.by_watch.contains_key(&watch)
    }

    /// Told once.
    pub(crate) fn take_unwatched(&mut self) -> Option<(PathBuf, usize)> {
        self.unwatched.take()
    }

    /// Events were lost: everything is looked through again.
    pub(crate) fn look_again(&mut self) {
        let all = (0..self.roots.len()).map(|root| Waiting { root, path: PathBuf::new(), is_new: true });
        self.waiting = all.collect();
        self.by_watch.clear();
        self.roots.iter_mut().for_each(|root| root.watched = 0);
    }

    /// One event.
    pub(crate) fn heard(&mut self, watch: i32, name: Option<&OsStr>, flags: ReadFlags) {
        if flags.contains(ReadFlags::IGNORED) {
            if let Some((root, _)) = self.by_watch.remove(&watch) {
                self.roots[root].watched -= 1;
            }
            return;
        }
        let Some(name) = name.filter(|_| flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO)) else { return };
        let Some((root, directory)) = self.by_watch.get(&watch) else { return };
        let (root, directory) = (*root, directory.clone());
        let kind = if flags.contains(ReadFlags::ISDIR) { FileType::Directory } else { FileType::RegularFile };
        let above = self.rules.ruling(&self.roots[root].tree.join(&directory));
        self.look_at(root, &directory, above, name, kind, true);
    }

    /// Looks through what waits, for as long as this.
    pub(crate) fn look_through(&mut self, inotify: BorrowedFd<'_>, until: Instant) {
        let mut looked = 0;
        while let Some(next) = self.waiting.pop_front() {
            if let Err(errno) = self.list(inotify, &next) {
                // Gone again; or the session sees nothing in it either.
                let is_harmless =
                    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::ACCESS);
                if !is_harmless {
                    self.leave_out(&next);
                }
            }
            looked += 1;
            if looked % AT_ONCE == 0 && Instant::now() >= until {
                return;
            }
        }
    }

    /// What the session makes in its own layer is left out of its changes, watched or not.
    fn leave_out(&mut self, directory: &Waiting) {
        let root = &self.roots[directory.root];
        if root.side == Side::Host {
            self.unwatched.get_or_insert_with(|| (root.tree.join(&directory.path), 0)).1 += 1;
        }
    }

    fn list(&mut self, inotify: BorrowedFd<'_>, next: &Waiting) -> Result<(), Errno> {
        let root = &self.roots[next.root];
        let most = if root.side == Side::Host { MOST_BELOW } else { MOST_OWN };
        if root.watched >= most || next.path.components().count() > MOST_LEVELS {
            return Err(Errno::NOSPC);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let path = if next.path.as_os_str().is_empty() { Path::new(".") } else { &next.path };
        let listed = rustix::fs::openat2(&root.place, path, flags, Mode::empty(), resolve)?;
        let watch = inotify::add_watch(inotify, format!("/proc/self/fd/{}", listed.as_raw_fd()), EVENTS)?;
        let above = self.rules.ruling(&root.tree.join(&next.path));
        if self.by_watch.insert(watch, (next.root, next.path.clone())).is_none() {
            self.roots[next.root].watched += 1;
        }
        let mut buffer = vec![MaybeUninit::uninit(); 16384];
        let mut entries = RawDir::new(listed.as_fd(), &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if !matches!(name.as_bytes(), b"." | b"..") {
                let kind = match entry.file_type() {
                    FileType::Unknown => kind_of(listed.as_fd(), name),
                    kind => kind,
                };
                self.look_at(next.root, &next.path, above, name, kind, next.is_new);
            }
        }
        Ok(())
    }

    fn look_at(&mut self, root: usize, directory: &Path, above: Ruling, name: &OsStr, kind: FileType, is_new: bool) {
        let Root { tree, side, .. } = &self.roots[root];
        let around = tree.join(directory);
        let ruling = self.rules.rule(self.rules.child(&around, above, name)).map(|rule| rule.access);
        let what = match (ruling, side) {
            (Some(Access::Deny), _) => Some(Covered::Hidden),
            // What the workload made itself has no values that it does not know.
            (Some(Access::Mask), Side::Host) => Some(Covered::Masked),
            _ => None,
        };
        let path = around.join(name);
        // What a link leads to was decided at the start, by its own path.
        let was_looked_at = !is_new && kind == FileType::Symlink;
        let is_absent = *side == Side::Host && self.hidden.contains(&path);
        if self.mounted.contains(&path) || is_absent || was_looked_at {
            return;
        }
        if let Some(what) = what {
            self.found.push(Arrival { tree: tree.clone(), path, what, side: *side });
        } else if kind == FileType::Directory && !is_filled_by_tools(name.as_bytes()) {
            self.waiting.push_back(Waiting { root, path: directory.join(name), is_new });
        }
    }
}

fn kind_of(directory: BorrowedFd<'_>, name: &OsStr) -> FileType {
    let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT);
    found.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}
