//! Installing a filter and answering its notifications. Owns the mechanism; the program and the answers come from `plan`.
//! Called by `launcher`, `supervisor` and `gate`.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

use crate::raw;

const NEW_LISTENER: u64 = 1 << 3;
const WAIT_KILLABLE_RECV: u64 = 1 << 5;
const CONTINUE: u32 = 1;

/// One classic BPF instruction.
#[derive(Debug, Clone, Copy)]
pub struct Instruction {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

fn raw_program(program: impl Iterator<Item = Instruction>) -> Vec<raw::seccomp::SockFilter> {
    program.map(|i| raw::seccomp::SockFilter { code: i.code, jt: i.jt, jf: i.jf, k: i.k }).collect()
}

/// Installs a filter for this thread and everything it starts. Needs no_new_privs.
pub fn install(program: impl Iterator<Item = Instruction>) -> Result<(), Errno> {
    raw::seccomp::seccomp_set_filter(&raw_program(program), 0).map(|_| ())
}

/// Same, with a listener that receives the calls the filter wants reported.
pub fn install_with_listener(program: impl Iterator<Item = Instruction>) -> Result<Listener, Errno> {
    let program = raw_program(program);
    let fd = match raw::seccomp::seccomp_set_filter(&program, NEW_LISTENER | WAIT_KILLABLE_RECV) {
        // Before Linux 5.19 a waiting call could not be told apart from an interrupted one; it is refused either way.
        Err(Errno::INVAL) => raw::seccomp::seccomp_set_filter(&program, NEW_LISTENER)?,
        other => other?,
    };
    Ok(Listener(raw::own_fd(fd)?))
}

/// A system call that waits for an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    pub id: u64,
    /// As seen from the receiver's pid namespace.
    pub pid: u32,
    pub number: u32,
    pub arguments: [u64; 6],
}

#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    pub fn from_fd(fd: OwnedFd) -> Self {
        Listener(fd)
    }

    /// The next waiting call; `None` if it went away before it could be read.
    pub fn receive(&self) -> Result<Option<Notification>, Errno> {
        match raw::seccomp::notif_recv(self.0.as_fd()) {
            Ok(n) => Ok(Some(Notification { id: n.id, pid: n.pid, number: n.nr.cast_unsigned(), arguments: n.args })),
            Err(Errno::NOENT | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Refuses a waiting call. A caller that is gone needs no answer.
    pub fn refuse(&self, notification: &Notification, errno: u16) -> Result<(), Errno> {
        let response =
            raw::seccomp::SeccompNotifResp { id: notification.id, val: 0, error: -i32::from(errno), flags: 0 };
        match raw::seccomp::notif_send(self.0.as_fd(), &response) {
            Err(Errno::NOENT) => Ok(()),
            other => other,
        }
    }
}

impl Listener {
    /// Lets a waiting call go on as if it had not been reported. Only where something else decides what it reaches: its
    /// arguments may have changed since they were read.
    pub fn go_on(&self, id: u64) -> Result<(), Errno> {
        self.respond(id, 0, CONTINUE)
    }

    pub fn refuse_with(&self, id: u64, errno: Errno) -> Result<(), Errno> {
        self.respond(id, -errno.raw_os_error(), 0)
    }

    fn respond(&self, id: u64, error: i32, flags: u32) -> Result<(), Errno> {
        match raw::seccomp::notif_send(self.0.as_fd(), &raw::seccomp::SeccompNotifResp { id, val: 0, error, flags }) {
            Err(Errno::NOENT) => Ok(()),
            other => other,
        }
    }

    /// Whether the call still waits: its process has not been killed, and its number belongs to no other process.
    pub fn is_waiting(&self, id: u64) -> bool {
        raw::seccomp::notif_is_valid(self.0.as_fd(), id)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Listener> for OwnedFd {
    fn from(listener: Listener) -> Self {
        listener.0
    }
}
