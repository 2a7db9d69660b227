//! What Cofferdam has of this user, and what of it is of no more use. Owns that judgement; removes nothing. Called by `clean`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cofferdam_audit::prune::{self, Keep};
use cofferdam_audit::{Stamp, verify};
use cofferdam_host::Surroundings;
use cofferdam_host::policy_files::Sources;
use cofferdam_host::policy_files::approvals::Approvals;
use cofferdam_host::state::{kept_in, sessions_in};
use cofferdam_supervisor::{live_sessions, oldest_spared};
use cofferdam_wire::session::short;
use cofferdam_workspace::{Changes, State, Transaction, transaction};
use rustix::fs::FlockOperation;
use serde::Serialize;

use crate::commands::clean::trees;
use crate::commands::prune::words;
use crate::environment::environment;
use crate::waiting::all;

/// What was committed or dropped is kept so long, to be taken back: as `sandbox changes --prune` has it.
const ENDED: Duration = Duration::from_hours(24 * 30);

/// What was remembered of a project that no session was in for so long is of no use.
const FORGOTTEN: Duration = Duration::from_hours(24 * 90);

/// Something that lies there.
#[derive(Debug, Serialize)]
pub(super) struct Item {
    pub(super) kind: &'static str,
    pub(super) what: String,
    pub(super) bytes: u64,
    pub(super) path: PathBuf,
    #[serde(flatten)]
    pub(super) fate: Fate,
    #[serde(skip)]
    pub(super) way: Way,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "fate", content = "why")]
pub(super) enum Fate {
    /// It is of no more use.
    Goes,
    /// Never committed: with `--transactions` alone.
    Work,
    Stays(String),
}

/// How it is removed.
#[derive(Debug)]
pub(super) enum Way {
    RollBack,
    Prune,
    Tree,
    File,
    /// What dead sessions left, all of it.
    Finish,
    Approval,
    Audit(Keep),
}

pub(super) fn look(state: &Path) -> Vec<Item> {
    let mut found = transactions(state);
    found.extend(overlays(state));
    found.extend(dead_sessions(state));
    found.extend(scripts(state));
    found.extend(approvals(state));
    found.extend(memories(state));
    found.extend(audit(state));
    found
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn is_older(path: &Path, age: Duration) -> bool {
    let modified = path.symlink_metadata().and_then(|about| about.modified());
    modified.is_ok_and(|modified| SystemTime::now().duration_since(modified).is_ok_and(|since| since >= age))
}

fn transactions(state: &Path) -> Vec<Item> {
    let running: Vec<String> = live_sessions(state).into_iter().flatten().map(|session| session.id).collect();
    let mut items = Vec::new();
    for one in all(state) {
        let runs = running.contains(&one.manifest.session);
        let counted = Transaction::look(&one.path).ok().and_then(|it| it.changes().ok());
        let has_steps = transaction::has_checkpoints_at(&one.path);
        let is_empty = counted.as_ref().is_some_and(|trees| trees.iter().all(Changes::is_without_work)) && !has_steps;
        let waits = one.state.waits();
        let fate = match one.state {
            _ if runs => Fate::Stays("its session runs".to_owned()),
            _ if waits && is_empty && one.state != State::Open => Fate::Goes,
            _ if waits => Fate::Work,
            _ if is_older(&one.path.join("state"), ENDED) => Fate::Goes,
            _ => Fate::Stays("ended less than 30 days ago: `sandbox commit --undo` can take it back".to_owned()),
        };
        let number: usize = counted.iter().flatten().map(|changes| changes.changes.len()).sum();
        let place = one.manifest.trees.first().map_or_else(String::new, |tree| format!(" in {}", tree.lower.display()));
        let changes = if waits { format!(", {number} changes") } else { String::new() };
        items.push(Item {
            kind: if waits { "changes that wait" } else { "ended transaction" },
            what: format!("session {}{place}: {}{changes}", short(&one.manifest.session), one.state.name()),
            bytes: trees::bytes(&one.path),
            path: one.path,
            fate,
            way: if waits { Way::RollBack } else { Way::Prune },
        });
    }
    items
}

/// What `--overlay` and earlier versions kept: without a record of what it lay over it is no transaction.
fn overlays(state: &Path) -> Vec<Item> {
    let known: Vec<PathBuf> = all(state).into_iter().map(|one| one.path).collect();
    let rest = entries(&kept_in(state)).into_iter().filter(|path| !known.contains(path));
    rest.map(|path| Item {
        kind: "kept overlay",
        what: format!("session {}", path.file_name().and_then(|name| name.to_str()).map_or("", short)),
        bytes: trees::bytes(&path),
        fate: Fate::Work,
        way: Way::Tree,
        path,
    })
    .collect()
}

fn dead_sessions(state: &Path) -> Vec<Item> {
    let is_dead = |path: &PathBuf| {
        let free = |open| rustix::fs::flock(&open, FlockOperation::NonBlockingLockShared).is_ok();
        trees::own(path).ok().flatten().is_some_and(free)
    };
    let dead = entries(&sessions_in(state)).into_iter().filter(is_dead);
    dead.map(|path| Item {
        kind: "killed session",
        what: format!("session {}", path.file_name().and_then(|name| name.to_str()).map_or("", short)),
        bytes: trees::bytes(&path),
        fate: Fate::Goes,
        way: Way::Finish,
        path,
    })
    .collect()
}

/// Programs of `sandbox shell-prefix`. One whose `sandbox` is gone cannot run.
fn scripts(state: &Path) -> Vec<Item> {
    let item = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).ok()?;
        let (program, rest) = text.lines().nth(1)?.strip_prefix("exec '")?.split_once('\'')?;
        // A quote in its path is written otherwise: such a one stays.
        let fate = if Path::new(program).exists() || rest.starts_with('\\') {
            Fate::Stays("an agent may be told to start it".to_owned())
        } else {
            Fate::Goes
        };
        let what = format!("shell prefix that starts {program}");
        Some(Item { kind: "shell prefix", what, bytes: trees::bytes(&path), fate, way: Way::File, path })
    };
    entries(&state.join("shell-prefix")).into_iter().filter_map(item).collect()
}

