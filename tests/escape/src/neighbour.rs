//! How much slower a session gets while another one attacks: `escape-runner neighbour [--json] [--limited] [--windows N]
//! [--rounds N]`. One sandbox works in small steps, alone and beside each attack in turns, so that what else the machine does
//! falls on both alike. Owns the measurement and its target; the steps and the attacks are the probe's. The same attacks
//! without limits are measured too, unless only the limited ones are asked for: they show that the figure can be missed, and
//! decide nothing.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_testkit::{Place, Scene, Session, leaks, program};
use serde_json::{Value, json};

use crate::limits::named;
use crate::raw;
use crate::row::probe_argv;

/// A neighbour may wait three times as long as on an idle machine.
const TARGET: f64 = 3.0;
const WINDOWS: usize = 7;
/// In one window.
const ROUNDS: usize = 1000;
/// Windows without limits: enough to see a difference.
const WINDOWS_WITHOUT: usize = 3;
/// An attack is at its worst after this.
const WARM_UP: Duration = Duration::from_millis(300);

/// What the neighbour does, by the name of the probe's check.
const WORK: &str = "work";

/// Attacks by the name of the probe's check.
const ATTACKS: [(&str, &str); 4] = [
    ("attack-forks", "fork bomb"),
    ("attack-memory", "memory hog"),
    ("attack-threads", "CPU hog"),
    ("attack-output", "output flood"),
];

/// 99th percentiles of windows, in microseconds: medians.
#[derive(Debug, Clone, Copy)]
struct Measured {
    idle: f64,
    loaded: f64,
}

impl Measured {
    fn ratio(self) -> f64 {
        if self.idle > 0.0 { self.loaded / self.idle } else { f64::INFINITY }
    }

    fn figures(self) -> Value {
        let rounded = |value: f64| (value * 100.0).round() / 100.0;
        json!({"idle_us": rounded(self.idle), "attacked_us": rounded(self.loaded), "ratio": rounded(self.ratio())})
    }
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "idle {:>6.0} us, attacked {:>6.0} us, ratio {:>5.2}", self.idle, self.loaded, self.ratio())
    }
}

