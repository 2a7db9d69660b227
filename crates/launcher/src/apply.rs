//! Executes the steps of a plan, in order, in the set-up child. Owns the translation of each step into kernel calls and
//! makes no choices: a step that fails ends the launch. Called by `init` before anything untrusted exists.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use cofferdam_kernel::best_effort;
use cofferdam_kernel::filtered::{self, Hidden, Place};
use cofferdam_kernel::mount::{self, Attributes};
use cofferdam_kernel::privilege::Resource as Rlimit;
use cofferdam_kernel::proc::{Proc, ProcError};
use cofferdam_kernel::{fuse, landlock, namespace, network, privilege, process, seccomp, socket};
use cofferdam_plan::{
    FileId, HiddenName, Kind, LaunchPlan, Mount, MountKind, OVERLAY_OPTIONS, Resource, Step, Trigger,
};
use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use crate::inheritance::Inheritance;
use crate::marks;
use crate::measure;
use crate::overlay_options::{self, Defaults, MadeOverlay};
use crate::refused_names;
use crate::report::{About, EGRESS_READY, HOLDS_READY, JOINED, Message, StepError};

/// Of the kernel's scale to 1000: when memory runs out, a session goes before what the user works with.
const END_FIRST: i32 = 500;
/// Stand-ins that hold something.
const READABLE: Mode = Mode::RUSR.union(Mode::RGRP).union(Mode::ROTH);

/// What set-up leaves for the life of the sandbox.
pub(crate) struct Applied {
    pub(crate) listener: Option<seccomp::Listener>,
}

/// State between steps.
struct Builder<'a> {
    plan: &'a LaunchPlan,
    parent: BorrowedFd<'a>,
    /// Who gets the sockets that hear connections to the outside.
    catcher: Option<BorrowedFd<'a>>,
    overlay_dir: Option<&'a Path>,
    proc: Option<Proc>,
    root: Option<OwnedFd>,
    scratch: Option<Scratch>,
    listener: Option<seccomp::Listener>,
    network: Option<network::Pending>,
    has_network: bool,
    /// Files of the root that the gate serves, to be mounted where something else lies on their names.
    rendered: BTreeMap<PathBuf, OwnedFd>,
    /// Mounted by now, and holding nothing but what this launch puts there.
    own: Vec<PathBuf>,
    overlays: Vec<MadeOverlay>,
    overlay_defaults: Defaults,
}

/// A file system that exists only during set-up: stand-ins for masked paths are cloned out of it.
struct Scratch {
    dir: OwnedFd,
    made: BTreeMap<String, OwnedFd>,
}

/// Runs every step; the index of the failing one comes with its error.
pub(crate) fn apply(inheritance: &Inheritance<'_>) -> Result<Applied, (usize, StepError)> {
    let Inheritance { plan, overlay_dir, ref outside, marks, .. } = *inheritance;
    let parent = inheritance.parent.as_fd();
    let mut builder = Builder::new(plan, parent, overlay_dir);
    builder.catcher = inheritance.catcher.as_ref().map(AsFd::as_fd);
    for (index, step) in plan.steps.iter().enumerate() {
        if *step == Step::Seccomp && plan.namespaces.pid {
            // Under a filter that reports opening, this would wait for a listener that the supervisor does not have yet.
            send_namespaces(parent, plan, outside).map_err(|error| (index, error))?;
        }
        builder.apply(step).map_err(|error| (index, error))?;
        marks.mark(marks::FIRST_STEP + index);
    }
    if plan.namespaces.net && !builder.has_network {
        // A plan that promises an own network and forgets to move in must not run with the host's.
        return Err((plan.steps.len(), StepError::new("the network namespace", Errno::NOTCONN)));
    }
    measure::check(plan).map_err(|error| (plan.steps.len(), error))?;
    Ok(Applied { listener: builder.listener })
}

