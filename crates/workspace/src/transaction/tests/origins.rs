//! What the host removed meanwhile is a conflict, also where the layer was put back in between and its files were written anew.

use super::checkpoints::{put_back_sealed, take, undo};
use super::*;
use crate::checkpoint::Checkpoints;

const TREE: &str = "mkdir d calm; for f in a b d/x calm/z; do echo old > $f; done; ln -s a link";
const EDITS: &str = "echo session >> a; echo session >> d/x; echo session >> calm/z; echo new > d/new; rm b link";

/// What is said once the host has removed everything but `calm`.
fn after_removal(scene: &mut Scene) -> Vec<String> {
    sh(&scene.project(), "rm -rf a b d link");
    told(&scene.end())
}

#[test]
fn what_the_host_removed_is_a_conflict_after_an_undo_as_before() {
    apart("origins::what_the_host_removed_is_a_conflict_after_an_undo_as_before", || {
        let expected = ["Added a conflict", "Modified calm/z", "Added d conflict", "Added d/new", "Added d/x conflict"];
        for is_undone in [false, true] {
            let mut scene = Scene::new();
            sh(&scene.project(), TREE);
            scene.begin();
            let mut all = Checkpoints::open(&scene.kept()).expect("it has begun");
            sh(&scene.inside(), EDITS);
            take(&mut all, "edits").expect("it changed");
            if is_undone {
                sh(&scene.inside(), "rm -r d; echo worse > a; echo worse > calm/z");
                undo(&scene, &mut all, 1);
            }
            drop(all);
            assert_eq!(after_removal(&mut scene), expected, "undone: {is_undone}");
        }
    });
}

#[test]
fn what_was_given_back_from_the_host_and_removed_there_does_not_come_back() {
    apart("origins::what_was_given_back_from_the_host_and_removed_there_does_not_come_back", || {
        let mut scene = Scene::new();
        sh(&scene.project(), TREE);
        scene.begin();
        let mut all = Checkpoints::open(&scene.kept()).expect("it has begun");
        sh(&scene.inside(), EDITS);
        undo(&scene, &mut all, 0);
        // And a file that is new after it stays one, where the host has not worked.
        sh(&scene.inside(), "echo new > calm/new");
        take(&mut all, "after").expect("it changed");
        sh(&scene.inside(), "rm calm/new");
        let before = all.last() - 1;
        undo(&scene, &mut all, before);
        drop(all);
        let said = after_removal(&mut scene);
        let expected =
            ["Added a conflict", "Added b conflict", "Added d conflict", "Added d/x conflict", "Added link conflict"];
        let lost: Vec<&str> = said.iter().map(String::as_str).filter(|line| !line.contains("calm")).collect();
        assert_eq!(lost, expected, "{said:?}");
        assert!(!said.iter().any(|line| line.contains("calm") && line.contains("conflict")), "{said:?}");
    });
}

#[test]
fn what_the_host_removed_is_a_conflict_after_a_sealed_step_was_put_back() {
    apart("origins::what_the_host_removed_is_a_conflict_after_a_sealed_step_was_put_back", || {
        let mut scene = Scene::new();
        sh(&scene.project(), TREE);
        scene.begin();
        let mut all = Checkpoints::open(&scene.kept()).expect("it has begun");
        sh(&scene.inside(), EDITS);
        take(&mut all, "edits").expect("it changed");
        sh(&scene.inside(), "rm -r d; echo worse > a");
        drop(all);
        drop(scene.end());
        put_back_sealed(&scene, 1);
        sh(&scene.project(), "rm -rf a b d link");
        let transaction = Transaction::open(&scene.kept()).expect("it is there");
        let expected = ["Added a conflict", "Modified calm/z", "Added d conflict", "Added d/new", "Added d/x conflict"];
        assert_eq!(told(&transaction), expected);
    });
}

