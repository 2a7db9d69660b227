//! What is refused inside leaves a record, each kind with its wall, its level and a description; what harmless programs probe is
//! not counted, and a flood of it fills no log.

use serde_json::Value;

use crate::support::Place;

const CHAIN: &str = "home:.local/state/cofferdam/audit/00000001.ndjson";

fn records(place: &Place, event: &str) -> Vec<Value> {
    let log = place.read(CHAIN).unwrap_or_default();
    let records = log.lines().map(|line| serde_json::from_str(line).expect("every line is a record"));
    records.filter(|record: &Value| record["event"] == event).map(|record| record["details"].clone()).collect()
}

fn calls(place: &Place, name: &str) -> Vec<Value> {
    records(place, "SYSCALL_BLOCKED").into_iter().filter(|details| details["syscall"] == name).collect()
}

#[track_caller]
fn assert_indicates(details: &Value, wall: &str, level: &str) {
    assert_eq!((&details["indicator"], &details["level"]), (&wall.into(), &level.into()), "{details}");
    assert!(details["description"].as_str().is_some_and(|text| !text.is_empty()), "{details}");
}

/// Calls a number of the C library without its wrapper, so many times.
fn call(number: u32, times: u32) -> String {
    format!(
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nfor _ in range({times}):\n  r = libc.syscall({number}, 2, 0)\nprint(r, ctypes.get_errno())"
    )
}

#[test]
fn a_program_that_is_not_listed_is_recorded_when_it_is_tried() {
    for mode in ["static", "dynamic"] {
        let place = Place::new();
        place.write("home:.config/cofferdam/config.toml", "[process]\nexecutables = [\"bash\", \"true\"]\n");
        let script = "/usr/bin/true && /nowhere/x; /usr/bin/id; /usr/bin/id; cp /usr/bin/id .; ./id; exec ls";
        let ran = place.run(&["--mode", mode], &["/bin/bash", "-c", script]).code(126);
        assert!(ran.out.is_empty(), "{}", ran.out);
        let tried: Vec<(String, u64)> = calls(&place, "execve")
            .iter()
            .map(|details| {
                assert_indicates(details, "PROCESS", "MEDIUM");
                (details["path"].as_str().unwrap_or_default().to_owned(), details["count"].as_u64().unwrap_or(1))
            })
            .collect();
        let of = |name: &str| tried.iter().filter(|(path, _)| path.ends_with(name)).collect::<Vec<_>>();
        assert_eq!(of("/id").len(), 2, "the first is recorded, the others are counted at the end: {tried:?}");
        assert_eq!(of("/id").last().map(|(_, count)| *count), Some(2), "{tried:?}");
        assert_eq!(of("/ls").len(), 1, "{tried:?}");
        // What may run, and what is not there, is no attempt.
        assert!(of("/true").is_empty() && of("/bash").is_empty() && of("/x").is_empty(), "{tried:?}");
    }
}

#[test]
fn without_a_list_no_start_is_reported() {
    let place = Place::new();
    place.inside("/usr/bin/true; ls >/dev/null").ok();
    assert_eq!(calls(&place, "execve"), Vec::<Value>::new());
    let explained: Value =
        serde_json::from_str(&place.sandbox(&["explain", "--json", "--", "true"]).ok()).expect("JSON");
    assert_eq!(explained["plan"]["filter"]["started"], Value::Null, "it would cost every start");
}

#[test]
fn a_process_that_may_not_be_made_is_recorded_and_threads_go_on() {
    // A stand-in for it in PATH may be a script that forks.
    let place = Place::new();
    if !std::path::Path::new("/usr/bin/python3").is_file() {
        println!("skipped: /usr/bin/python3 is not installed");
        return;
    }
    place.write("home:.config/cofferdam/config.toml", "[process]\nallow_fork = false\n");
    let script = "import os, threading\nt = threading.Thread(target=lambda: print('thread')); t.start(); t.join()\nfor _ in range(100):\n  try: os.fork(); print('forked')\n  except PermissionError: pass\nprint('end')";
    let ran = place.run(&["--mode", "static"], &["/usr/bin/python3", "-c", script]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "thread\nend\n"), "{}", ran.err);
    let refused = [calls(&place, "fork"), calls(&place, "clone"), calls(&place, "vfork")].concat();
    assert_eq!(refused.len(), 2, "{refused:?}");
    for details in &refused {
        assert_indicates(details, "PROCESS", "MEDIUM");
    }
    assert_eq!(refused[1]["count"], 100);
}

