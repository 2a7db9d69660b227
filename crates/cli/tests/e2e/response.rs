//! What follows when the workload tries what is a sign of an escape: one critical call ends the session at once, nothing of a
//! transaction is applied, an alert is sent; what harmless programs probe ends nothing.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

use crate::support::{PATIENCE, Place, Ran, binary, wait_for, which};

const CHAIN: &str = "home:.local/state/cofferdam/audit/00000001.ndjson";
const CONFIG: &str = "home:.config/cofferdam/config.toml";
const SETNS: u32 = 308;
const IO_URING_SETUP: u32 = 425;

/// Every call that no harmless program makes inside, by its number.
const CRITICAL: &[(&str, u32, &str)] = &[
    ("open_by_handle_at", 304, "FILESYSTEM"),
    ("pivot_root", 155, "FILESYSTEM"),
    ("setns", SETNS, "PROCESS"),
    ("init_module", 175, "SYSCALL"),
    ("finit_module", 313, "SYSCALL"),
    ("delete_module", 176, "SYSCALL"),
    ("kexec_load", 246, "SYSCALL"),
    ("kexec_file_load", 320, "SYSCALL"),
];

/// Makes a call so many times, and says that it goes on.
fn calling(number: u32, times: u32) -> String {
    format!(
        "import ctypes\nlibc = ctypes.CDLL(None)\nopen('before', 'w')\nfor _ in range({times}): libc.syscall({number}, -1, 0, 0, 0, 0)\nopen('after', 'w')\nprint('after')"
    )
}

fn records(place: &Place, event: &str) -> Vec<Value> {
    let log = place.read(CHAIN).unwrap_or_default();
    let records = log.lines().map(|line| serde_json::from_str(line).expect("every line is a record"));
    records.filter(|record: &Value| record["event"] == event).collect()
}

fn object(ran: &Ran) -> Value {
    serde_json::from_str(ran.err.lines().last().expect("a line")).expect("JSON")
}

#[test]
fn one_critical_call_ends_the_session_at_once_in_every_mode() {
    let modes: [&[&str]; 3] = [&["--mode", "static"], &["--mode", "dynamic"], &["--isolation", "process"]];
    for ((name, number, wall), mode) in CRITICAL.iter().zip(modes.iter().cycle()) {
        let Some(place) = Place::with(&["python3"]) else { return };
        let flags = [*mode, &["--json"]].concat();
        let wait = "while ! [ -e before ]; do sleep 0.01; done; sleep 0.3; touch survived";
        let script = format!("({wait}) & python3 -c \"$0\"; touch later");
        let ran = place.run(&flags, &["sh", "-c", &script, &calling(*number, 1)]).code(126);
        assert!(ran.out.is_empty(), "{name}: {}", ran.out);
        let object = object(&ran);
        assert_eq!((&object["end"], &object["exit_code"]), (&"escape-attempt".into(), &126.into()), "{object}");
        assert_eq!(object["error"]["kind"], "SecurityViolation", "{object}");
        let attempt = &object["attempt"];
        assert_eq!((&attempt["name"], &attempt["wall"]), (&(*name).into(), &(*wall).into()), "{object}");
        let program = attempt["caller"]["program"]["exe"].as_str().unwrap_or_default();
        assert!(program.contains("python"), "{object}");
        assert_eq!(object["indicators"]["critical"], 1, "{object}");
        std::thread::sleep(std::time::Duration::from_millis(700));
        assert!(place.exists("before"), "{name}");
        for left in ["after", "later", "survived"] {
            assert!(!place.exists(left), "{name}: `{left}` was made after the attempt");
        }
        let attempts = records(&place, "ESCAPE_ATTEMPT");
        let [record] = &attempts[..] else { panic!("{name}: {attempts:?}") };
        assert_eq!((&record["severity"], &record["actor"]), (&"CRITICAL".into(), &"workload".into()));
        let details = &record["details"];
        assert_eq!((&details["level"], &details["indicator"]), (&"CRITICAL".into(), &(*wall).into()), "{details}");
        assert_eq!((&details["source"], &details["consequence"]), (&"filter".into(), &"ended".into()), "{details}");
        assert!(details["description"].as_str().is_some_and(|text| !text.is_empty()), "{details}");
        let exited = &records(&place, "SANDBOX_EXITED")[0]["details"];
        assert_eq!(exited["end"], "escape-attempt", "{exited}");
        place.sandbox(&["audit", "verify"]).ok();
    }
}

