//! What a session made below the root that asks, and what it may do with it: files that an answer made, served by their
//! descriptor, so that no mount keeps them from being renamed or removed (decision 0056). Owns the changes of such a file and
//! of its name on the host; which change is allowed is decided by `gate`, and which node it is by `fuse`.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::rand::GetRandomFlags;

use cofferdam_policy::{ObeyedClass, folds_alike, obeyed_names};

use super::wire::{NewAttributes, NewTime};
use crate::host_files;

const PERMISSIONS: u32 = 0o777;

/// What a node stands for besides what the host has at its path.
#[derive(Debug, Clone, Default)]
pub(super) enum Made {
    #[default]
    Nothing,
    /// A file that a program wants to make: nothing is on the host yet.
    Wanted {
        mode: u32,
    },
    /// A directory of the session alone: nothing is on the host until something is opened below it.
    Directory {
        mode: u32,
    },
    File(Rc<MadeFile>),
}

impl Made {
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Made::Nothing)
    }
}

/// A file that the session made. As long as its descriptor is open no other file has its numbers.
#[derive(Debug)]
pub(crate) struct MadeFile {
    pub(crate) file: OwnedFd,
    /// Whether it may be opened again without a question.
    pub(super) is_for_once: bool,
    /// Counts the files that are held.
    _held: Rc<()>,
}

impl MadeFile {
    /// A new file in the directory with this device and inode, and under this name.
    pub(super) fn make(
        path: &Path,
        mode: u32,
        directory: (u64, u64),
        is_for_once: bool,
        held: &Rc<()>,
    ) -> Result<MadeFile, Errno> {
        let (parent, name) = split(path)?;
        let stat = rustix::fs::fstat(&parent)?;
        if (stat.st_dev, stat.st_ino) != directory {
            return Err(Errno::STALE);
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(mode & PERMISSIONS))?;
        Ok(MadeFile { file, is_for_once, _held: Rc::clone(held) })
    }

    pub(super) fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::fstat(&self.file)
    }

    pub(super) fn is(&self, other: &Stat) -> bool {
        self.stat().is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (other.st_dev, other.st_ino))
    }

    /// What the workload maps is written without a look at its limits, and this process has a limit of its own.
    fn check_size(size: Option<u64>) -> Result<(), Errno> {
        let most = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        if size.is_some_and(|size| size <= most) { Ok(()) } else { Err(Errno::FBIG) }
    }

    pub(super) fn write(&self, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        Self::check_size(offset.checked_add(u64::try_from(data.len()).unwrap_or(u64::MAX)))?;
        let mut done = 0;
        while done < data.len() {
            match rustix::io::pwrite(&self.file, &data[done..], offset + u64::try_from(done).unwrap_or(0)) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                // What was written counts; the next call meets the error.
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }

    pub(super) fn change(&self, wanted: &NewAttributes) -> Result<(), Errno> {
        let stat = self.stat()?;
        let is_other = |id: Option<u32>, now: u32| id.is_some_and(|id| id != now && id != u32::MAX);
        let is_special = wanted.mode.is_some_and(|mode| mode & 0o7000 != 0);
        if is_other(wanted.uid, stat.st_uid) || is_other(wanted.gid, stat.st_gid) || is_special {
            return Err(Errno::PERM);
        }
        if let Some(size) = wanted.size {
            Self::check_size(Some(size))?;
            rustix::fs::ftruncate(&self.file, size)?;
        }
        if let Some(mode) = wanted.mode {
            rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode & PERMISSIONS))?;
        }
        if (wanted.accessed, wanted.modified) != (NewTime::AsItIs, NewTime::AsItIs) {
            let times = Timestamps { last_access: time(wanted.accessed), last_modification: time(wanted.modified) };
            rustix::fs::futimens(&self.file, &times)?;
        }
        Ok(())
    }

    /// Whether this name in the directory is this very file.
    fn check_at(&self, directory: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        let there = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if self.is(&there) { Ok(()) } else { Err(Errno::STALE) }
    }

    pub(super) fn remove(&self, path: &Path) -> Result<(), Errno> {
        let (directory, name) = split(path)?;
        self.check_at(&directory, name)?;
        self.take_away(&directory, name)
    }

    /// Removed under a name that no program knows: what a host program put at its own name in between is not this file, and
    /// goes back there.
    fn take_away(&self, directory: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        let mut random = [0_u8; 16];
        rustix::rand::getrandom(&mut random, GetRandomFlags::empty())?;
        let aside = OsString::from(format!(".cofferdam-{:032x}", u128::from_ne_bytes(random)));
        rustix::fs::renameat_with(directory, name, directory, &aside, RenameFlags::NOREPLACE)?;
        self.check_at(directory, &aside).inspect_err(|_| {
            let back = rustix::fs::renameat_with(directory, &aside, directory, name, RenameFlags::NOREPLACE);
            cofferdam_kernel::best_effort(back, "a host program has taken the name again");
        })?;
        rustix::fs::unlinkat(directory, &aside, AtFlags::empty())
    }

    /// Gives it another name in its directory: a free one, or that of another file of the session's, which goes.
    pub(super) fn rename(&self, path: &Path, to: &OsStr, over: Option<&MadeFile>) -> Result<(), Errno> {
        let (directory, name) = split(path)?;
        self.check_at(&directory, name)?;
        let Some(over) = over else {
            rustix::fs::renameat_with(&directory, name, &directory, to, RenameFlags::NOREPLACE)?;
            return self.check_at(&directory, to).inspect_err(|_| {
                // A host program was faster: what has moved is its own, and goes back.
                let back = rustix::fs::renameat_with(&directory, to, &directory, name, RenameFlags::NOREPLACE);
                cofferdam_kernel::best_effort(back, "the name is taken again, so the file stays where it is");
            });
        };
        over.check_at(&directory, to)?;
        // Exchanged first: what goes is looked at once it is out of the way, and is never a file of the host's.
        rustix::fs::renameat_with(&directory, name, &directory, to, RenameFlags::EXCHANGE)?;
        let is_as_meant = self.check_at(&directory, to).and_then(|()| over.check_at(&directory, name));
        is_as_meant.inspect_err(|_| {
            let back = rustix::fs::renameat_with(&directory, name, &directory, to, RenameFlags::EXCHANGE);
            cofferdam_kernel::best_effort(back, "a host program has taken one of the names away");
        })?;
        over.take_away(&directory, name)
    }
}

