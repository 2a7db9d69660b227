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
    raw::socket::receive_datagram(socket.as_fd(), buffer).map(|(length, from, to)| Received { length, from, to })
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
        (asked, _) => raw::socket::send_datagram(socket.as_fd(), bytes, to.from, asked),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
    use std::time::Duration;

    use super::*;

    fn asked_at(server: &UdpSocket, at: SocketAddr) -> (Received, SocketAddr) {
        let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
        client.set_read_timeout(Some(Duration::from_secs(5))).expect("a limit");
        client.send_to(b"who?", at).expect("sent");
        let mut buffer = [0; 16];
        let received = receive(server, &mut buffer).expect("a datagram on loopback is there at once");
        assert_eq!(&buffer[..received.length], b"who?");
        assert_eq!(receive(server, &mut buffer), Err(Errno::AGAIN));
        answer(server, b"me", &received).expect("answered");
        let (length, from) = client.recv_from(&mut buffer).expect("an answer");
        assert_eq!(&buffer[..length], b"me");
        (received, from)
    }

    #[test]
    fn an_answer_comes_from_the_address_that_was_asked() {
        let Ok(server) = UdpSocket::bind("[::]:0") else { return println!("skipped: no IPv6") };
        raw::socket::set_option(server.as_fd(), libc::SOL_IPV6, libc::IPV6_RECVPKTINFO, 1).expect("an option");
        let asked = Ipv4Addr::new(127, 0, 0, 9);
        let at = SocketAddr::from((asked, server.local_addr().expect("bound").port()));
        let (received, from) = asked_at(&server, at);
        assert_eq!((received.to, from), (Some(asked.to_ipv6_mapped()), at));
    }

    #[test]
    fn a_socket_of_ipv4_alone_tells_the_sender_only() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let at = server.local_addr().expect("bound");
        let (received, from) = asked_at(&server, at);
        assert_eq!((received.to, received.from.ip().to_ipv4_mapped(), from), (None, Some(Ipv4Addr::LOCALHOST), at));
    }
}
