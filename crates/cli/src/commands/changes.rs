//! `sandbox changes`, `diff`, `commit` and `rollback`: what sessions wrote in a transaction, and what becomes of it. Owns which
//! transaction is meant and which changes are taken; comparing and committing is `workspace`'s, the lines are `render::changes`'s.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cofferdam_host::HomeError;
use cofferdam_host::state::kept_in;
use cofferdam_supervisor::finish_killed;
use cofferdam_wire::session::short;
use cofferdam_workspace::{
    Change, Changes, Choice, CommitError, Committed, Conflict, LeftOut, Manifest, OpenError, State, Transaction,
    Unfinished, checkpoint, transaction, unfinished,
};
use rustix::io::Errno;
use serde_json::json;
use thiserror::Error;

use crate::args::changes::{ChangesArgs, CommitArgs, DiffArgs, RollbackArgs, WhichArgs};
use crate::commands::as_branch::{self, BranchError};
use crate::commands::interactive;
use crate::commands::kept_commits;
use crate::commands::merge::{self, Merged};
use crate::commands::selection::SelectionError;
use crate::commands::sessions::keeps_output;
use crate::confirm::is_confirmed;
use crate::environment::{has_terminal, own_state};
use crate::log::attempt;
use crate::pager::paged;
use crate::render::changes as lines;
use crate::render::exit::NOT_SO;
use crate::render::output::{escaped, print, print_json, say};
use crate::render::patch::{self, Reader};
use crate::session_name::{SessionKind, SessionNameError, choose};
use crate::waiting::{Classes, Found, all};

/// For the processes of a session to be gone after it has ended.
const LONGEST_END: Duration = Duration::from_secs(5);

/// Why changes were not shown, committed or dropped.
#[derive(Debug, Error)]
pub(crate) enum ChangesError {
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Name(#[from] SessionNameError),
    #[error("no changes of a session wait in {}{}", directory.display(), elsewhere(below.as_deref()))]
    Nothing { directory: PathBuf, below: Option<PathBuf> },
    #[error("the directory that this runs in cannot be told")]
    Here {
        #[source]
        source: std::io::Error,
    },
    #[error("nothing that waits is called {}", path.display())]
    Unmatched { path: PathBuf },
    #[error("the changes of {} sessions wait here: {}", sessions.len(), sessions.join(", "))]
    Several { sessions: Vec<String> },
    #[error("session {id} still runs")]
    Runs { id: String },
    #[error("session {id} has ended, and its output is kept: until that is read or thrown away its changes are closed")]
    KeepsOutput { id: String },
    #[error("cannot open the changes of session {id}")]
    Open {
        id: String,
        #[source]
        source: OpenError,
    },
    #[error("cannot read what session {id} wrote")]
    Read {
        id: String,
        #[source]
        source: Errno,
    },
    #[error("cannot commit the changes of session {id}")]
    Commit {
        id: String,
        #[source]
        source: CommitError,
    },
    #[error(
        "the changes of session {id} are lost: the machine went down before they were on the disk; the host's files are untouched"
    )]
    Lost { id: String },
    #[error("the host changed {name} while it was reviewed: nothing was committed")]
    Moved { name: String },
    #[error(
        "the last commit here is of session {id}, the rest of which was rolled back: it cannot be taken back; `sandbox commit --undo --session ID` takes back that of another session"
    )]
    RolledBack { id: String },
    #[error("session {id} works in a copy of the project (`transaction_mode`), which has no checkpoints")]
    OfCopy { id: String },
    #[error("session {id} does not run any more: a checkpoint is taken while it does")]
    NotRunning { id: String },
    #[error("session {id}: {why}")]
    Session { id: String, why: String },
    #[error("there {} to take back before the beginning of the session", if *steps == 1 { "is no step".to_owned() } else { format!("are no {steps} steps") })]
    NoStep { steps: usize },
    #[error("there is no checkpoint {number}")]
    NoCheckpoint { number: usize },
    #[error("nothing was committed to {} that could be taken back", directory.display())]
    NothingToUndo { directory: PathBuf },
    #[error("cannot make the branch {branch}")]
    Branch {
        branch: String,
        #[source]
        source: BranchError,
    },
    #[error("an archive is not for a terminal")]
    Terminal,
    #[error("this needs the screen of a terminal")]
    NoScreen {
        #[source]
        source: std::io::Error,
    },
    #[error("session {id} does not run any more: what it changed changes no more")]
    NotLive { id: String },
    #[error("this runs in a session: what it changes is looked at, committed and taken back outside of it")]
    Inside,
    #[error("{} exists already", path.display())]
    Exists { path: PathBuf },
    #[error("there is no terminal to ask at, and no answer on stdin")]
    NoAnswers,
    #[error("what was changed cannot be written")]
    Write {
        #[source]
        source: std::io::Error,
    },
    #[error("{} is in none of the session's directories", path.display())]
    Outside { path: PathBuf },
    #[error("{} leads out of the project", path.display())]
    LeavesTree { path: PathBuf },
}

