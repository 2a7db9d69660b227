//! Standard streams that are files of the host: they behave as they would without a sandbox, and lead nowhere else.

use std::process::Stdio;

use crate::support::{Place, Ran, binary, finish};

const MODES: [&str; 2] = ["static", "dynamic"];

/// A script outside in which `$S` is `sandbox run` in this mode.
fn outside(place: &Place, mode: &str, script: &str) -> Ran {
    let mut command = place.command("bash");
    command.args(["-c", script]).env("S", format!("{} run --mode {mode} --", binary().display()));
    finish(&mut command, b"")
}

#[test]
fn a_file_on_stdin_cannot_be_written_and_its_place_is_shared() {
    for mode in MODES {
        let place = Place::new();
        place.write("home:tool", "one\ntwo\nthree\nfour\n");
        let again =
            "(: > /proc/self/fd/0) 2>/dev/null || (echo x >> /dev/stdin) 2>/dev/null || echo refused; head -n 1";
        let ran = outside(&place, mode, &format!("($S bash -c '{again}'; cat) < ~/tool"));
        assert_eq!(ran.ok(), "refused\none\ntwo\nthree\nfour\n", "{mode}");
        let ran = outside(&place, mode, "{ read first; $S head -n 1; echo -; cat; } < ~/tool");
        assert_eq!(ran.ok(), "two\n-\nthree\nfour\n", "{mode}: each goes on where the one before has stopped");
        assert_eq!(place.read("home:tool").as_deref(), Some("one\ntwo\nthree\nfour\n"), "{mode}");
    }
}

#[test]
fn a_file_without_a_name_is_read_to_where_the_command_has_read() {
    for mode in MODES {
        let place = Place::new();
        let lines = (0..60_000).map(|line| format!("{line}\n")).collect::<Vec<_>>().concat();
        place.write("home:lines", &lines);
        let script = "exec 3< ~/lines; rm ~/lines; { $S head -c 100000; cat; } <&3 | sha256sum; sha256sum <<< \"$(seq 0 59999)\"";
        let both = outside(&place, mode, script).ok();
        let sums: Vec<&str> = both.lines().collect();
        assert_eq!(sums.len(), 2, "{mode}: {both}");
        assert_eq!(sums[0], sums[1], "{mode}: nothing is lost or doubled");
        place.write("home:lines", &lines);
        let script = "exec 3< ~/lines; rm ~/lines; $S wc -l <&3; cat <&3";
        assert_eq!(outside(&place, mode, script).ok(), "60000\n", "{mode}: it is at its end");
    }
}

#[test]
fn a_file_on_stdout_can_neither_be_read_nor_emptied() {
    for mode in MODES {
        let place = Place::new();
        place.write("home:log", "secret before\n");
        let again = "cat /proc/self/fd/1 > got & sleep 0.3; kill $!; : > /dev/stdout; truncate -s 0 /proc/self/fd/1; echo after";
        outside(&place, mode, &format!("$S bash -c '{again}' >> ~/log 2>/dev/null"));
        let log = place.read("home:log").unwrap_or_default();
        assert!(log.starts_with("secret before\n") && log.ends_with("after\n"), "{mode}: {log}");
        assert!(!place.read("got").unwrap_or_default().contains("secret"), "{mode}");
    }
}

#[test]
fn files_on_stdout_and_stderr_are_written_in_order_and_where_they_stand() {
    for mode in MODES {
        let place = Place::new();
        let lines = "for i in $(seq 200); do echo out $i; echo err $i >&2; done";
        outside(&place, mode, &format!("$S bash -c '{lines}' > both 2>&1")).ok();
        let want = (1..=200).map(|i| format!("out {i}\nerr {i}\n")).collect::<Vec<_>>().concat();
        assert_eq!(place.read("both").as_deref(), Some(want.as_str()), "{mode}");
        outside(&place, mode, &format!("$S bash -c '{lines}' > one 2> two")).ok();
        assert_eq!(place.read("one").unwrap_or_default().lines().count(), 200, "{mode}");
        assert_eq!(place.read("two").unwrap_or_default().lines().count(), 200, "{mode}");
        outside(
            &place,
            mode,
            "{ echo first; $S echo second; echo third; } > shared; echo x > appended; $S echo y >> appended",
        )
        .ok();
        assert_eq!(place.read("shared").as_deref(), Some("first\nsecond\nthird\n"), "{mode}");
        assert_eq!(place.read("appended").as_deref(), Some("x\ny\n"), "{mode}");
    }
}

