//! Who waits: what the sandbox's own /proc says of a thread. Owns reading it; everything it says is for showing, but for one
//! thing, whether a thread is being killed. Used by `Gate`.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::question::{Asker, Program};

/// More of a command line is not shown.
const MOST_BYTES: usize = 4096;
const MOST_PARENTS: usize = 16;
const SIGKILL: u32 = 9;

/// The sandbox's /proc.
#[derive(Debug)]
pub(crate) struct Processes(pub(crate) OwnedFd);

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

    /// Whether a thread has only its end before it. One that cannot be found has met it.
    pub(crate) fn is_dying(&self, thread: u32) -> bool {
        let Ok(status) = self.read(&format!("{thread}/status")) else { return true };
        let status = String::from_utf8_lossy(&status);
        let pending = |key| Self::status(&status, key).and_then(|bits| u64::from_str_radix(&bits, 16).ok());
        [pending("SigPnd:"), pending("ShdPnd:")].into_iter().flatten().any(|bits| bits >> (SIGKILL - 1) & 1 == 1)
    }
}
