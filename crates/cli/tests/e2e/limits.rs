//! Limits as a user meets them: what ends a run, what it says then, what it used. The same promises hold with cgroups and
//! without; who keeps them differs, and `sandbox explain` says so.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::support::{Place, Ran, is_root};

/// A place whose user has these limits in the own policy.
fn limited(policy: &str) -> Place {
    let place = Place::new();
    place.write("home:.config/cofferdam/config.toml", policy);
    place
}

/// Needs as much memory as it reads: it waits for the end of a line that never comes.
const HOG: &str = "head -c 400M /dev/zero | tail";

impl Place {
    fn report(&self, script: &str) -> (Ran, Value) {
        let ran = self.run(&["--json"], &["bash", "-c", script]);
        let line = ran.err.lines().rfind(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{}", ran.err));
        let report = serde_json::from_str(line).expect("it is JSON");
        (ran, report)
    }

    fn events(&self) -> Vec<Value> {
        let log = self.read("home:.local/state/cofferdam/audit/00000001.ndjson").unwrap_or_default();
        log.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
    }

    /// Whether the session has a cgroup with this controller, as the plan says.
    fn keeps_by_cgroup(&self, controller: &str) -> bool {
        let plan: Value = serde_json::from_str(&self.sandbox(&["explain", "--json", "--", "true"]).ok()).expect("JSON");
        let controllers = &plan["plan"]["limits"]["cgroup"]["controllers"];
        controllers.as_array().is_some_and(|list| list.iter().any(|name| name == controller))
    }
}

#[test]
fn what_needs_too_much_memory_is_ended_and_told_so() {
    let place = limited("[limits]\nmemory = \"64M\"\n");
    let (ran, report) = place.report(HOG);
    assert_eq!(report["end"], "out-of-memory", "{}", ran.err);
    let ran = ran.code(137).says(&["ended: it needed more than 64 MiB of memory", "config.toml:2", "--memory"]);
    assert_eq!(ran.err.matches("sandbox: ended").count(), 1, "{}", ran.err);
    assert!(
        place
            .events()
            .iter()
            .any(|event| event["event"] == "RESOURCE_LIMIT_EXCEEDED" && event["details"]["limit"] == "memory")
    );
}

#[test]
fn what_needs_less_memory_runs() {
    limited("[limits]\nmemory = \"256M\"\n").inside("head -c 64M /dev/zero | tail | wc -c").ok();
}

/// Forked children share pages with their parent until they write to them.
#[test]
fn shared_memory_counts_once() {
    let Some(_) = Place::with(&["python3"]) else { return };
    let place = limited("[limits]\nmemory = \"200M\"\n");
    let script = "import os, time\nblock = bytearray(100 << 20)\nfor i in range(6):\n  if os.fork() == 0:\n    time.sleep(1)\n    os._exit(0)\nfor i in range(6): os.wait()\n";
    place.run(&[], &["python3", "-c", script]).code(0);
}

#[test]
fn a_fork_bomb_ends_its_session_and_nothing_else() {
    let place = limited("[process]\nmax = 60\n");
    let neighbour = Place::new();
    let mut beside = neighbour.start(&[], "echo ready; read line; echo still here");
    let started = Instant::now();
    // Every process starts two that do the same, for as long as it may.
    let (ran, report) = place.report("bomb() { while :; do bomb & done 2>/dev/null; }; bomb");
    assert_eq!(report["end"], "process-limit", "{}", ran.err);
    assert!(started.elapsed() < Duration::from_mins(1));
    ran.code(124).says(&["ended: it stood at its limit of 60 processes", "--max-processes"]);
    beside.tell("go\n");
    assert_eq!(beside.end(), (0, "still here\n".to_owned()));
}

/// One after the other, none of them for long: no single process reaches the limit.
#[test]
fn cpu_time_is_that_of_all_processes_together() {
    let place = limited("[limits]\ncpu = \"1s\"\n");
    let (ran, report) = place.report("for i in $(seq 200); do timeout 0.1 sh -c 'while :; do :; done'; done");
    assert_eq!(report["end"], "cpu-time-limit", "{}", ran.err);
    ran.code(124).says(&["ended after 1 s of CPU time", "--cpu-time"]);
}

#[test]
fn a_single_process_is_ended_by_the_same_limit_with_the_same_words() {
    let place = limited("[limits]\ncpu = \"1s\"\n");
    place.inside("while :; do :; done").code(124).says(&["ended after 1 s of CPU time"]);
}

#[test]
fn cpus_bound_what_runs_at_once() {
    let place = limited("[limits]\ncpus = 1\n");
    let script = "for i in 1 2 3 4; do timeout 1 sh -c 'while :; do :; done' & done; wait";
    let (_, report) = place.report(script);
    let usage = &report["usage"];
    let number = |name: &str| usage[name].as_u64().unwrap_or_else(|| panic!("{name}: {usage}"));
    let cpu = number("cpu_user_micros") + number("cpu_system_micros");
    assert!(cpu * 10 <= number("wall_micros") * 12, "{usage}");
}

#[test]
fn processes_cannot_take_more_cpus_than_they_were_given() {
    let Some(_) = Place::with(&["taskset"]) else { return };
    let place = limited("[limits]\ncpu_set = \"0\"\n");
    assert_eq!(place.inside("taskset -cp 0-1 $$ >/dev/null 2>&1; nproc").ok(), "1\n");
}

/// A file without a name is in no directory, and still takes room.
#[test]
fn what_fills_a_disk_is_ended() {
    let place = limited("[limits]\nstorage = \"64M\"\n");
    for script in [
        "head -c 1G /dev/zero > big; sleep 5",
        "exec 3> gone; rm gone; head -c 1G /dev/zero >&3; sleep 5",
        "fallocate -l 1G reserved; sleep 5",
    ] {
        let (ran, report) = place.report(script);
        assert_eq!(report["end"], "storage-limit", "{script}: {}", ran.err);
        ran.code(124).says(&["--storage"]);
        place.host("rm -f big reserved").ok();
    }
}

#[test]
fn private_directories_have_a_size_and_a_number_of_files() {
    let place = limited("[limits]\ntmp_size = \"4M\"\ntmp_inodes = 100\n");
    for directory in ["/tmp", "/var/tmp", "/dev/shm"] {
        let full = place.inside(&format!("head -c 8M /dev/zero > {directory}/big"));
        full.code(1).says(&["No space left on device"]);
        let many = place.inside(&format!("for i in $(seq 200); do : > {directory}/$i || exit 9; done"));
        many.code(9).says(&["No space left on device"]);
    }
}

#[test]
fn a_file_larger_than_allowed_is_explained() {
    let place = limited("[limits]\nfile_size = \"1M\"\n");
    place.inside("exec head -c 3M /dev/zero > big").says(&["a file may not be larger than 1 MiB"]);
}

#[test]
fn the_end_and_what_was_used_are_told() {
    let place = Place::new();
    let (_, report) = place
        .report("i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; head -c 32M /dev/zero | tail >/dev/null; exit 3");
    assert_eq!(report["end"]["exited"]["code"], 3);
    let usage = &report["usage"];
    let number = |name: &str| usage[name].as_u64().unwrap_or_else(|| panic!("{name}: {usage}"));
    assert!(number("cpu_user_micros") > 20_000, "{usage}");
    assert!(number("memory_peak") >= 32 << 20, "{usage}");
    assert!(number("wall_micros") >= number("cpu_user_micros") / 4, "{usage}");
    let (_, report) = place.report("kill -TERM $$");
    assert_eq!(report["end"]["signalled"]["signal"], 15);
}

/// A command that fails by itself is not commented on.
#[test]
fn no_limit_is_mentioned_where_none_was_met() {
    let place = limited("[limits]\nmemory = \"256M\"\ncpu = \"1m\"\ntimeout = \"1m\"\n[process]\nmax = 500\n");
    let ran = place.inside("echo out; echo err >&2; exit 7").code(7);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("out\n", "err\n"));
}

