//! Which stand-ins the sessions of a state directory made (docs/decisions/0032). Owns the records and the lock under which
//! stand-ins are made and removed; makes and removes none itself. Called by `supervisor::store`, and by `survey` and `git`, to which a
//! stand-in counts as missing.
//!
//! ```text
//!   holds/ID   the stand-ins of session ID; locked as long as its supervisor lives
//! ```
//!
//! No mode, name or content makes a stand-in: a workload can set all of these. What is known is an object (device, inode,
//! birth) at a path, and it counts only while it is as it was made.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_plan::HoldKind;
use rustix::fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, RawDir, StatxFlags};
use rustix::io::Errno;

use crate::state::make_all;

/// The owner's alone, and sticky. A look at the mode spares most names a look at the records, and decides nothing.
pub const DIRECTORY_MODE: u32 = 0o1700;
pub const FILE_MODE: u32 = 0o1400;
pub const SOCKET_MODE: u32 = 0o600;

/// Longest record that is read; more would be no record of ours.
const LONGEST: usize = 1 << 20;

/// How long the lock is waited for. Who has it makes or removes a few names, but with 200 sessions that start at once some are
/// overtaken for more than five seconds.
const WAIT: Duration = Duration::from_millis(1);
const MOST_WAITS: u32 = 30_000;

/// What tells an object from any other, also from one that gets its number later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
    /// Zero where the file system does not say.
    born: (i64, u32),
}

impl Identity {
    /// `name` in `parent`, not followed; an empty name is `parent` itself.
    pub fn of(parent: impl AsFd, name: &OsStr) -> Result<Self, Errno> {
        Look::at(parent, name).map(|look| look.identity)
    }
}

/// An object at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub identity: Identity,
    /// When a name was last made or removed in it, where it is a directory. Its owner can set this time,
    modified: (i64, u32),
    /// but not this one, which tells of that as well, and of a move.
    changed: (i64, u32),
}

/// Kernels before 6.13 count the times of files in ticks of at most 10 ms: what happens in one tick has one time.
const APART_SECONDS: i64 = 1;

impl Look {
    /// See [`Identity::of`].
    pub fn at(parent: impl AsFd, name: &OsStr) -> Result<Self, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
        let stat = rustix::fs::statx(parent, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
        let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let born = if has_birth { (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec) } else { (0, 0) };
        let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        Ok(Look {
            identity: Identity { device, inode: stat.stx_ino, born },
            modified: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        })
    }

    /// Whether no name was made or removed in a directory since `before`, and its times were not set: it is what it was then. A
    /// directory that was filled shortly before does not tell; neither does one that is filled and whose time is set back, to the
    /// nanosecond, in the very tick in which it was placed.
    pub fn is_as(self, before: Look) -> bool {
        self == before && before.is_old()
    }

    /// The same where it was moved once in between.
    pub fn is_moved_only(self, before: Look) -> bool {
        (self.identity, self.modified) == (before.identity, before.modified) && before.is_old()
    }

    fn is_old(self) -> bool {
        self.modified.0 + APART_SECONDS < self.changed.0
    }
}

/// One stand-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub path: PathBuf,
    pub kind: HoldKind,
    pub identity: Identity,
}

impl Record {
    fn write(&self, text: &mut Vec<u8>) {
        let (kind, content) = match &self.kind {
            HoldKind::Directory => ('d', ""),
            HoldKind::Socket => ('s', ""),
            HoldKind::File(content) => ('f', content.as_str()),
        };
        let Identity { device, inode, born: (seconds, nanoseconds) } = self.identity;
        text.extend(format!("{kind} {device} {inode} {seconds} {nanoseconds}").bytes());
        for part in [self.path.as_os_str().as_bytes(), content.as_bytes()] {
            text.push(0);
            text.extend(part);
        }
        text.push(0);
    }

    fn read(head: &[u8], path: &[u8], content: &[u8]) -> Option<Self> {
        let mut words = str::from_utf8(head).ok()?.split(' ');
        let kind = match words.next()? {
            "d" => HoldKind::Directory,
            "s" => HoldKind::Socket,
            "f" => HoldKind::File(str::from_utf8(content).ok()?.to_owned()),
            _ => return None,
        };
        let (device, inode) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let born = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Record { path: OsStr::from_bytes(path).into(), kind, identity: Identity { device, inode, born } })
    }

    /// Whether it is where it was put, and nothing was put into it.
    pub fn is_untouched(&self) -> bool {
        let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name()) else { return false };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::openat(CWD, parent, flags, Mode::empty());
        parent.is_ok_and(|parent| is_untouched(&parent, name, &self.kind, self.identity))
    }
}

/// The same where the directory is open.
pub fn is_untouched(parent: impl AsFd, name: &OsStr, kind: &HoldKind, identity: Identity) -> bool {
    if Identity::of(&parent, name) != Ok(identity) {
        return false;
    }
    let open = || {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(&parent, name, flags, Mode::empty())
    };
    match kind {
        HoldKind::Directory => open().is_ok_and(is_empty),
        // It holds nothing, and cannot be opened.
        HoldKind::Socket => true,
        HoldKind::File(content) => {
            let mut buffer = [0; 128];
            let read = open().and_then(|object| rustix::io::read(object, &mut buffer));
            read.is_ok_and(|length| buffer.get(..length) == Some(content.as_bytes()))
        }
    }
}

