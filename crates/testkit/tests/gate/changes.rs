//! Changes in unknown places: writing and making a file are asked, everything else is refused at once.

use std::fs;
use std::time::Duration;

use crate::stage::Stage;

pub(crate) fn a_write_asks_for_writing(stage: &Stage) {
    let (good, bad) = (stage.unknown("good/a", "one\n"), stage.unknown("bad/a", "one\n"));
    let answers = format!("{} allow file session", good.display());
    let script = format!("echo two >> {0}; echo three >> {0}; cat {0}; echo two >> {1}", good.display(), bad.display());
    let done = stage.run(&answers, &script);
    done.says("one\ntwo\nthree").complains("Permission denied");
    done.was_asked(&[format!("Write {}", good.display()), format!("Write {}", bad.display())]);
    assert_eq!(fs::read_to_string(&good).expect("it is ours"), "one\ntwo\nthree\n");
    assert_eq!(fs::read_to_string(&bad).expect("it is ours"), "one\n");
}

pub(crate) fn a_new_file_is_asked_for_and_made_on_the_host(stage: &Stage) {
    let (good, bad) =
        (stage.scene.directory("outside/good").join("new"), stage.scene.directory("outside/bad").join("new"));
    let answers = format!("{} allow file session", good.display());
    let done = stage.run(&answers, &format!("echo made > {}; echo made > {}", good.display(), bad.display()));
    done.says("").was_asked(&[format!("Create {}", good.display()), format!("Create {}", bad.display())]);
    assert_eq!(fs::read_to_string(&good).expect("it was made"), "made\n");
    assert!(!bad.exists(), "{done:?}");
}

pub(crate) fn other_changes_are_refused_at_once(stage: &Stage) {
    let file = stage.unknown("notes/a", "here\n");
    let directory = file.parent().expect("it has one").display();
    // In one program: starting eight of them takes half a minute where the processor is software.
    let changes = r#"$_ = shift; unlink "$_/none" or print "1\n"; unlink "$_/a" or print "2\n"; rename "$_/a", "$_/b" or print "3\n";
        symlink "x", "$_/link" or print "4\n"; link "$_/a", "$_/hard" or print "5\n"; chmod 0777, "$_/a" or print "6\n";
        rmdir or print "7\n""#;
    let done = stage.run("", &format!("perl -e '{changes}' {directory}; mkfifo {directory}/fifo || echo 8"));
    done.says("1\n2\n3\n4\n5\n6\n7\n8");
    assert_eq!(done.asked(), Vec::<&str>::new());
    // No question was waited for: one is denied after minutes.
    assert!(done.took < Duration::from_secs(20), "{done:?}");
    assert_eq!(fs::read_dir(file.parent().expect("it has one")).expect("it is there").count(), 1);
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "here\n");
}
