//! What is told of a session once it has ended: what was refused, given, reached, written and used. Owns the facts as values; told by
//! `supervisor`, and of hosts by `egress`, rendered by `cli`. Why a path was not given is `denied`'s, how a session ended `end`'s.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::question::{Asker, Op};

/// Calls of one number, with the arguments of the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Blocked {
    pub name: &'static str,
    pub number: u32,
    pub arguments: [u64; 6],
    pub count: u32,
}

/// Something that was refused or, where it is a program, tried: recorded, and not counted as a violation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Probed {
    pub name: &'static str,
    /// The program that was to be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The first argument: of `socket` the family.
    pub argument: u64,
    /// What it goes against, how grave that is, and in words.
    pub wall: Wall,
    pub level: Level,
    pub description: &'static str,
    pub count: u64,
}

/// What a refused call goes against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Wall {
    Filesystem,
    Network,
    Process,
    Syscall,
}

/// How grave it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Level {
    /// Harmless programs do it as well.
    Low,
    /// Few do, and all can do without.
    Medium,
    /// It has one use inside, and that is an attack.
    High,
    /// No program does it without meaning to leave.
    Critical,
}

/// How many signs of an escape there were, by level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Indicators {
    pub low: u64,
    pub medium: u64,
    pub high: u64,
    pub critical: u64,
}

impl Indicators {
    pub fn count(&mut self, level: Level) {
        let counter = match level {
            Level::Low => &mut self.low,
            Level::Medium => &mut self.medium,
            Level::High => &mut self.high,
            Level::Critical => &mut self.critical,
        };
        *counter = counter.saturating_add(1);
    }

    /// Those that few programs cause, and all can do without.
    pub fn from_medium(self) -> u64 {
        self.medium.saturating_add(self.high).saturating_add(self.critical)
    }
}

/// The act that ended a session at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attempt {
    pub name: &'static str,
    pub wall: Wall,
    pub description: &'static str,
    /// As /proc said before the session was ended: the process can have written its own command line.
    pub caller: Asker,
}

/// A path that was unknown, and given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Allowed {
    pub op: Op,
    pub path: PathBuf,
}

/// A host that was to be reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reached {
    pub host: String,
    /// 0 for a name that was looked up and not given.
    pub port: u16,
    pub verdict: NetworkOutcome,
    /// The rule that decided, or why it failed.
    pub why: String,
    pub origin: String,
    /// The smallest change that would allow what was denied.
    pub remedy: String,
    pub connections: u64,
    pub up: u64,
    pub down: u64,
}

/// What became of what a host was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkOutcome {
    Allowed,
    #[default]
    Denied,
    /// Allowed, and not reached.
    Failed,
    /// Nothing left for it: the operator is asked once it is connected to.
    Held,
}

/// What went nowhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Unrouted {
    /// Packets and connections without a route.
    pub no_route: u64,
    /// Datagrams to a local port where no process listens; a name server of the host's loopback is such a port.
    pub no_listener: u64,
    /// Connections that were refused at once: on the loopback, where nothing listens.
    pub refused: u64,
}

/// What was written to an overlay, by its path outside.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Changed {
    pub path: PathBuf,
    /// Nothing is there on the host; all below is new too.
    pub is_new: bool,
    pub is_dir: bool,
}

/// Figures that neither the kernel nor the supervisor could measure are absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Usage {
    pub wall_micros: u64,
    pub cpu_user_micros: Option<u64>,
    pub cpu_system_micros: Option<u64>,
    pub memory_peak: Option<u64>,
    pub processes_peak: Option<u64>,
    pub read_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
    /// Forks that the process limit refused.
    pub forks_refused: Option<u64>,
    /// Whether the figures are the kernel's account of the whole session, or were put together from its processes.
    pub from_cgroup: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TimingLine {
    pub step: String,
    pub nanoseconds: u64,
}
