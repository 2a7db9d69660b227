//! The keeper of covers that stand on names of the host, in trees that are written directly: when a host program takes one
//! off, it stops the session, covers what is there now, looks whether the session has got hold of it, and reports
//! (docs/decisions/0029). Owns the reaction and its records; which covers there are is `plan`'s, mounting is the broker's.
//! Part of the supervisor's loop.
//!
//! It notices and cannot prevent: between the host's change and the stop a workload may read or write what lost its cover.

pub(crate) mod arrivals;
mod names;
mod overlaid;
mod search;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use cofferdam_gate::{Coverer, Given, How};
use cofferdam_kernel::{best_effort, bound};
use cofferdam_plan::{Covered, Hold, HoldKind, Kind, LaunchPlan, Mount, MountKind, Step};
use rustix::io::Errno;
use serde::Serialize;

use crate::covers::arrivals::Arrivals;
use crate::covers::names::{At, Guard, Names, Seen};
use crate::covers::overlaid::Overlaid;
use crate::covers::search::Object;
use crate::halt::Session;
use crate::store::held_names::Holds;

/// A host program that replaces a name in two steps gets so long before the name is held.
const RETURNS: Duration = Duration::from_millis(30);
const LOOK: Duration = Duration::from_millis(1);
/// Looks whether a new socket node is one of the host's.
const LISTENER_LOOKS: usize = 2;
/// A host program that replaces a name faster than it can be covered for so many rounds ends the session.
const MOST_ROUNDS: usize = 1000;
/// Falls of one stop that are told one by one.
const MOST_FALLS: usize = 4096;
/// Objects of one stop that are looked for; where there are more, the others may be held.
const MOST_OBJECTS: usize = 1 << 16;
/// Events that are taken in while the session runs.
const MOST_HEARD: usize = 4096;
/// An object that was changed longer ago lost its cover later.
const LONGEST: Duration = Duration::from_secs(5);
/// Windows that are remembered of one name, for their median.
const MOST_WINDOWS: usize = 1 << 17;

/// What a workload may have done meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum May {
    HaveBeenRead,
    HaveBeenChanged,
    HaveBeenReadOrChanged,
}

/// Why a fall ends the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grounds {
    /// A process of the session holds the object.
    Held,
    /// It has another name.
    Linked,
    /// It was moved to another name.
    Moved,
    /// A protected object was written to.
    Changed,
    /// The policy says so.
    Strict,
    /// It could not be covered again, or the session could not be stopped.
    Uncovered,
}

/// The falls of one cover.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fallen {
    pub path: PathBuf,
    pub covered: Covered,
    pub may: May,
    pub times: u32,
    pub median_millis: f64,
    pub worst_millis: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Grounds>,
}

/// One fall, for the log.
pub(crate) struct Fall {
    pub(crate) path: PathBuf,
    pub(crate) covered: Covered,
    pub(crate) may: May,
    pub(crate) times: u32,
    pub(crate) window: Duration,
    pub(crate) ended: Option<Grounds>,
}

#[derive(Debug, Default)]
struct Tally {
    times: u32,
    windows: Vec<Duration>,
    worst: Duration,
    ended: Option<Grounds>,
}

#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) names: Names,
    /// Trees whose descriptors are to come, the next one last.
    awaited: Vec<PathBuf>,
    processes: Option<OwnedFd>,
    coverer: Option<Coverer>,
    strict: bool,
    /// Sockets of the session cannot be taken for the host's: they are in another network namespace.
    tells_listeners: bool,
    /// Names that the policy gives, sockets among them.
    given: Vec<PathBuf>,
    /// Read-only trees with hidden names in them: what comes in their place is covered as a whole, and would show those.
    filtered: Vec<PathBuf>,
    overlaid: Overlaid,
    fallen: BTreeMap<(PathBuf, u8), (Covered, Tally)>,
}

/// What was found while the session was stopped.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) falls: Vec<Fall>,
    objects: Vec<Object>,
    pub(crate) grounds: Option<Grounds>,
}

