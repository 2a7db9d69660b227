//! When a command fails on something that was blocked, the last lines say what, by which rule, and what would allow it.

use crate::support::{Place, binary};

#[test]
fn a_refused_system_call_is_named_with_its_arguments_and_rule() {
    let Some(place) = Place::with(&["unshare"]) else { return };
    place
        .run(&[], &["unshare", "-U", "true"])
        .code(1)
        .says(&["refused system call unshare (0x10000000", "profiles/seccomp.toml"]);
}

#[test]
fn a_system_call_that_a_policy_denies_is_cited_by_file_and_line() {
    let place = Place::new();
    place.write(".cofferdam/policy.toml", "\n[syscalls]\ndeny = [\"symlinkat\", \"symlink\"]\n");
    let ran = place.run(&[], &["ln", "-s", "a", "b"]).code(1);
    ran.says(&["refused system call symlinkat", ".cofferdam/policy.toml:3"]);
}

#[test]
fn a_bit_that_lends_rights_is_refused_and_told() {
    let place = Place::new();
    place.write("tool", "#!/bin/sh\n");
    for mode in ["static", "dynamic"] {
        let ran = place.run(&["--mode", mode], &["chmod", "4755", "tool"]).code(1);
        ran.says(&["refused system call fchmodat", "set-user-ID files lend your rights to other users"]);
        // A user who is told so by chmod is told by install and tar as well.
        place.run(&["--mode", mode], &["install", "-m", "4755", "tool", "tool-2"]).code(1);
        assert_eq!(place.host("stat -c %a tool").ok(), "644\n");
        assert!(place.host("find . -perm /6000").ok().is_empty());
    }
}

#[test]
fn a_repository_can_be_shared_with_a_group() {
    let Some(place) = Place::with(&["git"]) else { return };
    for mode in ["static", "dynamic"] {
        let repository = format!("shared-{mode}");
        place.run(&["--mode", mode], &["git", "init", "-q", "--shared", "--bare", &repository]).ok();
        assert_eq!(place.host(&format!("stat -c %a {repository}/objects")).ok(), "2775\n");
    }
}

#[test]
fn a_hidden_path_is_named_with_the_flag_that_shows_it() {
    let place = Place::new();
    place.write("home:.aws/credentials", "hunter2");
    let path = place.path("home:.aws/credentials").display().to_string();
    let ran = place.run(&[], &["cat", &path]).code(1).says(&["is hidden", "profiles/secrets.toml", "--ro"]);
    // What it proposes is enough.
    let flag = ran.err.split("--ro ").nth(1).expect("a flag").trim().to_owned();
    assert_eq!(place.run(&["--ro", &flag], &["cat", &path]).ok(), "hunter2");
}

#[test]
fn a_read_only_path_is_named_with_the_flag_that_opens_it() {
    let place = Place::new();
    place.write("home:notes/file", "old");
    let path = place.path("home:notes/file").display().to_string();
    let ran = place.run(&[], &["tee", &path]).code(1).says(&["it was not approved", "--rw"]);
    let flag = ran.err.split("--rw ").nth(1).expect("a flag").trim().to_owned();
    place.run(&["--rw", &flag], &["tee", &path]).ok();
}

#[test]
fn a_command_in_an_unknown_place_is_named_with_the_flag_that_lets_it_run() {
    let place = Place::new();
    place
        .host(
            "mkdir -p ~/tc/bin ~/tc/lib ~/other/bin ~/Downloads && echo from the toolchain > ~/tc/lib/text \
         && printf '#!/bin/sh\\ncat ~/tc/lib/text\\n' > ~/tc/bin/tool && cp $(type -P true) ~/Downloads/program \
         && cp $(type -P sh) ~/other/bin/interpreter \
         && printf '#!%s/other/bin/interpreter\\n:\\n' ~ > script && chmod +x ~/tc/bin/tool script",
        )
        .ok();
    let home = place.home.display();
    let path = |name: &str| format!("{home}/{name}");
    for (command, flag, out) in [
        (vec![path("tc/bin/tool")], path("tc"), "from the toolchain\n"),
        (vec!["env".to_owned(), path("tc/bin/tool")], path("tc"), "from the toolchain\n"),
        (vec![path("Downloads/program")], path("Downloads/program"), ""),
        (vec!["./script".to_owned()], path("other"), ""),
    ] {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let ran = place.run(&[], &command);
        assert_eq!(ran.code, 126, "{command:?}: {}", ran.err);
        let ran = ran.says(&[&format!("allow it with --ro {flag}\n")]);
        assert!(!ran.err.contains("not executable"), "{}", ran.err);
        assert_eq!(place.run(&["--ro", &flag], &command).ok(), out, "what it proposes is enough");
    }
    // What a rule hides is not proposed: the directory around it holds keys.
    place.host("mkdir -p ~/.ssh/bin && cp ~/Downloads/program ~/.ssh/bin/program").ok();
    let ran = place.run(&[], &[&path(".ssh/bin/program")]);
    assert!(ran.code != 0 && !ran.err.contains("--ro"), "{}", ran.err);
    // What is no program is still told as that.
    place.host("echo text > text").ok();
    place.run(&[], &["./text"]).code(126).says(&["not executable"]);
}

