//! A process that is killed with SIGKILL at each step of a commit, one after the other: the next one finds the tree wholly as it was
//! or wholly as the session left it. The steps are those that `commit` counts; the process is this program again.

use std::cell::Cell;
use std::os::unix::process::ExitStatusExt as _;

use rustix::process::{Signal, getpid, kill_process};

use super::*;
use crate::checkpoint::{self, By, Checkpoints};

const NAME: &str = "killed::a_process_that_is_killed_at_any_step_leaves_a_whole_tree";
/// The transaction and the step, for the process that is to be killed.
const WHERE: &str = "COFFERDAM_TEST_KILLED_IN";
const WHEN: &str = "COFFERDAM_TEST_KILLED_AT";

/// Commits, and is killed after so many steps.
fn commit_until(kept: &Path, step: usize) {
    let mut transaction = Transaction::open(kept).expect("it waits");
    let (changes, all) = (transaction.changes().expect("readable"), everything(&transaction));
    let mut left = step;
    let mut between = || {
        if left == 0 {
            kill_process(getpid(), Signal::KILL).expect("it is this process");
        }
        left -= 1;
        Ok(())
    };
    transaction.commit_with(&changes, all, &[], &mut between).expect("nothing is in the way");
}

#[test]
fn a_process_that_is_killed_at_any_step_leaves_a_whole_tree() {
    if let Some(kept) = std::env::var_os(WHERE) {
        let step = std::env::var(WHEN).ok().and_then(|step| step.parse().ok()).expect("a number");
        return commit_until(Path::new(&kept), step);
    }
    apart(NAME, || {
        let (mut killed, mut old) = (0, 0);
        for make in [Scene::new, Scene::on_another_mount] {
            for step in 0.. {
                let mut scene = make();
                sh(&scene.project(), BEFORE);
                let (before, after) = (picture(&scene.project()), directly(&scene));
                drop(scene.session(SESSION));
                let ran = Command::new(std::env::current_exe().expect("this program has a path"))
                    .args([&format!("transaction::tests::{NAME}"), "--exact", "--test-threads=1"])
                    .env(WHERE, scene.kept())
                    .env(WHEN, step.to_string())
                    .output()
                    .expect("it runs again");
                let is_killed = ran.status.signal() == Some(Signal::KILL.as_raw());
                assert!(is_killed || ran.status.success(), "step {step}: {ran:?}");
                let again = Transaction::open(&scene.kept()).expect("recovery works");
                let now = picture(&scene.project());
                assert!(now == after || is_killed && now == before, "killed at step {step}: {now:?}");
                let expected = if now == after { State::Committed } else { State::Sealed };
                assert_eq!(again.state(), expected, "killed at step {step}");
                old += usize::from(now == before);
                if !is_killed {
                    break;
                }
                killed += 1;
            }
        }
        println!("killed at {killed} steps, {old} times before the journal was written");
        assert!(killed >= 60 && old > 0 && old < killed, "{killed} {old}");
    });
}

const PUT_BACK: &str = "killed::a_put_back_that_is_killed_at_any_name_is_finished_or_taken_back";

fn take(all: &mut Checkpoints) -> Option<usize> {
    let pending = all.begin().expect("readable");
    all.finish(pending, By::Operator, "").expect("writable")
}

/// Puts the first checkpoint back in the session's view, and is killed after so many names.
fn put_back_until(scene: &Path, step: usize) {
    let mut all = Checkpoints::open(&scene.join("kept/t")).expect("it has begun");
    let left = Cell::new(step);
    let between = || {
        if left.get() == 0 {
            kill_process(getpid(), Signal::KILL).expect("it is this process");
        }
        left.set(left.get() - 1);
    };
    let view = [beneath::root(&scene.join("inside")).expect("it is mounted")];
    all.put_back_live_with(1, &view, &between).expect("nothing is in the way");
}

#[test]
fn a_put_back_that_is_killed_at_any_name_is_finished_or_taken_back() {
    if let Some(scene) = std::env::var_os(WHERE) {
        let step = std::env::var(WHEN).ok().and_then(|step| step.parse().ok()).expect("a number");
        return put_back_until(Path::new(&scene), step);
    }
    apart(PUT_BACK, || {
        let (mut killed, mut half) = (0, 0);
        for step in 0.. {
            let mut scene = Scene::new();
            sh(&scene.project(), BEFORE);
            scene.begin();
            let mut all = Checkpoints::open(&scene.kept()).expect("it has begun");
            sh(&scene.inside(), "mkdir -p new/deep; echo 1 > new/one; echo 2 > new/deep/two; echo 3 > three");
            take(&mut all).expect("it changed");
            let first = picture(&scene.inside());
            sh(
                &scene.inside(),
                "rm -r new; echo new > new; rm three; echo 4 > four; mkdir five; echo 5 > five/5; ln -s a six",
            );
            take(&mut all).expect("it changed");
            let second = picture(&scene.inside());
            drop(all);
            let ran = Command::new(std::env::current_exe().expect("this program has a path"))
                .args([&format!("transaction::tests::{PUT_BACK}"), "--exact", "--test-threads=1"])
                .env(WHERE, &scene.base)
                .env(WHEN, step.to_string())
                .output()
                .expect("it runs again");
            let is_killed = ran.status.signal() == Some(Signal::KILL.as_raw());
            assert!(is_killed || ran.status.success(), "step {step}: {ran:?}");
            let mut all = Checkpoints::open(&scene.kept()).expect("it is there");
            let note = all.interrupted().expect("readable");
            assert_eq!(note.map(|note| (note.to, note.before, note.went_on)), is_killed.then_some((1, 2, false)));
            let now = picture(&scene.inside());
            if !is_killed {
                assert_eq!(now, first);
                break;
            }
            (killed, half) = (killed + 1, half + usize::from(now != first && now != second));
            if step % 2 == 0 {
                // The session goes on, and its operator tries once more, or thinks better of it.
                assert!(all.go_on().expect("writable").is_some());
                take(&mut all);
                let (to, expected) = if step % 4 == 0 { (1, &first) } else { (2, &second) };
                let view = [beneath::root(&scene.inside()).expect("it is mounted")];
                all.put_back_live(to, &view).expect("nothing is in the way");
                assert_eq!((&picture(&scene.inside()), all.interrupted()), (expected, Ok(None)), "killed at {step}");
            } else {
                // The session was killed with it.
                drop(all);
                scene.seal();
                assert!(matches!(Transaction::open(&scene.kept()), Err(OpenError::HalfPutBack)), "killed at {step}");
                let note = checkpoint::take_back(&scene.kept()).expect("it is sealed");
                assert_eq!(note.map(|note| note.before), Some(2));
                let mut transaction = Transaction::open(&scene.kept()).expect("it is there");
                commit_all(&mut transaction);
                assert_eq!(picture(&scene.project()), second, "killed at {step}");
            }
        }
        println!("killed at {killed} names, {half} times with a part of them done");
        assert!(killed >= 5 && half >= 3, "{killed} {half}");
    });
}
