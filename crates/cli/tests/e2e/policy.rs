//! Policy files: who may say what, and what happens until a project's policy is approved.

use crate::support::{Place, binary, finish, is_root};

const WIDENING: &str = "[files]\nwrite = [\"~/data\"]\ndeny = [\"./private\"]\n";

fn with_policy() -> Place {
    let place = Place::new();
    place.write("home:data/file", "old");
    place.write("private/file", "confidential");
    place.write(".cofferdam/policy.toml", WIDENING);
    place
}

#[test]
fn an_unapproved_project_policy_can_only_tighten() {
    let place = with_policy();
    place.inside("cat private/file").code(1);
    place.inside("echo new > ~/data/file").code(1).says(&["sandbox trust", ".cofferdam/policy.toml"]);
    assert_eq!(place.read("home:data/file").as_deref(), Some("old"));
}

#[test]
fn an_unapproved_project_policy_uncovers_no_secret_through_a_link() {
    let place = Place::new();
    place.write("home:.aws/credentials", "hunter2");
    place.write(".cofferdam/policy.toml", "[files]\nprotect = [\"./link\"]\n");
    std::os::unix::fs::symlink(place.path("home:.aws"), place.path("link")).expect("writable");
    let ran = place.inside("cat ~/.aws/credentials link/credentials").code(1);
    assert_eq!(ran.out, "");
}

#[test]
fn trust_lets_a_project_policy_widen_until_it_is_edited_or_revoked() {
    let place = with_policy();
    let shown = place.sandbox(&["trust", "--dry-run"]).ok();
    assert!(shown.contains("would approve"), "{shown}");
    let (wider, rest) = shown.split_once("only tightens").expect("both lists");
    assert!(wider.contains("widens what sessions here can do:") && wider.contains("~/data"), "{shown}");
    assert!(rest.contains("private") && !rest.contains("~/data"), "{shown}");
    place.sandbox(&["trust"]).code(125).says(&["there is no terminal to ask at", "--yes"]);
    place.inside("echo new > ~/data/file").code(1);
    let approved = place.sandbox(&["trust", "--yes"]).ok();
    assert!(approved.contains("sha256"), "{approved}");
    place.inside("echo new > ~/data/file").ok();
    assert_eq!(place.read("home:data/file").as_deref(), Some("new\n"));
    place.inside("cat private/file").code(1);

    place.write(".cofferdam/policy.toml", &format!("{WIDENING}\n# one more line\n"));
    place.inside("echo newer > ~/data/file").code(1).says(&["sandbox trust"]);
    place.write(".cofferdam/policy.toml", WIDENING);
    place.inside("echo newer > ~/data/file").ok();
    place.sandbox(&["trust", "--revoke"]).ok();
    place.inside("echo newest > ~/data/file").code(1);
    assert_eq!(place.read("home:data/file").as_deref(), Some("newer\n"));
}

#[test]
fn the_command_cannot_change_the_policy_or_its_approval() {
    let place = with_policy();
    place.sandbox(&["trust", "--yes"]).ok();
    for attempt in [
        "echo '[files]' > .cofferdam/policy.toml",
        "mv .cofferdam old",
        "echo x > .cofferdam/policy.local.toml",
        "echo {} > ~/.local/state/cofferdam/approved-policies.json",
        "cat ~/.local/state/cofferdam/approved-policies.json",
        "mkdir -p ~/.config/cofferdam",
    ] {
        assert_ne!(place.inside(attempt).code, 0, "`{attempt}` succeeded");
    }
    assert_eq!(place.read(".cofferdam/policy.toml").as_deref(), Some(WIDENING));
}

#[test]
fn nothing_to_trust_is_said() {
    Place::new().sandbox(&["trust"]).code(125).says(&["no project policy", ".cofferdam/policy.toml"]);
}

#[test]
fn the_users_configuration_is_a_layer_below_flags() {
    let place = Place::new();
    place.write("home:data/file", "old");
    place.write("home:.config/cofferdam/config.toml", "[files]\nwrite = [\"~/data\"]\n[limits]\ntimeout = \"1s\"\n");
    place.inside("echo new > ~/data/file").ok();
    assert_eq!(place.read("home:data/file").as_deref(), Some("new\n"));
    place.inside("sleep 20").code(124).says(&["config.toml"]);
    place.run(&["--timeout", "20s"], &["sleep", "1.5"]).ok();
    let data = place.path("home:data").display().to_string();
    place.run(&["--blacklist", &data], &["bash", "-c", "cat ~/data/file"]).code(1);
}

#[test]
fn a_mistake_in_a_policy_file_names_file_line_and_remedy_and_nothing_runs() {
    let place = Place::new();
    place.write("home:.config/cofferdam/config.toml", "isolation = \"full\"\n\n[files]\nwrit = [\"~/data\"]\n");
    let ran = place.inside("touch ran").code(125).says(&["config.toml", "4", "unknown field `writ`", "hint:"]);
    assert_eq!(ran.out, "");
    assert!(!place.exists("ran"));
}

#[test]
fn what_is_not_built_yet_is_refused_not_ignored() {
    let place = Place::new();
    for name in ["COFFERDAM_ROOT", "COFFERDAM_TTL"] {
        let mut command = place.command(binary());
        finish(command.args(["run", "--", "touch", "ran"]).env(name, "1"), b"").code(126).says(&[name]);
    }
    assert!(!place.exists("ran"));
}

#[test]
fn the_preset_of_a_language_makes_its_cache_writable_for_real() {
    let place = Place::new();
    place.write("home:.npm/file", "old");
    place.inside("echo new > ~/.npm/file").ok();
    assert_eq!(place.read("home:.npm/file").as_deref(), Some("old"));
    place.run(&["--preset", "node"], &["bash", "-c", "echo new > ~/.npm/file"]).ok();
    assert_eq!(place.read("home:.npm/file").as_deref(), Some("new\n"));
    place.run(&["--preset", "nodejs"], &["true"]).code(125).says(&["nodejs", "node"]);
}

#[test]
fn a_host_beside_no_network_is_refused_and_not_ignored() {
    let ran = Place::new().run(&["--network", "none", "--allow-host", "x.example"], &["true"]).code(125);
    ran.says(&["--allow-host", "`--network none` reaches no host"]);
}

#[test]
fn a_debug_off_policy_is_in_force_without_a_flag() {
    let Some(place) = Place::with(&["strace"]) else { return };
    place.write(".cofferdam/policy.toml", "debug = false\n");
    let ran =
        place.run(&[], &["strace", "/bin/true"]).says(&["refused system call ptrace", ".cofferdam/policy.toml:1"]);
    assert_ne!(ran.code, 0);
}

#[test]
fn a_limit_of_processes_holds_and_is_watched_for_root() {
    let place = Place::new();
    place.write(".cofferdam/policy.toml", "[process]\nmax = 20\n");
    // Long enough that a supervisor which only looks now and then has looked.
    let ran = place.inside("for i in $(seq 60); do sleep 5 & done 2>/dev/null; read -t 1 x <> <(:); jobs -r | wc -l");
    if is_root() {
        // Exempt from the rlimit; in a cgroup it holds as for every user.
        assert!(ran.code == 124 || ran.out.trim().parse().is_ok_and(|running: u32| running < 25), "{}", ran.err);
    } else {
        let running: u32 = ran.out.trim().parse().unwrap_or(0);
        assert!(running < 25, "{running} processes ran");
    }
}
