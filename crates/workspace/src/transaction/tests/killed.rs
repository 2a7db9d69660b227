//! A process that is killed with SIGKILL at each step of a commit, one after the other: the next one finds the tree wholly as it was
//! or wholly as the session left it. The steps are those that `commit` counts; the process is this program again.

use std::os::unix::process::ExitStatusExt as _;

use rustix::process::{Signal, getpid, kill_process};

use super::*;

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
    transaction.commit_with(&changes, all, (&[], &[]), &mut between).expect("nothing is in the way");
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