#[test]
fn a_critical_call_of_an_attached_command_ends_the_session_too() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let running = place.start(&[], "echo ready; sleep 100");
    place.sandbox(&["attach", "last", "--", "python3", "-c", &calling(SETNS, 1)]).code(137);
    assert_eq!(running.end().0, 126);
    assert!(!place.exists("after"));
}

#[test]
fn what_led_to_the_end_is_told_at_the_terminal_and_kept() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let script = "python3 -c \"$0\"; python3 -c \"$1\"";
    place
        .run(&[], &["sh", "-c", script, &calling(IO_URING_SETUP, 1), &calling(SETNS, 1)])
        .code(126)
        .says(&["ended at once, an attempt to escape: `setns` (joins another namespace) by ", "`response.critical`"]);
    let kept = records(&place, "POLICY_VIOLATION").into_iter().find(|record| record["details"]["op"] == "response");
    let kept = kept.expect("a record");
    assert_eq!(kept["severity"], "CRITICAL", "{kept}");
    let events = kept["details"]["events"].as_array().expect("events");
    let calls: Vec<&Value> = events.iter().map(|event| &event["details"]["syscall"]).collect();
    assert_eq!(calls, [&Value::Null, &"io_uring_setup".into(), &"setns".into()], "{events:?}");
    assert_eq!(events[0]["event"], "COMMAND_STARTED", "{events:?}");
}

#[test]
fn nothing_of_a_transaction_is_applied_after_an_attempt_and_it_can_be_read() {
    for flag in ["--transaction=auto", "--transaction"] {
        let Some(place) = Place::with(&["python3"]) else { return };
        place.write("first", "one\n");
        // Control: without the attempt it is applied.
        if flag == "--transaction=auto" {
            place.run(&[flag], &["sh", "-c", "echo x > control"]).code(0);
            assert!(place.exists("control"));
        }
        let script = "echo two >> first; echo new > made; python3 -c \"$0\"";
        let ran = place.run(&[flag], &["sh", "-c", script, &calling(SETNS, 1)]).code(126);
        ran.says(&["nothing that it wrote in its transaction is applied", "sandbox diff"]);
        assert_eq!((place.read("first").as_deref(), place.exists("made")), (Some("one\n"), false), "{flag}");
        let listed: Value = serde_json::from_str(&place.sandbox(&["changes", "--json"]).ok()).expect("JSON");
        assert_eq!(listed["transactions"][0]["state"], "sealed", "{flag}: {listed}");
        assert!(place.sandbox(&["diff", "first"]).ok().contains("+two\n"), "{flag}");
        place.sandbox(&["rollback"]).code(0);
    }
}

#[test]
fn a_critical_call_is_recorded_and_goes_on_where_the_user_says_so_and_not_where_a_project_does() {
    let Some(place) = Place::with(&["python3"]) else { return };
    place.write(".cofferdam/policy.toml", "[response]\ncritical = \"record\"\n");
    place.run(&[], &["python3", "-c", &calling(SETNS, 1)]).code(126);
    place.write(CONFIG, "[response]\ncritical = \"record\"\n");
    assert_eq!(place.run(&[], &["python3", "-c", &calling(SETNS, 1)]).ok(), "after\n");
    assert_eq!(records(&place, "ESCAPE_ATTEMPT").len(), 2);
    // It counts as a violation all the same.
    place.run(&[], &["python3", "-c", &calling(SETNS, 60)]).code(126).says(&["refused system calls"]);
}

#[test]
fn medium_signs_are_counted_and_end_a_session_only_past_the_threshold_that_the_policy_sets() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let ran = place.run(&["--json"], &["python3", "-c", &calling(IO_URING_SETUP, 200)]).code(0);
    assert_eq!(object(&ran)["indicators"]["medium"], 200, "{}", ran.err);
    // A project may only tighten.
    place.write(".cofferdam/policy.toml", "[response]\nmax_medium = 3\n");
    let script = calling(IO_URING_SETUP, 3);
    assert_eq!(place.run(&[], &["python3", "-c", &script]).ok(), "after\n", "three are not past three");
    let ran = place.run(&["--json"], &["python3", "-c", &calling(IO_URING_SETUP, 200)]).code(126);
    assert!(ran.out.is_empty(), "{}", ran.out);
    let object = object(&ran);
    assert_eq!(
        (&object["end"], &object["indicators"]["medium"]),
        (&"too-many-violations".into(), &4.into()),
        "{object}"
    );
    assert!(object["error"]["message"].as_str().is_some_and(|text| text.contains("response.max_medium")), "{object}");
}

