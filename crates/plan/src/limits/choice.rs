//! Which limit is enforced by what on this host: cgroup, rlimit, pinning, private file systems, or the supervisor's samples.
//! Owns that choice and the refusal of a limit that a layer asked for and nothing can enforce. A limit of the built-in
//! layer that nothing can enforce is reported as missing instead. Called by `plan()`.

use std::fmt;
use std::path::PathBuf;

use cofferdam_policy::{Layer, Limits, Origin, Policy, Ruled, parse_cpu_set};

use crate::PlanError;
use crate::facts::cgroup::CgroupHome;
use crate::facts::host::HostFacts;
use crate::limits::amounts::{Bytes, Cpus};
use crate::limits::plan::{Bound, CgroupPlan, CgroupSetting, Keeper, Limited, LimitsPlan, QuotaPlan, Room};
use crate::posture::Posture;
use crate::step::{Resource, Step};

/// The period over which the kernel counts CPU bandwidth.
const CPU_PERIOD: u32 = 100_000;
/// Files in each private file system where the policy names no number: an inode costs about a kilobyte.
const TMP_INODES: u64 = 1 << 18;

/// The kernel wants that many pids beyond those that it gives out again.
const RESERVED_PIDS: u64 = 301;

/// The outcome of deciding: what the supervisor gets, the steps inside, and lines for the posture.
pub(crate) struct ChosenLimits {
    pub(crate) plan: LimitsPlan,
    pub(crate) steps: Vec<Step>,
    pub(crate) room: Room,
    /// The processes must not be able to change on which CPUs they run.
    pub(crate) pinned: bool,
    pub(crate) largest_pid: Option<u64>,
    lines: Vec<Line>,
}

enum Line {
    Enforced(String),
    Reduced(String),
    Missing(String),
}

impl ChosenLimits {
    /// Without a sandbox only the clock and a cgroup are left to keep a limit.
    pub(crate) fn refuse_without_sandbox(&self, policy: &Policy) -> Result<(), PlanError> {
        // Each is named: one that comes later must not be forgotten here. The others are bounds, or the clock's.
        let Limits {
            open_files,
            file_size,
            tmp_size,
            tmp_inodes,
            output,
            memory: _,
            memory_high: _,
            cpu_seconds: _,
            cpu_millis: _,
            cpu_set: _,
            timeout: _,
            storage: _,
            inodes: _,
            io_read: _,
            io_write: _,
            io_read_ops: _,
            io_write_ops: _,
        } = &policy.limits;
        let inside =
            [open_files, file_size, tmp_size, tmp_inodes, output].into_iter().flatten().map(|limit| &limit.origin);
        let watched = self.plan.bounds.iter().filter(|bound| bound.by != Keeper::Cgroup).map(|bound| &bound.origin);
        match inside.chain(watched).find(|origin| is_named(origin)) {
            Some(origin) => Err(PlanError::CannotLimit {
                setting: "limits",
                needs: "a sandbox",
                why: "isolation is `none`".to_owned(),
                origin: origin.clone(),
            }),
            None => Ok(()),
        }
    }

    pub(crate) fn tell(&self, posture: &mut Posture) {
        for line in &self.lines {
            match line {
                Line::Enforced(by) => posture.enforced("limits", by),
                Line::Reduced(by) => posture.reduced("limits", by),
                Line::Missing(why) => posture.missing("limits", why),
            }
        }
    }
}