/// What the kernel counts in this network namespace; the open file stays readable after its last process has ended.
fn open_network_counters() -> Option<OwnedFd> {
    rustix::fs::open("/proc/self/net/snmp", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// For commands that join later: once this process is not dumpable, no other process opens these any more. With them goes
/// what an own network counts, which the supervisor could not open once a short command has ended.
fn send_namespaces(parent: BorrowedFd<'_>, plan: &LaunchPlan, outside: &[u64]) -> Result<(), StepError> {
    let about = || "the namespaces".to_owned();
    let mut own: Vec<OwnedFd> = JOINED.iter().map(|kind| kind.own()).collect::<Result<_, _>>().about(about)?;
    measure::check_namespaces(plan, &own, outside)?;
    if plan.namespaces.net {
        // Without them there is one hint less.
        own.extend(open_network_counters());
    }
    let fds: Vec<BorrowedFd<'_>> = own.iter().map(AsFd::as_fd).collect();
    socket::send_all(parent, &Message::Namespaces.encode(), &fds).about(about)
}

/// The steps that make a process of a session that is set up already as harmless as the others in it.
pub(crate) fn apply_to_joined(plan: &LaunchPlan, parent: BorrowedFd<'_>) -> Result<Applied, StepError> {
    let is_own = |step: &&Step| {
        matches!(
            step,
            Step::Limit { .. }
                | Step::Pin { .. }
                | Step::DropCapabilities
                | Step::NoNewPrivileges
                | Step::Landlock(_)
                | Step::Seccomp
        )
    };
    let mut builder = Builder::new(plan, parent, None);
    plan.steps.iter().filter(is_own).try_for_each(|step| builder.apply(step))?;
    measure::check(plan)?;
    Ok(Applied { listener: builder.listener })
}

/// A process that was told to go earlier stays so.
pub(crate) fn end_first() -> Result<(), StepError> {
    const FILE: &str = "self/oom_score_adj";
    let proc = Proc::open().map_err(|error| from_proc(&error))?;
    let now = proc.read(FILE).map_err(|error| from_proc(&error))?;
    if now.trim().parse::<i32>().is_ok_and(|now| now >= END_FIRST) {
        return Ok(());
    }
    proc.write(FILE, &END_FIRST.to_string()).map_err(|error| from_proc(&error))
}

fn hidden_names(names: &[HiddenName]) -> Vec<Hidden> {
    names.iter().map(|one| Hidden { path: one.path.clone(), text: one.text.clone() }).collect()
}

impl<'a> Builder<'a> {
    fn new(plan: &'a LaunchPlan, parent: BorrowedFd<'a>, overlay_dir: Option<&'a Path>) -> Self {
        Builder {
            plan,
            parent,
            overlay_dir,
            proc: None,
            root: None,
            scratch: None,
            catcher: None,
            listener: None,
            network: None,
            has_network: false,
            rendered: BTreeMap::new(),
            own: Vec::new(),
            overlays: Vec::new(),
            overlay_defaults: Defaults::default(),
        }
    }
}

impl Builder<'_> {
    fn apply(&mut self, step: &Step) -> Result<(), StepError> {
        match step {
            Step::MapIds { uid, gid } => self.map_ids(*uid, *gid),
            Step::ForbidUserNamespaces => {
                self.proc()?.write("sys/user/max_user_namespaces", "0").map_err(|error| from_proc(&error))
            }
            Step::CountedLimit { name, value } => {
                let written = self.proc()?.write(&format!("sys/user/{name}"), &value.to_string());
                written.map_err(|error| from_proc(&error))
            }
            Step::LargestPid { value } => self.limit_pids(*value),
            Step::OwnCgroupView => process::own_cgroup_view().about(|| "the view of cgroups".to_owned()),
            Step::EndFirst => end_first(),
            Step::Pin { cpus } => pin(cpus).about(|| format!("the CPUs {cpus:?}")),
            Step::CloneRoot { exec } => self.clone_root(*exec),
            Step::GateRoot { trigger, uid, gid, overlay } => {
                self.gate_root(*trigger, *uid, *gid)?;
                overlay.map_or(Ok(()), |slot| self.overlay_root(slot))
            }
            Step::AwaitHolds => await_word(self.parent, HOLDS_READY, "held names"),
            Step::AwaitEgress => await_word(self.parent, EGRESS_READY, "the egress process"),
            Step::Mount(mount) => self.mount(mount),
            Step::MakeDirectory { at, mode } => self.make_directory(at, *mode),
            Step::Link { at, to } => self.link(at, to),
            Step::PivotRoot => self.pivot_root(),
            Step::SetHostname(name) => {
                rustix::system::sethostname(name.as_bytes()).about(|| "the host name".to_owned())
            }
            Step::CreateNetwork => {
                let catch = self.plan.egress.as_ref().zip(self.catcher).map(|(egress, to)| network::Catch {
                    to,
                    ports: &egress.ports,
                    also: &egress.caught,
                    without_filter: !egress.by_filter,
                });
                self.network = Some(network::create_beside(catch).about(|| "the network namespace".to_owned())?);
                Ok(())
            }
            Step::JoinNetwork => {
                let pending = self.network.take().ok_or(Errno::NOENT);
                pending.and_then(network::Pending::join).about(|| "the network namespace".to_owned())?;
                self.has_network = true;
                Ok(())
            }
            Step::OfferAgent { at } => {
                let to = self.catcher.ok_or(Errno::NOENT);
                to.and_then(|to| network::offer_agent(at, to)).about(|| "the ssh-agent's socket".to_owned())
            }
            Step::OfferCheckpoints { at } => self.offer_checkpoints(at).about(|| "the pipe for checkpoints".to_owned()),
            Step::Limit { resource, value } => {
                privilege::limit(rlimit(*resource), *value).about(|| format!("the limit {resource:?}"))
            }
            Step::DropCapabilities => privilege::drop_capabilities().about(|| "capabilities".to_owned()),
            Step::NoNewPrivileges => privilege::no_new_privileges().about(|| "no_new_privs".to_owned()),
            Step::Landlock(step) => {
                let probe = measure::scope_probe(step)?;
                landlock::restrict(step.scopes, &step.executables)
                    .map_err(|error| StepError::new(error.to_string(), Errno::PERM))?;
                measure::check_scopes(probe.as_ref())
            }
            Step::Seccomp => self.install_filter(),
        }
    }

    fn proc(&mut self) -> Result<&Proc, StepError> {
        if self.proc.is_none() {
            self.proc = Some(Proc::open().map_err(|error| from_proc(&error))?);
        }
        self.proc.as_ref().ok_or_else(|| StepError::new("/proc", Errno::NOENT))
    }

    /// The child maps itself: there is no moment at which another process's pid could be written to.
    fn map_ids(&mut self, uid: u32, gid: u32) -> Result<(), StepError> {
        let proc = self.proc()?;
        proc.write("self/setgroups", "deny").map_err(|error| from_proc(&error))?;
        proc.write("self/uid_map", &format!("{uid} {uid} 1\n")).map_err(|error| from_proc(&error))?;
        proc.write("self/gid_map", &format!("{gid} {gid} 1\n")).map_err(|error| from_proc(&error))
    }

    /// The number belongs to the pid namespace of the process that writes, and root may write that of the machine.
    fn limit_pids(&mut self, value: u64) -> Result<(), StepError> {
        if !rustix::process::getpid().is_init() {
            return Err(StepError::new("the largest pid outside of an own pid namespace", Errno::PERM));
        }
        self.proc()?.write("sys/kernel/pid_max", &value.to_string()).map_err(|error| from_proc(&error))
    }

    /// A root with nothing of the host's on it but what is mounted there.
    fn gate_root(&mut self, trigger: Trigger, uid: u32, gid: u32) -> Result<(), StepError> {
        let exec = self.plan.gate.as_ref().is_some_and(|gate| gate.exec);
        let about = || "the root that asks".to_owned();
        let tell = |message: Message, fd: &OwnedFd| {
            socket::send(self.parent, &message.encode(), Some(fd.as_fd())).about(about)
        };
        tell(Message::Mounts, &namespace::own_mounts().about(about)?)?;
        let tree = match trigger {
            Trigger::Fuse => {
                let device = fuse::open().about(|| fuse::DEVICE.to_owned())?;
                let tree = fuse::new_tree(device.as_fd(), uid, gid, exec).about(about)?;
                tell(Message::Gate, &device)?;
                tree
            }
            Trigger::Notify => {
                let options = [("mode", "755"), ("size", "16777216"), ("nr_inodes", "65536")];
                let attributes = Attributes { write: true, exec: false, devices: false };
                mount::new_filesystem("tmpfs", &options, attributes).about(about)?
            }
        };
        self.lay_root(tree)?;
        if trigger == Trigger::Notify {
            // A second way to it, which stays writable. Before Linux 6.15 only what is attached can be cloned.
            let changeable = mount::clone_tree(self.root()?).about(about)?;
            socket::send(self.parent, &Message::Gate.encode(), Some(changeable.as_fd())).about(about)?;
        }
        if trigger == Trigger::Fuse {
            best_effort(learn_names(self.root()?), "each name is then asked for when it is needed");
            self.take_rendered()?;
        }
        Ok(())
    }

    /// Before anything lies on their names. One that is gone since the survey is hidden.
    fn take_rendered(&mut self) -> Result<(), StepError> {
        for step in &self.plan.steps {
            let Step::Mount(Mount { target, kind: MountKind::Rendered, .. }) = step else { continue };
            let about = || target.display().to_string();
            let file = match mount::open_in_root(self.root()?, target) {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                file => file.about(about)?,
            };
            let tree = mount::clone_tree(file.as_fd()).about(about)?;
            mount::restrict_tree(tree.as_fd(), Attributes::READ_ONLY).about(about)?;
            self.rendered.insert(target.clone(), tree);
        }
        Ok(())
    }

    /// What is written where nothing is mounted lands in the session; what is read is asked for underneath.
    fn overlay_root(&mut self, slot: usize) -> Result<(), StepError> {
        let about = || "an overlay on the root that asks".to_owned();
        let below = self.root.take().ok_or(Errno::NOENT).about(about)?;
        let tree = self.overlay_on(Path::new("/"), &[below.as_fd()], slot).about(about)?;
        let host = mount::open_source(Path::new("/")).about(about)?;
        mount::attach(tree.as_fd(), host.as_fd()).about(about)?;
        self.root = Some(tree);
        Ok(())
    }

    /// The scratch file system and the new root are both stacked on `/`, where only descriptors reach them:
    /// paths of this process keep meaning the host's tree until the root is changed.
    fn clone_root(&mut self, exec: bool) -> Result<(), StepError> {
        let about = || "the host tree".to_owned();
        let host = mount::open_source(Path::new("/")).about(about)?;
        let tree = mount::clone_tree(host.as_fd()).about(about)?;
        mount::restrict_tree(tree.as_fd(), Attributes { write: false, exec, devices: false }).about(about)?;
        drop(host);
        self.lay_root(tree)
    }

    fn lay_root(&mut self, tree: OwnedFd) -> Result<(), StepError> {
        let about = || "the new root".to_owned();
        let host = mount::open_source(Path::new("/")).about(about)?;
        let scratch =
            mount::new_filesystem("tmpfs", &[("mode", "700")], Attributes { write: true, exec: false, devices: false })
                .about(|| "a scratch file system".to_owned())?;
        // This namespace's copies of the host's mounts are slaves, so nothing attached here shows on the host.
        mount::attach(scratch.as_fd(), host.as_fd()).about(about)?;
        mount::attach(tree.as_fd(), host.as_fd()).about(about)?;
        self.scratch = Some(Scratch { dir: scratch, made: BTreeMap::new() });
        self.root = Some(tree);
        Ok(())
    }

    fn root(&self) -> Result<BorrowedFd<'_>, StepError> {
        self.root.as_ref().map(AsFd::as_fd).ok_or_else(|| StepError::new("the new root", Errno::NOENT))
    }

    fn mount(&mut self, step: &Mount) -> Result<(), StepError> {
        // What cannot be reached with every capability of this namespace cannot be without.
        let is_out_of_reach =
            |root| matches!(mount::open_in_root(root, &step.target), Err(Errno::NOENT | Errno::ACCESS));
        if step.if_present && is_out_of_reach(self.root()?) {
            return Ok(());
        }
        if let Some(kind) = step.create {
            self.make_mount_point(&step.target, kind)?;
        }
        if let MountKind::Filtered { source, id, exec, hidden } = &step.kind {
            return self.filtered(&step.target, source, *id, *exec, hidden);
        }
        let tree = self.tree_for(step)?;
        if let MountKind::Overlay { slot, absent, .. } = &step.kind {
            self.refuse_absent(&step.target, *slot, absent)?;
        }
        let about = || step.target.display().to_string();
        if self.is_own(&step.target) {
            return mount::attach_at(tree.as_fd(), self.root()?, &step.target).about(about);
        }
        let target = mount::open_in_root(self.root()?, &step.target).about(about)?;
        mount::attach(tree.as_fd(), target.as_fd()).about(about)?;
        // Policy can put nothing of the host into these two, so every name in them is ours.
        if step.target == Path::new("/proc") || step.target == Path::new("/dev") {
            self.own.push(step.target.clone());
        }
        Ok(())
    }

    fn filtered(
        &mut self,
        target: &Path,
        source: &Path,
        id: Option<FileId>,
        exec: bool,
        hidden: &[HiddenName],
    ) -> Result<(), StepError> {
        let about = || format!("{} without what is hidden below it", source.display());
        let fd = mount::open_source(source).about(about)?;
        if let Some(id) = id {
            verify(fd.as_fd(), source, id)?;
        }
        let hidden = hidden_names(hidden);
        let scratch = self.scratch()?.place(target).about(about)?;
        let place = Place { root: self.root()?, path: target };
        let attributes = Attributes { write: false, exec, devices: false };
        filtered::show(fd.as_fd(), &hidden, attributes, scratch.as_fd(), place).about(about)
    }

    /// Whether the way to a mount point leads through a file system that this launch has made, and nothing else.
    fn is_own(&self, target: &Path) -> bool {
        self.own.iter().any(|area| target != area && target.starts_with(area))
    }

    /// The detached tree that a mount step wants.
    fn tree_for(&mut self, step: &Mount) -> Result<OwnedFd, StepError> {
        let about = || step.target.display().to_string();
        match &step.kind {
            MountKind::Bind { source, id, write, exec } => {
                bind(source, *id, Attributes { write: *write, exec: *exec, devices: false })
            }
            // Mounted by itself: it may take more than one.
            MountKind::Filtered { .. } => Err(StepError::new(about(), Errno::INVAL)),
            MountKind::Empty { inside } => self.stand_in_directory(inside),
            MountKind::Refused => self.scratch()?.unopenable().about(|| "a stand-in node".to_owned()),
            MountKind::Text(text) => self.stand_in_file(&format!("text {text}"), text.as_bytes(), READABLE),
            MountKind::Rendered => match self.rendered.remove(&step.target) {
                Some(tree) => Ok(tree),
                None => self.scratch()?.unopenable().about(|| "a stand-in node".to_owned()),
            },
            MountKind::Trust { format, content } => self.stand_in_file(&format!("trust {format:?}"), content, READABLE),
            MountKind::Tmpfs { mode, size, inodes, exec } => {
                let mode = format!("{mode:o}");
                let size = size.to_string();
                let inodes = inodes.to_string();
                let mut options = vec![("mode", mode.as_str())];
                if inodes != "0" {
                    options.push(("nr_inodes", inodes.as_str()));
                }
                if size != "0" {
                    options.push(("size", size.as_str()));
                }
                mount::new_filesystem("tmpfs", &options, Attributes { write: true, exec: *exec, devices: false })
                    .about(about)
            }
            MountKind::Proc => {
                mount::new_filesystem("proc", &[], Attributes { write: true, exec: false, devices: false }).about(about)
            }
            MountKind::Seal => {
                let here = mount::open_in_root(self.root()?, &step.target).about(about)?;
                let tree = mount::clone_tree(here.as_fd()).about(about)?;
                mount::restrict_tree(tree.as_fd(), Attributes::READ_ONLY).about(about)?;
                Ok(tree)
            }
            MountKind::Devpts => {
                let options = [("newinstance", ""), ("ptmxmode", "0666"), ("mode", "0620")];
                mount::new_filesystem("devpts", &options, Attributes { write: true, exec: false, devices: true })
                    .about(about)
            }
            MountKind::Device { major, minor } => device(&step.target, (*major, *minor)),
            MountKind::Overlay { lower, id, slot, absent } => self.overlay(lower, *id, *slot, absent),
        }
    }

    fn overlay(&mut self, lower: &Path, id: FileId, slot: usize, absent: &[HiddenName]) -> Result<OwnedFd, StepError> {
        let about = || format!("an overlay on {}", lower.display());
        let lower_fd = mount::open_source(lower).about(about)?;
        verify(lower_fd.as_fd(), lower, id)?;
        if self.plan.is_copied(lower) {
            // The layer has everything: what lies below would show through where the session removes it.
            let nothing = self.scratch()?.place(lower).about(about)?;
            return self.overlay_on(lower, &[nothing.as_fd()], slot).about(about);
        }
        if absent.is_empty() {
            return self.overlay_on(lower, &[lower_fd.as_fd()], slot).about(about);
        }
        let scratch = self.scratch()?.place(lower).about(about)?;
        let layer = filtered::layer(lower_fd.as_fd(), &hidden_names(absent), scratch.as_fd()).about(about)?;
        let layers: Vec<BorrowedFd<'_>> = layer.iter().chain([&lower_fd]).map(OwnedFd::as_fd).collect();
        self.overlay_on(lower, &layers, slot).about(about)
    }

    /// Of the names that are hidden and not there, those in the overlay's top directory cannot be made.
    fn refuse_absent(&mut self, target: &Path, slot: usize, absent: &[HiddenName]) -> Result<(), StepError> {
        let about = || format!("hidden names in {}", target.display());
        let is_in_top = |name: &&HiddenName| name.text.is_none() && name.path.components().count() == 1;
        let names: Vec<&OsStr> = absent.iter().filter(is_in_top).map(|name| name.path.as_os_str()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let base = self.overlay_dir.ok_or(Errno::NOENT).about(about)?.join(slot.to_string());
        let upper = mount::open_source(&base.join("upper")).about(about)?;
        let root = self.root.as_ref().ok_or(Errno::NOENT).about(about)?;
        let scratch = self.scratch.as_mut().ok_or(Errno::NOENT).about(about)?;
        refused_names::refuse(upper.as_fd(), &names, root.as_fd(), target, || scratch.unopenable()).about(about)
    }

    /// Through the descriptor, so that what was verified is what is used; commas in paths cannot become options.
    fn overlay_on(&mut self, over: &Path, layers: &[BorrowedFd<'_>], slot: usize) -> Result<OwnedFd, Errno> {
        let base = self.overlay_dir.ok_or(Errno::NOENT)?.join(slot.to_string());
        let name = |layer: &BorrowedFd<'_>| format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(layer));
        let lower = layers.iter().map(name).collect::<Vec<_>>().join(":");
        let fd_path = |name: &str| -> Result<(OwnedFd, String), Errno> {
            let fd = mount::open_source(&base.join(name))?;
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
            Ok((fd, path))
        };
        let (_upper_fd, upper) = fd_path("upper")?;
        let (_work_fd, work) = fd_path("work")?;
        let layers = [("lowerdir", lower.as_str()), ("upperdir", &upper), ("workdir", &work)];
        let options: Vec<(&str, &str)> = layers.iter().chain(OVERLAY_OPTIONS).copied().collect();
        let made = mount::new_filesystem("overlay", &options, Attributes { write: true, exec: true, devices: false })?;
        if self.overlays.is_empty() {
            self.overlay_defaults = Defaults::read();
        }
        self.overlays.push(MadeOverlay { mount: mount::id_of(made.as_fd())?, over: over.to_path_buf() });
        Ok(made)
    }

    fn make_mount_point(&self, target: &Path, kind: Kind) -> Result<(), StepError> {
        let about = || format!("the mount point {}", target.display());
        let (parent, name) = split(target).about(about)?;
        // GnuPG and others trust a socket only where no other user could put one.
        let mode = if kind == Kind::Socket { 0o700 } else { 0o755 };
        let parent = self.make_directories(parent, Mode::from_raw_mode(mode))?;
        let result = match kind {
            Kind::Directory => rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)),
            Kind::File | Kind::Socket | Kind::Other => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o444)).map(drop)
            }
        };
        match result {
            Err(Errno::EXIST) | Ok(()) => Ok(()),
            Err(errno) => Err(StepError::new(about(), errno)),
        }
    }

    /// Opens a directory below the new root, making what is missing; no link is followed on the way.
    fn make_directories(&self, path: &Path, mode: Mode) -> Result<OwnedFd, StepError> {
        let about = || path.display().to_string();
        let mut at = mount::open_in_root(self.root()?, Path::new("/")).about(about)?;
        for name in path.components().filter_map(|c| match c {
            std::path::Component::Normal(name) => Some(name),
            _ => None,
        }) {
            let open = |at: &OwnedFd| {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat2(at, name, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
            };
            at = match open(&at) {
                Err(Errno::NOENT) => {
                    rustix::fs::mkdirat(&at, name, mode).about(about)?;
                    open(&at).about(about)?
                }
                other => other.about(about)?,
            };
        }
        Ok(at)
    }

    fn make_directory(&self, at: &Path, mode: u32) -> Result<(), StepError> {
        let about = || at.display().to_string();
        let (parent, name) = split(at).about(about)?;
        let parent = mount::open_in_root(self.root()?, parent).about(about)?;
        rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode)).about(about)
    }

    fn link(&self, at: &Path, to: &Path) -> Result<(), StepError> {
        let about = || at.display().to_string();
        let (parent, name) = split(at).about(about)?;
        let parent = mount::open_in_root(self.root()?, parent).about(about)?;
        rustix::fs::symlinkat(to, &parent, name).about(about)
    }

    fn scratch(&mut self) -> Result<&mut Scratch, StepError> {
        self.scratch.as_mut().ok_or_else(|| StepError::new("the scratch file system", Errno::NOENT))
    }

    fn stand_in_directory(&mut self, inside: &[(PathBuf, Kind)]) -> Result<OwnedFd, StepError> {
        self.scratch()?.directory(inside).about(|| "a stand-in directory".to_owned())
    }

    fn stand_in_file(&mut self, key: &str, content: &[u8], mode: Mode) -> Result<OwnedFd, StepError> {
        self.scratch()?.file(key, content, mode).about(|| "a stand-in file".to_owned())
    }

    fn pivot_root(&mut self) -> Result<(), StepError> {
        if self.plan.gate.as_ref().is_some_and(|gate| gate.trigger == Trigger::Notify) {
            // Every mount point is made; from here on only the supervisor adds to it.
            mount::seal(self.root()?).about(|| "the new root".to_owned())?;
        }
        self.send_trees()?;
        self.sink_scratch();
        mount::pivot_into(self.root()?).about(|| "the new root".to_owned())?;
        // The old tree is gone; nothing may hold a way back to it.
        self.root = None;
        self.scratch = None;
        self.proc = None;
        overlay_options::check(&self.overlays, self.overlay_defaults)?;
        measure::mounts::check(&self.plan.steps)
    }

    /// Every cover is mounted by now: this is how the keeper sees them.
    fn send_trees(&self) -> Result<(), StepError> {
        for tree in self.plan.watched_trees() {
            let about = || tree.display().to_string();
            let view = mount::open_in_root(self.root()?, tree).about(about)?;
            socket::send(self.parent, &Message::Tree.encode(), Some(view.as_fd())).about(about)?;
        }
        if self.plan.transaction.is_on() {
            for overlay in self.plan.kept_overlays() {
                let about = || overlay.target.display().to_string();
                let view = mount::open_in_root(self.root()?, overlay.target).about(about)?;
                socket::send(self.parent, &Message::View.encode(), Some(view.as_fd())).about(about)?;
            }
        }
        Ok(())
    }

    /// Open for reading and writing: a writer never waits for a reader, and its end is none of the pipe.
    fn offer_checkpoints(&self, at: &Path) -> Result<(), Errno> {
        rustix::fs::mknodat(rustix::fs::CWD, at, FileType::Fifo, Mode::WUSR, 0)?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let pipe = rustix::fs::open(at, flags, Mode::empty())?;
        socket::send(self.parent, &Message::Checkpoints.encode(), Some(pipe.as_fd()))
    }

    /// Off the top of the old root and onto its /proc, so that one call lets go of both: each such call waits until no CPU
    /// looks at mounts any more. Nothing is opened by a path of the host from here on.
    fn sink_scratch(&self) {
        if let (Some(scratch), Some(proc)) = (&self.scratch, &self.proc) {
            best_effort(mount::attach(scratch.dir.as_fd(), proc.as_fd()), "then it takes a second call");
        }
    }

    fn install_filter(&mut self) -> Result<(), StepError> {
        self.listener = Some(
            seccomp::install_with_listener(program(&self.plan.filter.program))
                .about(|| "the system-call filter".to_owned())?,
        );
        Ok(())
    }
}

