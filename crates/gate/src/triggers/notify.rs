//! The second trigger, for machines without /dev/fuse: opening calls are reported by the system call filter. The root is a
//! file system with nothing on it but mount points, so that what the kernel does after a call was let go is bounded by what
//! is mounted, whatever its arguments say by then. Owns reading the calls, and the place-holders that names need to be
//! found. Driven by `Gate`.
//!
//! A path that is read from a process is only ever used to know what to ask.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use cofferdam_kernel::best_effort;
use cofferdam_kernel::seccomp::{Listener, Notification};
use cofferdam_plan::seccomp::name_of;
use cofferdam_wire::Op;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::host_files;
use crate::path_rules::{PathRules, Standing};
use crate::triggers::{Access, Answer, CallId, Noticed, Trigger};

const MOST_PATH: usize = 4096;
const MOST_LINKS: usize = 40;
/// A script whose interpreter is a script is looked at again; a chain longer than the kernel's own is not.
const MOST_LOOKS: u8 = 6;
/// Names of a directory that are shown without being given.
const MOST_NAMES: usize = 4096;
/// Place-holders of directories: inside they are on a read-only mount, and here the user must be able to fill them.
const PASSABLE: Mode = Mode::from_raw_mode(0o311);
const LISTABLE: Mode = Mode::from_raw_mode(0o755);
const AT_FDCWD: i32 = -100;
const O_ACCMODE: u64 = 3;
const O_CREAT: u64 = 0o100;
// Its bit is not the same on every machine.
const O_DIRECTORY: u64 = OFlags::DIRECTORY.bits() as u64;
const O_PATH: u64 = 0o10_000_000;

/// What a call wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Open {
        flags: u64,
        mode: u32,
    },
    Start,
    /// Names, modes, sizes: nothing that is asked about.
    Look,
}

#[derive(Debug)]
struct Waiting {
    notification: Notification,
    looks: u8,
    is_listing: bool,
    path: PathBuf,
}

#[derive(Debug)]
pub(crate) struct Notify {
    /// The root as it can be changed from outside; inside it is read-only.
    root: OwnedFd,
    device: u64,
    listener: Option<Listener>,
    incoming: VecDeque<(Notification, u8)>,
    waiting: HashMap<u64, Waiting>,
    probed: HashSet<PathBuf>,
}

impl Notify {
    pub(crate) fn new(root: OwnedFd) -> Result<Self, Errno> {
        let device = rustix::fs::fstat(&root)?.st_dev;
        let notify = Notify {
            root,
            device,
            listener: None,
            incoming: VecDeque::new(),
            waiting: HashMap::new(),
            probed: HashSet::new(),
        };
        // The kernel itself looks for loaders and interpreters, and no call reports that.
        for (name, _, _) in host_files::names(Path::new("/"))? {
            let link = Path::new("/").join(OsStr::from_bytes(&name));
            if let Ok(target) = host_files::link(&link) {
                notify.make_link(&link, &target);
            }
        }
        Ok(notify)
    }

    fn go_on(&self, id: u64) -> Result<(), Errno> {
        self.listener.as_ref().map_or(Ok(()), |listener| listener.go_on(id))
    }

    fn refuse(&self, id: u64, errno: Errno) -> Result<(), Errno> {
        self.listener.as_ref().map_or(Ok(()), |listener| listener.refuse_with(id, errno))
    }

    /// What one call is about; nothing where it was let go.
    fn look_at(&mut self, notification: Notification, looks: u8, rules: &PathRules) -> Result<Option<Noticed>, Errno> {
        let id = notification.id;
        let Some(Call { wish, path, base }) = Call::read(&notification) else {
            // Nothing to ask about: no path, or one that cannot be read. The kernel will say so.
            self.go_on(id)?;
            return Ok(None);
        };
        // Between the number of a process and what was read of it another process may have got the number.
        if !self.listener.as_ref().is_some_and(|listener| listener.is_waiting(id)) {
            return Ok(None);
        }
        let real = match self.resolve(notification.pid, &path, rules) {
            Found::Inside => {
                if let Some(base) = base {
                    self.lead_on(&base, &path, rules);
                }
                None
            }
            Found::Outside(real) => Some(real),
            Found::Nowhere => {
                self.go_on(id)?;
                return Ok(None);
            }
            Found::Hidden(path) => {
                self.go_on(id)?;
                let is_new = self.probed.len() < MOST_NAMES && self.probed.insert(path.clone());
                return Ok(is_new.then_some(Noticed::Hidden { path, thread: notification.pid }));
            }
        };
        let real = match (real, wish) {
            (None, Wish::Start) => match self.interpreter(notification.pid, &path, rules) {
                Some(interpreter) => interpreter,
                None => return self.go_on(id).map(|()| None),
            },
            (None, _) => return self.go_on(id).map(|()| None),
            (Some(real), _) => real,
        };
        self.hold_place(&real);
        let Some(op) = op_of(wish, &real) else { return self.go_on(id).map(|()| None) };
        let (flags, mode) = match wish {
            Wish::Open { flags, mode } => (u32::try_from(flags & 0xffff_ffff).unwrap_or(0), mode),
            Wish::Start | Wish::Look => (0, 0),
        };
        let access = Access { call: CallId(id), op, path: real.clone(), mode, flags, thread: notification.pid };
        self.waiting.insert(id, Waiting { notification, looks, is_listing: op == Op::List, path: real });
        Ok(Some(Noticed::Access(access)))
    }

