//! Puts a checkpoint back. While the session runs this is done in its own view of the tree, name by name, so that the overlay learns of
//! it; afterwards its upper layer is made anew beside the old one, and the two change places. Owns both ways and what would
//! come back and go; that no process writes meanwhile is the caller's. Called by `supervisor` and `cli`.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use cofferdam_kernel::best_effort;
use rustix::fs::{AtFlags, FileType, Mode, RenameFlags};
use rustix::io::Errno;
use serde::Serialize;

use super::layer::{Copy, Held, Layer};
use super::record::By;
use super::taking::Checkpoints;
use crate::attributes::OPAQUE;
use crate::beneath::{self, DEEPEST};
use crate::entry::{Entry, Kind};
use crate::origins::Origins;
use crate::staging::{copy_file, unknown_name};

/// What becomes of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Would {
    ComeBack,
    Go,
    Change,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// On the host.
    pub path: PathBuf,
    pub would: Would,
}

/// What was put back, and what stayed because it cannot be reached: a covered name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// The checkpoint that stands for it.
    pub number: Option<usize>,
    pub stayed: Vec<PathBuf>,
}

impl Checkpoints {
    /// How the last checkpoint differs from an earlier one, directories left out. To be asked when nothing is newer than it.
    pub fn preview(&self, to: usize) -> Result<Vec<Difference>, Errno> {
        let then = self.layers_at(to)?;
        let mut found = Vec::new();
        for (which, (now, then)) in self.layers.iter().zip(&then).enumerate() {
            let (root, lower) = (self.lower(which)?, &self.trees[which].lower);
            for path in differing(now, then) {
                let seen = |layer: &Layer| is_seen(layer, path, root.as_fd());
                let would = match (seen(now), seen(then)) {
                    (false, true) => Would::ComeBack,
                    (true, false) => Would::Go,
                    (true, true) => Would::Change,
                    (false, false) => continue,
                };
                found.push(Difference { path: lower.join(path), would });
            }
        }
        Ok(found)
    }

    /// In the session's own view of each tree, while none of its processes runs. What is there is a checkpoint before.
    pub fn put_back_live(&mut self, to: usize, views: &[OwnedFd]) -> Result<Restored, Errno> {
        self.put_back_live_with(to, views, &|| ())
    }

    /// With something to be done before each name.
    pub(crate) fn put_back_live_with(
        &mut self,
        to: usize,
        views: &[OwnedFd],
        between: &dyn Fn(),
    ) -> Result<Restored, Errno> {
        if !self.has(to) {
            // Merged with the one that was made last.
            return Err(Errno::NOENT);
        }
        let then = self.layers_at(to)?;
        self.begin_put_back(to)?;
        let (mut stayed, mut origins) = (Vec::new(), began_below(&then));
        for (which, view) in views.iter().enumerate().take(then.len()) {
            let (lower, place) = (self.lower(which)?, &self.trees[which].lower);
            let is_hidden = |path: &Path| self.is_left_out(&self.trees[which], path);
            let is_masked = |path: &Path| self.masked.is_hidden(&place.join(path));
            let mut back = Back {
                view: view.as_fd(),
                lower: lower.as_fd(),
                store: self.own.as_fd(),
                now: &self.layers[which],
                then: &then[which],
                is_hidden: &is_hidden,
                is_masked: &is_masked,
                between,
                touched: BTreeSet::new(),
                made: HashMap::new(),
                given: HashSet::new(),
                stayed: Vec::new(),
            };
            back.all()?;
            origins[which].extend(back.given);
            stayed.extend(back.stayed.into_iter().map(|path| place.join(path)));
        }
        self.note_origins(origins)?;
        let number = self.record_put_back(&then, to)?;
        self.note_stayed(&stayed)?;
        self.end_put_back()?;
        Ok(Restored { number, stayed })
    }

