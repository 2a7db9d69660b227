//! Stand-ins for names that must not come into being while a session runs (docs/decisions/0003). Owns making, sharing and
//! removing them on the host; what covers them inside is a mount of the plan. Called by `launch`.

use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use cofferdam_kernel::mount::open_source;
use cofferdam_plan::{Hold, HoldKind};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RawDir, RenameFlags};
use rustix::io::Errno;

use crate::message::best_effort;

/// Sticky and the owner's alone: nobody else makes an empty directory like that, so it is recognised as ours. Programs of
/// the host that look for a file in it find none, as if the directory were missing, and may make one.
const DIRECTORY_MARK: u32 = 0o1700;
const FILE_MARK: u32 = 0o1400;

/// How long a lock that somebody has for himself is waited for.
const WAIT: Duration = Duration::from_millis(1);
const MOST_WAITS: u32 = 1000;

/// The name is held until this is dropped. The shared lock tells other sessions of the project that somebody needs it.
#[derive(Debug)]
struct Held {
    parent: Rc<OwnedFd>,
    name: OsString,
    lock: OwnedFd,
    is_directory: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Holds {
    held: Vec<Held>,
    pool: Pool,
}

impl Holds {
    /// `store` is where directories wait for their next use; without it they are made and removed each time.
    pub(crate) fn take(holds: &[Hold], store: Option<&Path>) -> Result<Self, (PathBuf, Errno)> {
        let mut taken = Holds { held: Vec::with_capacity(holds.len()), pool: Pool::open(store) };
        // Most names are in the same directory as the one before.
        let mut opened: Option<(&Path, Rc<OwnedFd>)> = None;
        for hold in holds {
            let held = take(hold, &mut opened, &mut taken.pool).map_err(|errno| (hold.path.clone(), errno))?;
            taken.held.push(held);
        }
        Ok(taken)
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        for held in self.held.drain(..) {
            // Somebody else's shared lock means that the stand-in is still needed: the last session removes it.
            if rustix::fs::flock(&held.lock, FlockOperation::NonBlockingLockExclusive).is_ok() && is_still_ours(&held) {
                give_back(&held, &mut self.pool);
            }
        }
    }
}

fn give_back(held: &Held, pool: &mut Pool) {
    if !held.is_directory {
        let removed = rustix::fs::unlinkat(&held.parent, &held.name, AtFlags::empty());
        return best_effort(removed, "somebody else may have removed it");
    }
    if !is_empty(&held.lock) {
        // Somebody outside has put it to use: it is theirs now.
        let given = rustix::fs::fchmod(&held.lock, Mode::from_raw_mode(0o755));
        return best_effort(given, "its owner can still change it");
    }
    if !pool.put(held) {
        let removed = rustix::fs::unlinkat(&held.parent, &held.name, AtFlags::REMOVEDIR);
        best_effort(removed, "a directory that somebody filled a moment ago stays, and that is right");
    }
}

pub(crate) fn is_empty(directory: impl AsFd) -> bool {
    let mut buffer = [MaybeUninit::uninit(); 1024];
    // Reading starts where the last reader of this descriptor stopped.
    if rustix::fs::seek(&directory, rustix::fs::SeekFrom::Start(0)).is_err() {
        return false;
    }
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        match entry {
            Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
            _ => return false,
        }
    }
    true
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

impl Pool {
    fn open(store: Option<&Path>) -> Self {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |path: &Path| rustix::fs::openat(CWD, path, flags, Mode::empty());
        let Some(store) = store else { return Pool::default() };
        let opened = open(store).or_else(|_| {
            crate::session::make_all(store)?;
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

    /// Moves a waiting directory to `name`; false where none could be moved and one has to be made.
    fn place(&mut self, parent: &OwnedFd, name: &OsStr) -> Result<bool, Errno> {
        while let (Some(pool), Some(waiting)) = (&self.directory, self.names.pop()) {
            match rustix::fs::renameat_with(pool, &waiting, parent, name, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(true),
                Err(Errno::EXIST) => {
                    self.names.push(waiting);
                    return Err(Errno::EXIST);
                }
                // Another session was faster.
                Err(Errno::NOENT) => {}
                // Another file system, or one that cannot do it.
                Err(_) => self.directory = None,
            }
        }
        Ok(false)
    }

    /// Moves a directory back; false where it has to be removed instead.
    fn put(&mut self, held: &Held) -> bool {
        let Some(pool) = &self.directory else { return false };
        if self.names.len() + self.used >= MOST_WAITING {
            return false;
        }
        self.used += 1;
        let waiting = format!("{}-{}", rustix::process::getpid().as_raw_nonzero(), self.used);
        let keep = RenameFlags::NOREPLACE;
        if rustix::fs::renameat_with(&held.parent, &held.name, pool, &waiting, keep).is_err() {
            return false;
        }
        if !is_empty(&held.lock) {
            // Filled between the look and the move: back to whoever did that.
            let moved = rustix::fs::renameat_with(pool, &waiting, &held.parent, &held.name, keep);
            best_effort(moved, "the name may be taken again; nothing is lost in the pool");
        }
        true
    }
}

fn is_still_ours(held: &Held) -> bool {
    let ours = rustix::fs::fstat(&held.lock);
    let there = rustix::fs::statat(&held.parent, &held.name, AtFlags::SYMLINK_NOFOLLOW);
    matches!((ours, there), (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
}

fn take<'a>(hold: &'a Hold, opened: &mut Option<(&'a Path, Rc<OwnedFd>)>, pool: &mut Pool) -> Result<Held, Errno> {
    let (Some(place), Some(name)) = (hold.path.parent(), hold.path.file_name()) else { return Err(Errno::INVAL) };
    let parent = match opened {
        Some((before, parent)) if *before == place => Rc::clone(parent),
        _ => Rc::new(open_source(place)?),
    };
    *opened = Some((place, Rc::clone(&parent)));
    // A session that ends removes the stand-in between our look and our lock; then it is made anew.
    for _ in 0..16 {
        let made = match &hold.kind {
            HoldKind::Directory => make_directory(&parent, name, pool),
            HoldKind::File(text) => make_file(&parent, Path::new(name), text),
        };
        if let Err(errno) = made
            && errno != Errno::EXIST
        {
            return Err(errno);
        }
        let is_directory = hold.kind == HoldKind::Directory;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let lock = match rustix::fs::openat(&parent, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        if !is_stand_in(&rustix::fs::fstat(&lock)?) {
            // It came into being since the survey: the plan is about a name that was missing.
            return Err(Errno::EXIST);
        }
        share(&lock)?;
        let candidate = Held { parent: Rc::clone(&parent), name: name.to_owned(), lock, is_directory };
        if is_still_ours(&candidate) {
            return Ok(candidate);
        }
    }
    Err(Errno::BUSY)
}

/// A session that ends has the lock for itself, for a moment. Anybody who can read the stand-in can hold it for longer: a
/// command in another session must not be able to make this one wait for ever.
fn share(lock: &OwnedFd) -> Result<(), Errno> {
    for _ in 0..MOST_WAITS {
        match rustix::fs::flock(lock, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(WAIT),
            other => return other,
        }
    }
    Err(Errno::BUSY)
}

fn make_directory(parent: &OwnedFd, name: &OsStr, pool: &mut Pool) -> Result<(), Errno> {
    if pool.place(parent, name)? {
        return Ok(());
    }
    // Whatever the user's mask is: other sessions recognise the mode.
    rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(DIRECTORY_MARK))
}

/// Appears under its name complete, or not at all.
fn make_file(parent: &OwnedFd, name: &Path, text: &str) -> Result<(), Errno> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, c".", flags, Mode::from_raw_mode(FILE_MARK))?;
    rustix::io::write(&file, text.as_bytes())?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(FILE_MARK))?;
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    rustix::fs::linkat(rustix::fs::CWD, path, parent, name, AtFlags::SYMLINK_FOLLOW)
}

/// Whether what is at a path is a stand-in that a session left or still uses: it then counts as missing.
pub(crate) fn is_stand_in(stat: &rustix::fs::Stat) -> bool {
    let mode = stat.st_mode & 0o7777;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => mode == DIRECTORY_MARK,
        FileType::RegularFile => mode == FILE_MARK && stat.st_size <= 64,
        _ => false,
    }
}
