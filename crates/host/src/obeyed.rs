//! What programs of the host obey in a project that was written directly, looked for when a session has ended
//! (docs/decisions/0035). Owns the walk and its bounds; the names are the policy's list, the words are `cli`'s. Called by
//! `supervisor::launch`; `git::changes` compares the project's own repository.
//!
//! The tree was made by the workload, so nothing in it is believed: no link is followed out of the project, no other mount
//! is entered, only the kernel's `ctime` counts, and no command can set that.

mod names;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use cofferdam_kernel::file;
use cofferdam_kernel::mount::open_source;
use cofferdam_plan::{Decision, HostFacts};
use cofferdam_policy::decide::index::is_filled_by_tools;
use cofferdam_policy::{Access, Isolation, ObeyedClass, Policy, RuleIndex};
use names::{Begun, Names};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use serde::{Serialize, Serializer};

use crate::memory::{Identity, Memory, Remembered};
use crate::stand_ins::StandIns;

/// What a walk costs at most; a caller waits for it.
const MOST_ENTRIES: usize = 50_000;
const LONGEST: Duration = Duration::from_millis(200);
const DEEPEST: usize = 16;
/// How often the clock is looked at. So many entries are seen however long it takes: a busy machine must not make a small
/// project unseen.
const ENTRIES_PER_LOOK: usize = 4096;

/// How often something is opened that the kernel could not follow because of a rename meanwhile.
const MOST_TRIES: usize = 100;

/// Named one by one; the rest is counted.
const MOST_NAMED: usize = 32;

/// What was changed or made while a session ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Obeyed {
    pub files: Vec<ObeyedFile>,
    /// How many there are besides.
    pub more: usize,
    /// Why part of the project was not looked at.
    pub unseen: Option<Unseen>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ObeyedFile {
    pub class: ObeyedClass,
    /// Relative to the project, where it lies in it: the repository of a linked worktree does not.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    pub why: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unseen {
    Entries,
    Time,
    Depth,
    /// A directory on another mount.
    OtherFileSystem,
    /// A directory that was made unreadable while the session ran.
    Unreadable,
}

/// Names of files need not be UTF-8, JSON has to be.
fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

impl Obeyed {
    /// What was found elsewhere, within the same bound.
    pub fn add(&mut self, files: Vec<ObeyedFile>) {
        self.files.extend(files);
        self.files.sort();
        self.more += self.files.len().saturating_sub(MOST_NAMED);
        self.files.truncate(MOST_NAMED);
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.unseen.is_none()
    }
}

/// The project, where a session writes to it without an overlay or a review.
pub fn direct_project<'a>(policy: &Policy, facts: &'a HostFacts) -> Option<&'a Path> {
    let is_direct = policy.project_access() == Access::Write && policy.isolation.value != Isolation::None;
    facts.project.as_deref().filter(|_| is_direct)
}

/// Seconds and nanoseconds.
type Time = (i64, i64);

/// When a session started, by the clock that the kernel stamps files with: others run ahead of it. Since Linux 6.13 that one
/// runs ahead as well, for files that were looked at before they change: what was changed some milliseconds before the
/// start would seem to be the session's work.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    coarse: Time,
    /// The time of a change at the start, on the device of the project.
    stamped: Option<(u64, Time)>,
}

impl Start {
    pub fn now(project: Option<&Path>) -> Self {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Start { coarse: (now.tv_sec, now.tv_nsec), stamped: project.and_then(|project| file::stamp(project).ok()) }
    }

    /// Whether a file was made, written, renamed or linked since. A file system that keeps whole seconds cannot tell more.
    pub(crate) fn is_before_change_of(self, stat: &Stat) -> bool {
        let start = self.stamped.filter(|(device, _)| *device == stat.st_dev).map_or(self.coarse, |(_, start)| start);
        match changed(stat) {
            (seconds, 0) => seconds >= start.0,
            changed => changed >= start,
        }
    }
}

