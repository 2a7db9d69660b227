//! How much a session uses at this moment: from its cgroup, or else summed over its processes. Owns the reading of both;
//! what follows from a reading is `monitor`'s. Called by `monitor`.

use std::os::fd::OwnedFd;

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::limits::cgroup::SessionCgroup;
use crate::limits::shared_memory::SharedMemory;

const PAGE: u64 = 4096;
/// Units of CPU time in /proc: hundredths of a second, on every kernel of this architecture.
const TICK_MICROS: u64 = 10_000;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) memory: u64,
    pub(crate) processes: u64,
    pub(crate) cpu_micros: u64,
    /// Forks that the kernel refused so far, where it counts them.
    pub(crate) refused_forks: Option<u64>,
}

impl Sample {
    /// Two looks at the same session, of which each may have missed something.
    pub(crate) fn most(self, other: Sample) -> Sample {
        Sample {
            memory: self.memory.max(other.memory),
            processes: self.processes.max(other.processes),
            cpu_micros: self.cpu_micros.max(other.cpu_micros),
            refused_forks: self.refused_forks.max(other.refused_forks),
        }
    }
}

/// The sandbox's own /proc, from outside: only its processes are in it.
#[derive(Debug)]
pub(crate) struct Processes {
    proc: OwnedFd,
    /// CPU time of processes that vanished without leaving it to a parent.
    lost_micros: u64,
    last_micros: u64,
    pub(crate) shared: SharedMemory,
}

impl Processes {
    pub(crate) fn new(proc: OwnedFd) -> Self {
        Processes { proc, lost_micros: 0, last_micros: 0, shared: SharedMemory::new() }
    }

    /// Sums over all processes. Where that, with what the machine shares since the session began, is above `most_memory`,
    /// it is looked at closely: pages that processes share count once, and those that no process has count too.
    /// More than `most_processes` are not looked at: the number says enough, and a fork bomb does not wait.
    pub(crate) fn sample(&mut self, most_memory: u64, most_processes: u64) -> Result<Sample, Errno> {
        let mut sample = Sample::default();
        let pids = self.pids()?;
        if let Some(processes) = u64::try_from(pids.len()).ok().filter(|count| *count > most_processes) {
            return Ok(Sample { processes, cpu_micros: self.last_micros + self.lost_micros, ..sample });
        }
        let mut cpu = 0;
        for pid in &pids {
            let Some(stat) = self.read(&format!("{pid}/stat")).as_deref().and_then(Stat::parse) else { continue };
            cpu += stat.ticks * TICK_MICROS;
            sample.processes += stat.threads;
            sample.memory += self.read(&format!("{pid}/statm")).as_deref().and_then(private_bytes).unwrap_or(0);
        }
        if sample.memory.saturating_add(self.shared.growth()) >= most_memory {
            sample.memory = self.closely(&pids);
        }
        self.lost_micros += self.last_micros.saturating_sub(cpu);
        self.last_micros = cpu;
        sample.cpu_micros = cpu + self.lost_micros;
        Ok(sample)
    }

    fn pids(&self) -> Result<Vec<String>, Errno> {
        let mut pids = Vec::new();
        for entry in Dir::read_from(&self.proc)? {
            let entry = entry?;
            if let Some(name) = entry.file_name().to_str().ok().filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
            {
                pids.push(name.to_owned());
            }
        }
        Ok(pids)
    }

    fn closely(&self, pids: &[String]) -> u64 {
        let (mut private, mut mapped) = (0, 0);
        for pid in pids {
            let (own, shared) = self.proportional_bytes(pid);
            private += own;
            mapped += shared;
        }
        // A file may be mapped as well: the larger sum is certain, both together would count it twice.
        private + mapped.max(self.shared.in_files(&self.proc, pids))
    }

    /// A process's part of the memory that it has mapped: private, and shared.
    fn proportional_bytes(&self, pid: &str) -> (u64, u64) {
        let Some(text) = self.read(&format!("{pid}/smaps_rollup")) else {
            // It cannot be looked into: counted in full.
            return (self.read(&format!("{pid}/statm")).as_deref().and_then(private_bytes).unwrap_or(0), 0);
        };
        let kilobytes = |name: &str| {
            let line =
                text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().strip_suffix(" kB"));
            line.and_then(|value| value.parse::<u64>().ok()).unwrap_or(0)
        };
        ((kilobytes("Pss_Anon") + kilobytes("SwapPss")) * 1024, kilobytes("Pss_Shmem") * 1024)
    }

    fn read(&self, file: &str) -> Option<String> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(&self.proc, file, flags, Mode::empty()).ok()?;
        let mut buffer = [0u8; 4096];
        let mut length = 0;
        while length < buffer.len() {
            match rustix::io::read(&fd, &mut buffer[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }
}

/// What is read from `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// Own CPU time and that of collected children.
    ticks: u64,
    threads: u64,
}

impl Stat {
    /// The name in parentheses is the process's to choose, so everything is counted from the last one.
    fn parse(text: &str) -> Option<Stat> {
        let rest = text.get(text.rfind(')')? + 1..)?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // Fields are numbered from 1 in the manual; the first after the name is the third.
        let number = |field: usize| fields.get(field - 3).and_then(|value| value.parse::<u64>().ok());
        Some(Stat { ticks: number(14)? + number(15)? + number(16)? + number(17)?, threads: number(20)? })
    }
}

/// Resident pages that are no file's.
fn private_bytes(statm: &str) -> Option<u64> {
    let mut fields = statm.split_whitespace().skip(1).map(|value| value.parse::<u64>().ok());
    let (resident, shared) = (fields.next()??, fields.next()??);
    Some(resident.saturating_sub(shared) * PAGE)
}

/// The kernel's own account of the session.
pub(crate) fn of_cgroup(cgroup: &SessionCgroup) -> Sample {
    let number = |file: &str| cgroup.read(file).and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    Sample {
        memory: number("memory.current"),
        processes: number("pids.current"),
        cpu_micros: cgroup.read("cpu.stat").as_deref().and_then(|text| keyed(text, "usage_usec")).unwrap_or(0),
        refused_forks: cgroup.read("pids.events").as_deref().and_then(|text| keyed(text, "max")),
    }
}

/// `name value` lines.
pub(crate) fn keyed(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// `major:minor key=value ...` lines, summed over devices.
pub(crate) fn summed(text: &str, key: &str) -> u64 {
    let words = text.split_whitespace().filter_map(|word| word.split_once('='));
    words.filter(|(name, _)| *name == key).filter_map(|(_, value)| value.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_forge_the_fields_after_it() {
        let text =
            "7 (a) R 1 1 1 0 -1 0 0 0 0 0 9 9 9 9 20 0 500 0 0) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 99 1 2";
        assert_eq!(Stat::parse(text), Some(Stat { ticks: 26, threads: 3 }));
    }

    #[test]
    fn shared_pages_are_not_private() {
        assert_eq!(private_bytes("1000 300 200 1 0 50 0\n"), Some(100 * 4096));
        assert_eq!(private_bytes("garbage"), None);
    }

    #[test]
    fn keyed_lines_are_found_by_their_whole_name() {
        assert_eq!(keyed("max 3\nmaximum 9\n", "max"), Some(3));
        assert_eq!(keyed("low 0\noom 2\noom_kill 1\n", "oom_kill"), Some(1));
        assert_eq!(keyed("", "max"), None);
    }

    #[test]
    fn bytes_of_all_devices_are_summed() {
        assert_eq!(summed("8:0 rbytes=10 wbytes=5 rios=1\n254:0 rbytes=7 wbytes=0\n", "rbytes"), 17);
    }
}
