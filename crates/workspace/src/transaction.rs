//! One transaction: the directory that holds what a session wrote, what it says of itself, and what can be done with it. Owns the
//! lock, the manifest and the order of state changes; called by `supervisor` at the beginning and the end of a session and by
//! `cli` for everything a person does.
//!
//! ```text
//!   transaction.json     the manifest, written before the session begins
//!   state                see `state`
//!   SLOT/upper           what was written to the tree in that slot
//!   checkpoints          see `checkpoint`
//!   beginnings, ...      see `beginnings`
//!   journal.json, ...    see `journal`
//! ```

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use cofferdam_kernel::best_effort;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::beginnings::{self, Beginnings};
use crate::beneath;
use crate::changes::{Change, Changes, Conflict, Skipped, Walk, What, Why};
use crate::checkpoint::note::{CHECKPOINTS, is_half_put_back};
use crate::commit::{self, CommitError, Committed, Parts, Place, Tree};
use crate::copied::Copied;
use crate::entry::{Entry, Kind, Time};
use crate::git_index::{self, LARGEST_INDEX};
use crate::hidden::{Hidden, HiddenRule};
use crate::journal::{self, Earlier, JOURNAL, Operation, path_text};
use crate::operations;
use crate::stages::{self, numbers};
use crate::staging;
use crate::state::{Event, State, write_durably};
use crate::sums;
use crate::undo;
use crate::units;

const MANIFEST: &str = "transaction.json";
const VERSION: u32 = 1;
/// The last review's.
const REJECTED: &str = "cofferdam-rejected.patch";
const LEFT_OUT: &str = "left-out.json";
const INDEX: &str = ".git/index";
const WORKTREES: &str = "worktrees";
const MOST_WORKTREES: usize = 64;
/// What the directory of a session holds for its transaction, besides the layers: what is not named here is removed at its end.
pub const FILES: [&str; 6] =
    [MANIFEST, "state", CHECKPOINTS, crate::origins::FILE, beginnings::FILE, beginnings::COPIES];
/// Told apart from a boot before by this file.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A directory of the host under an overlay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeRecord {
    pub slot: usize,
    #[serde(with = "path_text")]
    pub lower: PathBuf,
    pub device: u64,
    pub inode: u64,
    /// Before the overlay was mounted, by the clock that stamps files of this tree.
    pub mounted: Time,
    /// Whether it is a repository of git itself: that of a linked worktree.
    pub is_repository: bool,
    /// Whether it is part of the transaction that was asked for, and not an overlay for itself.
    pub in_transaction: bool,
    /// What the index of git in it said at the start, but for times of files.
    pub index: Option<u64>,
    /// Whether the layer began as a copy of it (see `copied`).
    #[serde(default)]
    pub is_copy: bool,
}

/// Names that a person left out of a commit, each with all below it, by tree.
#[derive(Debug, Default)]
pub struct LeftOut(HashSet<(usize, PathBuf)>);

impl LeftOut {
    pub fn covers(&self, tree: usize, path: &Path) -> bool {
        !self.0.is_empty() && path.ancestors().any(|above| self.0.contains(&(tree, above.to_path_buf())))
    }
}

#[derive(Serialize, Deserialize)]
struct LeftOutName {
    tree: usize,
    #[serde(with = "path_text")]
    path: PathBuf,
}

/// What the index of git in a project says, but for what it knows of the times of files.
pub fn index_of(project: &Path) -> Option<u64> {
    index_in(beneath::root(project).ok()?.as_fd())
}

/// One number for all of them: of linked worktrees, too, where the directory is the repository of one.
fn index_in(root: BorrowedFd<'_>) -> Option<u64> {
    let mut all = vec![PathBuf::from(INDEX), PathBuf::from("index")];
    if let Ok(worktrees) = beneath::directory(root, Path::new(WORKTREES))
        && beneath::file(root, OsStr::new("HEAD")).is_ok()
    {
        let names = beneath::names(worktrees.as_fd(), MOST_WORKTREES).ok()?;
        all.extend(names.iter().map(|name| Path::new(WORKTREES).join(name).join("index")));
    }
    let said = all.iter().filter_map(|path| sums::of_index(&read(root, path, LARGEST_INDEX)?));
    said.reduce(|one, other| one.rotate_left(1) ^ other)
}

