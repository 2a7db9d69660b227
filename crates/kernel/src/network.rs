//! The network namespace of a sandbox: made beside the rest of the set-up, because it takes the kernel longer than all the
//! mounts together (docs/decisions/0013). Owns making, its loopback, and joining. Called by `launcher::apply`.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, WaitOptions};
use rustix::thread::LinkNameSpaceType;

use crate::{process, raw, socket};

/// A network namespace that a helper process is making.
#[derive(Debug)]
pub struct Pending {
    helper: Pid,
    socket: OwnedFd,
}

/// Starts making a network namespace, owned by the caller's user namespace, with loopback up.
pub fn create_beside() -> Result<Pending, Errno> {
    let (ours, theirs) = socket::pair()?;
    // Before the root changes for both of us.
    let proc = rustix::fs::openat(CWD, c"/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let Some(pid) = process::fork()? else {
        drop(ours);
        process::exit_now(i32::from(make(&proc, &theirs).is_err()))
    };
    Ok(Pending { helper: Pid::from_raw(pid).ok_or(Errno::SRCH)?, socket: ours })
}

fn make(proc: &OwnedFd, parent: &OwnedFd) -> Result<(), Errno> {
    process::die_with_parent()?;
    raw::unshare_network()?;
    loopback_up()?;
    let own = rustix::fs::openat(proc, c"self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    socket::send(parent.as_fd(), b"n", Some(own.as_fd()))
}

impl Pending {
    /// Waits for the namespace and moves this process into it.
    pub fn join(self) -> Result<(), Errno> {
        let (_, namespace) = socket::receive(&self.socket)?;
        // Without a descriptor the helper has failed; there is no network namespace to fall back to.
        let namespace = namespace.ok_or(Errno::CANCELED)?;
        rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        loop {
            match rustix::process::waitpid(Some(self.helper), WaitOptions::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

fn loopback_up() -> Result<(), Errno> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    raw::set_interface_up(socket.as_fd(), b"lo")
}
