//! Finds what rules about any directory of the project are about (docs/decisions/0039). Owns the walk, its bounds and what it
//! left unseen; which rule is about which name is `policy`'s, what follows is the plan's. Called by `survey`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::hash::{Hash, Hasher};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_kernel::mount::open_source;
use cofferdam_plan::{Searched, Unseen};
use cofferdam_policy::decide::index::{is_filled_by_tools, stands_at};
use cofferdam_policy::{ExpandedRule, FileRule, PlacedRule as _, Policy, folds_alike};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, RawDirEntry, ResolveFlags};
use rustix::io::Errno;

use crate::memory::{Identity, Memory, Remembered};

/// Where the search ends. What lies beyond is said, never guessed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) depth: usize,
    pub(crate) entries: usize,
    pub(crate) time: Duration,
    /// So many entries are looked at however long it takes: a busy machine must not make a small project unseen.
    pub(crate) least: usize,
    /// Most names to hide in one directory, and in all of them.
    pub(crate) in_one: usize,
    pub(crate) in_all: usize,
}

pub(crate) const BOUNDS: Bounds =
    Bounds { depth: 16, entries: 50_000, time: Duration::from_millis(50), least: 4096, in_one: 256, in_all: 4096 };

/// How often the clock is looked at within a directory, and how many times as long the search goes on there.
const BETWEEN_LOOKS: usize = 64;
const INSIDE: u32 = 4;

/// The kernel follows as many links on the way to one file.
const MOST_LINKS: usize = 40;

const WITHIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// A rule about any directory of the project, at its place there.
#[derive(Debug)]
pub(crate) struct Sought {
    index: usize,
    at: ExpandedRule,
}

impl Sought {
    pub(crate) fn all(policy: &Policy, project: &Path) -> Vec<Sought> {
        let deep = policy.files.iter().enumerate().filter(|(_, rule)| rule.path.is_deep());
        let at =
            |rule: &FileRule| ExpandedRule { path: project.join(&rule.path.rest), rule: rule.clone(), lifts: false };
        deep.map(|(index, rule)| Sought { index, at: at(rule) }).collect()
    }
}

/// What a memory of a search is about.
impl Hash for Sought {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let ExpandedRule { path, rule, .. } = &self.at;
        (path, rule.path.as_str(), rule.path.except(), rule.access).hash(state);
    }
}

/// What was found for each rule, and how far the search got.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) names: Vec<(usize, PathBuf)>,
    /// Directories that cannot be looked into, and that a session of the same user could open.
    pub(crate) closed: Vec<PathBuf>,
    pub(crate) searched: Searched,
}

/// Searches the project. `memories` is where it is written down which directories need not be listed again.
/// A directory that rules hide is searched only where it or something in it is among what other rules give. `served` are
/// mount points of the host that may never answer: of file systems that a server keeps, and those that mount others.
pub(crate) fn search(
    project: &Path,
    rules: &[Sought],
    given: &[&Path],
    served: &[&Path],
    memories: &Path,
    bounds: Bounds,
) -> Found {
    let mut walk = Walk::new(project, rules, given, served, bounds);
    let Ok(root) = open_source(project) else {
        walk.leave(b"", Unseen::Unreadable);
        return walk.found;
    };
    let (old, place) = Memory::open(memories, project, &root, rules);
    walk.run(&root, &old);
    let directories = walk.queue.iter().map(|directory| (directory.path.as_slice(), directory.now));
    let paths = walk.found.names.iter().map(|(_, path)| path.strip_prefix(project).unwrap_or(path));
    let found = paths.map(|path| path.as_os_str().as_bytes()).collect();
    place.keep(&old, walk.newly, walk.is_cut, directories, &found);
    walk.found
}

/// A directory to look at, and once that is done what is remembered of it. They stand in the order of their depth, and
/// those that lie in one directory stand together.
#[derive(Debug)]
struct Directory {
    path: Vec<u8>,
    depth: usize,
    /// Its number in the old memory.
    known: Option<usize>,
    now: Remembered,
}