#[test]
fn programs_that_are_refused_count_towards_the_threshold() {
    let place = Place::new();
    place.write(CONFIG, "[process]\nexecutables = [\"bash\"]\n[response]\nmax_medium = 2\n");
    let script = "for i in 1 2 3 4 5; do /usr/bin/id; done; echo after > after";
    place.run(&[], &["/bin/bash", "-c", script]).code(126).says(&["more than 2 signs of an escape"]);
    assert!(!place.exists("after"));
}

/// A program that keeps what it was told.
fn hook(place: &Place, text: &str) -> String {
    place.write("home:alert", text);
    let path = place.path("home:alert");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    path.display().to_string()
}

#[test]
fn the_users_hook_is_told_and_a_projects_is_refused() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let told = place.path("home:told").display().to_string();
    let hook = hook(&place, &format!("#!/bin/sh\ncat > {told}\necho \"$1\" >> {told}.word\n"));
    place.write(CONFIG, &format!("[response]\nhook = [\"{hook}\", \"word\"]\n"));
    place.run(&[], &["true"]).ok();
    assert!(!place.exists("home:told"), "nothing happened");
    place.run(&["--transaction"], &["sh", "-c", "echo x > made; python3 -c \"$0\"", &calling(SETNS, 1)]).code(126);
    let alert: Value = serde_json::from_str(&place.read("home:told").expect("it was told")).expect("JSON");
    assert_eq!((&alert["version"], &alert["alert"]), (&1.into(), &"escape-attempt".into()), "{alert}");
    assert_eq!((&alert["attempt"]["name"], &alert["exit_code"]), (&"setns".into(), &126.into()), "{alert}");
    assert!(alert["session"].is_string() && alert["transaction"].is_string(), "{alert}");
    assert_eq!(alert["events"].as_array().map(Vec::len), Some(2), "{alert}");
    assert_eq!(place.read("home:told.word").as_deref(), Some("word\n"));
    let kept = records(&place, "POLICY_VIOLATION").into_iter().find(|record| record["details"]["op"] == "response");
    assert_eq!(kept.expect("a record")["details"]["hook"], "told");
    place.sandbox(&["rollback"]).code(0);

    place.write(".cofferdam/policy.toml", &format!("[response]\nhook = [\"{hook}\"]\n"));
    place.run(&[], &["true"]).code(125).says(&["response.hook"]);
    place.sandbox(&["trust", "--yes"]);
    place.run(&[], &["true"]).code(125).says(&["response.hook"]);
}

#[test]
fn an_alert_that_does_not_arrive_is_said() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let hook = hook(&place, "#!/bin/sh\nexit 3\n");
    for (hook, why) in [(hook.as_str(), "exit status: 3"), ("/nowhere/alert", "No such file")] {
        place.write(CONFIG, &format!("[response]\nhook = [\"{hook}\"]\n"));
        let ran = place.run(&[], &["python3", "-c", &calling(SETNS, 1)]).code(126);
        ran.says(&["the alert did not reach", why]);
    }
}

/// A web server for one request: it answers with this status, and hands on what it was sent, headers and all.
fn server(status: &'static str) -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it has one").port();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        let mut reader = BufReader::new(stream);
        let mut said = String::new();
        let length = loop {
            let begin = said.len();
            reader.read_line(&mut said).expect("text");
            if said[begin..].trim().is_empty() {
                break said.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            }
        };
        let mut body = vec![0; length.expect("a length")];
        reader.read_exact(&mut body).expect("all of it");
        said.push_str(&String::from_utf8(body).expect("text"));
        write!(reader.get_mut(), "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").expect("it listens");
        sender.send(said).expect("the test waits");
    });
    (port, receiver)
}

/// As the guide has it: no webhook of our own, and no script.
#[test]
fn an_alert_reaches_a_web_server_by_a_hook_of_one_line_and_a_refusal_is_said() {
    let Some(place) = Place::with(&["python3", "curl"]) else { return };
    let curl = which("curl").expect("it is there").display().to_string();
    for (status, is_taken) in [("200 OK", true), ("500 Internal Server Error", false)] {
        let (port, said) = server(status);
        let url = format!("http://127.0.0.1:{port}/alert");
        place.write(
            CONFIG,
            &format!("[response]\nhook = [\"{curl}\", \"-sf\", \"-m\", \"8\", \"--json\", \"@-\", \"{url}\"]\n"),
        );
        let ran = place.run(&[], &["python3", "-c", &calling(SETNS, 1)]).code(126);
        let said = said.recv_timeout(PATIENCE).expect("it was asked");
        assert!(said.starts_with("POST /alert HTTP/1.1") && said.contains("application/json"), "{said}");
        let (_, body) = said.split_once("\r\n\r\n").expect("a body");
        let alert: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(
            (&alert["alert"], &alert["attempt"]["name"]),
            (&"escape-attempt".into(), &"setns".into()),
            "{alert}"
        );
        assert_eq!(!ran.err.contains("the alert did not reach"), is_taken, "{}", ran.err);
    }
}

