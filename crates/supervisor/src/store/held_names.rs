//! Stand-ins for names that must not come into being while a session runs (docs/decisions/0003). Owns making, sharing and
//! removing them on the host; `host::stand_ins` keeps the records of whose they are, and what covers them inside is a mount of
//! the plan. Called by `launch`, and by `covers` when a host program removed one.

use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use cofferdam_host::git::links::GitLinks;
use cofferdam_host::git::root::{self, COMMONDIR, Cleared, GitRoot};
use cofferdam_host::stand_ins::{
    self, DIRECTORY_MODE, FILE_MODE, Identity, Look, Own, Record, Registry, SOCKET_MODE, is_empty,
};
use cofferdam_kernel::best_effort;
use cofferdam_kernel::mount::open_source;
use cofferdam_plan::{Hold, HoldKind};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, RenameFlags};
use rustix::io::Errno;

use crate::store::session_dir::new_id;

/// Leftovers of killed sessions that one start removes; the next goes on.
const MOST_SWEPT: usize = 32;

/// The name is held until this is given back.
#[derive(Debug)]
struct Held {
    parent: Rc<OwnedFd>,
    name: OsString,
    kind: HoldKind,
    identity: Identity,
    /// When it was put there.
    placed: Look,
    /// While it is open, no other object gets its number.
    _object: OwnedFd,
}

/// What is held, and where that is written down.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    held: Vec<Held>,
    pools: Pools,
    known: Option<Known>,
    /// A project that must not have become a repository by itself when its names are held no longer.
    pub(crate) root: Option<GitRoot>,
    /// It is one, and that could not be changed: `commondir` keeps git from it.
    keeps_commondir: bool,
    /// What happened to projects of killed sessions.
    swept: Vec<String>,
    /// Where links must not stay that lead git on the host to other files.
    pub(crate) links: Option<GitLinks>,
}

#[derive(Debug)]
struct Known {
    state: PathBuf,
    session: String,
    own: Own,
}

impl Holds {
    /// Directories wait in the state directory for their next use; where none can be moved they are made each time.
    pub(crate) fn take(holds: &[Hold], state: &Path, session: &str) -> Result<Self, (PathBuf, Errno)> {
        let failed = |errno| (state.to_path_buf(), errno);
        let registry = Registry::lock(state, session).map_err(failed)?;
        let own = registry.begin(session).map_err(failed)?;
        let known = Known { state: state.to_path_buf(), session: session.to_owned(), own };
        let pools = Pools::open(state);
        let held = Vec::with_capacity(holds.len());
        let mut taken = Holds::default();
        (taken.held, taken.pools, taken.known) = (held, pools, Some(known));
        let done = taken.take_all(holds, &registry);
        if done.is_ok() {
            taken.sweep(&registry);
        }
        // Who gives something back takes the lock.
        drop(registry);
        done.map(|()| taken)
    }

    fn take_all(&mut self, holds: &[Hold], registry: &Registry) -> Result<(), (PathBuf, Errno)> {
        let Some(Known { own, .. }) = &self.known else { return Ok(()) };
        let mut made = Vec::with_capacity(holds.len());
        let mut records = Vec::with_capacity(holds.len());
        // Most names are in the same directory as the one before.
        let mut opened: Option<(&Path, Rc<OwnedFd>)> = None;
        for hold in holds {
            let failed = |errno| (hold.path.clone(), errno);
            let parent = parent_of(hold, &mut opened).map_err(failed)?;
            let one = Made::new(&hold.kind, &parent, self.pools.of(&hold.kind)).map_err(failed)?;
            records.extend(one.identity().map(|identity| record(hold, identity)));
            made.push((hold, parent, one));
        }
        let first = holds.first().map_or_else(PathBuf::new, |hold| hold.path.clone());
        own.add(&records).map_err(|errno| (first, errno))?;
        for (hold, parent, one) in made {
            let there = Rc::clone(&parent);
            match place(hold, parent, one, registry, own, self.pools.of(&hold.kind)) {
                Ok(held) => self.held.push(held),
                // The same directory under another mount: one stand-in holds the name in both.
                Err(Errno::EXIST) if self.held.iter().any(|held| held.is_at(&there, &hold.path)) => {}
                Err(errno) => return Err((hold.path.clone(), errno)),
            }
        }
        Ok(())
    }

