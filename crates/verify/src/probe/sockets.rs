//! Ways to talk to what is outside. Whether it was heard there is seen there.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixStream};
use std::time::Duration;

use super::Attempts;
use crate::answer::Answer;
use crate::canaries::through;
use crate::errand::Errand;

const WAIT: Duration = Duration::from_millis(500);

fn tried<T>(what: &str, result: io::Result<T>) -> Answer {
    let mut attempts = Attempts::default();
    attempts.add(what, result);
    attempts.answer()
}

pub(super) fn connect_abstract(errand: &Errand) -> Answer {
    let address = UnixAddress::from_abstract_name(errand.file_name());
    tried("an abstract socket", address.and_then(|address| UnixStream::connect_addr(&address)))
}

pub(super) fn connect_path(errand: &Errand) -> Answer {
    let path = errand.scratch().socket();
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Answer::Unclear("the socket has no name".to_owned());
    };
    // Addresses of sockets are short, paths of scratch roots are not.
    let connect = |directory: File| UnixStream::connect(through(&directory).join(name));
    tried("a service's socket", File::open(directory).and_then(connect))
}

pub(super) fn connect_tcp(errand: &Errand) -> Answer {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, errand.tcp));
    let connected = TcpStream::connect_timeout(&address, WAIT);
    tried("TCP to the host's loopback", connected.and_then(|mut stream| stream.write_all(errand.token.as_bytes())))
}

pub(super) fn send_datagram(errand: &Errand) -> Answer {
    let send = |socket: UdpSocket| socket.send_to(errand.token.as_bytes(), (Ipv4Addr::LOCALHOST, errand.udp));
    tried("a datagram to the host's loopback", UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(send))
}