#[test]
fn a_new_file_in_a_read_only_directory_is_explained_too() {
    let place = Place::new();
    let path = place.path("home:new-file").display().to_string();
    place.run(&[], &["touch", &path]).code(1).says(&["new-file", "it was not approved", "--rw"]);
    place.inside("echo x > ~/new-file").code(1).says(&["new-file", "it was not approved", "--rw"]);
}

#[test]
fn a_flag_that_would_be_refused_is_not_proposed() {
    let place = Place::new();
    place.write("home:file", "old");
    let (file, new) = (place.path("home:file").display().to_string(), place.path("home:new").display().to_string());
    // All of the home directory cannot be opened, the file can.
    let ran = place.run(&[], &["tee", &file]).code(1).says(&[&format!("--rw {file}")]);
    assert!(!ran.err.contains(&format!("--rw {}\n", place.home.display())));
    place.run(&["--rw", &file], &["tee", &file]).ok();
    let ran = place.run(&[], &["touch", &new]).code(1).says(&["below a directory that you pass with --rw"]);
    assert!(!ran.err.contains("--rw /"), "{}", ran.err);
    // What is there to be looked at by every process is not commented on.
    let ran = place.run(&[], &["bash", "-c", "ls / >/dev/null; exit 3"]).code(3);
    assert_eq!(ran.err, "");
}

/// A name in a hint is the workload's choice, and the hint is there to be pasted.
#[test]
fn a_flag_in_a_hint_is_one_word_of_a_shell() {
    let place = Place::new();
    place.write("home:cl$(touch PWNED)`id`;x/f", "");
    let ran = place.run(&["--on-unknown", "deny"], &["bash", "-c", "cat ~/'cl$(touch PWNED)`id`;x/f'"]).code(1);
    let flag = format!("--ro '{}'", place.path("home:cl$(touch PWNED)`id`;x/f").display());
    ran.says(&[&flag]);
}

#[test]
fn a_new_file_in_a_protected_directory_is_explained_too() {
    let Some(place) = Place::with_repository() else { return };
    place.run(&[], &["touch", ".git/hooks/pre-commit"]).code(1).says(&["hooks", "protected", "profiles/protect.toml"]);
}

#[test]
fn a_command_that_wanted_a_network_is_told_that_there_is_none() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let script = "import socket; s = socket.create_connection(('192.0.2.1', 80), 2); s.recv(9); exit(1)";
    place
        .run(&[], &["python3", "-c", script])
        .code(1)
        .says(&["could not reach 192.0.2.1:80", "`--allow-host 192.0.2.1:80`"]);
    place
        .run(&["--network", "none"], &["python3", "-c", script])
        .says(&["loopback [flag: --network]; let it reach a host with --network egress --allow-host HOST"]);
    // The own loopback is no such attempt.
    let script = "import socket; socket.create_connection(('127.0.0.1', 80), 2)";
    let ran = place.run(&[], &["python3", "-c", script]).code(1);
    assert!(!ran.err.contains("sandbox:"), "{}", ran.err);
}

#[test]
fn a_command_that_succeeds_or_fails_by_itself_is_not_commented_on() {
    let place = Place::new();
    for script in ["true", "exit 3", "cat nonexistent", "unshare -U true; true"] {
        let ran = place.inside(script);
        assert!(!ran.err.contains("sandbox:"), "`{script}`: {}", ran.err);
    }
}

#[test]
fn too_many_refused_calls_end_the_session() {
    let Some(place) = Place::with(&["unshare"]) else { return };
    place.write(".cofferdam/policy.toml", "[syscalls]\nmax_violations = 3\n");
    place
        .inside("for i in 1 2 3 4 5 6 7 8; do unshare -U true; done; touch survived")
        .code(126)
        .says(&["more than 3 refused system calls"]);
    assert!(!place.exists("survived"));
}

#[test]
fn refused_calls_are_kept_in_a_log() {
    let Some(place) = Place::with(&["unshare"]) else { return };
    place.inside("unshare -U true; true").ok();
    let log = place.read("home:.local/state/cofferdam/audit/00000001.ndjson").expect("a log");
    let line = log.lines().find(|line| line.contains("SYSCALL_BLOCKED")).expect("a line");
    let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(event["details"]["syscall"], "unshare");
}

#[test]
fn control_characters_in_what_is_named_do_not_reach_the_terminal() {
    let place = Place::new();
    let name = "home:note\u{1b}]0;owned\u{7}s";
    place.write(name, "x");
    let path = place.path(name).display().to_string();
    let ran = place.run(&[], &["rm", &path]).code(1).says(&["\\u{1b}"]);
    let ours = ran.err.lines().filter(|line| line.starts_with("sandbox:"));
    assert!(ours.clone().count() > 0 && ours.clone().all(|line| !line.contains('\u{1b}')));
}