    /// What killed sessions left, but what this one or another that lives needs.
    fn sweep(&mut self, registry: &Registry) {
        for (name, records) in registry.left.iter().take(MOST_SWEPT) {
            let mut is_done = true;
            for record in records {
                let is_needed = registry.others.iter().any(|other| other.identity == record.identity)
                    || self.held.iter().any(|held| held.identity == record.identity);
                if is_needed || !record.is_untouched() {
                    continue;
                }
                match root_of(record).map_or(Cleared::Nothing, root::clear) {
                    Cleared::Nothing => remove(record),
                    Cleared::Done(text) => {
                        self.swept.push(text);
                        remove(record);
                    }
                    Cleared::Not(text) => {
                        self.swept.push(text);
                        is_done = false;
                    }
                }
            }
            if !is_done {
                continue;
            }
            best_effort(registry.forget(name.as_os_str()), "the next session finds it again");
        }
    }
}

/// Removes what killed sessions hold in projects, without a session that does it on the way: for a user who leaves. How many of
/// them still hold something.
pub fn release_killed(state: &Path) -> Result<usize, Errno> {
    let count = || Registry::lock(state, "").map(|registry| registry.left.len());
    let mut left = count()?;
    while left > 0 {
        drop(Holds::take(&[], state, &new_id()).map_err(|(_, errno)| errno)?);
        let now = count()?;
        if now >= left {
            break;
        }
        left = now;
    }
    count()
}

fn parent_of<'a>(hold: &'a Hold, opened: &mut Option<(&'a Path, Rc<OwnedFd>)>) -> Result<Rc<OwnedFd>, Errno> {
    let place = hold.path.parent().ok_or(Errno::INVAL)?;
    let parent = match opened {
        Some((before, parent)) if *before == place => Rc::clone(parent),
        _ => Rc::new(open_source(place)?),
    };
    *opened = Some((place, Rc::clone(&parent)));
    Ok(parent)
}

fn record(hold: &Hold, identity: Identity) -> Record {
    Record { path: hold.path.clone(), kind: hold.kind.clone(), identity }
}

/// The project that is no repository as long as this name is held.
fn root_of(record: &Record) -> Option<&Path> {
    let is_commondir = record.kind == HoldKind::Socket && record.path.file_name().is_some_and(|name| name == COMMONDIR);
    record.path.parent().filter(|_| is_commondir)
}

/// Removes a stand-in of a killed session, unless it was put to use.
fn remove(record: &Record) {
    let (Some(place), Some(name)) = (record.path.parent(), record.path.file_name()) else { return };
    let Ok(parent) = open_source(place) else { return };
    if stand_ins::is_untouched(&parent, name, &record.kind, record.identity) {
        let flags = if record.kind == HoldKind::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        best_effort(rustix::fs::unlinkat(&parent, name, flags), "what was put to use a moment ago stays");
    }
}

impl Holds {
    /// Holds one more name; a host program took its stand-in away, or the object that was protected there. Each time is one
    /// more record, so a name that is held already is left alone.
    pub(crate) fn again(&mut self, hold: &Hold) -> Result<(), Errno> {
        let parent = parent_of(hold, &mut None)?;
        if self.held.iter().any(|held| held.is_at(&parent, &hold.path)) {
            return Ok(());
        }
        let known = self.known.as_ref().ok_or(Errno::NOTSUP)?;
        let registry = Registry::lock(&known.state, &known.session)?;
        self.take_all(std::slice::from_ref(hold), &registry).map_err(|(_, errno)| errno)
    }
}

