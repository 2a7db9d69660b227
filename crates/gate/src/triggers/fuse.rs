//! The first trigger: the sandbox's root is a FUSE file system, served here in the supervisor's thread. Names and modes are
//! answered at once, opens are asked; what is granted is mounted on top, so none of this is met twice. Owns node numbers
//! and open handles. Driven by `Gate`.
//!
//! Questions are only ever asked at OPEN and OPENDIR: a thread that waits there holds no lock of a directory, so others
//! that want the same name go on. Written through this file system are only files that an answer made (`made`).

mod changes;
pub(crate) mod made;
mod wire;

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use cofferdam_policy::{Metadata, Ruling};
use cofferdam_wire::Op;
use made::{Made, MadeFile};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use wire::{Attr, Body, Listing, Name, Out, ROOT, Request};

use crate::host_files;
use crate::host_files::masked::masked_at;
use crate::path_rules::{PathRules, Standing};
use crate::triggers::{Access, Answer, CallId, Noticed, Trigger};

/// For how long the kernel may take a name for known, in seconds. What a name stands for is looked at again at its open.
const NAMES: u64 = 3600;
/// Requests taken at one turn, so that the rest of the supervisor comes to its own.
const AT_ONCE: usize = 64;
/// Names that are remembered at once. A workload that makes the kernel hold on to more is refused further ones.
const MOST_NODES: usize = 1 << 18;
/// Files and listings that are open through here at once; each costs the supervisor a descriptor or memory.
const MOST_HANDLES: usize = 256;
const ACCESS_MODE: u32 = 3;
/// Files that the session made and that are served, each by a descriptor of the supervisor's; further ones are mounted.
const MOST_FILES: usize = 128;
/// Directories of the session alone.
const MOST_DIRECTORIES: usize = 4096;
/// Flags of a renaming call; no other one is known.
const NO_REPLACE: u32 = 1;
const MODE_DIRECTORY: u32 = 0o040_000;
const MODE_TYPE: u32 = 0o170_000;
const MODE_FILE: u32 = 0o100_000;
const WRITABLE: u32 = 0o222;

#[derive(Debug)]
struct Node {
    path: PathBuf,
    ruling: Ruling,
    /// References that the kernel holds.
    lookups: u64,
    made: Made,
    /// Its content goes through here, so its size must be the real one.
    is_served: bool,
}

#[derive(Debug)]
enum Handle {
    File(OwnedFd),
    Made(Rc<MadeFile>),
    /// What a masked file read as when it was opened.
    Text(String),
    Names(Vec<Name>),
}

/// A request that waits for a verdict.
#[derive(Debug)]
enum Waiting {
    Open {
        node: u64,
        is_dir: bool,
    },
    /// A look at a directory of the session alone.
    Attributes {
        node: u64,
    },
    MakeDirectory {
        path: PathBuf,
        ruling: Ruling,
        mode: u32,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Sync,
}

#[derive(Debug)]
pub(crate) struct Fuse {
    device: OwnedFd,
    nodes: HashMap<u64, Node>,
    by_path: HashMap<PathBuf, u64>,
    /// Paths whose nodes are the session's own, as files and as directories.
    made_files: BTreeSet<PathBuf>,
    /// One reference for each file that is held, also of those whose name is gone.
    held: Rc<()>,
    made_directories: BTreeSet<PathBuf>,
    next_node: u64,
    handles: HashMap<u64, Handle>,
    next_handle: u64,
    waiting: HashMap<u64, Waiting>,
    metadata: Metadata,
    identity: Identity,
    buffer: Vec<u8>,
}

/// Whose file a file is, as far as the sandbox is concerned: it knows one user and one group.
#[derive(Debug)]
struct Identity {
    gid: u32,
    groups: Vec<u32>,
}

impl Identity {
    fn look() -> Self {
        let groups = rustix::process::getgroups().unwrap_or_default();
        Identity {
            gid: rustix::process::getgid().as_raw(),
            groups: groups.into_iter().map(rustix::process::Gid::as_raw).collect(),
        }
    }