impl ChangesError {
    pub(crate) fn of_selection(id: &str, error: SelectionError) -> Self {
        let id = id.to_owned();
        match error {
            SelectionError::Note(source) | SelectionError::Read(source) => ChangesError::Read { id, source },
            SelectionError::Moved { name } => ChangesError::Moved { name },
            SelectionError::Commit(source) => ChangesError::Commit { id, source },
        }
    }
}

fn elsewhere(below: Option<&Path>) -> String {
    below.map_or_else(String::new, |below| format!(" itself; some do in {}", below.display()))
}

/// What a killed process left half done comes to its end before anything else is done in these directories.
pub(crate) fn finish_interrupted(state: &Path) {
    for one in unfinished(&kept_in(state)) {
        let (path, ended) = match &one {
            Unfinished::Commit(path) => (path, Transaction::open(path).map(|it| Some(lines::finished_commit(it.id())))),
            // Nothing where the session has gone on since, which was told then.
            Unfinished::PutBack(path) => {
                (path, checkpoint::take_back(path).map(|note| Some(lines::put_back(path, note?.to))))
            }
        };
        match ended {
            Ok(Some(line)) => say!("sandbox: {line}"),
            Ok(None) | Err(OpenError::Locked) => {}
            Err(error) => say!("sandbox: {}: {error}", path.display()),
        }
    }
}

pub(crate) fn changes(args: &ChangesArgs) -> Result<ExitCode, ChangesError> {
    if let Some(days) = args.prune {
        return prune(days);
    }
    let mut found = all(&own_state()?);
    found.retain(|one| args.all || one.state.waits());
    let counted: Vec<Option<Vec<Changes>>> =
        found.iter().map(|one| Transaction::look(&one.path).ok()?.changes().ok()).collect();
    if args.json {
        let listed: Vec<_> =
            found.iter().zip(&counted).map(|(one, changes)| lines::listed(one, changes.as_deref())).collect();
        return Ok(print_json(&json!({ "transactions": listed })));
    }
    Ok(print(&lines::table(&found, &counted, args.all)))
}

/// What waits is never removed.
fn prune(days: u64) -> Result<ExitCode, ChangesError> {
    let oldest = Duration::from_hours(24).saturating_mul(u32::try_from(days).unwrap_or(u32::MAX));
    let is_old = |one: &Found| {
        let ended = one.path.join("state").symlink_metadata().and_then(|state| state.modified());
        ended.is_ok_and(|ended| ended.elapsed().is_ok_and(|since| since >= oldest))
    };
    let mut removed = 0;
    for one in all(&own_state()?).iter().filter(|one| !one.state.waits() && is_old(one)) {
        match transaction::prune(&one.path) {
            Ok(was_removed) => removed += usize::from(was_removed),
            Err(error) => say!("sandbox: {}: {error}", one.path.display()),
        }
    }
    Ok(print(&lines::pruned(removed)))
}

/// Sessions see nothing of their own records.
fn is_inside() -> bool {
    std::env::var_os("COFFERDAM").is_some()
}

/// Before something of a session is taken that was ended for what it tried.
pub(crate) fn warn_of_attempt(session: &str) {
    let Some(tried) = own_state().ok().and_then(|state| attempt(&state, session).ok().flatten()) else { return };
    say!(
        "sandbox: session {} was ended for an attempt to escape ({}): read what it changed before you use it; `sandbox commit --undo` takes a commit back",
        short(session),
        escaped(&tried)
    );
}

