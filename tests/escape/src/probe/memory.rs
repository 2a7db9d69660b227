//! Memory: what one process takes, what many take, what lies in files that are memory. Each attempt stops by itself at a few
//! times the limit, and says "open" if it could keep that for a while.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Attempt, HOLD, call, judge, number};
use crate::limits::MEMORY;
use crate::raw;
use crate::row::Finding;

const MIB: usize = 1 << 20;
const STEP: usize = 4 * MIB;
/// Four times the limit.
const WANTED: usize = 4 * MEMORY;

/// Memory that was touched, as much as there is.
pub(super) fn touch(bytes: usize) -> Vec<Vec<u8>> {
    let block = vec![1u8; STEP];
    let mut held = Vec::new();
    while held.len() * STEP < bytes {
        let mut part: Vec<u8> = Vec::new();
        if part.try_reserve_exact(STEP).is_err() {
            break;
        }
        part.extend_from_slice(&block);
        held.push(part);
    }
    held
}

fn kept(bytes: usize, how: &str) -> Finding {
    std::thread::sleep(HOLD);
    Finding::Open(format!("{} MiB were kept {how}", bytes / MIB))
}

pub(super) fn d02_one_process() -> Finding {
    let held = touch(WANTED);
    kept(held.len() * STEP, "by one process")
}

pub(super) fn d02_many_processes() -> Finding {
    const EACH: usize = 20 * MIB;
    const AT_LONGEST: Duration = Duration::from_secs(20);
    let ready = Path::new("/tmp/ready");
    let Ok(mut file) = File::create(ready) else { return Finding::Broken("no file in /tmp".to_owned()) };
    let children = WANTED.div_ceil(EACH);
    for _ in 0..children {
        let child = raw::fork(|| {
            let held = touch(EACH);
            let told = file.write_all(b".");
            std::thread::sleep(AT_LONGEST + 2 * HOLD);
            i32::from(held.is_empty() || told.is_err())
        });
        if let Err(errno) = child {
            return Finding::Broken(format!("cannot fork: errno {errno}"));
        }
    }
    let end = Instant::now() + AT_LONGEST;
    while ready.metadata().is_ok_and(|file| file.len() < children as u64) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    kept(WANTED, "by processes of 20 MiB each")
}

/// What is shared counts once: a program that forks workers is within its limit.
pub(super) fn d02_shared_pages() -> Finding {
    const WORKERS: usize = 8;
    let held = touch(MEMORY / 8 * 5);
    let workers: Result<Vec<i32>, i32> = (0..WORKERS)
        .map(|_| {
            raw::fork(|| {
                std::thread::sleep(HOLD);
                i32::from(held.is_empty())
            })
        })
        .collect();
    let ended = workers.and_then(|workers| workers.into_iter().map(raw::wait).collect::<Result<Vec<_>, i32>>());
    match ended {
        Ok(all) if all.iter().all(|ended| *ended == raw::Ended::Exited(0)) => {
            Finding::Contained(format!("{WORKERS} workers that share {} MiB went on", held.len() * STEP / MIB))
        }
        other => Finding::Broken(format!("workers: {other:?}")),
    }
}

/// Files in /tmp and the like are memory too.
pub(super) fn d02_private_file_systems() -> Finding {
    let mut written = 0;
    let mut attempts = Vec::new();
    for directory in ["/tmp", "/var/tmp", "/dev/shm"] {
        let path = format!("{directory}/filled");
        let result = OpenOptions::new().write(true).create_new(true).open(&path);
        let result = result.and_then(|mut file| write_up_to(&mut file, WANTED, &mut written));
        attempts.push(Attempt::io(path, result, &[libc::ENOSPC]));
    }
    match judge(&attempts) {
        Finding::Contained(how) if written <= 2 * MEMORY => {
            Finding::Contained(format!("{how} after {} MiB", written / MIB))
        }
        _ => kept(written, "in private file systems"),
    }
}

fn write_up_to(file: &mut fs::File, most: usize, written: &mut usize) -> io::Result<()> {
    let block = vec![1u8; MIB];
    for _ in 0..most / MIB {
        file.write_all(&block)?;
        *written += MIB;
    }
    Ok(())
}

/// A file that has no name and that no process maps.
pub(super) fn d02_nameless_files() -> Finding {
    let name = c"filled";
    let mut written = 0;
    let Ok(fd) = call(libc::SYS_memfd_create, &[name.as_ptr() as usize, 0]) else {
        return Finding::Contained("memfd_create is refused".to_owned());
    };
    let block = vec![1u8; MIB];
    while written < WANTED {
        match call(libc::SYS_write, &[number(fd), block.as_ptr() as usize, MIB]) {
            Ok(count) => written += number(count),
            Err(_) => break,
        }
    }
    kept(written, "in a file without a name")
}

/// Memory that children would share.
pub(super) fn d02_shared_mapping() -> Finding {
    const READ_WRITE: usize = 3;
    const SHARED_ANONYMOUS: usize = 0x21;
    let mapped = call(libc::SYS_mmap, &[0, WANTED, READ_WRITE, SHARED_ANONYMOUS, usize::MAX, 0]);
    match mapped.and_then(|address| fill(number(address))) {
        Ok(bytes) => kept(bytes, "in a mapping that could be shared"),
        Err(errno) => Finding::Broken(format!("no shared mapping: errno {errno}")),
    }
}

/// Lets the kernel write to the pages of a mapping that was just made, `WANTED` bytes long.
fn fill(address: usize) -> Result<usize, i32> {
    let zero = c"/dev/zero";
    let fd = number(call(libc::SYS_open, &[zero.as_ptr() as usize, 0])?);
    let mut filled = 0;
    while filled < WANTED {
        filled += number(call(libc::SYS_read, &[fd, address + filled, STEP])?);
    }
    Ok(filled)
}

/// A segment that no process is attached to any more.
pub(super) fn d02_segments() -> Finding {
    let filled = || -> Result<usize, i32> {
        let segment = call(libc::SYS_shmget, &[0, WANTED, 0o600])?;
        let address = number(call(libc::SYS_shmat, &[number(segment), 0, 0])?);
        let filled = fill(address)?;
        call(libc::SYS_shmdt, &[address])?;
        Ok(filled)
    };
    match filled() {
        Ok(bytes) => kept(bytes, "in a segment without users"),
        Err(errno) => judge(&[Attempt::new("shmget", Err(errno), &[libc::ENOSPC, libc::ENOMEM, libc::EINVAL])]),
    }
}

pub(super) fn d02_score() -> Finding {
    let written = fs::write("/proc/self/oom_score_adj", "-1000");
    judge(&[Attempt::io("oom_score_adj = -1000", written, &[libc::EACCES])])
}
