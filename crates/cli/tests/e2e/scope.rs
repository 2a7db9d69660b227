//! Limits of an ordinary user on a machine that systemd runs: the session's cgroup is in a scope that the user's manager
//! made for it, and that goes with it.

use std::path::PathBuf;

use crate::support::{Place, slurp, wait_for};

fn with_systemd() -> Option<Place> {
    if std::env::var("COFFERDAM_TEST_GUEST").as_deref() == Ok("systemd") {
        return Some(Place::new());
    }
    println!("skipped: not in the guest with systemd");
    None
}

#[test]
fn guest_systemd_keeps_a_named_limit_in_a_scope_of_the_session() {
    let Some(place) = with_systemd() else { return };
    let mut session = place.start(&["--memory", "64M"], "echo ready; read line");
    assert_eq!(session.first_line, "ready");
    let own = slurp(&PathBuf::from(format!("/proc/{}/cgroup", session.pid())));
    let own = PathBuf::from(own.trim().replacen("0::", "/sys/fs/cgroup", 1));
    let scope = own.parent().expect("it is in a scope").to_path_buf();
    let name = scope.file_name().expect("it has a name").to_string_lossy().into_owned();
    let session_name = name.strip_suffix(".scope").filter(|name| name.starts_with("cofferdam-"));
    let limited = scope.join(session_name.unwrap_or_else(|| panic!("{} is in no scope of ours", own.display())));
    assert!(own.ends_with("supervisor"), "{}", own.display());
    assert_eq!(slurp(&limited.join("memory.max")).trim(), (64 << 20).to_string());
    assert!(!slurp(&limited.join("cgroup.procs")).is_empty(), "nobody is in {}", limited.display());
    session.tell("\n");
    assert_eq!(session.end().0, 0);
    wait_for("the end of the scope", || (!scope.exists()).then_some(()));
    let listing = format!("systemctl --user list-units --all --plain --no-legend '{name}'");
    wait_for("the manager to forget it", || place.host(&listing).ok().is_empty().then_some(()));
}

#[test]
fn guest_systemd_ends_a_session_that_needs_too_much_memory() {
    let Some(place) = with_systemd() else { return };
    let ran = place.run(&["--memory", "64M"], &["bash", "-c", "head -c 400M /dev/zero | tail"]).code(137);
    ran.says(&["ended: it needed more than 64 MiB of memory"]);
}