/// The plan's instructions in the kernel crate's form.
pub(crate) fn program(
    instructions: &[cofferdam_plan::seccomp::Instruction],
) -> impl Iterator<Item = seccomp::Instruction> + '_ {
    instructions.iter().map(|i| seccomp::Instruction { code: i.code, jt: i.jt, jf: i.jf, k: i.k })
}

impl Scratch {
    /// A read-only directory with nothing but mount points in it.
    fn directory(&mut self, inside: &[(PathBuf, Kind)]) -> Result<OwnedFd, Errno> {
        let key = format!("dir {inside:?}");
        if !self.made.contains_key(&key) {
            let name = self.next_name();
            rustix::fs::mkdirat(&self.dir, &name, Mode::from_raw_mode(0o755))?;
            let fd = open_directory(self.dir.as_fd(), OsStr::new(&name))?;
            for (path, kind) in inside {
                make_below(&fd, path, *kind)?;
            }
            self.made.insert(key.clone(), fd);
        }
        self.clone_made(&key)
    }

    fn file(&mut self, key: &str, mut content: &[u8], mode: Mode) -> Result<OwnedFd, Errno> {
        if !self.made.contains_key(key) {
            let name = self.next_name();
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(&self.dir, &name, flags, mode)?;
            while !content.is_empty() {
                let written = rustix::io::write(&fd, content)?;
                content = &content[written..];
            }
            self.made.insert(key.to_owned(), fd);
        }
        self.clone_made(key)
    }

