//! The loopback interface of a new network namespace. Called by `launcher::apply`.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::raw;

pub fn loopback_up() -> Result<(), Errno> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    raw::set_interface_up(socket.as_fd(), b"lo")
}
