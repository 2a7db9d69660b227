//! Spins on covered names while a host process works on them: opening, linking, reopening what was opened as a path, opening
//! from a directory that was opened before, renaming out, truncating. Owns the attempts and the log of what they saw, a line
//! each: `r PATH CONTENT` or `w PATH`; what counts is the storm's.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_testkit::Place;

use super::call;
use crate::cover_storm::{READ, SEEN, STOP, UP, WRITE};
use crate::row::Finding;

const LONGEST: Duration = Duration::from_mins(10);
/// After the host has ended its work, for the last change to be noticed.
const CLOSES: Duration = Duration::from_secs(2);

/// `quiet` leaves nothing behind that a look finds afterwards, and writes nothing.
pub(super) fn spin(place: &Place, quiet: bool) -> Finding {
    let project = place.project();
    let names = |list: &str| -> Vec<PathBuf> {
        fs::read_to_string(project.join(list)).unwrap_or_default().lines().map(PathBuf::from).collect()
    };
    let (read, write) = (names(READ), names(WRITE));
    let Ok(log) = OpenOptions::new().append(true).create(true).open(project.join(SEEN)) else {
        return Finding::Broken("no log".to_owned());
    };
    let mut log = Log { file: log, seen: BTreeSet::new() };
    let mut spinner = Spinner { project: &project, quiet, parents: parents(&read) };
    place.write(project.join(UP), "");
    let (began, mut rounds) = (Instant::now(), 0usize);
    while !project.join(STOP).exists() && began.elapsed() < LONGEST {
        rounds += 1;
        for (index, name) in read.iter().enumerate() {
            if let Some(text) = spinner.look(name, index, rounds) {
                log.tell("r", name, text.trim());
            }
        }
        for name in write.iter().filter(|_| !quiet) {
            if written(name, rounds) {
                log.tell("w", name, &rounds.to_string());
            }
        }
    }
    let is_open = || {
        let readable = read.iter().find(|name| fs::read_to_string(name).is_ok_and(|text| !text.is_empty()));
        readable.or_else(|| write.iter().find(|name| OpenOptions::new().append(true).open(name).is_ok())).cloned()
    };
    let until = Instant::now() + CLOSES;
    while let Some(name) = is_open() {
        if Instant::now() > until {
            return Finding::Open(format!("at the end: {}", name.display()));
        }
    }
    Finding::Contained(format!("{} contents seen in {rounds} rounds", log.seen.len()))
}

struct Log {
    file: File,
    seen: BTreeSet<String>,
}

impl Log {
    /// At once, because the session may end at any moment.
    fn tell(&mut self, kind: &str, name: &Path, text: &str) {
        let line = format!("{kind} {} {}\n", name.display(), text.replace('\n', " "));
        if (kind == "w" || self.seen.insert(line.clone())) && self.file.write_all(line.as_bytes()).is_err() {
            // What is not written down would count as not seen.
            std::process::abort();
        }
    }
}

struct Spinner<'a> {
    project: &'a Path,
    quiet: bool,
    /// The directory of each name, as it was at the start.
    parents: Vec<Option<File>>,
}

impl Spinner<'_> {
    fn look(&mut self, name: &Path, index: usize, rounds: usize) -> Option<String> {
        let text = match rounds % 5 {
            0 => reopened(name),
            1 => self.linked(name),
            2 if !self.quiet => self.renamed(name),
            3 => self.beside(name, index),
            _ => fs::read_to_string(name).ok(),
        };
        text.filter(|text| !text.is_empty())
    }

    fn linked(&self, name: &Path) -> Option<String> {
        let at = self.project.join("linked");
        fs::hard_link(name, &at).ok()?;
        let mut text = String::new();
        let read = File::open(&at).and_then(|mut file| file.read_to_string(&mut text));
        if self.quiet {
            fs::remove_file(&at).ok();
        }
        read.ok().map(|_| text)
    }

    fn renamed(&self, name: &Path) -> Option<String> {
        let at = self.project.join("renamed");
        fs::rename(name, &at).ok()?;
        fs::read_to_string(&at).ok()
    }

    fn beside(&self, name: &Path, index: usize) -> Option<String> {
        let parent = self.parents.get(index)?.as_ref()?;
        fs::read_to_string(format!("/proc/self/fd/{}/{}", parent.as_raw_fd(), name.file_name()?.to_str()?)).ok()
    }
}

fn parents(names: &[PathBuf]) -> Vec<Option<File>> {
    let open = |name: &PathBuf| {
        OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(name.parent()?).ok()
    };
    names.iter().map(open).collect()
}

/// Through a descriptor that does not count as opening.
fn reopened(name: &Path) -> Option<String> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(name).ok()?;
    fs::read_to_string(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

fn written(name: &Path, rounds: usize) -> bool {
    match rounds % 3 {
        0 => OpenOptions::new().append(true).open(name).and_then(|mut file| file.write_all(b"#x\n")).is_ok(),
        1 => OpenOptions::new().write(true).truncate(true).open(name).is_ok(),
        _ => CString::new(name.as_os_str().as_bytes())
            .is_ok_and(|path| call(libc::SYS_truncate, &[path.as_ptr() as usize, 2]).is_ok()),
    }
}