    /// After the session: the layers are made anew. What is there is a checkpoint before.
    pub fn put_back_sealed(&mut self, to: usize) -> Result<Restored, Errno> {
        if !self.has(to) {
            return Err(Errno::NOENT);
        }
        let then = self.layers_at(to)?;
        self.note_origins(began_below(&then))?;
        for (tree, layer) in self.trees.iter().zip(&then) {
            self.rebuild(tree.slot, layer)?;
        }
        let number = self.record_put_back(&then, to)?;
        self.end_put_back()?;
        Ok(Restored { number, stayed: Vec::new() })
    }

    /// What was put back is what it was: it refers to the same copies, whatever file has the name now.
    fn record_put_back(&mut self, then: &[Layer], to: usize) -> Result<Option<usize>, Errno> {
        let mut pending = self.begin()?;
        self.refer_to(then, &mut pending)?;
        self.settle(pending, By::Undo, &format!("as {to}"), Some(to))
    }

    fn rebuild(&self, slot: usize, layer: &Layer) -> Result<(), Errno> {
        const NEW: &str = "upper.new";
        let slot = beneath::directory(self.directory.as_fd(), Path::new(&slot.to_string()))?;
        // Of a process before that did not come to its end.
        crate::stages::remove(slot.as_fd(), NEW)?;
        let new = crate::staging::make(slot.as_fd(), NEW)?;
        let mut made: HashMap<Copy, PathBuf> = HashMap::new();
        let mut modes = Vec::new();
        for (path, held) in layer {
            let (parent, name) = beneath::parent(new.as_fd(), path)?;
            match held {
                Held::Whiteout => {
                    let mode = Mode::empty();
                    rustix::fs::mknodat(&parent, name, FileType::CharacterDevice, mode, rustix::fs::makedev(0, 0))?;
                }
                Held::Link { target } => rustix::fs::symlinkat(target, &parent, name)?,
                Held::Directory { mode, is_opaque, .. } => {
                    rustix::fs::mkdirat(&parent, name, Mode::RWXU)?;
                    if *is_opaque {
                        let opened = beneath::directory(parent.as_fd(), Path::new(name))?;
                        rustix::fs::fsetxattr(&opened, OPAQUE, b"y", rustix::fs::XattrFlags::empty())?;
                    }
                    modes.push((path, *mode));
                }
                Held::File { copy, mode, .. } => {
                    if let Some(first) = made.get(copy) {
                        let (at, first) = beneath::parent(new.as_fd(), first)?;
                        rustix::fs::linkat(&at, first, &parent, name, AtFlags::empty())?;
                    } else {
                        copy_stored(self.own.as_fd(), *copy, *mode, parent.as_fd(), name)?;
                        made.insert(*copy, path.clone());
                    }
                }
            }
        }
        for (path, mode) in modes.into_iter().rev() {
            rustix::fs::fchmod(beneath::directory(new.as_fd(), path)?, Mode::from_raw_mode(mode))?;
        }
        crate::staging::sync_file_system(&slot)?;
        rustix::fs::renameat_with(&slot, NEW, &slot, "upper", RenameFlags::EXCHANGE)?;
        crate::stages::remove(slot.as_fd(), NEW)
    }
}

/// The names of layers that were copies of what the trees below have: written anew they are no less.
fn began_below(layers: &[Layer]) -> Origins {
    let names =
        |layer: &Layer| layer.iter().filter(|(_, held)| held.was_below()).map(|(path, _)| path.clone()).collect();
    layers.iter().map(names).collect()
}

/// Content of a file as it was, under a new name.
fn copy_stored(
    store: BorrowedFd<'_>,
    (number, file): Copy,
    mode: u32,
    into: BorrowedFd<'_>,
    name: &OsStr,
) -> Result<(), Errno> {
    let directory = beneath::directory(store, Path::new(&number.to_string()))?;
    copy_file(directory.as_fd(), OsStr::new(&file.to_string()), into, name)?;
    rustix::fs::chmodat(into, name, Mode::from_raw_mode(mode), AtFlags::empty())
}

