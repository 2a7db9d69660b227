//! `sandbox verify` becomes the program beside the command, as a caller sees it: told where it is missing or another user's, and
//! given every word. What it verifies is tested with it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use crate::support::{Place, binary, finish, is_root};

/// A copy of the command in a directory of its own.
fn alone(place: &Place) -> PathBuf {
    let directory = place.path("home:bin");
    fs::create_dir(&directory).expect("a directory");
    let copy = directory.join("sandbox");
    fs::copy(binary(), &copy).expect("a copy");
    copy
}

#[test]
fn verify_without_its_program_says_what_to_install() {
    let place = Place::new();
    let sandbox = alone(&place);
    let ran = finish(place.command(&sandbox).arg("verify"), b"").code(125);
    ran.says(&["cannot execute", "/bin/sandbox-verify", "hint: install `sandbox-verify`"]);
    let doctor = finish(place.command(&sandbox).arg("doctor"), b"");
    assert!(doctor.out.contains("warn  verify program") && doctor.out.contains("sandbox-verify"), "{}", doctor.out);
}

#[test]
fn verify_hands_every_word_to_the_program_beside_it() {
    let place = Place::new();
    let sandbox = alone(&place);
    let beside = sandbox.with_file_name("sandbox-verify");
    fs::write(&beside, "#!/bin/sh\nfor word; do echo \"<$word>\"; done\nexit 7\n").expect("it is written");
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o755)).expect("it can be executed");
    let words = ["verify", "--json", "--policy", "a b", "--help"];
    let ran = finish(place.command(&sandbox).args(words), b"").code(7);
    assert_eq!(ran.out, "<--json>\n<--policy>\n<a b>\n<--help>\n");
    if is_root() {
        const OTHER: u32 = 65533;
        std::os::unix::fs::chown(&beside, Some(OTHER), None).expect("root gives it away");
        let ran = finish(place.command(&sandbox).arg("verify"), b"").code(125);
        ran.says(&["belongs to another user"]);
    }
}