    /// A socket at which no process listens and none can: the node has a name of this session's own, without permissions and
    /// on a read-only mount. Programs that look for files pass it by, and none reads it for an empty one (decision 0027).
    fn unopenable(&mut self) -> Result<OwnedFd, Errno> {
        const KEY: &str = "unopenable";
        if !self.made.contains_key(KEY) {
            let name = self.next_name();
            rustix::fs::mknodat(&self.dir, &name, FileType::Socket, Mode::empty(), 0)?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            self.made.insert(KEY.to_owned(), rustix::fs::openat(&self.dir, &name, flags, Mode::empty())?);
        }
        self.clone_made(KEY)
    }

    /// An empty directory for what is mounted at `target`.
    fn place(&mut self, target: &Path) -> Result<OwnedFd, Errno> {
        let name = self.next_name();
        rustix::fs::mkdirat(&self.dir, &name, Mode::RWXU)?;
        self.made.insert(format!("place {}", target.display()), open_directory(self.dir.as_fd(), OsStr::new(&name))?);
        open_directory(self.dir.as_fd(), OsStr::new(&name))
    }

    fn next_name(&self) -> String {
        self.made.len().to_string()
    }

    fn clone_made(&self, key: &str) -> Result<OwnedFd, Errno> {
        let made = self.made.get(key).ok_or(Errno::NOENT)?;
        let tree = mount::clone_tree(made.as_fd())?;
        mount::restrict_tree(tree.as_fd(), Attributes::READ_ONLY)?;
        Ok(tree)
    }
}

