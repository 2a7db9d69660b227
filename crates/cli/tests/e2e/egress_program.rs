//! The second program, which `sandbox` starts from its own directory: where it is missing or of another build, that is told
//! before the command runs, and sessions without a way out do not need it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use crate::support::{Place, Ran, binary, finish};

/// A copy of the command alone in a directory, which variables and PATH lead away from.
fn alone(place: &Place) -> PathBuf {
    let directory = place.path("home:bin");
    fs::create_dir(&directory).expect("a directory");
    let copy = directory.join("sandbox");
    fs::copy(binary(), &copy).expect("a copy");
    copy
}

fn run(place: &Place, sandbox: &PathBuf, flags: &[&str]) -> Ran {
    let mut command = place.command(sandbox);
    // Where the right program lies, but not the directory of the command.
    let right = binary().parent().map(PathBuf::from).expect("a directory");
    command.env("PATH", format!("{}:/usr/bin:/bin", right.display()));
    command.arg("run").args(flags).args(["--mode", "static", "--", "/bin/sh", "-c", "touch made"]);
    finish(&mut command, b"")
}

#[test]
fn without_the_second_program_nothing_runs_that_could_reach_a_host() {
    let place = Place::new();
    let sandbox = alone(&place);
    let ran = run(&place, &sandbox, &["--allow-host", "allowed.test"]).code(125);
    ran.says(&["cannot execute", "/bin/sandbox-egress", "No such file", "hint: install `sandbox-egress`"]);
    assert!(!place.exists("made"));
    run(&place, &sandbox, &["--network", "none"]).ok();
    assert!(place.exists("made"));
    let doctor = finish(place.command(&sandbox).arg("doctor"), b"");
    assert!(doctor.out.contains("FAIL  egress program") && doctor.out.contains("sandbox-egress"), "{}", doctor.out);
}

#[test]
fn a_second_program_of_another_version_is_told_before_the_command_runs() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let sandbox = alone(&place);
    let other = sandbox.with_file_name("sandbox-egress");
    let script = "#!/usr/bin/python3\nimport socket\nlink = socket.socket(fileno=0)\n\
                  link.send(b'{\"say\":\"ready\",\"version\":\"0.0.1/0\"}')\nlink.recv(1)\n";
    fs::write(&other, script).expect("it is written");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).expect("it can be executed");
    let ran = run(&place, &sandbox, &["--allow-host", "allowed.test"]).code(125);
    ran.says(&["is of another version: it says 0.0.1/0", "of one build together"]);
    assert!(!place.exists("made"));
}

/// As in a directory of downloads that every user can write to.
#[test]
fn a_second_program_of_another_user_is_not_executed() {
    const OTHER: u32 = 65533;
    let place = Place::new();
    let sandbox = alone(&place);
    let other = sandbox.with_file_name("sandbox-egress");
    let mark = place.path("home:executed");
    fs::write(&other, format!("#!/bin/sh\necho > {}\n", mark.display())).expect("it is written");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o757)).expect("ours");
    run(&place, &sandbox, &["--allow-host", "allowed.test"]).code(125).says(&["other users can write to it"]);
    if rustix::process::getuid().is_root() {
        fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).expect("ours");
        std::os::unix::fs::chown(&other, Some(OTHER), None).expect("root can");
        run(&place, &sandbox, &["--allow-host", "allowed.test"]).code(125).says(&["belongs to another user"]);
        let doctor = finish(place.command(&sandbox).arg("doctor"), b"");
        assert!(doctor.out.contains("FAIL  egress program"), "{}", doctor.out);
    }
    assert!(!mark.exists() && !place.exists("made"));
}

#[test]
fn a_second_program_that_ends_at_once_is_told_before_the_command_runs() {
    let place = Place::new();
    let sandbox = alone(&place);
    let other = sandbox.with_file_name("sandbox-egress");
    fs::copy("/bin/true", &other).expect("a copy");
    run(&place, &sandbox, &["--allow-host", "allowed.test"]).code(125).says(&[
        "it ended without a word",
        "/bin/sandbox-egress",
        "of one build together",
    ]);
    let doctor = finish(place.command(&sandbox).arg("doctor"), b"");
    assert!(doctor.out.contains("FAIL  egress program"), "{}", doctor.out);
    fs::write(&other, "no program").expect("it is written");
    run(&place, &sandbox, &["--allow-host", "allowed.test"]).code(125).says(&["cannot execute", "sandbox-egress"]);
    assert!(!place.exists("made"));
}