    /// Where a path leads: to something that the sandbox has already, or to something of the host's that it has not.
    fn resolve(&self, pid: u32, path: &Path, rules: &PathRules) -> Found {
        let inside = in_view(pid, path);
        if inside.as_ref().is_ok_and(|stat| !self.is_place_holder(stat)) {
            return Found::Inside;
        }
        let Some(walk) = walk(path) else { return Found::Nowhere };
        let areas = walk.links.iter().map(|(link, _)| link).chain([&walk.real]);
        for area in areas {
            if area.ancestors().any(|above| rules.is_own(above)) {
                return Found::Nowhere;
            }
        }
        let ruling = rules.ruling(&walk.real);
        if rules.standing(ruling) == Standing::Hidden && !rules.is_on_the_way(&walk.real) {
            return if walk.exists { Found::Hidden(walk.real) } else { Found::Nowhere };
        }
        for (link, target) in &walk.links {
            self.make_link(link, target);
        }
        if !walk.exists && host_files::stat(walk.real.parent().unwrap_or(Path::new("/"))).is_err() {
            return Found::Nowhere;
        }
        // A new name in something that is mounted is the kernel's to make or to refuse.
        let holds = |parent: &Path| in_view(pid, parent).is_ok_and(|stat| !self.is_place_holder(&stat));
        if !walk.exists && walk.real.parent().is_some_and(holds) {
            return Found::Inside;
        }
        // With its links in place it may be something that was granted.
        if walk.exists && in_view(pid, path).is_ok_and(|stat| !self.is_place_holder(&stat)) {
            return Found::Inside;
        }
        Found::Outside(walk.real)
    }

    /// The interpreter of a script that the sandbox has, if the interpreter is something that it has not.
    fn interpreter(&self, pid: u32, path: &Path, rules: &PathRules) -> Option<PathBuf> {
        let real = walk(path).filter(|walk| walk.exists)?.real;
        let stat = host_files::stat(&real).ok()?;
        let file = host_files::open_same(&real, (stat.st_dev, stat.st_ino)).ok()?;
        let mut head = [0u8; 256];
        let length = rustix::io::pread(&file, &mut head, 0).ok()?;
        let line = head[..length].strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
        let word = line.split(u8::is_ascii_whitespace).find(|word| !word.is_empty())?;
        match self.resolve(pid, Path::new(OsStr::from_bytes(word)), rules) {
            Found::Outside(real) => Some(real),
            _ => None,
        }
    }

    fn is_place_holder(&self, stat: &rustix::fs::Stat) -> bool {
        stat.st_dev == self.device && FileType::from_raw_mode(stat.st_mode) != FileType::Symlink
    }

    /// Makes a name for something of the host's, so that it can be found and mounted on; it gives nothing.
    fn hold_place(&self, path: &Path) {
        let mode = host_files::stat(path).map_or(0, |stat| stat.st_mode);
        let is_dir = FileType::from_raw_mode(mode) == FileType::Directory;
        let Some(directory) = self.directory(path.parent().unwrap_or(path)) else { return };
        let Some(name) = path.file_name() else { return };
        let made = if is_dir {
            rustix::fs::mkdirat(&directory, name, PASSABLE)
        } else {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            // A shell looks for programs by this bit; there is nothing in it to start.
            rustix::fs::openat(&directory, name, flags, Mode::from_raw_mode(mode & 0o111)).map(drop)
        };
        best_effort(made, "one that is there already is as good");
    }

    fn make_link(&self, link: &Path, target: &Path) {
        if let (Some(directory), Some(name)) = (self.directory(link.parent().unwrap_or(link)), link.file_name()) {
            best_effort(rustix::fs::symlinkat(target, &directory, name), "one that is there already is as good");
        }
    }

