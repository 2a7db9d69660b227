//! Who waits: what the sandbox's own /proc says of a thread. Owns reading it; everything it says is for showing, but for one
//! thing, whether a thread is being killed. Used by `Gate`.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use cofferdam_wire::{Asker, Program};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// More of a command line is not shown.
const MOST_BYTES: usize = 4096;
const MOST_PARENTS: usize = 16;
const SIGKILL: u32 = 9;
/// How a line about a call begins that changes the working directory by a path.
const CHDIR: &str = "80 ";
/// Of a table of connections.
const MOST_TABLE: usize = 4 << 20;

/// The sandbox's /proc.
#[derive(Debug)]
pub(crate) struct Processes(pub(crate) OwnedFd);

/// Who made a call, by the number that this process knows the thread by.
pub fn asker(thread: u32) -> Asker {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = rustix::fs::open("/proc", flags, Mode::empty());
    proc.map(|proc| Processes(proc).asker(thread)).unwrap_or_default()
}

impl Processes {
    fn read(&self, file: &str) -> Result<Vec<u8>, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(self.0.as_fd(), file, flags, Mode::empty())?;
        let mut bytes = vec![0; MOST_BYTES];
        let length = rustix::io::read(&fd, &mut bytes)?;
        bytes.truncate(length);
        Ok(bytes)
    }

    fn link(&self, file: &str) -> String {
        let link = rustix::fs::readlinkat(self.0.as_fd(), file, Vec::new());
        let path = link.map(|link| PathBuf::from(std::ffi::OsString::from_vec(link.into_bytes())));
        path.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// A line of a status file that begins with `key`.
    fn status(text: &str, key: &str) -> Option<String> {
        text.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned())
    }

    fn program(&self, pid: u32) -> Program {
        let line = self.read(&format!("{pid}/cmdline")).unwrap_or_default();
        let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        Program {
            pid,
            exe: self.link(&format!("{pid}/exe")),
            argv: words.map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
        }
    }

    /// Whether a process is pid 1 of the innermost namespace that it is in.
    fn is_first(&self, pid: u32) -> bool {
        let status = self.read(&format!("{pid}/status")).unwrap_or_default();
        let numbers = Self::status(&String::from_utf8_lossy(&status), "NSpid:");
        numbers.is_some_and(|numbers| numbers.split_whitespace().last() == Some("1"))
    }

    pub(crate) fn asker(&self, thread: u32) -> Asker {
        let mut parents = Vec::new();
        let mut pid = thread;
        let mut process = thread;
        while parents.len() < MOST_PARENTS {
            let status = self.read(&format!("{pid}/status")).unwrap_or_default();
            let status = String::from_utf8_lossy(&status);
            let number = |key| Self::status(&status, key).and_then(|text| text.parse::<u32>().ok());
            if pid == thread {
                process = number("Tgid:").unwrap_or(thread);
            }
            match number("PPid:") {
                // Pid 1 is ours.
                Some(parent) if parent > 1 && !self.is_first(parent) => {
                    parents.push(self.program(parent));
                    pid = parent;
                }
                _ => break,
            }
        }
        Asker { program: self.program(process), cwd: self.link(&format!("{thread}/cwd")), parents }
    }

    /// The process that holds the socket of a connection from this port, in the network of process `first`.
    pub(crate) fn holder_of(&self, port: u16, first: u32) -> Option<u32> {
        let tables = ["tcp", "tcp6"].map(|table| self.whole(&format!("{first}/net/{table}")).unwrap_or_default());
        let inode = tables.iter().find_map(|table| socket_of(&String::from_utf8_lossy(table), port))?;
        let link = format!("socket:[{inode}]");
        let processes = rustix::fs::Dir::read_from(self.0.as_fd()).ok()?;
        let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str().ok()?.parse::<u32>().ok());
        let mut numbers: Vec<u32> = numbers.filter(|number| *number != first).collect();
        // The process that came last is the likeliest.
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        numbers.into_iter().find(|number| self.holds(*number, &link))
    }

    fn holds(&self, process: u32, link: &str) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(fds) = rustix::fs::openat(self.0.as_fd(), format!("{process}/fd"), flags, Mode::empty()) else {
            return false;
        };
        let Ok(entries) = rustix::fs::Dir::read_from(&fds) else { return false };
        entries.flatten().any(|entry| {
            rustix::fs::readlinkat(&fds, entry.file_name(), Vec::new()).is_ok_and(|to| to.as_bytes() == link.as_bytes())
        })
    }

    fn whole(&self, file: &str) -> Result<Vec<u8>, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(self.0.as_fd(), file, flags, Mode::empty())?;
        let mut bytes = Vec::new();
        let mut chunk = [0; 16 << 10];
        loop {
            match rustix::io::read(&fd, &mut chunk)? {
                0 => return Ok(bytes),
                _ if bytes.len() > MOST_TABLE => return Ok(bytes),
                length => bytes.extend_from_slice(&chunk[..length]),
            }
        }
    }

    /// The package that a process says it works for, in the variables of those that run packages' scripts.
    pub(crate) fn package(&self, process: u32) -> Option<String> {
        let variables = self.whole(&format!("{process}/environ")).ok()?;
        let value = |name: &str| {
            let found = variables.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(name.as_bytes()));
            found.map(|value| String::from_utf8_lossy(value).into_owned()).filter(|value| !value.is_empty())
        };
        let npm = value("npm_package_name=").map(|name| match value("npm_lifecycle_event=") {
            Some(event) => format!("{name} ({event})"),
            None => name,
        });
        npm.or_else(|| value("CARGO_PKG_NAME="))
    }

    /// Whether a thread is about to stand in a directory, which decides nothing but when a question comes.
    pub(crate) fn is_going_in(&self, thread: u32) -> bool {
        let call = self.read(&format!("{thread}/syscall")).unwrap_or_default();
        call.starts_with(CHDIR.as_bytes())
    }

    /// Whether a thread has only its end before it. One that cannot be found has met it.
    pub(crate) fn is_dying(&self, thread: u32) -> bool {
        let Ok(status) = self.read(&format!("{thread}/status")) else { return true };
        let status = String::from_utf8_lossy(&status);
        let pending = |key| Self::status(&status, key).and_then(|bits| u64::from_str_radix(&bits, 16).ok());
        [pending("SigPnd:"), pending("ShdPnd:")].into_iter().flatten().any(|bits| bits >> (SIGKILL - 1) & 1 == 1)
    }
}

/// The socket that a table of connections lists with this port on its own side, and is open.
fn socket_of(table: &str, port: u16) -> Option<u64> {
    let own = format!(":{port:04X}");
    let mut rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<&str>>());
    rows.find_map(|row| match row[..] {
        [_, local, _, "01", _, _, _, _, _, inode, ..] if local.ends_with(&own) => {
            inode.parse().ok().filter(|inode| *inode > 0)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_found_by_its_own_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 000112C6:01BB 000112C6:B59E 01 00000000:00000000 00:00000000 00000000  1000        0 0 1 0\n   \
                     1: 000112C6:B59E 000112C6:01BB 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0\n";
        assert_eq!(socket_of(table, 0xb59e), Some(4711));
        assert_eq!(socket_of(table, 0x1234), None);
    }
}