/// The transaction that is meant: by its session's name, or the one that waits in this directory.
pub(crate) fn meant(which: &WhichArgs) -> Result<Found, ChangesError> {
    let mut found = all(&own_state()?);
    found.retain(|one| one.state.waits());
    meant_of(found, which)
}

/// To be looked at or taken: one of which nothing is left is not meant beside another. What is dropped or put back is named.
fn meant_to_take(which: &WhichArgs) -> Result<Found, ChangesError> {
    match meant(which) {
        Err(ChangesError::Several { .. }) => {
            let found = all(&own_state()?).into_iter().filter(|one| one.state.waits() && !is_undone(one)).collect();
            match meant_of(found, which) {
                Err(ChangesError::Nothing { .. }) => meant(which),
                other => other,
            }
        }
        other => other,
    }
}

fn meant_of(mut found: Vec<Found>, which: &WhichArgs) -> Result<Found, ChangesError> {
    let here = std::env::current_dir().map_err(|source| ChangesError::Here { source })?;
    let is_here = |one: &Found| one.manifest.trees.iter().any(|tree| here.starts_with(&tree.lower));
    if let Some(name) = &which.session {
        if name == "last" {
            // The newest of this directory: another project's is not meant.
            found.retain(is_here);
        }
        let names: Vec<&str> = found.iter().map(|one| one.manifest.session.as_str()).collect();
        let id = choose(&names, name, SessionKind::Waiting)?.to_owned();
        let one = found.into_iter().find(|one| one.manifest.session == id);
        return one.ok_or(ChangesError::Nothing { directory: here, below: None });
    }
    let below = found.iter().find(|one| one.manifest.trees.iter().any(|tree| tree.lower.starts_with(&here)));
    let below = below.map(|one| one.manifest.trees[0].lower.clone());
    found.retain(is_here);
    match found.len() {
        0 if is_inside() => Err(ChangesError::Inside),
        0 => Err(ChangesError::Nothing { directory: here, below }),
        1 => Ok(found.remove(0)),
        _ => {
            let sessions = found.iter().map(|one| short(&one.manifest.session).to_owned()).collect();
            Err(ChangesError::Several { sessions })
        }
    }
}

/// Whether a session has ended and all of its changes were taken back.
fn is_undone(found: &Found) -> bool {
    let changes = || Transaction::look(&found.path).ok()?.changes().ok();
    !matches!(found.state, State::Open | State::Lost)
        && changes().is_some_and(|trees| trees.iter().all(Changes::is_without_work))
}

/// Another process has it: most often its session.
pub(crate) fn in_use(id: String) -> ChangesError {
    if keeps_output(&id) { ChangesError::KeepsOutput { id } } else { ChangesError::Runs { id } }
}

/// What waits of what was named, to look at.
pub(crate) fn looked_at(which: &WhichArgs, paths: &[PathBuf]) -> Result<(Transaction, Vec<Changes>), ChangesError> {
    let found = meant_to_take(which)?;
    let id = || found.manifest.session.clone();
    let transaction = Transaction::look(&found.path).map_err(|source| ChangesError::Open { id: id(), source })?;
    let mut changes = transaction.changes().map_err(|source| ChangesError::Read { id: id(), source })?;
    let wanted = Wanted::new(paths, &transaction.manifest, &changes)?;
    for (tree, found) in changes.iter_mut().enumerate() {
        found.changes.retain(|change| wanted.is_wanted(tree, &change.path));
    }
    Ok((transaction, changes))
}

pub(crate) fn diff(args: &DiffArgs) -> Result<ExitCode, ChangesError> {
    let (transaction, changes) = looked_at(&args.which, &args.paths)?;
    if args.json {
        return Ok(print_json(&lines::json(&transaction, &changes)));
    }
    if args.stat {
        return Ok(print(&lines::stat(&transaction, &changes)));
    }
    // What a file holds must not move the cursor of the person who reads it; a program gets the bytes.
    let reader = Reader::of_stdout();
    let missing = paged(|out| patch::write(&transaction, &changes, reader, out))
        .map_err(|source| ChangesError::Write { source })?;
    for line in missing.lines() {
        say!("sandbox: {line}");
    }
    Ok(if missing.is_none() { ExitCode::SUCCESS } else { ExitCode::from(NOT_SO) })
}

