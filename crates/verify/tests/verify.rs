//! The program `sandbox-verify` on the machine that runs this: what it finds with every wall standing, that it notices each that is
//! left out, and that a report which was changed is not believed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use cofferdam_verify::report::{ControlResult, Outcome, Report, SCHEMA};

fn program() -> PathBuf {
    let named = std::env::var_os("NEXTEST_BIN_EXE_sandbox-verify");
    named.map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_sandbox-verify")), PathBuf::from)
}

/// A home below the real one, because sessions have a /tmp of their own.
struct Home(PathBuf);

impl Home {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = home.join(".cache/cofferdam-test").join(format!("verify-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a home");
        Home(path)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(words).current_dir(&self.0).env("HOME", &self.0);
        command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
        command
    }

    fn verify(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("it can be started")
    }

    /// The report, and the exit code.
    fn report(&self, words: &[&str]) -> (Report, Option<i32>) {
        let output = self.verify(&[words, &["--json"]].concat());
        let report = serde_json::from_slice(&output.stdout);
        (report.unwrap_or_else(|error| panic!("{error}: {output:?}")), output.status.code())
    }

    fn left(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.join(".cache/cofferdam-verify")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} stays: {error}", self.0.display());
        }
    }
}

fn told(report: &Report) -> String {
    let lines = report.checks.iter().filter(|check| check.result != Outcome::Contained);
    let lines = lines.map(|check| format!("{} {:?}: {:?} [{}]\n", check.id, check.result, check.why, check.evidence));
    lines.collect::<Vec<_>>().concat()
}

#[test]
fn no_wall_of_this_machine_is_open_and_each_check_has_its_control() {
    let home = Home::new();
    let (report, code) = home.report(&[]);
    println!("{:?}\n{}", report.summary, told(&report));
    assert_eq!(
        (report.summary.not_contained, report.summary.required_failed, code),
        (0, 0, Some(0)),
        "{}",
        told(&report)
    );
    assert_eq!(report.schema, SCHEMA);
    assert!(!report.posture.is_empty() && report.signature.is_some());
    for check in &report.checks {
        let is_shown = check.result != Outcome::Contained || check.control.result == ControlResult::Fell;
        let is_explained = check.result == Outcome::Contained || check.why.is_some();
        assert!(is_shown && is_explained && !check.control.what.is_empty(), "{check:?}");
    }
    // What cannot be checked is an exception: a kernel without a call, a right that this user has nowhere.
    assert!(report.summary.cannot_check * 8 <= report.summary.contained, "{}", told(&report));
    for list in ["checklist 9.3", "checklist 12.1", "checklist 12.2"] {
        let lines = report.checks.iter().filter(|check| check.group.starts_with(list));
        let held = lines.clone().filter(|check| check.result == Outcome::Contained).count();
        assert_eq!(
            (held, lines.count()),
            if list == "checklist 12.2" { (7, 7) } else { (8, 8) },
            "{list}\n{}",
            told(&report)
        );
    }
    // Emulated guests are an order of magnitude slower than the hosts that this is promised for.
    if std::env::var_os("COFFERDAM_TEST_GUEST").is_none() {
        assert!(report.summary.seconds < 60.0, "{} s", report.summary.seconds);
    }
    assert_eq!(home.left(), Vec::<PathBuf>::new());
}

/// With the walls named, these checks say that they do not hold.
fn notices(wall: &str, ids: &[&str]) {
    let home = Home::new();
    let only: Vec<&str> = ids.iter().flat_map(|id| ["--only", id]).collect();
    let (report, code) = home.report(&[&["--switch-off", wall][..], &only].concat());
    for check in &report.checks {
        assert_eq!(check.result, Outcome::NotContained, "{wall}: {check:?}");
    }
    assert_eq!((report.checks.len(), code), (ids.len(), Some(1)), "{wall}: {}", told(&report));
    assert!(report.posture.iter().any(|fact| fact.name == "switched off" && fact.value.contains(wall)), "{wall}");
    assert_eq!(home.left(), Vec::<PathBuf>::new());
}

