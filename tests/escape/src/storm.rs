//! Floods of a session's egress: `escape-runner storm [--json] [--lookups N] [--connections N] [--half-open N] [--rounds N]`;
//! none of a kind where its number is 0. Names that lead to public and private places in turns, and thousands of connections with a
//! neighbour beside them that says a word and waits for it so many times, in turns with one in a session without them: what else
//! the machine does falls on both alike. Each in a world of its own. Owns the targets; what is done inside is the probe's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use cofferdam_policy::Policy;
use cofferdam_testkit::world::log::Record;
use cofferdam_testkit::world::{Answer, Dns};
use cofferdam_testkit::{Helper, Place, Scene, Session, World, leaks, program, start_helper};
use serde_json::{Value, json};

use crate::limits::named;
use crate::row::probe_argv;
use crate::rows::egress::allow;

/// Names of the storm, so that no lookup waits for another one's answer.
pub(crate) const NAMES: usize = 64;
/// Where connections are kept, and where a word is said again.
pub(crate) const HOLD: &str = "hold.test:9000";
pub(crate) const ECHO: &str = "echo.test:9001";
/// Turns that each of the two neighbours has.
pub(crate) const WINDOWS: usize = 8;
/// A turn comes within this time, also on an emulated processor.
pub(crate) const TURN: Duration = Duration::from_mins(4);

const PUBLIC: &str = "93.184.216.35";
/// Public addresses of the storm: with one alone, ports for connections to it would run out.
const PLACES: usize = 8;
const PRIVATE: &str = "10.0.0.1:443";
const LOOKUPS: usize = 100_000;
/// With the private address listed: enough to see that it is counted.
const CONTROL: usize = 400;
const CONNECTIONS: usize = 10_000;
const SLOW: usize = 2_000;
const ROUNDS: usize = 3_000;
const HEADER_SECONDS: u64 = 30;
/// A neighbour may wait three times as long.
const RATIO: f64 = 3.0;
/// Two sockets, a task and what was read of a request: far below 25 KiB each.
const MEMORY_MIB: u64 = 300;
/// What of one processor the egress process may use while only connections that say nothing are open: a loop that never sleeps takes all of it.
const IDLE_SHARE: f64 = 0.3;
const LONGEST: Duration = Duration::from_mins(10);

/// Measures and prints; the last line is JSON if that is asked for. Returns whether all targets were met.
pub fn measure(arguments: &[String]) -> Result<bool, String> {
    let json = arguments.iter().any(|argument| argument == "--json");
    let number = |flag: &str, default: usize| match arguments.iter().position(|argument| argument == flag) {
        Some(at) => arguments.get(at + 1).and_then(|n| n.parse().ok()).ok_or_else(|| format!("{flag} needs a number")),
        None => Ok(default),
    };
    let left_out = (Value::Null, true);
    let (storm, first) = match number("--lookups", LOOKUPS)? {
        0 => left_out.clone(),
        lookups => rebinding(lookups)?,
    };
    let (crowd, second) = match number("--connections", CONNECTIONS)? {
        0 => left_out,
        connections => crowd(connections, number("--half-open", SLOW)?, number("--rounds", ROUNDS)?)?,
    };
    let pass = first && second;
    if json {
        let targets = json!({"private_dials": 0, "ratio": RATIO, "egress_mib": MEMORY_MIB});
        println!("{}", json!({"figures": {"rebinding": storm, "crowd": crowd}, "targets": targets, "pass": pass}));
    } else {
        println!("{}", if pass { "all targets met" } else { "MISSED" });
    }
    Ok(pass)
}

