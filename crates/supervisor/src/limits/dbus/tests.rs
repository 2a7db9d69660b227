//! The client against a real bus daemon, against peers that hang, hang up or talk nonsense, and against bytes that
//! systemd's own client and a real daemon have sent.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::marshal::{Answer, Call, START, Values, decode, length};
use super::*;

/// A directory for one socket, removed with the test.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cofferdam-bus-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary directory is writable");
        Place(path)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("bus")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn call(member: &'static str) -> Call<'static> {
    let name = "org.freedesktop.DBus";
    let (path, signature, body) = ("/org/freedesktop/DBus", "", Values::default());
    Call { destination: name, path, interface: name, member, signature, body }
}

/// Later than any peer here answers, on a busy machine, too.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// What the client says to a peer that reads the request and then does `answer`.
fn against(name: &str, answer: impl FnOnce(&mut std::os::unix::net::UnixStream) + Send + 'static) -> BusError {
    against_until(soon(), name, answer)
}

fn against_until(
    until: Instant,
    name: &str,
    answer: impl FnOnce(&mut std::os::unix::net::UnixStream) + Send + 'static,
) -> BusError {
    let place = Place::new(name);
    let listener = UnixListener::bind(place.socket()).expect("a socket");
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client comes");
        stream.read_exact(&mut [0u8; HANDSHAKE.len()]).expect("the client speaks first");
        answer(&mut stream);
    });
    let started = Instant::now();
    let result = Bus::connect(&place.socket(), until).and_then(|bus| bus.call(&call("GetId")));
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    peer.join().expect("the peer ends");
    result.expect_err("no peer here answers well")
}

#[test]
fn peers_that_hang_hang_up_or_talk_nonsense_are_errors_in_time() {
    let pause = Duration::from_millis(600);
    let early = || Instant::now() + pause / 2;
    assert!(matches!(against_until(early(), "silent", move |_| std::thread::sleep(pause)), BusError::Late));
    let half = move |stream: &mut std::os::unix::net::UnixStream| {
        stream.write_all(b"DATA\r\nOK 0123\r\nl\x02\x01\x01").expect("it listens");
        std::thread::sleep(pause);
    };
    assert!(matches!(against_until(early(), "half", half), BusError::Late));
    assert!(matches!(against("gone", |_| {}), BusError::Gone | BusError::Lost(Errno::CONNRESET)));
    let say = |text: &'static [u8]| {
        move |stream: &mut std::os::unix::net::UnixStream| {
            stream.write_all(text).expect("it listens");
            // What the client still sends is not to reset the connection under what it has not read yet.
            stream.shutdown(std::net::Shutdown::Write).expect("it is open");
            std::io::copy(stream, &mut std::io::sink()).ok();
        }
    };
    assert!(matches!(against("rejected", say(b"REJECTED EXTERNAL\r\n")), BusError::Refused));
    assert!(matches!(against("http", say(b"HTTP/1.1 400 Bad Request\r\n")), BusError::Refused));
    assert!(matches!(against("text", say(b"OK 01\r\nGET / HTTP/1.1 ....")), BusError::Malformed));
    let huge = b"OK 01\r\nl\x02\x01\x01\xff\xff\xff\xff\x01\0\0\0\xff\xff\xff\xff";
    assert!(matches!(against("huge", say(huge)), BusError::Malformed));
    let endless = move |stream: &mut std::os::unix::net::UnixStream| {
        stream.set_write_timeout(Some(pause)).expect("it can be set");
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    };
    assert!(matches!(against("endless", endless), BusError::Malformed));
}

#[test]
fn a_bus_that_accepts_nobody_does_not_make_us_wait() {
    let place = Place::new("full");
    let listener = UnixListener::bind(place.socket()).expect("a socket");
    rustix::net::listen(&listener, 0).expect("its queue can be short");
    let waiting: Vec<_> = (0..10).map(|_| Bus::connect(&place.socket(), soon())).collect();
    let last = waiting.last().expect("ten were made");
    assert!(matches!(last, Err(BusError::Connect { errno: Errno::AGAIN, .. })), "{last:?}");
    assert!(matches!(Bus::connect(&place.0.join("none"), soon()), Err(BusError::Connect { errno: Errno::NOENT, .. })));
}

/// A bus daemon of the test's own.
pub(crate) struct Daemon {
    child: Child,
    place: Place,
}

