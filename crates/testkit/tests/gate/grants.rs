//! How far a grant reaches: directories, what is hidden or mounted in them, and what the host does to them meanwhile.

use std::fs;

use cofferdam_wire::{Keep, Op, Reach};

use crate::stage::Stage;

pub(crate) fn a_directory_that_is_approved_needs_no_further_question(stage: &Stage) {
    let first = stage.unknown("notes/a", "one\n");
    let second = stage.unknown("notes/deep/b", "two\n");
    let answers = format!("{} allow dir session", first.display());
    let script =
        format!("cat {} {}; ls {}", first.display(), second.display(), second.parent().expect("one").display());
    stage.run(&answers, &script).says("one\ntwo\nb").was_asked(&[format!("Read {}", first.display())]);
}

pub(crate) fn secrets_in_an_approved_directory_stay_hidden(stage: &Stage) {
    let home = stage.scene.home().display().to_string();
    stage.scene.write("home/.config/app", "settings\n");
    stage.scene.write("home/.config/gcloud/token", "secret\n");
    stage.scene.write("home/.config/age/keys.txt", "secret\n");
    let plain = stage.unknown("app/main", "program\n");
    for name in [".env", ".env.local"] {
        stage.unknown(&format!("app/{name}"), "secret\n");
    }
    let directory = plain.parent().expect("it has one").display().to_string();
    let answers = format!("{home}/.config allow dir session\n{directory} allow dir session");
    let script = format!(
        "cd {home}/.config; cat {home}/.config/app {directory}/main; \
         cat {home}/.config/gcloud/token {home}/.config/age/keys.txt {directory}/.env {directory}/.env.local; \
         cat gcloud/token; ls {home}/.config/gcloud; find {home}/.config {directory} -type f -exec cat {{}} +"
    );
    let done = stage.run_with(&format!(",deny={directory}/.env*"), &answers, &stage.scene.project(), &script);
    assert!(done.out.contains("settings\nprogram\n") && !done.out.contains("secret"), "{done:?}");
    done.was_asked(&[format!("Read {home}/.config/app"), format!("Read {directory}/main")]);
}

pub(crate) fn a_directory_that_cannot_be_searched_for_secrets_is_not_given(stage: &Stage) {
    if rustix::process::getuid().is_root() {
        println!("skipped: root can list every directory");
        return;
    }
    let plain = stage.unknown("app/main", "program\n");
    stage.unknown("app/.env", "secret\n");
    let directory = plain.parent().expect("it has one");
    let modes = |mode| std::fs::set_permissions(directory, std::os::unix::fs::PermissionsExt::from_mode(mode));
    modes(0o300).expect("it is ours");
    let shown = directory.display();
    let answers = format!("{shown} allow dir session");
    let script = format!("cat {shown}/main; cat {shown}/.env");
    let done = stage.run_with(&format!(",deny={shown}/.env*"), &answers, &stage.scene.project(), &script);
    modes(0o700).expect("it is ours");
    assert!(done.out.is_empty(), "{done:?}");
    done.complains("Permission denied");
}

pub(crate) fn the_home_is_never_given_as_a_whole(stage: &Stage) {
    let file = stage.scene.write("home/notes", "mine\n");
    let other = stage.scene.write("home/other", "not asked\n");
    stage.scene.write("home/.ssh/id", "secret\n");
    let answers = format!("{} allow dir session", file.display());
    let ssh = stage.scene.home().join(".ssh/id");
    let script = format!("cat {} {} {}", file.display(), other.display(), ssh.display());
    let done = stage.run(&answers, &script);
    done.says("mine").was_asked(&[format!("Read {}", file.display()), format!("Read {}", other.display())]);
}

pub(crate) fn what_was_writable_below_an_approved_directory_stays_so(stage: &Stage) {
    let project = stage.scene.directory("home/work/project");
    let beside = stage.scene.write("home/work/notes", "beside\n");
    let answers = format!("{} allow dir session", beside.display());
    let script = format!(
        "echo before > one && cat {} && echo after > two && cat two && cat {1}/one",
        beside.display(),
        project.display()
    );
    let done = stage.run_with("", &answers, &project, &script);
    done.says("beside\nafter\nbefore").was_asked(&[format!("Read {}", beside.display())]);
    assert_eq!(fs::read_to_string(project.join("two")).expect("it was written for real"), "after\n");
}

