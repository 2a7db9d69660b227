//! Which directories of a project need not be listed again: each by its identity and the time of its last change. Owns the
//! file in the state directory, outside of every session's reach; a file that says anything unexpected counts as none. A
//! directory is passed by only where it had nothing of what a walk looks for; what was found is looked at again first, so
//! that no number of new files keeps a later walk from it. Used by `search` and `obeyed`, which have a memory each.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::io::Write as _;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cofferdam_kernel::best_effort;
use cofferdam_policy::dependency_directories;
use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::io::Errno;

use crate::state::make_all;

const FORMAT: u64 = 3;
/// More is not worth reading at a start.
const MOST: usize = 50_000;
/// Longer than as many directories and names to hide as there may be.
const LONGEST_FILE: u64 = 40 << 20;

/// A directory that changed later than this before it was listed may change again without another time (git's racy rule);
/// two seconds are the coarsest time of a file system.
const RACY: Duration = Duration::from_secs(2);

/// A memory is written when it saves more than writing it costs.
const WORTH_WRITING: usize = 16;

/// File systems that set the time of a directory at every change of its names, by the clock of this machine.
const TRUSTED: &[u64] = &[
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0x0102_1994, // tmpfs
    0x794c_7630, // overlayfs
    0xF2F5_2010, // f2fs
    0x2FC1_2FC1, // zfs
    0xCA45_1A4E, // bcachefs
];

/// The device of a directory where its times can be trusted.
fn trusted_device(root: &OwnedFd) -> Option<u64> {
    rustix::fs::fstatfs(root).ok().filter(|found| TRUSTED.contains(&found.f_type.cast_unsigned()))?;
    Some(Identity::of(root).ok()?.device)
}

/// One directory at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
}

impl Identity {
    /// Of an open directory.
    pub(crate) fn of(directory: &OwnedFd) -> Result<Identity, Errno> {
        Identity::look(directory, OsStr::new(""), AtFlags::EMPTY_PATH)
    }

    /// Of what lies at a path below a directory now, without waiting for a file system that does not answer.
    pub(crate) fn at(root: &OwnedFd, path: &[u8]) -> Result<Identity, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
        let flags = if path.is_empty() { flags | AtFlags::EMPTY_PATH } else { flags };
        Identity::look(root, OsStr::from_bytes(path), flags)
    }

    fn look(at: &OwnedFd, path: &OsStr, flags: AtFlags) -> Result<Identity, Errno> {
        let wanted = StatxFlags::INO | StatxFlags::CTIME | StatxFlags::TYPE;
        let found = rustix::fs::statx(at, path, flags | AtFlags::NO_AUTOMOUNT, wanted)?;
        if FileType::from_raw_mode(found.stx_mode.into()) != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        Ok(Identity {
            device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            seconds: found.stx_ctime.tv_sec,
            nanoseconds: found.stx_ctime.tv_nsec,
        })
    }

    /// Whether a change from now on would give it another time.
    fn is_settled(&self) -> bool {
        let since = SystemTime::now().checked_sub(RACY);
        let since = since.and_then(|then| then.duration_since(SystemTime::UNIX_EPOCH).ok());
        let changed = u64::try_from(self.seconds).ok().map(|seconds| Duration::new(seconds, self.nanoseconds));
        since.zip(changed).is_some_and(|(since, changed)| changed < since)
    }
}

/// What is known of a directory: nothing where it has to be listed, and where the directories in it stand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Remembered {
    pub(crate) identity: Option<Identity>,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    bytes: Vec<u8>,
    directories: Vec<(Remembered, Range<usize>)>,
    found: Vec<Range<usize>>,
    /// The project's, where its times can be trusted.
    device: Option<u64>,
}

impl Memory {
    /// What was remembered of a project by a walk that looks for these things, and where to write it down again.
    pub(crate) fn open(memories: &Path, project: &Path, root: &OwnedFd, sought: impl Hash) -> (Memory, Place) {
        let mut name = DefaultHasher::new();
        project.hash(&mut name);
        let mut key = DefaultHasher::new();
        (project, env!("CARGO_PKG_VERSION"), sought).hash(&mut key);
        for directory in dependency_directories() {
            directory.hash(&mut key);
        }
        let path = memories.join(format!("{:016x}", name.finish()));
        let device = trusted_device(root);
        let place = Place { path, key: key.finish(), is_trusted: device.is_some() };
        let memory = Memory::read(&place.path, place.key).unwrap_or_default();
        (Memory { device, ..memory }, place)
    }

    /// Whether a directory that was just listed need not be again as long as it has this identity. What is mounted in the
    /// project may be a file system whose times other machines do not keep (vfat on a stick).
    pub(crate) fn can_pass_by(&self, identity: &Identity) -> bool {
        self.device == Some(identity.device) && identity.is_settled()
    }

    fn read(place: &Path, key: u64) -> Option<Memory> {
        let file = std::fs::OpenOptions::new().read(true).custom_flags(NOT_A_LINK).open(place).ok()?;
        let length = file.metadata().ok().filter(|about| about.is_file() && about.len() <= LONGEST_FILE)?.len();
        let mut bytes = Vec::with_capacity(usize::try_from(length).ok()?);
        std::io::Read::read_to_end(&mut std::io::Read::take(file, LONGEST_FILE), &mut bytes).ok()?;
        Memory::parse(bytes, key)
    }