pub(crate) fn commit(args: &CommitArgs) -> Result<ExitCode, ChangesError> {
    if args.undo {
        return undo_commit(&last_committed(&args.which)?, args.json);
    }
    let mut transaction = open(&args.which)?;
    let id = transaction.id().to_owned();
    let changes = transaction.changes().map_err(|source| ChangesError::Read { id: id.clone(), source })?;
    let wanted = Wanted::new(&args.paths, &transaction.manifest, &changes)?;
    warn_of_attempt(&id);
    let all =
        changes.iter().enumerate().flat_map(|(tree, found)| found.changes.iter().map(move |change| (tree, change)));
    let asked: Vec<(usize, &Change)> = all.filter(|(tree, change)| wanted.is_wanted(*tree, &change.path)).collect();
    // What a person left out in a review is taken by its name, or by another review.
    let is_by_name = args.interactive || !args.paths.is_empty();
    let left_out = if is_by_name { Ok(LeftOut::default()) } else { transaction.left_out() };
    let left_out = left_out.map_err(|source| ChangesError::Read { id: id.clone(), source })?;
    let is_left_out = |tree: usize, change: &Change| left_out.covers(tree, &change.path);
    let (waits, asked): (Vec<_>, Vec<_>) = asked.into_iter().partition(|(tree, change)| is_left_out(*tree, change));
    if !waits.is_empty() {
        say!(
            "sandbox: {} that you left out in a review wait: `sandbox commit` takes them by their names",
            lines::names(waits.len())
        );
    }
    if let Some((_, change)) = asked.iter().find(|(_, change)| args.strict && change.leaves_tree()) {
        return Err(ChangesError::LeavesTree { path: change.path.clone() });
    }
    if let Some(branch) = &args.as_branch {
        let made = as_branch::commit(&transaction, &asked, branch, args.opens);
        return made.map_err(|source| ChangesError::Branch { branch: branch.clone(), source });
    }
    if args.interactive {
        return interactive::commit(transaction, &changes, &asked);
    }
    let classes = Classes::of(&transaction);
    let merged = if args.merge { merge::merge(&transaction, &asked) } else { Merged::default() };
    let may = |tree: usize, change: &Change| {
        let is_free = match change.conflict {
            None => true,
            // Both sides' commits are kept, on branches.
            Some(Conflict::Held | Conflict::Repository) => false,
            Some(_) => args.overwrite || merged.has(tree, &change.path),
        };
        is_free && (args.opens || !classes.is_opened(tree, change))
    };
    let is_chosen = |tree: usize, change: &Change| wanted.is_wanted(tree, &change.path) && !is_left_out(tree, change);
    let chosen = choices(&changes, may, is_chosen);
    let opened: Vec<(usize, &Change)> =
        asked.iter().filter(|(tree, change)| classes.is_opened(*tree, change)).copied().collect();
    drop(classes);
    let committed = transaction
        .commit_parts(&changes, chosen, &merged.parts)
        .map_err(|source| ChangesError::Commit { id: id.clone(), source })?;
    let taken: HashSet<(usize, &Path)> = committed.taken.iter().map(|(tree, path)| (*tree, path.as_path())).collect();
    let waiting = asked.iter().filter(|(tree, change)| !taken.contains(&(*tree, change.path.as_path())));
    let waiting: Vec<(usize, &Change)> = waiting.copied().collect();
    if args.json {
        print_json(&lines::committed_json(&transaction, &committed, &waiting));
    } else {
        print(&lines::committed(&transaction, &committed, &waiting));
    }
    let both = taken.iter().filter(|(tree, path)| merged.has(*tree, path));
    let both = both.map(|(_, path)| format!("{}: your version and the session's are merged", lines::name(path)));
    let opened = opened.iter().filter(|(tree, change)| !taken.contains(&(*tree, change.path.as_path())));
    let held = kept_commits::held(&transaction, opened.map(|(tree, change)| (*tree, change.path.as_path())));
    let kept = kept_commits::keep(&transaction, &asked);
    for line in both.chain(merged.lines.iter().cloned()).chain(kept).chain(held) {
        say!("sandbox: {line}");
    }
    let is_done = waiting.is_empty() && waits.is_empty();
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::from(NOT_SO) })
}