#[test]
fn probes_of_io_uring_are_recorded_once_and_end_nothing() {
    const IO_URING_SETUP: u32 = 425;
    let Some(place) = Place::with(&["python3"]) else { return };
    let ran = place.run(&["--json"], &["python3", "-c", &call(IO_URING_SETUP, 2000)]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "-1 38\n"), "{}", ran.err);
    let recorded = calls(&place, "io_uring_setup");
    assert_eq!(recorded.len(), 2, "{recorded:?}");
    for details in &recorded {
        assert_indicates(details, "SYSCALL", "MEDIUM");
    }
    assert_eq!(recorded[1]["count"], 2000);
    let object: Value = serde_json::from_str(ran.err.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&object["violations"], &object["probed"][0]["count"]), (&0.into(), &2000.into()), "{object}");
    // How a thread is made on a kernel without clone3 is no violation.
    assert_eq!(calls(&place, "clone3"), Vec::<Value>::new());
}

#[test]
fn socket_families_and_internet_sockets_that_are_refused_are_recorded() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let script = "import socket\nfor family in (socket.AF_PACKET, 38, socket.AF_INET):\n  try: socket.socket(family, socket.SOCK_DGRAM); print('made')\n  except OSError as e: print(e.errno)";
    let ran = place.run(&["--isolation", "process"], &["python3", "-c", script]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "97\n97\n97\n"), "{}", ran.err);
    let recorded = calls(&place, "socket");
    let families: Vec<&Value> = recorded.iter().map(|details| &details["arguments"][0]).collect();
    assert_eq!(families, [&Value::from(17), &Value::from(38), &Value::from(2)]);
    for details in &recorded {
        assert_indicates(details, "NETWORK", "LOW");
    }
    assert!(recorded[2]["description"].as_str().is_some_and(|text| text.contains("no network")), "{recorded:?}");
}

#[test]
fn a_connection_where_there_is_no_network_is_recorded_also_when_the_command_succeeds() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let script = |address: &str| {
        format!("import socket\ntry: socket.create_connection(('{address}', 80), 2)\nexcept OSError: pass")
    };
    // Control: the own loopback is a network of its own.
    place.run(&[], &["python3", "-c", &script("127.0.0.1")]).ok();
    assert_eq!(records(&place, "CONNECTION_ATTEMPT"), Vec::<Value>::new());
    place.run(&["--network", "none"], &["python3", "-c", &script("169.254.169.254")]).ok();
    let recorded = records(&place, "CONNECTION_ATTEMPT");
    let [details] = &recorded[..] else { panic!("{recorded:?}") };
    assert_indicates(details, "NETWORK", "LOW");
    assert_eq!((&details["outcome"], &details["unrouted"]), (&"denied".into(), &1.into()));
    // Where no mode was chosen, also where to.
    let ran = place.run(&[], &["python3", "-c", &script("169.254.169.254")]).code(0);
    assert!(!ran.err.contains("--allow-host"), "no flag alone allows it: {}", ran.err);
    let recorded = records(&place, "CONNECTION_ATTEMPT");
    let details = recorded.last().expect("a record");
    assert_indicates(details, "NETWORK", "LOW");
    assert_eq!((&details["outcome"], &details["host"]), (&"denied".into(), &"169.254.169.254".into()));
}

#[test]
fn a_hidden_path_is_recorded_where_it_is_noticed_and_said_to_be_unrecorded_where_not() {
    let place = Place::new();
    place.write("home:.ssh/id_ed25519", "hunter2");
    place.inside("cat ~/.ssh/id_ed25519; true").ok();
    let recorded = records(&place, "FILE_ACCESS_VIOLATION");
    let hidden = recorded.iter().find(|details| details["path"].as_str().is_some_and(|path| path.ends_with("/.ssh")));
    assert_indicates(hidden.expect("a record"), "FILESYSTEM", "LOW");
    let text = place.sandbox(&["explain", "--mode", "static", "--", "true"]).ok();
    assert!(text.contains("what is hidden is refused, not recorded"), "{text}");
    assert!(!place.sandbox(&["explain", "--", "true"]).ok().contains("not recorded"));
}
