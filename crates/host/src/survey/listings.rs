//! Which of many names may exist, told from directory listings. Owns reading a directory once for all questions about it;
//! a yes still has to be looked at, a no is sure. Called by `survey` for the shipped lists.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_policy::decide::index::Written;
use cofferdam_policy::path::is_at_or_below;
use cofferdam_policy::{Access, PathExpr, fold_hash};
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;

/// The shipped lists name hundreds of places, of which few exist: reading a directory once is cheaper than asking for
/// every name in it.
pub(crate) struct Listings<'a> {
    base: &'a Path,
    /// Of a directory so many bytes of names are read. What was not read may be there.
    most: usize,
    /// Directories below the base that were read so far.
    read: Vec<Listed>,
    /// The last that could not be listed, and why.
    failed: Option<(PathBuf, Errno)>,
}

struct Listed {
    /// Relative to the base.
    path: Vec<u8>,
    hash: u64,
    /// None where it cannot be listed.
    names: Option<Names>,
}

/// Directories deeper than this are not read: there are few rules for each.
const LISTED_LEVELS: usize = 3;

/// Bytes of names in a directory that programs fill as they like: some 50,000 names.
const MOST_NAMES: usize = 1 << 20;

impl<'a> Listings<'a> {
    pub(crate) fn new(base: &'a Path) -> Self {
        Listings { base, most: usize::MAX, read: Vec::new(), failed: None }
    }

    /// Of a directory with too many names the first ones are known.
    pub(crate) fn bounded(base: &'a Path) -> Self {
        Listings { most: MOST_NAMES, ..Listings::new(base) }
    }

    pub(crate) fn failed(&self) -> Option<&(PathBuf, Errno)> {
        self.failed.as_ref()
    }

    /// Whether a directory was not listed to its end.
    pub(crate) fn is_cut(&self) -> bool {
        self.read.iter().any(|listed| listed.names.as_ref().is_some_and(|names| !names.is_whole))
    }

    /// False only if a directory on the way does not have the next name, and it could not be created either.
    pub(crate) fn may_exist(&mut self, rest: &Path, writable: &[PathBuf]) -> bool {
        let rest = rest.as_os_str().as_bytes();
        let mut start = 0;
        for level in 0..LISTED_LEVELS {
            // `rest` is normalised, so bytes between slashes are its names; this runs for every shipped rule.
            let end = rest[start..].iter().position(|byte| *byte == b'/').map_or(rest.len(), |at| start + at);
            if !self.has(&rest[..start.saturating_sub(1)], &rest[start..end]) {
                // A grant to write exists, so what it covers starts with a name that exists.
                let path = || self.base.join(OsStr::from_bytes(rest));
                return level > 0 && writable.iter().any(|root| is_at_or_below(&path(), root));
            }
            if end == rest.len() {
                return true;
            }
            start = end + 1;
        }
        true
    }

    /// The name in the base by which a path below would begin, if the base does not have it.
    pub(crate) fn missing_top(&mut self, path: &Path) -> Option<PathBuf> {
        let top = path.strip_prefix(self.base).ok()?.iter().next()?;
        (!self.has(b"", top.as_bytes())).then(|| self.base.join(top))
    }

    /// Whether a directory has a name; yes where it cannot be told.
    fn has(&mut self, directory: &[u8], name: &[u8]) -> bool {
        self.names(directory).is_none_or(|names| names.may_have(name))
    }

    fn names(&mut self, directory: &[u8]) -> Option<&Names> {
        let hash = fold_hash(0, directory);
        let known = self.read.iter().position(|listed| listed.hash == hash && listed.path == directory);
        let at = known.unwrap_or_else(|| {
            let path = self.base.join(OsStr::from_bytes(directory));
            let names = Names::list(&path, self.most).map_err(|errno| self.failed = Some((path, errno))).ok();
            self.read.push(Listed { path: directory.to_vec(), hash, names });
            self.read.len() - 1
        });
        self.read[at].names.as_ref()
    }

    /// The paths that a rule is about: those that match a pattern, or the other spellings of a name that is refused, which
    /// may be something else than what the name itself leads to. None where that cannot be listed.
    pub(crate) fn matching(&mut self, rest: &Path, access: Access, path: &PathExpr) -> Vec<PathBuf> {
        let is_glob = path.is_glob();
        let rest = rest.as_os_str().as_bytes();
        let last = rest.split(|byte| *byte == b'/').count() - 1;
        let mut found = vec![Vec::new()];
        for (level, written) in rest.split(|byte| *byte == b'/').enumerate() {
            let is_pattern = is_glob && level == last;
            // Below what is listed there are few rules, and names count as they are written.
            if level >= LISTED_LEVELS && !is_pattern {
                found = found.iter().map(|directory| joined(directory, written)).collect();
                continue;
            }
            let meant = Written { access, name: written, is_glob: is_pattern, except: path.except() };
            let mut next = Vec::new();
            for directory in &found {
                let Some(names) = self.names(directory) else { continue };
                let hash = (!is_pattern).then(|| fold_hash(0, written));
                let alike = names.iter().filter(|(of, _)| hash.is_none_or(|hash| hash == *of)).map(|(_, name)| name);
                let real = alike.filter(|name| !matches!(*name, b"." | b".."));
                next.extend(real.filter(|name| meant.means(name)).map(|name| joined(directory, name)));
            }
            found = next;
            if found.is_empty() {
                break;
            }
        }
        found.retain(|path| is_glob || path != rest);
        found.sort();
        found.iter().map(|path| self.base.join(OsStr::from_bytes(path))).collect()
    }
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, name].join(&b'/') }
}

