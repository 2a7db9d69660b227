//! Ways to talk to processes outside: sockets of services, abstract sockets, shared memory, descriptors.

use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};

use cofferdam_testkit::Place;

use super::{Attempt, call, judge};
use crate::row::Finding;

pub(super) fn abstract_socket(place: &Place) -> Finding {
    let Ok(address) = SocketAddr::from_abstract_name(place.name()) else {
        return Finding::Broken("no address".to_owned());
    };
    let connected = UnixStream::connect_addr(&address);
    judge(&[Attempt::io("connect to an abstract socket of the host", connected, &[libc::ECONNREFUSED, libc::EPERM])])
}

/// The paths come from the trial, which listens on each of them.
pub(super) fn service_sockets(place: &Place) -> Finding {
    let Ok(list) = fs::read_to_string(place.project().join("sockets")) else {
        return Finding::Broken("no list of sockets".to_owned());
    };
    let attempts: Vec<Attempt> = list
        .lines()
        .map(|path| Attempt::io(path, UnixStream::connect(path), &[libc::ENOENT, libc::EACCES, libc::ENOTDIR]))
        .collect();
    let variables = [
        "SSH_AUTH_SOCK",
        "DBUS_SESSION_BUS_ADDRESS",
        "DOCKER_HOST",
        "DISPLAY",
        "WAYLAND_DISPLAY",
        "GPG_AGENT_INFO",
        "PIPEWIRE_REMOTE",
    ];
    let set: Vec<&&str> = variables.iter().filter(|name| std::env::var_os(name).is_some()).collect();
    if !set.is_empty() {
        return Finding::Open(format!("{set:?} came along"));
    }
    judge(&attempts)
}

/// Asks every descriptor for descriptors that another process may have sent.
pub(super) fn received_descriptors() -> Finding {
    const DONTWAIT: usize = 0x40;
    let mut data = [0u8; 16];
    let mut attempts = Vec::new();
    for fd in 0..256usize {
        let mut control = [0usize; 16];
        let vector = [(&raw mut data) as usize, data.len()];
        // struct msghdr: name, name length, vector, its length, control, its length, flags.
        let mut message =
            [0usize, 0, (&raw const vector) as usize, 1, (&raw mut control) as usize, size_of_val(&control), 0];
        let received = call(libc::SYS_recvmsg, &[fd, (&raw mut message) as usize, DONTWAIT]);
        let carried = message[5] > 0 && received.is_ok();
        if received != Err(libc::EBADF) {
            let answer = if carried { received } else { received.map_or_else(Err, |_| Err(libc::ENOENT)) };
            attempts.push(Attempt::new(format!("descriptor {fd}"), answer, &[libc::ENOTSOCK, libc::ENOENT]));
        }
    }
    let sockets = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|e| fs::metadata(e.path()).is_ok_and(|m| m.file_type().is_socket()));
    let count = sockets.count();
    if count > 0 && attempts.iter().all(|a| a.result.is_err()) {
        return Finding::Open(format!("{count} sockets are open"));
    }
    judge(&attempts)
}

pub(super) fn shared_memory(place: &Place) -> Finding {
    let Some(key) = fs::read_to_string(place.project().join("key")).ok().and_then(|text| text.parse::<usize>().ok())
    else {
        return Finding::Broken("no key".to_owned());
    };
    let queue = std::ffi::CString::new(place.name()).unwrap_or_default();
    judge(&[
        Attempt::new("shmget", call(libc::SYS_shmget, &[key, 0, 0]), &[libc::ENOENT]),
        Attempt::io("/dev/shm", fs::metadata(format!("/dev/shm/{}", place.name())), &[libc::ENOENT]),
        Attempt::new("mq_open", call(libc::SYS_mq_open, &[queue.as_ptr() as usize, 0, 0, 0]), &[libc::ENOENT]),
    ])
}