    /// A group that this user is in by a further membership has no number inside; it counts as the user's own.
    fn group(&self, gid: u32) -> u32 {
        if self.groups.contains(&gid) { self.gid } else { gid }
    }
}

impl Fuse {
    pub(crate) fn new(device: OwnedFd, metadata: Metadata) -> Self {
        let root = Node { path: PathBuf::from("/"), ruling: None, lookups: 1, made: Made::Nothing, is_served: false };
        Fuse {
            device,
            nodes: HashMap::from([(ROOT, root)]),
            by_path: HashMap::from([(PathBuf::from("/"), ROOT)]),
            made_files: BTreeSet::new(),
            held: Rc::new(()),
            made_directories: BTreeSet::new(),
            next_node: ROOT + 1,
            handles: HashMap::new(),
            next_handle: 1,
            waiting: HashMap::new(),
            metadata,
            identity: Identity::look(),
            buffer: vec![0; wire::BUFFER],
        }
    }

    fn reply(&self, unique: u64, result: Result<&[u8], Errno>) -> Result<(), Errno> {
        match rustix::io::write(&self.device, &wire::reply(unique, result)) {
            // The process that asked was killed before this was said.
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn handle(&mut self, request: Request, rules: &PathRules) -> Result<Option<Noticed>, Errno> {
        let Request { unique, node, thread, body } = request;
        let result = match body {
            Body::Init { flags, readahead } => Ok(Out::init(flags, readahead)),
            Body::Lookup { name } => {
                let result = self.lookup(node, &name, rules);
                self.reply(unique, result.as_deref().map_err(|errno| *errno))?;
                return Ok(self.hidden(node, &name, rules).map(|path| Noticed::Hidden { path, thread }));
            }
            Body::GetAttr if self.is_made_directory(node) => return Ok(Some(self.look(unique, node, thread))),
            Body::GetAttr => self.attributes(node, rules),
            Body::ReadLink => self.link(node),
            Body::StatFs => Ok(Out::statfs()),
            Body::Read { handle, offset, size } => self.read(handle, offset, size),
            Body::ReadDir { handle, offset, size, plus } => self.list(node, handle, offset, (size, plus), rules),
            Body::Release { handle } => {
                self.handles.remove(&handle);
                Ok(Vec::new())
            }
            Body::Destroy => Ok(Vec::new()),
            Body::Mknod { name, mode } => self.want(node, &name, mode, rules),
            Body::Create | Body::Other => Err(Errno::NOSYS),
            Body::Forget { count } => {
                self.forget(node, count);
                return Ok(None);
            }
            Body::ForgetMany(nodes) => {
                for (node, count) in nodes {
                    self.forget(node, count);
                }
                return Ok(None);
            }
            Body::Interrupt { unique } => {
                return Ok(self.waiting.contains_key(&unique).then_some(Noticed::Interrupted(CallId(unique))));
            }
            Body::Open { flags } => return Ok(Some(self.ask(unique, node, thread, flags, false))),
            Body::OpenDir if self.is_made_directory(node) => self.open_made(node),
            Body::OpenDir => return Ok(Some(self.ask(unique, node, thread, 0, true))),
            Body::MakeDirectory { name, mode } => {
                return self.want_directory(unique, (node, &name), mode, thread, rules);
            }
            Body::Rename { name, to, flags } => return self.want_name(unique, (node, &name), to, flags, thread),
            Body::Remove { name } => return self.remove(unique, (node, &name), thread),
            Body::RemoveDirectory { name } => return self.remove_directory(unique, (node, &name), thread),
            Body::SetAttributes(wanted) => return self.set_attributes(unique, node, &wanted, thread, rules),
            Body::Write { handle, offset, data } => self.write(handle, offset, &data),
            Body::Sync { handle } => match self.handles.get(&handle) {
                Some(Handle::Made(file)) => {
                    let file = Rc::clone(file);
                    self.waiting.insert(unique, Waiting::Sync);
                    return Ok(Some(Noticed::Sync(CallId(unique), file)));
                }
                _ => Ok(Vec::new()),
            },
            Body::Change { what, name } => {
                let path = self.path_of(node, name.as_deref());
                return self.refuse_change(unique, what, path, thread);
            }
        };
        self.reply(unique, result.as_deref().map_err(|errno| *errno))?;
        Ok(None)
    }

    fn path_of(&self, node: u64, name: Option<&[u8]>) -> Option<PathBuf> {
        let path = &self.nodes.get(&node)?.path;
        Some(name.map_or_else(|| path.clone(), |name| path.join(OsStr::from_bytes(name))))
    }

    fn ask(&mut self, unique: u64, node: u64, thread: u32, flags: u32, is_dir: bool) -> Noticed {
        let (path, wanted) = match self.nodes.get(&node) {
            Some(Node { path, made: Made::Wanted { mode }, .. }) => (path.clone(), Some(*mode)),
            Some(node) => (node.path.clone(), None),
            None => (PathBuf::from("/"), None),
        };
        let op = match () {
            () if is_dir => Op::List,
            () if wanted.is_some() => Op::Create,
            () if flags & wire::EXEC != 0 => Op::Exec,
            () if flags & ACCESS_MODE != 0 => Op::Write,
            () => Op::Read,
        };
        self.waiting.insert(unique, Waiting::Open { node, is_dir });
        let mode = wanted.unwrap_or(0);
        Noticed::Access(Access { call: CallId(unique), op, path, mode, flags, thread })
    }

    /// What a name in a directory stands for, if the sandbox may know of it.
    fn find(&self, directory: u64, name: &[u8], rules: &PathRules) -> Result<(PathBuf, Ruling, Attr), Errno> {
        let parent = self.nodes.get(&directory).ok_or(Errno::STALE)?;
        let name = OsStr::from_bytes(name);
        // The sandbox's own file systems lie on these; nothing of the host's is below.
        if rules.is_own(&parent.path) {
            return Err(Errno::NOENT);
        }
        let path = parent.path.join(name);
        let ruling = rules.child(&parent.path, parent.ruling, name);
        if rules.standing(ruling) == Standing::Hidden && !rules.is_on_the_way(&path) {
            return Err(Errno::NOENT);
        }
        let known = self.by_path.get(&path).and_then(|node| self.nodes.get(node));
        let standing = rules.standing(ruling);
        let attr = match (host_files::stat(&path), known) {
            (Ok(stat), _) if standing == Standing::Masked => self.masked_attr(&path, &stat)?,
            (Ok(stat), known) => {
                let is_made = known.is_some_and(|node| matches!(&node.made, Made::File(file) if file.is(&stat)));
                self.attr(&stat, standing, is_made || known.is_some_and(|node| node.is_served))
            }
            (Err(Errno::NOENT | Errno::NOTDIR), Some(node)) if !matches!(node.made, Made::Nothing | Made::File(_)) => {
                self.made_attr(&path, &node.made)
            }
            (Err(errno), _) => return Err(errno),
        };
        Ok((path, ruling, attr))
    }

    fn lookup(&mut self, directory: u64, name: &[u8], rules: &PathRules) -> Result<Vec<u8>, Errno> {
        self.forget_replaced(directory, name);
        match self.find(directory, name, rules) {
            Ok((path, ..)) if self.is_full(&path) => Err(Errno::NOMEM),
            Ok((path, ruling, attr)) => {
                let node = self.refer(path, ruling);
                let seconds = self.seconds(node, &attr);
                Ok(Out::entry(node, &attr, seconds.0, seconds.1))
            }
            // Never known for missing: an answer may have had it made behind a mount, where a save would take it for absent.
            Err(Errno::NOENT) => Ok(Out::no_entry(0)),
            Err(errno) => Err(errno),
        }
    }

    /// The path of a name that exists and is hidden by a rule of its own.
    fn hidden(&self, directory: u64, name: &[u8], rules: &PathRules) -> Option<PathBuf> {
        let parent = self.nodes.get(&directory)?;
        let name = OsStr::from_bytes(name);
        let ruling = rules.child(&parent.path, parent.ruling, name);
        let path = parent.path.join(name);
        let is_hidden = rules.standing(ruling) == Standing::Hidden && !rules.is_on_the_way(&path);
        (is_hidden && host_files::stat(&path).is_ok()).then_some(path)
    }

    fn is_full(&self, path: &Path) -> bool {
        self.nodes.len() >= MOST_NODES && !self.by_path.contains_key(path)
    }

    /// For how long a name and its attributes may be taken for known.
    fn seconds(&self, node: u64, attr: &Attr) -> (u64, u64) {
        // What the session makes may be removed and made again; a look at a directory of its own may be the way into it.
        let is_made = self.nodes.get(&node).is_some_and(|node| !node.made.is_nothing());
        let is_file = attr.mode & MODE_TYPE == MODE_FILE;
        (if is_made { 0 } else { NAMES }, if is_file || is_made { 0 } else { NAMES })
    }

    /// One more reference of the kernel's to the node of a path. A path keeps its number as long as there is one: the
    /// kernel takes a mount off a name whose number has changed.
    fn refer(&mut self, path: PathBuf, ruling: Ruling) -> u64 {
        if let Some(number) = self.by_path.get(&path) {
            if let Some(node) = self.nodes.get_mut(number) {
                node.lookups += 1;
                node.ruling = ruling;
            }
            return *number;
        }
        let number = self.next_node;
        self.next_node += 1;
        self.by_path.insert(path.clone(), number);
        self.nodes.insert(number, Node { path, ruling, lookups: 1, made: Made::Nothing, is_served: false });
        number
    }

    fn forget(&mut self, number: u64, count: u64) {
        let Some(node) = self.nodes.get_mut(&number).filter(|_| number != ROOT) else { return };
        node.lookups = node.lookups.saturating_sub(count);
        // A name that was removed may be that of another node by now.
        let is_named = self.by_path.get(&node.path) == Some(&number);
        let is_made = self.made_files.contains(&node.path) || self.made_directories.contains(&node.path);
        if node.lookups == 0 && !(is_named && is_made) {
            if is_named {
                self.by_path.remove(&node.path);
            }
            self.nodes.remove(&number);
        }
    }

    fn attributes(&self, number: u64, rules: &PathRules) -> Result<Vec<u8>, Errno> {
        let node = self.nodes.get(&number).ok_or(Errno::STALE)?;
        let attr = match (host_files::stat(&node.path), &node.made) {
            (_, Made::File(file)) => self.attr(&file.stat()?, Standing::Readable, true),
            (Ok(stat), _) if rules.standing(node.ruling) == Standing::Masked => self.masked_attr(&node.path, &stat)?,
            (Ok(stat), _) => self.attr(&stat, rules.standing(node.ruling), node.is_served),
            (Err(errno), Made::Nothing) => return Err(errno),
            (Err(_), made) => self.made_attr(&node.path, made),
        };
        Ok(Out::attributes(&attr, self.seconds(number, &attr).1))
    }

    fn attr(&self, stat: &Stat, standing: Standing, is_served: bool) -> Attr {
        let is_shown = self.metadata == Metadata::Visible || standing == Standing::Readable || is_served;
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        let time = u64::try_from(stat.st_mtime).unwrap_or(0);
        Attr {
            ino: stat.st_ino,
            size: if is_shown || is_link { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 },
            mtime: if is_shown { (time, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)) } else { (0, 0) },
            mode: stat.st_mode,
            links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            uid: stat.st_uid,
            gid: self.identity.group(stat.st_gid),
        }
    }

    /// Of a file that reads without its secrets: its size is that of what is read. What a link leads to has a rule of its own.
    fn masked_attr(&self, path: &Path, stat: &Stat) -> Result<Attr, Errno> {
        let attr = self.attr(stat, Standing::Masked, true);
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            return Ok(attr);
        }
        let text = masked_at(path).ok_or(Errno::NOENT)?;
        Ok(Attr { size: u64::try_from(text.len()).unwrap_or(0), mode: attr.mode & !WRITABLE, ..attr })
    }

