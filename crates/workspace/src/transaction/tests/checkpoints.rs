//! Checkpoints of real overlays, while they are mounted and afterwards: each is put back and compared with what was there.

use super::closed::{CLOSED, as_user};
use super::properties::{Deed, Random, begin, plain, sequences};
use super::*;
use crate::checkpoint::{By, Checkpoints, Would};

pub(super) fn take(all: &mut Checkpoints, label: &str) -> Option<usize> {
    let pending = all.begin().expect("readable");
    all.finish(pending, By::Exec, label).expect("writable")
}

fn view(scene: &Scene) -> Vec<OwnedFd> {
    vec![beneath::root(&scene.inside()).expect("it is mounted")]
}

pub(super) fn undo(scene: &Scene, all: &mut Checkpoints, to: usize) {
    take(all, "before undo");
    let restored = all.put_back_live(to, &view(scene)).expect("nothing is in the way");
    assert_eq!(restored.stayed, Vec::<PathBuf>::new());
}

pub(super) fn put_back_sealed(scene: &Scene, to: usize) {
    let mut all = Checkpoints::open_sealed(&scene.kept()).expect("it is sealed");
    take(&mut all, "the end");
    all.put_back_sealed(to).expect("nothing is in the way");
}

#[test]
fn each_step_of_a_live_session_is_taken_back_byte_for_byte() {
    apart("checkpoints::each_step_of_a_live_session_is_taken_back_byte_for_byte", || {
        let mut scene = Scene::new();
        sh(&scene.project(), BEFORE);
        sh(
            &scene.project(),
            "mkdir .git; echo ref > .git/HEAD; mkdir -p src/deep; echo 1 > src/deep/one; echo 2 > src/two",
        );
        scene.begin();
        let mut all = Checkpoints::open(&scene.kept()).expect("it has begun");
        let steps = [
            "sed -i s/one/ONE/ a",
            "mkdir -p .git/hooks; printf '#!/bin/sh\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
            "mkdir .vscode; echo '{}' > .vscode/tasks.json; echo '{}' > .mcp.json",
            "rm -rf src",
            "mkdir -p src/deep; echo other > src/deep/one; ln -s deep src/link",
            "rm -rf dir; echo now a file > dir; chmod 600 b; ln a a-too; echo more >> a",
        ];
        let mut seen = vec![picture(&scene.inside())];
        for (number, step) in steps.iter().enumerate() {
            sh(&scene.inside(), step);
            assert_eq!(take(&mut all, step), Some(number + 1), "{step}");
            assert_eq!(take(&mut all, "nothing changed"), None);
            seen.push(picture(&scene.inside()));
        }
        for back in (0..steps.len()).rev() {
            assert_eq!(all.before(1), Some(back));
            undo(&scene, &mut all, back);
            assert_eq!(picture(&scene.inside()), seen[back], "back at {back}");
        }
        assert_eq!(all.before(1), None, "before the beginning there is nothing");
        // And forward again: what was undone is not lost.
        undo(&scene, &mut all, steps.len());
        assert_eq!(picture(&scene.inside()), seen[steps.len()]);
        undo(&scene, &mut all, 0);
        drop(all);
        assert_eq!(told(&scene.end()), Vec::<String>::new(), "at the beginning there is nothing to commit");
    });
}

#[test]
fn a_preview_says_what_comes_back_what_goes_and_what_changes() {
    apart("checkpoints::a_preview_says_what_comes_back_what_goes_and_what_changes", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "echo 1 > changed; echo 2 > removed; mkdir d; echo 3 > d/in");
        scene.begin();
        let mut all = Checkpoints::open(&scene.kept()).expect("it has begun");
        sh(&scene.inside(), "echo 4 > changed; rm removed; rm -r d; echo 5 > new; echo 6 > gone-again; rm gone-again");
        take(&mut all, "all").expect("it changed");
        let project = scene.project();
        let found = all.preview(0).expect("readable");
        let line = |name: &str| found.iter().find(|one| one.path == project.join(name)).map(|one| one.would);
        assert_eq!(line("changed"), Some(Would::Change));
        assert_eq!(line("removed"), Some(Would::ComeBack));
        assert_eq!(line("d"), Some(Would::ComeBack));
        assert_eq!(line("new"), Some(Would::Go));
        assert_eq!(line("gone-again"), None);
    });
}