/// The names that differ and are no directories in both.
fn differing<'a>(now: &'a Layer, then: &'a Layer) -> Vec<&'a Path> {
    let names: BTreeSet<&PathBuf> = now.keys().chain(then.keys()).collect();
    let is_directory = |held: Option<&Held>| matches!(held, Some(Held::Directory { .. }) | None);
    let differs = |path: &&PathBuf| {
        let (one, other) = (now.get(*path), then.get(*path));
        let is_alike = matches!((one, other), (Some(one), Some(other)) if one.is_like(other));
        !(is_alike || is_directory(one) && is_directory(other))
    };
    names.into_iter().filter(differs).map(PathBuf::as_path).collect()
}

/// Whether a name is there in the view that a layer and the tree below it give.
fn is_seen(layer: &Layer, path: &Path, lower: BorrowedFd<'_>) -> bool {
    match layer.get(path) {
        Some(Held::Whiteout) => false,
        Some(_) => true,
        None => {
            let above = path.ancestors().skip(1);
            let hides = |at: &Path| match layer.get(at) {
                Some(Held::Directory { is_opaque, .. }) => *is_opaque,
                Some(_) => true,
                None => false,
            };
            let is_below = || {
                let (parent, name) = beneath::parent(lower, path).ok()?;
                Entry::at(parent.as_fd(), name).ok()?
            };
            !above.into_iter().any(hides) && is_below().is_some()
        }
    }
}

/// One tree on its way back.
struct Back<'a> {
    view: BorrowedFd<'a>,
    lower: BorrowedFd<'a>,
    store: BorrowedFd<'a>,
    now: &'a Layer,
    then: &'a Layer,
    is_hidden: &'a dyn Fn(&Path) -> bool,
    /// Of which the session must not see what the host has.
    is_masked: &'a dyn Fn(&Path) -> bool,
    between: &'a dyn Fn(),
    /// Names that differ, and every directory on the way to them.
    touched: BTreeSet<PathBuf>,
    /// Files with several names.
    made: HashMap<Copy, PathBuf>,
    /// What came from the tree below.
    given: HashSet<PathBuf>,
    stayed: Vec<PathBuf>,
}

/// What has to be at a name.
enum Wanted<'a> {
    Nothing,
    Held(&'a Held),
    /// What the tree below has there.
    Lower(Entry),
}

/// A directory on the way.
#[derive(Clone, Copy)]
struct At<'a> {
    path: &'a Path,
    /// What the tree below has here can be seen.
    through: bool,
    /// Everything in it may differ.
    whole: bool,
    depth: usize,
}

