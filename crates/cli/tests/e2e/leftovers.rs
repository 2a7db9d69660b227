//! What a hostile command leaves for later: files that hang the process that opens them, trees that cannot be removed by
//! path, locks, and the remains of sessions that were killed. The next command must not notice.

use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode};

use crate::support::{Place, binary, wait_for};

/// Longest that a command may take which has nothing to do.
const SOON: Duration = Duration::from_secs(5);

fn make_fifo(place: &Place, name: &str) {
    rustix::fs::mknodat(CWD, place.path(name), FileType::Fifo, Mode::RWXU, 0).expect("any user can make a fifo");
}

/// `sandbox` with these arguments, ended if it hangs.
fn soon(place: &Place, arguments: &str) -> i32 {
    let started = Instant::now();
    let script = format!("timeout -s KILL 20 '{}' {arguments} >/dev/null 2>&1", binary().display());
    let code = place.host(&script).code;
    assert!(started.elapsed() < SOON, "`{arguments}` took {:?}", started.elapsed());
    code
}

#[test]
fn a_policy_that_is_a_pipe_or_endless_is_an_error_at_once() {
    let place = Place::new();
    std::fs::create_dir(place.path(".cofferdam")).expect("writable");
    let policy = place.path(".cofferdam/policy.toml");
    let kinds: [(&str, &dyn Fn()); 3] = [
        ("a fifo", &|| make_fifo(&place, ".cofferdam/policy.toml")),
        ("a device", &|| std::os::unix::fs::symlink("/dev/zero", &policy).expect("writable")),
        ("10 GiB", &|| {
            std::fs::File::create(&policy).and_then(|file| file.set_len(10 << 30)).expect("it holds nothing");
        }),
    ];
    for (kind, make) in kinds {
        make();
        for command in ["run -- true", "explain -- true", "trust"] {
            assert_eq!(soon(&place, command), 125, "{command}: {kind}");
        }
        assert_eq!(soon(&place, "doctor"), 0, "{kind}");
        std::fs::remove_file(&policy).expect("it was made");
    }
    assert_eq!(soon(&place, "run -- true"), 0);
}

#[test]
fn special_files_under_names_that_git_and_the_lists_know_hang_nobody() {
    let place = Place::new();
    for name in [".git", ".env", ".envrc", ".mcp.json", ".vscode"] {
        make_fifo(&place, name);
    }
    let _socket = std::os::unix::net::UnixListener::bind(place.path(".claude")).expect("a socket can be made");
    assert_eq!(soon(&place, "run -- true"), 0);
    std::fs::remove_file(place.path(".git")).expect("it was made");
    place.write(".git", "gitdir: entry\n");
    std::fs::create_dir(place.path("entry")).expect("writable");
    make_fifo(&place, "entry/gitdir");
    make_fifo(&place, "entry/commondir");
    assert_eq!(soon(&place, "run -- true"), 0);
    std::fs::File::create(place.path(".git")).and_then(|file| file.set_len(10 << 30)).expect("it holds nothing");
    assert_eq!(soon(&place, "run -- true"), 0);
    std::fs::remove_file(place.path(".git")).expect("it was made");
    for directory in [".git/objects", ".git/refs"] {
        std::fs::create_dir_all(place.path(directory)).expect("writable");
    }
    for name in [".git/HEAD", ".git/config", ".git/commondir"] {
        make_fifo(&place, name);
    }
    assert_eq!(soon(&place, "run -- true"), 0);
}

#[test]
fn a_lock_on_a_stand_in_keeps_no_session_waiting() {
    let Some(place) = Place::with(&["flock"]) else { return };
    drop(place.start(&[], "echo ready; sleep 60"));
    let binary = binary().display().to_string();
    // A command in another project may be able to read it, and to lock it.
    let script = format!("exec 9< .vscode; flock -x 9; timeout -s KILL 20 '{binary}' run -- true 9<&-");
    place.host(&script).ok();
    assert!(!place.exists(".vscode"), "what the killed session left is gone");
}

#[test]
fn a_tree_deeper_than_any_path_is_removed() {
    let Some(place) = Place::with(&["python3"]) else { return };
    place.write("home:.npm/file", "old");
    let script = "
import os
os.chdir(os.path.expanduser('~/.npm'))
for level in range(3000):
    os.mkdir('d')
    os.chdir('d')
os.chmod('.', 0)
";
    place.write("deep.py", script);
    let ran = place.run(&[], &["python3", "deep.py"]).code(0);
    // On a machine with other things to do the time may be up first; then it is said, and later sessions go on.
    let said = ran.err.lines().any(|line| !line.contains("written for this session only"));
    assert_eq!(place.sessions().is_empty(), !said, "{}", ran.err);
    wait_for("the end of the tree", || {
        let left = !place.sessions().is_empty() && place.run(&[], &["sleep", "0.2"]).code == 0;
        (!left).then_some(())
    });
}

#[test]
fn the_next_session_removes_what_a_killed_one_left_and_keeps_what_was_asked_for() {
    let place = Place::new();
    place.write("home:.npm/file", "old");
    place.write("home:data/file", "old");
    place.write("home:untouched/file", "old");
    let path = |name: &str| place.path(name).display().to_string();
    let flags = ["--overlay", &path("home:data"), "--overlay", &path("home:untouched")];
    let alive = place.start(&[], "echo ready; read line");
    for _ in 0..3 {
        drop(
            place.start(
                &flags,
                "echo new > ~/.npm/file; echo new > ~/data/file; chmod 000 ~/.npm; echo ready; sleep 60",
            ),
        );
    }
    // Each has swept those before it.
    assert!((2..=4).contains(&place.sessions().len()), "{:?}", place.sessions());
    place.sweep(1);
    assert_eq!(place.sessions().len(), 1, "the one that lives");
    let kept: Vec<_> = place.path("home:.local/state/cofferdam/kept").read_dir().expect("made").flatten().collect();
    assert_eq!(kept.len(), 3);
    for session in kept {
        let slots: Vec<_> = session.path().read_dir().expect("a directory").flatten().map(|e| e.path()).collect();
        let upper = slots.iter().find(|path| path.join("upper").is_dir()).expect("one overlay is kept");
        assert_eq!(std::fs::read_to_string(upper.join("upper/file")).expect("kept"), "new\n");
        assert_eq!(slots.len(), 3, "{slots:?}: where it lay, and what it says of itself");
    }
    assert_eq!(alive.end().0, 1, "it reads to the end of its input");
    wait_for("the end of the last session's directory", || place.sessions().is_empty().then_some(()));
}
