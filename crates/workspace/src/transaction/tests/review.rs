//! What a person does with changes besides taking all of them: patches, archives, some hunks, taking a commit back.

use std::collections::HashMap;

use super::*;
use crate::commit::Part;
use crate::diff::{self, Difference};
use crate::patch::{self, Held};

/// Everything that waits as `git apply` reads it.
fn patch_of(transaction: &Transaction) -> Vec<u8> {
    let mut text = Vec::new();
    for change in &transaction.changes().expect("readable")[0].changes {
        let mut sink = |_: patch::Part, line: &[u8]| {
            text.extend_from_slice(line);
            text.push(b'\n');
            Ok(())
        };
        let held = patch::write(transaction, 0, change, &mut sink).expect("it is memory");
        assert_ne!(held, Held::Left, "{}", change.path.display());
    }
    text
}

const OF_EVERY_KIND: &str = r#"
    printf 'a\nb' > no-end; printf 'a\n' > loses-end; printf 'x\r y\rz\n' > returns; echo 1 > 'with space'
    head -c 60 /dev/zero > zeros; printf 'old\0' > binary; printf 'gone\0' > gone-binary; : > was-empty
    echo x > becomes-link; ln -s no-end becomes-file; ln -s no-end moves; mkdir -p dir/sub tree; echo d > dir/sub/d
    echo t > tree/t; echo plain > plain-to-dir; echo '#!/bin/sh' > tool; echo q > 'quote"d'; seq 1 60 > long
    printf '\377\376 latin\n' > latin"#;
const EVERY_KIND: &str = r#"
    printf 'a\nc' > no-end; printf 'a' > loses-end; printf 'x\r w\rz\n' > returns; echo 2 > 'with space'; echo n > 'new one'
    head -c 200000 /dev/urandom > random; printf 'new\0' > binary; rm gone-binary; echo full > was-empty; : > empty
    rm becomes-link; ln -s no-end becomes-link; rm becomes-file; echo f > becomes-file; rm moves; ln -s tool moves
    rm -r dir; echo file > dir; rm plain-to-dir; mkdir plain-to-dir; echo in > plain-to-dir/in; chmod +x tool
    echo r > 'quote"d'; printf 'tab' > "$(printf 'a\tb')"; echo u > "$(printf 'n\303\244me')"; sed -i '5d;30s/^/x/;58a new' long
    printf '\377\375 latin\n' > latin; rm tree/t; rmdir tree; head -c 51 zeros > short-binary; rm zeros"#;

#[test]
fn git_makes_of_the_patch_what_a_commit_makes() {
    apart("review::git_makes_of_the_patch_what_a_commit_makes", || {
        let mut scene = Scene::new();
        sh(&scene.project(), OF_EVERY_KIND);
        sh(&scene.base, "cp -a project copy");
        let mut transaction = scene.session(EVERY_KIND);
        let patch = patch_of(&transaction);
        std::fs::write(scene.base.join("changes.patch"), &patch).expect("ours");
        sh(&scene.base, "cd copy; git apply --whitespace=nowarn ../changes.patch");
        let applied = picture(&scene.base.join("copy"));
        commit_all(&mut transaction);
        assert_eq!(applied, picture(&scene.project()));
        // And back: what was there before is in it, too. A link that became a file git makes a file again, also by patches of its own.
        sh(&scene.base, "cd copy; git apply -R --whitespace=nowarn ../changes.patch; rm becomes-file; mkdir ../before");
        sh(&scene.base.join("before"), &format!("{OF_EVERY_KIND}; rm becomes-file"));
        assert_eq!(picture(&scene.base.join("copy")), picture(&scene.base.join("before")));
    });
}

#[test]
fn tar_makes_of_the_archive_what_a_commit_makes_but_for_what_was_removed() {
    apart("review::tar_makes_of_the_archive_what_a_commit_makes_but_for_what_was_removed", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "echo a > a; ln -s a link; mkdir gone; echo g > gone/g");
        sh(&scene.base, "cp -a project copy");
        let deep = ["long-name-of-a-directory"; 8].join("/");
        let script = format!(
            "echo b >> a; rm link; ln -s /etc/{deep} link; rm -r gone; mkdir -p {deep}; head -c 1000 /dev/urandom > {deep}/x
             chmod 700 {deep}; : > empty; head -c 512 /dev/zero > block; ln a second; echo u > \"$(printf 'n\\377me')\""
        );
        let mut transaction = scene.session(&script);
        let changes = transaction.changes().expect("readable");
        let mut archive = Vec::new();
        let not_held = crate::archive::write(&transaction, 0, &changes[0].changes, &mut archive).expect("it is memory");
        assert_eq!(not_held.removed, [PathBuf::from("gone"), PathBuf::from("gone/g")]);
        assert!(not_held.left.is_empty(), "{not_held:?}");
        std::fs::write(scene.base.join("changes.tar"), &archive).expect("ours");
        sh(&scene.base, "cd copy; rm a link; tar xpf ../changes.tar; rm -r gone second; ln a second");
        let unpacked = picture(&scene.base.join("copy"));
        commit_all(&mut transaction);
        assert_eq!(unpacked, picture(&scene.project()));
    });
}

