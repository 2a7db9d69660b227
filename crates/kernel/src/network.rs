//! The network namespace of a sandbox: made beside the rest of the set-up, because it takes the kernel longer than all the
//! mounts together (docs/decisions/0013). Owns making, its loopback, what catches connections to the outside
//! (docs/decisions/0024), and joining. Called by `launcher::apply`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::process::{Pid, WaitOptions};
use rustix::thread::LinkNameSpaceType;

use crate::{netlink, process, raw, socket};

/// The one port that a program inside cannot use: where nftables hands connections to.
pub const CATCH_PORT: u16 = 1;
/// Where names are asked.
pub const NAME_PORT: u16 = 53;
/// The address that a session has besides its loopback's, so that the C library does not think it is offline: it gives no
/// addresses of a family (`AI_ADDRCONFIG`) of which it sees none but 127.0.0.1.
const OWN: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Connections that wait for the egress process; the kernel cuts it to its own limit.
const BACKLOG: i32 = 4096;

/// What connections to the outside are caught.
#[derive(Debug, Clone, Copy)]
pub struct Catch<'a> {
    /// Who gets the sockets.
    pub to: BorrowedFd<'a>,
    /// Ports that are listened on where nftables cannot catch them all.
    pub ports: &'a [u16],
    /// Places of the loopback that are caught although they would be inside.
    pub also: &'a [(IpAddr, u16)],
    /// Leaves nftables aside, to test what happens where there is none.
    pub without_filter: bool,
}

/// How much is caught, as the first byte of the message that carries the sockets: the socket for names first.
pub const CAUGHT_ALL: u8 = b'a';
pub const CAUGHT_PORTS: u8 = b'p';

/// The message that carries the socket of programs that use the user's ssh-agent.
pub const AGENT: u8 = b's';

/// A network namespace that a helper process is making.
#[derive(Debug)]
pub struct Pending {
    helper: Pid,
    socket: OwnedFd,
}

/// Starts making a network namespace, owned by the caller's user namespace, with loopback up.
pub fn create_beside(catch: Option<Catch<'_>>) -> Result<Pending, Errno> {
    let (ours, theirs) = socket::pair()?;
    // Before the root changes for both of us.
    let proc = rustix::fs::openat(CWD, c"/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let Some(pid) = process::fork()? else {
        drop(ours);
        process::exit_now(i32::from(make(&proc, &theirs, catch).is_err()))
    };
    Ok(Pending { helper: Pid::from_raw(pid).ok_or(Errno::SRCH)?, socket: ours })
}

fn make(proc: &OwnedFd, parent: &OwnedFd, catch: Option<Catch<'_>>) -> Result<(), Errno> {
    process::die_with_parent()?;
    raw::namespace::unshare(process::namespace::NET)?;
    loopback_up()?;
    if let Some(catch) = catch {
        catch_outgoing(catch)?;
    }
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

/// Moves this process into a network namespace in which there is nothing, and which no process can fill: it belongs to a user
/// namespace without ids. For a process with one thread.
pub fn leave() -> Result<(), Errno> {
    raw::namespace::unshare(process::namespace::USER | process::namespace::NET)
}

fn loopback_up() -> Result<(), Errno> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    raw::socket::set_interface_up(socket.as_fd(), b"lo")
}

/// Every address becomes local, and the process that listens here hears what was meant for it.
fn catch_outgoing(catch: Catch<'_>) -> Result<(), Errno> {
    netlink::make_all_local(AddressFamily::INET)?;
    netlink::add_address(OWN)?;
    let has_v6 = match netlink::make_all_local(AddressFamily::INET6) {
        Ok(()) => true,
        // This kernel was started without it.
        Err(Errno::AFNOSUPPORT | Errno::OPNOTSUPP) => false,
        Err(errno) => return Err(errno),
    };
    let names = names(has_v6)?;
    let diverted = if catch.without_filter { Err(Errno::NOSYS) } else { divert(has_v6, catch.also) };
    if let Ok(listener) = diverted {
        return socket::send_all(catch.to, &[CAUGHT_ALL], &[names.as_fd(), listener.as_fd()]);
    }
    // No nftables, or not for us: the ports that policy names, and no others.
    socket::send_all(catch.to, &[CAUGHT_PORTS], &[names.as_fd()])?;
    let also = catch.also.iter().map(|(_, port)| *port);
    let mut ports: Vec<u16> = catch.ports.iter().copied().chain(also).chain([NAME_PORT]).collect();
    ports.sort_unstable();
    ports.dedup();
    for port in ports {
        let listener = listener(has_v6, port, false)?;
        socket::send_all(catch.to, &[CAUGHT_PORTS], &[listener.as_fd()])?;
    }
    Ok(())
}

fn divert(has_v6: bool, also: &[(IpAddr, u16)]) -> Result<OwnedFd, Errno> {
    let listener = listener(has_v6, CATCH_PORT, true)?;
    netlink::divert(CATCH_PORT, also)?;
    Ok(listener)
}

/// Hears both families where the kernel has both.
fn open(has_v6: bool, kind: SocketType, port: u16, transparent: bool) -> Result<OwnedFd, Errno> {
    let family = if has_v6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if transparent {
        let (level, name) =
            if has_v6 { (libc::SOL_IPV6, libc::IPV6_TRANSPARENT) } else { (libc::SOL_IP, libc::IP_TRANSPARENT) };
        raw::socket::set_option(socket.as_fd(), level, name, 1)?;
    }
    if has_v6 {
        sockopt::set_ipv6_v6only(&socket, false)?;
        rustix::net::bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
    } else {
        rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
    }
    Ok(socket)
}

fn listener(has_v6: bool, port: u16, transparent: bool) -> Result<OwnedFd, Errno> {
    let socket = open(has_v6, SocketType::STREAM, port, transparent)?;
    // What is accepted inherits it.
    sockopt::set_tcp_nodelay(&socket, true)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn names(has_v6: bool) -> Result<OwnedFd, Errno> {
    let socket = open(has_v6, SocketType::DGRAM, NAME_PORT, false)?;
    if has_v6 {
        raw::socket::set_option(socket.as_fd(), libc::SOL_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
    }
    Ok(socket)
}

/// Makes a socket at a path of this process's tree, and hands it over.
pub fn offer_agent(at: &std::path::Path, to: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(at)?)?;
    rustix::net::listen(&socket, 64)?;
    socket::send(to, &[AGENT], Some(socket.as_fd()))
}