impl Holds {
    /// Takes away what a session left for git on the host, once, while the names are still held; in words.
    pub(crate) fn clear(&mut self) -> Vec<String> {
        let mut told = std::mem::take(&mut self.swept);
        told.extend(self.links.take().into_iter().flat_map(|links| links.remove()));
        match self.root.take().map_or(Cleared::Nothing, |root| root.clear()) {
            Cleared::Nothing => {}
            Cleared::Done(text) => told.push(text),
            Cleared::Not(text) => {
                self.keeps_commondir = self.held.iter().any(Held::is_commondir);
                let until = if self.keeps_commondir { "; until then the name `commondir` there is held" } else { "" };
                told.push(format!("{text}{until}"));
            }
        }
        told
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        // A session that failed has no report; what it left goes all the same.
        self.clear();
        let Some(Known { state, session, own }) = self.known.take() else { return };
        // Without the lock nothing is removed: the record stays, and the next session finishes it.
        let Ok(registry) = Registry::lock(&state, &session) else { return };
        // A directory that a process of another session may stand in must not become a name of a third one's project.
        let may_wait = registry.sessions == 0;
        for held in self.held.drain(..) {
            let is_shared = registry.others.iter().any(|other| other.identity == held.identity);
            let is_kept = self.keeps_commondir && held.is_commondir();
            if !is_shared
                && !is_kept
                && let Some(now) = still_ours(&held)
            {
                give_back(&held, now, may_wait.then(|| self.pools.of(&held.kind)));
            }
        }
        // What is kept the next session finds as that of a killed one.
        if !self.keeps_commondir {
            best_effort(registry.forget(session.as_str()), "the next session finds it without a stand-in");
        }
        drop(own);
    }
}

