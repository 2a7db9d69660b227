//! Looks at a running session again and again: keeps the limits that no kernel mechanism keeps here, and notices when one
//! of the others comes near. Owns when to look and what a reading means; ending the session is the loop's.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_plan::{Keeper, Limited, LimitsPlan};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::limits::cgroup::SessionCgroup;
use crate::limits::sample::{self, Processes, Sample};

const FIRST_LOOK: Duration = Duration::from_millis(10);
const SOONEST: Duration = Duration::from_millis(10);
const LATEST: Duration = Duration::from_millis(250);
/// Faster than one machine fills memory or writes to a disk, in bytes a second.
const FASTEST: u64 = 4 << 30;
/// A share of its time that the supervisor may spend on looking, as one in so many.
const SHARE: u32 = 10;
const LONGEST: Duration = Duration::from_secs(1);
/// A session that stands at its process limit for so long does nothing else any more.
const AT_PROCESS_LIMIT: Duration = Duration::from_secs(5);
/// Looks in a row that may fail: a machine out of descriptors recovers, or the session that took them ends.
const MOST_BLIND: u32 = 20;
/// Free space that is left to others where the policy names no number.
const RESERVE: u64 = 1 << 30;
/// When a limit counts as near, in hundredths.
const NEAR: u64 = 80;

/// What a look found about a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) what: Limited,
    pub(crate) used: u64,
    pub(crate) limit: u64,
    pub(crate) kind: FindingKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FindingKind {
    /// Told once.
    Near,
    /// The session has to end.
    Over,
}

#[derive(Debug)]
pub(crate) struct Monitor<'a> {
    limits: &'a LimitsPlan,
    processes: Option<Processes>,
    disks: Vec<Disk>,
    /// Why a file system that the policy limits cannot be watched.
    unseen: Option<Errno>,
    cpus: u32,
    next: Instant,
    near: Vec<Limited>,
    /// Since when every look found the session at its process limit, and the refused forks at the last one.
    at_limit: Option<Instant>,
    refused_forks: u64,
    /// Looks in a row that saw nothing.
    blind: u32,
    pub(crate) last: Sample,
    pub(crate) peak: Sample,
}

/// A file system of the host that the session can fill.
#[derive(Debug)]
struct Disk {
    fd: OwnedFd,
    at_start: Room,
    most_bytes: Option<u64>,
    most_files: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Room {
    bytes: u64,
    files: u64,
}

impl<'a> Monitor<'a> {
    pub(crate) fn new(limits: &'a LimitsPlan) -> Self {
        let is_limited = limits.limits_disks();
        let (disks, unseen) = disks(limits);
        let cpus = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count()).max(1);
        Monitor {
            limits,
            processes: None,
            disks,
            unseen: unseen.filter(|_| is_limited),
            cpus,
            next: Instant::now() + FIRST_LOOK,
            near: Vec::new(),
            at_limit: None,
            refused_forks: 0,
            blind: 0,
            last: Sample::default(),
            peak: Sample::default(),
        }
    }

    /// The sandbox's /proc came; it is what is counted where the session has no cgroup.
    pub(crate) fn count_in(&mut self, proc: OwnedFd) {
        self.processes = Some(Processes::new(proc));
    }

    /// The list of its shared memory segments came, after /proc.
    pub(crate) fn count_segments(&mut self, list: OwnedFd) {
        if let Some(processes) = &mut self.processes {
            processes.shared.count_segments(list);
        }
    }

    /// No process is left to be counted.
    pub(crate) fn let_go(&mut self) {
        self.processes = None;
    }

    pub(crate) fn next_look(&self) -> Instant {
        self.next
    }

    /// An error means that limits which only the monitor keeps are not kept any more.
    pub(crate) fn look(&mut self, now: Instant, cgroup: Option<&SessionCgroup>) -> Result<Vec<Finding>, Errno> {
        if let Some(errno) = self.unseen {
            return Err(errno);
        }
        let counted = match &mut self.processes {
            Some(processes) => {
                let most = |what| self.limits.bound(what).map_or(u64::MAX, |bound| bound.value);
                let sample = processes.sample(most(Limited::Memory), most(Limited::Processes));
                self.blind = if sample.is_ok() { 0 } else { self.blind + 1 };
                if self.blind > MOST_BLIND { Some(sample?) } else { sample.ok() }
            }
            None => None,
        };
        // What a cgroup has no controller for reads as nothing there.
        let kept = cgroup.map(sample::of_cgroup);
        if let Some(sample) = kept.into_iter().chain(counted).reduce(Sample::most) {
            self.peak.memory = self.peak.memory.max(sample.memory);
            self.peak.processes = self.peak.processes.max(sample.processes);
            self.last = sample;
        }
        let mut findings = self.judge(now);
        let mut soon = self.soon();
        for disk in &self.disks {
            let (found, wait) = disk.look();
            findings.extend(found);
            soon = soon.min(wait);
        }
        findings.retain(|finding| finding.kind == FindingKind::Over || !self.near.contains(&finding.what));
        self.near.extend(findings.iter().map(|finding| finding.what));
        let took = now.elapsed();
        // A workload that makes looking slow does not buy more than that.
        self.next = Instant::now() + soon.max((took * SHARE).min(LONGEST));
        Ok(findings)
    }