fn open_directory(at: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(at, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn make_below(dir: &OwnedFd, path: &Path, kind: Kind) -> Result<(), Errno> {
    let mut at = rustix::io::fcntl_dupfd_cloexec(dir, 3)?;
    let names: Vec<_> = path.components().map(std::path::Component::as_os_str).collect();
    let Some((last, parents)) = names.split_last() else { return Ok(()) };
    let exists_is_fine = |result: Result<(), Errno>| if result == Err(Errno::EXIST) { Ok(()) } else { result };
    for name in parents {
        exists_is_fine(rustix::fs::mkdirat(&at, *name, Mode::from_raw_mode(0o755)))?;
        at = open_directory(at.as_fd(), name)?;
    }
    if kind == Kind::Directory {
        exists_is_fine(rustix::fs::mkdirat(&at, *last, Mode::from_raw_mode(0o755)))
    } else {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&at, *last, flags, Mode::from_raw_mode(0o444)).map(drop)
    }
}

fn bind(source: &Path, id: Option<FileId>, attributes: Attributes) -> Result<OwnedFd, StepError> {
    let about = || source.display().to_string();
    let fd = mount::open_source(source).about(about)?;
    if let Some(id) = id {
        verify(fd.as_fd(), source, id)?;
    }
    let tree = mount::clone_tree(fd.as_fd()).about(about)?;
    mount::restrict_tree(tree.as_fd(), attributes).about(about)?;
    Ok(tree)
}

/// One listing tells the kernel all names of the root, which it would ask for one by one: a mount point each, and the links
/// that programs begin with.
fn learn_names(root: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(root, c".", flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 8192];
    RawDir::new(directory, &mut buffer).next().map_or(Ok(()), |entry| entry.map(drop))
}

fn await_word(parent: BorrowedFd<'_>, word: &[u8], what: &str) -> Result<(), StepError> {
    let (message, _) = socket::receive(parent).about(|| what.to_owned())?;
    // An empty message means that the supervisor is gone.
    if message == word { Ok(()) } else { Err(StepError::new(what, Errno::CANCELED)) }
}

/// What the survey saw must be what is bound; a swap in between refuses to start.
fn verify(fd: BorrowedFd<'_>, path: &Path, id: FileId) -> Result<(), StepError> {
    let about = || format!("{}: it was replaced while the sandbox started", path.display());
    let (device, inode) = mount::identity(fd).about(about)?;
    if (FileId { device, inode }) == id { Ok(()) } else { Err(StepError::new(about(), Errno::STALE)) }
}

/// A device node of the host, if it is the device it should be.
fn device(target: &Path, expected: (u32, u32)) -> Result<OwnedFd, StepError> {
    let about = || target.display().to_string();
    let fd = mount::open_source(target).about(about)?;
    if mount::character_device(fd.as_fd()).about(about)? != Some(expected) {
        return Err(StepError::new(format!("{}: not the expected device", target.display()), Errno::NXIO));
    }
    let tree = mount::clone_tree(fd.as_fd()).about(about)?;
    // Writing to a device takes nothing of the mount; changing the host's node, for root, does.
    mount::restrict_tree(tree.as_fd(), Attributes { write: false, exec: false, devices: true }).about(about)?;
    Ok(tree)
}

fn split(path: &Path) -> Result<(&Path, &OsStr), Errno> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok((parent, name)),
        _ => Err(Errno::INVAL),
    }
}

fn pin(cpus: &[u32]) -> Result<(), Errno> {
    let mut set = rustix::thread::CpuSet::new();
    for cpu in cpus {
        set.set(*cpu as usize);
    }
    rustix::thread::sched_setaffinity(None, &set)
}

fn rlimit(resource: Resource) -> Rlimit {
    match resource {
        Resource::CpuSeconds => Rlimit::Cpu,
        Resource::FileSize => Rlimit::Fsize,
        Resource::OpenFiles => Rlimit::Nofile,
        Resource::Processes => Rlimit::Nproc,
        Resource::CoreSize => Rlimit::Core,
        Resource::Data => Rlimit::Data,
        Resource::RealtimePriority => Rlimit::Rtprio,
        Resource::Nice => Rlimit::Nice,
    }
}

fn from_proc(error: &ProcError) -> StepError {
    match error {
        ProcError::Fake => StepError::new(error.to_string(), Errno::PERM),
        ProcError::NoOpenat2 => StepError::new(error.to_string(), Errno::NOSYS),
        ProcError::Write { file, errno } | ProcError::Read { file, errno } => {
            StepError::new(format!("/proc/{file}"), *errno)
        }
    }
}