pub fn is_empty(directory: impl AsFd) -> bool {
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

/// Whether it could be a stand-in at all.
fn may_be_one(stat: &rustix::fs::Stat) -> bool {
    let mode = stat.st_mode & 0o7777;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => mode == DIRECTORY_MODE,
        FileType::RegularFile => mode == FILE_MODE && stat.st_nlink == 1,
        FileType::Socket => stat.st_nlink == 1,
        _ => false,
    }
}

/// The records as a survey reads them: only once something looks like a stand-in.
#[derive(Debug)]
pub(crate) struct StandIns {
    directory: PathBuf,
    read: RefCell<Vec<Record>>,
}

impl StandIns {
    pub(crate) fn of(state: &Path) -> Self {
        StandIns { directory: directory_in(state), read: RefCell::default() }
    }

    /// Whether what was found at `path` is a stand-in: the name then counts as missing.
    pub(crate) fn knows(&self, path: &Path, stat: &rustix::fs::Stat) -> bool {
        if !may_be_one(stat) {
            return false;
        }
        let same = |record: &Record| (record.identity.device, record.identity.inode) == (stat.st_dev, stat.st_ino);
        let is_known = || self.read.borrow().iter().any(|record| same(record) && record.is_untouched());
        if is_known() {
            return true;
        }
        // Under the lock: a session that starts or ends at this moment has done both, the record and the name, or neither.
        let Ok(directory) = open_directory(&self.directory) else { return has_gone(path, stat) };
        if wait_for_lock(&directory, FlockOperation::NonBlockingLockShared).is_err() {
            return false;
        }
        *self.read.borrow_mut() = all(&directory);
        is_known() || has_gone(path, stat)
    }
}

/// A session that ended a moment ago took its stand-ins and its record away.
fn has_gone(path: &Path, stat: &rustix::fs::Stat) -> bool {
    rustix::fs::lstat(path).map_or(true, |now| (now.st_dev, now.st_ino) != (stat.st_dev, stat.st_ino))
}

fn directory_in(state: &Path) -> PathBuf {
    state.join("holds")
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

fn all(directory: &OwnedFd) -> Vec<Record> {
    let names = names_in(directory);
    let files = names.iter().filter_map(|name| open_record(directory, name).ok());
    distinct(&files.map(|file| text_of(&file)).collect())
}

/// Sessions in one project share their stand-ins: many say the same, word for word.
fn distinct(texts: &BTreeSet<Vec<u8>>) -> Vec<Record> {
    texts.iter().flat_map(|text| records_in(text)).collect()
}

fn names_in(directory: &OwnedFd) -> Vec<OsString> {
    let Ok(entries) = Dir::read_from(directory) else { return Vec::new() };
    let names = entries.flatten().map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
    names.filter(|name| !matches!(name.as_bytes(), b"." | b"..")).collect()
}

fn open_record(directory: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

fn text_of(file: &OwnedFd) -> Vec<u8> {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while text.len() < LONGEST {
        match rustix::io::pread(file, &mut buffer, text.len() as u64) {
            Ok(0) | Err(_) => break,
            Ok(length) => text.extend(buffer.get(..length).unwrap_or_default()),
        }
    }
    text
}

fn records_in(text: &[u8]) -> Vec<Record> {
    let parts: Vec<&[u8]> = text.split(|byte| *byte == 0).collect();
    parts.chunks_exact(3).filter_map(|one| Record::read(one[0], one[1], one[2])).collect()
}

/// The records of one state directory, with the lock: no other session makes or removes a stand-in meanwhile.
#[derive(Debug)]
pub struct Registry {
    directory: OwnedFd,
    /// Those of other sessions that live; of sessions that say the same, once.
    pub others: Vec<Record>,
    /// How many sessions live besides.
    pub sessions: usize,
    /// Those of sessions that were killed, by the name of their record.
    pub left: Vec<(OsString, Vec<Record>)>,
}

impl Registry {
    pub fn lock(state: &Path, own: &str) -> Result<Self, Errno> {
        let path = directory_in(state);
        let directory = match open_directory(&path) {
            Err(Errno::NOENT) => {
                make_all(&path)?;
                open_directory(&path)?
            }
            other => other?,
        };
        wait_for_lock(&directory, FlockOperation::NonBlockingLockExclusive)?;
        let mut registry = Registry { directory, others: Vec::new(), sessions: 0, left: Vec::new() };
        let mut others = BTreeSet::new();
        for name in names_in(&registry.directory).into_iter().filter(|name| name != own) {
            let Ok(file) = open_record(&registry.directory, &name) else { continue };
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                registry.left.push((name, records_in(&text_of(&file))));
            } else {
                others.insert(text_of(&file));
                registry.sessions += 1;
            }
        }
        registry.others = distinct(&others);
        Ok(registry)
    }

    /// Begins the record of a session; it counts as alive until the descriptor is closed.
    pub fn begin(&self, own: &str) -> Result<Own, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, own, flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Own { file })
    }

    pub fn forget(&self, name: impl rustix::path::Arg) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.directory, name, AtFlags::empty())
    }

    /// The stand-in of any session, alive or killed, that is this object.
    pub fn find(&self, path: &Path, identity: Identity) -> Option<&Record> {
        let left = self.left.iter().flat_map(|(_, records)| records);
        self.others.iter().chain(left).find(|record| record.identity == identity && record.path == path)
    }
}