fn give_back(held: &Held, now: Look, mut pool: Option<&mut Pool>) {
    if held.kind != HoldKind::Directory {
        let may_wait = pool.as_deref_mut().filter(|_| held.kind == HoldKind::Socket);
        if may_wait.is_some_and(|pool| pool.keep(held).is_some()) {
            return;
        }
        let removed = rustix::fs::unlinkat(&held.parent, &held.name, AtFlags::empty());
        return best_effort(removed, "a program outside may have removed it");
    }
    if now.is_as(held.placed) && pool.as_deref_mut().is_some_and(|pool| pool.put_unused(held)) {
        return;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::openat(&held.parent, &held.name, flags, Mode::empty()) else { return };
    if !is_empty(&directory) {
        // A program outside has put it to use: it is the user's now.
        let given = rustix::fs::fchmod(&directory, Mode::from_raw_mode(0o755));
        return best_effort(given, "its owner can still change it");
    }
    if !pool.is_some_and(|pool| pool.put(held, &directory)) {
        let removed = rustix::fs::unlinkat(&held.parent, &held.name, AtFlags::REMOVEDIR);
        best_effort(removed, "a directory that was filled a moment ago stays, and that is right");
    }
}

/// Empty directories that wait for their next use. Making and removing one costs a file system many times what moving it
/// does, and every session needs several.
#[derive(Debug, Default)]
struct Pool {
    directory: Option<OwnedFd>,
    names: Vec<OsString>,
    used: usize,
}

/// More would only be leftovers of many sessions at once.
const MOST_WAITING: usize = 64;

/// Socket nodes wait apart: an earlier version takes whatever waits with the directories for one.
#[derive(Debug, Default)]
struct Pools {
    directories: Pool,
    nodes: Pool,
}

impl Pools {
    fn open(state: &Path) -> Self {
        Pools { directories: Pool::open(&state.join("stand-ins")), nodes: Pool::open(&state.join("stand-in-nodes")) }
    }

    fn of(&mut self, kind: &HoldKind) -> &mut Pool {
        if *kind == HoldKind::Socket { &mut self.nodes } else { &mut self.directories }
    }
}

impl Pool {
    fn open(store: &Path) -> Self {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |path: &Path| rustix::fs::openat(CWD, path, flags, Mode::empty());
        let opened = open(store).or_else(|_| {
            cofferdam_host::state::make_all(store)?;
            open(store)
        });
        // Without a pool everything works, only slower.
        let Ok(directory) = opened else { return Pool::default() };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut names = Vec::new();
        let mut entries = RawDir::new(&directory, &mut buffer);
        while let Some(Ok(entry)) = entries.next() {
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Pool { directory: Some(directory), names, used: 0 }
    }

    /// A waiting directory or socket node, no longer in the list.
    fn next(&mut self, kind: &HoldKind) -> Option<(OsString, Identity)> {
        let pool = self.directory.as_ref()?;
        // Another session may have been faster. A process that stood in it when it came back here may have filled it: that is none
        // of the next project's business.
        while let Some(waiting) = self.names.pop() {
            if let Ok(identity) = Identity::of(pool, &waiting)
                && (*kind != HoldKind::Directory || is_empty_at(pool, &waiting))
            {
                return Some((waiting, identity));
            }
        }
        None
    }

    /// A new one: made here it is written down before it stands in the project, so that a killed session leaves none that
    /// no record names.
    fn fill(&mut self, kind: &HoldKind) -> Option<(OsString, Identity)> {
        let pool = self.directory.as_ref()?;
        self.used += 1;
        let name = OsString::from(format!("{}-{}", rustix::process::getpid().as_raw_nonzero(), self.used));
        make(kind, pool, &name).ok()?;
        let identity = Identity::of(pool, &name).ok()?;
        Some((name, identity))
    }

    /// Moves it back; nothing where it has to be removed instead.
    fn keep(&mut self, held: &Held) -> Option<String> {
        let pool = self.directory.as_ref().filter(|_| self.names.len() + self.used < MOST_WAITING)?;
        self.used += 1;
        let waiting = format!("{}-{}", rustix::process::getpid().as_raw_nonzero(), self.used);
        let moved = rustix::fs::renameat_with(&held.parent, &held.name, pool, &waiting, RenameFlags::NOREPLACE);
        moved.is_ok().then_some(waiting)
    }

    /// The same for a directory that was empty a moment ago; nothing where it is to be looked at.
    fn put_unused(&mut self, held: &Held) -> bool {
        let Some(waiting) = self.keep(held) else { return false };
        let Some(pool) = &self.directory else { return true };
        let is_unused = Look::at(pool, OsStr::new(&waiting)).is_ok_and(|now| now.is_moved_only(held.placed));
        if !is_unused {
            self.move_back(held, &waiting);
        }
        is_unused
    }

    /// Filled between the look and the move: back to where that was done.
    fn move_back(&self, held: &Held, waiting: &str) {
        let Some(pool) = &self.directory else { return };
        let moved = rustix::fs::renameat_with(pool, waiting, &held.parent, &held.name, RenameFlags::NOREPLACE);
        best_effort(moved, "the name may be taken again; nothing is lost in the pool");
    }

    /// The same for a directory, which may have been put to use.
    fn put(&mut self, held: &Held, directory: &OwnedFd) -> bool {
        let Some(waiting) = self.keep(held) else { return false };
        if !is_empty(directory) {
            self.move_back(held, &waiting);
        }
        true
    }
}

/// A stand-in that is not in its place yet.
#[derive(Debug)]
enum Made {
    Waiting(OsString, Identity),
    Unnamed(OwnedFd, Identity),
    /// It can only be made where it is to stand: a session that is killed right then leaves it.
    Not,
}

impl Made {
    fn new(kind: &HoldKind, parent: &OwnedFd, pool: &mut Pool) -> Result<Self, Errno> {
        Ok(match kind {
            HoldKind::Directory | HoldKind::Socket => {
                let waiting = pool.next(kind).or_else(|| pool.fill(kind));
                waiting.map_or(Made::Not, |(name, identity)| Made::Waiting(name, identity))
            }
            HoldKind::File(text) => {
                let file = unnamed_file(parent, text)?;
                let identity = Identity::of(&file, OsStr::new(""))?;
                Made::Unnamed(file, identity)
            }
        })
    }

    fn identity(&self) -> Option<Identity> {
        match self {
            Made::Waiting(_, identity) | Made::Unnamed(_, identity) => Some(*identity),
            Made::Not => None,
        }
    }

    /// The object under its name, or `EXIST`.
    fn put(self, kind: &HoldKind, parent: &OwnedFd, name: &OsStr, pool: &mut Pool) -> Result<(), Errno> {
        match self {
            Made::Waiting(waiting, _) => {
                let Some(from) = &pool.directory else { return make(kind, parent, name) };
                match rustix::fs::renameat_with(from, &waiting, parent, name, RenameFlags::NOREPLACE) {
                    Ok(()) => Ok(()),
                    Err(Errno::EXIST) => {
                        pool.names.push(waiting);
                        Err(Errno::EXIST)
                    }
                    // Another file system, or one that cannot do it.
                    Err(_) => {
                        pool.names.push(waiting);
                        make(kind, parent, name)
                    }
                }
            }
            // Appears under its name complete, or not at all.
            Made::Unnamed(file, _) => {
                let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
                rustix::fs::linkat(CWD, path, parent, name, AtFlags::SYMLINK_FOLLOW)
            }
            Made::Not => make(kind, parent, name),
        }
    }
}

fn place(
    hold: &Hold,
    parent: Rc<OwnedFd>,
    made: Made,
    registry: &Registry,
    own: &Own,
    pool: &mut Pool,
) -> Result<Held, Errno> {
    let name = hold.path.file_name().ok_or(Errno::INVAL)?;
    let expected = made.identity();
    let is_new = match made.put(&hold.kind, &parent, name, pool) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(errno),
    };
    let object = rustix::fs::openat(&parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let placed = Look::at(&object, OsStr::new(""))?;
    let identity = placed.identity;
    let held = Held { parent, name: name.to_owned(), kind: hold.kind.clone(), identity, placed, _object: object };
    if !is_new
        && registry.find(&hold.path, identity).is_none_or(|known| known.kind != hold.kind || !known.is_untouched())
    {
        // It came into being since the survey: the plan is about a name that was missing.
        return Err(Errno::EXIST);
    }
    if expected != Some(identity)
        && let Err(errno) = own.add(&[record(hold, identity)])
    {
        if is_new {
            give_back(&held, placed, None);
        }
        return Err(errno);
    }
    Ok(held)
}

impl Held {
    fn is_commondir(&self) -> bool {
        self.kind == HoldKind::Socket && self.name == COMMONDIR
    }

    /// Whether the name in `parent` is this very object.
    fn is_at(&self, parent: &OwnedFd, path: &Path) -> bool {
        path.file_name().is_some_and(|name| Identity::of(parent, name) == Ok(self.identity))
    }
}

fn is_empty_at(parent: &OwnedFd, name: &OsStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty()).is_ok_and(is_empty)
}

fn still_ours(held: &Held) -> Option<Look> {
    Look::at(&held.parent, &held.name).ok().filter(|now| now.identity == held.identity)
}

fn make(kind: &HoldKind, parent: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    match kind {
        HoldKind::Socket => {
            let mode = Mode::from_raw_mode(SOCKET_MODE);
            rustix::fs::mknodat(parent, name, FileType::Socket, mode, 0)
        }
        HoldKind::Directory | HoldKind::File(_) => {
            rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(DIRECTORY_MODE))
        }
    }
}