/// Whether `index_in` reads it in a repository: a branch may have this name, too.
fn is_index(path: &Path) -> bool {
    let parts: Vec<&OsStr> = path.iter().collect();
    matches!(parts[..], [name] if name == "index")
        || matches!(parts[..], [worktrees, _, name] if worktrees == WORKTREES && name == "index")
}

/// What a transaction says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub version: u32,
    pub session: String,
    /// Which run of the machine it was begun in.
    pub boot: String,
    /// Seconds since 1970.
    pub began: u64,
    pub command: Vec<String>,
    /// Applied at the end without a question, but for what needs one.
    pub is_auto: bool,
    pub trees: Vec<TreeRecord>,
    pub hidden: Vec<HiddenRule>,
    /// Names of which the session sees a masked text.
    #[serde(default)]
    pub masked: Vec<HiddenRule>,
}

impl Manifest {
    pub fn new(session: &str, began: u64, command: &[String], is_auto: bool) -> Result<Self, Errno> {
        let (session, command) = (session.to_owned(), command.to_vec());
        let (trees, hidden, masked) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Manifest { version: VERSION, session, boot: boot()?, began, command, is_auto, trees, hidden, masked })
    }

    /// Before anything is mounted. What is lost with the machine is lost with it.
    pub fn write(&self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        let text = serde_json::to_vec(self).map_err(|_| Errno::INVAL)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, MANIFEST, flags, Mode::RUSR | Mode::WUSR)?;
        std::io::Write::write_all(&mut std::fs::File::from(file), &text)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// Which tree is the project itself, and not the repository of a linked worktree or a directory that was added.
    pub fn project(&self) -> Option<usize> {
        self.trees.iter().position(|tree| tree.in_transaction && !tree.is_repository)
    }

    pub(crate) fn read(directory: BorrowedFd<'_>) -> Result<Option<Self>, Errno> {
        let manifest: Option<Manifest> = journal::read(directory, MANIFEST)?;
        match manifest {
            Some(manifest) if manifest.version != VERSION => Err(Errno::PROTONOSUPPORT),
            other => Ok(other),
        }
    }
}

pub(crate) fn boot() -> Result<String, Errno> {
    let mut text = String::new();
    std::fs::File::open(BOOT_ID)
        .and_then(|file| file.take(64).read_to_string(&mut text))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(text.trim().to_owned())
}

/// Says that a session has ended and what it wrote is on the disk, or that it is lost. `None` where there is no transaction.
pub fn seal(directory: BorrowedFd<'_>) -> Result<Option<State>, Errno> {
    let Some(manifest) = Manifest::read(directory)? else { return Ok(None) };
    let state = State::read(directory)?;
    if state != State::Open {
        return Ok(Some(state));
    }
    let event = if manifest.boot == boot()? { Event::Seal } else { Event::Lose };
    let next = state.after(event).ok_or(Errno::INVAL)?;
    if event == Event::Seal {
        staging::sync_file_system(directory)?;
    }
    next.write(directory)?;
    Ok(Some(next))
}

/// Why a transaction cannot be worked on.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("there is no such transaction")]
    Missing,
    #[error("another process works on it")]
    Locked,
    #[error("{} is not the directory that the session began with", path.display())]
    OtherDirectory { path: PathBuf },
    #[error("{} cannot be opened", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        errno: Errno,
    },
    #[error("its records cannot be read")]
    Records(#[source] Errno),
    #[error("a part of it was committed already")]
    Committed,
    #[error("it is {}", state.name())]
    State { state: State },
    #[error("an undo was interrupted in the middle, and what was there before is not there again yet")]
    HalfPutBack,
    #[error("a commit that was interrupted cannot be finished")]
    Recover(#[source] CommitError),
}

/// What is taken of one tree. What belongs to a choice comes with it, where that is allowed; else neither is taken.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    pub chosen: HashSet<PathBuf>,
    pub allowed: HashSet<PathBuf>,
}

/// A transaction of which this process has the lock, until it is dropped.
#[derive(Debug)]
pub struct Transaction {
    directory: OwnedFd,
    pub manifest: Manifest,
    state: State,
    trees: Vec<Tree>,
    hidden: Hidden,
}