fn rebinding(lookups: usize) -> Result<(Value, bool), String> {
    let turns = |dns: &Dns<'_>| {
        for index in 0..NAMES {
            let public = format!("93.184.217.{}", index % PLACES);
            let answers = ["10.0.0.1", &public].map(|address| Answer::addresses([address]).ttl(0));
            dns.turns(&format!("n{index}.storm.test"), answers.to_vec());
        }
    };
    let one = |kind: &str, count: usize| -> Result<Flood, String> {
        let world = World::start().map_err(|error| error.to_string())?;
        turns(&world.dns());
        let private = world.listener(PRIVATE).to_string();
        for index in 0..PLACES {
            world.listener(&format!("93.184.217.{index}:443"));
        }
        let run = run(kind, &world, &count.to_string())?;
        let private = world.dials(&private).len();
        let is_public = |record: &Record| matches!(record, Record::Connection(one) if one.server.starts_with("93."));
        let public = world.records().iter().filter(|record| is_public(record)).count();
        let queries = world.queries("storm.test").len();
        Ok(Flood { run, private, public, queries })
    };
    let control = one("rebinding-listed", CONTROL.min(lookups))?;
    let storm = one("rebinding", lookups)?;
    let failed = storm.run.figures["failed"].as_u64().unwrap_or(u64::MAX);
    println!(
        "rebinding: {lookups} lookups and connects in {:.1} s: {} private dials, {} public dials, {} refused, {failed} failed, {} \
         queries outside; egress {} MiB at most [control, private address listed: {} private dials of {}]",
        storm.run.seconds,
        storm.private,
        storm.public,
        storm.run.figures["refused"],
        storm.queries,
        storm.run.egress_mib,
        control.private,
        CONTROL.min(lookups),
    );
    if failed > 0 {
        println!("rebinding: failed with {}", storm.run.figures["errors"]);
    }
    let refused = storm.run.figures["refused"].as_u64().unwrap_or(0);
    let all = storm.public > lookups / 4 && refused > lookups as u64 / 4 && failed < lookups as u64 / 1000 + 1;
    let pass = storm.private == 0 && all && control.private > 0 && storm.run.egress_mib < MEMORY_MIB;
    let figures = json!({
        "lookups": lookups, "seconds": storm.run.seconds, "private_dials": storm.private, "public_dials": storm.public,
        "queries": storm.queries, "inside": storm.run.figures, "egress_mib": storm.run.egress_mib,
        "control_private_dials": control.private,
    });
    Ok((figures, pass))
}

struct Flood {
    run: Run,
    private: usize,
    public: usize,
    queries: usize,
}

fn crowd(wanted: usize, slow: usize, rounds: usize) -> Result<(Value, bool), String> {
    // The egress process takes as many connections as it has two descriptors for, and keeps some for itself.
    let room = usize::try_from(most_files()).unwrap_or(usize::MAX).saturating_sub(256) / 2;
    let idle = wanted.min(room.saturating_sub(slow + 64));
    let world = World::start().map_err(|error| error.to_string())?;
    let dns = world.dns();
    dns.name("hold.test", Answer::addresses([PUBLIC])).name("echo.test", Answer::addresses([PUBLIC]));
    world.keeper(&format!("{PUBLIC}:9000"));
    world.listener(&format!("{PUBLIC}:9001"));
    let mut crowded = Running::start("crowd", &world, &format!("{idle} {slow} {rounds} {HEADER_SECONDS}"))?;
    let mut empty = Running::start("crowd", &world, &format!("0 0 {rounds} {HEADER_SECONDS}"))?;
    let busy = in_turns(&mut empty, &mut crowded);
    // Both are waited for, whatever became of the turns.
    let (alone, run) = (empty.finish(), crowded.finish());
    let (busy, alone, run) = (busy?, alone?, run?);
    let (alone, beside) = (middle(&alone.figures["p99_us"]), middle(&run.figures["p99_us"]));
    let ratio = beside / alone;
    let figure = |name: &str| run.figures[name].as_f64().unwrap_or(f64::INFINITY);
    let whole = |name: &str| run.figures[name].as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(0);
    let less =
        if idle < wanted { format!(" (of {wanted}: no more than {} files)", most_files()) } else { String::new() };
    println!(
        "crowd: {idle} idle connections{less} and {slow} half-open requests; neighbour p99 {alone:.0} us alone, {beside:.0} us \
         beside, ratio {ratio:.2} (medians of {WINDOWS} windows in turns); {} half-open closed {:.1} s after their start (limit \
         {HEADER_SECONDS} s), idle open after: {}; egress {} MiB, supervisor {} MiB at most, {:.0} % of a processor between turns",
        run.figures["slow_closed"],
        figure("slow_seconds"),
        run.figures["idle_open_after"],
        run.egress_mib,
        run.supervisor_mib,
        busy * 100.0,
    );
    let slowed = slow == 0
        || run.figures["slow_held_while_measured"] == json!(true)
            && whole("slow_closed") == slow
            && figure("slow_seconds") >= Duration::from_secs(HEADER_SECONDS).as_secs_f64() - 1.0;
    let held = slowed && [whole("idle"), whole("idle_open_beside"), whole("idle_open_after")] == [idle; 3];
    let bounded = run.egress_mib < MEMORY_MIB && run.supervisor_mib < MEMORY_MIB;
    let at_rest = slow > 0 || busy <= IDLE_SHARE;
    let pass = held && ratio <= RATIO && bounded && at_rest;
    let figures = json!({
        "inside": run.figures, "alone_p99_us": alone, "beside_p99_us": beside, "ratio": ratio, "egress_mib": run.egress_mib,
        "supervisor_mib": run.supervisor_mib, "egress_share_between_turns": busy,
    });
    Ok((figures, pass))
}

