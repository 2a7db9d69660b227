//! Stopping and looking into processes that make it hard, in a pid namespace of their own.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_plan::{Cover, Covered, KeptBy, Kind, StandsOn};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::names::{Guard, Names};
use super::search::{self, Object};
use crate::halt::{Session, numbers};

/// A Python script as a child of pid 1; it has said that it is up.
struct Inside {
    child: Child,
    processes: OwnedFd,
    first: OwnedFd,
}

impl Inside {
    fn start(script: &str) -> Option<Inside> {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["sh", "-c", "python3 -c \"$0\" & wait", script]).stdout(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            println!("skipped: there is no unshare");
            return None;
        };
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is a pipe")).read_line(&mut line).expect("it can be read");
        if line.trim() != "up" {
            println!("skipped: no Python in a pid namespace of its own");
            child.wait().expect("it ends");
            return None;
        }
        let own = format!("/proc/{}", child.id());
        let children = std::fs::read_to_string(format!("{own}/task/{}/children", child.id())).expect("it has one");
        let first = Pid::from_raw(children.trim().parse().expect("a number")).expect("not 0");
        let first = pidfd_open(first, PidfdFlags::empty()).expect("it runs");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let processes = rustix::fs::open(format!("{own}/root/proc"), flags, Mode::empty()).expect("it is mounted");
        Some(Inside { child, processes, first })
    }

    fn session(&self) -> Session<'_> {
        Session { processes: self.processes.as_fd(), first: self.first.as_fd(), cgroup: None, has_question: false }
    }

    /// The tasks that are neither stopped nor dead nor in a sleep that ends with the stop, as `process/task: state`.
    fn running(&self) -> Vec<String> {
        let proc = format!("/proc/{}/root/proc", self.child.id());
        let mut running = Vec::new();
        for pid in numbers(self.processes.as_fd(), c".").expect("it is there") {
            for task in std::fs::read_dir(format!("{proc}/{pid}/task")).into_iter().flatten().flatten() {
                let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
                let state = status.lines().find(|line| line.starts_with("State:")).unwrap_or_default().to_owned();
                if pid != 1 && !["T", "D", "Z", "X"].iter().any(|still| state.contains(&format!("\t{still} "))) {
                    running.push(format!("{pid}/{}: {state}", task.file_name().display()));
                }
            }
        }
        running
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it ends");
    }
}

/// Stops and continues it so many times; nothing runs when it is said to be stopped.
#[track_caller]
fn assert_stops(inside: &Inside, times: usize) {
    for turn in 0..times {
        let halted = inside.session().stop().expect("it can be stopped");
        let running = inside.running();
        assert!(running.is_empty(), "turn {turn}: {running:?}");
        inside.session().resume(&halted);
    }
}

const LEADER_GONE: &str = "
import ctypes, os, sys, threading
libc = ctypes.CDLL(None)
def rest():
    while open(f'/proc/self/task/{os.getpid()}/stat').read().rsplit(')')[1].split()[0] != 'Z': pass
    held = os.open(sys.executable, os.O_RDONLY)
    print('up', flush=True)
    while True: pass
threading.Thread(target=rest).start()
libc.syscall(93 if os.uname().machine == 'aarch64' else 60, 0)
";

#[test]
fn threads_of_a_process_whose_first_thread_has_ended_are_stopped() {
    let Some(inside) = Inside::start(LEADER_GONE) else { return };
    assert_stops(&inside, 3);
}

#[test]
fn a_process_that_a_peer_continues_is_stopped() {
    // The one that is listed first.
    let script = "
import os, signal
first = os.getpid()
if os.fork():
    while True: pass
print('up', flush=True)
while True:
    os.kill(first, signal.SIGSTOP)
    os.kill(first, signal.SIGCONT)
";
    let Some(inside) = Inside::start(script) else { return };
    assert_stops(&inside, 50);
}

