//! A transaction whose layer begins as a copy: directories can be renamed, and what the session left alone is the host's.

use super::*;
use crate::copied;

const MOVES: &str = "
    mv dir moved; mv moved/sub .; mkdir dir; echo again > dir/x; mv gone new; mv mixed becomes-file/inner; echo more >> a
    mv becomes-file b2; rm b; mv b2 b; chmod 711 shut; rm link; ln -s moved link";

fn copies(mut scene: Scene) -> Scene {
    scene.is_copy = true;
    scene
}

#[test]
fn directories_are_renamed_in_a_copy_and_a_commit_makes_the_same_of_the_project() {
    apart("copied::directories_are_renamed_in_a_copy_and_a_commit_makes_the_same_of_the_project", || {
        for make in [Scene::new, Scene::on_another_mount] {
            for script in [MOVES, SESSION] {
                let mut scene = copies(make());
                sh(&scene.project(), BEFORE);
                sh(&scene.base, "rm -rf copy; cp -a project copy");
                let rename = "python3 -c 'import os; os.mkdir(\"p\"); os.rename(\"dir\", \"p/q\"); os.rename(\"p/q\", \"dir\"); os.rmdir(\"p\")';";
                sh(&scene.base.join("copy"), script);
                let before = picture(&scene.project());
                let mut transaction = scene.session(&format!("{rename}{script}"));
                assert_eq!(picture(&scene.project()), before, "nothing reached the host");
                let committed = commit_all(&mut transaction);
                assert!(committed.left.is_empty(), "{committed:?}");
                assert_eq!(picture(&scene.project()), picture(&scene.base.join("copy")));
                assert_eq!(transaction.state(), State::Committed);
                transaction.undo_commit().expect("nothing is in the way");
                assert_eq!(picture(&scene.project()), before);
            }
        }
    });
}

/// The negative control of the mode: an overlay refuses it.
#[test]
fn an_overlay_refuses_to_rename_a_directory_of_the_project() {
    apart("copied::an_overlay_refuses_to_rename_a_directory_of_the_project", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "mkdir dir");
        scene.begin();
        let renamed = std::fs::rename(scene.inside().join("dir"), scene.inside().join("other"));
        assert_eq!(
            renamed.expect_err("overlayfs has no redirects here").raw_os_error(),
            Some(Errno::XDEV.raw_os_error())
        );
        drop(scene.end());
    });
}

#[test]
fn what_the_session_left_alone_is_the_hosts_and_what_both_changed_is_a_conflict() {
    apart("copied::what_the_session_left_alone_is_the_hosts_and_what_both_changed_is_a_conflict", || {
        let mut scene = copies(Scene::new());
        sh(&scene.project(), "mkdir d e f; for n in a b both lost d/x e/y f/z f/w; do echo old > $n; done");
        scene.begin();
        sh(
            &scene.inside(),
            "echo inside > both; echo inside > lost; echo inside > e/y; echo new > made; rm -r f; touch a",
        );
        sh(
            &scene.project(),
            "echo host > a; rm b; echo host > both; rm lost; rm -r d e; echo host > added; echo host > f/late; chmod 600 a",
        );
        let mut transaction = scene.end();
        let told = told(&transaction);
        // The session set the time of `a`, and has the old content of it.
        let wanted = [
            "Modified a conflict",
            "Modified both conflict",
            "Added e conflict",
            "Added e/y conflict",
            "Deleted f conflict",
            "Deleted f/w",
            "Deleted f/z",
            "Added lost conflict",
            "Added made",
        ];
        assert_eq!(told, wanted);
        commit_all(&mut transaction);
        let now = |name: &str| std::fs::read_to_string(scene.project().join(name)).unwrap_or_default();
        let host = ["a", "both", "added", "f/late"].map(now);
        assert_eq!(host, ["host\n"; 4]);
        assert_eq!((now("made").as_str(), now("lost").as_str(), now("b").as_str()), ("new\n", "", ""));
    });
}

#[test]
fn a_copy_has_no_hidden_content_and_one_that_was_not_touched_is_known() {
    apart("copied::a_copy_has_no_hidden_content_and_one_that_was_not_touched_is_known", || {
        let mut scene = copies(Scene::new());
        sh(
            &scene.project(),
            "mkdir -p d/.env.d; echo SECRET > .env; echo SECRET > d/.env.d/x; echo x > d/x; mkfifo pipe",
        );
        scene.hidden = [".env", "d/.env.d"]
            .iter()
            .flat_map(|name| super::checkpoints::hide(&scene.project().join(name)))
            .collect();
        scene.begin();
        let found = Command::new("grep").args(["-rl", "SECRET"]).arg(scene.kept()).output().expect("grep");
        assert_eq!(String::from_utf8_lossy(&found.stdout), "");
        assert!(scene.inside().join(".env").is_file() && scene.inside().join("d/.env.d").is_dir(), "for their covers");
        sh(&scene.inside(), "cat d/x; ls -lR > /dev/null");
        let slot = beneath::root(&scene.kept().join("0")).expect("it is there");
        assert_eq!(copied::is_touched(slot.as_fd()), Ok(false));
        sh(&scene.inside(), "rm d/x");
        assert_eq!(copied::is_touched(slot.as_fd()), Ok(true));
        let transaction = scene.end();
        assert_eq!(told(&transaction), ["Deleted d/x"], "the pipe was never in it");
    });
}