#[test]
fn a_sealed_transaction_goes_back_to_a_checkpoint_and_is_committed_as_it_was_then() {
    apart("checkpoints::a_sealed_transaction_goes_back_to_a_checkpoint_and_is_committed_as_it_was_then", || {
        let mut scene = Scene::new();
        sh(&scene.project(), BEFORE);
        scene.begin();
        let mut all = Checkpoints::open(&scene.kept()).expect("it has begun");
        sh(
            &scene.inside(),
            "echo good > a; rm -r gone; rm -rf mixed; mkdir mixed; echo new > mixed/n; chmod 500 mixed",
        );
        take(&mut all, "good").expect("it changed");
        let good = picture(&scene.inside());
        sh(&scene.inside(), "echo bad > a; echo bad > bad; chmod 700 mixed; rm -rf mixed dir");
        take(&mut all, "bad").expect("it changed");
        drop(all);
        drop(scene.end());
        put_back_sealed(&scene, 1);
        let mut transaction = Transaction::open(&scene.kept()).expect("it is there");
        commit_all(&mut transaction);
        assert_eq!(picture(&scene.project()), good);
    });
}

#[test]
fn what_was_written_in_the_tick_of_a_checkpoint_is_in_the_next_one() {
    apart("checkpoints::what_was_written_in_the_tick_of_a_checkpoint_is_in_the_next_one", || {
        let mut scene = Scene::new();
        scene.begin();
        let mut all = Checkpoints::open(&scene.kept()).expect("it has begun");
        for round in 0..200u32 {
            let text = format!("{:04}", round % 7);
            std::fs::write(scene.inside().join("f"), &text).expect("writable");
            let number = take(&mut all, "").expect("it differs from the one before");
            // Where nothing else changes, the only file of a checkpoint is the last that was copied for it.
            let copies = std::fs::read_dir(scene.kept().join(format!("checkpoints/{number}"))).expect("it is kept");
            let numbered = copies.filter_map(|copy| copy.ok()?.file_name().to_str()?.parse::<usize>().ok());
            let copy = scene.kept().join(format!("checkpoints/{number}/{}", numbered.max().expect("a copy")));
            assert_eq!(std::fs::read_to_string(copy).expect("it is kept"), text, "round {round}");
        }
        assert!(all.records().len() <= 64, "the oldest were merged");
        let first = all.records()[0].number;
        undo(&scene, &mut all, first);
        assert_eq!(
            std::fs::read_to_string(scene.inside().join("f")).expect("it is there"),
            format!("{:04}", (first - 1) % 7)
        );
        assert!(!all.has(first - 1) && all.before(1).is_none(), "what was merged cannot be put back");
        let kept = std::fs::read_dir(scene.kept().join("checkpoints")).expect("readable").count();
        assert!(kept <= 66, "{kept} directories are left");
    });
}

/// A workload may say as many labels as it likes.
#[test]
fn labels_push_out_neither_the_beginning_nor_an_operators_checkpoints() {
    apart("checkpoints::labels_push_out_neither_the_beginning_nor_an_operators_checkpoints", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "echo host > f");
        scene.begin();
        let before = picture(&scene.inside());
        let mut all = Checkpoints::open(&scene.kept()).expect("it has begun");
        let mut operators = Vec::new();
        for round in 0..300u32 {
            let step = if round % 2 == 0 {
                "echo $0 > made; rm -f f"
            } else {
                "echo $0 > f; mkdir -p d; echo $0 > d/$0; rm made"
            };
            sh(&scene.inside(), &step.replace("$0", &round.to_string()));
            if round % 60 == 5 {
                let pending = all.begin().expect("it can be copied");
                let number = all.finish(pending, By::Operator, "mine").expect("it can be written").expect("it changed");
                operators.push((number, picture(&scene.inside())));
            } else {
                take(&mut all, "label").expect("it changed");
            }
        }
        assert!(all.records().len() <= 64 + operators.len(), "{} are left", all.records().len());
        // As a process sees them that comes later.
        drop(all);
        let mut all = Checkpoints::open(&scene.kept()).expect("it is there");
        let last = picture(&scene.inside());
        let newest = all.last();
        for (number, then) in &operators {
            undo(&scene, &mut all, *number);
            assert_eq!(picture(&scene.inside()), *then, "checkpoint {number}");
        }
        undo(&scene, &mut all, 0);
        assert_eq!(picture(&scene.inside()), before);
        undo(&scene, &mut all, newest);
        assert_eq!(picture(&scene.inside()), last);
    });
}

