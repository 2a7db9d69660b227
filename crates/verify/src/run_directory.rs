//! The directory of one run, with everything that its trials make. Owns which directory is a run's, whether that run lives, and
//! removing what a killed run left. Made by `verification`; the process that launches a trial joins it and launches nowhere else.
//!
//! A run and its launches hold a shared lock on the directory, and the kernel lets go of it however they end: what can be locked
//! exclusively is left over. The marker in it has the token of the run, by which canaries outside of it are named.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};

use cofferdam_audit::to_hex;
use cofferdam_kernel::Errno;
use rustix::fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags};

use crate::canaries::PRIVATE;
use crate::errand::{Errand, file_name};
use crate::scratch::remove;

/// Where the directories of runs are, below a home.
const SCRATCH: &str = ".cache/cofferdam-verify";
/// The copy of this program that is shown inside, below the directory of a run.
const PROBE: &str = "bin/sandbox-verify";
const MARKER: &str = "run";
/// Hexadecimal digits of a token, and how many of them a run's directory is named after.
const TOKEN: usize = 32;
const NAME: usize = 12;
/// Runs of one user that begin at the same moment.
const ATTEMPTS: usize = 8;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directory of this run.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    pub(crate) path: PathBuf,
    pub(crate) token: String,
    parent: OwnedFd,
    _lock: OwnedFd,
}

impl RunDirectory {
    /// Makes one below a home, after it removed what killed runs left there.
    pub(crate) fn make(home: &Path) -> io::Result<Self> {
        let all = home.join(SCRATCH);
        fs::create_dir_all(&all)?;
        // A cache may lie behind a link; what is below is not to.
        let all = all.canonicalize()?;
        let parent = rustix::fs::open(&all, DIRECTORY, Mode::empty())?;
        if !is_own(parent.as_fd())? {
            return Err(io::Error::other("it belongs to another user"));
        }
        sweep(parent.as_fd(), &all)?;
        let (token, lock) = fresh(parent.as_fd())?;
        let name = &token[..NAME];
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let marker = rustix::fs::openat(&lock, MARKER, flags, Mode::RUSR | Mode::WUSR)?;
        File::from(marker).write_all(token.as_bytes())?;
        let path = all.join(name);
        fs::create_dir(path.join("bin"))?;
        Ok(RunDirectory { path, token, parent, _lock: lock })
    }

    /// Where the copy of this program lies that is shown inside.
    pub(crate) fn probe(&self) -> PathBuf {
        self.path.join(PROBE)
    }

    /// Removes it, with all that is in it.
    pub(crate) fn remove(self) -> io::Result<()> {
        remove(self.parent.as_fd(), &self.token[..NAME])
    }
}

/// For a launch: the lock on the directory of the living run whose errand this is, on a root that it made.
pub(crate) fn join(errand: &Errand) -> Result<OwnedFd, String> {
    let refused = |why: &str| format!("walls are left away on scratch roots only: {why}");
    let (Some(run), Some(root)) = (errand.root.parent(), errand.root.file_name()) else {
        return Err(refused("no run's directory is named"));
    };
    if run.canonicalize().ok().as_deref() != Some(run) || errand.program != run.join(PROBE) {
        return Err(refused("that is not where a run's directory lies"));
    }
    let directory = rustix::fs::openat2(CWD, run, DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let directory = directory.map_err(|errno| refused(&errno.to_string()))?;
    let opened = rustix::fs::fstat(&directory).map_err(|errno| refused(&errno.to_string()))?;
    if opened.st_uid != rustix::process::geteuid().as_raw() || opened.st_mode & 0o077 != 0 {
        return Err(refused("the directory is not of this user alone"));
    }
    rustix::fs::flock(&directory, FlockOperation::NonBlockingLockShared)
        .map_err(|errno| refused(&format!("its run has ended: {errno}")))?;
    // Looked at with the lock held: from here on the directory counts as in use, whatever becomes of the run.
    if parent_id() != errand.run {
        return Err(refused("its run has ended"));
    }
    if marker(directory.as_fd()).as_ref() != Some(&errand.token) {
        return Err(refused("no run of this token made the directory"));
    }
    let root = rustix::fs::openat(&directory, root, DIRECTORY, Mode::empty());
    let is_own = root.and_then(|root| is_own(root.as_fd())).map_err(|errno| refused(&errno.to_string()))?;
    if is_own { Ok(directory) } else { Err(refused("the root is not of this user")) }
}

fn is_own(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(rustix::fs::fstat(file)?.st_uid == rustix::process::geteuid().as_raw())
}

/// Locks a directory that still has its name then.
fn locked(parent: BorrowedFd<'_>, name: &str, how: FlockOperation) -> Result<OwnedFd, Errno> {
    let directory = rustix::fs::openat(parent, name, DIRECTORY, Mode::empty())?;
    rustix::fs::flock(&directory, how)?;
    let (ours, there) = (rustix::fs::fstat(&directory)?, rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?);
    if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino) { Ok(directory) } else { Err(Errno::NOENT) }
}