/// Runs what programs try at their start or to wall themselves in: none of it may end the session.
fn probes_end_nothing(programs: &[&str], scripts: &[&str]) {
    let Some(place) = Place::with(programs) else { return };
    for script in scripts {
        for mode in ["static", "dynamic"] {
            let ran = place.run(
                &["--json", "--mode", mode, "--timeout", "40s"],
                &["sh", "-c", "eval \"$0\" >/dev/null 2>&1; true", script],
            );
            let object = object(&ran);
            assert_eq!(object["end"]["exited"]["code"], 0, "`{script}` in {mode}: {object}");
            assert_eq!(object["indicators"]["critical"], 0, "`{script}` in {mode}: {object}");
        }
    }
}

#[test]
fn probes_of_codex_and_its_own_sandbox_do_not_end_a_session() {
    probes_end_nothing(&["codex"], &["codex --version", "HOME=$PWD codex sandbox -- true"]);
}

#[test]
fn probes_of_claude_do_not_end_a_session() {
    probes_end_nothing(&["claude"], &["claude --version", "HOME=$PWD claude -p hello"]);
}

#[test]
fn probes_of_chromium_do_not_end_a_session() {
    // Once as it is, which root may not do, and once without its own sandbox.
    let page = "HOME=$PWD chromium --headless --dump-dom about:blank";
    probes_end_nothing(&["chromium"], &[page, &format!("{page} --no-sandbox | grep -q '<body>'")]);
}

#[test]
fn probes_of_nix_do_not_end_a_session() {
    let derivation = "derivation { name = \"x\"; builder = \"/bin/sh\"; system = \"x86_64-linux\"; }";
    let build = |store: &str| format!("NIX_REMOTE={store} nix-build --expr '{derivation}'");
    probes_end_nothing(&["nix-build"], &[&build("''"), &build("$PWD/store"), &build("daemon")]);
}

#[test]
fn probes_of_podman_do_not_end_a_session() {
    probes_end_nothing(
        &["podman"],
        &["HOME=$PWD podman info", "HOME=$PWD podman run --rm -q docker.io/library/busybox true"],
    );
}

#[test]
fn probes_of_programs_that_sandbox_themselves_do_not_end_a_session() {
    let bwrap = ["bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev true", "bwrap --ro-bind / / true"];
    let unshare = ["unshare -Urmpf true", "unshare --net --mount true"];
    let lists = ["node -e 'process.exit(0)'", "findmnt", "lsns"];
    probes_end_nothing(&["bwrap", "unshare", "node", "findmnt", "lsns"], &[&bwrap[..], &unshare, &lists].concat());
    let Some(place) = Place::with(&["python3"]) else { return };
    let ran = place.run(&["--json"], &["sh", "-c", "unshare -U true; true"]).code(0);
    assert_eq!(object(&ran)["indicators"]["medium"], 1, "the control: it is noticed and counted");
    // Keyrings, perf and io_uring, as runtimes probe them.
    for number in [248, 249, 250, 298, 425] {
        place.run(&[], &["python3", "-c", &calling(number, 3)]).code(0);
    }
}

