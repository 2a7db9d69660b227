//! First access by reading, starting, listing and mapping: what an answer does to the very call that waits.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::stage::Stage;

pub(crate) fn an_approved_open_goes_on_with_a_native_descriptor(stage: &Stage) {
    let file = stage.unknown("notes/a", "the content\n");
    let path = file.display();
    let device = fs::metadata(&file).expect("it is there").dev();
    let script = format!("exec 3< {path}; stat -Lc %d /proc/self/fd/3; cat <&3; cat {path}");
    let done = stage.run(&format!("{path} allow file session"), &script);
    done.says(&format!("{device}\nthe content\nthe content")).was_asked(&[format!("Read {path}")]);
    assert_eq!(done.code, Some(0));
}

pub(crate) fn a_denied_open_fails_with_eacces(stage: &Stage) {
    let file = stage.unknown("notes/a", "the content\n");
    let done = stage.run("", &format!("cat {0}; cat {0}", file.display()));
    done.says("").complains("Permission denied");
    assert_eq!(done.asked().len(), 2, "denied once is asked again: {done:?}");
    assert_eq!(done.code, Some(1));
}

fn shell() -> PathBuf {
    Path::new("/bin/sh").canonicalize().expect("there is a shell")
}

pub(crate) fn an_approved_program_starts(stage: &Stage) {
    let (one, two) = (stage.copy(&shell(), "tools/one"), stage.copy(&shell(), "more/two"));
    let (one, two) = (one.display(), two.display());
    let answers = format!("{one} allow file session\n{two} allow dir session");
    let script = format!("{one} -c 'echo one'; {one} -c 'echo again'; {two} -c 'echo two'; {two} -c 'echo again'");
    let done = stage.run(&answers, &script);
    done.says("one\nagain\ntwo\nagain").was_asked(&[format!("Exec {one}"), format!("Exec {two}")]);
}

pub(crate) fn a_denied_program_does_not_start(stage: &Stage) {
    let tool = stage.copy(&shell(), "tools/one");
    let done = stage.run("", &format!("{} -c 'echo ran'; echo $?", tool.display()));
    done.says("126").complains("Permission denied");
    assert_eq!(done.asked(), [format!("Exec {}", tool.display())]);
}

pub(crate) fn a_script_and_its_unknown_interpreter_start_when_both_are_approved(stage: &Stage) {
    let (interpreter, script) = script_of_an_unknown_interpreter(stage);
    let answers = format!("{interpreter} allow file session\n{script} allow file session");
    let done = stage.run(&answers, &format!("{script} word; {script} again"));
    done.says("script word\nscript again");
    let asked = done.asked();
    assert!(asked.contains(&format!("Exec {script}").as_str()), "{done:?}");
    assert!(asked.iter().any(|question| question.ends_with(&interpreter)), "{done:?}");
    assert!(asked.len() <= 3, "at most the script, its interpreter and the script's content: {done:?}");
}

pub(crate) fn a_script_does_not_start_without_its_interpreter(stage: &Stage) {
    let (interpreter, script) = script_of_an_unknown_interpreter(stage);
    let done = stage.run(&format!("{script} allow file session"), &format!("{script} word || echo $?"));
    assert!(!done.out.contains("script"), "{done:?}");
    assert!(done.asked().iter().any(|question| question.ends_with(&interpreter)), "{done:?}");
}

fn script_of_an_unknown_interpreter(stage: &Stage) -> (String, String) {
    use std::os::unix::fs::PermissionsExt as _;
    let interpreter = stage.copy(&shell(), "tools/interpreter").display().to_string();
    let script = stage.unknown("scripts/run", &format!("#!{interpreter}\necho script $1\n"));
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is ours");
    (interpreter, script.display().to_string())
}

pub(crate) fn an_approved_listing_shows_names_and_opens_none_of_them(stage: &Stage) {
    stage.unknown("notes/a", "first\n");
    let file = stage.unknown("notes/b", "second\n");
    let directory = file.parent().expect("it has one").display();
    let answers = format!("{} deny file once\n{directory} allow file session", file.display());
    let done = stage.run(&answers, &format!("ls {directory}; ls {directory}; cat {}", file.display()));
    done.says("a\nb\na\nb").complains("Permission denied");
    done.was_asked(&[format!("List {directory}"), format!("Read {}", file.display())]);
}

pub(crate) fn an_approved_library_is_mapped_and_a_denied_one_is_not(stage: &Stage) {
    let maps = fs::read_to_string("/proc/self/maps").expect("every process has them");
    let Some(known) = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|p| p.contains("libgcc_s"))
    else {
        println!("skipped: no library that could be copied");
        return;
    };
    let (good, bad) = (stage.copy(Path::new(known), "lib/libgood.so"), stage.copy(Path::new(known), "bad/libbad.so"));
    let (good, bad) = (good.display(), bad.display());
    let script = format!("for l in {good} {bad}; do LD_PRELOAD=$l grep -c r-xp.*$l /proc/self/maps; done");
    let done = stage.run(&format!("{good} allow file session"), &script);
    done.says("1\n0").was_asked(&[format!("Read {good}"), format!("Read {bad}")]);
}

pub(crate) fn approved_once_is_asked_again(stage: &Stage) {
    let file = stage.unknown("notes/a", "the content\n");
    let path = file.display();
    // For a moment what was mounted for one call can be met by another.
    let script = format!("cat {path}; sleep 0.4; cat {path}");
    let done = stage.run(&format!("{path} allow file once"), &script);
    done.says("the content\nthe content").was_asked(&[format!("Read {path}"), format!("Read {path}")]);
}

pub(crate) fn a_denial_that_is_kept_is_not_asked_again(stage: &Stage) {
    let (first, second) = (stage.unknown("notes/a", "one\n"), stage.unknown("notes/b", "two\n"));
    let answers = format!("{} deny dir session", first.display());
    let done = stage.run(&answers, &format!("cat {0}; cat {0}; cat {1}", first.display(), second.display()));
    done.says("").was_asked(&[format!("Read {}", first.display())]);
}

pub(crate) fn a_link_is_asked_by_what_it_leads_to(stage: &Stage) {
    let file = stage.unknown("notes/a", "the content\n");
    let link = stage.scene.link("outside/links/b", &file);
    let done = stage.run(&format!("{} allow file session", file.display()), &format!("cat {}", link.display()));
    done.says("the content").was_asked(&[format!("Read {}", file.display())]);
}

pub(crate) fn a_program_in_an_unknown_directory_is_found_by_its_name(stage: &Stage) {
    let tool = stage.copy(&shell(), "tools/unusual-name");
    let directory = tool.parent().expect("it has one").display();
    let script = format!("PATH={directory}:$PATH; unusual-name -c 'echo found'");
    let done = stage.run(&format!("{} allow file session", tool.display()), &script);
    done.says("found").was_asked(&[format!("Exec {}", tool.display())]);
}
