//! A project whose own directory a session makes a repository, whatever the project brings of its parts (corpus E22). Each
//! attack is shown to work without a sandbox first.

use crate::support::{Place, Ran, binary, finish, is_root};

const MODES: [&str; 2] = ["static", "dynamic"];

/// A repository at the root with a configuration that runs a program at every `git status`.
const ATTACK: &str = r#"rm -f .git/HEAD; rm -rf objects refs; mkdir -p objects refs; rm -f HEAD; echo ref: refs/heads/main > HEAD
printf '[core]\nrepositoryformatversion=0\nbare=false\nworktree=%s\nfsmonitor="sh -c \\"touch '"$PWD"'/PWNED\\" #"\n' "$PWD" > config"#;

/// What the project has from the start.
const SCENES: [(&str, &str); 9] = [
    ("files", "echo a > objects; echo b > refs"),
    ("links to a file", "ln -s first objects; ln -s first refs"),
    ("links to directories", "mkdir a b; ln -s a objects; ln -s b refs"),
    ("a file and a directory", "echo a > objects; mkdir refs; echo b > refs/x"),
    ("directories", "mkdir objects refs; echo a > objects/x; echo b > refs/x"),
    ("directories and a HEAD", "mkdir objects refs; echo c > HEAD"),
    ("a whole repository", "mkdir objects refs; echo ref: refs/heads/main > HEAD"),
    ("a name that is taken", "mkdir -p objects refs HEAD.set-aside/x HEAD.set-aside.1"),
    (
        "every name that is taken",
        "mkdir -p objects refs HEAD.set-aside; for i in $(seq 99); do mkdir HEAD.set-aside.$i; done",
    ),
];

fn inside(place: &Place, mode: &str, script: &str) -> Ran {
    place.run(&["--mode", mode, "--on-unknown", "deny"], &["bash", "-c", script])
}

fn nothing_runs(place: &Place, what: &str) {
    place.host("git status; git log -1; mkdir -p below; cd below; git status");
    assert!(!place.exists("PWNED"), "{what}: git on the host ran what the command wrote");
}

/// What is said of `HEAD` is so.
fn says_the_truth(place: &Place, ran: &Ran, what: &str) {
    let mut said = ran.err.lines().filter(|line| line.contains("repository of its own to git"));
    if let Some(line) = said.next() {
        assert!(!place.exists("HEAD"), "{what}: {line}");
        let name = line.split("its HEAD is now ").nth(1).and_then(|rest| rest.split(';').next());
        match name {
            Some(name) => assert!(place.path(name).is_file(), "{what}: {line}"),
            None => assert!(line.contains("could not be renamed and is removed"), "{what}: {line}"),
        }
    }
}

fn scene(prepare: &str) -> Option<Place> {
    let place = Place::with_repository()?;
    place.host(prepare).ok();
    Some(place)
}

#[test]
fn escape_e22_no_repository_at_the_root_whatever_the_project_brings() {
    for (what, prepare) in SCENES {
        let Some(control) = scene(prepare) else { return };
        control.host(&format!("{ATTACK}; git status"));
        assert!(control.exists("PWNED"), "{what}: the attack itself does not work");
        for mode in MODES {
            let Some(place) = scene(prepare) else { return };
            let ran = inside(&place, mode, ATTACK);
            nothing_runs(&place, &format!("{what}, {mode}"));
            says_the_truth(&place, &ran, &format!("{what}, {mode}"));
            place.host("git init -q . && git status").ok();
            assert!(!place.exists("commondir"), "{what}, {mode}");
        }
    }
}

/// Only the configuration is the command's; `HEAD`, `objects` and `refs` are the project's own, and `.git` is made useless.
#[test]
fn escape_e22_a_repository_that_the_project_brings_is_not_uncovered() {
    let attack = ATTACK.split_once("echo ref:").map(|(_, rest)| rest.split_once('\n').expect("two lines").1);
    let attack = attack.expect("it has a configuration");
    for without in ["rm .git/HEAD", "rm -r .git/refs", "mv .git/objects o"] {
        let prepare = SCENES[6].1;
        let Some(control) = scene(prepare) else { return };
        control.host(&format!("{without}; {attack}; git status"));
        assert!(control.exists("PWNED"), "{without}: the attack itself does not work");
        for mode in MODES {
            let Some(place) = scene(prepare) else { return };
            inside(&place, mode, &format!("{without}; {attack}")).says(&["its HEAD is now HEAD.set-aside"]);
            nothing_runs(&place, &format!("{without}, {mode}"));
        }
    }
    // As long as git goes by `.git`, such files are the project's.
    let Some(place) = scene(SCENES[6].1) else { return };
    assert_eq!(place.inside("echo x > x").err, "");
    assert!(place.exists("HEAD"));
}