/// Measures and prints; the last line is JSON if that is asked for. Returns whether every attack stayed below the target.
pub fn measure(arguments: &[String]) -> Result<bool, String> {
    let [json, only_limited] = ["--json", "--limited"].map(|flag| arguments.iter().any(|argument| argument == flag));
    let number = |flag: &str, default: usize| match arguments.iter().position(|argument| argument == flag) {
        Some(at) => arguments.get(at + 1).and_then(|n| n.parse().ok()).ok_or_else(|| format!("{flag} needs a number")),
        None => Ok(default),
    };
    let windows = number("--windows", WINDOWS)?;
    let rig = Rig::new(number("--rounds", ROUNDS)?)?;
    let mut figures = serde_json::Map::new();
    let mut pass = true;
    println!("99th percentile of a round, medians of {windows} windows in turns (machine at {})", load());
    for (check, name) in ATTACKS {
        let limited = rig.beside(check, Limits::On, windows)?;
        pass &= limited.ratio() <= TARGET;
        print!("{name:<13} {limited}");
        let mut figure = json!({"limited": limited.figures()});
        if !only_limited {
            let without = rig.beside(check, Limits::Off, windows.min(WINDOWS_WITHOUT))?;
            print!("   [without limits: {without}]");
            figure["without_limits"] = without.figures();
        }
        println!();
        figures.insert(name.replace(' ', "_"), figure);
    }
    rig.finish()?;
    if json {
        println!("{}", json!({"figures": figures, "targets": {"ratio": TARGET}, "pass": pass}));
    } else {
        println!("{}", if pass { "every ratio is at most 3" } else { "MISSED: a ratio is above 3" });
    }
    Ok(pass)
}

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("load {}", text.split(' ').next().unwrap_or("unknown"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limits {
    On,
    Off,
}

impl Limits {
    fn name(self) -> &'static str {
        match self {
            Limits::On => "limited",
            Limits::Off => "unlimited",
        }
    }
}

/// Two scenes: one for the session that works, one for the session that attacks.
struct Rig {
    runner: PathBuf,
    worker: Scene,
    attacker: Scene,
}

impl Rig {
    fn new(rounds: usize) -> Result<Self, String> {
        let (Some(runner), Some(probe)) = (program("escape-runner"), program("escape-probe")) else {
            return Err("escape-runner and escape-probe were not built".to_owned());
        };
        let text = |error: std::io::Error| error.to_string();
        let (worker, attacker) = (Scene::new().map_err(text)?, Scene::new().map_err(text)?);
        for scene in [&worker, &attacker] {
            fs::copy(&probe, scene.probe()).map_err(text)?;
        }
        worker.write("home/project/wanted", &rounds.to_string());
        Ok(Rig { runner, worker, attacker })
    }

    fn finish(self) -> Result<(), String> {
        for scene in [self.worker, self.attacker] {
            let left = leaks::find(&scene);
            if !left.is_empty() {
                return Err(format!("left behind: {}", left.join(", ")));
            }
            scene.remove().map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Windows alone and windows beside the attack, in turns.
    fn beside(&self, check: &str, limits: Limits, windows: usize) -> Result<Measured, String> {
        let (mut idle, mut loaded) = (Vec::new(), Vec::new());
        for _ in 0..windows {
            idle.push(self.window()?);
            let attack = self.attack(check, limits)?;
            std::thread::sleep(WARM_UP);
            let window = self.window();
            attack.end()?;
            loaded.push(window?);
        }
        Ok(Measured { idle: middle(idle), loaded: middle(loaded) })
    }

    /// The 99th percentile of one window, in microseconds.
    fn window(&self) -> Result<f64, String> {
        let status = self.command(WORK, Limits::On, &self.worker).status().map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("the neighbour did not work: {status}"));
        }
        let text = fs::read_to_string(self.worker.project().join("rounds")).map_err(|error| error.to_string())?;
        let mut rounds: Vec<f64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        rounds.sort_by(f64::total_cmp);
        let at = (rounds.len() * 99).div_ceil(100).saturating_sub(1);
        rounds.get(at).map(|nanoseconds| nanoseconds / 1000.0).ok_or_else(|| "no rounds".to_owned())
    }

    fn attack(&self, check: &str, limits: Limits) -> Result<Attack, String> {
        let stop = self.attacker.project().join("stop");
        if stop.exists() {
            fs::remove_file(&stop).map_err(|error| error.to_string())?;
        }
        let child = self.command(check, limits, &self.attacker).spawn().map_err(|error| error.to_string())?;
        Ok(Attack { child, stop })
    }

    fn command(&self, check: &str, limits: Limits, scene: &Scene) -> Command {
        let mut command = Command::new(&self.runner);
        command.args(["neighbour-launch", check, limits.name()]).arg(scene.root());
        command.current_dir(scene.project()).env_clear().env("HOME", scene.home()).env("PATH", "/usr/bin:/bin");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// An attack that begins again whenever it was ended.
struct Attack {
    child: Child,
    stop: PathBuf,
}

impl Attack {
    fn end(mut self) -> Result<(), String> {
        const PATIENCE: Duration = Duration::from_secs(30);
        fs::write(&self.stop, "").map_err(|error| error.to_string())?;
        let end = Instant::now() + PATIENCE;
        loop {
            match self.child.try_wait() {
                Ok(Some(_)) => return Ok(()),
                Ok(None) if Instant::now() < end => {}
                _ => break,
            }
            // Passed on to whatever runs at this moment; who is gone is what we wait for.
            if raw::syscall(libc::SYS_kill, [self.child.id() as usize, 15, 0, 0, 0, 0]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let killed = self.child.kill().and_then(|()| self.child.wait());
        Err(format!("an attack had to be killed ({killed:?})"))
    }
}

/// `escape-runner neighbour-launch CHECK LIMITS SCENE`: launches once for work, again and again for an attack.
pub fn launch(arguments: &[String]) -> i32 {
    let [check, limits, scene] = arguments else { return 2 };
    let place = Place::at(scene);
    let limits = if limits == Limits::On.name() { Limits::On } else { Limits::Off };
    if check == WORK {
        return session(check, Limits::On, &place);
    }
    let stop = place.project().join("stop");
    while !stop.exists() {
        session(check, limits, &place);
    }
    0
}

/// As the preset for tools limits it. Without limits processes are still counted: the machine has others to serve.
fn session(check: &str, limits: Limits, place: &Place) -> i32 {
    let mut session = Session::of(probe_argv(place, check));
    let policy = &mut session.policy;
    match limits {
        _ if check == WORK => {}
        Limits::On => {
            policy.process.max = Some(named(100));
            policy.limits.cpu_millis = Some(named(1000));
            policy.limits.memory = Some(named(memory()));
            policy.limits.output = Some(named(1 << 20));
        }
        Limits::Off => policy.process.max = Some(named(200)),
    }
    session.run(|_| {}, || {}).code
}

/// 512 MiB, or a quarter of a machine that has less than four times that.
fn memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    kilobytes.map_or(512 << 20, |kilobytes: u64| (kilobytes * 1024 / 4).min(512 << 20))
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::INFINITY)
}