impl Transaction {
    /// Finishes a commit that was interrupted, first of all.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let (directory, _) = locked(path)?;
        if is_half_put_back(directory.as_fd()).map_err(OpenError::Records)? {
            return Err(OpenError::HalfPutBack);
        }
        let transaction = Transaction::read(directory)?;
        transaction.recovered()
    }

    /// To look at only, also while its session runs: nothing is locked and nothing is finished.
    pub fn look(path: &Path) -> Result<Self, OpenError> {
        let directory = beneath::root(path).map_err(|_| OpenError::Missing)?;
        Transaction::read(directory)
    }

    fn read(directory: OwnedFd) -> Result<Self, OpenError> {
        let manifest = Manifest::read(directory.as_fd()).map_err(OpenError::Records)?.ok_or(OpenError::Missing)?;
        let state = State::read(directory.as_fd()).map_err(OpenError::Records)?;
        let is_same_boot = boot().is_ok_and(|boot| boot == manifest.boot);
        let open = |record| open_tree(directory.as_fd(), record, is_same_boot);
        let trees = manifest.trees.iter().map(open).collect::<Result<_, _>>()?;
        // In a copy a masked name can be renamed, with what lies around it.
        let masked = manifest.masked.iter().filter(|_| manifest.trees.iter().any(|tree| tree.is_copy));
        let hidden = Hidden::new(&manifest.hidden.iter().chain(masked).cloned().collect::<Vec<_>>());
        Ok(Transaction { directory, manifest, state, trees, hidden })
    }

    fn recovered(mut self) -> Result<Self, OpenError> {
        if self.state == State::Committing || has_journal(self.directory.as_fd()) {
            let place = Place { directory: self.directory.as_fd(), trees: &self.trees };
            place.recover(&mut || Ok(())).map_err(OpenError::Recover)?;
            self.settle().map_err(OpenError::Records)?;
        }
        Ok(self)
    }

    pub fn has_checkpoints(&self) -> bool {
        has_checkpoints(self.directory.as_fd())
    }

    pub fn state(&self) -> State {
        self.state
    }

    pub fn id(&self) -> &str {
        &self.manifest.session
    }

    /// What differs in each tree.
    pub fn changes(&self) -> Result<Vec<Changes>, Errno> {
        let mounted: Vec<Time> = self.manifest.trees.iter().map(|tree| tree.mounted).collect();
        let earlier = commit::earlier(self.directory.as_fd(), &mounted)?;
        let mut all = Vec::new();
        for ((tree, record), earlier) in self.trees.iter().zip(&self.manifest.trees).zip(&earlier) {
            let hidden = |path: &Path| self.hidden.is_hidden(&record.lower.join(path));
            let copied = record.is_copy.then(|| self.copied(record)).transpose()?;
            let walk = Walk::new(record.mounted, &hidden, earlier).of_copy(copied.as_ref());
            let mut found = walk.all(tree.upper.as_fd(), tree.lower.as_fd())?;
            found.changes.retain(|change| change.what != What::Modified || !is_refreshed(tree, &change.path));
            let is_lock =
                |change: &mut Change| change.what == What::Added && units::is_lock(&change.path, record.is_repository);
            let locks: Vec<Change> = found.changes.extract_if(.., is_lock).collect();
            found.skipped.extend(locks.into_iter().map(|lock| Skipped { path: lock.path, why: Why::Lock }));
            let is_touched =
                |change: &Change| change.conflict == Some(Conflict::Changed) && units::is_named_index(&change.path);
            if found.changes.iter().any(is_touched)
                && record.index.is_some()
                && index_in(tree.lower.as_fd()) == record.index
            {
                // A `git status` of the host has read it again, and changed nothing that counts.
                let is_of_git = |path: &Path| path == Path::new(INDEX) || record.is_repository && is_index(path);
                let indexes = found.changes.iter_mut().filter(|change| is_touched(change) && is_of_git(&change.path));
                indexes.for_each(|index| index.conflict = None);
            }
            if let Some(list) = changed_refs(tree, record, earlier)? {
                units::hold_listed(&mut found.changes, &list, record.is_repository);
            }
            units::carry_conflicts(&mut found.changes, record.is_repository);
            all.push(found);
        }
        Ok(all)
    }

    fn copied(&self, record: &TreeRecord) -> Result<Copied, Errno> {
        let slot = beneath::directory(self.directory.as_fd(), Path::new(&record.slot.to_string()))?;
        Copied::read(slot.as_fd())
    }

    /// The content of a changed file, before and after.
    pub fn contents(&self, tree: usize, path: &Path, most: u64) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let Some(tree) = self.trees.get(tree) else { return (None, None) };
        (read(tree.lower.as_fd(), path, most), read_layer(tree.upper.as_fd(), path, most))
    }

    /// What files of the project held when the session began, where that is known.
    pub fn beginnings(&self) -> Beginnings {
        Beginnings::read(self.directory.as_fd())
    }

    /// A changed file as the session left it, and its size.
    pub fn changed_file(&self, tree: usize, path: &Path) -> Option<(std::fs::File, u64)> {
        let (parent, name) = beneath::parent(self.trees.get(tree)?.upper.as_fd(), path).ok()?;
        let file = beneath::file(parent.as_fd(), name).ok()?;
        let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some((file, metadata.len()))
    }

    /// Takes over what was chosen of the changes that were looked at.
    pub fn commit(&mut self, changes: &[Changes], choices: Vec<Choice>) -> Result<Committed, CommitError> {
        self.commit_parts(changes, choices, &[])
    }

    /// The same, where some of the chosen files of each tree get other content than the session's: the host's with some hunks, or a
    /// merge.
    pub fn commit_parts(
        &mut self,
        changes: &[Changes],
        choices: Vec<Choice>,
        parts: &[Parts],
    ) -> Result<Committed, CommitError> {
        let committed = self.commit_with(changes, choices, parts, &mut || Ok(()));
        self.ended(committed)
    }

    /// Takes the last commit back, where the host still has what it put there; what it put there waits again.
    pub fn undo_commit(&mut self) -> Result<Committed, CommitError> {
        let undone = self.undo_commit_with(&mut || Ok(()));
        self.ended(undone)
    }

    /// What a person has left out, where an agent can read it: beside the layers, and in the git directory of the project, which later
    /// sessions see. Gives the places. What a session left under these names goes, whatever it is.
    pub fn write_rejected(&self, text: &[u8]) -> Result<Vec<PathBuf>, Errno> {
        let mut places = Vec::new();
        let next = format!("{REJECTED}.next");
        let mut write = |directory: &OwnedFd| -> Result<(), Errno> {
            stages::remove_any(directory.as_fd(), next.as_ref())?;
            stages::remove_any(directory.as_fd(), REJECTED.as_ref())?;
            write_durably(directory.as_fd(), &next, REJECTED, text)?;
            let path = rustix::fs::readlink(beneath::itself(directory), Vec::new())?;
            places.push(PathBuf::from(std::ffi::OsString::from_vec(path.into_bytes())).join(REJECTED));
            Ok(())
        };
        write(&self.directory)?;
        for (tree, record) in self.trees.iter().zip(&self.manifest.trees).filter(|(_, record)| record.in_transaction) {
            let inside = Path::new(if record.is_repository { "" } else { ".git" });
            if let Ok(repository) = beneath::directory(tree.lower.as_fd(), inside) {
                write(&repository)?;
            }
        }
        Ok(places)
    }

    /// Remembers names that a person left out: they are taken by their names alone.
    pub fn leave_out(&self, names: &[(usize, PathBuf)]) -> Result<(), Errno> {
        let LeftOut(mut all) = self.left_out()?;
        all.extend(names.iter().cloned());
        let all: Vec<LeftOutName> = all.into_iter().map(|(tree, path)| LeftOutName { tree, path }).collect();
        journal::write(self.directory.as_fd(), LEFT_OUT, &all)
    }

    /// What was left out so far, of what may be gone by now.
    pub fn left_out(&self) -> Result<LeftOut, Errno> {
        let all: Option<Vec<LeftOutName>> = journal::read(self.directory.as_fd(), LEFT_OUT)?;
        Ok(LeftOut(all.unwrap_or_default().into_iter().map(|one| (one.tree, one.path)).collect()))
    }

    fn undo_commit_with(&mut self, between: commit::Between<'_>) -> Result<Committed, CommitError> {
        let number = undo::last(self.directory.as_fd()).map_err(CommitError::Journal)?;
        let number = number.ok_or(CommitError::NothingToUndo)?;
        self.go(Event::Undo).and_then(|()| self.go(Event::Commit)).map_err(CommitError::Journal)?;
        let is_repository: Vec<bool> = self.manifest.trees.iter().map(|tree| tree.is_repository).collect();
        let place = Place { directory: self.directory.as_fd(), trees: &self.trees };
        place.undo(number, &is_repository, between)
    }

    fn ended(&mut self, committed: Result<Committed, CommitError>) -> Result<Committed, CommitError> {
        if committed.is_err() && !has_journal(self.directory.as_fd()) {
            // Nothing was done: what was staged goes, and everything is as before.
            let place = Place { directory: self.directory.as_fd(), trees: &self.trees };
            best_effort(
                place.recover(&mut || Ok(())).map_err(|_| Errno::IO),
                "the next process that opens it does it too",
            );
        }
        if !has_journal(self.directory.as_fd()) {
            self.settle().map_err(CommitError::Journal)?;
        }
        committed
    }

    fn commit_with(
        &mut self,
        changes: &[Changes],
        choices: Vec<Choice>,
        parts: &[Parts],
        between: commit::Between<'_>,
    ) -> Result<Committed, CommitError> {
        if let Some(cut) = changes.iter().position(|changes| changes.is_cut) {
            return Err(CommitError::TooMany { path: self.manifest.trees[cut].lower.clone() });
        }
        let mut all = Vec::new();
        for (tree, (found, Choice { mut chosen, allowed })) in changes.iter().zip(choices).enumerate() {
            let is_repository = self.manifest.trees[tree].is_repository;
            operations::complete(&found.changes, &mut chosen, &allowed, is_repository);
            all.extend(operations::operations(tree, &found.changes, &chosen, is_repository));
        }
        mark_parts(&mut all, changes, parts)?;
        if all.is_empty() {
            return Ok(Committed::default());
        }
        self.go(Event::Review).and_then(|()| self.go(Event::Commit)).map_err(CommitError::Journal)?;
        let numbers = numbers(self.directory.as_fd()).map_err(CommitError::Journal)?;
        let number = numbers.last().map_or(0, |last| last + 1);
        let place = Place { directory: self.directory.as_fd(), trees: &self.trees };
        place.commit(number, all, parts, between)
    }

    /// After a commit: something is left, or nothing.
    fn settle(&mut self) -> Result<(), Errno> {
        if self.state != State::Committing {
            return Ok(());
        }
        if !numbers(self.directory.as_fd())?.is_empty() {
            // What is the host's now cannot be put back in the layer alone.
            let removed = stages::remove(self.directory.as_fd(), CHECKPOINTS);
            best_effort(removed, "what is left of them is removed with the transaction");
        }
        let is_empty = self.changes()?.iter().all(Changes::is_without_work);
        self.go(if is_empty { Event::Complete } else { Event::Leave })
    }

    fn go(&mut self, event: Event) -> Result<(), Errno> {
        let next = self.state.after(event).ok_or(Errno::INVAL)?;
        next.write(self.directory.as_fd())?;
        self.state = next;
        Ok(())
    }
}

