//! The life of a session's egress process, from its start to its end: what it carried is delivered and recorded, and
//! whichever process ends, nothing stays and nothing opens. Each test has a world of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_testkit::world::{Answer, lacks};
use cofferdam_testkit::{Scene, World, program};
use serde_json::Value;

const GOOD: &str = "93.184.216.34";
const WEB: &str = "93.184.216.34:8080";
const PATIENCE: Duration = Duration::from_secs(20);

struct Stage {
    world: World,
    scene: Scene,
    sandbox: PathBuf,
}

/// None where this machine has no such world.
fn stage() -> Option<Stage> {
    if let Some(reason) = lacks(&["unshare", "nsenter", "ip", "setpriv", "bash"]) {
        println!("skipped: {reason}");
        return None;
    }
    let sandbox = program("sandbox").expect("`sandbox` is built");
    let world = World::start().expect("a world");
    world.dns().name("good.test", Answer::addresses([GOOD]));
    world.http(WEB);
    let scene = Scene::new().expect("a scene");
    scene.write("home/.config/cofferdam/config.toml", "[network]\nresolvers = [\"93.184.216.1:53\"]\n");
    Some(Stage { world, scene, sandbox })
}

impl Stage {
    /// `sandbox run --allow-host HOST -- bash -c SCRIPT` in the world.
    fn sandbox(&self, host: &str, script: &str) -> Command {
        let mut command = self.world.command(&self.sandbox);
        command.args(["run", "--mode", "static", "--allow-host", host, "--", "bash", "-c", script]);
        command.current_dir(self.scene.project()).env_clear();
        command.env("HOME", self.scene.home()).env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Records of connections with this outcome.
    fn records(&self, outcome: &str) -> Vec<Value> {
        let mut texts = Vec::new();
        read_below(&self.scene.home().join(".local/state"), &mut texts);
        let lines = texts.iter().flat_map(|text| text.lines());
        let records =
            lines.filter_map(|line| serde_json::from_str::<Value>(line).ok()).filter_map(|record| found(&record));
        records.filter(|details| details["outcome"] == outcome && details.get("connections").is_some()).collect()
    }

    fn wait_for(&self, name: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.scene.project().join(name).exists() {
            assert!(Instant::now() < end, "`{name}` did not come");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The details of a record, wherever the record keeps them.
fn found(record: &Value) -> Option<Value> {
    match record {
        Value::Object(fields) if fields.contains_key("outcome") => Some(record.clone()),
        Value::Object(fields) => fields.values().find_map(found),
        _ => None,
    }
}

fn read_below(directory: &Path, texts: &mut Vec<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            read_below(&entry.path(), texts);
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            texts.push(text);
        }
    }
}

/// The child that is in the supervisor's own process namespace.
fn egress_of(supervisor: &Child) -> u32 {
    let id = supervisor.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let pids = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().find(|line| line.starts_with("NSpid")).map_or(0, |line| line.split_whitespace().count())
    };
    let own = pids(id);
    let found = children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(|pid| pids(*pid) == own);
    found.expect("an egress process")
}

fn kill(pid: u32) {
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// What is behind each descriptor of a process; none where that is not shown.
fn descriptors(pid: u32) -> Option<Vec<String>> {
    let directory = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let links = directory.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    Some(links.map(|link| link.to_string_lossy().into_owned()).collect())
}

fn is_expected(descriptor: &String) -> bool {
    let kinds = ["socket:", "anon_inode:[eventpoll]", "anon_inode:[eventfd]"];
    let tables = ["/net/fib_trie", "/net/if_inet6"];
    descriptor == "/dev/null"
        || kinds.iter().any(|kind| descriptor.starts_with(kind))
        || tables.iter().any(|table| descriptor.ends_with(table))
}

#[test]
fn the_egress_process_has_its_sockets_the_tables_of_addresses_and_nothing_else() {
    let Some(stage) = stage() else { return };
    let mut child = stage.sandbox("good.test:8080", "touch ready; sleep 600").spawn().expect("it starts");
    stage.wait_for("ready");
    let egress = egress_of(&child);
    let read = |name: &str| fs::read_to_string(format!("/proc/{egress}/{name}"));
    let status = || read("status").expect("it runs");
    // It has its rules when the command starts, and gives the rest up a moment later.
    let end = Instant::now() + PATIENCE;
    while !status().contains("NoNewPrivs:\t1") {
        assert!(Instant::now() < end, "it does not serve:\n{}", status());
        std::thread::sleep(Duration::from_millis(5));
    }
    match descriptors(egress) {
        Some(all) => {
            assert!(all.iter().all(is_expected), "{all:?}");
            assert_eq!(all.iter().filter(|name| *name == "/dev/null").count(), 3, "{all:?}");
            assert_eq!(read("environ").ok().as_deref(), Some(""));
        }
        // The kernel shows them to root alone: the process cannot be traced.
        None => assert!(!is_root() && read("environ").is_err()),
    }
    assert_eq!(read("comm").ok().as_deref(), Some("sandbox-egress\n"));
    let blocked = status().lines().find_map(|line| line.strip_prefix("SigBlk:\t").map(str::to_owned));
    let blocked = blocked.and_then(|mask| u64::from_str_radix(&mask, 16).ok()).expect("a mask");
    for signal in [1, 2, 3, 15, 20] {
        assert!(blocked & (1 << (signal - 1)) != 0, "signal {signal} of a terminal: {blocked:x}");
    }
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
}

/// A program that speaks and is gone, as loggers do.
#[test]
fn what_a_program_sent_last_arrives_and_is_recorded() {
    let Some(stage) = stage() else { return };
    let head = "POST /sink HTTP/1.1\\r\\nHost: good.test:8080\\r\\nContent-Length: 200000\\r\\n\\r\\n";
    let rounds = 10;
    for _ in 0..rounds {
        let script = format!("printf '{head}%0200000d' 0 > /dev/tcp/good.test/8080");
        let output = stage.sandbox("good.test:8080", &script).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
    }
    let requests = stage.world.until(rounds, |world| world.requests(WEB));
    assert!(requests.iter().all(|request| request.body_bytes == 200_000), "{requests:?}");
    let records = stage.records("allowed");
    let sum = |name: &str| records.iter().filter_map(|record| record[name].as_u64()).sum::<u64>();
    assert_eq!(sum("connections"), rounds as u64);
    assert!(sum("up") >= 200_000 * rounds as u64, "{} bytes are recorded", sum("up"));
}

/// A server that never closes does not keep the session, and what it was told is recorded.
#[test]
fn bytes_of_connections_that_are_open_at_the_end_are_recorded() {
    let Some(stage) = stage() else { return };
    stage.world.keeper("93.184.216.34:9000");
    let script = "exec 3<>/dev/tcp/good.test/9000; read -n1 -u3 greeting; printf %05000d 0 >&3";
    let began = Instant::now();
    let output = stage.sandbox("good.test:9000", script).output().expect("it runs");
    assert!(output.status.success() && began.elapsed() < PATIENCE, "{output:?}");
    let records = stage.records("allowed");
    let sum = |name: &str| records.iter().filter_map(|record| record[name].as_u64()).sum::<u64>();
    assert_eq!([sum("connections"), sum("up"), sum("down")], [1, 5000, 1], "{records:?}");
}

#[test]
fn without_its_egress_process_a_session_reaches_nothing_and_says_so() {
    let Some(stage) = stage() else { return };
    let script = "touch ready; until test -e go; do sleep 0.02; done; \
                  exec 3<>/dev/tcp/good.test/8080 && printf 'GET / HTTP/1.0\\r\\nHost: good.test:8080\\r\\n\\r\\n' >&3 && cat <&3";
    let mut child =
        stage.sandbox("good.test:8080", &format!("{script}; exec 3<>/dev/tcp/93.184.216.34/8080 && cat <&3")).spawn();
    let child = child.as_mut().expect("it starts");
    stage.wait_for("ready");
    let egress = egress_of(child);
    kill(egress);
    let end = Instant::now() + PATIENCE;
    while is_alive(egress) {
        assert!(Instant::now() < end, "the egress process stays");
        std::thread::sleep(Duration::from_millis(5));
    }
    stage.scene.write(stage.scene.project().join("go"), "");
    let end = Instant::now() + PATIENCE;
    while matches!(child.try_wait(), Ok(None)) {
        assert!(Instant::now() < end, "the session hangs");
        std::thread::sleep(Duration::from_millis(10));
    }
    let read = |pipe: &mut dyn std::io::Read| {
        let mut text = String::new();
        pipe.read_to_string(&mut text).expect("text");
        text
    };
    let (said, warned) = (child.stdout.take().map(|mut p| read(&mut p)), child.stderr.take().map(|mut p| read(&mut p)));
    assert_eq!(said.as_deref(), Some(""));
    assert_eq!(stage.world.requests(WEB).len(), 0);
    let warned = warned.unwrap_or_default();
    assert!(warned.contains("the process that carries connections ended"), "{warned}");
}

#[test]
fn the_egress_process_ends_with_a_killed_supervisor() {
    let Some(stage) = stage() else { return };
    let mut child = stage.sandbox("good.test:8080", "touch ready; sleep 600").spawn().expect("it starts");
    stage.wait_for("ready");
    let egress = egress_of(&child);
    assert!(is_alive(egress));
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
    let end = Instant::now() + Duration::from_secs(5);
    while is_alive(egress) {
        assert!(Instant::now() < end, "the egress process lives on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_flood_of_refused_connections_is_counted_and_does_not_fill_the_log() {
    let Some(stage) = stage() else { return };
    // Each waits for its reset: what the egress process has not looked at when the session ends was never refused either.
    let script = "for a in {1..12}; do for b in {1..100}; do read -t 60 -u 3 3<>/dev/tcp/93.185.$a.$b/8080; done; done 2>/dev/null";
    let output = stage.sandbox("good.test:8080", script).output().expect("it runs");
    assert!(output.status.code().is_some(), "{output:?}");
    let records = stage.records("denied");
    let sum = records.iter().filter_map(|record| record["connections"].as_u64()).sum::<u64>();
    assert_eq!(sum, 1200);
    let named = records.iter().filter(|record| record["host"] != "(others)").count();
    assert!((50..600).contains(&named), "{named} records");
}
