//! What a commit, an undo, a checkpoint and an export copy: whole or not at all, and no more than there is.

use super::checkpoints::{take, undo};
use super::*;
use crate::checkpoint::Checkpoints;

/// Gives the transaction a file system of its own, of this size.
fn small_kept(scene: &Scene, size: &str) {
    let kept = scene.base.join("kept");
    let options = std::ffi::CString::new(format!("size={size}")).expect("no zero");
    rustix::mount::mount("tmpfs", &kept, "tmpfs", MountFlags::empty(), Some(options.as_c_str())).expect("our own");
    for directory in ["t/0/upper", "t/0/work"] {
        std::fs::create_dir_all(kept.join(directory)).expect("writable");
    }
}

fn without_small_kept(scene: &Scene) {
    rustix::mount::unmount(scene.base.join("kept"), UnmountFlags::DETACH).expect("it was mounted");
}

#[test]
fn a_commit_that_cannot_keep_all_of_what_it_replaces_is_refused_and_nothing_is_changed() {
    apart("copies::a_commit_that_cannot_keep_all_of_what_it_replaces_is_refused_and_nothing_is_changed", || {
        for script in ["rm -r large", "echo small > large/b"] {
            let mut scene = Scene::new();
            small_kept(&scene, "1m");
            sh(
                &scene.project(),
                "mkdir large; head -c 900000 /dev/urandom > large/a; cp large/a large/b; cp large/a c",
            );
            let before = picture(&scene.project());
            let mut transaction = scene.session(&format!("{script}; rm c"));
            let (changes, all) = (transaction.changes().expect("readable"), everything(&transaction));
            let refused = transaction.commit(&changes, all);
            assert!(matches!(refused, Err(CommitError::Keep { errno: Errno::NOSPC, .. })), "{script}: {refused:?}");
            assert!(picture(&scene.project()) == before, "{script}: nothing was changed");
            assert_eq!(transaction.state(), State::Sealed);
            drop(transaction);
            without_small_kept(&scene);
        }
    });
}

#[test]
fn an_undo_that_cannot_keep_all_that_it_takes_off_is_refused_and_nothing_is_changed() {
    apart("copies::an_undo_that_cannot_keep_all_that_it_takes_off_is_refused_and_nothing_is_changed", || {
        let mut scene = Scene::new();
        small_kept(&scene, "1m");
        sh(&scene.project(), "echo old > a");
        let mut transaction = scene.session("head -c 600000 /dev/urandom > a");
        commit_all(&mut transaction);
        let after = picture(&scene.project());
        // What the operator keeps beside it.
        let filler = scene.base.join("kept/filler");
        std::fs::write(&filler, vec![1; 700_000]).expect("there is room");
        let refused = transaction.undo_commit();
        assert!(matches!(refused, Err(CommitError::Keep { errno: Errno::NOSPC, .. })), "{refused:?}");
        assert!(picture(&scene.project()) == after, "nothing was changed");
        std::fs::remove_file(&filler).expect("ours");
        transaction.undo_commit().expect("there is room again");
        assert_eq!(std::fs::read(scene.project().join("a")).expect("it is there"), b"old\n");
        drop(transaction);
        without_small_kept(&scene);
    });
}

#[test]
fn pipes_and_sockets_of_a_removed_directory_come_back_across_mounts() {
    apart("copies::pipes_and_sockets_of_a_removed_directory_come_back_across_mounts", || {
        let mut scene = Scene::on_another_mount();
        let make = "mkdir d; echo x > d/x; mkfifo d/pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"d/sock\")'";
        sh(&scene.project(), make);
        let mut transaction = scene.session("rm -r d");
        commit_all(&mut transaction);
        assert!(!scene.project().join("d").exists());
        transaction.undo_commit().expect("nothing is in the way");
        sh(&scene.project(), "test -p d/pipe; test -S d/sock; test -f d/x");
    });
}

const SPARSE: &str =
    "truncate -s 10G huge; dd if=/dev/urandom of=huge bs=4096 count=1 seek=1000000 conv=notrunc status=none";

/// Kilobytes on the disk, and a sum of the part that was written.
fn cost(path: &Path) -> (u64, Vec<u8>) {
    use std::os::unix::fs::FileExt as _;
    let stat = path.metadata().expect("it is there");
    assert_eq!(stat.len(), 10 << 30);
    let mut part = vec![0; 4096];
    let file = std::fs::File::open(path).expect("readable");
    file.read_exact_at(&mut part, 4096 * 1_000_000).expect("readable");
    (stat.blocks() / 2, part)
}

#[test]
fn a_sparse_file_costs_what_was_written_to_it_in_a_commit_its_undo_and_an_archive() {
    apart("copies::a_sparse_file_costs_what_was_written_to_it_in_a_commit_its_undo_and_an_archive", || {
        let mut scene = Scene::on_another_mount();
        sh(&scene.project(), SPARSE);
        let (_, before) = cost(&scene.project().join("huge"));
        // Not through a copy by the kernel, which fills a megabyte around what was written.
        let script = format!("rm huge; {SPARSE}; cp --sparse=always huge second");
        let mut transaction = scene.session(&script);
        let changes = transaction.changes().expect("readable");
        let mut archive = Vec::new();
        let not_held = crate::archive::write(&transaction, 0, &changes[0].changes, &mut archive).expect("it is memory");
        assert!(not_held.left.is_empty() && archive.len() < 100_000, "{not_held:?}, {} bytes", archive.len());
        commit_all(&mut transaction);
        let (kilobytes, part) = cost(&scene.project().join("huge"));
        assert!(kilobytes <= 64 && part != before, "{kilobytes} KiB");
        assert_eq!(cost(&scene.project().join("second")), (kilobytes, part.clone()));
        // What it replaced is kept, and comes back.
        let kept = std::fs::read_dir(scene.kept().join("commit-0")).expect("it is kept");
        let blocks: u64 = kept.map(|one| one.expect("readable").metadata().expect("readable").blocks()).sum();
        assert!(blocks / 2 <= 128, "{} KiB are kept", blocks / 2);
        std::fs::write(scene.base.join("changes.tar"), &archive).expect("ours");
        sh(&scene.base, "mkdir unpacked; tar xf changes.tar -C unpacked");
        assert_eq!(cost(&scene.base.join("unpacked/huge")).1, part);
        transaction.undo_commit().expect("nothing is in the way");
        let (kilobytes, part) = cost(&scene.project().join("huge"));
        assert!(kilobytes <= 64 && part == before, "{kilobytes} KiB");
    });
}

#[test]
fn a_sparse_file_costs_a_checkpoint_what_was_written_to_it() {
    apart("copies::a_sparse_file_costs_a_checkpoint_what_was_written_to_it", || {
        let mut scene = Scene::new();
        scene.begin();
        let mut all = Checkpoints::open(&scene.kept()).expect("it has begun");
        sh(&scene.inside(), "truncate -s 1000M huge; echo end >> huge");
        let number = take(&mut all, "sparse").expect("it changed");
        let kept = std::fs::read_dir(scene.kept().join(format!("checkpoints/{number}"))).expect("it is kept");
        let blocks: u64 = kept.map(|one| one.expect("readable").metadata().expect("readable").blocks()).sum();
        assert!(blocks / 2 <= 128, "{} KiB are kept", blocks / 2);
        sh(&scene.inside(), "rm huge");
        undo(&scene, &mut all, number);
        sh(&scene.inside(), "test $(stat -c %s huge) = 1048576004; test $(tail -c 4 huge) = end");
        drop(all);
        assert_eq!(told(&scene.end()), ["Added huge"]);
    });
}