fn part(path: &str, content: &[u8], takes_mode: bool) -> (PathBuf, Part) {
    (PathBuf::from(path), Part { content: content.to_vec(), takes_mode, is_whole: false })
}

/// Commits these hunks of one file.
fn commit_hunks(transaction: &mut Transaction, path: &str, wanted: &[usize]) -> Committed {
    let changes = transaction.changes().expect("readable");
    let (before, after) = transaction.contents(0, Path::new(path), diff::LARGEST);
    let Difference::Text { hunks, .. } = diff::compare(before.as_deref(), after.as_deref()) else { panic!("text") };
    let content = diff::with_hunks(&before.expect("it is there"), wanted.iter().map(|at| &hunks[*at]));
    let only = HashSet::from([PathBuf::from(path)]);
    let choice = Choice { chosen: only.clone(), allowed: only };
    let parts = HashMap::from([part(path, &content, false)]);
    transaction.commit_parts(&changes, vec![choice], &[parts]).expect("nothing is in the way")
}

#[test]
fn chosen_hunks_are_committed_and_the_others_wait() {
    apart("review::chosen_hunks_are_committed_and_the_others_wait", || {
        for make in [Scene::new, Scene::on_another_mount] {
            let mut scene = make();
            sh(&scene.project(), "seq 1 40 > f; chmod 640 f");
            let mut transaction = scene.session("sed -i '3s/$/ three/;20d;38s/$/ last/' f; chmod 600 f; echo n > n");
            let committed = commit_hunks(&mut transaction, "f", &[1]);
            assert_eq!(committed.parts, [(0, PathBuf::from("f"))]);
            let read = |name: &str| std::fs::read_to_string(scene.project().join(name)).expect("it is there");
            sh(&scene.base, "seq 1 40 | sed 20d > expected");
            let expected = std::fs::read_to_string(scene.base.join("expected")).expect("just made");
            assert_eq!(read("f"), expected);
            let mode = scene.project().join("f").metadata().expect("it is there").permissions().mode() & 0o777;
            assert_eq!(mode, 0o640, "the session's mode is taken by a word of its own");
            assert_eq!(told(&transaction), ["Modified f", "Added n"], "what was not taken waits, and is no conflict");
            commit_hunks(&mut transaction, "f", &[0]);
            assert!(read("f").contains("3 three\n") && !read("f").contains("38 last"));
            // The control: an edit of the host between two hunks is one.
            sh(&scene.project(), "echo host >> f");
            assert_eq!(told(&transaction), ["Modified f conflict", "Added n"]);
        }
    });
}

#[test]
fn a_merge_takes_the_sessions_version_as_a_whole_and_an_undo_gives_it_back() {
    apart("review::a_merge_takes_the_sessions_version_as_a_whole_and_an_undo_gives_it_back", || {
        for make in [Scene::new, Scene::on_another_mount] {
            let mut scene = make();
            sh(&scene.project(), "echo a > f");
            let mut transaction = scene.session("echo session > f");
            sh(&scene.project(), "echo host > f; chmod 600 f");
            let changes = transaction.changes().expect("readable");
            assert_eq!(told(&transaction), ["Modified f conflict"]);
            let merged = Part { content: b"both\n".to_vec(), takes_mode: false, is_whole: true };
            let parts = [HashMap::from([(PathBuf::from("f"), merged)])];
            let only = HashSet::from([PathBuf::from("f")]);
            let choice = Choice { chosen: only.clone(), allowed: only };
            let done = transaction.commit_parts(&changes, vec![choice], &parts).expect("nothing is in the way");
            assert_eq!(done.taken, [(0, PathBuf::from("f"))]);
            assert_eq!(std::fs::read(scene.project().join("f")).expect("readable"), b"both\n");
            assert!(told(&transaction).is_empty(), "nothing of it waits");
            transaction.undo_commit().expect("the host has not changed it since");
            assert_eq!(std::fs::read(scene.project().join("f")).expect("readable"), b"host\n");
            assert_eq!(told(&transaction), ["Modified f conflict"]);
            let (_, session) = transaction.contents(0, Path::new("f"), diff::LARGEST);
            assert_eq!(session.as_deref(), Some(&b"session\n"[..]));
        }
    });
}

