//! Memory that is no process's own: shared mappings, files without a name, System V segments. Owns finding it from outside,
//! for a session that no cgroup counts; what it adds up to is `sample`'s. A file on its way through a socket is in no process
//! and is not found.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;

/// Blocks as `stat` counts them, whatever the file system.
const BLOCK: u64 = 512;
/// The longest list of segments that is read: the kernel makes no more of them than this has lines.
const LIST: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct SharedMemory {
    /// The list of the sandbox's segments, opened inside.
    segments: Option<OwnedFd>,
    /// The kernel's own file system for memory that is shared.
    device: Option<u64>,
    /// The least that the machine had of it since the session began.
    least: u64,
}

impl SharedMemory {
    pub(crate) fn new() -> Self {
        let own = rustix::fs::memfd_create("cofferdam", MemfdFlags::CLOEXEC);
        let device = own.and_then(rustix::fs::fstat).map(|stat| stat.st_dev).ok();
        SharedMemory { segments: None, device, least: of_machine().unwrap_or(0) }
    }

    pub(crate) fn count_segments(&mut self, list: OwnedFd) {
        self.segments = Some(list);
    }

    /// How much more the whole machine has than it had: the workload cannot have taken more than that.
    pub(crate) fn growth(&mut self) -> u64 {
        let now = of_machine().unwrap_or(0);
        self.least = self.least.min(now);
        now - self.least
    }

    /// What lies in segments and in nameless files that these processes hold open.
    pub(crate) fn in_files(&self, proc: &OwnedFd, pids: &[String]) -> u64 {
        let list = self.segments.as_ref().and_then(|list| read_whole(list).ok());
        let segments = list.as_deref().map_or(0, resident_in_segments);
        let mut seen = HashSet::new();
        segments + pids.iter().map(|pid| self.in_descriptors(proc, pid, &mut seen).unwrap_or(0)).sum::<u64>()
    }

    fn in_descriptors(&self, proc: &OwnedFd, pid: &str, seen: &mut HashSet<u64>) -> Result<u64, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let list = rustix::fs::openat(proc, format!("{pid}/fd"), flags, Mode::empty())?;
        let mut sum = 0;
        for entry in Dir::read_from(&list)? {
            // Follows the link to the open file itself, which opens nothing; closed meanwhile is fine.
            let Ok(stat) = rustix::fs::statat(&list, entry?.file_name(), AtFlags::empty()) else { continue };
            let is_nameless = Some(stat.st_dev) == self.device && FileType::from_raw_mode(stat.st_mode).is_file();
            if is_nameless && seen.insert(stat.st_ino) {
                sum += u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK;
            }
        }
        Ok(sum)
    }
}

/// Shared memory of every process of the machine, private file systems included.
fn of_machine() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kilobytes = text.lines().find_map(|line| line.strip_prefix("Shmem:")?.trim().strip_suffix(" kB"))?;
    kilobytes.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// From the beginning, however often it was read before.
fn read_whole(fd: &OwnedFd) -> Result<String, Errno> {
    let mut text = Vec::new();
    let mut buffer = [0u8; 4096];
    while text.len() < LIST {
        match rustix::io::pread(fd, &mut buffer, u64::try_from(text.len()).unwrap_or(u64::MAX)) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&buffer[..count]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The last two columns of `/proc/sysvipc/shm`: resident and swapped bytes.
fn resident_in_segments(list: &str) -> u64 {
    let numbers = |line: &str| {
        line.split_whitespace().skip(14).take(2).filter_map(|column| column.parse::<u64>().ok()).sum::<u64>()
    };
    list.lines().skip(1).map(numbers).sum()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn segments_count_with_what_is_resident_not_with_their_size() {
        let list = "       key      shmid perms       size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime        rss       swap\n\
                    \x20        0          1   600  268435456   10    10      0     0     0     0     0          1          1          1    8192       4096\n\
                    \x20        0          2   600       4096   10    10      0     0     0     0     0          1          1          1     100          0\n";
        assert_eq!(resident_in_segments(list), 8192 + 4096 + 100);
        assert_eq!(resident_in_segments(""), 0);
    }

    #[test]
    fn a_nameless_file_is_found_once_however_often_it_is_open() {
        let proc =
            rustix::fs::open("/proc", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("/proc is there");
        let shared = SharedMemory::new();
        let own = [std::process::id().to_string()];
        let before = shared.in_files(&proc, &own);
        let mut file = std::fs::File::from(rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).expect("a memfd"));
        file.write_all(&vec![1u8; 1 << 20]).expect("it can be written to");
        let again = file.try_clone().expect("it can be duplicated");
        assert_eq!(shared.in_files(&proc, &own) - before, 1 << 20);
        drop((file, again));
    }
}