    /// Who stands in a place-holder that something was mounted on since goes on from there: a name that it has not leads
    /// to the one in the mount.
    fn lead_on(&self, base: &Base, path: &Path, rules: &PathRules) {
        let below = path.strip_prefix(&base.path).ok().filter(|_| base.device == self.device);
        let Some(mut directory) = below.and_then(|_| self.directory(&base.path)) else { return };
        if below == Some(Path::new("")) {
            return self.fill_with_links(&base.path, rules);
        }
        let mut real = base.path.clone();
        for part in below.into_iter().flat_map(Path::components) {
            let Component::Normal(name) = part else { return };
            real.push(name);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat(&directory, name, flags, Mode::empty()) {
                Ok(next) => directory = next,
                Err(Errno::NOENT) => {
                    let made = rustix::fs::symlinkat(&real, &directory, name);
                    return best_effort(made, "without it the name is not found");
                }
                Err(_) => return,
            }
        }
    }

    /// The same for a process that lists the directory that it stands in.
    fn fill_with_links(&self, path: &Path, rules: &PathRules) {
        for full in visible_names(path, rules) {
            self.make_link(&full, &full);
        }
        self.let_list(path);
    }

    fn let_list(&self, path: &Path) {
        if let (Some(directory), Some(name)) = (self.directory(path.parent().unwrap_or(path)), path.file_name()) {
            let shown = rustix::fs::chmodat(&directory, name, LISTABLE, AtFlags::empty());
            best_effort(shown, "what cannot be listed is not shown");
        }
    }

    /// The place-holder of a directory, made with those above it. None where something is mounted on the way.
    fn directory(&self, path: &Path) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = rustix::fs::openat(&self.root, c".", flags, Mode::empty()).ok()?;
        for name in path.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        }) {
            let made = rustix::fs::mkdirat(&at, name, PASSABLE);
            best_effort(made, "one that is there already is as good");
            at = rustix::fs::openat(&at, name, flags, Mode::empty()).ok()?;
        }
        Some(at)
    }

    /// The names of a directory become place-holders, and the directory can be listed.
    fn show_names(&self, path: &Path, rules: &PathRules) {
        for full in visible_names(path, rules) {
            match host_files::link(&full) {
                Ok(target) => self.make_link(&full, &target),
                Err(_) => self.hold_place(&full),
            }
        }
        self.let_list(path);
    }
}

/// What a directory of the host has, without what is hidden.
fn visible_names(path: &Path, rules: &PathRules) -> Vec<PathBuf> {
    let ruling = rules.ruling(path);
    let is_shown = |name: &OsStr| {
        let is_hidden = rules.standing(rules.child(path, ruling, name)) == Standing::Hidden;
        name != "." && name != ".." && (!is_hidden || rules.is_on_the_way(&path.join(name)))
    };
    let names = host_files::names(path).unwrap_or_default().into_iter().take(MOST_NAMES);
    let names = names.map(|(name, _, _)| OsString::from_vec(name));
    names.filter(|name| is_shown(name)).map(|name| path.join(name)).collect()
}

/// Where a path of a call leads.
#[derive(Debug)]
enum Found {
    Inside,
    Outside(PathBuf),
    Hidden(PathBuf),
    Nowhere,
}

fn op_of(wish: Wish, real: &Path) -> Option<Op> {
    let is_dir = host_files::stat(real).map(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
    match (wish, is_dir) {
        (Wish::Look, _) => None,
        (Wish::Start, _) => Some(Op::Exec),
        // A descriptor that stands for a name gives nothing but the name.
        (Wish::Open { flags, .. }, _) if flags & O_PATH != 0 => None,
        (Wish::Open { .. }, Ok(true)) => Some(Op::List),
        (Wish::Open { flags, .. }, Ok(false)) if flags & O_DIRECTORY != 0 => None,
        (Wish::Open { flags, .. }, Ok(false)) => Some(if flags & O_ACCMODE == 0 { Op::Read } else { Op::Write }),
        (Wish::Open { flags, .. }, Err(_)) => (flags & O_CREAT != 0).then_some(Op::Create),
    }
}

/// What the sandbox's own view has at a path of one of its processes.
fn in_view(pid: u32, path: &Path) -> Result<rustix::fs::Stat, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, format!("/proc/{pid}/root"), flags, Mode::empty())?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::fstat(rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve)?)
}

/// A path followed on the host, with the links that were met.
#[derive(Debug)]
struct Walk {
    real: PathBuf,
    links: Vec<(PathBuf, PathBuf)>,
    exists: bool,
}