impl Daemon {
    pub(crate) fn start(name: &str) -> Option<Self> {
        let place = Place::new(name);
        let address = format!("--address=unix:path={}", place.socket().display());
        let mut command = Command::new("dbus-daemon");
        command.args(["--session", "--nofork", "--nopidfile", "--print-address", &address]);
        match command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn() {
            Ok(mut child) => {
                let mut line = String::new();
                BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("its address");
                Some(Daemon { child, place })
            }
            Err(error) => {
                println!("skipped: `dbus-daemon` cannot be started: {error}");
                None
            }
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.place.socket()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.child.kill().is_ok() {
            self.child.wait().ok();
        }
    }
}

#[test]
fn a_real_daemon_says_hello_and_answers_or_refuses() {
    let Some(daemon) = Daemon::start("daemon") else { return };
    let ask = |member| Bus::connect(&daemon.socket(), soon()).and_then(|bus| bus.call(&call(member)));
    ask("GetId").expect("every bus has an id");
    match ask("NoSuchMethod") {
        Err(BusError::Error { name, text }) => {
            assert_eq!(name, "org.freedesktop.DBus.Error.UnknownMethod");
            assert!(text.contains("NoSuchMethod"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    // No service is started for our sake: the answer comes from the daemon, at once.
    let destination = "org.freedesktop.systemd1";
    let result = Bus::connect(&daemon.socket(), soon())
        .and_then(|bus| bus.call(&Call { destination, ..call("StartTransientUnit") }));
    match result {
        Err(BusError::Error { name, .. }) => assert_eq!(name, "org.freedesktop.DBus.Error.NameHasNoOwner"),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(char::is_ascii_hexdigit).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("hexadecimal");
    digits.chunks(2).map(byte).collect()
}

/// What dbus-daemon 1.14 has sent: the answer to Hello, a signal, an error.
const WELCOME: &str = "
    6c02010109000000010000003d00000006017300040000003a312e3000000000050175000100000008016700017300000701730014000000
    6f72672e667265656465736b746f702e4442757300000000040000003a312e3000";
const SIGNAL: &str = "
    6c04010109000000020000008d00000001016f00150000002f6f72672f667265656465736b746f702f444275730000000201730014000000
    6f72672e667265656465736b746f702e4442757300000000030173000c0000004e616d654163717569726564000000000601730004000000
    3a312e3000000000080167000173000007017300140000006f72672e667265656465736b746f702e4442757300000000040000003a312e30
    00";
pub(crate) const FAILURE: &str = "
    6c0301013a000000030000007500000006017300040000003a312e3000000000040173002c0000006f72672e667265656465736b746f702e
    444275732e4572726f722e537061776e2e4368696c6445786974656400000000050175000200000008016700017300000701730014000000
    6f72672e667265656465736b746f702e44427573000000003500000050726f63657373206f72672e667265656465736b746f702e73797374
    656d643120657869746564207769746820737461747573203100";

#[test]
fn answers_of_a_real_daemon_are_understood() {
    let text = "Process org.freedesktop.systemd1 exited with status 1".to_owned();
    let name = "org.freedesktop.DBus.Error.Spawn.ChildExited".to_owned();
    let cases =
        [(WELCOME, Answer::Return { to: 1 }), (SIGNAL, Answer::Other), (FAILURE, Answer::Error { to: 2, name, text })];
    for (hex, answer) in cases {
        let message = bytes(hex);
        let start = message.first_chunk::<START>().expect("it is longer");
        assert_eq!((length(start), decode(&message)), (Some(message.len()), Some(answer)));
    }
}

#[test]
fn broken_answers_are_refused_and_never_read_past_their_end() {
    for hex in [WELCOME, SIGNAL, FAILURE] {
        let message = bytes(hex);
        // The head says how long it is; a shorter one lacks something of it, or is complete without its body.
        for end in 0..message.len() {
            if let Some(Answer::Error { .. }) = decode(&message[..end]) {
                panic!("an error without its text: {end}");
            }
        }
        for at in 0..message.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = message.clone();
                changed[at] = value;
                if let Some(length) = changed.first_chunk::<START>().and_then(length) {
                    assert!(length <= START + 2 * super::marshal::MOST);
                }
                // Whatever it is, it is decided without a panic.
                decode(&changed);
            }
        }
    }
}
