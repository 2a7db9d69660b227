//! A limit on output: exactly so many bytes come through and then one line that says so, whatever the streams are and
//! however slowly they are read, and the supervisor stays small. Below the limit no reader notices that there is one.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use cofferdam_testkit::{Scene, memory, program};
use rustix::process::Signal;
use rustix::pty::OpenptFlags;

const MIB: usize = 1 << 20;
const MARKER: &str = "[sandbox: output limit of 1 MiB reached; the rest is dropped]\n";
const PATIENCE: Duration = Duration::from_secs(20);

/// `limited-launch` in a scene's project, with nothing of the test runner's environment.
fn launch(scene: &Scene, output: &str, seconds: &str, argv: &[&str]) -> Command {
    let mut command = Command::new(program("limited-launch").expect("it is built with the tests"));
    command.args([output, seconds]).args(argv).current_dir(scene.project()).env_clear();
    command.env("HOME", scene.home()).env("PATH", "/usr/local/bin:/usr/bin:/bin").stdin(Stdio::null());
    command
}

fn scene() -> Scene {
    Scene::new().expect("the home directory is writable")
}

fn run(output: &str, argv: &[&str]) -> Output {
    let scene = scene();
    launch(&scene, output, "-", argv).output().expect("it starts")
}

/// Waits for the end; kills what does not end.
fn end(child: &mut Child) -> Option<i32> {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return status.code().or(status.signal().map(|signal| 128 + signal));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("it can be killed");
    child.wait().expect("it can be waited for");
    None
}

fn lines_of_y(count: usize) -> Vec<u8> {
    b"y\n".iter().copied().cycle().take(count).collect()
}

#[test]
fn a_flood_passes_exactly_the_limit_and_one_marker_line() {
    let started = Instant::now();
    let ran = run("1048576", &["yes"]);
    assert_eq!(ran.status.code(), Some(124));
    assert!(ran.stdout == lines_of_y(MIB), "{} bytes", ran.stdout.len());
    assert_eq!(String::from_utf8_lossy(&ran.stderr), MARKER);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn the_limit_counts_both_streams_together() {
    let ran = run("1048576", &["sh", "-c", "yes & yes >&2"]);
    assert_eq!(ran.status.code(), Some(124));
    let errors = ran.stderr.strip_suffix(MARKER.as_bytes()).expect("the marker is on stderr");
    assert_eq!(ran.stdout.len() + errors.len(), MIB);
}

#[test]
fn the_limit_itself_may_be_written() {
    let ran = run("1048576", &["head", "-c", "1048576", "/dev/zero"]);
    assert_eq!((ran.status.code(), ran.stdout.len(), ran.stderr.len()), (Some(0), MIB, 0));
    let ran = run("1048576", &["head", "-c", "1048577", "/dev/zero"]);
    assert_eq!((ran.status.code(), ran.stdout.len()), (Some(124), MIB));
}

#[test]
fn a_marker_starts_on_a_line_of_its_own() {
    let ran = run("3", &["sh", "-c", "printf abcdef >&2"]);
    assert_eq!(
        String::from_utf8_lossy(&ran.stderr),
        "abc\n[sandbox: output limit of 3 bytes reached; the rest is dropped]\n"
    );
}

#[test]
fn streams_stay_apart_and_their_order_together() {
    let script = "echo one; echo two >&2; echo three; echo four >&2";
    let ran = run("1048576", &["sh", "-c", script]);
    assert_eq!((&*ran.stdout, &*ran.stderr), (&b"one\nthree\n"[..], &b"two\nfour\n"[..]));

    let scene = scene();
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let both = writer.try_clone().expect("a second descriptor");
    let mut command = launch(&scene, "1048576", "-", &["sh", "-c", script]);
    let mut child = command.stdout(writer).stderr(both).spawn().expect("it starts");
    drop(command);
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("it is text");
    assert_eq!((end(&mut child), text.as_str()), (Some(0), "one\ntwo\nthree\nfour\n"));
}

#[test]
fn one_pipe_for_both_gets_the_marker_last() {
    let scene = scene();
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let both = writer.try_clone().expect("a second descriptor");
    let mut command = launch(&scene, "1048576", "-", &["yes"]);
    let mut child = command.stdout(writer).stderr(both).spawn().expect("it starts");
    drop(command);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).expect("it can be read");
    assert_eq!(end(&mut child), Some(124));
    assert!(bytes == [&lines_of_y(MIB), MARKER.as_bytes()].concat(), "{} bytes", bytes.len());
}

