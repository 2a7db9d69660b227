//! Leftovers of killed sessions, beside those that live.

use super::*;
use crate::store::session_dir::{Kept, SessionDir, short_socket};

fn state(name: &str) -> PathBuf {
    let path = crate::scratch().join(format!("cofferdam-sweep-{name}-{}", std::process::id()));
    std::fs::create_dir(&path).expect("the temporary directory is writable");
    path
}

fn sweep(state: &Path, own: &str) -> usize {
    let mut sweep = Some(Sweep::new(state, own));
    let mut turns = 0;
    while let Some(more) = sweep.take() {
        sweep = more.turn(&mut |_| {});
        turns += 1;
    }
    turns
}

fn names(directory: &Path) -> Vec<String> {
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn leftovers_go_and_what_lives_or_was_asked_for_stays() {
    let state = state("mixed");
    let keep = [Kept { slot: 0, lower: Path::new("/data") }];
    let make = |id: &str, keep: &[Kept<'_>]| {
        let dirs = SessionDir::create(&state, id, 1, keep).expect("the state directory is writable");
        std::fs::write(dirs.path.join("0/upper/file"), "").expect("writable");
        dirs
    };
    // Dropped without an end, as if the supervisor had been killed.
    drop(make("killed", &[]));
    for id in ["killed", "alive"] {
        std::fs::create_dir_all(state.join("sockets")).expect("writable");
        std::fs::write(short_socket(&state, id), "").expect("writable");
    }
    drop(make("asked", &keep));
    let untouched = make("untouched", &keep);
    std::fs::remove_file(untouched.path.join("0/upper/file")).expect("it was made");
    drop(untouched);
    let alive = make("alive", &[]);
    let own = make("own", &[]);
    sweep(&state, "own");
    assert_eq!(names(&state.join("sessions")), ["alive", "own"]);
    assert_eq!(names(&state.join("kept")), ["asked"]);
    assert_eq!(names(&state.join("sockets")), ["alive"]);
    assert_eq!(names(&state.join("kept/asked/0/upper")), ["file"]);
    drop((alive, own));
    sweep(&state, "next");
    assert!(names(&state.join("sessions")).is_empty());
    std::fs::remove_dir_all(state).expect("nothing of it is closed");
}

#[test]
fn a_large_leftover_is_removed_in_slices() {
    let state = state("large");
    let dirs = SessionDir::create(&state, "killed", 1, &[]).expect("the state directory is writable");
    for file in 0..5_000 {
        std::fs::write(dirs.path.join("0/upper").join(file.to_string()), "").expect("writable");
    }
    drop(dirs);
    assert!(sweep(&state, "own") > 2);
    assert!(names(&state.join("sessions")).is_empty());
    std::fs::remove_dir_all(state).expect("nothing of it is closed");
}

#[test]
fn without_leftovers_the_first_turn_is_the_last() {
    // A sweep that is held up for longer than a slice takes another turn, so it is the best of some tries that counts.
    let fewest = |state: &Path| (0..20).map(|_| sweep(state, "own")).min();
    let state = state("none");
    assert_eq!(fewest(&state), Some(1));
    let own = SessionDir::create(&state, "own", 1, &[]).expect("the state directory is writable");
    assert_eq!(fewest(&state), Some(1));
    drop(own);
    std::fs::remove_dir_all(state).expect("nothing of it is closed");
}

#[test]
fn one_sweeps_at_a_time() {
    let state = state("one");
    drop(SessionDir::create(&state, "killed", 1, &[]).expect("the state directory is writable"));
    let first = Sessions::open(&state).expect("no other session sweeps");
    sweep(&state, "own");
    assert_eq!(names(&state.join("sessions")), ["killed"]);
    drop(first);
    sweep(&state, "own");
    assert!(names(&state.join("sessions")).is_empty());
    std::fs::remove_dir_all(state).expect("nothing of it is closed");
}
