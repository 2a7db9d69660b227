//! Trees that a command could leave behind, made for real in a directory of their own.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::CWD;

use super::*;

const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Removed by the test itself: that is what it tests.
fn top(name: &str) -> (PathBuf, OwnedFd) {
    let path = crate::scratch().join(format!("cofferdam-removal-{name}-{}", std::process::id()));
    std::fs::create_dir(&path).expect("the temporary directory is writable");
    let fd = rustix::fs::open(&path, FLAGS, Mode::empty()).expect("it was made");
    (path, fd)
}

fn is_empty(path: &Path) -> bool {
    path.read_dir().expect("it stays").next().is_none()
}

/// `levels` directories, each in the one before, with a file in each; the deepest cannot be named by any path.
fn nest(top: &OwnedFd, levels: usize) {
    let mut here = rustix::io::fcntl_dupfd_cloexec(top, 0).expect("a descriptor is free");
    for _ in 0..levels {
        rustix::fs::mkdirat(&here, c"d", Mode::RWXU).expect("a directory can be made");
        here = rustix::fs::openat(&here, c"d", FLAGS, Mode::empty()).expect("it was made");
        let file = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(&here, c"f", file, Mode::RWXU).expect("a file can be made");
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

fn remove_all(path: &Path, fd: OwnedFd) {
    assert_eq!(Removal::new(fd, Vec::new()).expect("it is a directory").turn(soon()), Progress::Done);
    assert!(is_empty(path));
    std::fs::remove_dir(path).expect("it is empty");
}

#[test]
fn a_tree_deeper_than_any_path_is_removed() {
    let (path, fd) = top("deep");
    nest(&fd, 20_000);
    remove_all(&path, fd);
}

#[test]
fn many_deep_trees_of_the_same_names_are_removed() {
    let (path, fd) = top("comb");
    for index in 0..40 {
        let tooth = path.join(format!("deep-{index}"));
        std::fs::create_dir(&tooth).expect("writable");
        nest(&rustix::fs::openat(CWD, &tooth, FLAGS, Mode::empty()).expect("it was made"), 100);
    }
    remove_all(&path, fd);
}

#[test]
fn closed_directories_and_special_files_are_removed_and_links_not_followed() {
    let (path, fd) = top("closed");
    let (outside, _) = top("outside");
    std::fs::write(outside.join("kept"), "").expect("writable");
    std::fs::create_dir_all(path.join("a/b/c")).expect("writable");
    std::fs::write(path.join("a/b/c/f"), "").expect("writable");
    std::os::unix::fs::symlink(&outside, path.join("a/link")).expect("writable");
    rustix::fs::mknodat(CWD, path.join("a/fifo"), FileType::Fifo, Mode::RWXU, 0).expect("any user can make a fifo");
    let _socket = std::os::unix::net::UnixListener::bind(path.join("a/socket")).expect("a socket can be made");
    for closed in ["a/b/c", "a/b", "a"] {
        std::fs::set_permissions(path.join(closed), std::fs::Permissions::from_mode(0o000)).expect("it is ours");
    }
    remove_all(&path, fd);
    assert!(outside.join("kept").exists());
    std::fs::remove_dir_all(outside).expect("it is ours");
}

#[test]
fn what_is_spared_stays_and_the_rest_goes() {
    let (path, fd) = top("spared");
    for name in ["kept/inner", "gone/kept", "gone/more"] {
        std::fs::create_dir_all(path.join(name)).expect("writable");
    }
    let mut removal = Removal::new(fd, vec![c"kept".to_owned()]).expect("it is a directory");
    assert_eq!(removal.turn(soon()), Progress::Done);
    assert!(path.join("kept/inner").is_dir() && !path.join("gone").exists());
    std::fs::remove_dir_all(path).expect("it is ours");
}

#[test]
fn a_hundred_thousand_files_go_in_slices_of_which_none_is_long() {
    let (path, fd) = top("many");
    for directory in 0..10 {
        let directory = path.join(directory.to_string());
        std::fs::create_dir(&directory).expect("writable");
        for file in 0..10_000 {
            std::fs::write(directory.join(file.to_string()), "").expect("writable");
        }
    }
    let mut removal = Removal::new(fd, Vec::new()).expect("it is a directory");
    let (mut slices, mut progress) = (0, Progress::OutOfTime);
    while progress == Progress::OutOfTime {
        let started = Instant::now();
        progress = removal.turn(started + Duration::from_millis(5));
        // One call of the kernel may take long on a busy machine; the walk adds nothing to it.
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
        slices += 1;
    }
    assert_eq!(progress, Progress::Done);
    assert!(slices > 10, "{slices}");
    assert!(is_empty(&path));
    std::fs::remove_dir(path).expect("it is empty");
}

#[test]
fn what_cannot_be_removed_is_told_and_ends_the_walk() {
    if rustix::process::getuid().is_root() {
        println!("skipped: root can remove anything");
        return;
    }
    let (path, fd) = top("stuck");
    std::fs::create_dir_all(path.join("a")).expect("writable");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o500)).expect("it is ours");
    assert_eq!(Removal::new(fd, Vec::new()).expect("it is a directory").turn(soon()), Progress::Stuck);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("it is ours");
    std::fs::remove_dir_all(path).expect("it is ours");
}