/// Only a file that stays a file can hold something else.
fn mark_parts(operations: &mut [Operation], changes: &[Changes], parts: &[Parts]) -> Result<(), CommitError> {
    for (tree, (path, part)) in parts.iter().enumerate().flat_map(|(tree, all)| all.iter().map(move |one| (tree, one)))
    {
        let is_file = |change: &&Change| change.what == What::Modified && change.kind() == Kind::File;
        let change = changes.get(tree).and_then(|found| found.changes.iter().find(|change| change.path == *path));
        let change = change.filter(is_file).ok_or_else(|| CommitError::NoPart { path: path.clone() })?;
        if let Some(one) = operations.iter_mut().find(|one| one.tree == tree && one.path == *path) {
            one.is_part = true;
            one.is_whole = part.is_whole;
            one.part_mode = change.after.as_ref().map(|after| after.mode).filter(|_| part.takes_mode);
        }
    }
    Ok(())
}

/// The directory of a transaction that no other process works on, for as long as it is open, and where it stands.
pub(crate) fn locked(path: &Path) -> Result<(OwnedFd, State), OpenError> {
    let directory = beneath::root(path).map_err(|_| OpenError::Missing)?;
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Err(OpenError::Locked),
        other => other.map_err(OpenError::Records)?,
    }
    // Left by a session that was killed: no process of it is left, or its supervisor would have the lock.
    let state = seal(directory.as_fd()).map_err(OpenError::Records)?.ok_or(OpenError::Missing)?;
    Ok((directory, state))
}

