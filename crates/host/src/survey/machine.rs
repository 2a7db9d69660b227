//! Numbers and devices of this machine: memory, CPUs, disks, resolvers, limits. Called by `survey`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use cofferdam_kernel::quota;
use rustix::fs::OFlags;

/// As programs read them; without any they ask this machine itself.
pub(super) fn resolvers() -> Vec<std::net::IpAddr> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let named = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let mut found: Vec<std::net::IpAddr> = named.filter_map(|address| address.trim().parse().ok()).collect();
    if found.is_empty() {
        found.push(std::net::Ipv4Addr::LOCALHOST.into());
    }
    found
}

/// The machine's limit, and that of the user namespace that this process is in.
pub(super) fn least_of(files: [&str; 2]) -> Option<u64> {
    let number = |file: &&str| {
        let mut text = [0; 32];
        let length = std::fs::File::open(file).and_then(|mut file| file.read(&mut text)).ok()?;
        std::str::from_utf8(text.get(..length)?).ok()?.trim().parse().ok()
    };
    files.iter().filter_map(number).min()
}

/// Before Linux 6.14 root inside would change the number for the whole machine.
pub(super) fn has_own_largest_pid(release: &str) -> bool {
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().ok());
    let version = numbers.next().flatten().zip(numbers.next().flatten());
    version.is_some_and(|version| version >= (6, 14))
}

/// Whether overlays below `directory`, or its nearest ancestor that exists, can have a quota.
pub(super) fn has_quota(directory: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |path: &Path| rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok();
    directory.ancestors().find_map(open).is_some_and(quota::is_available)
}

/// The kernel limits whole disks, never partitions. File systems without a disk of their own have no number.
pub(super) fn disk_of(device: u64) -> Option<String> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    if major == 0 {
        return None;
    }
    let entry = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    if rustix::fs::stat(entry.join("partition")).is_err() {
        return Some(format!("{major}:{minor}"));
    }
    let whole = std::fs::read_to_string(entry.canonicalize().ok()?.parent()?.join("dev")).ok()?;
    Some(whole.trim().to_owned())
}

/// Bytes of memory that the machine has.
pub(super) fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

/// The CPUs that this process may use.
pub(super) fn cpus() -> Vec<u32> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_kernels_have_a_largest_pid_in_each_namespace() {
        for (release, has) in [
            ("6.14.0", true),
            ("6.18.44-test", true),
            ("7.0-rc1", true),
            ("6.12.107", false),
            ("5.15", false),
            ("", false),
        ] {
            assert_eq!(has_own_largest_pid(release), has, "{release}");
        }
    }
}