#[test]
fn children_that_are_made_meanwhile_are_stopped() {
    let script = "
import os, signal
print('up', flush=True)
children = []
while True:
    child = os.fork()
    while not child: pass
    children.append(child)
    if len(children) > 2:
        last = children.pop(0)
        os.kill(last, signal.SIGKILL)
        os.waitpid(last, 0)
";
    let Some(inside) = Inside::start(script) else { return };
    assert_stops(&inside, 50);
}

#[test]
fn a_process_that_was_stopped_before_stays_stopped() {
    let script = "
import os, signal
one = os.fork()
if not one: os.kill(os.getpid(), signal.SIGSTOP)
os.waitpid(one, os.WUNTRACED)
print('up', flush=True)
while True: pass
";
    let Some(inside) = Inside::start(script) else { return };
    assert_stops(&inside, 3);
    let began = Instant::now();
    while inside.running().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(10), "nothing goes on");
    }
    let running = inside.running();
    assert_eq!(running.len(), 1, "{running:?}");
}

/// A timer that sends SIGCONT: any stop by signals ends with it.
const CONTINUED_BY_A_TIMER: &str = "
import ctypes, time
libc = ctypes.CDLL(None)
# struct sigevent: value, signo SIGCONT, notify SIGEV_SIGNAL
event, timer = (ctypes.c_int * 16)(0, 0, 18, 0), ctypes.c_void_p()
if libc.timer_create(1, event, ctypes.byref(timer)): raise OSError
every = (ctypes.c_long * 4)(0, 20000000, 0, 20000000)
if libc.timer_settime(timer, 0, every, None): raise OSError
print('up', flush=True)
while True: pass
";

#[test]
fn a_stop_that_a_timer_of_the_workload_ends_is_not_taken_for_one_that_held() {
    let Some(inside) = Inside::start(CONTINUED_BY_A_TIMER) else { return };
    let halted = inside.session().stop().expect("it can be stopped");
    std::thread::sleep(Duration::from_millis(60));
    assert!(!inside.session().has_held(&halted).expect("it can be looked at"));
    inside.session().resume(&halted);
    // One that went on and stopped again by itself shows as well.
    let script = CONTINUED_BY_A_TIMER.replace(
        "while True: pass",
        "import os, signal\nsignal.signal(18, lambda *_: os.kill(os.getpid(), signal.SIGSTOP))\nwhile True: pass",
    );
    let Some(inside) = Inside::start(&script) else { return };
    let halted = inside.session().stop().expect("it can be stopped");
    std::thread::sleep(Duration::from_millis(60));
    assert!(!inside.session().has_held(&halted).expect("it can be looked at"));
    inside.session().resume(&halted);
}

#[test]
fn a_stop_that_nothing_ends_has_held() {
    let Some(inside) = Inside::start("print('up', flush=True)\nwhile True: pass") else { return };
    for _ in 0..20 {
        let halted = inside.session().stop().expect("it can be stopped");
        std::thread::sleep(Duration::from_millis(5));
        assert!(inside.session().has_held(&halted).expect("it can be looked at"));
        inside.session().resume(&halted);
    }
}

fn object(path: &Path) -> Object {
    let device = path.metadata().expect("it is there").dev();
    let inode = path.metadata().expect("it is there").ino();
    (rustix::fs::major(device), rustix::fs::minor(device), inode)
}

/// Whether the script holds a file whose path it is given, and not another one.
#[track_caller]
fn assert_held(script: &str) {
    let directory = std::env::temp_dir().join(format!("held-{}-{}", std::process::id(), script.len()));
    let [held, other] = [directory.join("held"), directory.join("other")];
    for path in [&held, &other] {
        std::fs::create_dir_all(path).expect("it can be made");
    }
    let Some(inside) = Inside::start(&script.replace("PATH", &held.display().to_string())) else { return };
    let is_held = |path| search::is_held(inside.processes.as_fd(), &[object(path)]).expect("it can be looked for");
    assert_eq!((is_held(&held), is_held(&other)), (true, false));
    std::fs::remove_dir_all(directory).expect("it can be removed");
}

