//! Limits as people ask for them: flags, variables, presets, and the refusal of what is beyond a maximum. That a limit
//! holds once it is in force is shown elsewhere.

use crate::support::{Place, binary, finish};

const MAXIMUM: &str = "built-in: profiles/presets/tool.toml:";

#[test]
fn a_request_beyond_the_maximum_of_a_preset_is_refused_with_126_and_both_origins() {
    let place = Place::new();
    for (flag, value, request, most) in [
        ("--memory", "4G", "limits.memory = \"4G\"", "limits.memory = \"2G\""),
        ("--cpus", "2.5", "limits.cpus = 2.5", "limits.cpus = 2"),
        ("--timeout", "11m", "limits.timeout = \"11m\"", "limits.timeout = \"10m\""),
        ("--max-processes", "501", "process.max = 501", "process.max = 500"),
        ("--open-files", "5000", "limits.open_files = 5000", "limits.open_files = 4096"),
        ("--max-output", "1G", "limits.output = \"1G\"", "limits.output = \"10M\""),
    ] {
        let origin = format!("(flag: {flag})");
        let says = [request, origin.as_str(), most, MAXIMUM, "hint:"];
        let flags = ["--preset", "tool", flag, value];
        place.run(&flags, &["touch", "ran"]).code(126).says(&says);
        let explained = place.sandbox(&[&["explain"], &flags[..], &["--", "true"]].concat()).code(126).says(&says);
        assert_eq!(explained.out, "");
    }
    assert!(!place.exists("ran"));
}

#[test]
fn a_tool_runs_within_its_defaults_and_up_to_its_maxima() {
    let place = Place::new();
    assert_eq!(place.run(&["--preset", "tool"], &["echo", "done"]).ok(), "done\n");
    assert_eq!(place.run(&["--preset", "process-tool"], &["echo", "done"]).ok(), "done\n");
    let most = ["--memory", "2G", "--timeout", "10m", "--max-processes", "500", "--max-output", "10M"];
    assert_eq!(place.run(&[&["--preset", "tool"], &most[..]].concat(), &["echo", "done"]).ok(), "done\n");
}

#[test]
fn files_and_variables_are_refused_beyond_a_maximum_like_flags() {
    let place = Place::new();
    place.write("home:.config/cofferdam/config.toml", "preset = \"tool\"\n\n[limits]\nmemory = \"4G\"\n");
    place.inside("touch ran").code(126).says(&["config.toml:4", MAXIMUM]);

    place.write("home:.config/cofferdam/config.toml", "preset = \"process-tool\"\n");
    let mut command = place.command(binary());
    command.args(["run", "--", "touch", "ran"]).env("COFFERDAM_TIMEOUT", "6m");
    finish(&mut command, b"").code(126).says(&["environment: COFFERDAM_TIMEOUT", "presets/process-tool.toml:"]);

    place.write(".cofferdam/policy.toml", "[limits]\noutput = \"11M\"\n");
    place.sandbox(&["trust", "--yes"]).ok();
    place.inside("touch ran").code(126).says(&[".cofferdam/policy.toml:2", "presets/process-tool.toml:"]);
    assert!(!place.exists("ran"));
}

#[test]
fn explain_shows_every_limit_with_its_origin() {
    let place = Place::new();
    place.write(".cofferdam/policy.toml", "[limits]\nfile_size = \"1G\"\ncpu_set = \"0\"\n");
    let mut command = place.command(binary());
    command.args(["explain", "--memory", "1G", "--cpu-time", "5m", "--storage", "2G", "--", "true"]);
    let text = finish(command.env("COFFERDAM_OUTPUT", "3M"), b"").ok();
    for (limit, origin) in [
        ("memory 1G", "flag: --memory"),
        ("cpu 5m", "flag: --cpu-time"),
        ("storage 2G", "flag: --storage"),
        ("output 3M", "environment: COFFERDAM_OUTPUT"),
        ("file_size 1G", ".cofferdam/policy.toml:2"),
        ("cpu_set 0", ".cofferdam/policy.toml:3"),
    ] {
        let shown = |line: &str| line.trim_start().starts_with(&format!("{limit} ")) && line.ends_with(origin);
        assert!(text.lines().any(shown), "`{limit}` from `{origin}` is not in:\n{text}");
    }
}

#[test]
fn a_limit_that_makes_no_sense_is_a_mistake_and_nothing_runs() {
    let place = Place::new();
    for (flag, value, says) in [
        ("--memory", "512", "at least 4M"),
        ("--memory", "lots", "`512M`"),
        ("--cpus", "0", "at least 0.01"),
        ("--cpus", "half", "`0.5`"),
        ("--cpu-time", "0", "`90s`"),
        ("--max-processes", "0", "at least 1"),
        ("--max-processes", "many", "`100`"),
        ("--open-files", "1k", "`100`"),
        ("--storage", "0", "at least 1"),
        ("--max-output", "1.5M", "`512M`"),
    ] {
        place.run(&[flag, value], &["touch", "ran"]).code(125).says(&[flag, says]);
    }
    assert!(!place.exists("ran"));
}
