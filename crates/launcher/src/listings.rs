//! Which of many names may exist, told from directory listings. Owns reading a directory once for all questions about it;
//! a yes still has to be looked at, a no is sure. Called by `survey` for the shipped lists.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_policy::path::{is_at_or_below, name_matches};
use rustix::fs::{Mode, OFlags, RawDir};

/// The shipped lists name hundreds of places, of which few exist: reading a directory once is cheaper than asking for
/// every name in it.
pub(crate) struct Listings<'a> {
    base: &'a Path,
    /// Directories below the base that were read so far, by their path relative to it.
    read: Vec<(Vec<u8>, Option<Names>)>,
}

/// Directories deeper than this are not read: there are few rules for each.
const LISTED_LEVELS: usize = 3;

impl<'a> Listings<'a> {
    pub(crate) fn new(base: &'a Path) -> Self {
        Listings { base, read: Vec::new() }
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

    /// Whether a directory has a name; yes where it cannot be told.
    fn has(&mut self, directory: &[u8], name: &[u8]) -> bool {
        self.names(directory).is_none_or(|names| names.may_have(name))
    }

    fn names(&mut self, directory: &[u8]) -> Option<&Names> {
        let known = self.read.iter().position(|(read, _)| read == directory);
        let at = known.unwrap_or_else(|| {
            self.read.push((directory.to_vec(), Names::list(&self.base.join(OsStr::from_bytes(directory)))));
            self.read.len() - 1
        });
        self.read[at].1.as_ref()
    }

    /// The paths in the pattern's directory that match its last name; none where that cannot be listed.
    pub(crate) fn matching(&mut self, rest: &Path) -> Vec<PathBuf> {
        let (Some(directory), Some(pattern)) = (rest.parent(), rest.file_name()) else { return Vec::new() };
        if !directory.as_os_str().is_empty() && !self.may_exist(directory, &[]) {
            return Vec::new();
        }
        let base = self.base.join(directory);
        let pattern = pattern.to_string_lossy();
        let Some(names) = self.names(directory.as_os_str().as_bytes()) else { return Vec::new() };
        let real = names.iter().filter(|name| !matches!(*name, b"." | b".."));
        let matching = real.filter(|name| name_matches(&pattern, &String::from_utf8_lossy(name)));
        let mut found: Vec<PathBuf> = matching.map(|name| base.join(OsStr::from_bytes(name))).collect();
        found.sort();
        found
    }
}

/// The names in a directory, for many questions of which most are answered with no.
struct Names {
    /// Each name behind its length.
    bytes: Vec<u8>,
    /// A bit for each name's hash: a clear bit is a sure no.
    seen: [u64; 32],
}

impl Names {
    /// `None` where the directory cannot be listed or is not one.
    fn list(path: &Path) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let directory = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        let mut names = Names { bytes: Vec::with_capacity(4096), seen: [0; 32] };
        let mut buffer = [MaybeUninit::uninit(); 16384];
        let mut entries = RawDir::new(directory, &mut buffer);
        while let Some(entry) = entries.next() {
            names.add(entry.ok()?.file_name().to_bytes());
        }
        Some(names)
    }

    fn add(&mut self, name: &[u8]) {
        // A name of a file system is at most 255 bytes long.
        self.bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        self.bytes.extend_from_slice(name);
        let (word, bit) = Self::place(name);
        self.seen[word] |= bit;
    }

    fn place(name: &[u8]) -> (usize, u64) {
        let hash = name.iter().fold(5381u32, |hash, byte| hash.wrapping_mul(33) ^ u32::from(byte.to_ascii_lowercase()));
        ((hash >> 6) as usize % 32, 1 << (hash % 64))
    }

    /// Where names are compared without case the kernel decides, so only absence in any spelling counts as absence.
    fn may_have(&self, name: &[u8]) -> bool {
        let (word, bit) = Self::place(name);
        if !name.is_ascii() {
            return true;
        }
        if self.seen[word] & bit == 0 {
            return false;
        }
        self.iter().any(|this| this.eq_ignore_ascii_case(name))
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let (length, tail) = rest.split_first()?;
            let (this, after) = tail.split_at_checked(usize::from(*length))?;
            rest = after;
            Some(this)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_there_in_any_case_is_never_denied() {
        let mut names = Names { bytes: Vec::new(), seen: [0; 32] };
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
        assert_eq!(listings.matching(Path::new("self/stat*")).len(), 3, "stat, statm, status");
        assert_eq!(listings.matching(Path::new("mem*nfo")), [PathBuf::from("/proc/meminfo")]);
        assert!(listings.matching(Path::new("self/fdinfo/.*")).is_empty(), "neither the directory nor the one above");
        assert!(listings.matching(Path::new("no-such/*")).is_empty());
        assert!(listings.matching(Path::new("version/*")).is_empty());
    }

    #[test]
    fn what_cannot_be_listed_may_exist() {
        let mut listings = Listings::new(Path::new("/proc/self/no-such-directory"));
        assert!(listings.may_exist(Path::new("a/b"), &[]));
    }

    #[test]
    fn a_missing_name_below_a_grant_to_write_counts() {
        let mut listings = Listings::new(Path::new("/usr"));
        assert!(!listings.may_exist(Path::new("bin/no-such-program"), &[]));
        assert!(listings.may_exist(Path::new("bin/no-such-program"), &["/usr/bin".into()]));
    }
}
