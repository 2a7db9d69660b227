//! A process in the session's network that connects to ports of it, for those that are published on the host. Owns its life:
//! it joins the network, gives up every right and answers one kind of request. It is not among the session's processes, so
//! no process inside can see it. Started by the loop once the namespaces are known.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};

use cofferdam_kernel::best_effort;
use cofferdam_kernel::namespace::Joined;
use cofferdam_kernel::{privilege, process, socket};
use cofferdam_launcher::report::JOINED;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, WaitOptions};

pub(crate) struct Dialer(Pid);

impl Dialer {
    /// `way` is its end of the socket over which it is asked.
    pub(crate) fn start(way: &OwnedFd, namespaces: &[OwnedFd]) -> Result<Dialer, Errno> {
        let find = |wanted| JOINED.iter().position(|kind| *kind == wanted).and_then(|at| namespaces.get(at));
        let (user, net) = find(Joined::User).zip(find(Joined::Net)).ok_or(Errno::NOENT)?;
        let Some(pid) = process::fork()? else {
            process::exit_now(i32::from(serve(way, user, net).is_err()));
        };
        Pid::from_raw(pid).map(Dialer).ok_or(Errno::SRCH)
    }
}

impl Drop for Dialer {
    fn drop(&mut self) {
        best_effort(rustix::process::kill_process(self.0, Signal::KILL), "it may be gone already");
        while matches!(rustix::process::waitpid(Some(self.0), WaitOptions::empty()), Err(Errno::INTR)) {}
    }
}

fn serve(way: &OwnedFd, user: &OwnedFd, net: &OwnedFd) -> Result<(), Errno> {
    process::keep_only(&[way.as_fd(), user.as_fd(), net.as_fd()])?;
    Joined::User.enter(user)?;
    Joined::Net.enter(net)?;
    process::die_with_parent()?;
    process::forbid_tracing()?;
    privilege::drop_capabilities()?;
    privilege::no_new_privileges()?;
    if socket::is_abandoned(way)? {
        return Ok(());
    }
    loop {
        let (asked, _) = socket::receive(way)?;
        let Ok(port) = <[u8; 2]>::try_from(asked.as_slice()).map(u16::from_be_bytes) else { return Ok(()) };
        match connect(port) {
            Ok(connected) => socket::send(way.as_fd(), b"c", Some(connected.as_fd()))?,
            Err(_) => socket::send(way.as_fd(), b"r", None)?,
        }
    }
}

/// The session's own loopback, in either family.
fn connect(port: u16) -> Result<OwnedFd, Errno> {
    let open = |family| rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let v4 = open(AddressFamily::INET)?;
    if rustix::net::connect(&v4, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).is_ok() {
        return Ok(v4);
    }
    let v6 = open(AddressFamily::INET6)?;
    rustix::net::connect(&v6, &SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 0))?;
    Ok(v6)
}
