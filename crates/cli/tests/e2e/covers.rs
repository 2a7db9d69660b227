//! Names that are hidden in trees that are only read: what a host program does to them while a session runs, trees with
//! something mounted below them, and what `explain` says of each.

use crate::support::{Place, binary, finish};

const MODES: [&str; 2] = ["static", "dynamic"];

/// A home on a file system that folds case, with a key in a directory that is spelled otherwise than the rule. The project
/// is on one that does not.
const FOLD: &str = r#"mount -t tmpfs -o casefold none "$0" && chattr +F "$0" && mkdir -p "$0/project" "$0/.SSH" &&
    mount -t tmpfs none "$0/project" && echo hunter2 > "$0/.SSH/id" && cd "$0/project" || exit 77; exec "$@""#;

/// Overlayfs does not take a tree with a mount in it, so this one is put together from binds.
const ENTER: &str = r#"mount -t tmpfs none "$0/deep/mounted" && echo here > "$0/deep/mounted/file" && exec "$@""#;

/// A tree with a hidden name, a hidden directory and one that is only on the way.
fn tree(place: &Place) -> (String, [String; 6]) {
    for (name, text) in [("plain", "plain"), ("secret", "hunter2"), ("deep/er/key", "hunter2"), ("deep/open", "open")] {
        place.write(&format!("home:data/{name}"), &format!("{text}\n"));
    }
    let data = place.path("home:data").display().to_string();
    let denied = ["secret", "deep/er"].map(|name| format!("{data}/{name}"));
    let [secret, deeper] = denied;
    let flag = |text: &str| text.to_owned();
    (data.clone(), [flag("--ro"), data, flag("--blacklist"), secret, flag("--blacklist"), deeper])
}

#[test]
fn a_hidden_name_does_not_exist_and_a_host_program_that_replaces_it_changes_nothing() {
    let Some(place) = Place::with(&["bash"]) else { return };
    let (_, flags) = tree(&place);
    for mode in MODES {
        let flags: Vec<&str> = ["--mode", mode].into_iter().chain(flags.iter().map(String::as_str)).collect();
        let script = "cd ~/data && cat plain secret deep/*/* &> /dev/null; echo up; read x
            cat plain deep/open; ls; ls deep; cat secret deep/er/key";
        let mut session = place.start(&flags, script);
        place.host("cd ~/data && echo hunter3 > new && mv new secret && rm -r deep/er && mkdir deep/er").ok();
        place.write("home:data/deep/er/key", "hunter3\n");
        session.tell("\n");
        let (code, said) = session.end();
        assert!(code != 0 && said == "plain\nopen\ndeep\nplain\nopen\n", "{mode}: {code} {said}");
        let explained = [&["explain"], flags.as_slice(), &["--", "true"]].concat();
        let explained = place.sandbox(&explained).ok();
        let line = explained.lines().find(|line| line.contains("hidden ") && line.contains("data/secret"));
        assert!(line.is_some_and(|line| line.contains("no host program reaches it")), "{mode}: {explained}");
        let is_static = explained.contains("are not hidden when they appear");
        assert_eq!(is_static, mode == "static", "{explained}");
    }
}

#[test]
fn what_is_hidden_stays_hidden_where_something_is_mounted_below() {
    let Some(place) = Place::with(&["unshare", "mount", "bash"]) else { return };
    let (data, flags) = tree(&place);
    place.write("home:data/deep/mounted/covered", "what lies below the mount\n");
    for mode in MODES {
        let mut command = place.command("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", ENTER, &data]).arg(binary());
        command.args(["run", "--mode", mode]).args(&flags).args(["--", "bash", "-c"]);
        command.arg("cd ~/data && cat plain deep/open deep/mounted/* && ls && ls deep && cat secret deep/er/key");
        let ran = finish(&mut command, b"");
        assert_eq!(ran.out, "plain\nopen\nhere\ndeep\nplain\nmounted\nopen\n", "{mode}: {}", ran.err);
        assert_ne!(ran.code, 0, "{mode}");
    }
}