#[test]
fn only_a_file_that_stays_one_is_taken_in_part() {
    apart("review::only_a_file_that_stays_one_is_taken_in_part", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "echo a > a; mkdir d");
        let mut transaction = scene.session("rm a; ln -s d a; echo n > n");
        let changes = transaction.changes().expect("readable");
        for path in ["a", "n"] {
            let parts = HashMap::from([part(path, b"part", false)]);
            let refused = transaction.commit_parts(&changes, everything(&transaction), &[parts]);
            assert!(matches!(refused, Err(CommitError::NoPart { .. })), "{refused:?}");
        }
    });
}

#[test]
fn a_commit_that_is_taken_back_leaves_the_tree_as_before_and_its_changes_wait() {
    apart("review::a_commit_that_is_taken_back_leaves_the_tree_as_before_and_its_changes_wait", || {
        for make in [Scene::new, Scene::on_another_mount] {
            let mut scene = make();
            sh(&scene.project(), BEFORE);
            let before = picture(&scene.project());
            let after = directly(&scene);
            let mut transaction = scene.session(SESSION);
            let waited = told(&transaction);
            // Copies across mounts make of two names of a file two files.
            let times = if scene.other.is_some() { 1 } else { 2 };
            for _ in 0..times {
                commit_all(&mut transaction);
                assert_eq!(picture(&scene.project()), after);
                assert_eq!(transaction.state(), State::Committed);
                let undone = transaction.undo_commit().expect("nothing is in the way");
                assert!(undone.left.is_empty(), "{undone:?}");
                assert_eq!(picture(&scene.project()), before);
                assert_eq!(transaction.state(), State::Sealed);
                assert_eq!(told(&transaction), waited);
            }
            assert!(matches!(transaction.undo_commit(), Err(CommitError::NothingToUndo)));
        }
    });
}

#[test]
fn two_commits_are_taken_back_one_after_the_other() {
    apart("review::two_commits_are_taken_back_one_after_the_other", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "mkdir d; echo 1 > d/a; echo 1 > d/b");
        let pictures = || picture(&scene.base.join("project"));
        let before = pictures();
        let mut transaction = scene.session("rm d/b; echo 2 > d/a; mkdir -p x/y; echo 3 > x/y/z; echo 4 > x/o");
        let pictures = || picture(&scene.base.join("project"));
        commit_only(&mut transaction, "x/y/z");
        let between = pictures();
        commit_all(&mut transaction);
        transaction.undo_commit().expect("nothing is in the way");
        assert_eq!(pictures(), between);
        transaction.undo_commit().expect("nothing is in the way");
        assert_eq!(pictures(), before);
    });
}

/// Without a process that goes on after the command.
const GIT: &str = "GIT='git -c user.name=n -c user.email=e -c maintenance.auto=false -c gc.auto=0'";

#[test]
fn what_the_host_changed_after_a_commit_stays_when_it_is_taken_back() {
    apart("review::what_the_host_changed_after_a_commit_stays_when_it_is_taken_back", || {
        let mut scene = Scene::new();
        let before =
            "for f in a b c; do echo old > $f; done; echo db > x.db; git init -q .; git add a; $GIT commit -qm 1";
        sh(&scene.project(), &format!("{GIT}; {before}"));
        let script = "echo new > a; echo new > b; rm c; mkdir m n; echo m > m/m; echo n > n/n; echo db2 > x.db
            echo wal > x.db-wal; git add b; $GIT commit -qm 2";
        let mut transaction = scene.session(&format!("{GIT}; {script}"));
        commit_all(&mut transaction);
        let host =
            "echo host > a; echo host > c; echo host > m/h; echo host >> x.db-wal; git branch keep; echo host > g
            git add g; $GIT commit -qm 3";
        sh(&scene.project(), &format!("{GIT}; {host}"));
        let undone = transaction.undo_commit().expect("the rest is taken back");
        let left: HashSet<PathBuf> = undone.left.into_iter().map(|(_, path)| path).collect();
        for name in ["a", "c", "m", "x.db", "x.db-wal", ".git/index"] {
            assert!(left.contains(Path::new(name)), "{name}: {left:?}");
        }
        let read = |name: &str| std::fs::read_to_string(scene.project().join(name)).unwrap_or_default();
        assert_eq!([read("a"), read("b"), read("c"), read("m/h")], ["host\n", "old\n", "host\n", "host\n"]);
        assert_eq!([read("x.db"), read("x.db-wal")], ["db2\n", "wal\nhost\n"], "a database is one unit");
        assert!(!scene.project().join("n").exists());
        sh(&scene.project(), "git fsck --strict; test $(git log --oneline | wc -l) = 3; git show keep:b | grep -q new");
    });
}

