//! Every fact together, as one value. Gathered by `host::survey`, read by the rest of this crate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cofferdam_policy::Places;
use serde::Serialize;

use crate::facts::cgroup::CgroupHome;
use crate::facts::git::{GitDir, GitRole, TrackedFile};
use crate::facts::mount_table::MountFact;
use crate::facts::path::{FileId, PathFact};
use crate::facts::search::Searched;

/// A file that is shown without the values of secret names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct MaskFact {
    /// The rule is about this very path: no link leads to it.
    pub is_named: bool,
    /// What it reads as; none where it cannot be read as a text.
    #[serde(skip)]
    pub text: Option<String>,
}

/// Which of the standard streams are terminals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Terminal {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
}

impl Terminal {
    pub fn any(self) -> bool {
        self.stdin || self.stdout || self.stderr
    }
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct HostFacts {
    pub uid: u32,
    pub gid: u32,
    pub home: PathBuf,
    /// See [`Places::other_home`].
    pub other_home: Option<PathBuf>,
    pub cwd: PathBuf,
    /// The project's root, if the working directory is in one (never the home directory or an ancestor of it).
    pub project: Option<PathBuf>,
    pub git: Vec<GitDir>,
    /// Files that git's configuration of the user includes, as they are written there.
    pub git_includes: Vec<PathBuf>,
    /// Configurations of git that include more than was followed.
    pub unfollowed: Vec<PathBuf>,
    /// Variables that path expressions name.
    pub variables: Vec<(String, PathBuf)>,
    /// What was found for the rules of the policy: the rule's index in `Policy::files` and one path it stands for.
    /// A missing path is listed only where it matters: for a rule that demands it, and where it could be created.
    pub answers: Vec<(usize, PathFact)>,
    /// Directories in trees that are given for writing that cannot be looked into, though a session could open them.
    pub closed: Vec<PathFact>,
    /// Links in trees that are given for writing, through which a rule that refuses leads to what it is about.
    pub links: Vec<(usize, PathFact)>,
    /// Protected directories that were not looked through to the end for links, and the project where its root was not for
    /// patterns.
    pub unlisted: Vec<PathBuf>,
    /// The project's directory, its git directories and the files that link them.
    pub paths: BTreeMap<PathBuf, PathFact>,
    /// What lies beside the user's private keys of ssh and is public.
    pub public_ssh: Vec<PathFact>,
    /// What git reads besides, and the links through which it gets there.
    pub git_reads: Vec<PathFact>,
    /// Files of the project that a shipped list hides and that git's index names.
    pub tracked: Vec<TrackedFile>,
    /// Where rules are about any directory of the project: how far the search got.
    pub searched: Option<Searched>,
    /// Files of mask rules, by their real paths.
    pub masks: BTreeMap<PathBuf, MaskFact>,
    /// Which of `control::PLACES` there are; looked at only where a policy names sockets.
    pub control_sockets: Vec<(PathBuf, FileId)>,
    /// What was found for `Policy::network.sockets`: the grant's index and one path it stands for.
    pub granted_sockets: Vec<(usize, PathFact)>,
    /// Sockets that processes of the host have bound to a name, as far as a session could see it.
    pub sockets: Vec<(PathBuf, FileId)>,
    /// Why these are not known.
    pub sockets_unknown: Option<String>,
    /// The mounts of the host, in the kernel's order.
    pub mounts: Vec<MountFact>,
    /// Why these are not known.
    pub mounts_unknown: Option<String>,
    /// Why names could not be looked at, where that says nothing about them: no descriptor or no memory was left.
    pub paths_unknown: Option<String>,
    /// Directories in trees that can be written to, in which a name is found in another case too.
    pub folding: Vec<PathBuf>,
    /// System directories that exist: mount points of private file systems.
    pub system: Vec<PathBuf>,
    /// Programs of `process.executables` and the command itself, by the name asked for.
    pub executables: BTreeMap<String, PathFact>,
    /// Directories of shared libraries and the dynamic loaders: needed where execution is limited.
    pub libraries: Vec<(PathBuf, FileId)>,
    pub loaders: Vec<PathBuf>,
    /// Whether /dev/fuse can be opened.
    pub has_fuse: bool,
    /// 0 where the kernel has no Landlock.
    pub landlock_abi: u32,
    /// How many inotify instances and watches this user may have; none where that cannot be read.
    pub inotify_instances: Option<u64>,
    pub inotify_watches: Option<u64>,
    /// Whether a pid namespace has a largest pid of its own (Linux 6.14); before, it is the machine's.
    pub own_largest_pid: bool,
    pub terminal: Terminal,
    pub cgroup: CgroupHome,
    /// Bytes of memory that the machine has; 0 if unknown.
    pub memory: u64,
    /// The CPUs that this process may use.
    pub cpus: Vec<u32>,
    /// This process: sessions that start together spread by it.
    pub pid: u32,
    /// Disks (`major:minor`) below what the policy makes writable; looked at only where the policy limits them.
    pub disks: Vec<String>,
    /// Whether overlays can have a project quota; looked at only where the policy limits storage.
    pub has_quota: bool,
    /// The host's name servers; looked at only where names are asked.
    pub resolvers: Vec<core::net::IpAddr>,
    /// Where per-session files can be made (overlay uppers).
    pub session_dir: Option<PathBuf>,
}

/// Where the directories of the system lie: never a project, never looked at as a home, and never hidden whole.
const SYSTEM_TREES: &[&str] =
    &["/bin", "/boot", "/dev", "/etc", "/gnu", "/lib", "/lib32", "/lib64", "/nix", "/proc", "/sbin", "/sys", "/usr"];

pub fn is_of_the_system(path: &Path) -> bool {
    SYSTEM_TREES.iter().any(|tree| path.starts_with(tree))
}

impl HostFacts {
    /// The project and its repositories, which lie outside of it where it is a linked worktree.
    pub fn own_trees(&self) -> impl Iterator<Item = &Path> {
        self.project.iter().chain(self.git.iter().map(|git| &git.path)).map(PathBuf::as_path)
    }

    pub fn places(&self) -> Places {
        Places {
            home: self.home.clone(),
            other_home: self.other_home.clone(),
            project: self.project.clone(),
            // Git reads `config.worktree` in the entry of a linked worktree.
            git_dirs: self.git.iter().filter(|g| g.role != GitRole::Whole).map(|g| g.path.clone()).collect(),
            variables: self.variables.clone(),
        }
    }
}