#[test]
fn what_the_host_removed_is_a_conflict_after_a_commit_was_taken_back() {
    apart("origins::what_the_host_removed_is_a_conflict_after_a_commit_was_taken_back", || {
        for make in [Scene::new, Scene::on_another_mount] {
            let mut scene = make();
            sh(&scene.project(), TREE);
            let mut transaction = scene.session("echo session >> a; echo session >> d/x; echo new > new");
            commit_all(&mut transaction);
            transaction.undo_commit().expect("nothing is in the way");
            sh(&scene.project(), "rm a; rm d/x");
            assert_eq!(told(&transaction), ["Added a conflict", "Added d/x conflict", "Added new"]);
        }
    });
}

#[test]
fn what_the_host_removed_stays_a_conflict_after_a_commit_beside_it() {
    apart("origins::what_the_host_removed_stays_a_conflict_after_a_commit_beside_it", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "echo a > gone; mkdir d; echo b > d/gone");
        scene.begin();
        sh(&scene.inside(), "echo more >> gone; echo more >> d/gone; echo k > k; echo k > d/k");
        sh(&scene.project(), "rm gone d/gone");
        let mut transaction = scene.end();
        let waits = |transaction: &Transaction| {
            let changes = transaction.changes().expect("readable");
            let waiting = changes[0].changes.iter().filter(|one| one.conflict == Some(Conflict::Removed));
            waiting.map(|one| one.path.display().to_string()).collect::<Vec<_>>()
        };
        for _ in 0..2 {
            assert_eq!(waits(&transaction), ["d/gone", "gone"]);
            commit_all(&mut transaction);
        }
        assert_eq!(waits(&transaction), ["d/gone", "gone"]);
        assert!(scene.project().join("k").exists() && !scene.project().join("gone").exists());
        transaction.undo_commit().expect("nothing is in the way");
        assert_eq!(waits(&transaction), ["d/gone", "gone"], "nor does an undo forget it");
    });
}

#[test]
fn a_rename_is_taken_as_a_whole_or_not_where_the_host_worked_beside_it() {
    apart("origins::a_rename_is_taken_as_a_whole_or_not_where_the_host_worked_beside_it", || {
        let mut scene = Scene::new();
        let of = |transaction: &Transaction, name: &str| {
            let changes = transaction.changes().expect("readable");
            let found = changes[0].changes.iter().find(|one| one.path == Path::new("d").join(name));
            found.map(|one| one.conflict)
        };
        sh(&scene.project(), "mkdir d; for f in one two three; do echo $f > d/$f; done");
        scene.begin();
        sh(&scene.inside(), "cd d; mv one first; mv two second; mv three trio");
        // Beside it; under the new name; and away.
        sh(&scene.project(), "cd d; echo x > other; echo host > second; rm three");
        let mut transaction = scene.end();
        let of_all = ["one", "first", "two", "second", "three", "trio"].map(|name| of(&transaction, name));
        let (free, unit) = (Some(None), Some(Some(Conflict::Unit)));
        let (changed, removed) = (Some(Some(Conflict::Changed)), Some(Some(Conflict::Removed)));
        // `trio` may have been any of those that went, so what is not known to be another stays.
        assert_eq!(of_all, [free, free, unit, changed, None, removed]);
        commit_all(&mut transaction);
        let read = |name: &str| std::fs::read_to_string(scene.project().join("d").join(name)).unwrap_or_default();
        assert_eq!(
            ["one", "first", "two", "second", "three", "trio"].map(read),
            ["", "one\n", "two\n", "host\n", "", ""]
        );
    });
}

#[test]
fn what_may_have_been_renamed_and_changed_does_not_go_without_its_new_name() {
    apart("origins::what_may_have_been_renamed_and_changed_does_not_go_without_its_new_name", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "mkdir d; echo one > d/one; echo two > two");
        scene.begin();
        sh(&scene.inside(), "mv d/one d/first; echo more >> d/first; rm two");
        sh(&scene.project(), "echo x > d/other");
        let mut transaction = scene.end();
        commit_all(&mut transaction);
        assert!(scene.project().join("d/one").exists() && scene.project().join("two").exists());
        let waits = transaction.changes().expect("readable")[0].changes.len();
        assert_eq!(waits, 3, "both names of the one, and what may have been it");
    });
}
