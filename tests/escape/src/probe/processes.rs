//! Other processes: pid 1, the supervisor, every other process of the same user.

use std::fs;
use std::time::Duration;

use cofferdam_testkit::Place;

use super::{Attempt, call, judge, open, status_line};
use crate::raw;
use crate::row::Finding;

const PTRACE_SEIZE: usize = 0x4206;
const DENIED: &[i32] = &[libc::EPERM, libc::EACCES];

/// The program behind our parent (pid 1 inside, the launcher outside) cannot be opened, nor our own be written to.
pub(super) fn launcher_binary() -> Finding {
    let parent = format!("/proc/{}/exe", std::os::unix::process::parent_id());
    judge(&[
        Attempt::new(format!("{parent} for reading"), open(&parent, libc::O_RDONLY), DENIED),
        Attempt::new(format!("{parent} for writing"), open(&parent, libc::O_WRONLY), DENIED),
        Attempt::new(
            "/proc/self/exe for writing",
            open("/proc/self/exe", libc::O_WRONLY),
            &[libc::ETXTBSY, libc::EROFS, libc::EACCES],
        ),
    ])
}

/// A process that a tracer, a memory reader or a taker of descriptors would want to use.
pub(super) fn deputy(pid: i32) -> Finding {
    let target = usize::try_from(pid).unwrap_or(0);
    let mut word = [0u64; 1];
    let local = [(&raw mut word) as usize, 8];
    // Where the probe's own code lies: mapped in a forked child at the same address, and nothing is changed there.
    let remote = [(&raw const local) as usize, 8];
    let read =
        call(libc::SYS_process_vm_readv, &[target, (&raw const local) as usize, 1, (&raw const remote) as usize, 1, 0]);
    let pidfd = call(libc::SYS_pidfd_open, &[target, 0]);
    let taken = pidfd.and_then(|fd| call(libc::SYS_pidfd_getfd, &[usize::try_from(fd).unwrap_or(0), 1, 0]));
    let mem = format!("/proc/{pid}/mem");
    let attempts = [
        Attempt::new("process_vm_readv", read, DENIED),
        Attempt::new("pidfd_getfd", taken, DENIED),
        Attempt::new(mem.as_str(), open(&mem, libc::O_RDWR), DENIED),
        Attempt::new("descriptors", descriptors_of(pid), &[libc::EPERM, libc::EACCES, libc::ENOENT]),
        Attempt::io("root", fs::read_link(format!("/proc/{pid}/root")), DENIED),
        Attempt::new("PTRACE_SEIZE", call(libc::SYS_ptrace, &[PTRACE_SEIZE, target, 0, 0]), DENIED),
    ];
    let filter = status_line(&format!("/proc/{pid}/status"), "Seccomp");
    if filter.as_deref() != Some("2") {
        return Finding::Open(format!("pid {pid} has Seccomp {filter:?}"));
    }
    judge(&attempts)
}

/// How many descriptors can be seen; ENOENT where the list can be read and is empty.
fn descriptors_of(pid: i32) -> Result<i64, i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
    match entries.count() {
        0 => Err(libc::ENOENT),
        count => Ok(i64::try_from(count).unwrap_or(i64::MAX)),
    }
}

/// The same against a child of our own, which is dumpable: what pid 1 would be without its protection.
pub(super) fn deputy_of_own() -> Finding {
    let child = raw::fork(|| {
        std::thread::sleep(Duration::from_secs(10));
        0
    });
    let Ok(child) = child else { return Finding::Broken("cannot fork".to_owned()) };
    let finding = deputy(child);
    match call(libc::SYS_kill, &[usize::try_from(child).unwrap_or(0), 9]).and_then(|_| raw::wait(child)) {
        Ok(_) => finding,
        Err(errno) => Finding::Broken(format!("the child cannot be ended: errno {errno}")),
    }
}

pub(super) fn supervisor(place: &Place) -> Finding {
    let pid = fs::read_to_string(place.project().join("supervisor")).ok().and_then(|text| text.parse::<usize>().ok());
    let Some(pid) = pid else { return Finding::Broken("the supervisor's pid is unknown".to_owned()) };
    let mut word = [0u64; 1];
    let local = [(&raw mut word) as usize, 8];
    let vector = (&raw const local) as usize;
    judge(&[
        Attempt::io(format!("/proc/{pid}"), fs::metadata(format!("/proc/{pid}")), &[libc::ENOENT]),
        Attempt::new(
            "process_vm_readv",
            call(libc::SYS_process_vm_readv, &[pid, vector, 1, vector, 1, 0]),
            &[libc::ESRCH],
        ),
        Attempt::new("pidfd_open", call(libc::SYS_pidfd_open, &[pid, 0]), &[libc::ESRCH, libc::EINVAL]),
        Attempt::new("kill", call(libc::SYS_kill, &[pid, 0]), &[libc::ESRCH]),
    ])
}

/// Signal 0 asks only who could be reached. Only if that is no process, a real signal follows.
pub(super) fn kill_everybody() -> Finding {
    const EVERYBODY: usize = usize::MAX;
    let reached = call(libc::SYS_kill, &[EVERYBODY, 0]);
    let asked = judge(&[Attempt::new("kill(-1, 0)", reached, &[libc::ESRCH])]);
    if std::os::unix::process::parent_id() != 1 {
        return asked;
    }
    asked.and_then(|| {
        judge(&[Attempt::new("kill(-1, SIGTERM)", call(libc::SYS_kill, &[EVERYBODY, 15]), &[libc::ESRCH])])
    })
}

/// Children that try to outlive every other process, for a bounded time.
pub(super) fn many_sleepers(place: &Place) -> Finding {
    for _ in 0..3 {
        let child = raw::fork(|| {
            let own_session = call(libc::SYS_setsid, &[]).is_ok();
            std::thread::sleep(Duration::from_secs(10));
            i32::from(own_session)
        });
        if child.is_err() {
            return Finding::Broken("cannot fork".to_owned());
        }
    }
    place.write("home/project/ready", "");
    std::thread::sleep(Duration::from_secs(10));
    Finding::Open("nobody ended it".to_owned())
}