#[test]
fn what_the_host_wrote_again_as_it_was_is_taken_back() {
    apart("review::what_the_host_wrote_again_as_it_was_is_taken_back", || {
        let mut scene = Scene::new();
        sh(
            &scene.project(),
            &format!("{GIT}; for f in a b c; do echo $f > $f; done; git init -q .; git add .; $GIT commit -qm 1"),
        );
        let before = picture(&scene.project());
        let mut transaction = scene
            .session("echo new > a; mkdir -p m/n; echo n > m/n/n; ln -s n m/l; echo x > x; chmod +x x; echo b2 > b");
        commit_all(&mut transaction);
        let host = "$GIT stash -q; $GIT stash pop -q; cp -a m copy; rm -r m; mv copy m; cp -a x y; mv y x; touch b";
        sh(&scene.project(), &format!("{GIT}; {host}"));
        let undone = transaction.undo_commit().expect("nothing is in the way");
        assert_eq!(undone.left, []);
        let in_tree =
            |picture: BTreeMap<PathBuf, String>| picture.into_iter().filter(|(path, _)| !path.starts_with(".git"));
        assert!(in_tree(picture(&scene.project())).eq(in_tree(before)));
        // What was changed below a directory is not as it was, nor is another mode.
        let again = everything(&transaction);
        let changes = transaction.changes().expect("readable");
        transaction.commit(&changes, again).expect("nothing is in the way");
        sh(&scene.project(), "cp -a m copy; echo more > copy/n/o; rm -r m; mv copy m; cp -a x y; chmod -x y; mv y x");
        let left: HashSet<PathBuf> =
            transaction.undo_commit().expect("the rest is").left.into_iter().map(|(_, path)| path).collect();
        assert!(
            left.contains(Path::new("m")) && left.contains(Path::new("x")) && !left.contains(Path::new("a")),
            "{left:?}"
        );
    });
}

#[test]
fn an_undo_that_is_killed_at_any_step_is_wholly_done_or_not_at_all() {
    apart("review::an_undo_that_is_killed_at_any_step_is_wholly_done_or_not_at_all", || {
        let mut steps = 0;
        for make in [Scene::new, Scene::on_another_mount] {
            for stop in 0.. {
                let mut scene = make();
                sh(&scene.project(), BEFORE);
                let before = picture(&scene.project());
                let mut transaction = scene.session(SESSION);
                let waited = told(&transaction);
                commit_all(&mut transaction);
                let after = picture(&scene.project());
                let mut left = stop;
                let mut between = || {
                    left = usize::checked_sub(left, 1).ok_or(Errno::CANCELED)?;
                    Ok(())
                };
                let undone = transaction.undo_commit_with(&mut between);
                let is_whole = undone.is_ok();
                let was_written = has_journal(transaction.directory.as_fd());
                drop(transaction);
                let mut again = Transaction::open(&scene.kept()).expect("recovery works");
                let now = picture(&scene.project());
                if is_whole || was_written {
                    assert_eq!(now, before, "stopped after {stop} steps, with a journal");
                    assert_eq!(told(&again), waited, "stopped after {stop} steps");
                } else {
                    assert!(now == before || now == after, "stopped after {stop} steps: {now:?}");
                }
                if now == after {
                    again.undo_commit().expect("it can be tried again");
                    assert_eq!(picture(&scene.project()), before, "stopped after {stop} steps");
                }
                steps += 1;
                if is_whole {
                    break;
                }
            }
        }
        println!("killed at {steps} steps");
        assert!(steps > 40, "{steps}");
    });
}