#[test]
fn a_filter_that_is_switched_off_is_noticed() {
    notices("filter", &["C9", "B15", "C1"]);
}

#[test]
fn capabilities_that_are_kept_are_noticed() {
    notices("capabilities", &["C17"]);
}

#[test]
fn a_shared_network_is_noticed() {
    notices("network", &["G1", "G27", "B11"]);
}

#[test]
fn shared_processes_are_noticed() {
    // Where unknown paths ask, the view of files keeps the host's /proc away as well.
    notices("processes", &["V6"]);
}

#[test]
fn a_shared_view_of_files_is_noticed() {
    notices("files", &["B22", "A24", "V2", "V3", "E1", "B14", "B12"]);
}

#[test]
fn names_without_covers_are_noticed() {
    notices("covers", &["A24", "E12", "E16"]);
}

#[test]
fn an_environment_that_comes_along_is_noticed() {
    notices("environment", &["B21", "A12"]);
}

#[test]
fn limits_that_are_not_kept_are_noticed() {
    notices("limits", &["D1", "D2", "D7"]);
}

#[test]
fn kernel_files_without_covers_are_noticed() {
    notices("kernel-files", &["B1", "B5"]);
}

fn written(home: &Home, name: &str, bytes: &[u8]) -> PathBuf {
    let file = home.0.join(name);
    fs::write(&file, bytes).expect("it is written");
    file
}

