//! What becomes of a session's directory at its end.

use super::*;
use crate::store::lock::Claim;

fn state(name: &str) -> PathBuf {
    let path = crate::scratch().join(format!("cofferdam-session-{name}-{}", std::process::id()));
    std::fs::create_dir(&path).expect("the temporary directory is writable");
    path
}

fn clear(state: &Path) {
    std::fs::remove_dir_all(state).expect("nothing of it is closed");
}

/// Whether a directory belongs to a session that lives. One that is gone belongs to no session.
fn is_live(parent: BorrowedFd<'_>, name: &Path) -> bool {
    matches!(Claim::take(parent, name), Ok(None))
}

#[test]
fn changes_that_were_asked_for_are_kept_and_all_else_goes() {
    let state = state("keeps");
    let keep = [Kept { slot: 1, lower: Path::new("/data") }, Kept { slot: 2, lower: Path::new("/untouched") }];
    let dirs = SessionDir::create(&state, "id", 3, &keep).expect("the state directory is writable");
    for slot in ["0", "1"] {
        std::fs::write(dirs.path.join(slot).join("upper/file"), "text").expect("writable");
    }
    std::fs::create_dir(dirs.path.join("1/work/work")).expect("writable");
    let path = dirs.path.clone();
    let finished = dirs.finish(&state);
    let upper = state.join("kept/id/1/upper");
    assert_eq!(finished.kept, [(1, upper.clone())]);
    assert_eq!(finished.left_behind, None);
    assert!(!path.exists());
    let mut names: Vec<_> = state.join("kept/id").read_dir().expect("kept").flatten().map(|e| e.file_name()).collect();
    names.sort();
    assert_eq!(names, ["1", "keep-1"]);
    assert_eq!(std::fs::read_link(state.join("kept/id/keep-1")).expect("a link"), Path::new("/data"));
    assert_eq!(std::fs::read_to_string(upper.join("file")).expect("kept"), "text");
    clear(&state);
}

#[test]
fn a_session_lives_as_long_as_its_claim_is_held() {
    let state = state("lives");
    let dirs = SessionDir::create(&state, "id", 1, &[]).expect("the state directory is writable");
    let sessions = std::fs::File::open(sessions_in(&state)).expect("it was made");
    assert!(is_live(sessions.as_fd(), Path::new("id")));
    assert!(!is_live(sessions.as_fd(), Path::new("another")));
    drop(dirs);
    assert!(!is_live(sessions.as_fd(), Path::new("id")));
    clear(&state);
}

#[test]
fn what_is_not_removed_in_time_is_told_and_what_is_kept_is_where_it_says() {
    let state = state("late");
    let keep = [Kept { slot: 1, lower: Path::new("/data") }];
    let dirs = SessionDir::create(&state, "id", 2, &keep).expect("the state directory is writable");
    for slot in ["0", "1"] {
        std::fs::write(dirs.path.join(slot).join("upper/file"), "text").expect("writable");
    }
    let path = dirs.path.clone();
    let finished = dirs.finish_until(&state, Instant::now());
    assert_eq!(finished.left_behind.as_deref(), Some(path.as_path()));
    assert_eq!(finished.kept, [(1, path.join("1/upper"))]);
    assert!(path.join("1/upper/file").exists());
    let sessions = std::fs::File::open(sessions_in(&state)).expect("it was made");
    assert!(!is_live(sessions.as_fd(), Path::new("id")), "and somebody else can go on");
    clear(&state);
}

#[test]
fn an_empty_directory_waits_for_the_next_session() {
    use std::os::unix::fs::MetadataExt as _;
    let state = state("spare");
    let number = |path: &Path| path.metadata().expect("it is there").ino();
    let first = SessionDir::create(&state, "first", 0, &[]).expect("the state directory is writable");
    std::fs::write(first.path.join(registry::FILE), "{}").expect("writable");
    let made = number(&first.path);
    assert_eq!(first.finish(&state).left_behind, None);
    assert!(!sessions_in(&state).join("first").exists());
    let second = SessionDir::create(&state, "second", 1, &[]).expect("the state directory is writable");
    assert_eq!(number(&second.path), made);
    assert!(!state.join(SPARE).exists());
    // It has held what a command could fill, so it is removed.
    assert_eq!(second.finish(&state).left_behind, None);
    assert!(!state.join(SPARE).exists());
    clear(&state);
}

#[test]
fn of_two_directories_one_waits() {
    let state = state("spares");
    let [first, second] =
        ["first", "second"].map(|id| SessionDir::create(&state, id, 0, &[]).expect("the state directory is writable"));
    std::fs::write(first.path.join("unexpected"), "text").expect("writable");
    for directory in [first, second] {
        assert_eq!(directory.finish(&state).left_behind, None);
    }
    let waiting = state.join(SPARE).read_dir().expect("one of them");
    assert_eq!(waiting.count(), 0);
    assert!(sessions_in(&state).read_dir().expect("it was made").next().is_none());
    clear(&state);
}

#[test]
fn a_spare_that_somebody_still_holds_keeps_no_session_from_starting() {
    let state = state("held");
    let first = SessionDir::create(&state, "first", 0, &[]).expect("the state directory is writable");
    let held = first.claim.as_fd().try_clone_to_owned().expect("descriptors are to be had");
    assert_eq!(first.finish(&state).left_behind, None);
    assert!(state.join(SPARE).exists());
    let second = SessionDir::create(&state, "second", 0, &[]).expect("a new one is made");
    drop((held, second));
    clear(&state);
}

#[test]
fn what_others_put_in_the_place_of_a_spare_is_not_taken_for_one() {
    use std::os::unix::fs::PermissionsExt as _;
    let state = state("planted");
    let (spare, elsewhere) = (state.join(SPARE), state.join("elsewhere"));
    std::fs::create_dir(&elsewhere).expect("writable");
    let plant: [fn(&Path); 4] = [
        |spare| std::os::unix::fs::symlink("elsewhere", spare).expect("a link"),
        |spare| std::fs::write(spare, "text").expect("a file"),
        |spare| {
            std::fs::create_dir(spare).expect("a directory");
            std::fs::set_permissions(spare, std::fs::Permissions::from_mode(0o777)).expect("for every user");
        },
        |spare| {
            std::fs::create_dir(spare).expect("a directory");
            std::fs::set_permissions(spare, std::fs::Permissions::from_mode(0o700)).expect("for its owner");
            std::os::unix::fs::symlink("/elsewhere", spare.join(registry::FILE)).expect("a link");
        },
    ];
    for (number, plant) in plant.into_iter().enumerate() {
        plant(&spare);
        let made = SessionDir::create(&state, &number.to_string(), 1, &[]).expect("the state directory is writable");
        let mode = made.path.symlink_metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o170_777, 0o040_700, "{number}");
        assert!(!made.path.join(registry::FILE).is_symlink());
        assert_eq!(made.finish(&state).left_behind, None);
        let removed = if number < 2 { std::fs::remove_file(&spare) } else { std::fs::remove_dir_all(&spare) };
        removed.expect("it was left alone");
    }
    clear(&state);
}
