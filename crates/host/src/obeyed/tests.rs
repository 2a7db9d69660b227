use cofferdam_policy::{Transaction, obeyed_names};

use super::*;
use crate::memory::tests::{scene, settle};

#[test]
fn every_name_of_the_list_is_met_where_it_lies() {
    let names = Names::shipped();
    for (index, listed) in obeyed_names().enumerate() {
        let text = listed.name.replace('*', "any");
        let path = if listed.in_git { format!(".git/{text}") } else { text };
        let (mut whole, mut begun) = (None, Vec::new());
        for (level, part) in path.split('/').enumerate() {
            (whole, begun) = names.go_on(&begun, level > 0, OsStr::new(part));
        }
        assert_eq!(whole, Some(index), "{path}");
    }
    for other in ["package.json.bak", "vscode", ".vscode2", "code-workspace", "README.md"] {
        assert_eq!(names.go_on(&[], false, OsStr::new(other)), (None, Vec::new()), "{other}");
    }
    assert!(names.go_on(&[], false, OsStr::new(".VSCode")).0.is_some(), "some file systems fold case");
    assert!(names.go_on(&[], true, OsStr::new(".vscode")).0.is_none(), "not in what is passed by");
}

#[test]
fn in_a_transaction_the_project_is_not_written_directly() {
    let facts = HostFacts { project: Some("/p".into()), ..HostFacts::default() };
    let mut policy = Policy::built_in();
    assert_eq!(direct_project(&policy, &facts), Some(Path::new("/p")));
    for transaction in [Transaction::Auto, Transaction::Review] {
        policy.transaction.value = transaction;
        assert_eq!(direct_project(&policy, &facts), None, "{transaction}");
    }
}

#[test]
fn what_opens_comes_first_and_a_reason_is_short() {
    let names: Vec<_> = obeyed_names().collect();
    assert!(names.is_sorted_by_key(|name| name.class));
    for name in names {
        assert!(name.why.len() < 120, "{}: {}", name.name, name.why);
    }
}

#[test]
fn a_directory_without_a_name_of_the_list_is_not_listed_again_until_it_changes() {
    let scene = scene("obeyed");
    let (project, state) = (scene.join("project"), scene.join("state"));
    for number in 0..40 {
        let directory = project.join(format!("{number}/sub"));
        std::fs::create_dir_all(&directory).expect("a directory");
        std::fs::write(directory.join("file"), "x").expect("a file");
    }
    std::fs::write(project.join("3/package.json"), "{}").expect("a file");
    std::fs::create_dir(project.join("4/node_modules")).expect("a directory");
    settle();
    let since = |start| {
        let found = look(&project, start, &[], Some(&state));
        assert_eq!((found.more, found.unseen), (0, None));
        found.files.into_iter().map(|file| file.path.display().to_string()).collect::<Vec<_>>()
    };
    assert!(since(Start::now(Some(&project))).is_empty());
    let memory = || std::fs::read_dir(state.join("looked-at")).expect("it was written").count();
    assert_eq!(memory(), 1);
    let start = Start::now(Some(&project));
    assert!(since(start).is_empty());
    std::fs::write(project.join("3/package.json"), "{ }").expect("the same file, in a directory that does not change");
    for made in ["7/.vscode", "8/new/deep", "4/node_modules/.vscode"] {
        std::fs::create_dir_all(project.join(made)).expect("a directory");
    }
    std::fs::write(project.join("7/.vscode/tasks.json"), "{}").expect("a file");
    std::fs::write(project.join("8/new/deep/.envrc"), "x").expect("a file");
    std::fs::rename(project.join("9"), project.join("10/moved")).expect("it is there");
    std::fs::write(project.join("10/moved/sub/.envrc"), "x").expect("a file");
    let expected = ["10/moved/sub/.envrc", "7/.vscode/tasks.json", "8/new/deep/.envrc", "3/package.json"];
    assert_eq!(since(start), expected);
    // A directory of another time in the place of a remembered one.
    std::fs::rename(project.join("12"), scene.join("away")).expect("it is there");
    std::fs::create_dir(project.join("12")).expect("a directory");
    std::fs::write(project.join("12/.envrc"), "x").expect("a file");
    assert!(since(start).contains(&"12/.envrc".to_owned()));
    std::fs::remove_dir_all(scene).expect("it is ours");
}

#[test]
fn what_git_obeys_is_reported_of_a_repository_below_the_project_too() {
    let project = scene("obeyed-git");
    let git = project.join("sub/.git");
    std::fs::create_dir_all(git.join("objects/info")).expect("a directory");
    std::fs::create_dir_all(git.join("worktrees")).expect("a directory");
    let start = Start::now(Some(&project));
    for name in ["objects/info/alternates", "gitdir", "config"] {
        std::fs::write(git.join(name), "x").expect("a file");
    }
    let found = look(&project, start, &[], None);
    let names: Vec<_> = found.files.iter().map(|file| file.path.display().to_string()).collect();
    assert_eq!(names, ["sub/.git/config", "sub/.git/gitdir", "sub/.git/objects/info/alternates"]);
    std::fs::remove_dir_all(project).expect("it is ours");
}

#[test]
fn what_was_changed_right_before_the_start_is_not_the_sessions_work_and_what_comes_right_after_is() {
    let scene = scene("started");
    let path = scene.join("file");
    std::fs::write(&path, "").expect("writable");
    // Kernels before 6.13 have one time for all changes of a tick, which is what the coarse clock says, and cannot tell.
    let coarse = || {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        (now.tv_sec, now.tv_nsec)
    };
    let is_fine = |_| {
        let before = coarse();
        let (_, stamped) = file::stamp(&scene).expect("the file system has files without names");
        stamped != before && stamped != coarse()
    };
    let tells = (0..16).all(is_fine);
    let change = |mode| {
        rustix::fs::stat(&path).expect("it is there");
        rustix::fs::chmod(&path, Mode::from_raw_mode(mode)).expect("ours");
    };
    for _ in 0..200 {
        change(0o600);
        let start = Start::now(Some(&scene));
        let before = rustix::fs::stat(&path).expect("it is there");
        assert!(!tells || !start.is_before_change_of(&before), "{start:?}: {:?}", super::changed(&before));
        change(0o644);
        let after = rustix::fs::stat(&path).expect("it is there");
        assert!(start.is_before_change_of(&after), "{start:?}: {:?}", super::changed(&after));
        let unlooked = scene.join("new");
        std::fs::write(&unlooked, "").expect("writable");
        assert!(start.is_before_change_of(&rustix::fs::stat(&unlooked).expect("it is there")), "{start:?}");
        std::fs::remove_file(&unlooked).expect("ours");
    }
    std::fs::remove_dir_all(scene).expect("ours");
}
