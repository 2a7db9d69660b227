//! The session's identity and its directory on disk. Owns making it, and what becomes of it at the end: removed but for the
//! changes that the user asked to keep, which move to `kept`. State that a later process needs lies on
//! disk, nothing only in memory. Called by `launch`, and by `sweep` for sessions that were killed.
//!
//! ```text
//!   sessions/ID          locked while the session lives (see `lock`)
//!   sessions/ID/session.json  what it says of itself (see `registry`)
//!   sessions/ID/socket        where it is asked and told things; a link to the next, where that name is too long for a socket
//!   sockets/SHORT        the socket then
//!   sessions/ID/0/upper  what was written to the overlay in slot 0
//!   sessions/ID/0/work   overlayfs's own
//!   sessions/ID/keep-0   the user asked for the overlay in slot 0; a link to what it lies over
//!   sessions/ID/transaction.json  what a later process needs to review those (see `workspace::transaction`)
//!   kept/ID              the same, once no session uses it any more and what was written is on the disk
//!   spare                an empty directory that waits to become the next sessions/ID
//! ```

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_host::stand_ins::is_empty;
use cofferdam_host::state::{kept_in, make_all, sessions_in};
use cofferdam_kernel::best_effort;
use cofferdam_wire::session::{self, LOCAL_CELL};
use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use uuid::Uuid;

use crate::store::lock::Claim;
use crate::store::registry;
use cofferdam_workspace::copied;
use cofferdam_workspace::marks;
use cofferdam_workspace::remove_tree::{Progress, Removal};
use cofferdam_workspace::transaction;

/// The longest that the end of a session may take because of what the command left in its overlays. The rest is told, and
/// removed while later sessions run.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where clients connect to.
const SOCKET: &str = "socket";

/// Beside the sessions, so that no sweep takes it for a leftover of one.
const SPARE: &str = "spare";

/// Marks a slot whose changes are kept.
const KEEP: &str = "keep-";

/// A name that no other session has, sortable by start.
pub(crate) fn new_id() -> String {
    format!("{LOCAL_CELL}-{}", Uuid::now_v7())
}

/// Where a session's socket lies whose own place has too long a name.
pub(crate) fn short_socket(state: &Path, id: &str) -> PathBuf {
    state.join("sockets").join(session::short(id))
}

/// A slot whose changes the user asked to keep, and what the overlay lies over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept<'a> {
    pub(crate) slot: usize,
    pub(crate) lower: &'a Path,
}

/// The directory of a session, with upper and work directories of its overlays, until [`SessionDir::finish`].
#[derive(Debug)]
pub(crate) struct SessionDir {
    pub(crate) path: PathBuf,
    pub(crate) claim: Claim,
    slots: usize,
}