#[test]
fn what_a_workload_closed_to_its_owner_is_in_a_users_checkpoint() {
    apart("checkpoints::what_a_workload_closed_to_its_owner_is_in_a_users_checkpoint", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "mkdir -p was locked/in; echo old > was/old; echo x > locked/in/x; chmod 555 locked");
        scene.begin();
        let before = picture(&scene.inside());
        let mut all = Checkpoints::open(&scene.kept()).expect("it has begun");
        sh(&scene.inside(), CLOSED);
        let closed = picture(&scene.inside());
        as_user(|| take(&mut all, "closed")).expect("it changed");
        as_user(|| undo(&scene, &mut all, 0));
        assert_eq!(picture(&scene.inside()), before);
        as_user(|| undo(&scene, &mut all, 1));
        assert_eq!(picture(&scene.inside()), closed);
        sh(&scene.inside(), "chmod 700 d; rm -r d");
        drop(all);
        drop(scene.end());
        as_user(|| put_back_sealed(&scene, 1));
        let mut transaction = Transaction::open(&scene.kept()).expect("it is there");
        commit_all(&mut transaction);
        assert_eq!(picture(&scene.project()), closed);
    });
}

#[test]
fn files_with_several_names_go_back_to_a_state_that_was_put_back_before() {
    apart("checkpoints::files_with_several_names_go_back_to_a_state_that_was_put_back_before", || {
        let mut scene = Scene::new();
        scene.begin();
        let mut all = Checkpoints::open(&scene.kept()).expect("it has begun");
        sh(&scene.inside(), "echo one > a; ln a b; ln a c");
        take(&mut all, "linked").expect("it changed");
        let linked = picture(&scene.inside());
        sh(&scene.inside(), "rm a b c; echo other > a");
        take(&mut all, "other").expect("it changed");
        undo(&scene, &mut all, 1);
        let back = all.last();
        std::thread::sleep(std::time::Duration::from_millis(30));
        sh(&scene.inside(), "rm b; echo x > x");
        undo(&scene, &mut all, back);
        assert_eq!(picture(&scene.inside()), linked);
        drop(all);
        drop(scene.end());
        put_back_sealed(&scene, back);
        let mut transaction = Transaction::open(&scene.kept()).expect("it is there");
        commit_all(&mut transaction);
        assert_eq!(picture(&scene.project()), linked);
    });
}

#[test]
fn nothing_comes_from_another_directory_that_has_the_name_by_now_and_no_masked_name() {
    apart("checkpoints::nothing_comes_from_another_directory_that_has_the_name_by_now_and_no_masked_name", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "mkdir src; echo ours > src/id");
        scene.masked = hide(&scene.project().join("src/.npmrc"));
        scene.begin();
        let mut all = Checkpoints::open(&scene.kept()).expect("it has begun");
        sh(&scene.inside(), "rm -r src");
        take(&mut all, "removed").expect("it changed");
        // What the host made meanwhile is not given with the directory.
        sh(&scene.project(), "echo TOKEN > src/.npmrc");
        undo(&scene, &mut all, 0);
        assert!(scene.inside().join("src/id").exists() && !scene.inside().join("src/.npmrc").exists());
        sh(&scene.inside(), "rm -r src");
        take(&mut all, "removed again").expect("it changed");
        sh(&scene.base, "mv project moved; mkdir -p project/src; echo private > project/src/id");
        let refused = all.put_back_live(0, &view(&scene));
        sh(&scene.base, "rm -r project; mv moved project");
        assert_eq!(refused.err(), Some(Errno::STALE));
        assert!(!scene.inside().join("src").exists());
    });
}

pub(super) fn hide(path: &Path) -> Vec<HiddenRule> {
    let rule = serde_json::json!({ "place": path, "is_glob": false, "tail": 0, "except": "", "hides": true, "is_final": true, "layer": "flag" });
    vec![serde_json::from_value(rule).expect("a rule")]
}

