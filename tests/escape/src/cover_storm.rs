//! A storm of host programs on covered names: `escape-runner cover-storm [--json] [--short] [--count N] [--programs N]
//! [--others N] [--seconds N]`. A host process replaces, removes, recreates and bind-mounts covered names and renames their
//! parents while a workload spins on them, in each configuration; sessions that end are followed by others. Owns the
//! configurations, the figures and the targets; what the host does is `host`'s, what the workload does the probe's.

mod host;
mod session;

use std::fs;
use std::time::{Duration, Instant};

use cofferdam_testkit::{Scene, leaks, program};
use serde_json::{Map, Value, json};

pub use session::launch;
pub(crate) use session::{READ, SEEN, STOP, UP, WRITE};

use crate::cover_storm::host::{Host, PROGRAMS};
use crate::cover_storm::session::{Ended, Running};

const COUNT: usize = 100_000;
const EACH_PROGRAM: usize = 500;
/// System calls in the configurations beside the first.
const OTHERS: usize = 2_000;
/// Of the programs' runs so many are made beside the first configuration.
const PROGRAMS_SHARE: usize = 25;
/// Changes of a negative control; it ends when it has seen enough.
const CONTROL: usize = 200;
const CONTROL_SEEN: usize = 3;

/// Contents that may have been read beyond the counted falls: one in so many falls, and one in a short run.
const UNCOUNTED_IN: usize = 100;

/// How paths are decided, by the name that the launching process gets.
const WAYS: [&str; 3] = ["fuse", "static", "calls"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tree {
    /// A project that is written directly: a keeper.
    Direct,
    /// A directory that is given for reading: FUSE or an overlay.
    Read,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Configuration {
    pub(crate) tree: Tree,
    pub(crate) way: &'static str,
    /// The negative control: covers are not kept, or stand on the host's names.
    pub(crate) is_open: bool,
}

impl Configuration {
    pub(crate) fn name(self) -> String {
        let tree = if self.tree == Tree::Direct { "direct" } else { "read" };
        format!("{tree}-{}{}", self.way, if self.is_open { "-open" } else { "" })
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        let all = [Tree::Direct, Tree::Read].into_iter().flat_map(|tree| WAYS.map(|way| (tree, way)));
        let mut both = all.flat_map(|(tree, way)| [false, true].map(|is_open| Configuration { tree, way, is_open }));
        both.find(|one| one.name() == name)
    }
}

struct Size {
    calls: usize,
    programs: usize,
    until: Option<Duration>,
}

/// Measures and prints; the last line is JSON if that is asked for. Returns whether all targets were met.
pub fn measure(arguments: &[String]) -> Result<bool, String> {
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let number = |flag: &str, default: usize| match arguments.iter().position(|argument| argument == flag) {
        Some(at) => arguments.get(at + 1).and_then(|n| n.parse().ok()).ok_or_else(|| format!("{flag} needs a number")),
        None => Ok(default),
    };
    let (count, programs, others) = if has("--short") { (400, 2, 200) } else { (COUNT, EACH_PROGRAM, OTHERS) };
    let (count, programs) = (number("--count", count)?, number("--programs", programs)?);
    let others = number("--others", others)?.min(count);
    let until = match number("--seconds", 0)? {
        0 => None,
        seconds => Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX))),
    };
    host::private_mounts()?;
    let mut figures = Map::new();
    let mut pass = true;
    let has_device = fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    for tree in [Tree::Direct, Tree::Read] {
        for way in WAYS {
            if way == "fuse" && !has_device {
                println!("skipped: {}: /dev/fuse cannot be opened", Configuration { tree, way, is_open: false }.name());
                continue;
            }
            let is_first = figures.is_empty();
            let size = Size {
                calls: if is_first { count } else { others },
                programs: if is_first { programs } else { programs.div_ceil(PROGRAMS_SHARE) },
                until,
            };
            let (figure, good) = one(Configuration { tree, way, is_open: false }, &size)?;
            figures.insert(format!("{}_{way}", if tree == Tree::Direct { "direct" } else { "read" }), figure);
            pass &= good;
        }
    }
    if has("--json") {
        let targets = json!({"direct": {"unreported": 0, "uncounted": "<= 1 % of falls, or 1"}, "read": {"reads": 0, "writes": 0}, "control_seen": ">0"});
        println!("{}", json!({"figures": figures, "targets": targets, "pass": pass}));
    } else {
        println!("{}", if pass { "all targets met" } else { "MISSED" });
    }
    Ok(pass)
}

/// What came of all sessions of one configuration.
#[derive(Default)]
struct Tally {
    sessions: usize,
    ended: usize,
    reads: usize,
    writes: usize,
    falls: u64,
    unreported: usize,
    uncounted: usize,
    unreported_names: Vec<String>,
    /// Median of a session's windows in microseconds, and how many there were.
    windows: Vec<(u64, u64)>,
    worst: u64,
}

impl Tally {
    fn add(&mut self, ended: &Ended) {
        self.sessions += 1;
        self.ended += usize::from(ended.by_keeper);
        self.reads += ended.reads;
        self.writes += ended.writes;
        self.falls += ended.windows.iter().map(|(times, ..)| u64::from(*times)).sum::<u64>();
        self.unreported += ended.unreported.len();
        self.uncounted += ended.uncounted;
        self.unreported_names.extend(ended.unreported.iter().take(8).cloned());
        self.windows.extend(ended.windows.iter().map(|(times, median, _)| (*median, u64::from(*times))));
        self.worst = ended.windows.iter().map(|(.., worst)| *worst).fold(self.worst, u64::max);
    }

