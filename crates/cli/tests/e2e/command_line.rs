//! The command itself: exit codes, streams, help, completions, manual page, explain and doctor.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Place, binary, finish};

#[test]
fn the_commands_own_exit_code_comes_through() {
    let place = Place::new();
    for code in [0, 1, 3, 42, 124, 125, 255] {
        place.run(&[], &["bash", "-c", &format!("exit {code}")]).code(code);
    }
}

#[test]
fn a_signal_that_ends_the_command_becomes_128_plus_its_number() {
    let place = Place::new();
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("INT", 130), ("SEGV", 139), ("ABRT", 134), ("PIPE", 141)] {
        place.run(&[], &["bash", "-c", &format!("kill -{signal} $$")]).code(code);
    }
}

#[test]
fn a_signal_that_comes_while_the_walls_are_built_is_not_lost() {
    let place = Place::new();
    for milliseconds in (10..120).step_by(5) {
        let started = Instant::now();
        let sandbox = binary();
        place.host(&format!("timeout -s TERM 0.{milliseconds:03} {} run -- sleep 30", sandbox.display())).code(124);
        assert!(started.elapsed() < Duration::from_secs(20), "after {milliseconds} ms: {:?}", started.elapsed());
    }
}

#[test]
fn a_timeout_ends_everything_with_124_even_what_ignores_sigterm() {
    let place = Place::new();
    let started = Instant::now();
    place.run(&["--timeout", "1s"], &["sleep", "100"]).code(124).says(&["--timeout"]);
    assert!(started.elapsed() < Duration::from_secs(3));
    place.run(&["--timeout", "1s"], &["bash", "-c", "trap '' TERM; while :; do sleep 1; done"]).code(124);
    assert!(started.elapsed() < Duration::from_secs(9));
}

#[test]
fn a_command_may_use_sigterm_to_end_in_order_before_the_timeout_kills() {
    let place = Place::new();
    let script = "trap 'echo tidy > left; exit 0' TERM; while :; do sleep 0.1; done";
    place.run(&["--timeout", "1s"], &["bash", "-c", script]).code(124);
    assert_eq!(place.read("left").as_deref(), Some("tidy\n"));
}

#[test]
fn not_found_is_127_and_not_executable_is_126() {
    let place = Place::new();
    place.write("plain", "text");
    place.run(&[], &["no-such-program"]).code(127).says(&["cannot execute `no-such-program`"]);
    place.run(&[], &["./missing"]).code(127);
    place.run(&[], &["--bind"]).code(127).says(&["--bind"]);
    place.run(&[], &["./plain"]).code(126);
    place.run(&[], &["/etc"]).code(126);
    place.run(&[], &[""]).code(127);
}

#[test]
fn our_own_failures_are_125_and_nothing_runs() {
    let place = Place::new();
    for flags in [
        &["--timeout", "soon"][..],
        &["--isolation", "weak"],
        &["--preset", "cobol"],
        &["--no-such-flag"],
        &["--rw", "/nonexistent/x"],
    ] {
        let ran = place.run(flags, &["touch", "ran"]).code(125);
        assert!(ran.err.starts_with("error:"), "{}", ran.err);
    }
    place.sandbox(&["run"]).code(125);
    place.sandbox(&["frobnicate"]).code(125);
    assert!(!place.exists("ran"));
}

#[test]
fn the_first_word_that_is_no_option_begins_the_command() {
    let place = Place::new();
    place.write("file", "text\n");
    let first_line = |words: &[&str]| place.sandbox(words).ok().lines().next().unwrap_or_default().to_owned();
    assert_eq!(first_line(&["run", "cat", "-A", "file"]), "text$");
    assert_eq!(first_line(&["run", "--mode", "static", "cat", "--show-ends", "file"]), "text$");
    // What follows it is the command's, also what looks like an option of ours or ends options.
    assert_eq!(first_line(&["run", "echo", "--mode", "static", "--", "--json"]), "--mode static -- --json");
    assert_eq!(first_line(&["run", "--", "echo", "--", "x"]), "-- x");
    let explained: Value =
        serde_json::from_str(&place.sandbox(&["explain", "--json", "make", "-j", "2"]).ok()).expect("JSON");
    assert_eq!(explained["plan"]["command"]["argv"], serde_json::json!(["make", "-j", "2"]));
    let learned = place.sandbox(&["learn", "cat", "-A", "file"]).ok();
    assert!(learned.contains("Learned from: cat -A file"), "{learned}");
    // A misspelt option before it is no command.
    place.sandbox(&["run", "--mod", "static", "touch", "ran"]).code(125).says(&["--mod"]);
    assert!(!place.exists("ran"));
}