    fn parse(bytes: Vec<u8>, key: u64) -> Option<Memory> {
        let mut rest = Reader { bytes: &bytes, at: 0 };
        if rest.number()? != FORMAT {
            return None;
        }
        let is_same_walk = rest.number()? == key;
        let count = usize::try_from(rest.number()?).ok().filter(|count| *count <= MOST)?;
        let mut directories = Vec::with_capacity(count);
        for number in 0..count {
            let is_known = rest.byte()? == 1;
            let (device, inode) = (rest.number()?, rest.number()?);
            let (seconds, nanoseconds) = (rest.number()?.cast_signed(), u32::try_from(rest.number()?).ok()?);
            let (first, many) = (usize::try_from(rest.number()?).ok()?, usize::try_from(rest.number()?).ok()?);
            // What lies in a directory comes after it: nothing here leads round in a circle.
            if many > 0 && (first <= number || first.checked_add(many)? > count) {
                return None;
            }
            let identity = is_known.then_some(Identity { device, inode, seconds, nanoseconds });
            let length = usize::from(rest.byte()?);
            directories.push((Remembered { identity, first, count: many }, rest.text(length)?));
        }
        let mut found = Vec::new();
        while rest.at < bytes.len() {
            let length = usize::try_from(rest.number()?).ok()?;
            found.push(rest.text(length)?);
        }
        // Other rules look for other things; each of the names is compared with them again.
        directories.truncate(if is_same_walk { count } else { 0 });
        Some(Memory { bytes, directories, found, device: None })
    }

    /// Where a walk found what it looks for, by paths below the project.
    pub(crate) fn found(&self) -> impl Iterator<Item = &[u8]> {
        self.found.iter().map(|path| &self.bytes[path.clone()])
    }

    pub(crate) fn first(&self) -> Option<usize> {
        (!self.directories.is_empty()).then_some(0)
    }

    /// How many directories need not be listed again, as long as they do not change.
    pub(crate) fn remembered(&self) -> usize {
        self.directories.iter().filter(|(known, _)| known.identity.is_some()).count()
    }

    /// The identity of a remembered directory, if it is still what lies at this path.
    pub(crate) fn unchanged(&self, number: usize, root: &OwnedFd, path: &[u8]) -> Option<Identity> {
        let identity = self.directories.get(number)?.0.identity?;
        Identity::at(root, path).is_ok_and(|now| now == identity).then_some(identity)
    }

    pub(crate) fn name(&self, number: usize) -> &[u8] {
        self.directories.get(number).map_or(&[], |(_, name)| &self.bytes[name.clone()])
    }

    pub(crate) fn children(&self, number: usize) -> Range<usize> {
        self.directories.get(number).map_or(0..0, |(known, _)| known.first..known.first + known.count)
    }

    /// The number of a name among these. Directories are listed in the same order again, so the next one is most often it.
    pub(crate) fn find(&self, among: &mut Range<usize>, name: &[u8]) -> Option<usize> {
        if among.start < among.end && self.name(among.start) == name {
            among.start += 1;
            return Some(among.start - 1);
        }
        let found = among.clone().find(|number| self.name(*number) == name)?;
        among.start = found + 1;
        Some(found)
    }
}

/// Where the memory of a project lies, and what it is about.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    key: u64,
    is_trusted: bool,
}