/// The files by which a neighbour inside and this process take turns.
pub(crate) struct Turn {
    pub(crate) given: PathBuf,
    pub(crate) taken: PathBuf,
}

impl Turn {
    pub(crate) fn of(place: &Place, index: usize) -> Self {
        let file = |what: &str| place.project().join(format!("turn-{index}-{what}"));
        Turn { given: file("given"), taken: file("taken") }
    }

    /// There once all connections are open.
    pub(crate) fn full(place: &Place) -> PathBuf {
        place.project().join("full")
    }
}

/// Gives the two their turns, and says what part of a processor the crowded session's egress used while the other one had its own.
fn in_turns(empty: &mut Running, crowded: &mut Running) -> Result<f64, String> {
    for one in [&mut *crowded, &mut *empty] {
        let full = Turn::full(&one.place());
        one.until(&full)?;
    }
    let (mut used, mut passed) = (Duration::ZERO, Duration::ZERO);
    for index in 0..WINDOWS {
        let (before, began) = (crowded.egress_time()?, Instant::now());
        empty.turn(index)?;
        used += crowded.egress_time()?.saturating_sub(before);
        passed += began.elapsed();
        crowded.turn(index)?;
    }
    Ok(used.as_secs_f64() / passed.as_secs_f64())
}

fn middle(windows: &Value) -> f64 {
    let mut windows: Vec<f64> = windows.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    windows.sort_by(f64::total_cmp);
    if windows.len() == WINDOWS { windows[WINDOWS / 2] } else { f64::INFINITY }
}

/// What came of one session.
struct Run {
    figures: Value,
    seconds: f64,
    egress_mib: u64,
    supervisor_mib: u64,
}

fn run(kind: &str, world: &World, wanted: &str) -> Result<Run, String> {
    Running::start(kind, world, wanted)?.finish()
}

/// A session under way.
struct Running {
    kind: String,
    scene: Scene,
    helper: Helper,
    began: Instant,
    egress_mib: u64,
    supervisor_mib: u64,
}

impl Running {
    fn start(kind: &str, world: &World, wanted: &str) -> Result<Self, String> {
        let (Some(runner), Some(probe)) = (program("escape-runner"), program("escape-probe")) else {
            return Err("escape-runner and escape-probe were not built".to_owned());
        };
        let scene = Scene::new().map_err(text)?;
        fs::copy(probe, scene.probe()).map_err(text)?;
        scene.write(scene.project().join("wanted"), wanted);
        let helper = start(kind, world, &runner, &scene)?;
        let began = Instant::now();
        Ok(Running { kind: kind.to_owned(), scene, helper, began, egress_mib: 0, supervisor_mib: 0 })
    }

    fn place(&self) -> Place {
        Place::at(self.scene.root())
    }

    /// Whether it has ended, or has had its time.
    fn is_over(&mut self, within: Duration) -> Result<bool, String> {
        let ended = self.helper.wait(within).map_err(text)?.is_some();
        self.supervisor_mib = self.supervisor_mib.max(peak_mib(self.helper.child.id()));
        self.egress_mib = self.egress_mib.max(self.egress().map_or(0, peak_mib));
        Ok(ended || self.began.elapsed() > LONGEST)
    }