/// The token of the run that made a directory.
fn marker(directory: BorrowedFd<'_>) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, MARKER, flags, Mode::empty()).ok()?;
    let found = rustix::fs::fstat(&file).ok()?;
    let is_plain = FileType::from_raw_mode(found.st_mode).is_file();
    let mut text = String::new();
    File::from(file).take(TOKEN as u64 + 1).read_to_string(&mut text).ok()?;
    let is_token = text.len() == TOKEN && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_plain && is_token && found.st_uid == rustix::process::geteuid().as_raw()).then_some(text)
}

/// A directory that is locked. Another run that begins at the same moment may take one without a lock for a dead run's.
fn fresh(parent: BorrowedFd<'_>) -> io::Result<(String, OwnedFd)> {
    let mut left = ATTEMPTS;
    loop {
        let token = token()?;
        let name = &token[..NAME];
        rustix::fs::mkdirat(parent, name, Mode::RWXU)?;
        match locked(parent, name, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK | Errno::NOENT) if left > 0 => left -= 1,
            other => return Ok((token, other?)),
        }
    }
}

/// Removes what killed runs left. What lives, or is not of this user, stays.
fn sweep(parent: BorrowedFd<'_>, path: &Path) -> Result<(), Errno> {
    let entries = Dir::new(rustix::fs::openat(parent, c".", DIRECTORY, Mode::empty())?)?;
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let is_run = name.len() == NAME && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_run && sweep_one(parent, name, &path.join(name)).is_err() {
            // The next run tries again.
        }
    }
    Ok(())
}

fn sweep_one(parent: BorrowedFd<'_>, name: &str, path: &Path) -> io::Result<()> {
    let lock = match locked(parent, name, FlockOperation::NonBlockingLockExclusive) {
        // It lives, or another run removes it.
        Err(Errno::WOULDBLOCK | Errno::NOENT) => return Ok(()),
        other => other?,
    };
    if !is_own(lock.as_fd())? {
        return Ok(());
    }
    let Some(token) = marker(lock.as_fd()).filter(|token| token.starts_with(name)) else {
        // No run's, or of one that was killed before it wrote there: it goes where it is empty.
        return Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR).or_else(|errno| match errno {
            Errno::NOTEMPTY | Errno::NOENT => Ok(()),
            other => Err(other),
        })?);
    };
    for directory in PRIVATE {
        sweep_canaries(Path::new(directory), &token)?;
    }
    for trial in fs::read_dir(path)? {
        let state = trial?.path().join("state/cofferdam");
        if state.canonicalize().is_ok_and(|real| real == state) {
            cofferdam_supervisor::finish_killed(&state);
        }
    }
    remove(parent, name)
}

