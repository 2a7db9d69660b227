//! What of a command would be quarantined: the program, or the script that an interpreter is given. Owns which file of a command
//! line that is, and its content as it was when the command was started; the list is `quarantine`'s, how words are read
//! `command_line`'s. Its path is looked up once and kept as a descriptor: what the workload puts in its place later is another file.

mod command_line;

use std::fs::{File, Metadata};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cofferdam_audit::to_hex;
use cofferdam_plan::is_of_the_system;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::quarantine::subject::command_line::{Given, commands, given, is_interpreter, is_launcher};

/// A larger program is not read to be compared.
const MOST_BYTES: u64 = 256 << 20;
/// Read at the start of the command, which can write to its own script from then on. What is larger is read when it has to be, and
/// is what it was if its time of change says so.
const READ_AT_START: u64 = 1 << 20;
/// A time of change that is younger than this says nothing about changes that follow: clocks of file systems tick.
const YOUNG: Duration = Duration::from_secs(1);
/// Words of one command line that are looked for as files: `env env env ...`.
const MOST_LOOKUPS: usize = 32;

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
        let Found { file, path, .. } =
            Search { starting, cwd: starting.cwd.to_path_buf(), left: MOST_LOOKUPS }.of(starting.argv)?;
        // It may only be opened now that it is known to be a plain file.
        // A workload may hold a lease on it, which a waiting open would wait for.
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).ok()?;
        let file = File::options().read(true).custom_flags(nonblocking).open(of_this(&file)).ok()?;
        let found = file.metadata().ok()?;
        if found.len() > MOST_BYTES {
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

/// A plain file, not yet opened to be read.
#[derive(Debug)]
struct Found {
    file: OwnedFd,
    /// Where it lies.
    path: PathBuf,
    is_executable: bool,
    is_of_a_user: bool,
}

/// Looks for the file of one command line.
#[derive(Debug)]
struct Search<'a> {
    starting: &'a Starting<'a>,
    /// A shell's text may change it.
    cwd: PathBuf,
    /// How many words may still be looked for.
    left: usize,
}

impl Search<'_> {
    fn of(&mut self, words: &[String]) -> Option<Found> {
        let (mut program, mut arguments) = words.split_first()?;
        let mut found = self.program(program)?;
        loop {
            let real = found.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let typed = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
            let names = [&*typed, &*real];
            // A user's own program of such a name is any program.
            if !found.is_of_a_user && names.iter().any(|name| is_launcher(name)) {
                (program, arguments, found) = self.launched(arguments)?;
                continue;
            }
            let Some(interpreter) = names.into_iter().find(|name| is_interpreter(name)) else {
                return Some(found).filter(|found| found.is_of_a_user);
            };
            return match given(interpreter, arguments) {
                Given::Files(words) => self.script(words),
                Given::Text(text) => self.of_text(text),
                Given::Nothing => None,
            };
        }
    }

    /// Values of a launcher's options stand before the program, too: they are no programs, or (`-s kill`) the system's with another
    /// program behind them.
    fn launched<'w>(&mut self, mut words: &'w [String]) -> Option<(&'w String, &'w [String], Found)> {
        let (mut value, mut is_after_option) = (None, false);
        while let Some((word, rest)) = words.split_first() {
            let is_own = word.starts_with('-') || word.contains('=');
            let found = if is_own { None } else { self.program(word) };
            match found.filter(|found| found.is_executable) {
                Some(found) if is_after_option && value.is_none() && !found.is_of_a_user => {
                    value = Some((word, rest, found));
                }
                Some(found) => return Some((word, rest, found)),
                None => {}
            }
            is_after_option = word.len() == 2 && word.starts_with('-');
            words = rest;
        }
        value
    }

    fn script<'w>(&mut self, words: impl IntoIterator<Item = &'w str>) -> Option<Found> {
        let found = words.into_iter().find_map(|word| self.file(word));
        found.filter(|found| found.is_of_a_user)
    }

    /// The one user's file that its commands come from; none where there are several, of which one may be data or never run.
    fn of_text(&mut self, text: &str) -> Option<Found> {
        let outer = self.cwd.clone();
        let all = commands(text);
        let found = all.iter().filter_map(|words| match words.split_first()? {
            (first, [directory, ..]) if first == "cd" => {
                self.cwd.push(directory);
                None
            }
            (first, files) if first == "." || first == "source" => self.script(files.iter().map(String::as_str)),
            _ => self.of(words),
        });
        let mut found: Vec<Found> = found.collect();
        self.cwd = outer;
        let only = found.pop()?;
        found.iter().all(|other| other.path == only.path).then_some(only)
    }

    fn program(&mut self, word: &str) -> Option<Found> {
        if word.contains('/') {
            return self.file(word);
        }
        self.left = self.left.checked_sub(1)?;
        let places = self.starting.search.split(':').filter(|place| place.starts_with('/'));
        places.map(|place| Path::new(place).join(word)).find_map(|path| self.starting.look(&path))
    }

    fn file(&mut self, word: &str) -> Option<Found> {
        self.left = self.left.checked_sub(1)?;
        self.starting.look(&self.cwd.join(word))
    }
}

impl Starting<'_> {
    fn look(&self, path: &Path) -> Option<Found> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let view = self.views.iter().find_map(|(tree, view)| Some((tree, view, path.strip_prefix(tree).ok()?)));
        let seen = view.map(|(tree, view, below)| {
            // What is mounted in the tree may be served by this very process.
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
            (tree, rustix::fs::openat2(view, below, flags, Mode::empty(), resolve))
        });
        let (file, path) = match seen {
            // A link that leads elsewhere.
            None | Some((_, Err(Errno::XDEV))) => {
                let file = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS).ok()?;
                let real = std::fs::read_link(of_this(&file)).ok()?;
                (file, real)
            }
            Some((_, Ok(file))) => (file, path.to_path_buf()),
            Some((_, Err(_))) => return None,
        };
        let found = rustix::fs::fstat(&file).ok()?;
        let is_roots = found.st_uid == 0 && !rustix::process::getuid().is_root();
        let is_of_a_user = !is_of_the_system(&path) && !is_roots;
        let is_executable = found.st_mode & 0o111 != 0;
        let is_plain = rustix::fs::FileType::from_raw_mode(found.st_mode).is_file();
        is_plain.then_some(Found { file, path, is_executable, is_of_a_user })
    }
}

fn of_this(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
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