pub(crate) fn a_file_that_is_replaced_on_the_host_is_seen_anew_without_a_question(stage: &Stage) {
    let file = stage.unknown("notes/a", "old\n");
    let path = file.display();
    let script = format!("cat {path}; > read; until [ -e replaced ]; do sleep 0.02; done; sleep 0.3; cat {path}");
    let mut live = stage.start("", &script);
    let question = live.person.question().expect("a question");
    live.person.allow(question.id, Reach::File, Keep::Session).expect("it listens");
    stage.await_mark("read");
    let new = stage.unknown("notes/new", "new\n");
    fs::rename(new, &file).expect("the directory is ours");
    stage.mark("replaced");
    live.finish().says("old\nnew");
}

pub(crate) fn who_stood_in_a_directory_before_it_was_given_goes_on_there(stage: &Stage) {
    let (first, second) = (stage.unknown("notes/a", "one\n"), stage.unknown("notes/b", "two\n"));
    stage.unknown("notes/deep/c", "three\n");
    let directory = first.parent().expect("it has one").display();
    let answers = format!("{} allow dir session", first.display());
    let script = format!("cd {directory}; cat {}; cat b; cat deep/c; cat {}", first.display(), second.display());
    let done = stage.run(&answers, &script);
    done.says("one\ntwo\nthree\ntwo").was_asked(&[format!("Read {}", first.display())]);
}

pub(crate) fn who_lists_the_directory_it_stands_in_sees_what_was_given(stage: &Stage) {
    let file = stage.unknown("notes/a", "one\n");
    stage.unknown("notes/b", "two\n");
    stage.unknown("notes/.env", "secret\n");
    let directory = file.parent().expect("it has one").display().to_string();
    let answers = format!("{directory} allow dir session");
    let script = format!("cd {directory}; ls -A; cat a; cat ./b; cat .env; cd ..; ls notes");
    let done = stage.run_with(&format!(",deny={directory}/.env*"), &answers, &stage.scene.project(), &script);
    let shown: Vec<&str> = done.out.lines().filter(|line| *line != ".env").collect();
    assert_eq!(shown, ["a", "b", "one", "two", "a", "b"], "{done:?}");
    done.was_asked(&[format!("List {directory}")]);
}

pub(crate) fn ways_out_of_an_approved_directory_are_asked(stage: &Stage) {
    let file = stage.unknown("notes/deep/a", "given\n");
    let secret = stage.unknown("secret/file", "secret\n");
    stage.scene.link("outside/notes/link", &secret);
    let notes = stage.scene.outside().join("notes").display().to_string();
    let answers = format!("{notes} allow dir session");
    let script = format!(
        "ls {notes} > /dev/null; cd {notes}/deep; cat a; cat ../../secret/file; cat ../link; \
         cat /proc/self/cwd/../../secret/file; exec 3< {notes}/deep; cat /proc/self/fd/3/../../secret/file; cat {}",
        file.display()
    );
    let done = stage.run(&answers, &script);
    done.says("given\ngiven");
    assert!(done.asked().contains(&format!("Read {}", secret.display()).as_str()), "{done:?}");
}

pub(crate) fn what_was_given_for_reading_is_not_opened_again_for_writing(stage: &Stage) {
    for keep in [Keep::Session, Keep::Once] {
        let file = stage.unknown("notes/a", "one\n");
        let script =
            format!("exec 3< {}; cat <&3; echo evil > /proc/self/fd/3; echo evil >> /dev/fd/3", file.display());
        let mut live = stage.start("", &script);
        let question = live.person.question().expect("a question");
        live.person.allow(question.id, Reach::File, keep).expect("it listens");
        // Where it is asked at all it is asked as what it is.
        while let Ok(question) = live.person.question() {
            assert_eq!(question.op, Op::Write, "{question:?}");
            live.person.deny(question.id).expect("it listens");
        }
        live.finish().says("one");
        assert_eq!(fs::read_to_string(&file).expect("it is ours"), "one\n");
    }
}

pub(crate) fn what_was_asked_about_is_what_is_given(stage: &Stage) {
    let file = stage.unknown("notes/a", "shown\n");
    let (path, aside) = (file.display(), file.with_extension("aside"));
    let mut live = stage.start("", &format!("cat {path}"));
    let question = live.person.question().expect("a question");
    assert_eq!(question.path, path.to_string());
    fs::rename(&file, aside).expect("the directory is ours");
    stage.unknown("notes/a", "swapped\n");
    live.person.allow(question.id, Reach::File, Keep::Session).expect("it listens");
    let done = live.finish();
    assert!(!done.out.contains("swapped"), "{done:?}");
}
