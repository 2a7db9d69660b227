//! The vocabulary of a launch: each step is one thing the kernel is asked to do, in the order of the list.
//! Owns the types; `mounts` and `launch` produce them, `launcher::apply` executes them without choices.

use std::path::PathBuf;

use serde::Serialize;

use crate::facts::path::{FileId, Kind};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "a set of namespaces, each there or not")]
pub struct Namespaces {
    pub user: bool,
    pub pid: bool,
    pub mount: bool,
    pub net: bool,
    pub ipc: bool,
    pub uts: bool,
    pub cgroup: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    CpuSeconds,
    FileSize,
    OpenFiles,
    Processes,
    CoreSize,
    /// Private memory of one process, whether touched or not.
    Data,
    /// What a user of a machine for audio may have: runs before all others.
    RealtimePriority,
    /// How far below zero the niceness may go.
    Nice,
}

/// Who reads a list of authorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrustFormat {
    /// Most programs.
    Pem,
    Java,
}

/// What notices the first access to an unknown path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// The root is a FUSE file system that the supervisor serves.
    Fuse,
    /// Opening calls are reported by the system call filter.
    Notify,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountKind {
    /// A host path. `id` is what the survey saw there; anything else refuses to start.
    Bind {
        source: PathBuf,
        id: Option<FileId>,
        write: bool,
        exec: bool,
    },
    /// A host directory, read-only, without some of the names below it. Hidden by name on directory entries of the
    /// sandbox's own, so no host program can take that off.
    Filtered {
        source: PathBuf,
        id: Option<FileId>,
        exec: bool,
        hidden: Vec<HiddenName>,
    },
    /// An empty read-only directory, holding only mount points for grants below it.
    Empty {
        inside: Vec<(PathBuf, Kind)>,
    },
    /// A node that is no file and cannot be opened.
    Refused,
    /// A read-only file with this content.
    Text(String),
    /// The same path of the gate's root: a file that the gate renders at each open.
    Rendered,
    /// A read-only list of the authorities that programs believe in TLS, filled in at the launch.
    Trust {
        format: TrustFormat,
        #[serde(skip)]
        content: Vec<u8>,
    },
    Tmpfs {
        mode: u32,
        size: u64,
        inodes: u64,
        exec: bool,
    },
    Proc,
    /// What is mounted there already becomes read-only.
    Seal,
    Devpts,
    /// A device node of the host's `/dev`, checked to be the character device `major:minor`.
    Device {
        major: u32,
        minor: u32,
    },
    /// Lower is the host directory; upper and work lie in the session directory, under this number.
    Overlay {
        lower: PathBuf,
        id: FileId,
        slot: usize,
        /// Names that do not exist yet and are not seen when a host program makes them: a layer of their own between the two.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        absent: Vec<HiddenName>,
    },
}

/// How every overlay is mounted, and what the kernel has to say of it then. Without a redirect a directory that was there before is
/// not renamed, and what the upper layer has is all that was written.
pub const OVERLAY_OPTIONS: &[(&str, &str)] = &[
    ("userxattr", ""),
    ("volatile", ""),
    ("redirect_dir", "nofollow"),
    ("metacopy", "off"),
    ("index", "off"),
    ("xino", "off"),
];

/// A name below a filtered directory, whether or not it exists by now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HiddenName {
    /// Relative to the directory.
    pub path: PathBuf,
    /// What is read there; otherwise there is no such name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// One mount in the new root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mount {
    pub target: PathBuf,
    pub kind: MountKind,
    /// The mount point lies in a private file system and has to be made first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create: Option<Kind>,
    /// Nothing to do where the mount point does not exist (entries of /proc differ between kernels).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub if_present: bool,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct LandlockStep {
    /// Abstract sockets and signals stay inside.
    pub scopes: bool,
    /// Where not empty: only these files can be executed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub executables: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    MapIds {
        uid: u32,
        gid: u32,
    },
    /// What the kernel shows of cgroups begins at the session's own.
    OwnCgroupView,
    /// The kernel, short of memory, ends this before others.
    EndFirst,
    /// No user namespace can be made below this one.
    ForbidUserNamespaces,
    /// A count of the kernel's, of those it keeps for each user namespace.
    CountedLimit {
        name: &'static str,
        value: u64,
    },
    /// Pids of the sandbox go up to here: no more processes and threads can be at once.
    LargestPid {
        value: u64,
    },
    /// A private, recursive, read-only clone of the host tree becomes the root of what follows.
    CloneRoot {
        exec: bool,
    },
    /// The root is the gate's: what is mounted on it is known, everything else asks.
    GateRoot {
        trigger: Trigger,
        uid: u32,
        gid: u32,
        /// Slot of an overlay on it that takes what is written: the session learns.
        #[serde(skip_serializing_if = "Option::is_none")]
        overlay: Option<usize>,
    },
    /// The supervisor makes the stand-ins for held names meanwhile; what follows mounts over them.
    AwaitHolds,
    /// Until the supervisor has sent the egress process its rules: without that no command runs.
    AwaitEgress,
    Mount(Mount),
    /// Directory made in a private file system.
    MakeDirectory {
        at: PathBuf,
        mode: u32,
    },
    /// Symbolic link made in a private file system.
    Link {
        at: PathBuf,
        to: PathBuf,
    },
    PivotRoot,
    SetHostname(String),
    /// Starts making a network namespace with loopback up, beside what follows.
    CreateNetwork,
    /// Waits for it and moves in.
    JoinNetwork,
    /// Makes the socket at which programs find an ssh-agent.
    OfferAgent {
        at: PathBuf,
    },
    /// Makes the pipe into which the workload says that a step of its work is done, and nothing else.
    OfferCheckpoints {
        at: PathBuf,
    },
    Limit {
        resource: Resource,
        value: u64,
    },
    /// These processes run on these CPUs only.
    Pin {
        cpus: Vec<u32>,
    },
    DropCapabilities,
    NoNewPrivileges,
    Landlock(LandlockStep),
    Seccomp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HoldKind {
    Directory,
    /// A node that cannot be opened, and that git does not show.
    Socket,
    File(String),
}

/// A name that must not come into being while the session runs: held by a stand-in that the supervisor makes before and removes after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hold {
    pub path: PathBuf,
    pub kind: HoldKind,
}

/// A mount onto what is there.
pub(crate) fn mount(target: impl Into<PathBuf>, kind: MountKind, why: &str) -> Step {
    Step::Mount(Mount { target: target.into(), kind, create: None, if_present: false, why: why.to_owned() })
}

/// A mount onto what may not be there.
pub(crate) fn if_present(target: impl Into<PathBuf>, kind: MountKind, why: &str) -> Step {
    Step::Mount(Mount { target: target.into(), kind, create: None, if_present: true, why: why.to_owned() })
}

/// A mount onto a mount point that has to be made.
pub(crate) fn make(target: impl Into<PathBuf>, kind: MountKind, create: Kind, why: &str) -> Step {
    Step::Mount(Mount { target: target.into(), kind, create: Some(create), if_present: false, why: why.to_owned() })
}