    /// Of what is not on the host.
    fn made_attr(&self, path: &Path, made: &Made) -> Attr {
        let (mode, links) = match made {
            Made::Directory { mode } => (MODE_DIRECTORY | mode & 0o777, 2),
            Made::Wanted { mode } => (MODE_FILE | mode & 0o777, 1),
            Made::Nothing | Made::File(_) => (MODE_FILE, 1),
        };
        // Programs take directories with one number for a circle.
        let ino = self.by_path.get(path).map_or(0, |number| 1 << 62 | number);
        let uid = rustix::process::getuid().as_raw();
        Attr { ino, mode, links, uid, gid: self.identity.gid, ..Attr::default() }
    }

    fn link(&self, node: u64) -> Result<Vec<u8>, Errno> {
        let node = self.nodes.get(&node).ok_or(Errno::STALE)?;
        Ok(host_files::link(&node.path)?.into_os_string().into_vec())
    }

    /// A program wants to make a file: it appears to it, and is asked about when it is opened.
    fn want(&mut self, directory: u64, name: &[u8], mode: u32, rules: &PathRules) -> Result<Vec<u8>, Errno> {
        if mode & MODE_TYPE != MODE_FILE {
            return Err(Errno::PERM);
        }
        let parent = self.nodes.get(&directory).ok_or(Errno::STALE)?;
        let name = OsString::from_vec(name.to_vec());
        let path = parent.path.join(&name);
        let ruling = rules.child(&parent.path, parent.ruling, &name);
        if rules.is_own(&parent.path) || matches!(rules.standing(ruling), Standing::Hidden | Standing::Masked) {
            return Err(Errno::ACCESS);
        }
        if host_files::stat(&path).is_ok() || self.made_directories.contains(&path) {
            return Err(Errno::EXIST);
        }
        if self.is_full(&path) {
            return Err(Errno::DQUOT);
        }
        let number = self.refer(path.clone(), ruling);
        let Some(node) = self.nodes.get_mut(&number) else { return Err(Errno::STALE) };
        node.made = Made::Wanted { mode };
        let attr = self.made_attr(&path, &Made::Wanted { mode });
        Ok(Out::entry(number, &attr, 0, 0))
    }