#[test]
fn a_limit_that_comes_near_is_logged_once() {
    let place = limited("[limits]\ntimeout = \"2s\"\n");
    place.inside("sleep 10").code(124).says(&["ended after 2 s", "--timeout"]);
    let events = place.events();
    let count = |name: &str| {
        events.iter().filter(|event| event["event"] == name && event["details"]["limit"] == "timeout").count()
    };
    assert_eq!((count("RESOURCE_LIMIT_APPROACHED"), count("RESOURCE_LIMIT_EXCEEDED")), (1, 1), "{events:?}");
}

/// The supervisor cannot slow a disk down without cgroups, and a limit that is asked for is never ignored.
#[test]
fn a_limit_that_nothing_can_keep_is_refused() {
    let place = limited("[limits.io]\nwrite = \"1M\"\n");
    if Place::new().keeps_by_cgroup("memory") {
        println!("skipped: cgroups are delegated here; the plan's tests show the refusal");
        return;
    }
    place.inside("true").code(125).says(&[
        "limits.io.write",
        "cannot be enforced here",
        "config.toml:2",
        "sandbox doctor",
    ]);
}

#[test]
fn root_cannot_be_given_more_room_by_its_own_rlimits() {
    if !is_root() {
        println!("skipped: only root is exempt from RLIMIT_NPROC");
        return;
    }
    let place = limited("[process]\nmax = 40\n");
    place
        .inside("for i in $(seq 100); do sleep 20 & done 2>/dev/null; wait")
        .code(124)
        .says(&["its limit of 40 processes"]);
}

