//! The broker: a process in the sandbox's user namespace whose mount namespace still has the whole host tree. It mounts what
//! was granted and does nothing else. Owns both halves: the handle that the supervisor has, and the process itself, which is
//! started at the first question. Used by `Gate`.
//!
//! An object is opened when it is asked about and mounted from that descriptor: a path that is swapped in between changes
//! nothing. A grant is put together aside, with its covers and with what is mounted below it already, and attached in one
//! step, so no process ever sees it half covered.

pub(crate) mod coverer;
pub(crate) mod orders;
pub(crate) mod queue;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use cofferdam_kernel::filtered::{self, Hidden, Place};
use cofferdam_kernel::mount::{self, Attributes};
use cofferdam_kernel::process::{self, Side};
use cofferdam_kernel::{namespace, socket};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::broker::orders::{Cover, How, Order, Outcome};
use crate::host_files::masked::masked_below;

/// The supervisor's end. When it is dropped the process ends.
#[derive(Debug)]
pub(crate) struct Broker {
    pidfd: OwnedFd,
    socket: OwnedFd,
}

impl Broker {
    /// `sandbox` is the sandbox's mount namespace.
    pub(crate) fn start(sandbox: BorrowedFd<'_>) -> Result<Broker, Errno> {
        let (ours, theirs) = socket::pair()?;
        match process::clone_into(0, None)? {
            Side::Child => {
                drop(ours);
                process::exit_now(begin(&theirs, sandbox))
            }
            Side::Parent { pidfd, .. } => Ok(Broker { pidfd, socket: ours }),
        }
    }

    /// An encoded order, with a descriptor that it is about. An outcome comes for each, in the same order.
    fn send(&self, order: &[u8], about: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        socket::send(self.socket.as_fd(), order, about)
    }

    /// The outcome, and the view of a tree that is written directly with covers on it.
    fn receive(&self) -> Result<(Outcome, Option<OwnedFd>), Errno> {
        let (bytes, view) = socket::receive(&self.socket)?;
        Ok((Outcome::decode(&bytes).ok_or(Errno::PIPE)?, view))
    }
}

impl AsFd for Broker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is to be collected.
        let ended = pidfd_send_signal(&self.pidfd, Signal::KILL);
        let wait = || waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
        if ended.is_ok() {
            while matches!(wait(), Err(Errno::INTR)) {}
        }
    }
}

/// In the new process: only the socket and the sandbox's namespace stay open.
fn begin(socket: &OwnedFd, sandbox: BorrowedFd<'_>) -> i32 {
    let placed = process::die_with_parent()
        .and_then(|()| rustix::stdio::dup2_stdin(socket))
        .and_then(|()| rustix::stdio::dup2_stdout(sandbox));
    if placed.is_err() || socket::is_abandoned(rustix::stdio::stdin()) != Ok(false) {
        return 1;
    }
    process::without_descriptors_from(2, || match serve() {
        Ok(()) => 0,
        Err(_) => 1,
    })
}

fn serve() -> Result<(), Errno> {
    let socket = rustix::stdio::stdin();
    let mut worker = Worker::new(rustix::stdio::stdout());
    loop {
        let (bytes, about) = socket::receive_long(socket)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let order = Order::decode(&bytes).ok_or(Errno::BADMSG);
        // Where the namespaces could not be made every order fails; nothing is ever half done.
        let outcome = match (&mut worker, order) {
            (Ok(worker), Ok(order)) => worker.follow(order, about).unwrap_or_else(Outcome::Failed),
            (Err(errno), _) => Outcome::Failed(*errno),
            (_, Err(errno)) => Outcome::Failed(errno),
        };
        let view = worker.as_mut().ok().and_then(|worker| worker.view.take());
        socket::send(socket, &outcome.encode(), view.as_ref().map(AsFd::as_fd))?;
    }
}

/// The process's own state.
struct Worker {
    sandbox: BorrowedFd<'static>,
    /// Where the host's tree is, and its root: entering a namespace ends on top of what is stacked on that.
    home: OwnedFd,
    root: OwnedFd,
    /// Where grants are put together; reachable by this descriptor only.
    scratch: OwnedFd,
    held: HashMap<u64, (OwnedFd, bool)>,
    count: u64,
    /// Goes along with the next outcome.
    view: Option<OwnedFd>,
    /// Files of the scratch that masked names read as.
    texts: Vec<PathBuf>,
}

const EMPTY: &str = "empty";
const REFUSED: &str = "refused";