impl SessionDir {
    pub(crate) fn create(state: &Path, id: &str, slots: usize, keep: &[Kept<'_>]) -> Result<Self, Errno> {
        let sessions = sessions_in(state);
        let path = sessions.join(id);
        let claim = make_claimed(&sessions, Path::new(id), &state.join(SPARE))?;
        for kept in keep {
            rustix::fs::symlinkat(kept.lower, &claim, format!("{KEEP}{}", kept.slot))?;
        }
        for slot in 0..slots {
            let slot = slot.to_string();
            rustix::fs::mkdirat(&claim, &slot, Mode::RWXU)?;
            for name in ["upper", "work"] {
                rustix::fs::mkdirat(&claim, Path::new(&slot).join(name), Mode::RWXU)?;
            }
        }
        Ok(SessionDir { path, claim, slots })
    }

    /// Where its changes will lie once it is finished; none where nothing of it is kept.
    pub(crate) fn to_be_kept(&self, state: &Path) -> Option<PathBuf> {
        // They are no change.
        best_effort(marks::remove(self.claim.as_fd()), "one that stays is left out of the changes");
        let is_kept = slots_to_keep(&self.claim).is_ok_and(|slots| !slots.is_empty());
        self.path.file_name().filter(|_| is_kept).map(|id| kept_in(state).join(id))
    }

    /// Removes everything but the uppers to keep that are not empty. The command has run, so whatever cannot be removed
    /// is told and changes nothing else.
    pub(crate) fn finish(self, state: &Path) -> Finished {
        if self.slots == 0 && self.clear_small(state) {
            return Finished::default();
        }
        self.finish_until(state, Instant::now() + PATIENCE)
    }

    /// A directory that the command could not reach holds these names at most. Without them it waits for the next session:
    /// removing one gives blocks back to the file system, which may wait for the disk.
    fn clear_small(&self, state: &Path) -> bool {
        for name in [registry::FILE, SOCKET] {
            best_effort(rustix::fs::unlinkat(&self.claim, name, AtFlags::empty()), "what stays keeps the directory");
        }
        let is_put_aside = is_empty(&self.claim)
            && rustix::fs::renameat_with(CWD, &self.path, CWD, state.join(SPARE), RenameFlags::NOREPLACE).is_ok();
        is_put_aside || rustix::fs::rmdir(&self.path).is_ok()
    }

    fn finish_until(self, state: &Path, until: Instant) -> Finished {
        let Some(id) = self.path.file_name().map(PathBuf::from) else { return Finished::default() };
        let ending = Ending::begin(state, id, self.claim);
        match ending.and_then(|mut ending| Ok((ending.turn(until)?, ending))) {
            Ok((Progress::Done, ending)) => {
                // One that cannot be sealed now is sealed by the process that opens it, or said to be lost.
                best_effort(transaction::seal(ending.claim.as_fd()), "the changes are there");
                Finished { kept: ending.kept(), left_behind: None }
            }
            // Where it is now is where the changes are until a sweep goes on.
            Ok((_, ending)) => Finished { kept: ending.kept_so_far(), left_behind: Some(self.path) },
            Err(_) => Finished { kept: Vec::new(), left_behind: Some(self.path) },
        }
    }
}

/// A directory that is claimed before a sweep can take it for a leftover.
fn make_claimed(sessions: &Path, id: &Path, spare: &Path) -> Result<Claim, Errno> {
    let open = || {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, sessions, flags, Mode::empty())
    };
    let sessions = match open() {
        Err(Errno::NOENT) => {
            make_all(sessions)?;
            open()?
        }
        other => other?,
    };
    for _ in 0..64 {
        let moved = is_as_we_left_it(spare)
            .and_then(|()| rustix::fs::renameat_with(CWD, spare, &sessions, id, RenameFlags::NOREPLACE));
        match moved.or_else(|_| rustix::fs::mkdirat(&sessions, id, Mode::RWXU)) {
            Err(Errno::EXIST) => {}
            other => other?,
        }
        match Claim::take(sessions.as_fd(), id) {
            Ok(Some(claim)) => return Ok(claim),
            // A supervisor that sweeps was faster, and removes it.
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::BUSY)
}

/// Another process may have put something there; a session's directory is empty at its start, and its user's alone.
fn is_as_we_left_it(spare: &Path) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(CWD, spare, flags, Mode::empty())?;
    // The supervisor that left it may not be gone yet, and still have its claim.
    rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    let stat = rustix::fs::fstat(&directory)?;
    let is_ours = stat.st_uid == rustix::process::geteuid().as_raw() && Mode::from_raw_mode(stat.st_mode) == Mode::RWXU;
    if is_ours && is_empty(&directory) { Ok(()) } else { Err(Errno::PERM) }
}

/// What is left of a session's directory.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    pub(crate) kept: Vec<(usize, PathBuf)>,
    pub(crate) left_behind: Option<PathBuf>,
}

/// The directory of a session that has ended, on its way out. Can stop at any time; a new one goes on.
#[derive(Debug)]
pub(crate) struct Ending {
    state: PathBuf,
    sessions: OwnedFd,
    id: PathBuf,
    claim: Claim,
    slots: Vec<usize>,
    removal: Removal,
}