#[test]
fn a_hundred_megabytes_come_through_unchanged() {
    let scene = scene();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let noise = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    // No length that a buffer or a page has.
    let block: Vec<u8> = noise.take(125_001).flatten().collect();
    let bytes: Vec<u8> = (0..100u8).flat_map(|number| [&block[..], &[number]].concat()).collect();
    std::fs::write(scene.project().join("data"), &bytes).expect("the project is writable");
    let ran = launch(&scene, "1073741824", "-", &["cat", "data"]).output().expect("it starts");
    assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(ran.stdout == bytes, "{} bytes", ran.stdout.len());
}

/// Waits until the pipe that the supervisor writes to takes no more.
fn until_full(child: &Child) {
    let pipe = child.stdout.as_ref().expect("it is piped");
    let size = rustix::pipe::fcntl_getpipe_size(pipe).expect("it is a pipe") as u64;
    let started = Instant::now();
    while rustix::io::ioctl_fionread(pipe).expect("it is a pipe") < size {
        assert!(started.elapsed() < PATIENCE, "the pipe never fills");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_slow_reader_does_not_make_the_supervisor_grow() {
    let scene = scene();
    let mut command = launch(&scene, "1073741824", "-", &["yes"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut buffer = vec![0u8; 256 * 1024];
    let mut peak = 0;
    for _ in 0..100 {
        stdout.read_exact(&mut buffer).expect("the flood goes on");
        std::thread::sleep(Duration::from_millis(5));
        peak = peak.max(memory::own_peak(child.id()).expect("it runs"));
    }
    child.kill().expect("it can be killed");
    child.wait().expect("it can be waited for");
    println!("{} KiB", peak >> 10);
    assert!(peak < 8 << 20, "{peak} bytes");
}

#[test]
fn a_reader_that_never_reads_stops_neither_the_clock_nor_a_request_to_end() {
    let scene = scene();
    let mut child = launch(&scene, "1073741824", "1", &["yes"]).stdout(Stdio::piped()).spawn().expect("it starts");
    let started = Instant::now();
    assert_eq!(end(&mut child), Some(124));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());

    // Past the limit of its output the session has ended, whatever its reader does. A little more than a pipe holds is
    // allowed: with the pipe full, one more piece is fetched, and that is a page at least.
    let mut child = launch(&scene, "66000", "-", &["yes"]).stdout(Stdio::piped()).spawn().expect("it starts");
    let started = Instant::now();
    assert_eq!(end(&mut child), Some(124));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());

    let mut child = launch(&scene, "1073741824", "-", &["yes"]).stdout(Stdio::piped()).spawn().expect("it starts");
    until_full(&child);
    let started = Instant::now();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
    assert_eq!(end(&mut child), Some(128 + 15));
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
}

#[test]
fn the_clock_also_ends_the_wait_for_a_reader_of_the_last_words() {
    let scene = scene();
    let argv = ["head", "-c", "150000", "/dev/zero"];
    let mut child = launch(&scene, "1073741824", "1", &argv).stdout(Stdio::piped()).spawn().expect("it starts");
    assert_eq!(end(&mut child), Some(124), "the command has ended, its output has not arrived");

    // Without a clock it waits, as any program would.
    let mut child = launch(&scene, "1073741824", "-", &argv).stdout(Stdio::piped()).spawn().expect("it starts");
    until_full(&child);
    assert!(child.try_wait().expect("it can be asked").is_none());
    let mut bytes = Vec::new();
    child.stdout.take().expect("it is piped").read_to_end(&mut bytes).expect("it can be read");
    assert_eq!((end(&mut child), bytes.len()), (Some(0), 150_000));
}

#[test]
fn a_reader_that_goes_away_is_sigpipe_for_the_command() {
    let scene = scene();
    let mut child = launch(&scene, "1073741824", "-", &["yes"]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut first = [0u8; 2];
    child.stdout.take().expect("it is piped").read_exact(&mut first).expect("a line comes");
    assert_eq!((end(&mut child), &first), (Some(128 + 13), b"y\n"));

    // Also when nothing is on its way: the next write is told, not the one after it.
    let script = "echo one; read line; sleep 0.3; echo two; echo alive >&2";
    let mut command = launch(&scene, "1048576", "-", &["sh", "-c", script]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdout = child.stdout.take().expect("it is piped");
    stdout.read_exact(&mut [0u8; 4]).expect("a line comes");
    drop(stdout);
    child.stdin.take().expect("it is piped").write_all(b"go\n").expect("it reads");
    let mut errors = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut errors).expect("it is text");
    assert_eq!((end(&mut child), errors.as_str()), (Some(128 + 13), ""));
}

#[test]
fn a_command_that_ignores_sigpipe_gets_the_error() {
    let scene = scene();
    let script = "trap '' PIPE; while echo y; do :; done; exit 7";
    let mut child =
        launch(&scene, "1073741824", "-", &["bash", "-c", script]).stdout(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    assert_eq!(end(&mut child), Some(7));
}

#[test]
fn files_keep_their_position_and_are_appended_to() {
    let scene = scene();
    let path = scene.write("home/project/log", "before\n");
    let open = |append: bool| OpenOptions::new().write(!append).append(append).open(&path).expect("it exists");
    let status = launch(&scene, "1048576", "-", &["echo", "appended"]).stdout(open(true)).status();
    assert_eq!(status.expect("it starts").code(), Some(0));
    let mut file = open(false);
    file.write_all(b"BEFORE\n").expect("it can be written");
    let shared = file.try_clone().expect("a second descriptor");
    let script = "echo out; echo err >&2";
    let status = launch(&scene, "1048576", "-", &["sh", "-c", script]).stdout(file).stderr(shared).status();
    assert_eq!(status.expect("it starts").code(), Some(0));
    assert_eq!(std::fs::read_to_string(&path).expect("it exists"), "BEFORE\nout\nerr\n\n");
}

#[test]
fn sockets_and_devices_are_streams_too() {
    let scene = scene();
    let (mut ours, theirs) = UnixStream::pair().expect("a pair");
    let mut command = launch(&scene, "1048576", "-", &["yes"]);
    let mut child = command.stdout(OwnedFd::from(theirs)).stderr(Stdio::null()).spawn().expect("it starts");
    drop(command);
    let mut bytes = Vec::new();
    ours.read_to_end(&mut bytes).expect("it can be read");
    assert_eq!((end(&mut child), bytes.len()), (Some(124), MIB));

    let device = |name: &str| OpenOptions::new().write(true).open(name).expect("it exists");
    let mut command = launch(&scene, "1073741824", "-", &["head", "-c", "1000000", "/dev/zero"]);
    let mut child = command.stdout(device("/dev/null")).spawn().expect("it starts");
    assert_eq!(end(&mut child), Some(0));
    let mut command = launch(&scene, "1073741824", "-", &["yes"]);
    let mut child = command.stdout(device("/dev/full")).stderr(Stdio::null()).spawn().expect("it starts");
    assert_eq!(end(&mut child), Some(128 + 13), "nobody takes what is written");
}

#[test]
fn a_terminal_is_counted_as_well() {
    let scene = scene();
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a pty");
    rustix::pty::unlockpt(&master).expect("it is ours");
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags).expect("its other side");
    let again = slave.try_clone().expect("a second descriptor");
    let mut command = launch(&scene, "1048576", "-", &["yes"]);
    let mut child = command.stdout(slave).stderr(again).spawn().expect("it starts");
    drop(command);
    let mut bytes = Vec::new();
    // The end of the last process that has the other side open makes the read fail.
    File::from(master).read_to_end(&mut bytes).expect_err("the other side is gone");
    assert_eq!(end(&mut child), Some(124));
    let expected = [&lines_of_y(MIB), MARKER.as_bytes()].concat();
    assert!(String::from_utf8_lossy(&bytes).replace("\r\n", "\n").as_bytes() == expected, "{} bytes", bytes.len());
}

#[test]
fn a_file_never_gets_in_itself_with_or_without_a_limit() {
    let scene = scene();
    let is_file = |output: &str| {
        let file = File::create(scene.project().join("log")).expect("the project is writable");
        let argv = ["test", "-f", "/proc/self/fd/1"];
        launch(&scene, output, "-", &argv).stdout(file).status().expect("it starts").code()
    };
    assert_eq!((is_file("-"), is_file("1048576")), (Some(1), Some(1)));
}