impl Keeper {
    /// Takes the instance and the watches; `None` where no cover needs them.
    pub(crate) fn take(plan: &LaunchPlan, arrivals: Option<Arrivals>) -> Result<Option<Keeper>, (PathBuf, Errno)> {
        if !plan.watches_covers() {
            return Ok(None);
        }
        let watched = plan.covers.iter().filter(|cover| cover.is_watched());
        let named = watched.filter_map(|cover| Some((cover, cover.tree.as_deref()?, may_execute(plan, &cover.path))));
        let mut names = Names::watch(named)?;
        for (tree, _) in plan.transaction_trees() {
            names.add_tree(tree)?;
        }
        names.arrivals = arrivals;
        let awaited = plan.watched_trees().into_iter().rev().map(Path::to_path_buf).collect();
        let given = plan.steps.iter().filter_map(|step| match step {
            Step::Mount(Mount { target, kind: MountKind::Bind { .. }, .. }) => Some(target.clone()),
            _ => None,
        });
        let filtered = plan.steps.iter().filter_map(|step| match step {
            Step::Mount(Mount { target, kind: MountKind::Filtered { .. }, .. }) => Some(target.clone()),
            _ => None,
        });
        Ok(Some(Keeper {
            names,
            awaited,
            processes: None,
            coverer: None,
            strict: plan.keeper_is_strict,
            tells_listeners: plan.namespaces.net,
            given: given.collect(),
            filtered: filtered.collect(),
            overlaid: Overlaid::new(plan.transaction_trees()),
            fallen: BTreeMap::new(),
        }))
    }

    /// A tree that an answer gave for writing: its covers are watched from now on, and looked at once.
    pub(crate) fn adopt(&mut self, given: Given) -> Result<(), Errno> {
        self.names.leave(&given.tree);
        for cover in &given.covers {
            let (what, kind) = match cover.how {
                How::Hide => (Covered::Hidden, Kind::File),
                How::Mask => (Covered::Masked, Kind::File),
                How::Seal => (Covered::Protected, Kind::File),
                How::Pin => (Covered::Parent, Kind::Directory),
            };
            let is_absent = given.absent.contains(&cover.path);
            let guard = Guard { what, kind, exec: given.exec, is_absent };
            self.names.add(&cover.path, &given.tree, guard, true).map_err(|(_, errno)| errno)?;
        }
        self.names.enter(&given.tree, given.view)
    }

    fn hear(&mut self, most: usize) -> Result<(), Errno> {
        self.names.hear(most)?;
        let fresh = self.names.new_sockets();
        if self.tells_listeners && !fresh.is_empty() {
            self.guard_listeners(&fresh);
        }
        self.receive_arrivals()
    }

    /// A process of the host listens there, or may do so: it is covered as those are that listened at the start (decision 0025).
    fn guard_listeners(&mut self, fresh: &[At]) {
        let mut waiting: Vec<(&At, PathBuf)> = fresh.iter().map(|at| (at, self.names.path(at))).collect();
        // No process listens at an overlay's copy.
        waiting.retain(|(at, path)| !self.given.contains(path) && !self.overlaid.has(self.names.tree_of(at)));
        for look in 0..LISTENER_LOOKS {
            if waiting.is_empty() {
                return;
            }
            if look > 0 {
                // The node comes a moment before its socket is listed.
                std::thread::sleep(LOOK);
            }
            let bound = bound::named_in_full(|path| waiting.iter().any(|(_, one)| one == path));
            waiting.retain(|(at, path)| {
                let is_bound = bound.as_ref().map_or(true, |all| all.iter().any(|one| one.path == *path));
                if is_bound {
                    let guard = Guard { what: Covered::Socket, kind: Kind::Socket, exec: false, is_absent: false };
                    self.names.guard_new(at, guard);
                }
                !is_bound
            });
        }
    }

    /// The sandbox's view of the next tree.
    pub(crate) fn enter(&mut self, tree: OwnedFd) -> Result<(), Errno> {
        match self.awaited.pop() {
            Some(path) => self.names.enter(&path, tree),
            None => Ok(()),
        }
    }

    /// The sandbox's /proc.
    pub(crate) fn know(&mut self, processes: OwnedFd) {
        self.processes = Some(processes);
    }