impl Ending {
    pub(crate) fn begin(state: &Path, id: PathBuf, claim: Claim) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let sessions = rustix::fs::openat(CWD, sessions_in(state), flags, Mode::empty())?;
        best_effort(marks::remove(claim.as_fd()), "one that stays is left out of the changes");
        let slots = slots_to_keep(&claim)?;
        let mut spared = Vec::new();
        for slot in &slots {
            // Beside the slot, and so among what is removed.
            let moved = rustix::fs::renameat(&claim, format!("{slot}/work"), &claim, format!("work-{slot}"));
            best_effort(moved, "what is not there was moved before");
            spared.extend([CString::new(slot.to_string()), CString::new(format!("{KEEP}{slot}"))]);
        }
        if !slots.is_empty() {
            spared.extend(transaction::FILES.map(CString::new));
        }
        let spared = spared.into_iter().collect::<Result<_, _>>().map_err(|_| Errno::INVAL)?;
        let top = rustix::fs::openat(&claim, c".", flags, Mode::empty())?;
        Ok(Ending { state: state.to_path_buf(), sessions, id, claim, slots, removal: Removal::new(top, spared)? })
    }

    pub(crate) fn turn(&mut self, until: Instant) -> Result<Progress, Errno> {
        let progress = self.removal.turn(until);
        if progress != Progress::Done {
            return Ok(progress);
        }
        let socket = self.id.to_str().map(|id| short_socket(&self.state, id));
        best_effort(socket.map_or(Ok(()), rustix::fs::unlink), "most sessions have none there");
        if self.slots.is_empty() {
            rustix::fs::unlinkat(&self.sessions, &self.id, AtFlags::REMOVEDIR)?;
            return Ok(Progress::Done);
        }
        let kept = kept_in(&self.state);
        make_all(&kept)?;
        rustix::fs::renameat(&self.sessions, &self.id, CWD, kept.join(&self.id))?;
        Ok(Progress::Done)
    }

    pub(crate) fn id(&self) -> &Path {
        &self.id
    }

    fn kept(&self) -> Vec<(usize, PathBuf)> {
        self.uppers_in(&kept_in(&self.state))
    }

    fn kept_so_far(&self) -> Vec<(usize, PathBuf)> {
        self.uppers_in(&sessions_in(&self.state))
    }

    fn uppers_in(&self, directory: &Path) -> Vec<(usize, PathBuf)> {
        let upper = |slot: &usize| (*slot, directory.join(&self.id).join(slot.to_string()).join("upper"));
        self.slots.iter().map(upper).collect()
    }
}

/// The slots that the user asked for and that hold something.
fn slots_to_keep(claim: &Claim) -> Result<Vec<usize>, Errno> {
    // What was undone can be put back.
    let has_steps = transaction::has_checkpoints(claim.as_fd());
    let is_kept = |slot: &usize| has_steps || is_changed(claim, *slot);
    Ok(asked(claim.as_fd())?.into_iter().filter(is_kept).collect())
}

/// The slots that the user asked for.
fn asked(session: BorrowedFd<'_>) -> Result<Vec<usize>, Errno> {
    let mut slots = Vec::new();
    let mut entries = Dir::read_from(session)?;
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let slot = entry.file_name().to_bytes().strip_prefix(KEEP.as_bytes()).and_then(|s| str::from_utf8(s).ok());
        slots.extend(slot.and_then(|slot| slot.parse::<usize>().ok()));
    }
    slots.sort_unstable();
    Ok(slots)
}

/// An upper that the command made unreadable is not known to be empty.
fn is_changed(session: &Claim, slot: usize) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let copied = rustix::fs::openat(session, slot.to_string(), flags, Mode::empty());
    match copied.and_then(|slot| copied::is_touched(slot.as_fd())) {
        // Only a copy has the record of one.
        Err(Errno::NOENT) => {}
        touched => return touched.unwrap_or(true),
    }
    match rustix::fs::openat(session, format!("{slot}/upper"), flags, Mode::empty()).and_then(Dir::new) {
        Err(Errno::NOENT) => false,
        Err(_) => true,
        Ok(entries) => entries.flatten().any(|entry| !matches!(entry.file_name().to_bytes(), b"." | b"..")),
    }
}

#[cfg(test)]
mod tests;
