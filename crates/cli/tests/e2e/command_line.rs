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
    assert!(ran.out.starts_with("POLICY\n"), "{}", ran.out);
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