    fn keep(&mut self, handle: Handle) -> Vec<u8> {
        let number = self.next_handle;
        self.next_handle += 1;
        self.handles.insert(number, handle);
        Out::opened(number)
    }

    fn serve(
        &mut self,
        number: u64,
        is_dir: bool,
        identity: Option<(u64, u64)>,
        rules: &PathRules,
    ) -> Result<Vec<u8>, Errno> {
        if self.handles.len() >= MOST_HANDLES {
            return Err(Errno::NFILE);
        }
        let node = self.nodes.get_mut(&number).ok_or(Errno::STALE)?;
        if let Made::File(file) = &node.made {
            let file = Rc::clone(file);
            return Ok(self.keep(Handle::Made(file)));
        }
        if is_dir {
            let path = node.path.clone();
            let names = self.visible_names(&path, rules)?;
            return Ok(self.keep(Handle::Names(names)));
        }
        if rules.standing(node.ruling) == Standing::Masked {
            let text = masked_at(&node.path).ok_or(Errno::ACCESS)?;
            return Ok(self.keep(Handle::Text(text)));
        }
        let file = host_files::open_same(&node.path, identity.ok_or(Errno::STALE)?)?;
        node.is_served = true;
        Ok(self.keep(Handle::File(file)))
    }

    fn serve_way(&mut self, number: u64, rules: &PathRules) -> Result<Vec<u8>, Errno> {
        if self.handles.len() >= MOST_HANDLES {
            return Err(Errno::NFILE);
        }
        let path = self.nodes.get(&number).ok_or(Errno::STALE)?.path.clone();
        let made: Vec<Vec<u8>> = self.names_made_in(&path).into_iter().map(|name| name.bytes).collect();
        let mut names = self.visible_names(&path, rules)?;
        names.retain(|name| {
            let full = path.join(OsStr::from_bytes(&name.bytes));
            let is_dots = name.bytes == b"." || name.bytes == b"..";
            is_dots || made.contains(&name.bytes) || rules.is_on_the_way(&full) || rules.gives(&full)
        });
        Ok(self.keep(Handle::Names(names)))
    }

