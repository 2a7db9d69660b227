//! Looks whether a process of the session holds an object: as a descriptor, a mapping, a working or a root directory, or as
//! its program. Owns the look, which is made by a process of its own: a list of mappings can wait for a task that waits for
//! the supervisor. Called by `covers` while the session is stopped.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cofferdam_kernel::best_effort;
use cofferdam_kernel::process::{self, Side};
use cofferdam_kernel::timing::time_until;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::halt::{directory, numbers, read, task, tasks, unless_gone};

/// What is not answered by then counts as held.
const PATIENCE: Duration = Duration::from_secs(2);
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
    let mut objects = objects.to_vec();
    objects.sort_unstable_by_key(|object| object.2);
    match is_any_held(processes, &objects) {
        Ok(false) => 0,
        Ok(true) | Err(_) => HELD,
    }
}

fn is_any_held(processes: BorrowedFd<'_>, objects: &[Object]) -> Result<bool, Errno> {
    // Pid 1 is ours, has no descriptor of the host's files, and cannot be looked into.
    for pid in numbers(processes, c".")?.into_iter().filter(|pid| *pid != 1) {
        if let Some(process) = unless_gone(directory(processes, &pid.to_string()))?
            && holds(process.as_fd(), objects)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Tasks share their memory, and may each have descriptors and directories of their own. One that has ended has nothing, and
/// what is left of it belongs to root.
fn holds(process: BorrowedFd<'_>, objects: &[Object]) -> Result<bool, Errno> {
    let mut has_memory = false;
    for number in tasks(process)? {
        if task(process, number)?.is_none() {
            continue;
        }
        let Some(task) = unless_gone(directory(process, &format!("task/{number}")))? else { continue };
        if ["cwd", "root", "exe"].into_iter().try_fold(false, |held, name| Ok(held || is_one(&task, name, objects)?))? {
            return Ok(true);
        }
        if let Some(table) = unless_gone(directory(task.as_fd(), "fd"))? {
            for fd in unless_gone(numbers(table.as_fd(), c"."))?.unwrap_or_default() {
                if is_one(&table, &fd.to_string(), objects)? {
                    return Ok(true);
                }
            }
        }
        if !has_memory {
            let maps = unless_gone(read(task.as_fd(), "maps"))?.unwrap_or_default();
            if is_mapped(&maps, objects) {
                return Ok(true);
            }
            has_memory = !maps.is_empty();
        }
    }
    Ok(false)
}

fn is_one(directory: &OwnedFd, name: &str, objects: &[Object]) -> Result<bool, Errno> {
    let found = unless_gone(identity(directory.as_fd(), name))?;
    Ok(found.is_some_and(|found| with_inode(objects, found.2).contains(&found)))
}

/// `objects` are in the order of their inodes.
fn with_inode(objects: &[Object], inode: u64) -> &[Object] {
    let from = objects.partition_point(|object| object.2 < inode);
    let to = objects.partition_point(|object| object.2 <= inode);
    &objects[from..to]
}

/// Where the link leads to. Nothing is asked of the file system that it lies on: that may be the supervisor.
fn identity(directory: BorrowedFd<'_>, name: &str) -> Result<Object, Errno> {
    let stat = rustix::fs::statx(directory, name, AtFlags::STATX_DONT_SYNC, StatxFlags::INO)?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
}

/// Lines are `start-end mode offset major:minor inode path`.
fn is_mapped(maps: &[u8], objects: &[Object]) -> bool {
    maps.split(|byte| *byte == b'\n').any(|line| {
        let line = String::from_utf8_lossy(line);
        let mut fields = line.split_ascii_whitespace().skip(3);
        let (Some(device), Some(inode)) = (fields.next(), fields.next()) else { return false };
        let (Some((major, minor)), Ok(inode)) = (device.split_once(':'), inode.parse::<u64>()) else { return false };
        let number = |text| u32::from_str_radix(text, 16).unwrap_or(u32::MAX);
        let (major, minor) = (number(major), number(minor));
        // A file system without a device of its own may report another for a descriptor than for a mapping.
        let is_device = |object: &Object| (object.0, object.1) == (major, minor) || major == 0 && object.0 == 0;
        inode != 0 && with_inode(objects, inode).iter().any(is_device)
    })
}