/// When the last commit was made that can be taken back.
pub fn last_commit(path: &Path) -> Option<std::time::SystemTime> {
    let directory = beneath::root(path).ok()?;
    let number = undo::last(directory.as_fd()).ok()??;
    path.join(stages::own_stage(number)).join(journal::DONE).symlink_metadata().ok()?.modified().ok()
}

/// Removes what a transaction that has ended has kept. `false` where something of it waits.
pub fn prune(path: &Path) -> Result<bool, OpenError> {
    let (directory, state) = locked(path)?;
    if !matches!(state, State::Committed | State::RolledBack) || has_journal(directory.as_fd()) {
        return Ok(false);
    }
    let name = path.file_name().and_then(|name| name.to_str()).ok_or(OpenError::Missing)?;
    let parent = beneath::root(path.parent().ok_or(OpenError::Missing)?).map_err(OpenError::Records)?;
    stages::remove(parent.as_fd(), name).map_err(OpenError::Records)?;
    Ok(true)
}

/// Gives everything up that was not committed. The host's trees stay as they are, and need not be there any more.
pub fn roll_back(path: &Path) -> Result<(), OpenError> {
    if has_journal(beneath::root(path).map_err(|_| OpenError::Missing)?.as_fd()) {
        // What was begun is finished first.
        drop(Transaction::open(path)?);
    }
    let (directory, sealed) = locked(path)?;
    if has_journal(directory.as_fd()) {
        // Another process has begun a commit since, and did not come to its end.
        return Err(OpenError::Locked);
    }
    let state = if sealed == State::Committing { State::Sealed } else { sealed };
    let next = state.after(Event::Drop).ok_or(OpenError::State { state })?;
    next.write(directory.as_fd()).map_err(OpenError::Records)?;
    let manifest = Manifest::read(directory.as_fd()).map_err(OpenError::Records)?.ok_or(OpenError::Missing)?;
    let has_commits = numbers(directory.as_fd()).is_ok_and(|numbers| !numbers.is_empty());
    if has_commits {
        // What a commit replaced is kept; only the layers go.
        for record in &manifest.trees {
            stages::remove(directory.as_fd(), record.slot.to_string()).map_err(OpenError::Records)?;
        }
        stages::remove(directory.as_fd(), beginnings::COPIES).map_err(OpenError::Records)?;
        let list = rustix::fs::unlinkat(&directory, beginnings::FILE, AtFlags::empty());
        best_effort(list, "without layers there is nothing to merge");
        return Ok(());
    }
    let name = path.file_name().and_then(|name| name.to_str()).ok_or(OpenError::Missing)?;
    let parent = beneath::root(path.parent().ok_or(OpenError::Missing)?).map_err(OpenError::Records)?;
    stages::remove(parent.as_fd(), name).map_err(OpenError::Records)
}