    /// What the last sample says about the limits.
    fn judge(&mut self, now: Instant) -> Vec<Finding> {
        let mut findings = Vec::new();
        for bound in &self.limits.bounds {
            let (used, limit) = match bound.what {
                Limited::Memory => (self.last.memory, bound.value),
                Limited::Processes => (self.last.processes, bound.value),
                Limited::CpuTime => (self.last.cpu_micros, bound.value.saturating_mul(1_000_000)),
                // Kept by the kernel alone.
                Limited::MemoryHigh | Limited::Cpus | Limited::CpuSet | Limited::Io => continue,
                // `disks` looks at these.
                Limited::Storage | Limited::Inodes => continue,
            };
            let over = match bound.what {
                Limited::Processes => self.stands_at_process_limit(now, used, limit, bound.by),
                _ => bound.by == Keeper::Watched && used >= limit,
            };
            let near = u128::from(used) * 100 >= u128::from(limit) * u128::from(NEAR);
            let finding = |kind| Finding { what: bound.what, used, limit, kind };
            if over {
                findings.push(finding(FindingKind::Over));
            } else if near {
                findings.push(finding(FindingKind::Near));
            }
        }
        findings
    }

    /// At the limit every fork fails: a program that means no harm gives up, a fork bomb goes on.
    fn stands_at_process_limit(&mut self, now: Instant, used: u64, limit: u64, by: Keeper) -> bool {
        if by == Keeper::Watched {
            return used > limit;
        }
        let refused = self.last.refused_forks.unwrap_or(0);
        let was_refused = std::mem::replace(&mut self.refused_forks, refused) < refused;
        // One short of it is a process that has just ended and will be replaced.
        if !was_refused && used.saturating_add(1) < limit {
            self.at_limit = None;
            return false;
        }
        now.duration_since(*self.at_limit.get_or_insert(now)) >= AT_PROCESS_LIMIT
    }

    /// When the nearest watched limit could be reached.
    fn soon(&self) -> Duration {
        let mut soon = LATEST;
        for bound in self.limits.bounds.iter().filter(|bound| bound.by == Keeper::Watched) {
            let wait = match bound.what {
                Limited::Memory => time_for(bound.value.saturating_sub(self.last.memory)),
                Limited::CpuTime => {
                    let left = bound.value.saturating_mul(1_000_000).saturating_sub(self.last.cpu_micros);
                    Duration::from_micros(left / u64::from(self.cpus))
                }
                Limited::Processes => SOONEST,
                // Kept by the kernel alone.
                Limited::MemoryHigh | Limited::Cpus | Limited::CpuSet | Limited::Io => continue,
                // `disks` looks at these.
                Limited::Storage | Limited::Inodes => continue,
            };
            soon = soon.min(wait);
        }
        soon.max(SOONEST)
    }
}

fn time_for(bytes: u64) -> Duration {
    Duration::from_micros(bytes / (FASTEST / 1_000_000)).clamp(SOONEST, LATEST)
}

/// The file systems to watch, and why one of them cannot be.
fn disks(limits: &LimitsPlan) -> (Vec<Disk>, Option<Errno>) {
    let mut disks = Vec::new();
    let mut unseen = None;
    let mut seen = Vec::new();
    for path in &limits.storage {
        let (fd, device) = match open(path) {
            Ok(opened) => opened,
            Err(errno) => {
                unseen = Some(errno);
                continue;
            }
        };
        if seen.contains(&device) {
            continue;
        }
        seen.push(device);
        let Some((room, size)) = room(&fd) else {
            unseen = Some(Errno::IO);
            continue;
        };
        let named = limits.bound(Limited::Storage).map(|bound| bound.value);
        let reserve = RESERVE.min(size / 20);
        // A disk that was nearly full before is not the workload's fault. A limit that is larger than what is left is none.
        let left = room.bytes.checked_sub(reserve).filter(|most| *most > 0);
        let most_bytes = named.into_iter().chain(left).min();
        let most_files = limits.bound(Limited::Inodes).map(|bound| bound.value);
        disks.push(Disk { fd, at_start: room, most_bytes, most_files });
    }
    (disks, unseen)
}

fn open(path: &Path) -> Result<(OwnedFd, u64), Errno> {
    let fd = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
    let device = rustix::fs::fstat(&fd)?.st_dev;
    Ok((fd, device))
}

/// What is free for this user, and the size of it all.
fn room(fd: &OwnedFd) -> Option<(Room, u64)> {
    let stat = rustix::fs::fstatvfs(fd).ok()?;
    let bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
    Some((Room { bytes, files: stat.f_favail }, stat.f_blocks.saturating_mul(stat.f_frsize)))
}

impl Disk {
    /// What was lost since the start counts, whichever process took it: an open file without a name is in no directory.
    fn look(&self) -> (Vec<Finding>, Duration) {
        let Some((now, _)) = room(&self.fd) else { return (Vec::new(), LATEST) };
        let bytes = self.at_start.bytes.saturating_sub(now.bytes);
        let files = self.at_start.files.saturating_sub(now.files);
        let found = [(Limited::Storage, bytes, self.most_bytes), (Limited::Inodes, files, self.most_files)];
        let findings = found.into_iter().filter_map(|(what, used, limit)| {
            let limit = limit?;
            let kind = if used >= limit {
                FindingKind::Over
            } else if u128::from(used) * 100 >= u128::from(limit) * u128::from(NEAR) {
                FindingKind::Near
            } else {
                return None;
            };
            Some(Finding { what, used, limit, kind })
        });
        let wait = self.most_bytes.map_or(LATEST, |most| time_for(most.saturating_sub(bytes)));
        (findings.collect(), wait)
    }
}