fn time(wanted: NewTime) -> Timespec {
    match wanted {
        NewTime::AsItIs => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        NewTime::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        NewTime::At(seconds, nanoseconds) => {
            Timespec { tv_sec: seconds.cast_signed(), tv_nsec: i64::from(nanoseconds) }
        }
    }
}

/// The directory of a path, opened, and its last name.
fn split(path: &Path) -> Result<(OwnedFd, &OsStr), Errno> {
    let (parent, name) = (path.parent().ok_or(Errno::INVAL)?, path.file_name().ok_or(Errno::INVAL)?);
    Ok((host_files::directory(parent)?, name))
}

/// The name that a program is about to give to a file of this name, by the marks that programs set on what is not finished:
/// `x.tmp.1`, `x.lock`. The operator is told it with the question. No name that begins with a dot or that programs of the host
/// obey unasked: who answers for one name has not thought of such another.
pub(crate) fn saved_as(name: &OsStr) -> Option<OsString> {
    const MARKS: [&str; 7] = ["tmp", "temp", "lock", "new", "part", "partial", "bak"];
    let name = name.to_str()?;
    let is_random = |part: &str| part.len() >= 4 && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_mark = |part: &str| {
        MARKS.contains(&part) || part.len() >= 4 && part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    };
    let parts: Vec<&str> = name.split('.').collect();
    // The first of its marks: what stands before it is the name, and what follows is nothing but marks and random letters.
    let first = (1..parts.len()).find(|at| is_mark(parts[*at]))?;
    let before = parts[..first].join(".");
    let is_whole = parts[first..].iter().all(|part| is_mark(part) || is_random(part));
    (is_whole && !before.is_empty() && !before.starts_with('.') && !is_obeyed(&before)).then(|| before.into())
}

fn is_obeyed(name: &str) -> bool {
    let opens = obeyed_names().filter(|obeyed| obeyed.class == ObeyedClass::Opens && !obeyed.in_git);
    let mut first = opens.map(|obeyed| (obeyed.name.split('/').next().unwrap_or_default(), obeyed.is_glob));
    first.any(|(obeyed, is_glob)| {
        let end = obeyed.strip_prefix('*').filter(|_| is_glob);
        let tail = end.map_or(name.as_bytes(), |end| &name.as_bytes()[name.len().saturating_sub(end.len())..]);
        folds_alike(tail, end.unwrap_or(obeyed).as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_it_will_be_saved_as() {
        for (name, saved) in [
            (".claude.json.tmp.48271.1a2b3c4d", None),
            ("state.json.tmp.48271.1a2b3c4d", Some("state.json")),
            (".git.tmp", None),
            (".envrc.lock", None),
            ("mise.toml.tmp", None),
            ("Opencode.json.lock", None),
            ("my.code-workspace.tmp", None),
            ("config.lock", Some("config")),
            ("settings.json.1712345678", Some("settings.json")),
            ("a.tmp", Some("a")),
            ("a.tmp.exe", None),
            ("notes.txt", None),
            (".tmp", None),
            ("..tmp", None),
            ("x.d.ts", None),
            ("libfoo.so.1", None),
        ] {
            assert_eq!(saved_as(OsStr::new(name)), saved.map(OsString::from), "{name}");
        }
    }
}