/// Transactions in a directory, oldest first, with their names: those that have no manifest are none.
pub fn list(directory: &Path) -> Vec<(String, Manifest, State)> {
    let Ok(opened) = beneath::root(directory) else { return Vec::new() };
    let names = beneath::names(opened.as_fd(), 1 << 16).unwrap_or_default();
    let one = |name: &std::ffi::OsString| {
        let directory = beneath::directory(opened.as_fd(), Path::new(name)).ok()?;
        let manifest = Manifest::read(directory.as_fd()).ok()??;
        Some((name.to_str()?.to_owned(), manifest, State::read(directory.as_fd()).ok()?))
    };
    names.iter().filter_map(one).collect()
}

/// Whether a step of a transaction can be put back.
pub fn has_checkpoints(directory: BorrowedFd<'_>) -> bool {
    let own = beneath::directory(directory, Path::new(CHECKPOINTS));
    let is_one = |name: &std::ffi::OsString| name.to_str().is_some_and(|name| name.parse::<usize>().is_ok());
    own.and_then(|own| beneath::names(own.as_fd(), 1 << 16)).is_ok_and(|names| names.iter().any(is_one))
}

/// The same for a directory that is not open.
pub fn has_checkpoints_at(path: &Path) -> bool {
    beneath::root(path).is_ok_and(|directory| has_checkpoints(directory.as_fd()))
}

