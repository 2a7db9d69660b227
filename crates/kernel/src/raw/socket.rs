//! Options, peers and datagrams of sockets, and the loopback interface.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;

use super::{Result, check, done};

pub(crate) fn set_interface_up(socket: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    // SAFETY: ifreq is plain old data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.iter().take(libc::IFNAMSIZ - 1)) {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel reads one ifreq from a live value.
    done(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) })
}

/// An option of a socket that is a number.
pub(crate) fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> Result<()> {
    let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel reads `length` bytes from a live value of that size.
    done(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length) })
}

/// Room for one IPv6 packet-information message, as the kernel aligns it.
#[repr(C, align(8))]
struct PacketInfo([u8; 64]);

/// A datagram of an IPv6 socket that tells packet information: (length, sender, the address it was sent to).
pub(crate) fn receive_datagram(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> Result<(usize, SocketAddrV6, Option<Ipv6Addr>)> {
    // SAFETY: plain old data for which all zeroes is a valid value.
    let mut from: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let mut control = PacketInfo([0; 64]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: as above; some libcs have padding fields that cannot be named.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut from).cast();
    message.msg_namelen = libc::socklen_t::try_from(size_of::<libc::sockaddr_in6>()).map_err(|_| Errno::INVAL)?;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: every pointer in the header is to a live value of the length beside it.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let length = check(length as libc::c_long)?;
    let mut to = None;
    // SAFETY: the kernel has filled the control buffer and set its length; the macros stay within it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::IPPROTO_IPV6 && (*header).cmsg_type == libc::IPV6_PKTINFO {
                let info: libc::in6_pktinfo = ptr::read_unaligned(libc::CMSG_DATA(header).cast());
                to = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr));
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    let port = u16::from_be(from.sin6_port);
    let address = if libc::c_int::from(from.sin6_family) == libc::AF_INET {
        // A socket of IPv4: the port stands at the same place, and the address where the flow would.
        Ipv4Addr::from(from.sin6_flowinfo.to_ne_bytes()).to_ipv6_mapped()
    } else {
        Ipv6Addr::from(from.sin6_addr.s6_addr)
    };
    let from = SocketAddrV6::new(address, port, 0, 0);
    Ok((usize::try_from(length).unwrap_or_default(), from, to))
}

/// The answer to one, from the address that it was sent to.
pub(crate) fn send_datagram(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    to: SocketAddrV6,
    from: Option<Ipv6Addr>,
) -> Result<()> {
    // SAFETY: plain old data for which all zeroes is a valid value.
    let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    name.sin6_family = libc::sa_family_t::try_from(libc::AF_INET6).map_err(|_| Errno::INVAL)?;
    name.sin6_port = to.port().to_be();
    name.sin6_addr.s6_addr = to.ip().octets();
    let mut control = PacketInfo([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: as above.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = libc::socklen_t::try_from(size_of::<libc::sockaddr_in6>()).map_err(|_| Errno::INVAL)?;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if let Some(from) = from {
        let size = u32::try_from(size_of::<libc::in6_pktinfo>()).map_err(|_| Errno::INVAL)?;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the buffer has room for one message of this size, and the macros stay within the length set here.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::IPPROTO_IPV6;
            (*header).cmsg_type = libc::IPV6_PKTINFO;
            (*header).cmsg_len = libc::CMSG_LEN(size) as _;
            let mut info: libc::in6_pktinfo = std::mem::zeroed();
            info.ipi6_addr.s6_addr = from.octets();
            ptr::write_unaligned(libc::CMSG_DATA(header).cast(), info);
        }
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: every pointer in the header is to a live value of the length beside it; the kernel only reads.
    done(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) } as libc::c_long)
}

/// An option of a socket that is plain integers.
fn get_option<T: Copy>(socket: BorrowedFd<'_>, name: i32, mut value: T) -> Result<T> {
    let mut length = libc::socklen_t::try_from(size_of::<T>()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel writes at most `length` bytes, which is the size of the live value, and the length itself; both callers
    // pass a type of integers, for which any bytes are a value.
    done(unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut length)
    })?;
    Ok(value)
}

/// Who made the other end of a connection, as seen from here: (pid, uid).
pub(crate) fn peer(socket: BorrowedFd<'_>) -> Result<(i32, u32)> {
    let peer = get_option(socket, libc::SO_PEERCRED, libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX })?;
    Ok((peer.pid, peer.uid))
}

/// The process that made the other end of a connection (Linux 6.5).
pub(crate) fn peer_pidfd(socket: BorrowedFd<'_>) -> Result<OwnedFd> {
    // Not in every libc yet; the same on all architectures that we build for.
    const SO_PEERPIDFD: libc::c_int = 77;
    let fd: libc::c_int = get_option(socket, SO_PEERPIDFD, -1)?;
    if fd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the kernel has just made this descriptor for us, and no other code of this process knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