impl Place {
    /// Remembers directories, in the order of their depth; those that lie in one directory stand together. `newly` of them
    /// were listed and need not be the next time; a walk that was cut must know more than the last one. What was `found` is
    /// remembered in any case.
    pub(crate) fn keep<'a, D>(&self, old: &Memory, newly: usize, is_cut: bool, directories: D, found: &BTreeSet<&[u8]>)
    where
        D: ExactSizeIterator<Item = (&'a [u8], Remembered)> + Clone,
    {
        let remembered = || directories.clone().filter(|(_, now)| now.identity.is_some()).count();
        let is_better = newly > WORTH_WRITING && (!is_cut || remembered() > old.remembered());
        let directories_kept = self.is_trusted && directories.len() <= MOST;
        if directories_kept && is_better || !found.is_subset(&old.found().collect()) {
            write(&self.path, self.key, directories.take(if directories_kept { usize::MAX } else { 0 }), found);
        }
    }
}

/// Best effort: without it every directory is listed again.
fn write<'a>(
    place: &Path,
    key: u64,
    directories: impl ExactSizeIterator<Item = (&'a [u8], Remembered)>,
    found: &BTreeSet<&[u8]>,
) {
    let mut bytes = Vec::with_capacity(64 + directories.len() * 80);
    let number = |bytes: &mut Vec<u8>, number: u64| bytes.extend_from_slice(&number.to_le_bytes());
    number(&mut bytes, FORMAT);
    number(&mut bytes, key);
    number(&mut bytes, directories.len() as u64);
    for (path, Remembered { identity, first, count }) in directories {
        bytes.push(u8::from(identity.is_some()));
        let known = identity.unwrap_or(Identity { device: 0, inode: 0, seconds: 0, nanoseconds: 0 });
        let numbers = [known.device, known.inode, known.seconds.cast_unsigned(), known.nanoseconds.into()];
        for value in numbers.into_iter().chain([first as u64, count as u64]) {
            number(&mut bytes, value);
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        // A name of a file system is at most 255 bytes long.
        bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        bytes.extend_from_slice(name);
    }
    for path in found {
        number(&mut bytes, path.len() as u64);
        bytes.extend_from_slice(path);
    }
    let result = replace(place, &bytes);
    best_effort(
        result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        "every directory is listed again",
    );
}

/// Whole or not at all: another session may read it now.
fn replace(place: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let Some(directory) = place.parent() else { return Ok(()) };
    make_all(directory)?;
    let mut name = place.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(name);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(NOT_A_LINK);
    let written = options.open(&new).and_then(|mut file| file.write_all(bytes));
    let renamed = written.and_then(|()| std::fs::rename(&new, place));
    if renamed.is_err() {
        best_effort(rustix::fs::unlink(&new), "it may not have been made");
    }
    renamed
}

const NOT_A_LINK: i32 = rustix::fs::OFlags::NOFOLLOW.union(rustix::fs::OFlags::NONBLOCK).bits().cast_signed();

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn number(&mut self) -> Option<u64> {
        let bytes = self.bytes.get(self.at..self.at + 8)?;
        self.at += 8;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn text(&mut self, length: usize) -> Option<Range<usize>> {
        let range = self.at..self.at.checked_add(length)?;
        self.bytes.get(range.clone())?;
        self.at += length;
        Some(range)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A new directory, without links on the way.
    pub(crate) fn scene(name: &str) -> PathBuf {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cofferdam-{name}-{}-{count}", std::process::id()));
        std::fs::create_dir(&path).expect("the temporary directory is writable");
        path.canonicalize().expect("it is there")
    }

    /// Waits until no directory that exists by now counts as changed just now.
    pub(crate) fn settle() {
        std::thread::sleep(RACY + Duration::from_millis(100));
    }

    #[test]
    fn only_directories_of_the_projects_file_system_are_passed_by() {
        let scene = scene("device");
        settle();
        let root = cofferdam_kernel::mount::open_source(&scene).expect("it is there");
        let (memory, _) = Memory::open(&scene.join("memories"), &scene, &root, ());
        let here = Identity::of(&root).expect("a directory");
        assert!(memory.can_pass_by(&here));
        assert!(!memory.can_pass_by(&Identity { device: here.device + 1, ..here }), "mounted in the project");
        std::fs::remove_dir_all(scene).expect("it is ours");
    }

    #[test]
    fn a_file_that_says_anything_unexpected_is_none() {
        let directory = |path: &'static str, first, count| {
            let identity = Some(Identity { device: 1, inode: 2, seconds: 3, nanoseconds: 4 });
            (path.as_bytes(), Remembered { identity, first, count })
        };
        let scene = scene("memory");
        let place = scene.join("a/b");
        let found = BTreeSet::from([b"x/.env".as_slice()]);
        write(&place, 7, [directory("", 1, 2), directory("x", 0, 0), directory("a/yy", 0, 0)].into_iter(), &found);
        let memory = Memory::read(&place, 7).expect("it was written");
        assert_eq!((memory.remembered(), memory.children(0), memory.name(2)), (3, 1..3, b"yy".as_slice()));
        assert_eq!(memory.find(&mut memory.children(0), b"yy"), Some(2));
        assert_eq!(memory.find(&mut memory.children(0), b"z"), None);
        assert_eq!(memory.found().collect::<Vec<_>>(), [b"x/.env"]);
        let other = Memory::read(&place, 8).expect("it was written");
        assert_eq!((other.first(), other.found().count()), (None, 1), "other rules");
        let bytes = std::fs::read(&place).expect("it was written");
        // Cut between two names it would be whole: it is replaced as a whole, and each name stands for itself.
        let is_end = |length: usize| length == bytes.len() - 8 - b"x/.env".len();
        for length in (0..bytes.len()).filter(|length| !is_end(*length)) {
            assert!(Memory::parse(bytes[..length].to_vec(), 7).is_none(), "cut at {length}");
        }
        assert!(Memory::parse([bytes.as_slice(), b"x"].concat(), 7).is_none());
        write(&place, 7, [directory("", 0, 1)].into_iter(), &found);
        assert!(Memory::read(&place, 7).is_none(), "a directory that lies in itself");
        write(&place, 7, [directory("", 1, 9)].into_iter(), &found);
        assert!(Memory::read(&place, 7).is_none(), "directories that are not there");
        std::fs::remove_file(&place).expect("it is there");
        std::os::unix::fs::symlink(scene.join("elsewhere"), &place).expect("a link");
        assert!(Memory::read(&place, 7).is_none());
        std::fs::remove_dir_all(scene).expect("it is ours");
    }
}