#[test]
fn other_spellings_that_lead_to_the_same_file_are_hidden_too() {
    let Some(place) = Place::with(&["unshare", "mount", "bash"]) else { return };
    place.write("home:data/secret", "hunter2\n");
    place.write("home:data/deep/plain", "plain\n");
    place.write("home:data/deep/secret", "hunter2\n");
    place.write("home:data/deep/mounted/covered", "what lies below the mount\n");
    place.host("cd ~/data && ln secret SECRET && ln deep/secret deep/SECRET").ok();
    let data = place.path("home:data").display().to_string();
    // The first is found by listing the home; below the root no directory is listed as deep as the second.
    place.write("home:.config/cofferdam/config.toml", "[files]\ndeny = [\"~/data/secret\"]\n");
    let deep = format!("{data}/deep/secret");
    let script = "cd ~/data && cat deep/plain && ls . deep && cat secret SECRET deep/secret deep/SECRET";
    for mode in MODES {
        let mut command = place.command("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", ENTER, &data]).arg(binary());
        command.args(["run", "--mode", mode, "--ro", &data, "--blacklist", &deep, "--", "bash", "-c", script]);
        let ran = finish(&mut command, b"");
        assert_eq!(ran.out, "plain\n.:\ndeep\n\ndeep:\nmounted\nplain\n", "from binds, {mode}: {}", ran.err);
        let ran = place.run(&["--mode", mode, "--ro", &data], &["bash", "-c", "cd ~/data && ls && cat SECRET"]);
        assert_eq!(ran.out, "deep\n", "overlay, {mode}: {}", ran.err);
    }
}

#[test]
fn a_file_system_that_folds_case_shows_no_spelling_of_a_hidden_name() {
    let Some(place) = Place::with(&["unshare", "mount", "chattr", "bash"]) else { return };
    let home = place.home.display().to_string();
    for mode in MODES {
        let mut command = place.command("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", FOLD, &home]).arg(binary());
        command.args(["run", "--mode", mode, "--on-unknown", "deny", "--", "bash", "-c"]);
        command.arg("cat ~/.ssh/id ~/.SSH/id ~/.Ssh/id; echo end");
        let ran = finish(&mut command, b"");
        if ran.code == 77 {
            println!("skipped: no file system that folds case can be made here: {}", ran.err.trim());
            return;
        }
        assert_eq!((ran.code, ran.out.as_str()), (0, "end\n"), "{mode}: {}", ran.err);
    }
}

/// A project on a file system that folds case.
const FOLDED: &str = r#"mount -t tmpfs -o casefold none "$0" && chattr +F "$0" && cd "$0" && echo hunter2 > .env &&
    test "$(cat .ENV)" = hunter2 || exit 77; exec "$@""#;

#[test]
fn a_tree_that_folds_case_is_not_given_for_writing() {
    let Some(place) = Place::with(&["unshare", "mount", "chattr", "bash"]) else { return };
    let other = place.path("home:other").display().to_string();
    place.write("home:other/a name", "of two spellings\n");
    for mode in MODES {
        let flags = ["--mode", mode, "--rw", &other];
        assert_eq!(place.run(&flags, &["echo", "control"]).ok(), "control\n", "{mode}");
        // A file system that folds case without the kernel's knowledge looks like this.
        place.host("ln ~/other/'a name' ~/other/'A NAME'").ok();
        let ran = place.run(&flags, &["echo", "inside"]).code(125);
        let ran = ran.says(&["other spellings", "hint: work on a copy", &other]);
        assert_eq!(ran.out, "", "{mode}");
        place.host("rm ~/other/'A NAME'").ok();
        let mut command = place.command("unshare");
        let project = place.project.display().to_string();
        command.args(["--map-root-user", "--mount", "sh", "-c", FOLDED, &project]).arg(binary());
        command.args(["run", "--mode", mode, "--", "cat", ".ENV"]);
        let ran = finish(&mut command, b"");
        if ran.code == 77 {
            println!("skipped: no file system that folds case can be made here: {}", ran.err.trim());
            continue;
        }
        assert_eq!((ran.code, ran.out.as_str()), (125, ""), "{mode}: {}", ran.err);
    }
}

#[test]
fn a_host_program_that_replaces_a_link_or_a_file_on_the_way_shows_nothing() {
    let Some(place) = Place::with(&["bash"]) else { return };
    let data = place.path("home:data").display().to_string();
    let denied = "[files]\ndeny = [\"~/data/link/key\", \"~/data/file/key\"]\n";
    place.write("home:.config/cofferdam/config.toml", denied);
    place.write("home:data/real/key", "hunter2\n");
    place.write("home:data/real/plain", "plain\n");
    place.write("home:data/file", "a file\n");
    place.host("ln -s real ~/data/link").ok();
    // Nothing is looked up before: what the kernel remembers would hide it.
    let script = "echo up; read x; cd ~/data && cat link/plain; cat link/key real/key file/key; ls";
    let mut session = place.start(&["--mode", "dynamic", "--ro", &data], script);
    place.host("cd ~/data && rm link file && mkdir link file && echo hunter3 | tee link/key > file/key").ok();
    session.tell("\n");
    assert_eq!(session.end(), (0, "plain\nlink\nreal\n".to_owned()));
}