struct Walk<'a> {
    project: &'a Path,
    rules: &'a [Sought],
    given: &'a [&'a Path],
    served: &'a [&'a Path],
    letters: Letters,
    bounds: Bounds,
    begin: Instant,
    entries: usize,
    /// Names on the ways of links that were looked at.
    steps: usize,
    queue: Vec<Directory>,
    /// Links to directories that tools fill, and where those lie below the project.
    behind: Vec<(PathBuf, PathBuf)>,
    /// Directories that were listed and need not be the next time.
    newly: usize,
    is_cut: bool,
    noted: BTreeSet<PathBuf>,
    found: Found,
}

impl<'a> Walk<'a> {
    fn new(
        project: &'a Path,
        rules: &'a [Sought],
        given: &'a [&'a Path],
        served: &'a [&'a Path],
        bounds: Bounds,
    ) -> Self {
        Walk {
            project,
            rules,
            given,
            served,
            letters: Letters::of(rules),
            bounds,
            begin: Instant::now(),
            entries: 0,
            steps: 0,
            queue: Vec::new(),
            behind: Vec::new(),
            newly: 0,
            is_cut: false,
            noted: BTreeSet::new(),
            found: Found::default(),
        }
    }

    fn run(&mut self, root: &OwnedFd, old: &Memory) {
        let first = Directory { path: Vec::new(), depth: 0, known: old.first(), now: Remembered::default() };
        self.queue.push(first);
        // Before any bound: a session may have filled the project with what the walk would look at first.
        for path in old.found() {
            self.find_again(root, path);
        }
        let mut at = 0;
        while at < self.queue.len() && self.found.searched.crowded.is_none() {
            if let Some(why) = self.bound() {
                self.is_cut = true;
                for rest in at..self.queue.len() {
                    self.leave_queued(rest, why);
                }
                break;
            }
            self.look(root, at, old);
            at += 1;
        }
        self.found.searched.directories = at;
        // After what the project has under its own names: what tools fill may be without end.
        for (link, below) in std::mem::take(&mut self.behind) {
            self.list_through(root, link, below, None);
        }
    }

    /// Where it is still there, and not in a directory that is hidden as a whole: those come before what lies in them. Nothing
    /// that a server keeps is asked for.
    fn find_again(&mut self, root: &OwnedFd, below: &[u8]) {
        let path = self.path_of(below);
        let is_closed = |above: &Path| self.noted.contains(above) && !self.is_given(above);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let within = WITHIN | ResolveFlags::NO_XDEV;
        if path.ancestors().skip(1).any(is_closed) || self.is_served(&path) {
            return;
        }
        match rustix::fs::openat2(root, OsStr::from_bytes(below), flags, Mode::empty(), within) {
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            // It lies behind a link or in another mount; or it cannot be looked at, which a session may have seen to.
            _ => _ = self.note(&path),
        }
    }

    /// Whether it lies in another file system than the project does, of those that may never answer.
    fn is_served(&self, path: &Path) -> bool {
        let is_below = |point: &&&Path| point.starts_with(self.project) && **point != self.project;
        self.served.iter().filter(is_below).any(|point| path.starts_with(point))
    }

    fn bound(&self) -> Option<Unseen> {
        match self.entries {
            entries if entries >= self.bounds.entries => Some(Unseen::Entries),
            entries if entries >= self.bounds.least && self.begin.elapsed() >= self.bounds.time => Some(Unseen::Time),
            _ => None,
        }
    }

    /// Within a directory the search ends later than between two, because what it leaves there may lie beside what it sees.
    fn bound_inside(&self, before: usize) -> Option<Unseen> {
        let is_many = self.entries - before >= self.bounds.entries;
        let is_late = self.begin.elapsed() >= self.bounds.time * INSIDE;
        (is_many && is_late).then_some(Unseen::Entries)
    }

    /// Joining with nothing would leave a slash at the end.
    fn path_of(&self, below: &[u8]) -> PathBuf {
        if below.is_empty() { self.project.to_path_buf() } else { self.project.join(OsStr::from_bytes(below)) }
    }

    fn leave(&mut self, path: &[u8], why: Unseen) {
        let path = self.path_of(path);
        self.found.searched.leave(path, why);
    }

    fn cut(&mut self, path: PathBuf, why: Unseen) {
        self.is_cut = true;
        self.found.searched.leave(path, why);
    }

    fn leave_queued(&mut self, at: usize, why: Unseen) {
        let path = std::mem::take(&mut self.queue[at].path);
        self.leave(&path, why);
        self.queue[at].path = path;
    }

    fn look(&mut self, root: &OwnedFd, at: usize, old: &Memory) {
        if let Some(known) = self.queue[at].known
            && let Some(identity) = old.unchanged(known, root, &self.queue[at].path)
        {
            self.entries += 1;
            let first = self.queue.len();
            for child in old.children(known) {
                self.enqueue(at, old.name(child), Some(child));
            }
            let count = self.queue.len() - first;
            self.queue[at].now = Remembered { identity: Some(identity), first, count };
            return;
        }
        if !self.served.is_empty() && self.served.contains(&self.path_of(&self.queue[at].path).as_path()) {
            return self.leave_queued(at, Unseen::OtherFileSystem);
        }
        match open(root, &self.queue[at].path) {
            Ok(directory) => self.list(root, &directory, at, old),
            // Gone, or something else by now.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            // The session could open it no more than this process, unless it is the user's own to change.
            Err(Errno::ACCESS) if !is_own(root, &self.queue[at].path) => {}
            Err(Errno::ACCESS) => self.found.closed.push(self.path_of(&self.queue[at].path)),
            Err(_) => self.leave_queued(at, Unseen::Unreadable),
        }
    }

    fn enqueue(&mut self, above: usize, name: &[u8], known: Option<usize>) {
        let above = &self.queue[above];
        let mut path = Vec::with_capacity(above.path.len() + 1 + name.len());
        path.extend_from_slice(&above.path);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let depth = above.depth + 1;
        self.queue.push(Directory { path, depth, known, now: Remembered::default() });
    }

    fn list(&mut self, root: &OwnedFd, directory: &OwnedFd, at: usize, old: &Memory) {
        // Before it is listed: what changes meanwhile has another time the next time.
        let Ok(identity) = Identity::of(directory) else { return self.leave_queued(at, Unseen::Unreadable) };
        let is_deepest = self.queue[at].depth >= self.bounds.depth;
        let (first, before) = (self.queue.len(), self.entries);
        let (mut hides, mut is_whole, mut leads, mut is_left) = (0, true, false, false);
        let mut children = old.children(self.queue[at].known.unwrap_or(usize::MAX));
        let mut buffer = [MaybeUninit::uninit(); 16384];
        let mut entries = RawDir::new(directory, &mut buffer);
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else {
                is_whole = false;
                self.leave_queued(at, Unseen::Unreadable);
                break;
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            self.entries += 1;
            if self.entries.is_multiple_of(BETWEEN_LOOKS)
                && let Some(why) = self.bound_inside(before)
            {
                (is_whole, is_left) = (false, true);
                self.cut(self.path_of(&self.queue[at].path), why);
                break;
            }
            if self.letters.may_be_meant(name) && self.note(&self.path_at(at, name)) {
                hides += 1;
                if self.is_crowded(hides) {
                    self.found.searched.crowded = Some(self.path_of(&self.queue[at].path));
                    return;
                }
                if !self.is_given(&self.path_at(at, name)) {
                    continue;
                }
            }
            let kind = kind_of(directory, &entry);
            if is_filled_by_tools(name) {
                continue;
            }
            if kind == FileType::Symlink {
                match self.follow(root, at, name) {
                    Lead::Out => {}
                    Lead::Within => leads = true,
                    Lead::Left => is_left = true,
                }
            }
            if kind != FileType::Directory {
                continue;
            }
            if is_deepest {
                if is_whole {
                    self.leave_queued(at, Unseen::Depth);
                }
                is_whole = false;
                continue;
            }
            let known = old.find(&mut children, name);
            self.enqueue(at, name, known);
        }
        if is_left {
            hides += self.note_likely(root, &self.path_of(&self.queue[at].path));
        }
        let is_settled = hides == 0 && is_whole && !leads && !is_left && old.can_pass_by(&identity);
        self.newly += usize::from(is_settled);
        let count = self.queue.len() - first;
        self.queue[at].now = Remembered { identity: is_settled.then_some(identity), first, count };
    }

    /// A link to a directory of the project gives what is there names that rules may be about: those of several parts may go on
    /// behind it, and where tools fill the directory nothing of it is looked at under its own names. What a link leads to may
    /// come and go while the directory of the link stays as it is.
    fn follow(&mut self, root: &OwnedFd, at: usize, name: &[u8]) -> Lead {
        let (lead, target) = self.target_of(&self.path_of(&self.queue[at].path), OsStr::from_bytes(name));
        let link = self.path_at(at, name);
        if let Lead::Left = lead {
            self.cut(link, Unseen::Time);
        } else if let Some(below) = target {
            let levels = self.levels_below(name);
            if levels > 0 && !self.list_through(root, link.clone(), below.clone(), Some(levels)) {
                return Lead::Left;
            }
            if below.iter().any(|part| is_filled_by_tools(part.as_bytes())) {
                self.behind.push((link, below));
            }
        }
        lead
    }

    /// Where a link of a directory leads, and the path below the project, whether something is there or not. Each name on the way
    /// is looked at by itself: nothing that may never answer is entered.
    fn target_of(&mut self, directory: &Path, name: &OsStr) -> (Lead, Option<PathBuf>) {
        let parts = |path: &Path| path.iter().map(OsStr::to_os_string).rev().collect::<Vec<_>>();
        let (mut here, mut ahead, mut links) = (directory.to_path_buf(), vec![name.to_os_string()], 0);
        while let Some(part) = ahead.pop() {
            self.steps += 1;
            if self.steps > self.bounds.least && self.begin.elapsed() >= self.bounds.time * INSIDE {
                return (Lead::Left, None);
            }
            match part.as_bytes() {
                b"." => continue,
                b".." => _ = here.pop(),
                _ => here.push(&part),
            }
            if self.served.contains(&here.as_path()) {
                // The walk says that it does not look there.
                return (if here.starts_with(self.project) { Lead::Within } else { Lead::Out }, None);
            }
            let Ok(target) = std::fs::read_link(&here) else { continue };
            links += 1;
            if links > MOST_LINKS {
                return (Lead::Within, None);
            }
            if let Ok(rest) = target.strip_prefix(self.project) {
                here = self.project.to_path_buf();
                ahead.extend(parts(rest));
            } else {
                here.pop();
                ahead.extend(parts(&target));
            }
        }
        match here.strip_prefix(self.project) {
            Ok(below) => (Lead::Within, Some(below.to_path_buf())),
            Err(_) => (Lead::Out, None),
        }
    }

    /// How many parts of a rule may come after a directory of this name; none where no rule of several parts has it.
    fn levels_below(&self, name: &[u8]) -> usize {
        let parts =
            self.rules.iter().flat_map(|rule| rule.at.path.iter().rev().take(rule.at.tail()).enumerate().skip(1));
        parts.filter(|(_, part)| folds_alike(part.as_bytes(), name)).map(|(after, _)| after).max().unwrap_or(0)
    }

    /// What a link leads to, by its names behind the link: all of it, or the rest of rules that begin with the link, so many
    /// levels deep. Whether it was looked at to the end.
    fn list_through(&mut self, root: &OwnedFd, link: PathBuf, below: PathBuf, levels: Option<usize>) -> bool {
        let mut ahead = vec![(link, below, 0)];
        let mut is_whole = true;
        while let Some((link, below, depth)) = ahead.pop() {
            if self.found.searched.crowded.is_some() {
                return false;
            }
            let why = self.bound().or_else(|| (depth >= self.bounds.depth).then_some(Unseen::Depth));
            let why = why.or_else(|| self.is_served(&self.project.join(&below)).then_some(Unseen::OtherFileSystem));
            if let Some(why) = why {
                is_whole = false;
                self.cut(link, why);
                continue;
            }
            match open(root, below.as_os_str().as_bytes()) {
                Ok(directory) => {
                    let least = levels.map_or(1, |_| depth + 2);
                    let names = self.list_behind(root, &directory, &link, least);
                    is_whole &= names.is_some();
                    let goes_on = |name: &OsString| match levels {
                        Some(levels) => depth + 1 < levels && self.levels_below(name.as_bytes()) > 0,
                        None => !is_filled_by_tools(name.as_bytes()),
                    };
                    let names = names.into_iter().flatten().filter(goes_on);
                    ahead.extend(names.map(|name| (link.join(&name), below.join(&name), depth + 1)));
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(Errno::ACCESS) if !is_own(root, below.as_os_str().as_bytes()) => {}
                Err(Errno::ACCESS) => self.found.closed.push(link),
                Err(_) => self.found.searched.leave(link, Unseen::Unreadable),
            }
        }
        is_whole
    }

    /// Lists a directory behind a link for rules of at least so many parts; the directories in it that are not hidden. `None`
    /// where it was not listed to its end.
    fn list_behind(&mut self, root: &OwnedFd, directory: &OwnedFd, link: &Path, least: usize) -> Option<Vec<OsString>> {
        let (before, mut hides, mut found) = (self.entries, 0, Vec::new());
        let mut buffer = [MaybeUninit::uninit(); 16384];
        let mut entries = RawDir::new(directory, &mut buffer);
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else {
                self.cut(link.to_path_buf(), Unseen::Unreadable);
                return None;
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            self.entries += 1;
            if self.entries.is_multiple_of(BETWEEN_LOOKS)
                && let Some(why) = self.bound_inside(before)
            {
                self.cut(link.to_path_buf(), why);
                self.note_likely(root, link);
                return None;
            }
            let path = link.join(OsStr::from_bytes(name));
            if self.letters.may_be_meant(name) && self.note_of(&path, least) {
                hides += 1;
                if self.is_crowded(hides) {
                    self.found.searched.crowded = Some(link.to_path_buf());
                    return None;
                }
                if !self.is_given(&path) {
                    continue;
                }
            }
            if kind_of(directory, &entry) == FileType::Directory {
                found.push(OsStr::from_bytes(name).to_os_string());
            }
        }
        Some(found)
    }

    fn is_crowded(&self, in_one: usize) -> bool {
        in_one > self.bounds.in_one || self.found.names.len() > self.bounds.in_all
    }

    /// In a directory that was not listed to its end: the names that rules spell out, and patterns without their stars. What lies
    /// behind a link out of the project or in another mount counts as there: a rule about what is missing covers nothing.
    fn note_likely(&mut self, root: &OwnedFd, path: &Path) -> usize {
        let spelled = |rule: &Sought| {
            let parts: Vec<&OsStr> = rule.at.path.iter().rev().take(rule.at.tail()).collect();
            let (last, before) = parts.split_first()?;
            let last: Vec<u8> = last.as_bytes().iter().copied().filter(|byte| *byte != b'*').collect();
            let before: PathBuf = before.iter().rev().collect();
            (!last.is_empty()).then(|| before.join(OsStr::from_bytes(&last)))
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let exists = |path: &PathBuf| {
            let below = path.strip_prefix(self.project).unwrap_or(path);
            let found = rustix::fs::openat2(root, below, flags, Mode::empty(), within);
            !matches!(found, Err(Errno::NOENT | Errno::NOTDIR))
        };
        let paths = self.rules.iter().filter_map(spelled).map(|name| path.join(name));
        let paths: BTreeSet<PathBuf> = paths.filter(exists).collect();
        paths.iter().filter(|path| !self.noted.contains(*path) && self.note(path)).count()
    }

    fn is_given(&self, path: &Path) -> bool {
        self.given.iter().any(|given| given.starts_with(path))
    }

    fn path_at(&self, at: usize, name: &[u8]) -> PathBuf {
        self.path_of(&self.queue[at].path).join(OsStr::from_bytes(name))
    }

    /// Writes down which rules are about a path; whether there are any.
    fn note(&mut self, path: &Path) -> bool {
        self.note_of(path, 1)
    }

    /// The same of rules with at least so many parts.
    fn note_of(&mut self, path: &Path, parts: usize) -> bool {
        if self.noted.contains(path) {
            return true;
        }
        let before = self.found.names.len();
        let about = self.rules.iter().filter(|rule| rule.at.tail() >= parts && stands_at(&rule.at, path));
        let about = about.map(|rule| rule.index);
        self.found.names.extend(about.map(|index| (index, path.to_path_buf())));
        let is_meant = self.found.names.len() > before;
        if is_meant {
            self.noted.insert(path.to_path_buf());
        }
        is_meant
    }
}

/// Where a link leads.
enum Lead {
    Out,
    /// Into the project, or it may come to do so.
    Within,
    /// It was not followed to the end.
    Left,
}

fn kind_of(directory: &OwnedFd, entry: &RawDirEntry<'_>) -> FileType {
    match entry.file_type() {
        FileType::Unknown => rustix::fs::statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
        kind => kind,
    }
}

fn is_own(root: &OwnedFd, path: &[u8]) -> bool {
    let found = rustix::fs::statat(root, OsStr::from_bytes(path), AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH);
    found.map_or(true, |found| found.st_uid == rustix::process::getuid().as_raw())
}

fn open(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let name = OsStr::from_bytes(if path.is_empty() { b"." } else { path });
    rustix::fs::openat2(root, name, flags, Mode::empty(), WITHIN)
}

/// With which letters a name begins or ends that a rule may be about: a first look at tens of thousands of names.
struct Letters {
    first: [bool; 256],
    last: [bool; 256],
}

impl Letters {
    fn of(rules: &[Sought]) -> Self {
        let mut letters = Letters { first: [false; 256], last: [false; 256] };
        for rule in rules {
            let name = rule.at.path.file_name().map_or(Cow::Borrowed(""), OsStr::to_string_lossy).to_ascii_lowercase();
            let is_star = |byte: Option<&u8>| rule.at.is_glob() && byte == Some(&b'*');
            match (name.as_bytes().first(), name.as_bytes().last()) {
                // Only names in ASCII fold to letters in ASCII and to nothing else.
                (Some(_), _) if !name.is_ascii() => letters.first = [true; 256],
                (Some(first), _) if !is_star(Some(first)) => letters.first[usize::from(*first)] = true,
                (_, Some(last)) if !is_star(Some(last)) => letters.last[usize::from(*last)] = true,
                _ => letters.first = [true; 256],
            }
        }
        letters
    }

    fn may_be_meant(&self, name: &[u8]) -> bool {
        let has = |table: &[bool; 256], byte: Option<&u8>| {
            byte.is_some_and(|byte| table[usize::from(byte.to_ascii_lowercase())])
        };
        has(&self.first, name.first()) || has(&self.last, name.last()) || !name.is_ascii()
    }
}

#[cfg(test)]
mod tests;