#[test]
fn a_hidden_name_is_in_no_checkpoint() {
    apart("checkpoints::a_hidden_name_is_in_no_checkpoint", || {
        let mut scene = Scene::new();
        scene.hidden = hide(&scene.project().join("secret"));
        scene.begin();
        let mut all = Checkpoints::open(&scene.kept()).expect("it has begun");
        sh(&scene.inside(), "echo s > secret; echo a > a");
        take(&mut all, "").expect("something changed");
        assert_eq!(all.records()[0].first, [PathBuf::from("a")]);
        sh(&scene.inside(), "echo t > secret");
        assert_eq!(take(&mut all, ""), None);
        undo(&scene, &mut all, 0);
        assert_eq!(std::fs::read_to_string(scene.inside().join("secret")).expect("it stays"), "t\n");
    });
}

/// Without which names are one file: of a file that was linked before it was written to, an overlay shows two numbers.
fn contents(root: &Path) -> BTreeMap<PathBuf, Option<String>> {
    picture(root).iter().map(|(path, text)| (path.clone(), plain(Some(text)))).collect()
}

#[test]
fn any_sequence_goes_back_to_any_of_its_checkpoints() {
    apart("checkpoints::any_sequence_goes_back_to_any_of_its_checkpoints", || {
        let mut put_back = 0;
        for seed in 0..sequences() {
            let mut random = Random(seed ^ 0xc4ec_0000);
            let mut scene = Scene::new();
            begin(&scene, &mut random);
            scene.begin();
            let mut all = Checkpoints::open(&scene.kept()).expect("it has begun");
            let mut seen = vec![(0, contents(&scene.inside()))];
            let mut done = Vec::new();
            for _ in 0..=random.below(6) {
                for _ in 0..=random.below(5) {
                    let deed = Deed::random(&mut random);
                    deed.apply(&scene.inside());
                    done.push(deed);
                }
                if let Some(number) = take(&mut all, "") {
                    seen.push((number, contents(&scene.inside())));
                }
            }
            for _ in 0..2 {
                let which = usize::try_from(random.below(seen.len() as u64)).expect("small");
                undo(&scene, &mut all, seen[which].0);
                assert_eq!(
                    contents(&scene.inside()),
                    seen[which].1,
                    "seed {seed}: to {} after {done:?}",
                    seen[which].0
                );
                put_back += 1;
            }
            let (to, wanted) = seen.swap_remove(usize::try_from(random.below(seen.len() as u64)).expect("small"));
            drop(all);
            drop(scene.end());
            put_back_sealed(&scene, to);
            let mut transaction = Transaction::open(&scene.kept()).expect("it is there");
            commit_all(&mut transaction);
            assert_eq!(contents(&scene.project()), wanted, "seed {seed}: committed as of {to} after {done:?}");
        }
        println!("{} sequences, {put_back} put back while mounted", sequences());
        assert!(put_back > 0);
    });
}

#[test]
fn a_lock_of_git_is_neither_kept_nor_committed() {
    apart("checkpoints::a_lock_of_git_is_neither_kept_nor_committed", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "git init -q .; echo a > a; echo lock > Cargo.lock");
        scene.begin();
        let mut all = Checkpoints::open(&scene.kept()).expect("it has begun");
        sh(
            &scene.inside(),
            "echo b > a; echo x > .git/index.lock; echo x > .git/refs/heads/main.lock; echo new > Cargo.lock",
        );
        let first = take(&mut all, "").expect("something changed");
        assert_eq!(all.records()[first - 1].names, 2, "{:?}", all.records());
        sh(&scene.inside(), "rm .git/index.lock");
        assert_eq!(take(&mut all, ""), None, "nothing has changed");
        let mut transaction = scene.end();
        let skipped = &transaction.changes().expect("readable")[0].skipped;
        assert!(skipped.iter().any(|one| one.why == Why::Lock), "{skipped:?}");
        commit_all(&mut transaction);
        assert!(!scene.project().join(".git/refs/heads/main.lock").exists());
        assert_eq!(std::fs::read_to_string(scene.project().join("Cargo.lock")).expect("it is there"), "new\n");
    });
}