/// The transaction with the last commit to this directory.
pub(crate) fn last_committed(which: &WhichArgs) -> Result<Found, ChangesError> {
    let here = std::env::current_dir().map_err(|source| ChangesError::Here { source })?;
    let found = all(&own_state()?).into_iter().filter(|one| match which.session.as_deref() {
        Some(name) if name != "last" => name.len() >= 6 && one.manifest.session.contains(name),
        _ => one.manifest.trees.iter().any(|tree| here.starts_with(&tree.lower)),
    });
    let last = found.filter_map(|one| Some((transaction::last_commit(&one.path)?, one))).max_by_key(|(at, _)| *at);
    let (_, found) = last.ok_or(ChangesError::NothingToUndo { directory: here })?;
    // What it replaced is gone with the rest.
    if found.state == State::RolledBack {
        return Err(ChangesError::RolledBack { id: found.manifest.session });
    }
    Ok(found)
}

/// Takes that commit back.
pub(crate) fn undo_commit(found: &Found, json: bool) -> Result<ExitCode, ChangesError> {
    let id = found.manifest.session.clone();
    let mut transaction = match Transaction::open(&found.path) {
        Err(OpenError::Locked) => return Err(in_use(id)),
        other => other.map_err(|source| ChangesError::Open { id: id.clone(), source })?,
    };
    let undone = transaction.undo_commit().map_err(|source| ChangesError::Commit { id, source })?;
    if json {
        print_json(&lines::undone_json(&transaction, &undone));
    } else {
        print(&lines::undone(&transaction, &undone, &found.path));
    }
    Ok(if undone.left.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NOT_SO) })
}

pub(crate) fn rollback(args: &RollbackArgs) -> Result<ExitCode, ChangesError> {
    let can_ask = has_terminal() && !args.yes;
    if args.preview || can_ask {
        let found = meant(&args.which)?;
        // What is lost, or whose directory is gone, can be dropped unseen.
        let waits =
            Transaction::look(&found.path).ok().and_then(|one| one.changes().ok().map(|changes| (one, changes)));
        print(&lines::would_drop(&found.manifest, waits.as_ref().map(|(one, changes)| (one, changes.as_slice()))));
        if transaction::last_commit(&found.path).is_some() {
            print("what was committed of it stays, and `sandbox commit --undo` cannot take that back any more\n");
        }
        if args.preview {
            return Ok(ExitCode::SUCCESS);
        }
        if !is_confirmed("drop this?") {
            print("nothing was dropped\n");
            return Ok(ExitCode::from(NOT_SO));
        }
        return drop_all(&WhichArgs { session: Some(found.manifest.session) });
    }
    drop_all(&args.which)
}

/// Without a question.
pub(crate) fn drop_all(which: &WhichArgs) -> Result<ExitCode, ChangesError> {
    let found = finished(meant(which)?)?;
    let id = found.manifest.session.clone();
    match transaction::roll_back(&found.path) {
        Err(OpenError::Locked) => return Err(in_use(id)),
        done => done.map_err(|source| ChangesError::Open { id: id.clone(), source })?,
    }
    Ok(print(&lines::rolled_back(&found.manifest)))
}

/// The same after what killed sessions left was finished: their changes lie elsewhere then.
fn finished(found: Found) -> Result<Found, ChangesError> {
    if found.state != State::Open {
        return Ok(found);
    }
    let state = own_state()?;
    finish_killed(&state);
    // What a killed session was about to put back is among what it left.
    finish_interrupted(&state);
    meant(&WhichArgs { session: Some(found.manifest.session.clone()) })
}

/// For changing something: it waits, no other process has it, and nothing of it is lost.
pub(crate) fn open(which: &WhichArgs) -> Result<Transaction, ChangesError> {
    let found = finished(meant_to_take(which)?)?;
    let id = found.manifest.session.clone();
    match Transaction::open(&found.path) {
        Err(OpenError::Locked) => Err(in_use(id)),
        Err(source) => Err(ChangesError::Open { id, source }),
        Ok(transaction) if transaction.state() == State::Lost => Err(ChangesError::Lost { id }),
        Ok(transaction) => Ok(transaction),
    }
}