#[test]
fn what_a_session_left_under_the_names_of_a_note_neither_stops_nor_leads_it() {
    apart("review::what_a_session_left_under_the_names_of_a_note_neither_stops_nor_leads_it", || {
        let note = ".git/cofferdam-rejected.patch";
        for odd in ["mkfifo $n", "mkdir -p $n/deep; echo x > $n/deep/x", "ln -s ../outside $n", "echo old > $n"] {
            for name in [note.to_owned(), format!("{note}.next")] {
                let mut scene = Scene::new();
                sh(&scene.project(), "mkdir .git; echo mine > outside; echo a > a");
                sh(&scene.project(), &format!("n={name}; {odd}"));
                let transaction = scene.session("echo b > a");
                let places = transaction.write_rejected(b"left out\n").expect("it does not wait");
                assert_eq!(places.len(), 2, "{odd}");
                let written = std::fs::symlink_metadata(scene.project().join(note)).expect("it is there");
                assert!(written.is_file(), "{odd} at {name}");
                assert_eq!(std::fs::read(scene.project().join(note)).expect("readable"), b"left out\n");
                assert_eq!(std::fs::read(scene.project().join("outside")).expect("readable"), b"mine\n");
                assert!(!scene.project().join(format!("{note}.next")).exists(), "{odd}");
            }
        }
    });
}

#[test]
fn an_index_that_the_host_only_refreshed_is_taken_back_with_its_repository() {
    apart("review::an_index_that_the_host_only_refreshed_is_taken_back_with_its_repository", || {
        for (format, is_repository) in [("sha1", false), ("sha256", false), ("sha1", true)] {
            let mut scene = Scene::new();
            // The repository is the tree itself, as that of a linked worktree is, or lies in it.
            let begin = format!(
                "{GIT}; git init -q --object-format={format} work; cd work; echo a > a; git add a; $GIT commit -qm 1"
            );
            sh(&scene.base, &begin);
            sh(
                &scene.base,
                if is_repository {
                    "rmdir project; mv work/.git project"
                } else {
                    "rmdir project; mv work project; mkdir work; cp project/a work"
                },
            );
            scene.is_repository = is_repository;
            let git =
                if is_repository { "$GIT --git-dir=$PWD --work-tree=../work" } else { "$GIT --work-tree=../work" };
            let listed =
                format!("{GIT}; {git} rev-parse HEAD; {git} ls-files --stage; {git} fsck --strict --no-dangling");
            let said = |root: &Path| {
                let ran = Command::new("sh").args(["-ec", &listed]).current_dir(root).output().expect("a shell");
                (ran.status.success(), String::from_utf8_lossy(&ran.stdout).into_owned())
            };
            let before = said(&scene.project());
            let mut transaction = scene.session(&format!("{GIT}; echo b > ../work/a; {git} commit -qam 2"));
            commit_all(&mut transaction);
            assert_ne!(said(&scene.project()), before);
            let refresh = format!("{GIT}; touch -d '2020-01-01' ../work/a; {git} status");
            let index = scene.project().join(if is_repository { "index" } else { INDEX });
            let number = || std::fs::metadata(&index).expect("it is there").ino();
            let put = number();
            sh(&scene.project(), &refresh);
            assert_ne!(number(), put, "git has written it again");
            let undone = transaction.undo_commit().expect("nothing is in the way");
            assert!(undone.left.is_empty(), "{format} {is_repository}: {:?}", undone.left);
            assert_eq!(said(&scene.project()), before);
            // The control: an index to which the host has added something stays, and its repository with it.
            commit_all(&mut transaction);
            sh(&scene.project(), &format!("{GIT}; echo new > ../work/new; {git} add new"));
            let undone = transaction.undo_commit().expect("the rest");
            assert!(!undone.left.is_empty());
        }
    });
}

#[test]
fn a_mode_is_taken_with_some_hunks_or_without_any_where_it_is_named() {
    apart("review::a_mode_is_taken_with_some_hunks_or_without_any_where_it_is_named", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "seq 1 40 > f; chmod 640 f; echo g > g; chmod 600 g");
        let mut transaction =
            scene.session("sed -i '3s/$/ three/;38s/$/ last/' f; chmod 755 f; echo more >> g; chmod 6755 g");
        let changes = transaction.changes().expect("readable");
        let both = HashSet::from([PathBuf::from("f"), PathBuf::from("g")]);
        let (before, _) = transaction.contents(0, Path::new("f"), diff::LARGEST);
        let parts = HashMap::from([part("f", &before.expect("it is there"), false), part("g", b"g\n", true)]);
        let choice = Choice { chosen: both.clone(), allowed: both };
        transaction.commit_parts(&changes, vec![choice], &[parts]).expect("nothing is in the way");
        let mode =
            |name: &str| scene.project().join(name).metadata().expect("it is there").permissions().mode() & 0o7777;
        assert_eq!((mode("f"), mode("g")), (0o640, 0o755));
        assert_eq!(std::fs::read(scene.project().join("g")).expect("readable"), b"g\n");
        assert_eq!(told(&transaction), ["Modified f", "Modified g"], "the rest waits");
    });
}