/// A directory on a disk of its own, where the machine has one to spare.
fn spare_disk() -> Option<String> {
    let disk = std::env::var("COFFERDAM_TEST_DISK").ok();
    if disk.is_none() {
        println!("skipped: no disk of its own (COFFERDAM_TEST_DISK)");
    }
    disk
}

#[test]
fn a_disk_is_slowed_down_to_what_was_allowed() {
    let Some(disk) = spare_disk() else { return };
    let write = |place: &Place, count: u32| {
        let started = Instant::now();
        let file = format!("{disk}/io-{}", std::process::id());
        let dd = format!("dd if=/dev/zero of={file} bs=64K count={count} oflag=direct 2>&1; rm {file}");
        place.run(&["--rw", &disk], &["bash", "-c", &dd]).ok();
        started.elapsed()
    };
    let bandwidth = limited("[limits.io]\nwrite = \"512K\"\n");
    let operations = limited("[limits.io]\nwrite_ops = 10\n");
    if !bandwidth.keeps_by_cgroup("io") {
        println!("skipped: the controller `io` is not delegated");
        return;
    }
    let unlimited = Place::new();
    let free = write(&unlimited, 40).min(write(&unlimited, 40));
    let (slow, few) = (write(&bandwidth, 40), write(&operations, 40));
    // The kernel lets the first tenths of a second's worth through at once.
    assert!(slow >= Duration::from_secs(4), "2.5 MiB at 512 KiB/s took {slow:?}");
    assert!(few >= Duration::from_secs(3), "40 writes at 10/s took {few:?}");
    assert!(free * 3 < slow * 2, "without a limit it took {free:?} and with one {slow:?}: that shows nothing");
}

/// What is told at the end is not worth another exit code.
#[test]
fn a_reader_of_stderr_that_went_away_changes_nothing() {
    let place = Place::new();
    let sandbox = super::support::binary().display().to_string();
    let script =
        format!("{{ '{sandbox}' run --json -- sh -c 'exit 3'; echo $? >code; }} 2>&1 >/dev/null | true; cat code");
    assert_eq!(place.host(&script).ok(), "3\n");
}