/// A file where a name would be held is protected, and shown as it is.
#[test]
fn files_at_the_names_of_a_repository_stay_as_they_are() {
    for mode in MODES {
        let Some(place) = scene("echo a > objects; echo b > refs") else { return };
        for attempt in ["rm objects", "mv refs x", "echo x > objects"] {
            assert_ne!(inside(&place, mode, attempt).code, 0, "{mode}: {attempt}");
        }
        assert_eq!(inside(&place, mode, "cat objects refs").ok(), "a\nb\n", "{mode}");
        // The control: a directory of the user's is the command's to write.
        place.host("rm objects; mkdir objects").ok();
        inside(&place, mode, "echo x > objects/x").ok();
    }
}

/// A session with another state directory does not know the stand-ins of the first one, and may outlive it.
#[test]
fn escape_e22_stand_ins_of_another_state_directory_leave_nothing_open() {
    for mode in MODES {
        for outlives in [false, true] {
            let Some(place) = Place::with_repository() else { return };
            let mut first = place.start(&["--mode", mode], "echo ready; read line");
            let mut command = place.command(binary());
            command.env("XDG_STATE_HOME", place.path("home:other"));
            let wait = if outlives { "echo ready; read line; sleep 0.5; " } else { "" };
            let script = format!("{wait}rm -f commondir objects refs; {ATTACK}; ls -l");
            command.args(["run", "--mode", mode, "--on-unknown", "deny", "--", "bash", "-c", &script]);
            if outlives {
                let mut second = place.begin(command);
                first.tell("\n");
                first.end();
                second.tell("\n");
                second.end();
            } else {
                finish(&mut command, b"");
                nothing_runs(&place, &format!("{mode}, while the first session runs"));
                first.end();
            }
            nothing_runs(&place, &format!("{mode}, outlives: {outlives}"));
            place.host("rm -f objects refs commondir").ok();
        }
    }
}

/// What a killed session left is put aside before the next session lets go of its names.
#[test]
fn escape_e22_a_killed_session_leaves_no_repository_at_the_root() {
    let attack = ATTACK.replace("rm -rf objects refs; ", "");
    for without in ["true", "rm -rf .git"] {
        let Some(place) = scene(&format!("mkdir objects refs; {without}")) else { return };
        drop(place.start(&[], &format!("{attack}; echo ready; sleep 60")));
        nothing_runs(&place, "killed");
        place.inside("true").says(&["its HEAD is now HEAD.set-aside"]).ok();
        assert!(!place.exists("commondir"));
        nothing_runs(&place, "after the next session of the same project");
    }
    let Some(place) = scene("mkdir objects refs") else { return };
    drop(place.start(&[], &format!("{attack}; echo ready; sleep 60")));
    nothing_runs(&place, "killed");
    let mut place = place;
    let first = place.project.clone();
    place.project = place.path("home:elsewhere");
    std::fs::create_dir(&place.project).expect("writable");
    place.inside("true").says(&["its HEAD is now HEAD.set-aside"]).ok();
    place.project = first;
    assert!(!place.exists("commondir"));
    nothing_runs(&place, "after the next session");
}

/// Where `HEAD` cannot be taken away, git is kept from it, and that is said.
#[test]
fn escape_e22_a_head_that_cannot_be_taken_away_is_said_and_held_off() {
    if is_root() {
        println!("skipped: root takes it away");
        return;
    }
    for mode in MODES {
        let Some(place) = scene("mkdir objects refs") else { return };
        let attack = ATTACK.replace("rm -rf objects refs; ", "");
        let ran = inside(&place, mode, &format!("{attack}; chmod 555 ."));
        ran.says(&["cannot be taken away", "`commondir` there is held"]);
        nothing_runs(&place, mode);
        place.host("chmod 755 .").ok();
        place.inside("true").says(&["its HEAD is now HEAD.set-aside"]).ok();
        assert!(!place.exists("commondir"), "{mode}");
        nothing_runs(&place, mode);
    }
}

/// A host program that moves `.git` away while a session runs ends it: nothing that is made in its place goes unnoticed.
#[test]
fn escape_e22_a_session_ends_when_the_host_moves_the_repository_away() {
    let evil = "mkdir -p evil/objects evil/refs; echo ref: refs/heads/main > evil/HEAD";
    for (mode, attack) in MODES.into_iter().zip(["mv evil .git", "ln -s evil .git"]) {
        let Some(place) = Place::with_repository() else { return };
        let script = format!(
            "{evil}; echo ready; for i in $(seq 100); do [ -e .git/HEAD ] || {{ sleep 0.3; {attack}; }}; sleep 0.05; done"
        );
        // The control: it goes on as long as the repository is there, also while git on the host works.
        let mut session = place.start(&["--mode", mode, "--on-unknown", "deny"], &script);
        place.host("git commit -qm x --allow-empty; git gc -q").ok();
        assert!(!session.has_ended(), "{mode}");
        place.host("mv .git ../moved").ok();
        let (code, _) = session.end();
        assert_eq!(code, 126, "{mode}");
        assert!(!place.exists(".git"), "{mode}: it was put in the place of the repository");
    }
}
