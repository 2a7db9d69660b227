//! Moving between namespaces: how the broker reaches the sandbox's view from one that still has the host's tree, and how a
//! further command joins a session.
//! Owns the calls; only a process with a single thread may make them. Called by `gate::broker`, `launcher::join` and
//! `sandbox-verify`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::namespace;
use crate::raw;

/// The namespaces of a session that another process can join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    User,
    Pid,
    Mount,
    Ipc,
    Uts,
    Net,
    Cgroup,
}

impl Joined {
    pub fn name(self) -> &'static str {
        match self {
            Joined::User => "user",
            Joined::Pid => "pid",
            Joined::Mount => "mnt",
            Joined::Ipc => "ipc",
            Joined::Uts => "uts",
            Joined::Net => "net",
            Joined::Cgroup => "cgroup",
        }
    }

    /// This process's own.
    pub fn own(self) -> Result<OwnedFd, Errno> {
        let path = format!("/proc/self/ns/{}", self.name());
        rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    }

    /// The number of this process's own: no other namespace that lives has it.
    pub fn own_number(self) -> Result<u64, Errno> {
        rustix::fs::stat(format!("/proc/self/ns/{}", self.name())).map(|found| found.st_ino)
    }

    /// Of a pid namespace only the children to come are part.
    pub fn enter(self, namespace: impl AsFd) -> Result<(), Errno> {
        let kind = match self {
            Joined::User => LinkNameSpaceType::User,
            Joined::Pid => LinkNameSpaceType::ProcessID,
            Joined::Mount => LinkNameSpaceType::Mount,
            Joined::Ipc => LinkNameSpaceType::InterProcessCommunication,
            Joined::Uts => LinkNameSpaceType::HostNameAndNISDomainName,
            Joined::Net => LinkNameSpaceType::Network,
            Joined::Cgroup => LinkNameSpaceType::ControlGroup,
        };
        move_into_link_name_space(namespace.as_fd(), Some(kind))
    }
}

/// This process's own mount namespace.
pub fn own_mounts() -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, c"/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// The user namespace that a namespace belongs to.
pub fn owner_of(namespace: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    raw::namespace::owner_of_namespace(namespace)
}

pub fn enter_user(namespace: impl AsFd) -> Result<(), Errno> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))
}

/// Root and working directory become those of the namespace.
pub fn enter_mounts(namespace: impl AsFd) -> Result<(), Errno> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
}

/// A copy of the present mount namespace, for this process alone.
pub fn copy_mounts() -> Result<(), Errno> {
    raw::namespace::unshare(namespace::MOUNT)
}

/// Moves this process into a new user namespace, of which its user is root.
pub fn become_root() -> Result<(), Errno> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    raw::namespace::unshare(namespace::USER)?;
    let write = |file: &str, text: String| {
        std::fs::write(format!("/proc/self/{file}"), text)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("0 {} 1", user.as_raw()))?;
    write("gid_map", format!("0 {} 1", group.as_raw()))
}