fn changed(stat: &Stat) -> Time {
    (stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or(i64::MAX))
}

/// How programs of the host obey a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObeyedAs {
    pub class: ObeyedClass,
    pub why: &'static str,
}

/// Whether programs of the host obey a file at this path of a project, or something above it. A link counts as whatever may be
/// found through it.
pub fn obeyed_as(path: &Path, is_link: bool) -> Option<ObeyedAs> {
    static NAMES: LazyLock<Names> = LazyLock::new(Names::shipped);
    let names = &*NAMES;
    let as_rule = |rule: usize| Some(ObeyedAs { class: names.class(rule), why: names.why(rule) });
    let (mut begun, mut only_begun) = (Vec::new(), false);
    let mut parts = path.iter().peekable();
    while let Some(name) = parts.next() {
        let is_last = parts.peek().is_none();
        let (whole, further) = names.go_on(&begun, only_begun, name);
        // A directory of that name may be obeyed by what other entries name in it.
        if let Some(rule) = whole.filter(|rule| is_last || !names.only_files(*rule)) {
            return as_rule(rule);
        }
        if let (true, true, Some(first)) = (is_last, is_link, further.first()) {
            return as_rule(first.rule);
        }
        only_begun |= is_filled_by_tools(name.as_bytes());
        begun = further;
    }
    None
}

/// What names that programs of the host obey at the root of a project lead to, where they are links into it: paths relative to the
/// project.
pub fn behind_links(project: &Path) -> Vec<(PathBuf, ObeyedAs)> {
    let mut found = Vec::new();
    for name in cofferdam_policy::obeyed_names() {
        let first = if name.in_git { ".git" } else { name.name };
        for above in Path::new(first).ancestors().filter(|above| !above.as_os_str().is_empty()) {
            let place = project.join(above);
            let is_link = place.symlink_metadata().is_ok_and(|stat| stat.is_symlink());
            let target = is_link.then(|| place.canonicalize().ok()).flatten();
            let inside = target.as_ref().and_then(|target| target.strip_prefix(project).ok());
            found.extend(inside.map(|path| (path.to_path_buf(), ObeyedAs { class: name.class, why: name.why })));
        }
    }
    found
}

/// Looks through a project after a session.
pub fn look(project: &Path, start: Start, decisions: &[Decision], state: Option<&Path>) -> Obeyed {
    let Ok(root) = open_source(project) else { return Obeyed::default() };
    let names = Names::shipped();
    let memories = state.map(|state| state.join("looked-at"));
    let (memory, place) = memories
        .map(|memories| Memory::open(&memories, project, &root, &names))
        .map_or((Memory::default(), None), |(memory, place)| (memory, Some(place)));
    let first = Visit { known: memory.first(), ..Visit::default() };
    let mut walk = Walk {
        root,
        project,
        start,
        decisions,
        rules: OnceCell::new(),
        names,
        stand_ins: state.map(StandIns::of),
        until: Instant::now() + LONGEST,
        entries: 0,
        queue: vec![first],
        memory,
        newly: 0,
        changed: BTreeMap::new(),
        unseen: None,
    };
    let is_cut = walk.all().map_err(|why| walk.unseen = Some(why)).is_err();
    if let Some(place) = place {
        let directories = walk.queue.iter().map(|visit| (visit.at.as_os_str().as_bytes(), visit.now));
        place.keep(&walk.memory, walk.newly, is_cut, directories, &BTreeSet::new());
    }
    walk.told()
}

/// A directory that is still to be listed, and once that is done what is remembered of it.
#[derive(Debug, Default)]
struct Visit {
    at: PathBuf,
    depth: usize,
    looks: Looks,
    /// Its number in the memory.
    known: Option<usize>,
    now: Remembered,
}