#[test]
fn a_project_can_be_named_and_is_refused_where_a_found_one_would_be() {
    let place = Place::new();
    place.write("home:other/.git/HEAD", "ref: refs/heads/main\n");
    let other = place.path("home:other").display().to_string();
    let script = "pwd; echo made > made; echo no > ../project/made";
    let ran = place.run(&["--project", &other], &["bash", "-c", script]);
    assert_eq!((ran.code, ran.out.lines().next()), (1, Some(other.as_str())), "{}", ran.err);
    assert!(place.exists("home:other/made") && !place.exists("made"));
    // Below it the command starts where you stand; its policy file only tightens.
    place.write("home:other/.cofferdam/policy.toml", "[files]\ndeny = [\"./private\"]\nwrite = [\"~/wide\"]\n");
    place.write("home:other/private", "x");
    place.write("home:wide/file", "x");
    place.run(&["--project", "../other"], &["cat", "private"]).code(1);
    place.run(&["--project", "../other"], &["bash", "-c", "echo > ~/wide/file"]).code(1);
    for refused in ["..", "/", "/usr", "/tmp"] {
        let ran = place.run(&["--project", refused], &["touch", "ran"]).code(125);
        ran.says(&["cannot be the project"]);
    }
    place.run(&["--project", "../missing"], &["true"]).code(125).says(&["no directory that can be entered"]);
}

#[test]
fn a_command_starts_in_the_directory_that_is_named() {
    let place = Place::new();
    place.write("sub/file", "text");
    place.write("home:.ssh/id_ed25519", "hunter2");
    assert_eq!(place.run(&["--cwd", "sub"], &["cat", "file"]).ok(), "text");
    // Flags are meant from where you stand, and the project stays the one that is found from there.
    assert_eq!(place.run(&["--cwd", "sub", "--ro", "sub/file"], &["cat", "../sub/file"]).ok(), "text");
    let ssh = place.path("home:.ssh").display().to_string();
    place.run(&["--cwd", &ssh], &["cat", "id_ed25519"]).code(125).says(&["cannot enter the working directory"]);
}

#[test]
fn a_policy_file_of_the_operator_counts_for_one_run() {
    let place = Place::new();
    place.write("home:wide/file", "x");
    place.write(
        "home:.config/cofferdam/profiles/reviewer.toml",
        "[files]\nwrite = [\"~/wide\"]\n[limits]\ntimeout = \"7m\"\n",
    );
    let text = "echo y > ~/wide/file";
    place.run(&[], &["bash", "-c", text]).code(1);
    place.run(&["--profile", "reviewer"], &["bash", "-c", text]).ok();
    let file = place.path("home:.config/cofferdam/profiles/reviewer.toml").display().to_string();
    place.run(&["--policy", &file], &["bash", "-c", text]).ok();
    // A flag counts more, a variable and the user's own file less.
    place.write("home:.config/cofferdam/config.toml", "[limits]\ntimeout = \"1m\"\n");
    let mut command = place.command(binary());
    command.env("COFFERDAM_TIMEOUT", "2m").args(["explain", "--json", "--profile", "reviewer", "true"]);
    let explained: Value = serde_json::from_str(&finish(&mut command, b"").ok()).expect("JSON");
    let timeout = &explained["policy"]["limits"]["timeout"];
    assert!(timeout["origin"]["source"].as_str().is_some_and(|source| source.ends_with("reviewer.toml")), "{timeout}");
    let explained = place.sandbox(&["explain", "--profile", "reviewer", "--timeout", "9m", "true"]).ok();
    assert!(explained.contains("flag: --timeout"), "{explained}");
    // What the workload could have written is not the operator's word.
    place.write("ci.toml", "[files]\nwrite = [\"~/wide\"]\n");
    place.run(&["--policy", "ci.toml"], &["true"]).code(126).says(&["lies in the project", "--profile NAME"]);
    place.write("home:wide/own.toml", "[files]\nwrite = [\"~/wide\"]\n");
    let own = place.path("home:wide/own.toml").display().to_string();
    place.run(&["--policy", &own], &["true"]).code(126).says(&["sessions were given", "for writing"]);
    place.write("home:wider/own.toml", "[files]\nwrite = [\"~/wider\"]\n");
    let own = place.path("home:wider/own.toml").display().to_string();
    place.run(&["--policy", &own], &["true"]).code(126).says(&["the session could write"]);
    place.run(&["--profile", "auditor"], &["true"]).code(126).says(&["no profile `auditor`", "profiles are: reviewer"]);
    place.run(&["--profile", "../config"], &["true"]).code(126);
    place.run(&["--policy", "/nonexistent/x.toml"], &["true"]).code(125);
}