#[test]
fn all_of_a_large_output_arrives_before_the_command_returns() {
    for mode in MODES {
        let place = Place::new();
        let ran = outside(
            &place,
            mode,
            "$S head -c 50000000 /dev/zero > zeros; stat -c %s zeros; $S head -c 3000000 /dev/zero >> zeros; stat -c %s zeros",
        );
        assert_eq!(ran.ok(), "50000000\n53000000\n", "{mode}");
    }
}

#[test]
fn a_full_disk_under_stdout_is_no_success() {
    let place = Place::new();
    // A limit on the size of files stands for the disk; the session's own records stay below it.
    let ran = outside(&place, "static", "ulimit -f 32; trap '' XFSZ; $S head -c 100000 /dev/zero > small");
    assert_ne!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("output could not be written"), "{}", ran.err);
}

#[test]
fn a_named_pipe_is_carried_in_both_directions() {
    for mode in MODES {
        let Some(place) = Place::with(&["mkfifo"]) else { return };
        let ran = outside(&place, mode, "mkfifo ~/in ~/out; seq 5000 > ~/in & cat ~/out > copy & $S cat < ~/in > ~/out; wait; sha256sum < copy; seq 5000 | sha256sum").ok();
        let sums: Vec<&str> = ran.lines().collect();
        assert_eq!(sums.first(), sums.get(1), "{mode}: {ran}");
    }
}

#[test]
fn a_stream_that_is_a_directory_or_unknown_is_refused() {
    for mode in MODES {
        let place = Place::new();
        for (redirection, says) in [("< ~", "stdin is a directory"), ("0> ~/made", "open for writing only")] {
            let ran = outside(&place, mode, &format!("$S touch ran {redirection}")).code(125);
            ran.says(&[says, "would lead out of the sandbox", "/dev/null"]);
            assert!(!place.exists("ran"));
        }
    }
}

#[test]
fn root_cannot_change_the_hosts_devices_through_a_stream() {
    let place = Place::new();
    let before = place.host("stat -c %a /dev/null").ok();
    outside(
        &place,
        "static",
        "$S bash -c 'chmod 600 /proc/self/fd/0; chmod 600 /proc/self/fd/1' < /dev/null > /dev/null",
    );
    assert_eq!(place.host("stat -c %a /dev/null").ok(), before);
}

#[test]
fn streams_of_an_attached_command_lead_nowhere_else() {
    for mode in MODES {
        let place = Place::new();
        place.write("home:tool", "one\ntwo\n");
        place.write("home:log", "secret before\n");
        let mut running = place.start(&["--mode", mode], "echo ready; read line");
        let attach = |script: &str, redirections: &str| {
            let line = format!("\"$0\" attach last -- bash -c '{script}' {redirections}");
            finish(place.command("bash").args(["-c", &line]).arg(binary()).stdin(Stdio::null()), b"")
        };
        attach(
            "read line; echo $line; (: > /proc/self/fd/0) 2>/dev/null; cat /proc/self/fd/1 & sleep 0.2; kill $!",
            "< ~/tool >> ~/log",
        );
        assert_eq!(place.read("home:tool").as_deref(), Some("one\ntwo\n"), "{mode}");
        assert_eq!(place.read("home:log").as_deref(), Some("secret before\none\n"), "{mode}");
        attach("head -c 20000000 /dev/zero; echo end >&2", "> zeros 2> errors").ok();
        assert_eq!(place.host("stat -c %s zeros").ok(), "20000000\n", "{mode}");
        assert_eq!(place.read("errors").as_deref(), Some("end\n"), "{mode}");
        attach("true", "< ~").code(125).says(&["stdin is a directory"]);
        running.tell("x\n");
        assert_eq!(running.end().0, 0, "{mode}");
    }
}
