//! What files held when a session began.

use std::time::{Duration, Instant};

use super::checkpoints::hide;
use super::*;
use crate::began::{Began, Recording};

const MAKE: &str =
    "git init -q .; for f in clean changed .env 'a name' 'name'; do echo $f > \"$f\"; done; mkdir d; echo in > d/clean
    sleep 0.1; git add .; echo again > changed; echo again > .env; echo untracked > untracked";

fn recorded(scene: &Scene) {
    let mut left = Some(Recording::new(scene.kept()));
    // In turns without time each does no more than look at the clock.
    for _ in 0..3 {
        left = left.and_then(|one| one.turn(Instant::now()));
    }
    assert!(left.is_some(), "it did not wait for its turn");
    assert!(left.and_then(|one| one.turn(Instant::now() + Duration::from_mins(1))).is_none());
}

#[test]
fn what_a_file_held_at_the_start_is_known_unless_the_host_changed_it_before_it_was_looked_at() {
    apart("began::what_a_file_held_at_the_start_is_known_unless_the_host_changed_it_before_it_was_looked_at", || {
        let mut scene = Scene::new();
        sh(&scene.project(), MAKE);
        scene.hidden = hide(&scene.project().join(".env"));
        scene.begin();
        sh(&scene.project(), "echo early > d/clean; echo early > 'a name'");
        recorded(&scene);
        sh(&scene.project(), "echo late > clean; echo late > changed");
        let transaction = scene.end();
        let began = |name: &str| transaction.began(Path::new(name));
        assert_eq!(began("clean"), Some(Began::Object(crate::patch::blob_id(b"clean\n"))));
        assert_eq!(began("changed"), Some(Began::Content(b"again\n".to_vec())), "git has another version");
        assert_eq!(began("name"), Some(Began::Object(crate::patch::blob_id(b"name\n"))));
        for unknown in ["d/clean", "a name", "untracked", "missing", "d", ".env"] {
            assert_eq!(began(unknown), None, "{unknown}");
        }
        let copies = std::fs::read_dir(scene.kept().join("began-copies")).expect("one was made").count();
        assert_eq!(copies, 1, "none of a hidden name");
    });
}

#[test]
fn a_file_as_young_as_the_index_is_copied() {
    apart("began::a_file_as_young_as_the_index_is_copied", || {
        let mut scene = Scene::new();
        // As entered; but written again in the same moment it would look the same.
        sh(&scene.project(), "git init -q .; echo one > young; git add young; touch -r young .git/index");
        scene.begin();
        recorded(&scene);
        assert_eq!(scene.end().began(Path::new("young")), Some(Began::Content(b"one\n".to_vec())));
    });
}
