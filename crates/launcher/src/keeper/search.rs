//! Looks whether a process of the session holds an object: as a descriptor, a mapping, a working or a root directory, or as
//! its program. Owns the look, which is made by a process of its own: a list of mappings can wait for a task that waits for
//! the supervisor. Called by `keeper` while the session is stopped.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use cofferdam_kernel::process::{self, Side};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::keeper::halt::{directory, numbers};
use crate::message::best_effort;
use crate::patience::time_until;

/// What is not answered by then counts as held.
const PATIENCE: Duration = Duration::from_secs(1);
const HELD: i32 = 1;

/// Device and inode, as the kernel tells them of a descriptor.
pub(crate) type Object = (u32, u32, u64);

/// `processes` is the sandbox's /proc.
pub(crate) fn is_held(processes: BorrowedFd<'_>, objects: &[Object]) -> Result<bool, Errno> {
    if objects.is_empty() {
        return Ok(false);
    }
    let child = match process::clone_into(0, None)? {
        Side::Child => process::exit_now(look(processes, objects)),
        Side::Parent { pidfd, .. } => pidfd,
    };
    let until = Instant::now() + PATIENCE;
    let mut fds = [PollFd::new(&child, PollFlags::IN)];
    if poll(&mut fds, Some(&time_until(until))) != Ok(1) {
        best_effort(pidfd_send_signal(&child, Signal::KILL), "it may have ended meanwhile");
    }
    loop {
        match waitid(WaitId::PidFd(child.as_fd()), WaitIdOptions::EXITED) {
            Err(Errno::INTR) => {}
            other => return Ok(other?.and_then(|status| status.exit_status()) != Some(0)),
        }
    }
}

/// A process that ends meanwhile holds nothing; what cannot be looked at counts as held.
fn look(processes: BorrowedFd<'_>, objects: &[Object]) -> i32 {
    let Ok(pids) = numbers(processes, c".") else { return HELD };
    for pid in pids {
        let Ok(process) = directory(processes, &pid.to_string()) else { continue };
        // Pid 1 is ours, has no descriptor of the host's files, and cannot be looked into.
        if pid != 1 && holds(process.as_fd(), objects).unwrap_or(false) {
            return HELD;
        }
    }
    0
}

fn holds(process: BorrowedFd<'_>, objects: &[Object]) -> Result<bool, Errno> {
    let is_one = |name: &str| identity(process, name).is_ok_and(|found| objects.contains(&found));
    if ["cwd", "root", "exe"].into_iter().any(is_one) {
        return Ok(true);
    }
    if numbers(process, c"fd")?.into_iter().any(|fd| is_one(&format!("fd/{fd}"))) {
        return Ok(true);
    }
    Ok(is_mapped(process, objects))
}

/// Where the link leads to. Nothing is asked of the file system that it lies on: that may be the supervisor.
fn identity(process: BorrowedFd<'_>, name: &str) -> Result<Object, Errno> {
    let stat = rustix::fs::statx(process, name, AtFlags::STATX_DONT_SYNC, StatxFlags::INO)?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
}

/// Lines are `start-end mode offset major:minor inode path`.
fn is_mapped(process: BorrowedFd<'_>, objects: &[Object]) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(process, "maps", flags, Mode::empty()) else { return false };
    let mut text = Vec::new();
    if std::io::Read::read_to_end(&mut std::fs::File::from(file), &mut text).is_err() {
        return false;
    }
    text.split(|byte| *byte == b'\n').any(|line| {
        let line = String::from_utf8_lossy(line);
        let mut fields = line.split_ascii_whitespace().skip(3);
        let (Some(device), Some(inode)) = (fields.next(), fields.next()) else { return false };
        let (Some((major, minor)), Ok(inode)) = (device.split_once(':'), inode.parse::<u64>()) else { return false };
        let number = |text| u32::from_str_radix(text, 16).unwrap_or(u32::MAX);
        let (major, minor) = (number(major), number(minor));
        // A file system without a device of its own may report another for a descriptor than for a mapping.
        let is_device = |object: &Object| (object.0, object.1) == (major, minor) || major == 0 && object.0 == 0;
        inode != 0 && objects.iter().any(|object| object.2 == inode && is_device(object))
    })
}