#[test]
fn pipes_that_are_named_are_passed_on_and_nothing_else_is() {
    let place = Place::new();
    let sandbox = binary().display().to_string();
    let host = |script: &str| place.host(&script.replace("sandbox", &sandbox));
    let ran = host(
        "exec 9< <(echo nine) 8< <(echo eight); sandbox run --fd 9 bash -c 'cat <&9; cat <&8; ls /proc/self/fd | wc -l'",
    );
    assert_eq!(ran.out, "nine\n5\n", "{}", ran.err);
    host("sandbox run --fd 63 cat <(echo x)").ok();
    host("sandbox run cat <(echo x)").code(1).says(&["/dev/fd/63 was not passed on to the command; --fd 63"]);
    for (opened, why) in [
        ("5</", "a directory"),
        ("5</etc/passwd", "a file"),
        ("5<>/dev/tcp/127.0.0.1/1", "not open"),
        ("5</dev/zero", "not a pipe"),
        ("5>&-", "not open"),
    ] {
        host(&format!("exec {opened}; sandbox run --fd 5 touch ran")).code(125).says(&[why]);
    }
    host("mkfifo named; exec 5<>named; sandbox run --fd 5 touch ran").code(125).says(&["a pipe with a name"]);
    assert!(!place.exists("ran"));
}

#[test]
fn make_finds_its_job_server_where_its_pipe_is_passed_on() {
    let Some(place) = Place::with(&["make"]) else { return };
    let sandbox = binary().display().to_string();
    place.write("inner.mk", "all: a b\na b:\n\t@echo $@\n");
    let flags = "--fd 3 --fd 4 --env MAKEFLAGS";
    place.write("Makefile", &format!("all:\n\t+@{sandbox} run {flags} make -f inner.mk\n"));
    let ran = place.host("make --help | grep -q jobserver-style && style=--jobserver-style=pipe; make -j4 $style");
    assert!(ran.code == 0 && !ran.err.contains("jobserver unavailable"), "{}{}", ran.out, ran.err);
}

#[test]
fn a_word_of_another_tool_is_told_by_what_it_is_here() {
    let place = Place::new();
    let ran = place.sandbox(&["prune"]).code(125).says(&["hint: that is `sandbox changes"]);
    assert!(!ran.err.contains("'run'"), "{}", ran.err);
    place.sandbox(&["explains"]).code(125).says(&["'explain'"]);
    place.sandbox(&["run", "--netwrk", "none", "true"]).code(125).says(&["'--network'"]);
    let ran = place.sandbox(&["run", "--frobnicate", "true"]).code(125);
    assert!(!ran.err.contains("similar argument"), "{}", ran.err);
}

#[test]
fn why_knows_variables_and_says_what_is_nothing() {
    let place = Place::new();
    let why = |target: &str| place.sandbox(&["why", target]).ok();
    let said = why("FOO_TOKEN");
    assert!(said.contains("not passed (it is not set here): variables of such names may hold secrets"), "{said}");
    assert!(said.contains("to pass it: --env FOO_TOKEN"), "{said}");
    assert!(why("env:foo").contains("no rule names it"), "{}", why("env:foo"));
    assert!(why("LANG").contains("LANG is passed ["), "{}", why("LANG"));
    let said = place.sandbox(&["why", "--env", "FOO_TOKEN", "FOO_TOKEN"]).ok();
    assert!(said.contains("is passed") && said.contains("flag: --env"), "{said}");
    place.sandbox(&["why", "nosuchthing"]).code(1).says(&["no path that exists", "./NAME"]);
    assert!(why("./nosuchthing").contains("nosuchthing"));
}

#[test]
fn standard_streams_pass_through_unchanged() {
    let place = Place::new();
    let bytes: Vec<u8> = (0..=255u8).cycle().take(1 << 20).collect();
    std::fs::write(place.path("bytes"), &bytes).expect("writable");
    let mut command = place.command(binary());
    let ran = finish(command.args(["run", "--", "bash", "-c", "cmp - bytes && echo out && echo err >&2"]), &bytes);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "out\n", "err\n"));
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let place = Place::new();
    let sandbox = binary().display().to_string();
    let ran = place.host(&format!("set -o pipefail; '{sandbox}' run -- yes | head -1"));
    assert_eq!((ran.code, ran.out.as_str()), (141, "y\n"));
    let ran = place.host(&format!(
        "'{sandbox}' explain | head -1; '{sandbox}' man | head -1 >/dev/null; '{sandbox}' --help | head -1"
    ));
    assert!(ran.out.starts_with("SUMMARY\n"), "{}", ran.out);
    assert_eq!(ran.err, "");
}

#[test]
fn no_descriptor_but_the_standard_streams_gets_in() {
    let place = Place::new();
    place.write("home:.ssh/key", "hunter2");
    let sandbox = binary().display().to_string();
    let ran =
        place.host(&format!("exec 7< ~/.ssh/key 9< /; '{sandbox}' run -- bash -c 'cat <&7; ls /proc/self/fd | wc -l'"));
    assert_eq!(ran.out, "4\n");
}