impl Back<'_> {
    fn all(&mut self) -> Result<(), Errno> {
        let names: HashSet<&PathBuf> = self.now.keys().chain(self.then.keys()).collect();
        for path in names {
            let is_alike =
                matches!((self.now.get(path), self.then.get(path)), (Some(one), Some(other)) if one.is_like(other));
            match self.then.get(path) {
                Some(Held::File { copy, .. }) if is_alike => {
                    self.made.entry(*copy).or_insert_with(|| path.clone());
                }
                _ if is_alike => {}
                _ => self.touched.extend(path.ancestors().map(Path::to_path_buf)),
            }
        }
        if self.touched.is_empty() {
            return Ok(());
        }
        self.directory(At { path: Path::new(""), through: true, whole: false, depth: 0 })
    }

    fn directory(&mut self, at: At<'_>) -> Result<(), Errno> {
        if at.depth > DEEPEST {
            return Err(Errno::LOOP);
        }
        let (view, _unclosed) = match at.path.file_name() {
            None => (beneath::directory(self.view, at.path)?, None),
            Some(name) => {
                let (parent, _) = beneath::parent(self.view, at.path)?;
                beneath::layer_directory(parent.as_fd(), name)?
            }
        };
        let mut names: BTreeSet<std::ffi::OsString> = BTreeSet::new();
        let below = at.through.then(|| beneath::directory(self.lower, at.path)).and_then(Result::ok);
        let is_child = |path: &&PathBuf| path.parent() == Some(at.path) && !path.as_os_str().is_empty();
        let touched = self.touched.range(at.path.to_path_buf()..).take_while(|path| path.starts_with(at.path));
        names.extend(touched.filter(is_child).filter_map(|path| path.file_name()).map(OsStr::to_owned));
        if at.whole {
            names.extend(beneath::names(view.as_fd(), 1 << 20)?);
            if let Some(below) = &below {
                names.extend(beneath::names(below.as_fd(), 1 << 20)?);
            }
        }
        for name in names {
            let path = at.path.join(&name);
            if (self.is_hidden)(&path) {
                continue;
            }
            (self.between)();
            match self.name(at, view.as_fd(), below.as_ref().map(|below| below.as_fd()), &name, &path) {
                // Something is mounted there, or lies there that this user cannot change.
                Err(Errno::XDEV | Errno::BUSY | Errno::ROFS | Errno::PERM | Errno::ACCESS | Errno::NOTEMPTY) => {
                    // Others are as they were anyway.
                    self.stayed.extend(Some(path).filter(|path| self.touched.contains(path)));
                }
                other => other?,
            }
        }
        Ok(())
    }

    fn name(
        &mut self,
        at: At<'_>,
        view: BorrowedFd<'_>,
        below: Option<BorrowedFd<'_>>,
        name: &OsStr,
        path: &Path,
    ) -> Result<(), Errno> {
        // A cover is a mount, and stays: what is mounted there is not even looked at.
        let actual = match beneath::opened_as_path(view, name) {
            Err(Errno::NOENT) => None,
            opened => {
                drop(opened?);
                Entry::at(view, name)?
            }
        };
        let lower = below.map(|below| Entry::at(below, name)).transpose()?.flatten();
        let wanted = match self.then.get(path) {
            Some(Held::Whiteout) => Wanted::Nothing,
            Some(held) => Wanted::Held(held),
            None => lower.clone().map_or(Wanted::Nothing, Wanted::Lower),
        };
        if let (Wanted::Lower(_), Some(below)) = (&wanted, below)
            && ((self.is_masked)(path) || !is_open_to_session(below, name)?)
        {
            return Err(Errno::ACCESS);
        }
        let is_as_before =
            matches!((self.now.get(path), self.then.get(path)), (Some(now), Some(then)) if now.is_like(then));
        match wanted {
            Wanted::Nothing => remove(view, name, actual.as_ref()),
            Wanted::Held(Held::Directory { mode, is_opaque, .. }) => {
                let has_lower = lower.is_some_and(|lower| lower.kind == Kind::Directory);
                let is_other =
                    !matches!(self.now.get(path), Some(Held::Directory { is_opaque: now, .. }) if now == is_opaque);
                let is_new = make_directory(view, name, actual.as_ref())?;
                let (through, whole) = (at.through && has_lower && !is_opaque, at.whole || is_other || is_new);
                self.directory(At { path, through, whole, depth: at.depth + 1 })?;
                set_mode(view, name, *mode)
            }
            Wanted::Lower(entry) if entry.kind == Kind::Directory => {
                if make_directory(view, name, actual.as_ref())? {
                    self.given.insert(path.to_path_buf());
                }
                // Not in the layer then: as the tree below has it.
                self.directory(At { path, through: at.through, whole: true, depth: at.depth + 1 })?;
                set_mode(view, name, entry.mode)
            }
            Wanted::Held(_) if is_as_before && actual.is_some() => Ok(()),
            Wanted::Held(Held::File { copy, mode, .. }) => self.file((*copy, *mode), view, name, path, actual.as_ref()),
            Wanted::Held(Held::Link { target }) => {
                put(view, name, actual.as_ref(), |temporary| rustix::fs::symlinkat(target, view, temporary))
            }
            Wanted::Held(Held::Whiteout) => Ok(()),
            Wanted::Lower(entry) => match (entry.kind, entry.target.as_deref(), below) {
                (Kind::File, _, Some(below)) => {
                    let is_same = |actual: &Entry| {
                        (actual.kind, actual.size, actual.modified, actual.mode)
                            == (entry.kind, entry.size, entry.modified, entry.mode)
                    };
                    if !self.now.contains_key(path) && actual.as_ref().is_some_and(is_same) {
                        return Ok(());
                    }
                    self.given.insert(path.to_path_buf());
                    put(view, name, actual.as_ref(), |temporary| copy_file(below, name, view, OsStr::new(temporary)))
                }
                (Kind::Link, Some(target), _) => {
                    self.given.insert(path.to_path_buf());
                    put(view, name, actual.as_ref(), |temporary| rustix::fs::symlinkat(target, view, temporary))
                }
                _ => Ok(()),
            },
        }
    }

    fn file(
        &mut self,
        (copy, mode): (Copy, u32),
        view: BorrowedFd<'_>,
        name: &OsStr,
        path: &Path,
        actual: Option<&Entry>,
    ) -> Result<(), Errno> {
        let first = self.made.get(&copy).cloned();
        put(view, name, actual, |temporary| match &first {
            Some(first) => {
                let (at, first) = beneath::parent(self.view, first)?;
                rustix::fs::linkat(&at, first, view, temporary, AtFlags::empty())
            }
            None => copy_stored(self.store, copy, mode, view, OsStr::new(temporary)),
        })?;
        self.made.entry(copy).or_insert_with(|| path.to_path_buf());
        Ok(())
    }
}