    /// Of the sessions' medians, by how many falls each stands for.
    fn median(&self) -> u64 {
        let mut sorted = self.windows.clone();
        sorted.sort_unstable();
        let half = sorted.iter().map(|(_, times)| times).sum::<u64>() / 2;
        let mut so_far = 0;
        let reached = |(_, times): &&(u64, u64)| {
            so_far += times;
            so_far > half
        };
        sorted.iter().find(reached).map_or(0, |(median, _)| *median)
    }

    fn is_good(&self, tree: Tree) -> bool {
        match tree {
            Tree::Direct => {
                let most = usize::try_from(self.falls).unwrap_or(usize::MAX) / UNCOUNTED_IN;
                self.unreported == 0 && self.falls > 0 && self.uncounted <= most.max(1)
            }
            Tree::Read => self.reads == 0 && self.writes == 0,
        }
    }

    fn has_seen_enough(&self, tree: Tree) -> bool {
        match tree {
            Tree::Direct => self.unreported >= CONTROL_SEEN,
            Tree::Read => self.reads >= CONTROL_SEEN,
        }
    }
}

fn one(configuration: Configuration, size: &Size) -> Result<(Value, bool), String> {
    let began = Instant::now();
    let (tally, host) = storm(configuration, size)?;
    let seconds = began.elapsed().as_secs_f64();
    let control = Size { calls: CONTROL, programs: 0, until: size.until };
    let (open, _) = storm(Configuration { is_open: true, ..configuration }, &control)?;
    let seen = if configuration.tree == Tree::Direct { open.unreported } else { open.reads };
    let good = tally.is_good(configuration.tree) && seen > 0;
    let programs: Vec<String> =
        PROGRAMS.iter().zip(host.runs).map(|(program, runs)| format!("{} {runs}", program.name)).collect();
    println!(
        "{}: {} changes by system calls ({} bind mounts), {} in {seconds:.1} s; {} sessions, {} ended by their keeper; {} reads, {} \
         writes; {} falls reported, {} unreported{}, {} contents more than counted; window {:.2} ms median, {:.1} ms worst [control: {seen} seen]{}",
        configuration.name(),
        host.calls,
        host.binds,
        programs.join(", "),
        tally.sessions,
        tally.ended,
        tally.reads,
        tally.writes,
        tally.falls,
        tally.unreported,
        if tally.unreported_names.is_empty() { String::new() } else { format!(" {:?}", tally.unreported_names) },
        tally.uncounted,
        millis(tally.median()),
        millis(tally.worst),
        if good { "" } else { " MISSED" },
    );
    let runs: Map<String, Value> =
        PROGRAMS.iter().zip(host.runs).map(|(program, runs)| (program.name.to_owned(), json!(runs))).collect();
    let figures = json!({
        "calls": host.calls, "bind_mounts": host.binds, "programs": runs, "seconds": seconds, "sessions": tally.sessions,
        "ended": tally.ended, "reads": tally.reads, "writes": tally.writes, "falls": tally.falls,
        "unreported": tally.unreported, "uncounted": tally.uncounted, "window_median_ms": millis(tally.median()), "window_worst_ms": millis(tally.worst),
        "control_seen": seen,
    });
    Ok((figures, good))
}

/// Sessions one after the other until the host has done its work.
fn storm(configuration: Configuration, size: &Size) -> Result<(Tally, Host), String> {
    let text = |error: std::io::Error| error.to_string();
    let (Some(runner), Some(probe)) = (program("escape-runner"), program("escape-probe")) else {
        return Err("escape-runner and escape-probe were not built".to_owned());
    };
    let scene = Scene::new().map_err(text)?;
    fs::copy(probe, scene.probe()).map_err(text)?;
    let mut host = Host::new(session::tree(&scene, configuration.tree));
    host.make()?;
    let mut tally = Tally::default();
    let began = Instant::now();
    let is_over = || size.until.is_some_and(|until| began.elapsed() > until);
    let is_done = |host: &Host| host.calls >= size.calls && host.runs.iter().all(|runs| *runs >= size.programs);
    let is_shown = |tally: &Tally| configuration.is_open && tally.has_seen_enough(configuration.tree);
    while !is_done(&host) && !is_over() && !is_shown(&tally) {
        host.restore()?;
        let mut session = Running::start(configuration, &runner, &scene, tally.sessions)?;
        while !is_done(&host) && !is_over() && !session.has_ended()? {
            host.change(size.calls, size.programs)?;
        }
        tally.add(&session.finish(configuration, &scene)?);
    }
    if !is_done(&host) && !configuration.is_open {
        println!("{}: the time is over", configuration.name());
    }
    let left = leaks::find(&scene);
    if !left.is_empty() {
        return Err(format!("left behind: {}", left.join(", ")));
    }
    scene.remove().map_err(text)?;
    Ok((tally, host))
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of a session fit a float")]
fn millis(micros: u64) -> f64 {
    micros as f64 / 1000.0
}