#[test]
fn explain_shows_rules_with_origins_steps_and_posture() {
    let place = Place::new();
    place.write("home:.aws/credentials", "x");
    place.write(".cofferdam/policy.toml", "[files]\ndeny = [\"./private\"]\n");
    place.write("private/file", "x");
    let text = place.sandbox(&["explain", "--timeout", "5m", "--", "make"]).ok();
    for part in [
        "POLICY",
        "STEPS",
        "POSTURE",
        "flag: --timeout",
        ".cofferdam/policy.toml:2",
        "profiles/secrets.toml",
        "system-call filter",
    ] {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
    assert!(!place.exists(".vscode"), "explain changed the project");
    let (summary, _) = text.split_once("\nPOLICY\n").expect("the policy comes after the summary");
    assert!((8..=16).contains(&summary.lines().count()), "{summary}");
    for part in [
        "make, in ~/project",
        "~/project",
        "limits      timeout 5m",
        "any other path",
        "none, but an own loopback",
        "~/project/private",
    ] {
        assert!(summary.contains(part), "`{part}` is not in:\n{summary}");
    }
}

#[test]
fn explain_and_doctor_speak_json() {
    let place = Place::new();
    let explained: Value =
        serde_json::from_str(&place.sandbox(&["explain", "--json", "--", "make"]).ok()).expect("JSON");
    assert_eq!(explained["plan"]["command"]["argv"][0], "make");
    assert!(explained["plan"]["steps"].as_array().is_some_and(|steps| steps.len() > 20));
    let doctor: Value = serde_json::from_str(&place.sandbox(&["doctor", "--json"]).ok()).expect("JSON");
    let checks = doctor["checks"].as_array().expect("a list");
    assert!(checks.len() >= 8, "{doctor}");
    let text = place.sandbox(&["doctor"]).ok();
    assert!(text.contains("user-namespaces") && text.contains("0 failures"), "{text}");
}

#[test]
fn help_names_every_flag_and_version_is_printed() {
    let place = Place::new();
    let help = place.sandbox(&["run", "--help"]).ok();
    for flag in [
        "--mode",
        "--isolation",
        "--preset",
        "--rw",
        "--ro",
        "--overlay",
        "--transaction",
        "--blacklist",
        "--timeout",
        "--memory",
        "--cpus",
        "--cpu-time",
        "--max-processes",
        "--open-files",
        "--storage",
        "--max-output",
        "--env",
        "--no-debug",
        "--timing",
        "--json",
    ] {
        assert!(help.contains(flag), "{flag} is missing");
    }
    assert!(place.sandbox(&["--version"]).ok().starts_with("sandbox "));
}

#[test]
fn completions_for_bash_zsh_and_fish_know_the_flags() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.sandbox(&["completions", shell]).ok();
        assert!(script.contains("blacklist") && script.contains("doctor"), "{shell}");
    }
    let script = "source <(\"$0\" completions bash) && complete -p sandbox";
    let mut command = place.command("bash");
    assert!(finish(command.args(["-c", script]).arg(binary()), b"").ok().contains("_sandbox"));
}

#[test]
fn the_manual_page_renders() {
    let place = Place::new();
    let page = place.sandbox(&["man"]).ok();
    for text in [".TH", "blacklist", "doctor"] {
        assert!(page.contains(text), "{text} is missing");
    }
    if crate::support::which("man").is_none() {
        println!("the page was not rendered: `man` is not installed");
        return;
    }
    place.write("sandbox.1", &page);
    let rendered = place.host("man --warnings -l ./sandbox.1 | col -b");
    assert!(rendered.out.contains("NAME") && rendered.out.contains("--blacklist"), "{}{}", rendered.out, rendered.err);
}

#[test]
fn timing_prints_each_step_of_the_launch() {
    let place = Place::new();
    let ran = place.run(&["--timing"], &["true"]).code(0).says(&["clone3", "pivot_root", "seccomp", "total"]);
    assert_eq!(ran.out, "");
}

#[test]
fn a_secret_directory_stays_hidden_also_when_it_is_the_working_directory() {
    let mut place = Place::new();
    place.write("home:.ssh/id_ed25519", "hunter2");
    place.project = place.home.join(".ssh");
    for mode in ["dynamic", "static"] {
        let script = "cat id_ed25519; echo x > authorized_keys";
        let ran = place.run(&["--mode", mode], &["bash", "-c", script]).code(125);
        ran.says(&["cannot enter the working directory", "hidden"]);
        assert!(!place.exists("authorized_keys"), "{mode}");
    }
}