fn unnamed_file(parent: &OwnedFd, text: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, c".", flags, Mode::from_raw_mode(FILE_MODE))?;
    rustix::io::write(&file, text.as_bytes())?;
    // Whatever the user's mask is.
    rustix::fs::fchmod(&file, Mode::from_raw_mode(FILE_MODE))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_filled_while_it_waited_is_not_used_again() {
        let store = crate::scratch().join(format!("cofferdam-pool-{}", std::process::id()));
        for name in ["filled", "empty"] {
            std::fs::create_dir_all(store.join(name)).expect("the temporary directory is writable");
        }
        std::fs::write(store.join("filled/settings.json"), "another project's").expect("writable");
        let mut pool = Pool::open(&store);
        let taken: Vec<OsString> =
            std::iter::from_fn(|| pool.next(&HoldKind::Directory)).map(|(name, _)| name).collect();
        assert_eq!(taken, ["empty"]);
        std::fs::remove_dir_all(store).expect("ours");
    }

    #[test]
    fn a_name_is_held_again_only_where_it_is_not_held() {
        let scene = crate::scratch().join(format!("cofferdam-again-{}", std::process::id()));
        let (state, project) = (scene.join("state"), scene.join("project"));
        std::fs::create_dir_all(&project).expect("the temporary directory is writable");
        let hold = Hold { path: project.join(".vscode"), kind: HoldKind::Directory };
        let recorded = || std::fs::read(state.join("holds/session")).expect("its record").len();
        let mut holds = Holds::take(std::slice::from_ref(&hold), &state, "session").expect("it is free");
        let before = recorded();
        assert_eq!((holds.again(&hold), recorded()), (Ok(()), before), "nothing took it away");
        std::fs::remove_dir(&hold.path).expect("it is empty");
        assert_eq!(holds.again(&hold), Ok(()));
        assert!(hold.path.is_dir() && recorded() > before);
        drop(holds);
        assert!(!hold.path.exists());
        std::fs::remove_dir_all(scene).expect("ours");
    }
}