fn walk(path: &Path) -> Option<Walk> {
    let mut links = Vec::new();
    let mut real = PathBuf::from("/");
    let mut rest: VecDeque<OsString> = parts(path);
    let mut exists = true;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&name);
        match host_files::stat(&next) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                let target = host_files::link(&next).ok()?;
                if links.len() == MOST_LINKS {
                    return None;
                }
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                let mut ahead = parts(&target);
                ahead.extend(rest);
                rest = ahead;
                links.push((next, target));
            }
            Ok(_) => real = next,
            Err(Errno::NOENT) if rest.is_empty() => {
                exists = false;
                real = next;
            }
            Err(_) => return None,
        }
    }
    Some(Walk { real, links, exists })
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let named = |part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    };
    path.components().filter_map(named).collect()
}

/// What a process asked for.
struct Call {
    wish: Wish,
    path: PathBuf,
    /// What a path that does not begin at the root begins at.
    base: Option<Base>,
}

struct Base {
    path: PathBuf,
    device: u64,
}

impl Call {
    fn read(notification: &Notification) -> Option<Call> {
        let arguments = &notification.arguments;
        let open = |flags: u64, mode: u64| Wish::Open { flags, mode: u32::try_from(mode & 0o7777).unwrap_or(0) };
        let (wish, directory, path) = match name_of(notification.number)? {
            "open" => (open(arguments[1], arguments[2]), AT_FDCWD, arguments[0]),
            "creat" => (open(O_CREAT | 1, arguments[1]), AT_FDCWD, arguments[0]),
            "openat" => (open(arguments[2], arguments[3]), descriptor(arguments[0]), arguments[1]),
            "execve" => (Wish::Start, AT_FDCWD, arguments[0]),
            "execveat" => (Wish::Start, descriptor(arguments[0]), arguments[1]),
            "stat" | "lstat" | "access" | "readlink" | "chdir" => (Wish::Look, AT_FDCWD, arguments[0]),
            _ => (Wish::Look, descriptor(arguments[0]), arguments[1]),
        };
        let mut text = Self::memory(notification.pid, path, MOST_PATH)?;
        text.truncate(text.iter().position(|byte| *byte == 0)?);
        let path = PathBuf::from(OsString::from_vec(text));
        if path.is_absolute() {
            return Some(Call { wish, path, base: None });
        }
        // An empty path is about a descriptor that it has already.
        if path.as_os_str().is_empty() {
            return None;
        }
        let base = match directory {
            AT_FDCWD => format!("/proc/{}/cwd", notification.pid),
            number => format!("/proc/{}/fd/{number}", notification.pid),
        };
        let device = rustix::fs::stat(&base).ok()?.st_dev;
        let base = PathBuf::from(OsString::from_vec(rustix::fs::readlink(base, Vec::new()).ok()?.into_bytes()));
        Some(Call { wish, path: base.join(path), base: Some(Base { path: base, device }) })
    }

    /// As much as can be read there, at most `length` bytes.
    fn memory(pid: u32, address: u64, length: usize) -> Option<Vec<u8>> {
        let memory =
            rustix::fs::open(format!("/proc/{pid}/mem"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut bytes = vec![0; length];
        let read = rustix::io::pread(&memory, &mut bytes, address).ok()?;
        bytes.truncate(read);
        Some(bytes)
    }
}

fn descriptor(argument: u64) -> i32 {
    u32::try_from(argument & 0xffff_ffff).unwrap_or(0).cast_signed()
}

impl Trigger for Notify {
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn listen(&mut self, listener: Listener) {
        self.listener = Some(listener);
    }

    fn take(&mut self, notification: Notification) {
        self.incoming.push_back((notification, 0));
    }

    fn turn(&mut self, rules: &PathRules, _: usize) -> Result<Vec<Noticed>, Errno> {
        let mut noticed = Vec::new();
        while let Some((notification, looks)) = self.incoming.pop_front() {
            noticed.extend(self.look_at(notification, looks, rules)?);
        }
        Ok(noticed)
    }

    fn answer(&mut self, call: CallId, answer: Answer, rules: &PathRules) -> Result<(), Errno> {
        let Some(waiting) = self.waiting.remove(&call.0) else { return Ok(()) };
        match answer {
            Answer::Refuse(errno) => self.refuse(call.0, errno),
            Answer::Again if waiting.looks < MOST_LOOKS => {
                // A script is there now; its interpreter may not be.
                self.incoming.push_back((waiting.notification, waiting.looks + 1));
                Ok(())
            }
            Answer::Again | Answer::Go => self.go_on(call.0),
            Answer::Way => {
                // Only what was shown before has a name here.
                if waiting.is_listing {
                    self.let_list(&waiting.path);
                }
                self.go_on(call.0)
            }
            Answer::Serve { .. } => {
                if waiting.is_listing {
                    self.show_names(&waiting.path, rules);
                }
                self.go_on(call.0)
            }
        }
    }

    fn is_waiting(&self, call: CallId) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.is_waiting(call.0))
    }

    fn can_serve(&self) -> bool {
        false
    }
}