fn approvals(state: &Path) -> Vec<Item> {
    let Ok(known) = Approvals::load(state) else { return Vec::new() };
    let is_gone = |file: &PathBuf| file.parent().and_then(Path::parent).is_some_and(|project| !project.exists());
    let gone = known.files().map(PathBuf::from).filter(is_gone);
    gone.map(|path| Item {
        kind: "approval",
        what: format!("of {}, whose project is not there any more", path.display()),
        bytes: 0,
        fate: Fate::Goes,
        way: Way::Approval,
        path,
    })
    .collect()
}

/// Which directories need not be listed again. Made anew where it is missing.
fn memories(state: &Path) -> Vec<Item> {
    let files = ["looked-at", "searched"].into_iter().flat_map(|name| entries(&state.join(name)));
    let old = files.filter(|path| is_older(path, FORGOTTEN));
    old.map(|path| Item {
        kind: "memory of a project",
        what: "not used for 90 days".to_owned(),
        bytes: trees::bytes(&path),
        fate: Fate::Goes,
        way: Way::File,
        path,
    })
    .collect()
}

/// Of the log what `audit.keep` says. Where it is not whole, the operator prunes it by name.
fn audit(state: &Path) -> Option<Item> {
    let path = cofferdam_audit::directory(state);
    let bytes = trees::bytes(&path);
    if bytes == 0 {
        return None;
    }
    let item = |what: String, bytes: u64, fate: Fate, keep: Keep| {
        Some(Item { kind: "audit log", what, bytes, path: path.clone(), fate, way: Way::Audit(keep) })
    };
    let stays = |why: &str| item("all of it".to_owned(), bytes, Fate::Stays(why.to_owned()), Keep::default());
    let Some(time) = retention() else {
        return stays("`audit.keep` says no time; `sandbox audit prune --keep 90d` removes what is older");
    };
    let Ok(spared) = oldest_spared(state) else { return stays("the sessions that run cannot be listed") };
    let since = Some(Stamp::now().before(time));
    let keep = Keep { since, bytes: None, spared: spared.map(|spared| spared.since) };
    match prune::look(state, &keep) {
        Err(_) => stays("it cannot be read"),
        Ok(None) => stays("no record is older than `audit.keep` says"),
        Ok(Some(_)) if !verify(state).is_ok_and(|report| report.is_whole()) => {
            stays("it is not whole: see `sandbox audit verify`")
        }
        Ok(Some(pruned)) => item(words(&pruned), pruned.bytes, Fate::Goes, keep),
    }
}

/// As it is for this user in no project.
fn retention() -> Option<Duration> {
    let environment = environment();
    let around = Surroundings { project: None, ..Surroundings::look(&environment).ok()? };
    let policy = Sources::read(&around, &environment).ok()?.resolve(&around.places()).ok()?;
    policy.audit_keep.value.time()
}