impl Worker {
    fn new(sandbox: BorrowedFd<'static>) -> Result<Worker, Errno> {
        let owner = namespace::owner_of(sandbox)?;
        namespace::enter_user(&owner)?;
        namespace::copy_mounts()?;
        let home = namespace::own_mounts()?;
        let scratch = mount::new_filesystem(
            "tmpfs",
            &[("mode", "700"), ("size", "16777216")],
            Attributes { write: true, exec: false, devices: false },
        )?;
        let root = mount::open_source(Path::new("/"))?;
        // What the host mounts from now on was not compared with what is hidden (decision 0037).
        mount::cut_off(root.as_fd())?;
        mount::attach(scratch.as_fd(), root.as_fd())?;
        rustix::fs::mkdirat(&scratch, EMPTY, Mode::from_raw_mode(0o555))?;
        // As the stand-ins of held names: no program takes it for an empty file, and none can listen at it (decision 0027).
        rustix::fs::mknodat(&scratch, REFUSED, FileType::Socket, Mode::empty(), 0)?;
        Ok(Worker { sandbox, home, root, scratch, held: HashMap::new(), count: 0, view: None, texts: Vec::new() })
    }

    fn follow(&mut self, order: Order, about: Option<OwnedFd>) -> Result<Outcome, Errno> {
        match order {
            Order::Hold { id, path } => self.hold(id, mount::open_source(&path)?),
            Order::Make { id, name, mode } => {
                // Taken out: where no file comes of it, the order to mount what is held must not find the directory.
                let (directory, _) = self.held.remove(&id).ok_or(Errno::NOENT)?;
                let file = make_file(directory.as_fd(), &name, mode)?;
                self.hold(id, file)
            }
            Order::MakeDirectories { id, directories, hold } => {
                if hold.as_os_str().is_empty() {
                    let (tree, _) = self.held.get(&id).ok_or(Errno::NOENT)?;
                    return directories
                        .iter()
                        .try_for_each(|(path, mode)| make_directory(tree.as_fd(), path, *mode, false))
                        .map(|()| Outcome::Done);
                }
                // What is held is new as a whole only below the outermost of them.
                let outermost = directories.first().map(|(path, _)| path.as_path());
                if outermost
                    .is_none_or(|outermost| hold.components().next() != Some(Component::Normal(outermost.as_os_str())))
                {
                    return Err(Errno::INVAL);
                }
                // Taken out, as above.
                let (above, _) = self.held.remove(&id).ok_or(Errno::NOENT)?;
                for (at, (path, mode)) in directories.iter().enumerate() {
                    make_directory(above.as_fd(), path, *mode, at == 0)?;
                }
                self.hold(id, open_below(above.as_fd(), Path::new(""), &hold)?)
            }
            Order::Sync => {
                let file = about.ok_or(Errno::BADF)?;
                rustix::fs::fsync(file).map(|()| Outcome::Done)
            }
            Order::Release { id } => {
                self.held.remove(&id);
                Ok(Outcome::Done)
            }
            Order::Mount { id, target, write, exec, covers, children } => {
                let attributes = Attributes { write, exec, devices: false };
                let tree = if covers.is_empty() && children.is_empty() {
                    self.tree(id, attributes)?
                } else {
                    self.assemble(id, attributes, &target, &covers, &children)?
                };
                self.in_sandbox(|| mount::attach(tree.as_fd(), open_target(&target)?.as_fd()))?;
                self.view = (write && !covers.is_empty()).then_some(tree);
                self.identity(id)
            }
            Order::Remove { target } => {
                let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
                self.in_sandbox(|| rustix::mount::unmount(&target, flags))?;
                Ok(Outcome::Done)
            }
            Order::CoverAgain { name, how, exec } => {
                let directory = about.ok_or(Errno::BADF)?;
                self.cover_again(directory.as_fd(), &name, how, exec)?;
                Ok(Outcome::Done)
            }
        }
    }

    /// The directory is a descriptor of the sandbox's view: no path is walked, so a FUSE root is asked nothing.
    fn cover_again(&mut self, directory: BorrowedFd<'_>, name: &Path, how: How, exec: bool) -> Result<(), Errno> {
        // A name that is a mount point already has its cover.
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = rustix::fs::openat2(directory, name, flags, Mode::empty(), resolve)?;
        let attributes = attributes_of(how, exec);
        let put = |tree: OwnedFd| {
            mount::restrict_tree(tree.as_fd(), attributes)?;
            mount::attach(tree.as_fd(), place.as_fd())
        };
        if how == How::Hide {
            let tree = self.stand_in(place.as_fd())?;
            return self.in_sandbox(|| put(tree));
        }
        if how == How::Mask {
            let tree = self.masked(masked_below(directory, name), place.as_fd())?;
            self.in_sandbox(|| put(tree))?;
            // The mount keeps its file; the room is free again once that goes. What has no name cannot be attached.
            let texts = std::mem::take(&mut self.texts);
            return texts.iter().try_for_each(|text| rustix::fs::unlinkat(&self.scratch, text, AtFlags::empty()));
        }
        self.in_sandbox(|| put(mount::clone_tree(place.as_fd())?))
    }