#[test]
fn what_an_attempt_came_from_may_not_run_until_it_is_released_with_a_reason() {
    let Some(place) = Place::with(&["python3"]) else { return };
    place.write("tool.py", &calling(SETNS, 1));
    place.write("other.py", "print('other')");
    place.run(&[], &["python3", "tool.py"]).code(126).says(&["tool.py may not run any more"]);
    // Under another name it is the same program; another program of the same interpreter is not.
    place.write("copy.py", &calling(SETNS, 1));
    for script in ["tool.py", "./copy.py"] {
        let ran = place.run(&["--json"], &["python3", script]).code(126);
        let object = object(&ran);
        assert_eq!((&object["end"], &object["error"]["kind"]), (&"refused".into(), &"UnauthorizedAccess".into()));
        ran.says(&["is quarantined since session", "sandbox quarantine release"]);
    }
    assert_eq!(place.run(&[], &["python3", "other.py"]).ok(), "other\n");
    let listed: Value = serde_json::from_str(&place.sandbox(&["quarantine", "list", "--json"]).ok()).expect("JSON");
    let entry = &listed["quarantined"][0];
    assert_eq!(entry["why"], "setns", "{listed}");
    let hash = entry["hash"].as_str().expect("a hash").to_owned();
    assert!(place.sandbox(&["quarantine", "list"]).ok().contains(&hash));

    place.sandbox(&["quarantine", "release", &hash]).code(125);
    place.sandbox(&["quarantine", "release", &hash, "--reason", " "]).code(125).says(&["needs a reason"]);
    place.sandbox(&["quarantine", "release", "0123456789", "--reason", "x"]).code(1).says(&["nothing with the hash"]);
    place.sandbox(&["quarantine", "release", &hash[..12], "--reason", "a test of mine"]).code(0);
    let released = records(&place, "POLICY_CHANGED").pop().expect("a record")["details"].clone();
    assert_eq!((&released["sha256"], &released["reason"]), (&hash.into(), &"a test of mine".into()), "{released}");
    place.write(CONFIG, "[response]\ncritical = \"record\"\n");
    assert_eq!(place.run(&[], &["python3", "tool.py"]).ok(), "after\n");
}

#[test]
fn no_interpreter_and_no_program_of_the_system_is_quarantined() {
    let Some(place) = Place::with(&["nsenter", "python3"]) else { return };
    place.run(&[], &["nsenter", "--uts=/proc/self/ns/uts", "true"]).code(126);
    place.run(&[], &["python3", "-c", &calling(SETNS, 1)]).code(126);
    assert_eq!(place.sandbox(&["quarantine", "list"]).ok(), "no program is quarantined\n");
    assert_eq!(place.run(&[], &["python3", "-c", "print('on')"]).ok(), "on\n");
}

/// The paths of what is quarantined, without their directories.
fn quarantined(place: &Place) -> Vec<String> {
    let listed: Value = serde_json::from_str(&place.sandbox(&["quarantine", "list", "--json"]).ok()).expect("JSON");
    let name = |entry: &Value| entry["path"].as_str().and_then(|path| path.rsplit('/').next()).map(str::to_owned);
    listed["quarantined"].as_array().expect("a list").iter().filter_map(name).collect()
}

#[test]
fn a_script_that_changes_what_lies_under_its_name_is_quarantined_as_it_was_started() {
    // By renaming another program over it, and by writing into it.
    for change in ["os.rename('innocent.py', 'tool.py')", "open('tool.py', 'w').write(open('innocent.py').read())"] {
        for flags in [&[][..], &["--transaction"]] {
            let Some(place) = Place::with(&["python3"]) else { return };
            let tool = format!("import os\n{change}\n{}", calling(SETNS, 1));
            place.write("tool.py", &tool);
            place.write("innocent.py", "print('innocent')");
            place.run(flags, &["python3", "tool.py"]).code(126).says(&["tool.py may not run any more"]);
            place.write("again.py", &tool);
            place.run(&[], &["python3", "again.py"]).code(126).says(&["is quarantined since session"]);
            place.write("innocent.py", "print('innocent')");
            assert_eq!(place.run(&[], &["python3", "innocent.py"]).ok(), "innocent\n", "{change} {flags:?}");
        }
    }
}

#[test]
fn a_further_command_is_looked_for_in_the_list_and_its_attempt_is_its_own() {
    let Some(place) = Place::with(&["python3"]) else { return };
    place.write("tool.py", &calling(SETNS, 1));
    place.write("server.py", "import time\nprint('ready', flush=True)\ntime.sleep(100)");
    let begin = || {
        let mut command = place.command(binary());
        command.args(["run", "--", "python3", "server.py"]);
        place.begin_session(command)
    };
    let running = begin();
    place.sandbox(&["attach", "last", "--", "python3", "tool.py"]).code(137);
    assert_eq!(running.end().0, 126);
    assert_eq!(quarantined(&place), ["tool.py"], "not what the session was started with");
    std::fs::remove_file(place.path("before")).expect("the tool made it");
    let running = begin();
    let refused = place.sandbox(&["attach", "last", "--", "python3", "./tool.py"]);
    assert_ne!(refused.code, 0, "{}", refused.err);
    refused.says(&["is quarantined since session"]);
    assert!(!place.exists("before"), "it did not run");
    place.sandbox(&["attach", "last", "--", "true"]).code(0);
    place.sandbox(&["kill", "last"]).code(0);
    running.end();
}

