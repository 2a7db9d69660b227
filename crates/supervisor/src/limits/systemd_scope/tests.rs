//! What is asked of the service manager, byte for byte; where its bus is; and, in a guest that systemd runs, the scope.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use super::*;
use crate::limits::dbus::marshal::NO_AUTO_START;
use crate::limits::dbus::tests::{Daemon, FAILURE, Place, bytes};

/// What `busctl --user call` of systemd 252 has sent.
const CAPTURED: &str = "
    6c010401c000000002000000b600000001016f00190000002f6f72672f667265656465736b746f702f73797374656d643100000000000000
    030173001200000053746172745472616e7369656e74556e697400000000000002017300200000006f72672e667265656465736b746f702e
    73797374656d64312e4d616e61676572000000000000000006017300180000006f72672e667265656465736b746f702e73797374656d6431
    000000000000000008016700107373612873762961287361287376292900000014000000636f6666657264616d2d303132332e73636f7065
    00000000040000006661696c000000008b000000000000000b0000004465736372697074696f6e000173000011000000436f666665726461
    6d2073657373696f6e000000000000000800000044656c656761746500016200010000000000000004000000504944730002617500000000
    04000000921000000b000000436f6c6c6563744d6f6465000173000012000000696e6163746976652d6f722d6661696c6564000000000000";
/// Where a message has its flags, and busctl's own: a person may be asked for a password.
const FLAGS: (usize, u8) = (2, 4);

#[test]
fn the_call_is_what_systemds_own_client_sends() {
    let mut expected = bytes(CAPTURED);
    assert_eq!(std::mem::replace(&mut expected[FLAGS.0], NO_AUTO_START), FLAGS.1);
    assert_eq!(start("cofferdam-0123.scope", "Cofferdam session", 4242).encode(2), expected);
}

#[test]
fn without_a_manager_there_is_an_error_and_no_wait() {
    let directory = std::env::temp_dir().join(format!("cofferdam-scope-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
    let environment = [("XDG_RUNTIME_DIR".to_owned(), directory.display().to_string())];
    std::fs::write(directory.join("bus"), "no socket").expect("it is ours");
    if !rustix::process::geteuid().is_root() {
        assert_eq!(manager_bus(&environment), None, "a file is no bus");
        let error = enter("cofferdam-test", "test", &environment).expect_err("there is no manager");
        assert!(matches!(error, ScopeError::NoBus), "{error}");
    }
    std::fs::remove_dir_all(&directory).expect("it is ours");
}

#[test]
fn a_manager_that_is_not_on_the_bus_is_waited_for_but_not_for_ever() {
    let Some(daemon) = Daemon::start("manager") else { return };
    let started = Instant::now();
    // Long enough for a bus on a busy machine to answer at all.
    let until = started + Duration::from_secs(1);
    match ask(&daemon.socket(), &start("cofferdam-test.scope", "test", 1), until) {
        Err(BusError::Error { name, .. }) => assert_eq!(name, NOBODY),
        other => panic!("{other:?}"),
    }
    let took = started.elapsed();
    assert!((Duration::from_millis(950)..Duration::from_millis(1800)).contains(&took), "{took:?}");
}

/// A real daemon's error with another name, which is shorter by less than what it is padded to.
fn nobody() -> Vec<u8> {
    let mut message = bytes(FAILURE);
    let name = b"org.freedesktop.DBus.Error.Spawn.ChildExited";
    let at = message.windows(name.len()).position(|window| window == name).expect("the error has a name");
    message[at..at + name.len()].fill(0);
    message[at..at + NOBODY.len()].copy_from_slice(NOBODY.as_bytes());
    message[at - 4] = u8::try_from(NOBODY.len()).expect("it is short");
    message
}

#[test]
fn time_that_ends_before_the_last_answer_does_not_hide_what_was_said_before() {
    let place = Place::new("mute");
    let listener = UnixListener::bind(place.socket()).expect("a socket");
    std::thread::spawn(move || {
        let (mut first, _) = listener.accept().expect("the client comes");
        first.write_all(&[b"OK 01\r\n".as_slice(), &nobody()].concat()).expect("it listens");
        first.read_to_end(&mut Vec::new()).ok();
        let (mut second, _) = listener.accept().expect("the client comes again");
        second.read_to_end(&mut Vec::new()).ok();
    });
    let until = Instant::now() + Duration::from_millis(500);
    match ask(&place.socket(), &start("cofferdam-test.scope", "test", 1), until) {
        Err(BusError::Error { name, .. }) => assert_eq!(name, NOBODY),
        other => panic!("{other:?}"),
    }
}

/// Set for the process that enters the scope: the scope's name.
const CHILD: &str = "COFFERDAM_TEST_SCOPE";

#[test]
fn guest_systemd_gives_a_scope_that_ends_with_its_process() {
    let environment: Vec<(String, String)> = std::env::vars().collect();
    if let Ok(name) = std::env::var(CHILD) {
        let started = Instant::now();
        let cgroup = enter(&name, "a test of Cofferdam", &environment).unwrap_or_else(|error| panic!("{error:?}"));
        let micros = started.elapsed().as_micros();
        println!("entered {} {micros}", Path::new("/sys/fs/cgroup").join(cgroup).display());
        // Waits until the parent has looked.
        std::io::stdin().read_line(&mut String::new()).expect("the parent tells");
        return;
    }
    if std::env::var("COFFERDAM_TEST_GUEST").as_deref() != Ok("systemd") {
        println!("skipped: only in a guest that systemd runs");
        return;
    }
    let name = format!("cofferdam-test-{}", std::process::id());
    let this = format!("{}::guest_systemd_gives_a_scope_that_ends_with_its_process", crate::own_module(module_path!()));
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", &this, "--nocapture"])
        .env(CHILD, &name)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts again");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("entered ")).expect("it entered a scope");
    println!("{line}");
    let mut words = line.split_whitespace().skip_while(|word| *word != "entered").skip(1);
    let cgroup = PathBuf::from(words.next().expect("a path"));
    assert!(cgroup.ends_with(format!("{name}.scope")), "{line}");
    let members = std::fs::read_to_string(cgroup.join("cgroup.procs")).expect("the scope is there");
    assert_eq!(members.trim(), child.id().to_string(), "it alone is in it");
    let own = cgroup.join("session");
    std::fs::create_dir(&own).expect("the scope is delegated to this user");
    std::fs::remove_dir(&own).expect("it is ours");
    let controllers = std::fs::read_to_string(cgroup.join("cgroup.controllers")).expect("the scope is there");
    assert!(["memory", "pids"].iter().all(|name| controllers.contains(name)), "{controllers}");
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
    let until = Instant::now() + Duration::from_secs(5);
    while cgroup.exists() {
        assert!(Instant::now() < until, "{} stays", cgroup.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}
