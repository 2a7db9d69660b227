//! What the keeper does about names that come into being in a transaction and that the policy hides (decision 0050). Owns the
//! reaction to each arrival, and the name that the session gets where its view does not show the host's yet; which names are
//! meant is `arrivals`'s, and stopping, covering and judging is the keeper's as for any cover.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_gate::{Coverer, How};
use cofferdam_kernel::best_effort;
use cofferdam_plan::Kind;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::covers::arrivals::{Arrival, Arrivals, Side};
use crate::covers::names::{At, Guard};
use crate::covers::{Keeper, Surroundings};

/// Looking through new directories takes so long of one turn of the loop.
const SLICE: Duration = Duration::from_millis(2);
/// As many names as the plan of a launch covers (decision 0039).
const MOST_ARRIVALS: usize = 4096;
/// Names that the session made and that are covered: each is a mount. The others are left out of its changes as well.
const MOST_MADE: usize = 256;

/// Names of transactions.
#[derive(Debug, Default)]
pub(crate) struct Overlaid {
    trees: BTreeSet<PathBuf>,
    /// On the host, each once however often it comes.
    arrived: BTreeSet<PathBuf>,
    /// Made by the session, and not covered yet.
    fresh: Vec<Arrival>,
    made: BTreeSet<PathBuf>,
}

impl Overlaid {
    pub(crate) fn new<'a>(trees: impl Iterator<Item = (&'a Path, usize)>) -> Self {
        Overlaid { trees: trees.map(|(tree, _)| tree.to_path_buf()).collect(), ..Overlaid::default() }
    }

    pub(crate) fn has(&self, tree: &Path) -> bool {
        self.trees.contains(tree)
    }
}

impl Keeper {
    /// Looks through the trees of a transaction; what is left is for idle moments.
    pub(crate) fn look_through(&mut self, time: Duration) {
        self.names.look_through(Instant::now() + time);
    }

    /// Whether directories wait to be looked through, or names to be covered.
    pub(crate) fn has_to_look(&self) -> bool {
        self.is_ready() && self.names.arrivals.as_ref().is_some_and(Arrivals::is_waiting)
    }

    /// Hidden names that the session made; they are no part of its changes.
    pub(crate) fn made(&self) -> impl Iterator<Item = &Path> {
        self.overlaid.made.iter().map(PathBuf::as_path)
    }

    /// The first directory of the host's in which nothing would be noticed, and how many there are.
    pub(crate) fn take_unwatched(&mut self) -> Option<(PathBuf, usize)> {
        self.names.arrivals.as_mut().and_then(Arrivals::take_unwatched)
    }

    pub(super) fn receive_arrivals(&mut self) -> Result<(), Errno> {
        self.look_through(SLICE);
        let arrivals = self.names.arrivals.as_mut().map(Arrivals::take).unwrap_or_default();
        for arrival in arrivals {
            if arrival.side == Side::Session {
                self.overlaid.fresh.push(arrival);
                continue;
            }
            self.overlaid.arrived.insert(arrival.path.clone());
            if self.overlaid.arrived.len() > MOST_ARRIVALS {
                self.forget_gone(&arrival.path)?;
            }
            let guard = Guard { what: arrival.what, kind: Kind::File, exec: false, is_absent: true };
            self.names.guard_arrival(&arrival.path, &arrival.tree, guard)?;
        }
        Ok(())
    }

    /// Programs that save by renaming may take a new name each time: those that are gone take no place. Where one comes again, that
    /// is heard as it was the first time.
    fn forget_gone(&mut self, newest: &Path) -> Result<(), Errno> {
        let is_gone = |path: &PathBuf| path != newest && matches!(rustix::fs::lstat(path), Err(Errno::NOENT));
        let gone: Vec<PathBuf> = self.overlaid.arrived.extract_if(.., is_gone).collect();
        for path in &gone {
            self.names.forget_arrival(path);
        }
        if self.overlaid.arrived.len() > MOST_ARRIVALS { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// What the session made is its own: nothing has to be stopped for it, and nothing follows from it.
    pub(super) fn cover_made(&mut self, ends: &Surroundings<'_>) -> Result<(), Errno> {
        for made in std::mem::take(&mut self.overlaid.fresh) {
            if self.overlaid.made.len() >= MOST_MADE {
                continue;
            }
            let relative = made.path.strip_prefix(&made.tree).unwrap_or(&made.path);
            let (Some(parent), Some(name)) = (relative.parent(), relative.file_name()) else { continue };
            let Some(view) = self.names.view_of(&made.tree) else { continue };
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let Ok(directory) = rustix::fs::openat2(view, parent, flags, Mode::empty(), resolve) else { continue };
            // A whiteout in the session's layer is no name.
            if rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).is_err() {
                continue;
            }
            if self.coverer.is_none() {
                self.coverer = Some(Coverer::start(ends.mounts)?);
            }
            let Some(coverer) = &self.coverer else { continue };
            let covered = coverer.cover(std::os::fd::AsFd::as_fd(&directory), name, How::Hide, false);
            best_effort(
                covered,
                "it was removed again, or has a cover; what the session made is left out of its changes",
            );
            self.overlaid.made.insert(made.path);
        }
        Ok(())
    }

    /// The session has ended before they were covered.
    pub(super) fn note_made(&mut self) {
        let room = MOST_MADE.saturating_sub(self.overlaid.made.len());
        self.overlaid.made.extend(self.overlaid.fresh.drain(..).take(room).map(|made| made.path));
    }

    /// An overlay remembers that a name was not there. What the host made under it would be seen once that is forgotten: the session
    /// gets a name of its own in its place, which can be covered. Whether it did.
    pub(super) fn stand_before_host(&mut self, at: &At) -> Result<bool, Errno> {
        let is_on_host = || rustix::fs::lstat(self.names.path(at)).is_ok();
        if !self.overlaid.has(self.names.tree_of(at)) || !is_on_host() {
            return Ok(false);
        }
        let Some(inside) = self.names.inside(at) else { return Ok(false) };
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(inside, &at.1, flags, Mode::empty()) {
            Ok(_) | Err(Errno::EXIST) => {
                self.names.doubt(at);
                Ok(true)
            }
            // The session removed the directory: its own has none of the host's names.
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Where what lies in a directory can be listed as the session sees it: through an overlay each object has another number.
    pub(super) fn way_to(&self, at: &At) -> PathBuf {
        match self.names.inside(at).filter(|_| self.overlaid.has(self.names.tree_of(at))) {
            Some(inside) => PathBuf::from(format!("/proc/self/fd/{}", inside.as_raw_fd())).join(&at.1),
            None => self.names.path(at),
        }
    }
}
