//! What of a command would be quarantined: the program, or the script that an interpreter is given. Owns which file of a command
//! line that is, and its content as it was when the command was started; the list is `quarantine`'s. Its path is looked up once
//! and kept as a descriptor: what the workload puts in its place later is another file.

use std::fs::{File, Metadata};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cofferdam_audit::to_hex;
use cofferdam_plan::is_of_the_system;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

/// A larger program is not read to be compared.
const MOST_BYTES: u64 = 256 << 20;
/// Read at the start of the command, which can write to its own script from then on. What is larger is read when it has to be, and
/// is what it was if its time of change says so.
const READ_AT_START: u64 = 1 << 20;
/// A time of change that is younger than this says nothing about changes that follow: clocks of file systems tick.
const YOUNG: Duration = Duration::from_secs(1);
/// `env env env ...`.
const MOST_ENVS: usize = 8;

/// They run what they are given: the script is what counts.
const INTERPRETERS: &[&str] = &[
    "ash", "awk", "bash", "bun", "csh", "dash", "deno", "elixir", "env", "erl", "fish", "gawk", "java", "ksh", "lua",
    "luajit", "mksh", "node", "nodejs", "perl", "php", "pwsh", "pypy", "pypy3", "python", "Rscript", "ruby", "sh",
    "tclsh", "tcsh", "zsh",
];

/// A command that is about to be started.
#[derive(Debug, Clone, Copy)]
pub struct Starting<'a> {
    pub argv: &'a [String],
    pub cwd: &'a Path,
    /// Its PATH.
    pub search: &'a str,
    /// Trees of which it sees another version than the host has, each with its root.
    pub views: &'a [(&'a Path, BorrowedFd<'a>)],
}

/// The file that a command came from.
#[derive(Debug)]
pub struct Subject {
    pub path: PathBuf,
    pub size: u64,
    file: File,
    /// At the start.
    changed: (i64, i64),
    hash: Option<String>,
}

impl Subject {
    /// None where it is never quarantined: an interpreter by itself, and what belongs to the system.
    pub fn of(starting: &Starting<'_>) -> Option<Subject> {
        let (file, path) = starting.find()?;
        let found = file.metadata().ok()?;
        if !is_of_a_user(&path, &found) || found.len() > MOST_BYTES {
            return None;
        }
        let changed = time_of(&found);
        let mut subject = Subject { path, size: found.len(), file, changed, hash: None };
        if subject.size <= READ_AT_START || is_young(changed) {
            subject.hash = Some(subject.read()?);
        }
        Some(subject)
    }

    /// Of its content as it was when the command was started; none where that is not known any more.
    pub fn hash(&self) -> Option<String> {
        if self.hash.is_some() {
            return self.hash.clone();
        }
        let hash = self.read()?;
        // After the reading: what was written meanwhile shows as well.
        let is_same = self.file.metadata().is_ok_and(|found| time_of(&found) == self.changed);
        is_same.then_some(hash)
    }

    fn read(&self) -> Option<String> {
        let mut hash = Sha256::new();
        let mut chunk = vec![0; 64 << 10];
        let mut at = 0;
        while at <= MOST_BYTES {
            match self.file.read_at(&mut chunk, at).ok()? {
                0 => return Some(to_hex(&hash.finalize())),
                length => {
                    hash.update(&chunk[..length]);
                    at += length as u64;
                }
            }
        }
        None
    }
}

impl Starting<'_> {
    fn find(&self) -> Option<(File, PathBuf)> {
        let mut argv = self.argv;
        for _ in 0..MOST_ENVS {
            let (program, arguments) = argv.split_first()?;
            let (found, real) = self.program(program)?;
            let names = [Path::new(program), &real].map(|path| path.file_name().unwrap_or_default().to_string_lossy());
            if names.iter().any(|name| name == "env") {
                let is_own = |word: &&String| word.starts_with('-') || word.contains('=');
                argv = &arguments[arguments.iter().take_while(is_own).count()..];
                continue;
            }
            let (found, real) = if names.iter().any(|name| is_interpreter(name)) {
                self.open(&self.cwd.join(script(arguments)?))?
            } else {
                (found, real)
            };
            return Some((readable(&found)?, real));
        }
        None
    }

    fn program(&self, program: &str) -> Option<(OwnedFd, PathBuf)> {
        if program.contains('/') {
            return self.open(&self.cwd.join(program));
        }
        let places = self.search.split(':').filter(|place| place.starts_with('/'));
        places.map(|place| Path::new(place).join(program)).find_map(|path| self.open(&path))
    }

    /// A plain file, and where it lies. One that is read may only be opened once it is known to be one.
    fn open(&self, path: &Path) -> Option<(OwnedFd, PathBuf)> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let view = self.views.iter().find_map(|(tree, view)| Some((tree, view, path.strip_prefix(tree).ok()?)));
        let seen = view.map(|(tree, view, below)| {
            // What is mounted in the tree may be served by this very process.
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
            (tree, rustix::fs::openat2(view, below, flags, Mode::empty(), resolve))
        });
        let (file, real) = match seen {
            // A link that leads elsewhere.
            None | Some((_, Err(Errno::XDEV))) => {
                let file = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS).ok()?;
                let real = std::fs::read_link(of_this(&file)).ok()?;
                (file, real)
            }
            Some((_, Ok(file))) => (file, path.to_path_buf()),
            Some((_, Err(_))) => return None,
        };
        let kind = rustix::fs::fstat(&file).ok()?.st_mode;
        rustix::fs::FileType::from_raw_mode(kind).is_file().then_some((file, real))
    }
}

fn of_this(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn readable(file: &OwnedFd) -> Option<File> {
    File::open(of_this(file)).ok()
}

/// `python3.11` is `python`.
fn is_interpreter(name: &str) -> bool {
    INTERPRETERS.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
        || INTERPRETERS.contains(&name)
}

/// The file that an interpreter is given; none where it is given its program in words.
fn script(arguments: &[String]) -> Option<&str> {
    for argument in arguments {
        let is_in_words = |flags: &str| !flags.starts_with('-') && flags.contains(['c', 'e', 'm', 'p']);
        match argument.strip_prefix('-') {
            Some("jar" | "-") => {}
            Some("-eval" | "-print" | "-command") => return None,
            Some(flags) if is_in_words(flags) => return None,
            Some(_) => {}
            None => return Some(argument),
        }
    }
    None
}

fn is_of_a_user(path: &Path, found: &Metadata) -> bool {
    let is_roots = found.uid() == 0 && !rustix::process::getuid().is_root();
    !is_of_the_system(path) && !is_roots
}

fn time_of(found: &Metadata) -> (i64, i64) {
    (found.ctime(), found.ctime_nsec())
}

/// Or of the future.
fn is_young((seconds, _): (i64, i64)) -> bool {
    let changed = u64::try_from(seconds).map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    let age = changed.ok().and_then(|changed| SystemTime::now().duration_since(changed).ok());
    age.is_none_or(|age| age <= YOUNG + Duration::from_secs(1))
}

#[cfg(test)]
mod tests;