/// The names in a directory, for many questions of which most are answered with no.
struct Names {
    /// Each name behind its length.
    bytes: Vec<u8>,
    /// The hash of each, in the same order: names that fold alike have one.
    hashes: Vec<u64>,
    /// A bit for each hash: a clear bit is a sure no, where all names are known.
    seen: [u64; 32],
    is_whole: bool,
}

impl Default for Names {
    fn default() -> Self {
        Names { bytes: Vec::new(), hashes: Vec::new(), seen: [0; 32], is_whole: true }
    }
}

impl Names {
    fn list(path: &Path, most: usize) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        let mut names = Names { bytes: Vec::with_capacity(4096), ..Names::default() };
        let mut buffer = [MaybeUninit::uninit(); 16384];
        let mut entries = RawDir::new(directory, &mut buffer);
        while let Some(entry) = entries.next() {
            names.add(entry?.file_name().to_bytes());
            if names.bytes.len() > most {
                names.is_whole = false;
                break;
            }
        }
        Ok(names)
    }

    fn add(&mut self, name: &[u8]) {
        // A name of a file system is at most 255 bytes long.
        self.bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        self.bytes.extend_from_slice(name);
        let hash = fold_hash(0, name);
        self.hashes.push(hash);
        let (word, bit) = Self::place(hash);
        self.seen[word] |= bit;
    }

    fn place(hash: u64) -> (usize, u64) {
        ((hash >> 6) as usize % 32, 1 << (hash % 64))
    }

    /// Where names are compared without case the kernel decides, so only absence in any spelling counts as absence.
    fn may_have(&self, name: &[u8]) -> bool {
        if !name.is_ascii() || !self.is_whole {
            return true;
        }
        let hash = fold_hash(0, name);
        let (word, bit) = Self::place(hash);
        self.seen[word] & bit != 0 && self.hashes.contains(&hash)
    }

    fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut rest = self.bytes.as_slice();
        let names = std::iter::from_fn(move || {
            let (length, tail) = rest.split_first()?;
            let (this, after) = tail.split_at_checked(usize::from(*length))?;
            rest = after;
            Some(this)
        });
        self.hashes.iter().copied().zip(names)
    }
}

/// Names in the pattern's directory that match its last component.
pub(crate) fn list_matching(pattern: &Path, access: Access, except: &str) -> Result<Vec<PathBuf>, Errno> {
    let (Some(parent), Some(last)) = (pattern.parent(), pattern.file_name()) else { return Ok(Vec::new()) };
    let meant = Written { access, name: last.as_bytes(), is_glob: true, except };
    let entries = std::fs::read_dir(parent).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| meant.means(entry.file_name().as_bytes()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_there_in_any_case_is_never_denied() {
        let mut names = Names::default();
        for name in [".ssh", ".AWS", "Documents", "x"] {
            names.add(name.as_bytes());
        }
        for there in [".ssh", ".SSH", ".aws", "documents", "x"] {
            assert!(names.may_have(there.as_bytes()), "{there}");
        }
        for absent in [".gnupg", "doc", "", "documents2"] {
            assert!(!names.may_have(absent.as_bytes()), "{absent}");
        }
        assert!(names.may_have("\u{212a}".as_bytes()), "the kernel may fold it to something that is there");
    }

    #[test]
    fn patterns_find_names_of_one_directory() {
        let mut listings = Listings::new(Path::new("/proc"));
        let mut matching =
            |rest: &str| listings.matching(Path::new(rest), Access::Read, &PathExpr::parse(rest).expect("a path"));
        assert_eq!(matching("self/stat*").len(), 3, "stat, statm, status");
        assert_eq!(matching("mem*nfo"), [PathBuf::from("/proc/meminfo")]);
        assert!(matching("MEM*nfo").is_empty(), "what is given is given by its bytes");
        assert!(matching("self/fdinfo/.*").is_empty(), "neither the directory nor the one above");
        assert!(matching("no-such/*").is_empty());
        assert!(matching("version/*").is_empty());
    }

    #[test]
    fn what_is_refused_is_found_in_every_spelling() {
        let mut listings = Listings::new(Path::new("/proc"));
        let mut matching =
            |rest: &str| listings.matching(Path::new(rest), Access::Deny, &PathExpr::parse(rest).expect("a path"));
        assert_eq!(matching("SELF/StatM*"), [PathBuf::from("/proc/self/statm")]);
        assert_eq!(matching("SELF/statm"), [PathBuf::from("/proc/self/statm")]);
        assert!(matching("self/statm").is_empty(), "as it is written it is looked at anyway");
        assert!(matching("self/no-such").is_empty());
    }

    #[test]
    fn what_cannot_be_listed_may_exist() {
        let mut listings = Listings::new(Path::new("/proc/self/no-such-directory"));
        assert!(listings.may_exist(Path::new("a/b"), &[]));
    }

    #[test]
    fn what_is_not_listed_may_exist() {
        let scene = crate::memory::tests::scene("listings");
        for number in 0..5500 {
            std::fs::write(scene.join(format!("{number:0200}")), "").expect("writable");
        }
        std::fs::write(scene.join("a.code-workspace"), "").expect("writable");
        let mut listings = Listings::bounded(&scene);
        assert!(
            listings.may_exist(Path::new("no-such"), &[]) && listings.missing_top(&scene.join("no-such")).is_none()
        );
        assert!(listings.is_cut());
        let mut few = Listings::new(&scene);
        assert!(!few.may_exist(Path::new("no-such"), &[]) && !few.is_cut());
        std::fs::remove_dir_all(scene).expect("ours");
    }

    #[test]
    fn a_missing_name_below_a_grant_to_write_counts() {
        let mut listings = Listings::new(Path::new("/usr"));
        assert!(!listings.may_exist(Path::new("bin/no-such-program"), &[]));
        assert!(listings.may_exist(Path::new("bin/no-such-program"), &["/usr/bin".into()]));
    }
}