#[derive(Debug)]
enum Looks {
    /// For names of the list, and how those go on whose beginning led here.
    ForNames { begun: Vec<Begun>, only_begun: bool },
    /// At everything: it lies in a directory that is obeyed as a whole.
    AtAll { rule: usize, top: PathBuf },
}

impl Looks {
    /// Whether what is in the list decides what is met here, and not how the way led here.
    fn is_plain(&self) -> bool {
        matches!(self, Looks::ForNames { begun, only_begun: false } if begun.is_empty())
    }
}

impl Default for Looks {
    fn default() -> Self {
        Looks::ForNames { begun: Vec::new(), only_begun: false }
    }
}

/// What changed at or below an obeyed name.
#[derive(Debug)]
struct Change {
    rule: usize,
    count: usize,
    first: PathBuf,
}

struct Walk<'a> {
    root: OwnedFd,
    project: &'a Path,
    start: Start,
    decisions: &'a [Decision],
    /// Made for the first name of the list that is met.
    rules: OnceCell<RuleIndex<&'a Decision>>,
    names: Names,
    stand_ins: Option<StandIns>,
    until: Instant,
    entries: usize,
    /// In the order of their depth: what lies near the root is seen before a bound is reached.
    queue: Vec<Visit>,
    memory: Memory,
    /// Directories that were listed and need not be the next time.
    newly: usize,
    changed: BTreeMap<PathBuf, Change>,
    unseen: Option<Unseen>,
}