    /// Where to wait for events; nothing runs inside before everything that is needed to answer them has come.
    pub(crate) fn wanted(&self) -> Option<BorrowedFd<'_>> {
        self.is_ready().then(|| self.names.as_fd())
    }

    fn is_ready(&self) -> bool {
        self.awaited.is_empty() && self.processes.is_some()
    }

    pub(crate) fn fallen(&self) -> Vec<Fallen> {
        let millis = |window: Duration| window.as_secs_f64() * 1000.0;
        let told = self.fallen.iter().map(|((path, _), (covered, tally))| {
            let mut windows = tally.windows.clone();
            windows.sort_unstable();
            Fallen {
                path: path.clone(),
                covered: *covered,
                may: may(*covered),
                times: tally.times,
                median_millis: windows.get(windows.len() / 2).copied().map_or(0.0, millis),
                worst_millis: millis(tally.worst),
                ended: tally.ended,
            }
        });
        told.collect()
    }

    /// Looks at what happened. What fell is covered when this returns, or there are grounds to end the session.
    pub(crate) fn turn(&mut self, around: &mut Surroundings<'_>) -> Found {
        // Where it cannot be known whether a cover stands, nothing goes on.
        let found = self.look(around).and_then(|found| self.cover_made(around).map(|()| found));
        found.unwrap_or_else(|_| Found { grounds: Some(Grounds::Uncovered), ..Found::default() })
    }

    /// What fell and was not noticed while the session ran: it may have ended at once. And whether every name could be looked at.
    pub(crate) fn last_falls(&mut self) -> (Vec<Fall>, bool) {
        let mut found = Found::default();
        let noticed = Some(SystemTime::now());
        let looked: Option<Result<(), Errno>> = self.is_ready().then(|| {
            self.hear(usize::MAX)?;
            self.note_made();
            // The kernel tells of a change after it is made, and the workload may be gone by then.
            self.names.look_at_all();
            let suspects = self.suspects()?;
            self.note_all(&suspects, noticed, &mut found)
        });
        (found.falls, !matches!(looked, Some(Err(_))) && !self.names.has_closed())
    }

    fn look(&mut self, ends: &mut Surroundings<'_>) -> Result<Found, Errno> {
        let noticed = SystemTime::now();
        if !self.is_ready() {
            return Ok(Found::default());
        }
        // The session may make events faster than they are read; what is left is for the next turn of the loop.
        self.hear(MOST_HEARD)?;
        let suspects = self.suspects()?;
        if suspects.is_empty() {
            return Ok(Found::default());
        }
        let processes = self.processes.as_ref().ok_or(Errno::NOENT)?.try_clone().map_err(|_| Errno::MFILE)?;
        let session = Session {
            processes: processes.as_fd(),
            first: ends.first,
            cgroup: ends.cgroup,
            has_question: ends.has_question,
        };
        let mut found = Found::default();
        let Ok(halted) = session.stop() else {
            self.note_all(&suspects, Some(noticed), &mut found)?;
            found.grounds = Some(Grounds::Uncovered);
            return Ok(found);
        };
        // What fell until nothing ran any more counts as well: the look at the new cover would forget it.
        self.hear(usize::MAX)?;
        let mut all = suspects;
        for at in self.suspects()? {
            if !all.contains(&at) {
                all.push(at);
            }
        }
        let suspects = all;
        self.note_all(&suspects, Some(noticed), &mut found)?;
        self.mend(suspects, ends, &mut found)?;
        self.judge(processes.as_fd(), &mut found)?;
        // What a process got hold of meanwhile was not looked for.
        if !found.falls.is_empty() && !session.has_held_but_for_waiting(&halted)? {
            found.grounds.get_or_insert(Grounds::Uncovered);
        }
        if found.grounds.is_none() {
            session.resume(&halted);
        }
        Ok(found)
    }

    /// A hidden name that is gone shows nothing, unless something was there in between. Neither does one that was never there.
    fn suspects(&mut self) -> Result<Vec<At>, Errno> {
        let mut suspects = self.names.suspects()?;
        let names = &mut self.names;
        let mut harmless = Vec::new();
        suspects.retain(|at| {
            let is_shown = names.guard(at).is_some_and(|guard| is_shown(guard.what) && !guard.is_absent);
            let is_gone = matches!(names.look(at), Ok(Seen::Gone));
            let matters = !is_gone || is_shown || is_repository(at, names) || names.signs(at).appeared > 0;
            if !matters {
                harmless.push(at.clone());
            }
            matters
        });
        for at in &harmless {
            names.forget_signs(at);
        }
        Ok(suspects)
    }

    /// `noticed` is when the loop woke up; none where the session was stopped already, so that the window is empty.
    fn note_all(&self, suspects: &[At], noticed: Option<SystemTime>, found: &mut Found) -> Result<(), Errno> {
        for at in suspects {
            self.note(at, &self.names.look(at)?, noticed, found);
        }
        Ok(())
    }

    /// The fall of one name, once for each object.
    fn note(&self, at: &At, seen: &Seen, noticed: Option<SystemTime>, found: &mut Found) {
        let Some(guard) = self.names.guard(at) else { return };
        let signs = self.names.signs(at);
        let path = self.names.path(at);
        let now = SystemTime::now();
        let mut began = noticed.unwrap_or(now);
        if let Seen::Bare { object, links, is_directory, changed } = seen {
            found.objects.push(*object);
            if *is_directory
                && guard.what != Covered::Parent
                && !below(&self.way_to(at), MOST_OBJECTS, &mut found.objects)
            {
                found.grounds.get_or_insert(Grounds::Held);
            }
            if !is_directory && *links > 1 {
                found.grounds.get_or_insert(Grounds::Linked);
            }
            if noticed.is_some_and(|at| at.duration_since(*changed).is_ok_and(|earlier| earlier < LONGEST)) {
                began = *changed;
            }
        }
        let shows_hidden = matches!(seen, Seen::Bare { .. }) && self.filtered.contains(&path);
        if shows_hidden || is_repository(at, &self.names) && !matches!(seen, Seen::Covered { .. }) {
            found.grounds.get_or_insert(Grounds::Uncovered);
        }
        if signs.left {
            found.grounds.get_or_insert(Grounds::Moved);
        }
        if signs.changed && is_shown(guard.what) {
            found.grounds.get_or_insert(Grounds::Changed);
        }
        let window = now.duration_since(began).unwrap_or_default();
        let times = signs.appeared.max(1);
        if found.falls.len() >= MOST_FALLS {
            return;
        }
        found.falls.push(Fall { path, covered: guard.what, may: may(guard.what), times, window, ended: None });
    }

    /// Covers everything that is bare, again and again while a host program goes on: nothing inside runs meanwhile.
    fn mend(&mut self, first: Vec<At>, ends: &mut Surroundings<'_>, found: &mut Found) -> Result<(), Errno> {
        let mut suspects = first;
        for _ in 0..MOST_ROUNDS {
            for at in std::mem::take(&mut suspects) {
                match self.names.look(&at)? {
                    Seen::Covered { mount } => self.names.settle(&at, mount)?,
                    Seen::Bare { .. } => {
                        self.cover(&at, ends)?;
                        self.hold_with_others(&at, ends);
                    }
                    Seen::Gone => {
                        self.names.forget_signs(&at);
                        if !self.stand_before_host(&at)? {
                            self.await_return(&at, ends)?;
                        }
                    }
                }
            }
            self.hear(usize::MAX)?;
            suspects = self.suspects()?;
            if suspects.is_empty() {
                return Ok(());
            }
            self.note_all(&suspects, None, found)?;
        }
        found.grounds = Some(Grounds::Uncovered);
        Ok(())
    }

    fn cover(&mut self, at: &At, ends: &Surroundings<'_>) -> Result<(), Errno> {
        let Some(guard) = self.names.guard(at) else { return Ok(()) };
        let how = match guard.what {
            Covered::Hidden | Covered::Socket => How::Hide,
            Covered::Masked => How::Mask,
            Covered::Protected | Covered::Held => How::Seal,
            Covered::Parent => How::Pin,
        };
        if self.coverer.is_none() {
            self.coverer = Some(Coverer::start(ends.mounts)?);
        }
        let (Some(coverer), Some(inside)) = (&self.coverer, self.names.inside(at)) else { return Ok(()) };
        match coverer.cover(inside, &at.1, how, guard.exec) {
            Ok(()) => {
                if let Seen::Covered { mount } = self.names.look(at)? {
                    self.names.settle(at, mount)?;
                }
                Ok(())
            }
            // Replaced again meanwhile, or covered: the next look tells.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::STALE | Errno::INVAL | Errno::LOOP) => {
                self.names.doubt(at);
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }

    /// Another session may have been the first to hold a name again that a host program took away: what stands there stays
    /// until both have ended.
    fn hold_with_others(&self, at: &At, ends: &mut Surroundings<'_>) {
        if self.names.guard(at).is_some_and(|guard| guard.what == Covered::Held) {
            let path = self.names.path(at);
            let hold = ends.holds_of_plan.iter().find(|hold| hold.path == path);
            let shared = hold.map_or(Ok(()), |hold| ends.holds.again(hold));
            best_effort(shared, "a host program made it; or it is held when the other session ends");
        }
    }

    /// A protected name that is gone could be made inside: it is held, once its host program had time to make it itself.
    fn await_return(&mut self, at: &At, ends: &mut Surroundings<'_>) -> Result<(), Errno> {
        let Some(guard) = self.names.guard(at) else { return Ok(()) };
        if !is_shown(guard.what) || guard.is_absent || self.names.inside(at).is_none() {
            return Ok(());
        }
        let until = Instant::now() + RETURNS;
        while Instant::now() < until {
            std::thread::sleep(LOOK);
            if self.names.look(at)? != Seen::Gone {
                return Ok(());
            }
        }
        let path = self.names.path(at);
        // Git reads this one as a file; it takes an empty directory elsewhere for no file.
        let is_config = path.file_name().is_some_and(|name| name == "config");
        let is_file = guard.kind == Kind::File && (is_config || guard.what == Covered::Masked);
        let known = ends.holds_of_plan.iter().find(|hold| hold.path == path).map(|hold| hold.kind.clone());
        // A directory of that name would do for git.
        let is_socket = guard.kind != Kind::Directory && is_store(&path) || guard.kind == Kind::Socket;
        let usual = match (is_file, is_socket) {
            (true, _) => HoldKind::File(String::new()),
            (false, true) => HoldKind::Socket,
            (false, false) => HoldKind::Directory,
        };
        match ends.holds.again(&Hold { path, kind: known.unwrap_or(usual) }) {
            // A host program made it at last; or its directory is gone too, and with it the way to make it inside.
            Ok(()) | Err(Errno::EXIST | Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Whether the session has got hold of what was bare.
    fn judge(&mut self, processes: BorrowedFd<'_>, found: &mut Found) -> Result<(), Errno> {
        if found.grounds.is_none() && search::is_held(processes, &found.objects)? {
            found.grounds = Some(Grounds::Held);
        }
        if self.strict && !found.falls.is_empty() {
            found.grounds.get_or_insert(Grounds::Strict);
        }
        Ok(())
    }

    pub(crate) fn remember(&mut self, fall: &Fall) {
        let key = (fall.path.clone(), fall.covered as u8);
        let (_, tally) = self.fallen.entry(key).or_insert_with(|| (fall.covered, Tally::default()));
        tally.times = tally.times.saturating_add(fall.times);
        tally.worst = tally.worst.max(fall.window);
        tally.ended = tally.ended.or(fall.ended);
        if tally.windows.len() < MOST_WINDOWS {
            tally.windows.push(fall.window);
        }
    }
}

/// What the keeper needs of the running session.
pub(crate) struct Surroundings<'a> {
    pub(crate) first: BorrowedFd<'a>,
    pub(crate) mounts: BorrowedFd<'a>,
    pub(crate) cgroup: Option<&'a crate::limits::cgroup::SessionCgroup>,
    pub(crate) has_question: bool,
    pub(crate) holds: &'a mut Holds,
    pub(crate) holds_of_plan: &'a [Hold],
}

/// Whether what is covered can be read and must not be changed, nor made where it is gone.
fn is_shown(covered: Covered) -> bool {
    matches!(covered, Covered::Masked | Covered::Protected | Covered::Held)
}

/// A `.git` directory that a host program moved or removed: what is made in its place inside would bring its own hooks, and
/// nothing tells it from what the host makes.
fn is_repository(at: &At, names: &Names) -> bool {
    at.1 == ".git" && names.guard(at).is_some_and(|guard| guard.what == Covered::Parent)
}

/// Names that make the directory around them a repository.
fn is_store(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "objects" || name == "refs")
}

fn may(covered: Covered) -> May {
    match covered {
        Covered::Masked => May::HaveBeenReadOrChanged,
        Covered::Hidden | Covered::Socket => May::HaveBeenRead,
        Covered::Protected | Covered::Held | Covered::Parent => May::HaveBeenChanged,
    }
}

/// Whether what is bound at a path may be executed.
fn may_execute(plan: &LaunchPlan, path: &Path) -> bool {
    plan.steps.iter().any(|step| match step {
        Step::Mount(Mount { target, kind: MountKind::Bind { exec, .. }, .. }) => *exec && path.starts_with(target),
        _ => false,
    })
}

/// What lies in a directory; whether that is all of it. A host program may remove something meanwhile.
fn below(directory: &Path, most: usize, objects: &mut Vec<Object>) -> bool {
    let is_gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    let mut waiting = vec![directory.to_path_buf()];
    while let Some(next) = waiting.pop() {
        let entries = match std::fs::read_dir(&next) {
            Ok(entries) => entries,
            Err(error) if is_gone(&error) => continue,
            Err(_) => return false,
        };
        for entry in entries {
            let (entry, meta) = match entry.and_then(|entry| entry.metadata().map(|meta| (entry, meta))) {
                Ok(found) => found,
                Err(error) if is_gone(&error) => continue,
                Err(_) => return false,
            };
            if objects.len() >= most {
                return false;
            }
            let device = std::os::unix::fs::MetadataExt::dev(&meta);
            let inode = std::os::unix::fs::MetadataExt::ino(&meta);
            objects.push((rustix::fs::major(device), rustix::fs::minor(device), inode));
            if meta.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    true
}