/// Whether the session could read it on the host: a supervisor that is root can read more than the session's root can.
fn is_open_to_session(below: BorrowedFd<'_>, name: &OsStr) -> Result<bool, Errno> {
    if !rustix::process::geteuid().is_root() {
        return Ok(true);
    }
    let stat = rustix::fs::statat(below, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = Mode::from_raw_mode(stat.st_mode);
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let needed = |read: Mode, search: Mode| mode.contains(if is_directory { read | search } else { read });
    Ok(match (stat.st_uid, stat.st_gid) {
        // Root of the session owns it.
        (0, _) => true,
        (_, 0) => needed(Mode::RGRP, Mode::XGRP),
        _ => needed(Mode::ROTH, Mode::XOTH),
    })
}

/// Made under another name first, so that no process ever meets half of it.
fn put(
    view: BorrowedFd<'_>,
    name: &OsStr,
    actual: Option<&Entry>,
    make: impl FnOnce(&str) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let temporary = unknown_name()?;
    let placed = make(&temporary).and_then(|()| {
        if actual.is_some_and(|actual| actual.kind == Kind::Directory) {
            remove(view, name, actual)?;
        }
        rustix::fs::renameat(view, &temporary, view, name)
    });
    if placed.is_err() {
        best_effort(rustix::fs::unlinkat(view, &temporary, AtFlags::empty()), "it may not have been made");
    }
    placed
}

fn remove(view: BorrowedFd<'_>, name: &OsStr, actual: Option<&Entry>) -> Result<(), Errno> {
    match actual.map(|actual| actual.kind) {
        None => Ok(()),
        Some(Kind::Directory) => crate::stages::remove(view, name),
        Some(_) => rustix::fs::unlinkat(view, name, AtFlags::empty()),
    }
}

/// Whether there was none.
fn make_directory(view: BorrowedFd<'_>, name: &OsStr, actual: Option<&Entry>) -> Result<bool, Errno> {
    if actual.is_some_and(|actual| actual.kind == Kind::Directory) {
        return Ok(false);
    }
    remove(view, name, actual)?;
    rustix::fs::mkdirat(view, name, Mode::RWXU).map(|()| true)
}

fn set_mode(view: BorrowedFd<'_>, name: &OsStr, mode: u32) -> Result<(), Errno> {
    let opened = beneath::opened_as_path(view, name)?;
    let now = rustix::fs::fstat(&opened)?.st_mode & 0o7777;
    if now & 0o777 == mode {
        return Ok(());
    }
    rustix::fs::chmod(beneath::itself(&opened), Mode::from_raw_mode(now & !0o777 | mode))
}
