//! What files held when a session began.

use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use super::checkpoints::hide;
use super::*;
use crate::beginnings::{Beginning, Recording};

const MAKE: &str =
    "git init -q .; for f in clean changed .env 'a name' 'name'; do echo $f > \"$f\"; done; mkdir d; echo in > d/clean
    sleep 0.1; git add .; echo again > changed; echo again > .env; echo untracked > untracked";

fn recorded(scene: &Scene) {
    let mut left = Some(Recording::new(scene.kept(), true));
    // In turns without time each does no more than look at the clock.
    for _ in 0..3 {
        left = left.and_then(|one| one.turn(Instant::now()));
    }
    assert!(left.is_some(), "it did not wait for its turn");
    assert!(left.and_then(|one| one.turn(Instant::now() + Duration::from_mins(1))).is_none());
}

#[test]
fn what_a_file_held_at_the_start_is_known_unless_the_host_changed_it_before_it_was_looked_at() {
    apart(
        "beginnings::what_a_file_held_at_the_start_is_known_unless_the_host_changed_it_before_it_was_looked_at",
        || {
            let mut scene = Scene::new();
            sh(&scene.project(), MAKE);
            scene.hidden = hide(&scene.project().join(".env"));
            scene.begin();
            sh(&scene.project(), "echo early > d/clean; echo early > 'a name'");
            recorded(&scene);
            sh(&scene.project(), "echo late > clean; echo late > changed");
            let transaction = scene.end();
            let beginnings = transaction.beginnings();
            let began = |name: &str| beginnings.of(Path::new(name));
            let object = |text: &str| {
                let (id, size) = (crate::patch::blob_id(text.as_bytes()), text.len() as u64);
                Some(Beginning::Object { id, size })
            };
            assert_eq!(began("clean"), object("clean\n"));
            assert_eq!(began("changed"), Some(Beginning::Content(b"again\n".to_vec())), "git has another version");
            assert_eq!(began("name"), object("name\n"));
            for unknown in ["d/clean", "a name", "untracked", "missing", "d", ".env"] {
                assert_eq!(began(unknown), None, "{unknown}");
            }
            let copies = std::fs::read_dir(scene.kept().join("beginnings-copies")).expect("one was made").count();
            assert_eq!(copies, 1, "none of a hidden name");
        },
    );
}

#[test]
fn a_file_as_young_as_the_index_is_copied() {
    apart("beginnings::a_file_as_young_as_the_index_is_copied", || {
        let mut scene = Scene::new();
        // As entered; but written again in the same moment it would look the same.
        sh(&scene.project(), "git init -q .; echo one > young; git add young; touch -r young .git/index");
        scene.begin();
        recorded(&scene);
        assert_eq!(scene.end().beginnings().of(Path::new("young")), Some(Beginning::Content(b"one\n".to_vec())));
    });
}

/// An index with these names, each a plain file that git has looked at never.
fn index_of_names(names: &[&[u8]]) -> Vec<u8> {
    let mut index = b"DIRC\0\0\0\x02".to_vec();
    index.extend(u32::try_from(names.len()).expect("few").to_be_bytes());
    for name in names {
        let begin = index.len();
        let mut stat = [0u8; 40];
        stat[26..28].copy_from_slice(&0o100_644_u16.to_be_bytes());
        index.extend(stat);
        index.extend([0x11; 20]);
        index.extend(u16::try_from(name.len().min(0xfff)).expect("twelve bits").to_be_bytes());
        index.extend(*name);
        let length = (index.len() - begin + 8) & !7;
        index.resize(begin + length, 0);
    }
    index.extend([0; 20]);
    index
}

#[test]
fn names_that_git_does_not_write_are_not_looked_up() {
    apart("beginnings::names_that_git_does_not_write_are_not_looked_up", || {
        let mut scene = Scene::new();
        let make = "git init -q .; mkdir node_modules d; echo secret > .env; echo plain > plain; ln -s . l; mkfifo pipe; echo f > d/f";
        sh(&scene.project(), make);
        let deep = [b"a/".repeat(100_000), b"b".to_vec()].concat();
        let outside = scene.base.join("project/plain").display().to_string();
        let names: [&[u8]; 9] = [
            &deep,
            outside.as_bytes(),
            b"./plain",
            b"d//f",
            b"l/plain",
            b"node_modules/../.env",
            b"pipe",
            b"",
            b"plain",
        ];
        std::fs::write(scene.project().join(".git/index"), index_of_names(&names)).expect("writable");
        scene.hidden = hide(&scene.project().join(".env"));
        scene.begin();
        let began = Instant::now();
        recorded(&scene);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let beginnings = scene.end().beginnings();
        for name in names {
            let known = beginnings.of(Path::new(std::ffi::OsStr::from_bytes(name)));
            let is_plain = name == b"plain";
            assert_eq!(
                known,
                is_plain.then(|| Beginning::Content(b"plain\n".to_vec())),
                "{:.40?}",
                name.escape_ascii().to_string()
            );
        }
    });
}

#[test]
fn a_list_that_was_cut_short_is_right_in_what_it_says() {
    apart("beginnings::a_list_that_was_cut_short_is_right_in_what_it_says", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "git init -q .; echo 1 > a; echo 2 > ab; sleep 0.1; git add .");
        scene.begin();
        recorded(&scene);
        let file = scene.kept().join(crate::beginnings::FILE);
        let whole = std::fs::read(&file).expect("a list");
        // `ab` without its last letter and its end.
        std::fs::write(&file, &whole[..whole.len() - 2]).expect("writable");
        let beginnings = scene.end().beginnings();
        let first = Beginning::Object { id: crate::patch::blob_id(b"1\n"), size: 2 };
        assert_eq!([beginnings.of(Path::new("a")), beginnings.of(Path::new("ab"))], [Some(first), None]);
    });
}

#[test]
fn no_copies_are_made_where_they_would_count_against_a_limit() {
    apart("beginnings::no_copies_are_made_where_they_would_count_against_a_limit", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "git init -q .; echo 1 > a; git add .; echo 22 > a");
        scene.begin();
        assert!(Recording::new(scene.kept(), false).turn(Instant::now() + Duration::from_mins(1)).is_none());
        assert_eq!(scene.end().beginnings().of(Path::new("a")), None);
        assert!(!scene.kept().join(crate::beginnings::COPIES).exists());
    });
}