/// At the end of a session that is to be applied without a question: everything but what needs one.
pub(crate) fn apply_auto(path: &Path) -> Result<(Committed, Vec<Changes>), ChangesError> {
    let id = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let opened = once_free(|| Transaction::open(path));
    let mut transaction = opened.map_err(|source| ChangesError::Open { id: id.clone(), source })?;
    let read = |source| ChangesError::Read { id: id.clone(), source };
    let changes = transaction.changes().map_err(read)?;
    let classes = Classes::of(&transaction);
    let may = |tree: usize, change: &Change| change.conflict.is_none() && !classes.is_opened(tree, change);
    // An overlay that was asked for by itself waits.
    let chosen = choices(&changes, may, |tree, _| transaction.manifest.trees[tree].in_transaction);
    drop(classes);
    let committed =
        transaction.commit(&changes, chosen).map_err(|source| ChangesError::Commit { id: id.clone(), source })?;
    let all = changes.iter().enumerate().flat_map(|(tree, found)| found.changes.iter().map(move |one| (tree, one)));
    for line in kept_commits::keep(&transaction, &all.collect::<Vec<_>>()) {
        say!("sandbox: {line}");
    }
    let left = transaction.changes().map_err(read)?;
    Ok((committed, left))
}

/// At the end of a session its last process may still be going, and hold the lock for a moment.
fn once_free<T>(mut work: impl FnMut() -> Result<T, OpenError>) -> Result<T, OpenError> {
    let until = Instant::now() + LONGEST_END;
    loop {
        match work() {
            Err(OpenError::Locked) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            other => return other,
        }
    }
}

/// At the end of a session in which nothing was changed that could be taken over.
pub(crate) fn close(path: &Path) {
    if let Err(error) = once_free(|| transaction::roll_back(path)) {
        say!("sandbox: {}: {error}", path.display());
    }
}

fn choices(
    changes: &[Changes],
    may: impl Fn(usize, &Change) -> bool,
    is_wanted: impl Fn(usize, &Change) -> bool,
) -> Vec<Choice> {
    let of = |(tree, found): (usize, &Changes)| {
        let allowed: Vec<&Change> = found.changes.iter().filter(|change| may(tree, change)).collect();
        let chosen =
            allowed.iter().filter(|change| is_wanted(tree, change)).map(|change| change.path.clone()).collect();
        Choice { chosen, allowed: allowed.into_iter().map(|change| change.path.clone()).collect() }
    };
    changes.iter().enumerate().map(of).collect()
}

/// The paths that a person named, by tree; all where none was named.
pub(crate) struct Wanted(Option<Vec<(usize, PathBuf)>>);

impl Wanted {
    pub(crate) fn new(paths: &[PathBuf], manifest: &Manifest, changes: &[Changes]) -> Result<Self, ChangesError> {
        if paths.is_empty() {
            return Ok(Wanted(None));
        }
        let here = std::env::current_dir().map_err(|source| ChangesError::Here { source })?;
        let mut wanted = Vec::new();
        for path in paths {
            let whole = plain(&here.join(path));
            // Links on the way to it lead where they lead on the host; the name itself may be gone.
            let parent = whole.parent().and_then(|parent| parent.canonicalize().ok());
            let whole = parent.zip(whole.file_name()).map_or(whole.clone(), |(parent, name)| parent.join(name));
            let before = wanted.len();
            for (tree, record) in manifest.trees.iter().enumerate() {
                if let Ok(relative) = whole.strip_prefix(&record.lower) {
                    wanted.push((tree, relative.to_path_buf()));
                } else if record.lower.starts_with(&whole) {
                    wanted.push((tree, PathBuf::new()));
                }
            }
            if wanted.len() == before {
                return Err(ChangesError::Outside { path: path.clone() });
            }
            let is_there = |(tree, above): &(usize, PathBuf)| {
                let names = changes[*tree].changes.iter().map(|change| &change.path);
                names
                    .chain(changes[*tree].skipped.iter().map(|skipped| &skipped.path))
                    .any(|path| path.starts_with(above))
            };
            if !wanted[before..].iter().any(is_there) {
                return Err(ChangesError::Unmatched { path: path.clone() });
            }
        }
        Ok(Wanted(Some(wanted)))
    }

    pub(crate) fn is_wanted(&self, tree: usize, path: &Path) -> bool {
        self.0.as_ref().is_none_or(|all| all.iter().any(|(of, above)| *of == tree && path.starts_with(above)))
    }
}

/// Without `.` and `..`, by the text: the name may be gone on the host.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}