    fn hold(&mut self, id: u64, object: OwnedFd) -> Result<Outcome, Errno> {
        let stat = rustix::fs::fstat(&object)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        // Whatever else it is, a device or a socket, is not given by a question.
        if !matches!(kind, FileType::Directory | FileType::RegularFile) {
            return Err(Errno::ACCESS);
        }
        self.held.insert(id, (object, kind == FileType::Directory));
        self.identity(id)
    }

    fn identity(&self, id: u64) -> Result<Outcome, Errno> {
        let (object, _) = self.held.get(&id).ok_or(Errno::NOENT)?;
        let stat = rustix::fs::fstat(object)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(Outcome::Held { device: stat.st_dev, inode: stat.st_ino, mode: stat.st_mode, size })
    }

    fn tree(&self, id: u64, attributes: Attributes) -> Result<OwnedFd, Errno> {
        let (object, _) = self.held.get(&id).ok_or(Errno::NOENT)?;
        let tree = mount::clone_tree(object.as_fd())?;
        mount::restrict_tree(tree.as_fd(), attributes)?;
        Ok(tree)
    }

    /// The tree with everything that has to lie on it.
    fn assemble(
        &mut self,
        id: u64,
        attributes: Attributes,
        target: &Path,
        covers: &[Cover],
        children: &[PathBuf],
    ) -> Result<OwnedFd, Errno> {
        let children = self.copies_of(children)?;
        let is_directory = self.held.get(&id).is_some_and(|(_, is_directory)| *is_directory);
        self.count += 1;
        let name = PathBuf::from(self.count.to_string());
        if is_directory {
            rustix::fs::mkdirat(&self.scratch, &name, Mode::RWXU)?;
        } else {
            make_file(self.scratch.as_fd(), &name, 0)?;
        }
        let open = || rustix::fs::openat(&self.scratch, &name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        // What is only read is given without its hidden names; what is written has to be the host's own directory.
        let is_filtered = !attributes.write && is_directory && !covers.is_empty();
        if is_filtered {
            self.show_without(id, attributes, target, covers, &name)?;
        } else {
            let tree = self.tree(id, attributes)?;
            mount::attach(tree.as_fd(), open()?.as_fd())?;
        }
        let covers = if is_filtered { &[] } else { covers };
        let root = open()?;
        let laid = self.lay_on(root.as_fd(), target, covers, attributes.exec, children);
        let made = laid.and_then(|()| mount::clone_tree(root.as_fd()));
        // The copy has everything; what it was put together from can go.
        let here = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&root));
        let taken_off = rustix::mount::unmount(here, UnmountFlags::DETACH);
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let made = made?;
        taken_off.and_then(|()| rustix::fs::unlinkat(&self.scratch, &name, flags))?;
        Ok(made)
    }

    /// Nothing is mounted on what is hidden, so no host program can take it off.
    fn show_without(
        &self,
        id: u64,
        attributes: Attributes,
        target: &Path,
        covers: &[Cover],
        name: &Path,
    ) -> Result<(), Errno> {
        let (object, _) = self.held.get(&id).ok_or(Errno::NOENT)?;
        let relative = |cover: &Cover| cover.path.strip_prefix(target).map(Path::to_path_buf).map_err(|_| Errno::INVAL);
        let hidden: Vec<Hidden> = covers
            .iter()
            .map(|cover| {
                let path = relative(cover)?;
                let text = (cover.how == How::Mask).then(|| masked_below(object, &path)).flatten();
                Ok(Hidden { path, text })
            })
            .collect::<Result<_, Errno>>()?;
        let layers = format!("{} layers", self.count);
        rustix::fs::mkdirat(&self.scratch, &layers, Mode::RWXU)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let layers = rustix::fs::openat(&self.scratch, &layers, flags, Mode::empty())?;
        let place = Place { root: self.scratch.as_fd(), path: name };
        filtered::show(object.as_fd(), &hidden, attributes, layers.as_fd(), place)
    }

    fn lay_on(
        &mut self,
        root: BorrowedFd<'_>,
        target: &Path,
        covers: &[Cover],
        exec: bool,
        children: Vec<(PathBuf, OwnedFd)>,
    ) -> Result<(), Errno> {
        for cover in covers {
            let place = match open_below(root, target, &cover.path) {
                // Nothing there to cover.
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                other => other?,
            };
            let tree = match cover.how {
                How::Seal | How::Pin => mount::clone_tree(place.as_fd())?,
                How::Hide => self.stand_in(place.as_fd())?,
                How::Mask => {
                    let relative = cover.path.strip_prefix(target).map_err(|_| Errno::INVAL)?;
                    self.masked(masked_below(root, relative), place.as_fd())?
                }
            };
            mount::restrict_tree(tree.as_fd(), attributes_of(cover.how, exec))?;
            mount::attach(tree.as_fd(), place.as_fd())?;
        }
        for (path, tree) in children {
            mount::attach(tree.as_fd(), open_below(root, target, &path)?.as_fd())?;
        }
        Ok(())
    }

    /// An empty directory or a node that cannot be opened, whichever fits.
    fn stand_in(&self, place: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        let is_directory = FileType::from_raw_mode(rustix::fs::fstat(place)?.st_mode) == FileType::Directory;
        let name = if is_directory { EMPTY } else { REFUSED };
        let stand_in = rustix::fs::openat(&self.scratch, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        mount::clone_tree(stand_in.as_fd())
    }

    /// A file with this text; what has none cannot be opened.
    fn masked(&mut self, text: Option<String>, place: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        let Some(text) = text else { return self.stand_in(place) };
        self.count += 1;
        let name = PathBuf::from(format!("{} text", self.count));
        filtered::write_text(self.scratch.as_fd(), name.as_os_str(), &text)?;
        let file = rustix::fs::openat(&self.scratch, &name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let tree = mount::clone_tree(file.as_fd())?;
        self.texts.push(name);
        Ok(tree)
    }

    /// Copies of what the sandbox has mounted at these paths.
    fn copies_of(&self, paths: &[PathBuf]) -> Result<Vec<(PathBuf, OwnedFd)>, Errno> {
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        self.in_sandbox(|| {
            let copy = |path: &PathBuf| Ok((path.clone(), mount::clone_tree(open_target(path)?.as_fd())?));
            paths.iter().map(copy).collect()
        })
    }

    fn in_sandbox<T>(&self, then: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        namespace::enter_mounts(self.sandbox)?;
        let result = then();
        // In the wrong namespace the next order would open the wrong things.
        let back = namespace::enter_mounts(&self.home)
            .and_then(|()| rustix::process::fchdir(&self.root))
            .and_then(|()| rustix::process::chroot(c"."));
        if back.is_err() {
            process::exit_now(1);
        }
        result
    }
}

fn attributes_of(how: How, exec: bool) -> Attributes {
    Attributes { write: how == How::Pin, exec: exec && matches!(how, How::Seal | How::Pin), devices: false }
}

fn open_target(path: &Path) -> Result<OwnedFd, Errno> {
    mount::open_source(path)
}

/// A path below `target`, in the tree whose top is `root`.
fn open_below(root: BorrowedFd<'_>, target: &Path, path: &Path) -> Result<OwnedFd, Errno> {
    let relative = path.strip_prefix(target).map_err(|_| Errno::INVAL)?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(root, relative, flags, Mode::empty(), resolve)
}

/// One that has to be new is empty, too: a host program that put another one in its place in between gives nothing away.
fn make_directory(above: BorrowedFd<'_>, path: &Path, mode: u32, is_new: bool) -> Result<(), Errno> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.map(|parent| open_below(above, Path::new(""), parent)).transpose()?;
    let parent = parent.as_ref().map_or(above, AsFd::as_fd);
    let name = path.file_name().ok_or(Errno::INVAL)?;
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode & 0o777)) {
        Err(Errno::EXIST) if !is_new => return Ok(()),
        other => other?,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(parent, name, flags, Mode::empty());
    // A mode that keeps its owner out is as good: it was the program's choice.
    let names = match made {
        Err(Errno::ACCESS) if mode & 0o400 == 0 => return Ok(()),
        other => rustix::fs::Dir::new(other?)?,
    };
    let is_empty = names.filter_map(Result::ok).all(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."));
    if is_empty { Ok(()) } else { Err(Errno::EXIST) }
}

/// A new, empty file, as a descriptor that stands for it and nothing else.
fn make_file(directory: BorrowedFd<'_>, name: &Path, mode: u32) -> Result<OwnedFd, Errno> {
    if name.components().count() != 1 {
        return Err(Errno::INVAL);
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(mode & 0o777))?;
    rustix::fs::openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}