#[test]
fn a_script_that_only_the_transaction_has_is_quarantined_too() {
    for mode in ["overlay", "copy"] {
        let Some(place) = Place::with(&["python3"]) else { return };
        place.write(CONFIG, &format!("transaction_mode = \"{mode}\"\n"));
        place.write("made.py", "print('of the host')");
        place.write("source", &calling(SETNS, 1));
        let running = place.start(&["--transaction"], "cp source made.py; echo ready; sleep 100");
        place.sandbox(&["attach", "last", "--", "python3", "made.py"]).code(137);
        assert_eq!(running.end().0, 126, "{mode}");
        assert_eq!(quarantined(&place), ["made.py"], "{mode}");
        assert_eq!(place.run(&[], &["python3", "made.py"]).ok(), "of the host\n", "{mode}");
        place.write("copy.py", &calling(SETNS, 1));
        place.run(&[], &["python3", "copy.py"]).code(126).says(&["is quarantined since session"]);
    }
}

#[test]
fn what_follows_an_attempt_of_a_detached_command_does_not_wait_for_its_readers() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let told = place.path("home:told").display().to_string();
    let hook = hook(&place, &format!("#!/bin/sh\ncat > {told}.part\nmv {told}.part {told}\n"));
    place.write(CONFIG, &format!("[response]\nhook = [\"{hook}\"]\n"));
    place.write("tool.py", &format!("print('unread', flush=True)\n{}", calling(SETNS, 1)));
    let name = place.run(&["--detach", "--transaction"], &["python3", "tool.py"]).ok().trim().to_owned();
    let alert = wait_for("the alert", || place.read("home:told"));
    let ended = |place: &Place| records(place, "SANDBOX_DESTROYED").len();
    assert_eq!((quarantined(&place), ended(&place)), (vec!["tool.py".to_owned()], 0), "its output is still to be read");
    let alert: Value = serde_json::from_str(&alert).expect("JSON");
    assert_eq!(alert["quarantined"]["hash"].as_str().map(str::len), Some(64), "{alert}");
    place.sandbox(&["output", &name]).says(&[]);
    wait_for("the end of the session", || (ended(&place) == 1).then_some(()));
    // Where the alert said that it would be.
    let transaction = alert["transaction"].as_str().expect("a path");
    assert!(std::path::Path::new(transaction).is_dir(), "{alert}");
    place.sandbox(&["rollback"]).code(0);
}

#[test]
fn what_was_measured_before_the_command_ran_is_recorded() {
    let place = Place::new();
    for mode in ["static", "dynamic"] {
        place.run(&["--mode", mode], &["true"]).ok();
        let entered = records(&place, "SANDBOX_ENTERED").pop().expect("a record")["details"].clone();
        let measured = entered["measured"].as_array().expect("a list");
        for wall in ["capabilities", "seccomp", "namespaces", "mounts"] {
            assert!(measured.contains(&wall.into()), "{mode}: {entered}");
        }
        assert_eq!(measured.contains(&"root".into()), mode == "static", "{entered}");
        let has_scopes = cofferdam_kernel::landlock::abi() >= 6;
        assert_eq!(measured.contains(&"landlock-scopes".into()), has_scopes, "{entered}");
    }
}

/// By the clock of the caller: what the launch takes before the session begins is small beside the quantum.
#[test]
fn the_end_is_told_at_a_multiple_of_the_quantum() {
    let place = Place::new();
    place.write(".cofferdam/policy.toml", "completion_quantum = \"2s\"\n");
    let took = |script: &str| {
        let began = std::time::Instant::now();
        place.run(&[], &["sh", "-c", script]).code(0);
        began.elapsed().as_secs_f64()
    };
    for (script, expected) in [("true", 2.0), ("sleep 0.7", 2.0), ("sleep 2.3", 4.0)] {
        let took = took(script);
        // A slow machine may need a further multiple.
        assert!(took >= expected && took % 2.0 < 1.0, "`{script}` took {took} s");
    }
    place.write(".cofferdam/policy.toml", "completion_quantum = \"11s\"\n");
    place.run(&[], &["true"]).code(125).says(&["at most 10s"]);
    place.write(".cofferdam/policy.toml", "");
    assert!(took("true") < 2.0, "the control");
}
