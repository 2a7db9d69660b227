//! The program `sandbox-egress` as a supervisor meets it: what it says first, what it refuses, and that it cannot be traced.

use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use cofferdam_kernel::socket;
use cofferdam_policy::{Network, OnUnknown, Ruled};
use cofferdam_reach::message::Said;
use cofferdam_reach::start::{NetworkStart, START, StartMessage, VERSION};
use serde_json::Value;

/// Named at run time: tests also run elsewhere than they were built.
fn program() -> PathBuf {
    let named = std::env::var_os("NEXTEST_BIN_EXE_sandbox-egress");
    named.map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_sandbox-egress")), PathBuf::from)
}

fn start() -> Value {
    let message = StartMessage {
        version: VERSION.to_owned(),
        network: NetworkStart::of(Network::default()),
        unknown: Ruled::default_of(OnUnknown::Deny),
        agent: None,
        published: Vec::new(),
        terminates: None,
    };
    serde_json::to_value(message).expect("it can be written")
}

/// The program with a link, and this side of it.
fn started(command: &mut Command) -> (Child, OwnedFd) {
    let (ours, theirs) = socket::pair().expect("a pair");
    let child = command.env_clear().stdin(Stdio::from(theirs)).spawn().expect("it runs");
    (child, ours)
}

fn heard(link: &OwnedFd) -> Option<Said> {
    let (bytes, _) = socket::receive(link).expect("the link works");
    (!bytes.is_empty()).then(|| serde_json::from_slice(&bytes).expect("a word"))
}

/// What becomes of this document: what the program says, and whether it ended well once the supervisor was gone.
fn answer(document: &Value) -> (Option<Said>, bool) {
    let (mut child, link) = started(&mut Command::new(program()));
    assert_eq!(heard(&link), Some(Said::Ready { version: VERSION.to_owned() }));
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::memfd_create("start", flags).expect("a memfd"));
    file.write_all(document.to_string().as_bytes()).and_then(|()| file.rewind()).expect("it is written");
    let (sockets, _other) = socket::pair().expect("a pair");
    socket::send_all(link.as_fd(), START, &[file.as_fd(), sockets.as_fd()]).expect("it is sent");
    rustix::net::shutdown(&link, rustix::net::Shutdown::Write).expect("it is told to end");
    let said = heard(&link);
    (said, child.wait().expect("it ends").success())
}

fn warning(document: &Value) -> String {
    match answer(document) {
        (Some(Said::Warn { text }), false) => text,
        other => panic!("it was not refused: {other:?}"),
    }
}

#[test]
fn a_start_of_its_own_version_is_served_until_the_supervisor_is_gone() {
    assert_eq!(answer(&start()), (None, true));
}

#[test]
fn a_start_with_an_unknown_field_is_refused() {
    let mut document = start();
    document["network"]["later"] = true.into();
    let text = warning(&document);
    assert!(text.contains("unknown field `later`"), "{text}");
}

#[test]
fn a_start_of_another_version_is_refused_whatever_else_is_in_it() {
    let text = warning(&serde_json::json!({ "version": "9.9.9/9", "later": true }));
    assert!(text.contains("9.9.9/9") && text.contains(VERSION), "{text}");
}

#[test]
fn it_gives_up_every_capability_before_it_says_a_word() {
    let (mut child, link) = started(&mut Command::new(program()));
    assert_eq!(heard(&link), Some(Said::Ready { version: VERSION.to_owned() }));
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    drop(link);
    child.wait().expect("it ends");
    // Without root's rights the bounding set stays, and bounds nothing.
    let is_meant = |line: &&str| line.starts_with("Cap") && !line.starts_with("CapBnd");
    let sets: Vec<&str> = status.lines().filter(is_meant).collect();
    assert!(sets.len() >= 4 && sets.iter().all(|set| set.ends_with("\t0000000000000000")), "{sets:?}");
}

#[test]
fn started_by_hand_it_says_who_starts_it() {
    let output = Command::new(program()).stdin(Stdio::null()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("started by `sandbox`"), "{said}");
}

/// The kernel gives the files in /proc of a process that cannot be traced to root.
#[test]
fn before_it_has_any_secret_it_cannot_be_traced() {
    const OTHER: u32 = 65534;
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root sees which user's a process is that gave that up");
        return;
    }
    let place = PathBuf::from(format!("/var/tmp/cofferdam-egress-program-{}", std::process::id()));
    fs::create_dir(&place).expect("a directory");
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).expect("readable");
    let copy = place.join("sandbox-egress");
    fs::copy(program(), &copy).expect("a copy");
    let (mut child, link) = started(Command::new(&copy).uid(OTHER).gid(OTHER));
    let said = heard(&link);
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    let owner = fs::metadata(format!("/proc/{}/environ", child.id())).expect("it runs").uid();
    drop(link);
    child.wait().expect("it ends");
    fs::remove_dir_all(&place).expect("removed");
    assert_eq!(said, Some(Said::Ready { version: VERSION.to_owned() }));
    assert!(status.contains(&format!("Uid:\t{OTHER}")), "{status}");
    assert_eq!(owner, 0, "a process that can be traced has files of its own user");
}
