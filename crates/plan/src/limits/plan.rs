//! What the supervisor gets to keep a session's limits: the cgroup with its settings, bounds, quota and output. Owns the types;
//! `choice` decides their content. Part of `LaunchPlan`.

use std::path::PathBuf;

use cofferdam_policy::Origin;
use serde::Serialize;

use crate::facts::cgroup::CgroupHome;

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limited {
    Memory,
    MemoryHigh,
    Processes,
    Cpus,
    CpuSet,
    CpuTime,
    Io,
    Storage,
    Inodes,
}

/// Who keeps a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keeper {
    Cgroup,
    Rlimit,
    /// The processes are pinned to as many CPUs, and cannot change that.
    Affinity,
    /// The supervisor looks again and again, and ends the session.
    Watched,
}

/// One limit of the session as a whole, for the supervisor, which keeps it or tells about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bound {
    pub what: Limited,
    pub value: u64,
    pub by: Keeper,
    pub origin: Origin,
}

/// The session's cgroup: where it is made and what is written to it, in this order, before anything runs in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CgroupPlan {
    pub home: CgroupHome,
    pub controllers: Vec<&'static str>,
    pub settings: Vec<CgroupSetting>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CgroupSetting {
    pub file: &'static str,
    pub value: String,
    /// Kernels without swap have no file to forbid it with.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub if_present: bool,
}

/// A hard limit by the file system itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct QuotaPlan {
    pub bytes: Option<u64>,
    pub files: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct LimitsPlan {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<CgroupPlan>,
    pub bounds: Vec<Bound>,
    /// Host directories that the session can write to: their file systems are watched.
    pub storage: Vec<PathBuf>,
    /// On the session's overlays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaPlan>,
    /// Bytes that may go to stdout and stderr together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
}

impl LimitsPlan {
    pub fn bound(&self, what: Limited) -> Option<&Bound> {
        self.bounds.iter().find(|bound| bound.what == what)
    }

    /// Whether what is written to disks is limited.
    pub fn limits_disks(&self) -> bool {
        self.quota.is_some() || [Limited::Storage, Limited::Inodes].into_iter().any(|what| self.bound(what).is_some())
    }

    /// Whether the supervisor has to count processes itself: a cgroup counts what it has controllers for, and CPU time.
    pub fn counts_processes(&self) -> bool {
        let is_uncounted = |bound: &Bound| match bound.what {
            Limited::Memory | Limited::Processes => bound.by == Keeper::Watched,
            Limited::CpuTime => false,
            Limited::MemoryHigh | Limited::Cpus | Limited::CpuSet | Limited::Io => false,
            // Counted by file systems.
            Limited::Storage | Limited::Inodes => false,
        };
        match self.cgroup {
            Some(_) => self.bounds.iter().any(is_uncounted),
            None => self.bounds.iter().any(|bound| bound.by != Keeper::Affinity),
        }
    }
}

/// Size and number of files of a private file system; 0 leaves it to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) size: u64,
    pub(crate) inodes: u64,
}

impl Room {
    pub(crate) fn at_most(self, most: Room) -> Room {
        let least = |a: u64, b: u64| if a == 0 { b } else { a.min(b) };
        Room { size: least(self.size, most.size), inodes: least(self.inodes, most.inodes) }
    }
}