#[test]
fn what_a_process_holds_whose_first_thread_has_ended_is_found() {
    assert_held(&LEADER_GONE.replace("sys.executable", "'PATH'"));
}

#[test]
fn what_a_thread_holds_that_shares_nothing_is_found() {
    // CLONE_FILES, then CLONE_FS.
    for (flag, how) in [("0x400", "held = os.open('PATH', os.O_RDONLY)"), ("0x200", "os.chdir('PATH')")] {
        let script = format!(
            "
import ctypes, os, threading
def own():
    if ctypes.CDLL(None).unshare({flag}): raise OSError
    {how}
    print('up', flush=True)
    while True: pass
threading.Thread(target=own).start()
"
        );
        assert_held(&script);
    }
}

#[test]
fn a_directory_is_known_only_if_all_of_it_is() {
    let directory = std::env::temp_dir().join(format!("below-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("a/b")).expect("it can be made");
    let below = |most| {
        let mut objects = Vec::new();
        (super::below(&directory, most, &mut objects), objects.len())
    };
    assert_eq!((below(2), below(1)), ((true, 2), (false, 1)));
    std::fs::remove_dir_all(&directory).expect("it can be removed");
    assert_eq!(below(2), (true, 0));
}

#[test]
fn a_turn_takes_in_some_events_and_leaves_the_rest() {
    let directory = std::env::temp_dir().join(format!("heard-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("it can be made");
    let cover = hidden(directory.join("secret"), &directory);
    let mut names = Names::watch([(&cover, directory.as_path(), false)].into_iter()).expect("it can be watched");
    for number in 0..2000 {
        std::fs::write(directory.join(number.to_string()), "").expect("it can be made");
    }
    for (most, is_left) in [(1, true), (usize::MAX, false)] {
        names.hear(most).expect("it can be read");
        let mut fds = [PollFd::new(&names, PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&Timespec::default())), Ok(usize::from(is_left)), "{most}");
    }
    std::fs::remove_dir_all(directory).expect("it can be removed");
}

/// A workload may close a directory of its own before the first look at the names in it. What a host program did there
/// before cannot be told any more.
#[test]
fn a_closed_directory_is_no_fallen_cover_unless_something_was_heard_of_the_name() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root can look into every directory");
        return;
    }
    for was_replaced in [false, true] {
        let tree = std::env::temp_dir().join(format!("closed-{}-{was_replaced}", std::process::id()));
        let closed = tree.join("closed");
        std::fs::create_dir_all(&closed).expect("it can be made");
        std::fs::write(closed.join("secret"), "").expect("it can be made");
        let cover = hidden(closed.join("secret"), &tree);
        let mut names = Names::watch([(&cover, tree.as_path(), false)].into_iter()).expect("it can be watched");
        let inside = rustix::fs::open(&tree, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("it is there");
        names.enter(&tree, inside).expect("it can be entered");
        if was_replaced {
            std::fs::write(tree.join("new"), "").expect("it can be made");
            std::fs::rename(tree.join("new"), closed.join("secret")).expect("it can be moved");
        }
        std::fs::set_permissions(&closed, Permissions::from_mode(0o000)).expect("it is ours");
        names.hear(usize::MAX).expect("it can be read");
        let while_closed = names.suspects();
        std::fs::set_permissions(&closed, Permissions::from_mode(0o700)).expect("it is ours");
        if was_replaced {
            assert_eq!(while_closed, Err(Errno::ACCESS));
        } else {
            assert_eq!(while_closed, Ok(Vec::new()));
            assert_eq!(names.suspects().map(|all| all.len()), Ok(1), "it was never covered");
        }
        std::fs::remove_dir_all(tree).expect("it can be removed");
    }
}

/// The set-up's covers are not in a directory that came later: closed, it hides what it shows once it is opened.
#[test]
fn of_a_closed_directory_that_came_later_nothing_is_believed() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root can look into every directory");
        return;
    }
    for (mode, is_absent) in [(0o000, false), (0o600, false), (0o600, true), (0o400, true)] {
        let tree = std::env::temp_dir().join(format!("later-{}-{mode:o}-{is_absent}", std::process::id()));
        let [closed, new] = [tree.join("closed"), tree.join("new")];
        std::fs::create_dir_all(&new).expect("it can be made");
        std::fs::write(new.join("secret"), "TOKEN").expect("it can be made");
        if !is_absent {
            std::fs::create_dir(&closed).expect("it can be made");
            std::fs::write(closed.join("secret"), "").expect("it can be made");
        }
        let mut names = Names::watch(std::iter::empty()).expect("it can be watched");
        let guard = Guard { what: Covered::Hidden, kind: Kind::File, exec: false, is_absent };
        names.add(&closed.join("secret"), &tree, guard, is_absent).expect("it can be watched");
        let inside = rustix::fs::open(&tree, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("it is there");
        names.enter(&tree, inside).expect("it can be entered");
        if !is_absent {
            std::fs::rename(&closed, tree.join("old")).expect("it can be moved");
        }
        std::fs::set_permissions(&new, Permissions::from_mode(mode)).expect("it is ours");
        std::fs::rename(&new, &closed).expect("it can be moved");
        let looked = names.hear(usize::MAX).and_then(|()| names.suspects());
        std::fs::set_permissions(&closed, Permissions::from_mode(0o700)).expect("it is ours");
        assert_eq!(looked, Err(Errno::ACCESS), "{mode:o} {is_absent}");
        std::fs::remove_dir_all(tree).expect("it can be removed");
    }
}

/// File systems give the number of a removed directory to the next one.
#[test]
fn a_directory_with_the_number_of_one_that_is_gone_is_another() {
    let tree = std::env::temp_dir().join(format!("number-{}", std::process::id()));
    let sub = tree.join("sub");
    std::fs::create_dir_all(&sub).expect("it can be made");
    std::fs::write(sub.join("secret"), "").expect("it can be made");
    let cover = hidden(sub.join("secret"), &tree);
    let mut names = Names::watch([(&cover, tree.as_path(), false)].into_iter()).expect("it can be watched");
    let inside = rustix::fs::open(&tree, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("it is there");
    names.enter(&tree, inside).expect("it can be entered");
    let mut reused = 0;
    for _ in 0..20 {
        let before = std::fs::metadata(&sub).expect("it is there").ino();
        std::fs::remove_dir_all(&sub).expect("it can be removed");
        names.hear(usize::MAX).expect("it can be read");
        names.suspects().expect("it can be looked at");
        std::fs::create_dir(&sub).expect("it can be made");
        names.hear(usize::MAX).expect("it can be read");
        names.suspects().expect("it can be looked at");
        std::fs::write(sub.join("secret"), "TOKEN").expect("it can be made");
        names.hear(usize::MAX).expect("it can be read");
        assert_eq!(names.suspects().map(|all| all.len()), Ok(1), "of {reused} with the same number");
        reused += u32::from(std::fs::metadata(&sub).expect("it is there").ino() == before);
    }
    println!("{reused} of 20 had the number of the one before");
    std::fs::remove_dir_all(tree).expect("it can be removed");
}

fn hidden(path: PathBuf, tree: &Path) -> Cover {
    Cover {
        path,
        what: Covered::Hidden,
        kind: Kind::File,
        stands_on: StandsOn::Host,
        kept_by: KeptBy::Keeper,
        tree: Some(tree.to_path_buf()),
    }
}

#[test]
fn what_cannot_be_looked_at_counts_as_held() {
    let directory = std::env::temp_dir().join(format!("unreadable-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("it can be made");
    let processes = rustix::fs::open(&directory, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).expect("it is there");
    let is_held = || search::is_held(processes.as_fd(), &[(0, 0, 1)]).expect("it can be looked for");
    assert!(!is_held());
    std::fs::write(directory.join("7"), "").expect("it can be made");
    assert!(is_held());
    std::fs::remove_dir_all(directory).expect("it can be removed");
}