impl Walk<'_> {
    fn all(&mut self) -> Result<(), Unseen> {
        let mut number = 0;
        while number < self.queue.len() {
            let mut visit = std::mem::take(&mut self.queue[number]);
            let looked = self.look_into(&mut visit);
            self.queue[number] = visit;
            looked?;
            number += 1;
        }
        Ok(())
    }

    fn look_into(&mut self, visit: &mut Visit) -> Result<(), Unseen> {
        self.is_in_bounds()?;
        let first = self.queue.len();
        let identity =
            match visit.known.filter(|_| visit.looks.is_plain()).and_then(|known| self.unchanged(known, visit)) {
                Some(identity) => Some(identity),
                None => self.list(visit)?,
            };
        visit.now = Remembered { identity, first, count: self.queue.len() - first };
        Ok(())
    }

    /// A remembered directory has the names that it had: none of the list, and these directories.
    fn unchanged(&mut self, known: usize, visit: &Visit) -> Option<Identity> {
        let identity = self.memory.unchanged(known, &self.root, visit.at.as_os_str().as_bytes())?;
        self.entries += 1;
        for child in self.memory.children(known) {
            let at = visit.at.join(OsStr::from_bytes(self.memory.name(child)));
            self.queue.push(Visit { at, depth: visit.depth + 1, known: Some(child), ..Visit::default() });
        }
        Some(identity)
    }

    fn is_in_bounds(&self) -> Result<(), Unseen> {
        match self.entries {
            entries if entries > MOST_ENTRIES => Err(Unseen::Entries),
            entries if entries > ENTRIES_PER_LOOK && Instant::now() >= self.until => Err(Unseen::Time),
            _ => Ok(()),
        }
    }

    /// The identity of a directory that need not be listed again unless it changes.
    fn list(&mut self, visit: &Visit) -> Result<Option<Identity>, Unseen> {
        let directory = match self.open(visit) {
            Ok(directory) => directory,
            Err(errno) => {
                self.unseen = self.unseen.or_else(|| self.why_unseen(visit, errno));
                return Ok(None);
            }
        };
        // Before it is listed: what changes meanwhile has another time the next time.
        let identity = Identity::of(&directory).ok().filter(|_| visit.looks.is_plain());
        let mut children = self.memory.children(visit.known.unwrap_or(usize::MAX));
        let mut is_plain = true;
        let mut buffer = [MaybeUninit::uninit(); 16384];
        let mut entries = RawDir::new(&directory, &mut buffer);
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else {
                self.unseen = self.unseen.or(Some(Unseen::Unreadable));
                return Ok(None);
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            self.entries += 1;
            if self.entries.is_multiple_of(ENTRIES_PER_LOOK) || self.entries > MOST_ENTRIES {
                self.is_in_bounds()?;
            }
            let before = self.queue.len();
            is_plain &= self.entry(&directory, visit, OsStr::from_bytes(name), entry.file_type());
            if self.queue.len() > before {
                self.queue[before].known = self.memory.find(&mut children, name);
            }
        }
        let identity = identity.filter(|identity| is_plain && self.memory.can_pass_by(identity));
        self.newly += usize::from(identity.is_some());
        Ok(identity)
    }

    /// Whether it is none of the names that are looked for, and is looked into if it is a directory to look into.
    fn entry(&mut self, directory: &OwnedFd, visit: &Visit, name: &OsStr, kind: FileType) -> bool {
        let (begun, only_begun) = match &visit.looks {
            Looks::AtAll { rule, top } => {
                if let Ok(stat) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    self.look_at(&visit.at.join(name), visit.depth, &stat, *rule, top);
                }
                return false;
            }
            Looks::ForNames { begun, only_begun } => (begun, *only_begun),
        };
        // The project's own repository is protected, or compared with what it was.
        let is_own_git = visit.depth == 0 && name == ".git";
        let (whole, begun) = if is_own_git { (None, Vec::new()) } else { self.names.go_on(begun, only_begun, name) };
        if whole.is_none() && begun.is_empty() && kind != FileType::Directory && kind != FileType::Unknown {
            return true;
        }
        let at = visit.at.join(name);
        let stat = || rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        let kind = match kind {
            FileType::Unknown => stat().map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode)),
            kind => kind,
        };
        let is_directory = kind == FileType::Directory;
        if let Some(rule) = whole.filter(|rule| !(is_directory && self.names.only_files(*rule))) {
            if let Some(stat) = stat().filter(|stat| !self.is_stand_in(&at, stat)) {
                if is_directory && !self.is_open_to_the_session(&at) {
                    // Names that are held may have been made in it.
                    self.put(at.clone(), visit.depth, Looks::AtAll { rule, top: at });
                } else {
                    // Under a cover, too: a session may have another name of the same file.
                    self.look_at(&at, visit.depth, &stat, rule, &at);
                }
            }
            return false;
        }
        let is_plain = whole.is_none() && begun.is_empty();
        if kind == FileType::Symlink {
            for begun in begun {
                if let Some(at) = self.names.path_of_rest(begun).map(|rest| at.join(rest)) {
                    self.look_behind_links(&at, visit.depth, begun.rule, &at);
                }
            }
        } else if is_directory {
            let is_passed_by = is_filled_by_tools(name.as_bytes());
            if !begun.is_empty() || !(is_passed_by || only_begun) {
                let looks = Looks::ForNames { begun, only_begun: only_begun || is_passed_by };
                return self.put(at, visit.depth, looks) && is_plain;
            }
        }
        is_plain
    }

    /// Something at or below an obeyed name.
    fn look_at(&mut self, at: &Path, depth: usize, stat: &Stat, rule: usize, top: &Path) {
        let is_changed = self.start.is_before_change_of(stat);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                if is_changed {
                    self.changed(at, rule, top, 0);
                }
                self.put(at.to_path_buf(), depth, Looks::AtAll { rule, top: top.to_path_buf() });
            }
            FileType::Symlink if !is_changed => self.look_behind_links(at, depth, rule, top),
            _ if is_changed => self.changed(at, rule, top, 1),
            _ => {}
        }
    }

    /// What a link leads to is obeyed under the link's name; outside of the project the session could not write it this way.
    fn look_behind_links(&mut self, at: &Path, depth: usize, rule: usize, top: &Path) {
        let target = self.within(at, OFlags::PATH, ResolveFlags::empty());
        let stat = match target.and_then(rustix::fs::fstat) {
            Ok(stat) => stat,
            Err(Errno::AGAIN) => {
                self.unseen = self.unseen.or(Some(Unseen::Unreadable));
                return;
            }
            // It leads nowhere, or out of the project.
            Err(_) => return,
        };
        // Links between directories below the name may go round in circles.
        if at == top || FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            self.look_at(at, depth, &stat, rule, top);
        }
    }

    fn changed(&mut self, at: &Path, rule: usize, top: &Path, count: usize) {
        let new = || Change { rule, count: 0, first: top.to_path_buf() };
        let change = self.changed.entry(top.to_path_buf()).or_insert_with(new);
        if change.count == 0 && count > 0 {
            change.first = at.to_path_buf();
        }
        change.count += count;
    }

    /// Whether it is not too deep.
    fn put(&mut self, at: PathBuf, depth: usize, looks: Looks) -> bool {
        if depth >= DEEPEST {
            self.unseen = self.unseen.or(Some(Unseen::Depth));
            return false;
        }
        self.queue.push(Visit { at, depth: depth + 1, looks, ..Visit::default() });
        true
    }

    fn open(&self, visit: &Visit) -> Result<OwnedFd, Errno> {
        let links = match visit.looks {
            Looks::ForNames { .. } => ResolveFlags::NO_SYMLINKS,
            Looks::AtAll { .. } => ResolveFlags::empty(),
        };
        let at = if visit.depth == 0 { Path::new(".") } else { &visit.at };
        self.within(at, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK, links)
    }

    /// Opens something of the project, and nothing elsewhere. A rename anywhere on the machine makes the kernel give up where
    /// a link has `..` in it, and says so.
    fn within(&self, at: &Path, flags: OFlags, more: ResolveFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV | more;
        let open = || rustix::fs::openat2(&self.root, at, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
        let tries = std::iter::repeat_with(open).take(MOST_TRIES);
        tries.into_iter().find(|opened| !matches!(opened, Err(Errno::AGAIN))).unwrap_or(Err(Errno::AGAIN))
    }

    /// A directory that the user could not list before either was closed to the session, too: its rights are the user's.
    fn why_unseen(&self, visit: &Visit, errno: Errno) -> Option<Unseen> {
        match errno {
            Errno::XDEV => Some(Unseen::OtherFileSystem),
            // Gone or replaced since its name was read.
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => None,
            _ => {
                let stat = rustix::fs::statat(&self.root, &visit.at, AtFlags::SYMLINK_NOFOLLOW);
                let is_closed_since = stat.is_ok_and(|stat| self.start.is_before_change_of(&stat));
                (is_closed_since || errno != Errno::ACCESS).then_some(Unseen::Unreadable)
            }
        }
    }

    /// Whether another session holds the name.
    fn is_stand_in(&self, at: &Path, stat: &Stat) -> bool {
        self.stand_ins.as_ref().is_some_and(|known| known.knows(&self.project.join(at), stat))
    }

    /// Whether the command could write there: not what is covered.
    fn is_open_to_the_session(&self, at: &Path) -> bool {
        let rules = self.rules.get_or_init(|| RuleIndex::new(self.decisions.iter().collect()));
        rules.deciding(&self.project.join(at)).is_none_or(|decision| decision.leaves_open())
    }

    fn told(self) -> Obeyed {
        let names = &self.names;
        let file = |(top, change): (PathBuf, Change)| {
            let path = if change.count == 1 { change.first } else { top };
            ObeyedFile { class: names.class(change.rule), path, why: names.why(change.rule) }
        };
        let mut files: Vec<ObeyedFile> = self.changed.into_iter().map(file).collect();
        files.sort();
        let more = files.len().saturating_sub(MOST_NAMED);
        files.truncate(MOST_NAMED);
        Obeyed { files, more, unseen: self.unseen }
    }
}

#[cfg(test)]
mod tests;