fn has_journal(directory: BorrowedFd<'_>) -> bool {
    rustix::fs::statat(directory, JOURNAL, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// The directory that the session began with, and no other that has its name by now.
pub(crate) fn open_lower(record: &TreeRecord, is_same_boot: bool) -> Result<OwnedFd, OpenError> {
    let path = || record.lower.clone();
    let lower = beneath::root(&record.lower).map_err(|errno| OpenError::Directory { path: path(), errno })?;
    let stat = rustix::fs::fstat(&lower).map_err(|errno| OpenError::Directory { path: path(), errno })?;
    // The number of a device may be another one after a start of the machine.
    let is_other = stat.st_ino != record.inode || is_same_boot && stat.st_dev != record.device;
    if is_other { Err(OpenError::OtherDirectory { path: path() }) } else { Ok(lower) }
}

fn open_tree(directory: BorrowedFd<'_>, record: &TreeRecord, is_same_boot: bool) -> Result<Tree, OpenError> {
    let lower = open_lower(record, is_same_boot)?;
    let slot = beneath::directory(directory, Path::new(&record.slot.to_string())).map_err(OpenError::Records)?;
    // The workload may have closed it.
    let (upper, unclosed) = beneath::layer_directory(slot.as_fd(), "upper".as_ref()).map_err(OpenError::Records)?;
    Ok(Tree { mounted: record.mounted, lower, upper, _unclosed: unclosed })
}

/// The host's list of refs, where it has changed since the session began.
fn changed_refs(tree: &Tree, record: &TreeRecord, earlier: &Earlier) -> Result<Option<Vec<u8>>, Errno> {
    let path = Path::new(if record.is_repository { "packed-refs" } else { ".git/packed-refs" });
    let Ok((parent, name)) = beneath::parent(tree.lower.as_fd(), path) else { return Ok(None) };
    let Some(entry) = Entry::at(parent.as_fd(), name)? else { return Ok(None) };
    let is_by_us = earlier.directories.get(path) == Some(&entry.changed);
    if is_by_us || !record.mounted.is_before(entry.changed) {
        return Ok(None);
    }
    read(tree.lower.as_fd(), path, LARGEST_INDEX).map(Some).ok_or(Errno::FBIG)
}

/// An index of git that was only read again by a command like `git status`.
fn is_refreshed(tree: &Tree, path: &Path) -> bool {
    if !units::is_named_index(path) {
        return false;
    }
    let one = read(tree.lower.as_fd(), path, LARGEST_INDEX);
    let other = read_layer(tree.upper.as_fd(), path, LARGEST_INDEX);
    one.zip(other).is_some_and(|(one, other)| git_index::is_only_refreshed(&one, &other))
}

pub(crate) fn read(root: BorrowedFd<'_>, path: &Path, most: u64) -> Option<Vec<u8>> {
    let (parent, name) = beneath::parent(root, path).ok()?;
    bytes(beneath::file(parent.as_fd(), name).ok()?, most)
}

/// The same in an upper layer, where the workload may have closed what leads to it.
fn read_layer(root: BorrowedFd<'_>, path: &Path, most: u64) -> Option<Vec<u8>> {
    let (parent, name, _unclosed) = beneath::layer_parent(root, path).ok()?;
    bytes(beneath::layer_file(parent.as_fd(), name).ok()?, most)
}

fn bytes(file: std::fs::File, most: u64) -> Option<Vec<u8>> {
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

#[cfg(test)]
mod tests;
