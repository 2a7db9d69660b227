//! What a session used, once it has ended. Owns where each figure comes from: the cgroup's own account, or else what pid 1
//! collected and what was seen on the way. Called by `launch`; printed by `cli`.

use std::time::Duration;

use cofferdam_kernel::shared::Told;
use cofferdam_wire::Usage;

use crate::limits::cgroup::SessionCgroup;
use crate::limits::sample::{Sample, keyed, summed};

pub(crate) fn of_cgroup(cgroup: &SessionCgroup, peak: Sample, wall: Duration) -> Usage {
    let number = |file: &str| cgroup.read(file).and_then(|text| text.trim().parse::<u64>().ok());
    let cpu = cgroup.read("cpu.stat");
    let cpu = |name: &str| cpu.as_deref().and_then(|text| keyed(text, name));
    let io = cgroup.read("io.stat");
    Usage {
        wall_micros: micros(wall),
        cpu_user_micros: cpu("user_usec"),
        cpu_system_micros: cpu("system_usec"),
        // Kernels before 5.19 and 6.1 keep no peaks: then what was seen.
        memory_peak: number("memory.peak").or(seen(peak.memory)),
        processes_peak: number("pids.peak").or(seen(peak.processes)),
        read_bytes: io.as_deref().map(|text| summed(text, "rbytes")),
        written_bytes: io.as_deref().map(|text| summed(text, "wbytes")),
        forks_refused: cgroup.read("pids.events").as_deref().and_then(|text| keyed(text, "max")),
        from_cgroup: true,
    }
}

pub(crate) fn of_processes(told: Option<Told>, last: Sample, peak: Sample, wall: Duration) -> Usage {
    let told_or = |told: Option<u64>, seen: u64| told.or(Some(seen).filter(|seen| *seen > 0));
    Usage {
        wall_micros: micros(wall),
        // A session that was killed could not tell; what was seen is not divided.
        cpu_user_micros: told_or(told.map(|told| told.user_micros), last.cpu_micros),
        cpu_system_micros: told.map(|told| told.system_micros),
        memory_peak: seen(peak.memory.max(told.map_or(0, |told| told.memory_peak))),
        processes_peak: seen(peak.processes),
        read_bytes: told.map(|told| told.read_bytes),
        written_bytes: told.map(|told| told.written_bytes),
        forks_refused: None,
        from_cgroup: false,
    }
}

fn seen(value: u64) -> Option<u64> {
    (value > 0).then_some(value)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