pub(crate) fn decide(
    policy: &Policy,
    facts: &HostFacts,
    mut writable: Vec<PathBuf>,
) -> Result<ChosenLimits, PlanError> {
    let mut chooser = Chooser {
        facts,
        home: usable_home(policy, facts),
        controllers: Vec::new(),
        settings: Vec::new(),
        bounds: Vec::new(),
        // Whatever the user may do outside: a core file is a copy of everything, a priority is taken from others.
        steps: [Resource::CoreSize, Resource::RealtimePriority, Resource::Nice]
            .map(|resource| Step::Limit { resource, value: 0 })
            .to_vec(),
        pinned: false,
        largest_pid: None,
        lines: Vec::new(),
    };
    chooser.processes(policy.process.max.as_ref());
    let memory = chooser.memory(&policy.limits)?;
    chooser.cpus(&policy.limits)?;
    chooser.cpu_time(policy.limits.cpu_seconds.as_ref());
    chooser.io(&policy.limits)?;
    chooser.single_processes(&policy.limits);
    chooser.storage(&policy.limits);
    let quota = chooser.quota(&policy.limits);
    if quota.is_some() {
        // The file system itself keeps it there.
        writable.retain(|path| Some(path) != facts.session_dir.as_ref());
    }
    let room = room(&policy.limits, facts, memory);
    chooser.say_room(room);
    if policy.limits.output.is_some() {
        chooser.lines.push(Line::Enforced("output: counted by the supervisor".to_owned()));
    }
    let Chooser { home, controllers, settings, bounds, steps, pinned, largest_pid, lines, .. } = chooser;
    let cgroup =
        home.filter(|_| !settings.is_empty()).map(|home| CgroupPlan { home: home.clone(), controllers, settings });
    let output = policy.limits.output.as_ref().map(|limit| limit.value);
    let plan = LimitsPlan { cgroup, bounds, storage: writable, quota, output };
    Ok(ChosenLimits { plan, steps, room, pinned, largest_pid, lines })
}

/// A service manager takes some milliseconds to make a scope, so it is asked only for limits that a layer named.
fn usable_home<'a>(policy: &Policy, facts: &'a HostFacts) -> Option<&'a CgroupHome> {
    let Limits { memory, memory_high, cpu_millis, cpu_set, io_read, io_write, io_read_ops, io_write_ops, .. } =
        &policy.limits;
    let numbers = [memory, memory_high, io_read, io_write, io_read_ops, io_write_ops];
    let named = numbers.into_iter().flatten().any(|limit| is_named(&limit.origin))
        || cpu_millis.as_ref().is_some_and(|limit| is_named(&limit.origin))
        || cpu_set.as_ref().is_some_and(|limit| is_named(&limit.origin))
        || policy.process.max.as_ref().is_some_and(|limit| is_named(&limit.origin));
    match &facts.cgroup {
        CgroupHome::None { .. } => None,
        CgroupHome::Scope { .. } => named.then_some(&facts.cgroup),
        CgroupHome::Delegated { .. } => Some(&facts.cgroup),
    }
}

/// Presets that were asked for are built in too: they say what is preferred, not what is demanded.
fn is_named(origin: &Origin) -> bool {
    origin.layer != Layer::BuiltIn
}

struct Chooser<'a> {
    facts: &'a HostFacts,
    home: Option<&'a CgroupHome>,
    controllers: Vec<&'static str>,
    settings: Vec<CgroupSetting>,
    bounds: Vec<Bound>,
    steps: Vec<Step>,
    pinned: bool,
    largest_pid: Option<u64>,
    lines: Vec<Line>,
}