#[test]
fn a_forged_report_is_refused() {
    let home = Home::new();
    let output = home.verify(&["--only", "A12", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let check = |file: &Path, more: &[&str]| home.verify(&[&["--check", &file.to_string_lossy()], more].concat());
    let good = written(&home, "good.json", &output.stdout);
    // Believed, but only a part of a run.
    let part = check(&good, &[]);
    assert_eq!(part.status.code(), Some(2), "{part:?}");
    let told = String::from_utf8_lossy(&part.stdout);
    assert!(told.contains("seconds ago") && told.contains("not a whole run: checks: only A12"), "{told}");
    let page = check(&written(&home, "report.html", b"<!doctype html>"), &[]);
    assert_eq!(page.status.code(), Some(1), "{page:?}");
    assert!(String::from_utf8_lossy(&page.stderr).contains("wanted is the JSON report"), "{page:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let forged = text.replace("\"required_failed\": 0", "\"required_failed\": 1");
    assert_ne!(forged, text);
    let forged = check(&written(&home, "forged.json", forged.as_bytes()), &[]);
    assert_eq!(forged.status.code(), Some(1), "{forged:?}");
    assert!(String::from_utf8_lossy(&forged.stderr).contains("not to be believed"), "{forged:?}");
    // Signed by the key that it names, but not by the one that the reader knows.
    let other = check(&good, &["--key", &"00".repeat(32)]);
    assert_eq!(other.status.code(), Some(1), "{other:?}");
}

#[test]
fn a_policy_that_opens_a_wall_is_what_is_verified() {
    let home = Home::new();
    let policy = written(&home, "policy.toml", b"mode = \"static\"\n[files]\nread = [\"~/.ssh\"]\n");
    let flags = ["--policy", &policy.to_string_lossy(), "--only", "B22", "--only", "V1"];
    let (report, code) = home.report(&flags);
    let results: Vec<Outcome> = report.checks.iter().map(|check| check.result).collect();
    assert_eq!(results, [Outcome::NotContained, Outcome::CannotCheck], "{}", told(&report));
    assert_eq!(code, Some(1));
    assert!(report.policy.source.contains("policy.toml"), "{:?}", report.policy);
}

#[test]
fn wrong_usage_verifies_nothing() {
    let home = Home::new();
    for words in
        [&["--only", "Z9"][..], &["--policy", "absent.toml"], &["--switch-off", "moon"], &["--check", "absent"]]
    {
        assert_eq!(home.verify(words).status.code(), Some(125), "{words:?}");
    }
    let unknown = home.verify(&["--only", "Z9"]);
    let told = String::from_utf8_lossy(&unknown.stderr);
    assert!(told.contains("no check is called `Z9`; there are ") && told.contains("B22, "), "{told}");
    assert_eq!(home.left(), Vec::<PathBuf>::new());
}

#[test]
fn a_rule_for_a_path_that_scratch_roots_lack_is_named_and_ends_no_trial() {
    let home = Home::new();
    let policy = b"[files]\nread = [\"~/no-such-directory\"]\n[network]\nsockets = [\"~/no-such-socket\"]\n";
    let policy = written(&home, "policy.toml", policy);
    let (report, code) = home.report(&["--policy", &policy.to_string_lossy(), "--only", "A12"]);
    assert_eq!((report.summary.contained, code), (1, Some(0)), "{}", told(&report));
    let named = report.posture.iter().filter(|fact| fact.name == "rules that were not tried");
    let named = named.map(|fact| fact.value.as_str()).collect::<Vec<_>>().join("\n");
    assert!(named.contains("read ~/no-such-directory") && named.contains("socket ~/no-such-socket"), "{named}");
}

#[test]
fn the_control_of_isolation_none_is_the_organisations_word() {
    let home = Home::new();
    let (report, code) = home.report(&["--only", "V12"]);
    let check = report.checks.first().expect("it was made");
    assert_eq!(
        (check.result, check.control.result, code),
        (Outcome::Contained, ControlResult::Fell, Some(0)),
        "{check:?}"
    );
    assert!(check.control.what.contains("organisation's policy allows it"), "{check:?}");
}

/// Canaries of a run, in the directories that every session has of its own.
fn canaries(run: &str) -> Vec<PathBuf> {
    let entries = ["/dev/shm", "/tmp", "/var/tmp"].into_iter().filter_map(|at| fs::read_dir(at).ok()).flatten();
    let paths = entries.flatten().map(|entry| entry.path());
    let prefix = format!("cofferdam-verify-{run}");
    paths.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))).collect()
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next() {
    let home = Home::new();
    let mut killed = home.command(&["--only", "D7", "--only", "V1"]).stdout(Stdio::null()).spawn().expect("it starts");
    let run = loop {
        let run = home.left().pop();
        let name = run.as_ref().and_then(|run| run.file_name()).map(|name| name.to_string_lossy().into_owned());
        match (run, name) {
            (Some(run), Some(name)) if !canaries(&name).is_empty() => break (run, name),
            _ if killed.try_wait().expect("it is ours").is_some() => panic!("it ended before it was killed"),
            _ => std::thread::yield_now(),
        }
    };
    killed.kill().and_then(|()| killed.wait()).expect("it is ours");
    assert!(!canaries(&run.1).is_empty() && run.0.exists());
    // Its launches end by themselves, and hold a lock until then.
    rustix::fs::flock(fs::File::open(&run.0).expect("it exists"), rustix::fs::FlockOperation::LockExclusive)
        .expect("a lock");
    assert_eq!(home.verify(&["--only", "A12"]).status.code(), Some(0));
    assert_eq!((home.left(), canaries(&run.1)), (Vec::new(), Vec::new()));
}

#[test]
fn a_launch_on_a_root_that_no_run_made_is_refused_and_writes_nothing() {
    let home = Home::new();
    let run = home.0.join(".cache/cofferdam-verify/0123456789ab");
    let root = run.join("A12-away");
    fs::create_dir_all(root.join("outside")).expect("a directory");
    fs::write(root.join("outside/canary"), "x").expect("a file");
    let errand = serde_json::json!({
        "check": "A12", "walls": "away", "switched_off": [], "run": std::process::id(), "root": root, "program": run.join("bin/sandbox-verify"),
        "token": "0123456789abcdef0123456789abcdef", "tcp": 0, "udp": 0, "process": 0, "namespaces": [],
    });
    let launched = home.verify(&["launch", &errand.to_string()]);
    assert!(!launched.status.success(), "{launched:?}");
    assert!(String::from_utf8_lossy(&launched.stderr).contains("scratch roots only"), "{launched:?}");
    assert!(!root.join("outcome.json").exists());
}