/// Files of this user that a run of this token laid into a directory of all users.
fn sweep_canaries(directory: &Path, token: &str) -> Result<(), Errno> {
    let opened = match rustix::fs::open(directory, DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let prefix = file_name(token, "");
    for entry in Dir::read_from(&opened)? {
        let entry = entry?;
        if !entry.file_name().to_bytes().starts_with(prefix.as_bytes()) {
            continue;
        }
        let found = rustix::fs::statat(&opened, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
        let is_plain = FileType::from_raw_mode(found.st_mode).is_file();
        if is_plain && found.st_uid == rustix::process::geteuid().as_raw() {
            rustix::fs::unlinkat(&opened, entry.file_name(), AtFlags::empty())?;
        }
    }
    Ok(())
}

fn token() -> io::Result<String> {
    let mut bytes = [0; TOKEN / 2];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(to_hex(&bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::errand::Walls;

    struct Home(PathBuf);

    impl Home {
        fn new(name: &str) -> Home {
            let path = std::env::temp_dir().join(format!("cofferdam-verify-home-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a directory");
            Home(path.canonicalize().expect("it exists"))
        }
    }

    impl Drop for Home {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).expect("it is ours");
        }
    }

    fn errand(run: &Path, token: &str) -> Errand {
        Errand {
            check: "A1".to_owned(),
            walls: Walls::Away,
            switched_off: Vec::new(),
            run: parent_id(),
            root: run.join("A1-away"),
            program: run.join(PROBE),
            token: token.to_owned(),
            tcp: 0,
            udp: 0,
            process: 0,
            namespaces: Vec::new(),
        }
    }

    #[test]
    fn walls_are_left_away_in_directories_of_living_runs_only() {
        let home = Home::new("join");
        let run = RunDirectory::make(&home.0).expect("a run");
        fs::create_dir(run.path.join("A1-away")).expect("a root");
        let good = errand(&run.path, &run.token);
        assert!(join(&good).is_ok(), "{:?}", join(&good));
        // All that a name can say is right.
        let forged = home.0.join("x").join(SCRATCH).join(&run.token[..NAME]);
        fs::create_dir_all(forged.join("A1-away")).expect("a directory");
        fs::set_permissions(&forged, fs::Permissions::from_mode(0o700)).expect("it is ours");
        let linked = home.0.join("linked");
        symlink(&run.path, &linked).expect("a link");
        symlink("/", run.path.join("A2-away")).expect("a link");
        let mut wrong = vec![
            errand(&forged, &run.token),
            errand(&linked, &run.token),
            errand(&run.path, &"0".repeat(TOKEN)),
            errand(&run.path, ""),
            errand(Path::new("/"), &run.token),
        ];
        for root in ["A3-away", "A2-away", "..", "A1-away/below"] {
            wrong.push(Errand { root: run.path.join(root), ..good.clone() });
        }
        wrong.push(Errand { program: "/bin/sh".into(), ..good.clone() });
        // As if the run had ended before the lock was taken.
        wrong.push(Errand { run: std::process::id(), ..good.clone() });
        for wrong in wrong {
            assert!(join(&wrong).is_err(), "{wrong:?}");
        }
        fs::set_permissions(&run.path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        assert!(join(&good).is_err(), "others can look");
        run.remove().expect("it can be removed");
        assert!(join(&good).is_err());
    }

    #[test]
    fn what_a_dead_run_left_is_removed_and_a_living_one_stays() {
        let home = Home::new("sweep");
        let living = RunDirectory::make(&home.0).expect("a run");
        let dead = RunDirectory::make(&home.0).expect("a run");
        let closed = dead.path.join("A1-away/work");
        fs::create_dir_all(&closed).expect("a root");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("it is ours");
        symlink(&living.path, dead.path.join("link")).expect("a link");
        let canary = |run: &RunDirectory| Path::new("/tmp").join(file_name(&run.token, "A1"));
        let (of_dead, of_living, path) = (canary(&dead), canary(&living), dead.path.clone());
        for canary in [&of_dead, &of_living] {
            fs::write(canary, "x").expect("a canary");
        }
        drop(dead);
        let launched = rustix::fs::open(&path, DIRECTORY, Mode::empty()).expect("it exists");
        rustix::fs::flock(&launched, FlockOperation::NonBlockingLockShared).expect("as a launch does");
        let next = RunDirectory::make(&home.0).expect("a run");
        assert!(path.exists() && of_dead.exists(), "a launch of it still runs");
        drop(launched);
        let last = RunDirectory::make(&home.0).expect("a run");
        let left = [path.exists(), of_dead.exists(), living.path.join(MARKER).exists(), of_living.exists()];
        fs::remove_file(of_living).expect("it is ours");
        assert_eq!(left, [false, false, true, true]);
        for run in [living, next, last] {
            run.remove().expect("it can be removed");
        }
    }
}