/// The record of the session that runs here.
#[derive(Debug)]
pub struct Own {
    file: OwnedFd,
}

impl Own {
    /// Before any of them is put where it is to stand: a supervisor that is killed in between leaves nothing unknown.
    pub fn add(&self, records: &[Record]) -> Result<(), Errno> {
        let mut text = Vec::new();
        for record in records {
            record.write(&mut text);
        }
        // One call: who reads without the lock sees all of it or nothing.
        match rustix::io::write(&self.file, &text)? {
            length if length == text.len() => Ok(()),
            _ => Err(Errno::NOSPC),
        }
    }
}

fn wait_for_lock(directory: &OwnedFd, how: FlockOperation) -> Result<(), Errno> {
    for _ in 0..MOST_WAITS {
        match rustix::fs::flock(directory, how) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(WAIT),
            other => return other,
        }
    }
    Err(Errno::BUSY)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    /// A directory with nothing in it since an hour ago, as one that waited for its use.
    fn waiting(name: &str) -> (PathBuf, OwnedFd) {
        let scene = crate::memory::tests::scene(name);
        let directory = scene.join("stand-in");
        std::fs::create_dir(&directory).expect("writable");
        let long_ago = SystemTime::now() - Duration::from_hours(1);
        std::fs::File::open(&directory).and_then(|opened| opened.set_modified(long_ago)).expect("ours");
        let opened = open_directory(&scene).expect("it is there");
        (scene, opened)
    }

    /// Returns when what happens has another time than what `look` saw, on kernels that count in ticks.
    fn in_another_tick(scene: &Path, look: Look) {
        let clock = || {
            std::fs::write(scene.join("clock"), "x").expect("writable");
            Look::at(CWD, scene.join("clock").as_os_str()).expect("it is there").changed
        };
        while clock() == look.changed {}
    }

    #[test]
    fn a_directory_that_was_put_to_use_does_not_look_as_before() {
        let (scene, opened) = waiting("looks");
        let look = || Look::at(&opened, OsStr::new("stand-in")).expect("it is there");
        let placed = look();
        assert!(look().is_as(placed));
        in_another_tick(&scene, placed);
        std::fs::write(scene.join("stand-in/file"), "").expect("writable");
        assert!(!look().is_as(placed) && !look().is_moved_only(placed), "filled");
        let set_back = SystemTime::UNIX_EPOCH
            + Duration::new(placed.modified.0.try_into().expect("after 1970"), placed.modified.1);
        let directory = std::fs::File::open(scene.join("stand-in")).expect("it is there");
        directory.set_modified(set_back).expect("ours");
        assert!(!look().is_as(placed), "its owner has set its time back");
        std::fs::remove_dir_all(scene).expect("ours");
    }

    #[test]
    fn a_directory_that_was_only_moved_is_known_and_a_new_one_has_to_be_listed() {
        let (scene, opened) = waiting("moves");
        let look = |name: &str| Look::at(&opened, OsStr::new(name)).expect("it is there");
        let placed = look("stand-in");
        in_another_tick(&scene, placed);
        std::fs::rename(scene.join("stand-in"), scene.join("moved")).expect("ours");
        assert!(look("moved").is_moved_only(placed) && !look("moved").is_as(placed));
        std::fs::create_dir(scene.join("new")).expect("writable");
        let new = look("new");
        assert!(!new.is_as(new), "a name that was made in the same tick would not be seen");
        std::fs::remove_dir_all(scene).expect("ours");
    }

    #[test]
    fn what_sessions_share_is_known_once_and_each_of_them_counts() {
        let scene = crate::memory::tests::scene("shared");
        let record = |name: &str, inode| Record {
            path: scene.join(name),
            kind: HoldKind::Directory,
            identity: Identity { device: 1, inode, born: (2, 3) },
        };
        let begin = |own: &str, record: &Record| {
            let own = Registry::lock(&scene, own).and_then(|registry| registry.begin(own)).expect("writable");
            own.add(std::slice::from_ref(record)).expect("writable");
            own
        };
        let [shared, other] = [record("shared", 4), record("other", 5)];
        let live = [begin("a", &shared), begin("b", &shared), begin("c", &other)];
        drop(begin("killed", &shared));
        let registry = Registry::lock(&scene, "own").expect("free");
        let mut others = registry.others.clone();
        others.sort_by_key(|record| record.identity.inode);
        assert_eq!((others, registry.sessions), (vec![shared.clone(), other], live.len()));
        assert_eq!(registry.left, [(OsString::from("killed"), vec![shared])], "it does not count as alive");
        std::fs::remove_dir_all(scene).expect("ours");
    }
}