    /// The names of a directory without those that are hidden.
    fn visible_names(&self, path: &Path, rules: &PathRules) -> Result<Vec<Name>, Errno> {
        let ruling = self.by_path.get(path).and_then(|node| self.nodes.get(node)).and_then(|node| node.ruling);
        let mut names = Vec::new();
        for (name, ino, kind) in host_files::names(path)? {
            let is_dots = name == b"." || name == b"..";
            let full = path.join(OsStr::from_bytes(&name));
            let standing = rules.standing(rules.child(path, ruling, OsStr::from_bytes(&name)));
            let is_hidden = standing == Standing::Hidden && !rules.is_on_the_way(&full);
            if is_dots || !is_hidden {
                names.push(Name { bytes: name, ino, kind });
            }
        }
        let made =
            self.names_made_in(path).into_iter().filter(|made| !names.iter().any(|name| name.bytes == made.bytes));
        let made: Vec<Name> = made.collect();
        names.extend(made);
        Ok(names)
    }

    fn read(&self, handle: u64, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let file = match self.handles.get(&handle) {
            Some(Handle::File(file)) => file,
            Some(Handle::Made(made)) => &made.file,
            Some(Handle::Text(text)) => {
                let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
                let end = begin.saturating_add(usize::try_from(size).unwrap_or(0)).min(text.len());
                return Ok(text.as_bytes()[begin..end].to_vec());
            }
            _ => return Err(Errno::BADF),
        };
        let mut data = vec![0; usize::try_from(size).unwrap_or(0).min(1 << 20)];
        let mut filled = 0;
        // The kernel takes a short answer for the end of the file.
        while filled < data.len() {
            let at = offset + u64::try_from(filled).unwrap_or(0);
            match rustix::io::pread(file, &mut data[filled..], at) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        data.truncate(filled);
        Ok(data)
    }

    fn list(
        &mut self,
        directory: u64,
        handle: u64,
        offset: u64,
        (size, plus): (u32, bool),
        rules: &PathRules,
    ) -> Result<Vec<u8>, Errno> {
        let Some(Handle::Names(names)) = self.handles.get(&handle) else { return Err(Errno::BADF) };
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(names.len());
        let names: Vec<Name> = names[start..].to_vec();
        let mut listing = Listing::new(size);
        for (name, next) in names.iter().zip(offset + 1..) {
            if !listing.has_room(name, plus) {
                break;
            }
            let is_dots = name.bytes == b"." || name.bytes == b"..";
            let found = if plus && !is_dots { self.find(directory, &name.bytes, rules).ok() } else { None };
            let entry = found.map(|(path, ruling, attr)| {
                let node = self.refer(path, ruling);
                (node, attr, self.seconds(node, &attr))
            });
            listing.push(name, next, entry.as_ref().map(|(node, attr, seconds)| (*node, attr, *seconds)), plus);
        }
        Ok(listing.bytes())
    }
}

impl Trigger for Fuse {
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.device.as_fd())
    }