impl Chooser<'_> {
    /// Whether the session's cgroup can use a controller; if so it will.
    fn use_controller(&mut self, name: &'static str) -> bool {
        let there = self.home.is_some_and(|home| home.controllers().iter().any(|have| have == name));
        if there && !self.controllers.contains(&name) {
            self.controllers.push(name);
        }
        there
    }

    fn set(&mut self, file: &'static str, value: impl fmt::Display) {
        self.settings.push(CgroupSetting { file, value: value.to_string(), if_present: false });
    }

    fn bind(&mut self, what: Limited, value: u64, by: Keeper, origin: &Origin) {
        self.bounds.push(Bound { what, value, by, origin: origin.clone() });
    }

    /// A limit that cannot be kept here: refused if a layer named it, told if it is only a built-in value.
    fn cannot(&mut self, setting: &'static str, origin: &Origin, needs: &'static str) -> Result<(), PlanError> {
        let why = self.facts.cgroup.why_not();
        if is_named(origin) {
            return Err(PlanError::CannotLimit { setting, needs, why, origin: origin.clone() });
        }
        self.lines.push(Line::Missing(format!("{setting}: needs {needs}, and {why}")));
        Ok(())
    }

    fn processes(&mut self, max: Option<&Ruled<u32>>) {
        let Some(max) = max else { return };
        let value = u64::from(max.value);
        let by = if self.use_controller("pids") {
            self.set("pids.max", value);
            self.lines.push(Line::Enforced(format!("{value} processes and threads: cgroup pids.max")));
            Keeper::Cgroup
        } else if self.facts.uid == 0 {
            // Root is exempt from the rlimit, and a fork bomb is faster than any sample: the namespace runs out of pids.
            self.largest_pid = self.facts.own_largest_pid.then(|| value.saturating_add(RESERVED_PIDS));
            let most = self.largest_pid.map(|most| format!(", at most {most} by pid_max")).unwrap_or_default();
            let line = format!("{value} processes and threads: watched by the supervisor{most}");
            self.lines.push(Line::Reduced(line));
            Keeper::Watched
        } else {
            self.steps.push(Step::Limit { resource: Resource::Processes, value });
            self.lines
                .push(Line::Enforced(format!("{value} processes and threads: RLIMIT_NPROC in the user namespace")));
            Keeper::Rlimit
        };
        self.bind(Limited::Processes, value, by, &max.origin);
    }

    /// Returns the limit where the supervisor watches it, for it does not see what lies in private file systems.
    fn memory(&mut self, limits: &Limits) -> Result<Option<u64>, PlanError> {
        let default = self.default_memory();
        let limit = at_most_default(limits.memory.as_ref(), default.as_ref());
        let mut watched = None;
        if let Some(limit) = limit {
            let text = Bytes(limit.value);
            let by = if self.use_controller("memory") {
                self.set("memory.max", limit.value);
                self.settings.push(CgroupSetting { file: "memory.swap.max", value: "0".to_owned(), if_present: true });
                self.set("memory.oom.group", 1);
                self.lines.push(Line::Enforced(format!("{text} of memory, no swap: cgroup memory.max, oom.group")));
                Keeper::Cgroup
            } else {
                let mut line = format!("{text} of memory: watched by the supervisor");
                if limits.memory.is_some() {
                    // A single process that outruns the samples is stopped at twice the limit. Not where no layer set one:
                    // address sanitizers reserve terabytes that they never touch.
                    let value = limit.value.saturating_mul(2);
                    self.steps.push(Step::Limit { resource: Resource::Data, value });
                    line.push_str(", RLIMIT_DATA at twice as much for one process");
                }
                self.lines.push(Line::Reduced(line));
                watched = Some(limit.value);
                Keeper::Watched
            };
            self.bind(Limited::Memory, limit.value, by, &limit.origin);
        }
        if let Some(high) = &limits.memory_high {
            if self.use_controller("memory") {
                self.set("memory.high", high.value);
                let text = Bytes(high.value);
                self.lines.push(Line::Enforced(format!("slowed down above {text} of memory: cgroup memory.high")));
                self.bind(Limited::MemoryHigh, high.value, Keeper::Cgroup, &high.origin);
            } else {
                self.cannot("limits.memory_high", &high.origin, "the cgroup controller `memory`")?;
            }
        }
        Ok(watched)
    }

    /// Where no layer says otherwise a session leaves a quarter of the machine's memory to the rest.
    fn default_memory(&self) -> Option<Ruled<u64>> {
        let most = self.facts.memory / 4 * 3;
        (most > 0).then(|| Ruled::default_of(most))
    }

    fn cpus(&mut self, limits: &Limits) -> Result<(), PlanError> {
        let mut usable = self.facts.cpus.clone();
        if let Some(set) = &limits.cpu_set {
            let wanted = parse_cpu_set(&set.value).unwrap_or_default();
            usable.retain(|cpu| wanted.iter().any(|range| range.contains(cpu)));
            if usable.is_empty() {
                let origin = set.origin.clone();
                return Err(PlanError::NoSuchCpus { set: set.value.clone(), have: self.facts.cpus.len(), origin });
            }
            if self.use_controller("cpuset") {
                self.set("cpuset.cpus", &set.value);
                self.lines.push(Line::Enforced(format!("CPUs {}: cgroup cpuset.cpus", set.value)));
                self.bind(Limited::CpuSet, 0, Keeper::Cgroup, &set.origin);
            } else {
                self.pin(usable.clone(), Limited::CpuSet, 0, &set.origin);
            }
        }
        let Some(limit) = &limits.cpu_millis else { return Ok(()) };
        let text = Cpus(limit.value);
        let most = u64::from(limit.value);
        if self.use_controller("cpu") {
            let quota = most * u64::from(CPU_PERIOD) / 1000;
            self.set("cpu.max", format_args!("{quota} {CPU_PERIOD}"));
            self.lines.push(Line::Enforced(format!("{text} CPUs: cgroup cpu.max")));
            self.bind(Limited::Cpus, most, Keeper::Cgroup, &limit.origin);
            return Ok(());
        }
        if !limit.value.is_multiple_of(1000) {
            return self.cannot("limits.cpus (a fraction)", &limit.origin, "the cgroup controller `cpu`");
        }
        let cpus = self.some_of(&usable, limit.value as usize / 1000);
        self.pin(cpus, Limited::Cpus, most, &limit.origin);
        Ok(())
    }

    /// So many of the CPUs that may be used; sessions that start at the same time get different ones.
    fn some_of(&self, all: &[u32], count: usize) -> Vec<u32> {
        let first = self.facts.pid as usize % all.len().max(1);
        let mut cpus: Vec<u32> = all.iter().cycle().skip(first).take(count.min(all.len())).copied().collect();
        cpus.sort_unstable();
        cpus
    }

    fn pin(&mut self, cpus: Vec<u32>, what: Limited, value: u64, origin: &Origin) {
        self.pinned = true;
        let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
        self.lines.push(Line::Enforced(format!("CPUs {}: pinned; sched_setaffinity is refused", list.join(","))));
        self.steps.push(Step::Pin { cpus });
        self.bind(what, value, Keeper::Affinity, origin);
    }

    fn cpu_time(&mut self, limit: Option<&Ruled<u64>>) {
        let Some(limit) = limit else { return };
        let value = limit.value;
        // One process that outruns the samples is stopped by the kernel a second later.
        self.steps.push(Step::Limit { resource: Resource::CpuSeconds, value: value.saturating_add(1) });
        // Every cgroup counts its CPU time, with or without the controller.
        self.lines.push(Line::Enforced(if self.home.is_some() {
            format!("{value} s of CPU time: the supervisor watches the cgroup's cpu.stat")
        } else {
            format!("{value} s of CPU time: RLIMIT_CPU for one process, the sum watched by the supervisor")
        }));
        self.bind(Limited::CpuTime, value, Keeper::Watched, &limit.origin);
    }

    fn io(&mut self, limits: &Limits) -> Result<(), PlanError> {
        let keys = [
            ("rbps", "limits.io.read", &limits.io_read),
            ("wbps", "limits.io.write", &limits.io_write),
            ("riops", "limits.io.read_ops", &limits.io_read_ops),
            ("wiops", "limits.io.write_ops", &limits.io_write_ops),
        ];
        let wanted: Vec<_> =
            keys.into_iter().filter_map(|(key, name, limit)| Some((key, name, limit.as_ref()?))).collect();
        let Some((_, name, first)) = wanted.first() else { return Ok(()) };
        if self.facts.disks.is_empty() {
            return self.cannot(name, &first.origin, "a disk of its own below what is writable");
        }
        if !self.use_controller("io") {
            return self.cannot(name, &first.origin, "the cgroup controller `io`");
        }
        let values: Vec<String> = wanted.iter().map(|(key, _, limit)| format!("{key}={}", limit.value)).collect();
        let values = values.join(" ");
        for disk in &self.facts.disks {
            self.set("io.max", format_args!("{disk} {values}"));
        }
        self.lines.push(Line::Enforced(format!("disks {}: cgroup io.max {values}", self.facts.disks.join(", "))));
        self.bind(Limited::Io, first.value, Keeper::Cgroup, &first.origin);
        Ok(())
    }

    /// What the kernel limits for each process by itself.
    fn single_processes(&mut self, limits: &Limits) {
        for (resource, limit) in [(Resource::OpenFiles, &limits.open_files), (Resource::FileSize, &limits.file_size)] {
            if let Some(limit) = limit {
                self.steps.push(Step::Limit { resource, value: limit.value });
            }
        }
        self.lines.push(Line::Enforced("each process: rlimits; core files off".to_owned()));
    }

    fn storage(&mut self, limits: &Limits) {
        for (what, limit) in [(Limited::Storage, &limits.storage), (Limited::Inodes, &limits.inodes)] {
            if let Some(limit) = limit {
                self.bind(what, limit.value, Keeper::Watched, &limit.origin);
            }
        }
        let text = match (&limits.storage, &limits.inodes) {
            (Some(bytes), _) => format!("{} more on each disk", Bytes(bytes.value)),
            (None, Some(_)) => "files on each disk".to_owned(),
            (None, None) => "a full disk".to_owned(),
        };
        self.lines.push(Line::Reduced(format!("{text}: the supervisor watches free space and ends the session")));
    }

    fn quota(&mut self, limits: &Limits) -> Option<QuotaPlan> {
        let value = |limit: &Option<Ruled<u64>>| limit.as_ref().map(|limit| limit.value);
        let quota = QuotaPlan { bytes: value(&limits.storage), files: value(&limits.inodes) };
        let is_wanted = self.facts.has_quota && (quota.bytes.is_some() || quota.files.is_some());
        if is_wanted {
            self.lines.push(Line::Enforced("the same in overlays: project quota of their file system".to_owned()));
        }
        is_wanted.then_some(quota)
    }

    fn say_room(&mut self, room: Room) {
        if room.size > 0 {
            let text = Bytes(room.size);
            let files = room.inodes;
            self.lines.push(Line::Enforced(format!("{text} and {files} files in each private directory: tmpfs")));
        }
    }
}

/// Policy files that come with a project only lower what holds without them; the defaults of this machine are known
/// here only.
fn at_most_default<'a>(limit: Option<&'a Ruled<u64>>, default: Option<&'a Ruled<u64>>) -> Option<&'a Ruled<u64>> {
    match (limit, default) {
        (Some(limit), Some(default)) if limit.origin.layer.is_untrusted() && default.value < limit.value => {
            Some(default)
        }
        (limit, default) => limit.or(default),
    }
}

fn room(limits: &Limits, facts: &HostFacts, watched_memory: Option<u64>) -> Room {
    let quarter = facts.memory / 4;
    let default = Ruled::default_of(watched_memory.map_or(quarter, |memory| quarter.min(memory / 2)));
    let inodes = Ruled::default_of(TMP_INODES);
    let value = |limit: Option<&Ruled<u64>>| limit.map_or(0, |limit| limit.value);
    Room {
        size: value(at_most_default(limits.tmp_size.as_ref(), Some(&default))),
        inodes: value(at_most_default(limits.tmp_inodes.as_ref(), Some(&inodes))),
    }
}
