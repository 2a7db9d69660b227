//! Datagrams on a socket that hears every address: who sent one, and to which address, so that the answer comes from there.
//! Owns the calls; the socket is made by `network`. Called by `egress` for name queries.

use std::net::{Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::raw;

/// A datagram that came in; addresses of IPv4 are mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    pub length: usize,
    pub from: SocketAddrV6,
    pub to: Option<Ipv6Addr>,
}

/// What is there now; AGAIN where nothing is.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<Received, Errno> {
    raw::receive_datagram(socket.as_fd(), buffer).map(|(length, from, to)| Received { length, from, to })
}

/// Answers from the address that was asked.
pub fn answer(socket: impl AsFd, bytes: &[u8], to: &Received) -> Result<(), Errno> {
    match (to.to, to.from.ip().to_ipv4_mapped()) {
        // A socket of IPv4 alone, where the answer's address follows from the sender's: both are the one that was asked.
        (None, Some(address)) => {
            let to = SocketAddrV4::new(address, to.from.port());
            rustix::net::sendto(socket.as_fd(), bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &to)?;
            Ok(())
        }
        (asked, _) => raw::send_datagram(socket.as_fd(), bytes, to.from, asked),
    }
}