    fn until(&mut self, file: &Path) -> Result<(), String> {
        while !file.exists() {
            if self.is_over(Duration::from_millis(20))? {
                return Err(format!("{}: {} did not appear", self.kind, file.display()));
            }
        }
        Ok(())
    }

    fn turn(&mut self, index: usize) -> Result<(), String> {
        let turn = Turn::of(&self.place(), index);
        fs::write(turn.given, "").map_err(text)?;
        self.until(&turn.taken)
    }

    fn egress(&self) -> Option<u32> {
        egress_of(self.helper.child.id())
    }

    /// What its egress process has used of processors.
    fn egress_time(&self) -> Result<Duration, String> {
        self.egress().map(processor_time).ok_or_else(|| format!("{}: no egress process", self.kind))
    }

    fn finish(mut self) -> Result<Run, String> {
        while !self.is_over(Duration::from_millis(100))? {}
        let seconds = self.began.elapsed().as_secs_f64();
        let launched = self.helper.finish().map_err(text)?;
        let figures = fs::read_to_string(self.scene.project().join("figures"));
        let figures = figures
            .map_err(|_| format!("{}: {} {:?} {}", self.kind, launched.stdout, launched.report, launched.stderr))?;
        let left = leaks::find(&self.scene);
        if !left.is_empty() {
            return Err(format!("left behind: {}", left.join(", ")));
        }
        self.scene.remove().map_err(text)?;
        let figures = serde_json::from_str(&figures).map_err(|error| error.to_string())?;
        Ok(Run { figures, seconds, egress_mib: self.egress_mib, supervisor_mib: self.supervisor_mib })
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn start(kind: &str, world: &World, runner: &Path, scene: &Scene) -> Result<Helper, String> {
    let mut words = world.entering();
    words.extend([runner.display().to_string(), "storm-launch".to_owned(), kind.to_owned()]);
    words.push(scene.root().display().to_string());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    start_helper(words[0].as_ref(), &words[1..], scene, &scene.project(), &[], Stdio::null()).map_err(|e| e.to_string())
}

/// `escape-runner storm-launch KIND SCENE`.
pub fn launch(arguments: &[String]) -> i32 {
    let [kind, scene] = arguments else { return 2 };
    let place = Place::at(scene);
    let check = if kind == "crowd" { "crowd" } else { "rebinding" };
    let mut session = Session::of(probe_argv(&place, check));
    allowed(kind, &mut session.policy);
    let report = session.run(|_| {}, || {});
    let code = report.code;
    if fs::write(place.report(), report.to_json()).is_ok() { code } else { 2 }
}

fn allowed(kind: &str, policy: &mut Policy) {
    match kind {
        "crowd" => allow(policy, &[HOLD, ECHO, "echo.test"]),
        "rebinding-listed" => allow(policy, &["*.storm.test", PRIVATE]),
        _ => allow(policy, &["*.storm.test"]),
    }
    policy.network.queries_per_second.value = 1_000_000;
    policy.network.max_connections.value = 20_000;
    policy.network.header_timeout.value = Duration::from_secs(HEADER_SECONDS);
    policy.limits.open_files = Some(named(most_files()));
}

/// The hard limit of this process.
fn most_files() -> u64 {
    let text = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(1024)
}

/// The only child of a supervisor that is in its own process namespace.
fn egress_of(supervisor: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).ok()?;
    let is_beside = |pid: &u32| field(*pid, "NSpid").is_some_and(|pids| pids.split_whitespace().count() == beside());
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_beside)
}

/// Process namespaces that we ourselves are in.
fn beside() -> usize {
    field(std::process::id(), "NSpid").map_or(1, |pids| pids.split_whitespace().count())
}

fn peak_mib(pid: u32) -> u64 {
    let kib = field(pid, "VmHWM").and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

/// Of all its threads.
fn processor_time(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let one = |path: PathBuf| -> Option<u64> { fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok() };
    Duration::from_nanos(threads.filter_map(|thread| one(thread.path().join("schedstat"))).sum())
}

fn field(pid: u32, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
}
