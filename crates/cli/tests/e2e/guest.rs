//! What holds only in a guest of `cargo xtask vm`: the command on a machine that lacks something, and in a desktop's
//! session. Elsewhere each test says that it was skipped; in its guest it may not be.

use std::process::Command;

use crate::support::{Place, Ran, binary, finish, is_root};

/// A place, if this is that guest; else says why the test is skipped.
fn place_in(guest: &str, what: &str) -> Option<Place> {
    if std::env::var("COFFERDAM_TEST_GUEST").is_ok_and(|name| name == guest) {
        return Some(Place::new());
    }
    println!("skipped: not in the guest {what}");
    None
}

fn without_user_namespaces() -> Option<Place> {
    place_in("no-userns", "without user namespaces")
}

fn without_fuse() -> Option<Place> {
    place_in("no-fuse", "without /dev/fuse")
}

fn with_systemd() -> Option<Place> {
    place_in("systemd", "with systemd")
}

/// One check of `sandbox doctor --json`, and the exit code.
fn doctor(place: &Place, id: &str) -> (serde_json::Value, i32) {
    let ran = place.sandbox(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    let checks = report["checks"].as_array().expect("a list of checks");
    (checks.iter().find(|check| check["id"] == id).expect("the check").clone(), ran.code)
}

#[test]
fn guest_without_user_namespaces_refuses_and_says_how_to_switch_them_on() {
    let Some(place) = without_user_namespaces() else { return };
    for flags in [&[][..], &["--isolation", "process"]] {
        let ran = place.run(flags, &["touch", "ran"]).code(125);
        ran.says(&["error: ", "hint: ", "sysctl -w user.max_user_namespaces="]);
        assert!(!place.exists("ran"), "it ran without a sandbox");
    }
}

#[test]
fn guest_without_user_namespaces_is_left_as_it_was() {
    let Some(place) = without_user_namespaces() else { return };
    place.write("kept", "as it was");
    place.host("git init -q . 2>/dev/null; ls -A >../before").ok();
    place.run(&[], &["true"]).code(125);
    place.host("ls -A | diff ../before -").ok();
    assert!(!place.exists("home:.local/state/cofferdam/sessions"), "a session directory stays");
}

#[test]
fn guest_without_user_namespaces_fails_doctor_with_the_setting() {
    let Some(place) = without_user_namespaces() else { return };
    let (check, code) = doctor(&place, "user-namespaces");
    assert_eq!((check["status"].as_str(), code), (Some("fail"), 1), "{check}");
    let remedy = check["remedy"].as_str().expect("a remedy");
    assert!(remedy.contains("sysctl -w user.max_user_namespaces="), "{remedy}");
    let text = place.sandbox(&["doctor"]).out;
    assert!(text.contains("FAIL  user-namespaces"), "{text}");
}

#[test]
fn guest_without_fuse_runs_static_mode() {
    let Some(place) = without_fuse() else { return };
    assert!(!std::path::Path::new("/dev/fuse").exists(), "the guest is not what it claims");
    assert_eq!(place.inside("echo made >made; cat made; ls /dev/fuse 2>/dev/null").code, 2);
    assert_eq!(place.read("made").as_deref(), Some("made\n"));
}

#[test]
fn guest_without_fuse_is_told_the_device_and_the_remedy() {
    let Some(place) = without_fuse() else { return };
    let (check, code) = doctor(&place, "fuse");
    assert_eq!((check["status"].as_str(), code), (Some("warn"), 0), "{check}");
    let measured = check["measured"].as_str().expect("a measurement");
    assert!(measured.contains("/dev/fuse") && measured.contains("No such file"), "{measured}");
    let remedy = check["remedy"].as_str().expect("a remedy");
    assert!(remedy.contains("modprobe fuse"), "{remedy}");
}

/// `command` in a scope that the user's own systemd makes and delegates.
fn in_a_scope(place: &Place, command: &[&str]) -> Ran {
    let mut scope = place.command("systemd-run");
    for name in ["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"] {
        scope.env(name, std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set in a session")));
    }
    scope.args(["--user", "--scope", "--quiet", "--property=Delegate=yes", "--"]).args(command);
    finish(&mut scope, b"")
}

#[test]
fn guest_systemd_delegates_a_scope_that_doctor_accepts() {
    let Some(place) = with_systemd() else { return };
    let sandbox = binary().display().to_string();
    let text = in_a_scope(&place, &[&sandbox, "doctor"]).ok();
    let line = text.lines().find(|line| line.contains(" cgroup-v2 ")).expect("a line about cgroups");
    assert!(line.starts_with("ok ") && line.contains("memory"), "{line}");
}

#[test]
fn guest_systemd_runs_the_command_inside_a_scope() {
    let Some(place) = with_systemd() else { return };
    let sandbox = binary().display().to_string();
    assert_eq!(in_a_scope(&place, &[&sandbox, "run", "--", "echo", "inside"]).ok(), "inside\n");
}

#[test]
fn guest_systemd_keeps_the_session_bus_and_the_manager_out_of_reach() {
    let Some(place) = with_systemd() else { return };
    let bus = std::env::var("XDG_RUNTIME_DIR").expect("a session has one") + "/bus";
    assert!(std::path::Path::new(&bus).exists(), "the control: outside the bus is there");
    let script = format!("test ! -e {bus} && ! systemd-run --user --scope --quiet touch escaped 2>/dev/null");
    place.inside(&script).ok();
    assert!(!place.exists("escaped"));
}

/// Only root may set quotas, and the disk of these guests keeps them.
#[test]
fn guest_root_overlays_have_a_hard_limit_by_project_quota() {
    let guest = std::env::var("COFFERDAM_TEST_GUEST").unwrap_or_default();
    let disk = std::env::var("COFFERDAM_TEST_DISK").unwrap_or_default();
    if !is_root() || !["6.1", "6.12"].contains(&guest.as_str()) {
        println!("skipped: not root in a guest with a disk that keeps quotas");
        return;
    }
    let place = Place::new();
    place.write("home:.config/cofferdam/config.toml", "[limits]\nstorage = \"16M\"\n");
    place.write("home:data/old", "old");
    let state = format!("{disk}/state-{}", std::process::id());
    let data = place.path("home:data").display().to_string();
    let script = format!("head -c 12M /dev/zero >{data}/a && head -c 12M /dev/zero >{data}/b");
    let mut command = place.command(binary());
    command.env("XDG_STATE_HOME", &state).args(["run", "--overlay", &data, "--", "bash", "-c", &script]);
    let ran = finish(&mut command, b"");
    assert_eq!(ran.code, 1, "{}", ran.err);
    ran.says(&["Disk quota exceeded"]);
    place.host(&format!("rm -rf '{state}'")).ok();
}

/// Takes loaded profiles away again.
struct Profiles;

const APPARMOR: &str = "/sys/kernel/security/apparmor";
const PROFILES: [&str; 2] = ["cofferdam", "cofferdam-test-confined"];

impl Profiles {
    fn load(name: &str) {
        let profile = std::fs::read(format!("/cofferdam-guest/apparmor/{name}")).expect("the rig brings it");
        std::fs::write(format!("{APPARMOR}/.load"), profile).expect("the kernel takes it");
    }
}

impl Drop for Profiles {
    fn drop(&mut self) {
        // One that was not loaded cannot be removed.
        for profile in PROFILES {
            std::fs::write(format!("{APPARMOR}/.remove"), profile).unwrap_or_default();
        }
    }
}

/// What the test user's shell says, whose profile allows no user namespace. The programs lie where the shipped profile names
/// them, in a mount namespace of the shell's.
fn confined_shell(script: &str) -> Ran {
    let sandbox = binary();
    let built = sandbox.parent().expect("a directory").display();
    let programs = format!(
        "mount -t tmpfs tmpfs /usr/local/bin && cd /usr/local/bin && for program in sandbox sandbox-egress; do \
         if [ -e {built}/$program ]; then touch $program && mount --bind {built}/$program $program; fi; done"
    );
    let confined =
        format!("echo exec cofferdam-test-confined > /proc/self/attr/apparmor/exec && exec sh -c \"{script}\"");
    let user = format!(
        "exec runuser -u cofferdam-test -- env -i HOME=/home/cofferdam-test TERM=xterm PATH=/usr/local/bin:/usr/bin:/bin \
         sh -c '{confined}'"
    );
    let script = format!("{programs}; cd /home/cofferdam-test && {user}");
    finish(Command::new("unshare").args(["--mount", "sh", "-c", &script]), b"")
}

#[test]
fn guest_root_a_confined_shell_starts_sessions_with_the_shipped_profile_alone() {
    if !is_root() || std::env::var("COFFERDAM_TEST_GUEST").as_deref() != Ok("6.12") {
        println!("skipped: not root in a guest with AppArmor 4");
        return;
    }
    let place = Place::new();
    if !std::path::Path::new(APPARMOR).exists() {
        place.host("mount -t securityfs securityfs /sys/kernel/security").ok();
    }
    let _profiles = Profiles;
    Profiles::load("confined");
    let control = confined_shell("cat /proc/self/attr/apparmor/current; unshare --user true");
    assert!(control.out.starts_with("cofferdam-test-confined (enforce)"), "{}{}", control.out, control.err);
    assert_ne!(control.code, 0, "the control: this shell may make no user namespace");
    let refused = confined_shell("sandbox run -- echo started");
    assert_eq!((refused.code, refused.out.as_str()), (125, ""), "{}", refused.err);
    refused.says(&["cofferdam-test-confined"]);
    Profiles::load("cofferdam");
    let ran = confined_shell("sandbox run -- echo started");
    assert_eq!((ran.code, ran.out.as_str()), (0, "started\n"), "{}", ran.err);
}