    fn turn(&mut self, rules: &PathRules, most: usize) -> Result<Vec<Noticed>, Errno> {
        let mut noticed = Vec::new();
        for _ in 0..AT_ONCE.min(most) {
            let mut buffer = std::mem::take(&mut self.buffer);
            let read = rustix::io::read(&self.device, &mut buffer);
            let request = read.map(|length| Request::parse(&buffer[..length]));
            self.buffer = buffer;
            match request {
                Ok(Some(request)) => noticed.extend(self.handle(request, rules)?),
                // A request that went away while it was read, or one that cannot be understood.
                Ok(None) | Err(Errno::NOENT | Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(noticed)
    }

    fn answer(&mut self, call: CallId, answer: Answer, rules: &PathRules) -> Result<(), Errno> {
        let Some(waiting) = self.waiting.remove(&call.0) else { return Ok(()) };
        let result = match (answer, &waiting) {
            (Answer::Again, _) => Err(Errno::STALE),
            (Answer::Refuse(errno), _) => Err(errno),
            (Answer::Serve { identity }, Waiting::Open { node, is_dir }) => self.serve(*node, *is_dir, identity, rules),
            (Answer::Way, Waiting::Open { node, is_dir: true }) => self.serve_way(*node, rules),
            (Answer::Serve { .. } | Answer::Way | Answer::Go, _) => self.go(&waiting, rules),
        };
        if let Waiting::Open { node, .. } = waiting
            && let Some(node) = self.nodes.get_mut(&node)
            && matches!(node.made, Made::Wanted { .. })
        {
            node.made = Made::Nothing;
        }
        self.reply(call.0, result.as_deref().map_err(|errno| *errno))
    }

    fn made_directory(&self, path: &Path) -> Option<PathBuf> {
        let is_made = |above: &&Path| self.made_directories.contains(*above) && host_files::stat(above).is_err();
        path.ancestors().filter(is_made).last().map(Path::to_path_buf)
    }

    fn made_in(&self, tree: &Path) -> Vec<(PathBuf, u32)> {
        let inside = self.made_directories.iter().filter(|made| made.starts_with(tree));
        let modes = inside.filter_map(|made| match self.nodes.get(self.by_path.get(made)?)?.made {
            Made::Directory { mode } => Some((made.clone(), mode)),
            _ => None,
        });
        modes.collect()
    }

    fn opened(&self, call: CallId) -> Option<PathBuf> {
        match self.waiting.get(&call.0)? {
            Waiting::Open { node, is_dir: false } => self.path_of(*node, None),
            _ => None,
        }
    }

    fn is_made(&self, path: &Path) -> bool {
        self.made_file(path).is_some_and(|file| !file.is_for_once)
    }

    fn make(&mut self, access: &Access, directory: (u64, u64), is_for_once: bool) -> Result<bool, Errno> {
        let Some(Waiting::Open { node: number, .. }) = self.waiting.get(&access.call.0) else { return Ok(false) };
        let Some(node) = self.nodes.get_mut(number).filter(|node| matches!(node.made, Made::Wanted { .. })) else {
            return Ok(false);
        };
        if Rc::strong_count(&self.held) > MOST_FILES || node.path != access.path {
            return Ok(false);
        }
        node.made = Made::File(Rc::new(MadeFile::make(&access.path, access.mode, directory, is_for_once, &self.held)?));
        self.made_files.insert(access.path.clone());
        Ok(true)
    }

    fn can_serve(&self) -> bool {
        true
    }
}