#[test]
fn json_at_the_end_tells_programs_what_happened() {
    let Some(place) = Place::with(&["unshare"]) else { return };
    let ran = place.run(&["--json"], &["bash", "-c", "unshare -U true; exit 5"]).code(5);
    let report: serde_json::Value = serde_json::from_str(ran.err.lines().last().expect("a line")).expect("JSON");
    assert_eq!(report["exit_code"], 5);
    assert_eq!(report["blocked"][0]["name"], "unshare");
    assert!(report["posture"].as_array().is_some_and(|layers| layers.len() > 5), "{report}");
}

#[test]
fn a_held_name_that_the_command_wanted_to_make_is_named() {
    let Some(place) = Place::with(&["git"]) else { return };
    place
        .inside("mkdir -p .claude/commands")
        .says(&["/.claude does not exist and cannot be created inside [", "make it outside first"]);
    // Advice that would be refused is not given beside it; and a link leads to the same name.
    place.write("sub/file", "");
    place.host("ln -s .. sub/up").ok();
    for argument in [".vscode", "sub/up/.vscode"] {
        let ran = place.run(&[], &["mkdir", argument]);
        let told: Vec<&str> = ran.err.lines().filter(|line| line.contains("/.vscode ")).collect();
        assert!(matches!(told[..], [one] if one.contains("cannot be created inside [")), "{argument}: {told:?}");
    }
    place
        .run(&[], &["git", "init"])
        .says(&["/.git does not exist and cannot be created inside [", "make it outside first"]);
    let cloned = place.run(&[], &["git", "clone", "./nothing", "below"]);
    assert!(!cloned.err.contains("cannot be created inside"), "{}", cloned.err);
}

#[test]
fn a_covered_socket_is_named_with_the_flag_that_gives_it() {
    let place = Place::new();
    let socket = place.path("db.sock");
    let _listens = std::os::unix::net::UnixListener::bind(&socket).expect("binds");
    place.inside("cat ./db.sock").says(&["db.sock cannot be connected to [", "allow it with --socket "]);
}

#[test]
fn a_sandbox_inside_a_sandbox_is_refused_with_the_reason() {
    let place = Place::new();
    // Into the project: the binary may lie in a directory that the sandbox has its own of.
    std::fs::copy(binary(), place.path("inner")).expect("copies");
    place.inside("./inner run -- true").says(&["there is no openat2 here", "inside of another sandbox"]);
}

#[test]
fn many_files_of_one_directory_are_one_line_and_of_the_home_they_are_not() {
    let place = Place::new();
    for number in 0..12 {
        place.write(&format!("home:many/f{number}"), "x");
    }
    let ran = place.inside("for n in {0..11}; do cat ~/many/f$n; done; false").code(1);
    let many = place.home.join("many").display().to_string();
    let ran = ran.says(&[&format!(
        "sandbox: could not read 12 files in {many}: it was not approved; allow them with --ro {many}"
    )]);
    assert_eq!(ran.err.matches("--ro ").count(), 1, "{}", ran.err);
    for number in 0..6 {
        place.write(&format!("home:file{number}"), "x");
    }
    let ran = place.inside("for n in {0..5}; do cat ~/file$n; done; false").code(1);
    let home = place.home.display().to_string();
    assert!(!ran.err.contains(&format!("--ro {home}\n")), "{}", ran.err);
}

#[test]
fn no_hint_proposes_a_directory_of_private_keys() {
    let place = Place::new();
    place.write("home:.ssh/id_ed25519", "hunter2");
    place.write("home:.ssh/id_ed25519.pub", "ssh-ed25519 AAAA");
    let ssh = place.home.join(".ssh").display().to_string();
    for script in ["cat ~/.ssh/id_ed25519", "ls ~/.ssh", "cat ~/.ssh/id_ed25519.pub"] {
        for flags in [&[][..], &["--mode", "static"]] {
            let ran = place.run(flags, &["bash", "-c", script]);
            assert!(ran.code != 0 || script.starts_with("ls"), "{script}");
            let proposes = |path: &str| ran.err.lines().any(|line| line.ends_with(&format!("--ro {path}")));
            assert!(!proposes(&ssh) && !proposes(&format!("{ssh}/id_ed25519")), "{script}: {}", ran.err);
        }
    }
    let ran = place.inside("cat ~/.ssh/id_ed25519.pub");
    ran.says(&[&format!("show this file with --ro {ssh}/id_ed25519.pub")]);
}

#[test]
fn a_port_of_this_machine_that_was_meant_is_named_with_its_flag() {
    let place = Place::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    let hint = format!("port {port} of this machine is not the session's; to reach it: --host-port {port}");
    place.inside(&connect).code(1).says(&[&hint]);
    // With the flag it is reached, and a port at which nothing listens here either is not named.
    place.run(&["--host-port", &port.to_string()], &["bash", "-c", &connect]).ok();
    drop(listener);
    assert!(!place.inside(&connect).err.contains("of this machine"));
    assert!(!place.inside(&format!("echo {port}; false")).err.contains("of this machine"));
}
