//! What git on the host does with a project after a session: nothing that the command wrote decides what it runs or what
//! the next session's project is (corpus A21, E22-E24). Each test shows first that the attack works without a sandbox.

use crate::support::{Place, binary, finish, is_root};

const MODES: [&str; 2] = ["static", "dynamic"];

/// A configuration that runs a program at every `git status`.
const CONFIG: &str = r#"printf '[core]\nrepositoryformatversion=0\nbare=false\nworktree=%s\nfsmonitor="sh -c \\"touch '"$PWD"'/PWNED\\" #"\n' "$PWD""#;

/// Ways to make the project's own directory a repository.
const BARE_ROOTS: [(&str, &str); 3] = [
    ("plain", "rm -f .git/HEAD; mkdir objects refs; echo ref: refs/heads/main > HEAD; CONFIG > config"),
    (
        "links",
        "rm -f .git/HEAD; rm -rf objects refs; ln -sfn .git/objects objects; ln -sfn .git/refs refs
         echo ref: refs/heads/main > HEAD; CONFIG > config",
    ),
    (
        "commondir",
        "rm -f .git/HEAD; mkdir -p x/objects x/refs; echo x > commondir; echo ref: refs/heads/main > HEAD
         { CONFIG; printf '[extensions]\\nworktreeConfig = true\\n'; } > x/config; CONFIG > config.worktree",
    ),
];

/// What git on the host does afterwards; fails the test if it ran what the command wrote.
fn nothing_runs(place: &Place, what: &str) {
    place.host("git status; git log -1; git diff HEAD; (mkdir -p sub; cd sub; git status)");
    assert!(!place.exists("PWNED"), "{what}: git on the host ran what the command wrote");
}

/// The same attack without a sandbox, in a copy.
fn works_outside(place: &Place, what: &str, script: &str) {
    let script = format!(
        "cp -a . ../control && cd ../control && {{ {script}; }} >/dev/null 2>&1; git status >/dev/null 2>&1; ls PWNED"
    );
    let ran = place.host(&script);
    assert_eq!(ran.out, "PWNED\n", "{what}: the attack itself does not work: {}", ran.err);
    place.host("rm -rf ../control").ok();
}

/// A script inside, in one mode.
fn inside(place: &Place, mode: &str, script: &str) -> crate::support::Ran {
    place.run(&["--mode", mode, "--on-unknown", "deny"], &["bash", "-c", script])
}

#[test]
fn escape_a21_a_mode_that_a_command_sets_makes_no_project_wider() {
    for mode in MODES {
        let Some(mut place) = Place::with_repository() else { return };
        place.project = place.path("inner");
        std::fs::create_dir(&place.project).expect("writable");
        // Without a marker of its own the directory belongs to the project around it.
        inside(&place, mode, "echo x > ../from-inner").ok();
        assert!(place.exists("../from-inner"), "{mode}");
        place.host("git init -q .").ok();
        let config = place.read(".git/config");
        inside(&place, mode, "chmod 1700 .git").ok();
        for attempt in
            ["echo x > ../second", "echo x > .git/config", "echo x > .git/hooks/post-commit", "mkdir .claude"]
        {
            assert_ne!(inside(&place, mode, attempt).code, 0, "{mode}: `{attempt}` succeeded");
        }
        assert_eq!(place.read(".git/config"), config, "{mode}");
        // The same for an empty one, and for a directory that only looks like the stand-in of a session.
        place.host("rm -rf .git; mkdir .git .vscode; chmod 1700 .git .vscode").ok();
        assert_ne!(inside(&place, mode, "echo x > ../second").code, 0, "{mode}");
        assert_ne!(inside(&place, mode, "echo x > .vscode/tasks.json").code, 0, "{mode}");
        assert_eq!(
            place.host("stat -c %a .git .vscode").ok(),
            "1700\n1700\n",
            "{mode}: what a session did not make stays"
        );
        place.host("chmod 700 .git .vscode").ok();
    }
}

/// Another state directory knows nothing of this session's stand-ins: they are directories like any other, and protected.
#[test]
fn escape_a21_stand_ins_of_another_state_directory_are_not_believed() {
    for mode in MODES {
        let place = Place::new();
        let session = place.start(&["--mode", mode], "echo ready; read line");
        assert!(place.exists(".vscode") && place.exists(".git"));
        let mut command = place.command(binary());
        command.env("XDG_STATE_HOME", place.path("home:other"));
        command.args(["run", "--mode", mode, "--", "bash", "-c", "mkdir .vscode/x || mkdir .git/hooks/x"]);
        assert_ne!(finish(&mut command, b"").code, 0, "{mode}");
        assert!(place.exists(".vscode") && place.exists(".git"), "{mode}: the other session's end took them away");
        assert_eq!(session.end().0, 1, "it reads to the end of its input");
        assert!(!place.exists(".vscode") && !place.exists(".git"), "{mode}");
    }
}

/// What was put into a stand-in from outside is the user's, also where its session was killed.
#[test]
fn a_stand_in_that_was_put_to_use_stays() {
    let place = Place::new();
    let session = place.start(&[], "echo ready; sleep 60");
    place.write(".vscode/settings.json", "{}");
    drop(session);
    place.inside("echo x > .vscode/settings.json").code(1);
    assert_eq!(place.read(".vscode/settings.json").as_deref(), Some("{}"));
    assert!(!place.exists(".claude"), "the rest is swept");
    place.host("chmod 755 .vscode").ok();
}

/// A killed session's stand-ins go with the user's next session, in whatever project that is.
#[test]
fn stand_ins_of_a_killed_session_go_with_the_next_session_of_another_project() {
    let mut place = Place::new();
    drop(place.start(&[], "echo ready; sleep 60"));
    let first = place.project.clone();
    assert!(first.join(".vscode").exists());
    place.project = place.path("home:elsewhere");
    std::fs::create_dir(&place.project).expect("writable");
    place.inside("true").ok();
    assert_eq!(first.read_dir().expect("it is there").count(), 0);
}

#[test]
fn escape_e22_a_repository_at_the_projects_root_is_not_made() {
    for (way, script) in BARE_ROOTS {
        let script = &script.replace("CONFIG", CONFIG);
        for mode in MODES {
            let Some(place) = Place::with_repository() else { return };
            works_outside(&place, way, script);
            let mut session = place.start(
                &["--mode", mode, "--on-unknown", "deny"],
                &format!("{{ {script}; }} 2>/dev/null; echo ready; read line"),
            );
            nothing_runs(&place, &format!("{way}, {mode}, while the session runs"));
            session.tell("\n");
            session.end();
            nothing_runs(&place, &format!("{way}, {mode}"));
            inside(&place, mode, "true").ok();
            nothing_runs(&place, &format!("{way}, {mode}, after the next session"));
        }
    }
}

#[test]
fn escape_e22_a_repository_is_not_made_where_there_is_none() {
    for (way, script) in BARE_ROOTS {
        let script = &script.replace("CONFIG", CONFIG);
        for mode in MODES {
            let Some(place) = Place::with(&["git"]) else { return };
            inside(&place, mode, script);
            nothing_runs(&place, &format!("{way}, {mode}"));
        }
    }
}

/// The project is a bare repository: what git reads of it stays as it is, and no other takes its place.
#[test]
fn escape_e22_a_project_that_is_a_bare_repository_keeps_its_configuration() {
    let more =
        ("dot git", "mkdir -p .git/objects .git/refs; echo ref: refs/heads/main > .git/HEAD; CONFIG > .git/config");
    for (way, script) in BARE_ROOTS.into_iter().chain([more]) {
        let script = &script.replace("CONFIG", CONFIG);
        for mode in MODES {
            let Some(place) = Place::with(&["git"]) else { return };
            place.host("git init -q --bare .").ok();
            let config = place.read("config");
            inside(&place, mode, &format!("rm -f config hooks; {script}"));
            assert_eq!(place.read("config"), config, "{way}, {mode}");
            nothing_runs(&place, &format!("{way}, {mode}"));
        }
    }
}

/// Nothing of this shows in a repository, inside or outside.
#[test]
fn names_held_by_socket_nodes_show_nowhere_and_go() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        let look = "git status --porcelain --ignored; git add -A; git clean -nxf; git stash -qu; git diff HEAD; git diff --cached";
        let mut session =
            place.start(&["--mode", mode, "--on-unknown", "deny"], &format!("{look}; echo ready; read line"));
        assert_eq!(session.first_line, "ready", "{mode}: something shows inside");
        assert_eq!(place.host(look).ok(), "", "{mode}");
        assert_eq!(place.host("stat -c %F commondir objects refs").ok(), "socket\n".repeat(3), "{mode}");
        session.tell("\n");
        assert_eq!(session.end().0, 0, "{mode}");
        for name in ["commondir", "objects", "refs"] {
            assert!(!place.exists(name), "{mode}: {name}");
        }
        // A directory of the user's with such a name stays the user's.
        place.write("objects/mine", "x");
        inside(&place, mode, "echo y > objects/mine").ok();
        assert_eq!(place.read("objects/mine").as_deref(), Some("y\n"), "{mode}");
    }
}

/// A repository as far as git and the sandbox look at one.
const FAKE: &str =
    "fake() { mkdir -p $1/objects $1/refs $1/hooks; echo ref: refs/heads/main > $1/HEAD; echo '[core]' > $1/config; }";

/// What must not be writable of a repository below `modules`, and what of a worktree's entry.
fn attempts(name: &str) -> [String; 5] {
    let module = format!(".git/modules/{name}");
    [
        format!("echo evil >> {module}/config"),
        format!("echo evil > {module}/hooks/post-checkout"),
        format!("mv {module} .git/elsewhere"),
        "echo /evil > .git/worktrees/linked/commondir".to_owned(),
        "mv .git/worktrees .git/elsewhere".to_owned(),
    ]
}

#[test]
fn escape_e23_a_workload_cannot_use_up_the_limit_of_submodules() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        place.host(&format!("{FAKE}; fake .git/modules/sub; git worktree add -q ../linked -b side")).ok();
        let crowd = format!("{FAKE}; for i in $(seq 600); do fake .git/modules/z$i; mkdir -p .git/worktrees/z$i; done");
        inside(&place, mode, &crowd).ok();
        for attempt in attempts("sub") {
            assert_ne!(inside(&place, mode, &attempt).code, 0, "{mode}: `{attempt}` succeeded");
        }
        // The control: what is not among them can be written.
        inside(&place, mode, "echo x > .git/description && git add -A && git commit -qm x --allow-empty").ok();
    }
}

#[test]
fn escape_e23_many_and_deep_submodules_are_protected() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        place.host(&format!("{FAKE}; fake .git/modules/a/b/c/d/e/f/g; git worktree add -q ../linked -b side")).ok();
        for attempt in attempts("a/b/c/d/e/f/g") {
            assert_ne!(inside(&place, mode, &attempt).code, 0, "{mode}: `{attempt}` succeeded");
        }
        place.host(&format!("{FAKE}; fake .git/modules/1/2/3/4/5/6/7/8/9/10/11")).ok();
        for attempt in attempts("1/2/3/4/5/6/7/8/9/10/11") {
            assert_ne!(inside(&place, mode, &attempt).code, 0, "{mode}: `{attempt}` succeeded");
        }
        place.host(&format!("{FAKE}; rm -rf .git/modules/1; for i in $(seq 100); do fake .git/modules/s$i; done")).ok();
        for attempt in attempts("s1").into_iter().chain(attempts("s100")) {
            assert_ne!(inside(&place, mode, &attempt).code, 0, "{mode}: `{attempt}` succeeded");
        }
    }
}

/// One session makes a submodule's repository look like none, or hides it below another; the next still protects it.
#[test]
fn escape_e23_a_submodule_that_was_made_to_look_like_none_is_protected() {
    for disguise in [
        "rm .git/modules/group/sub/HEAD",
        "rm -r .git/modules/group/sub/refs .git/modules/group/sub/HEAD",
        "echo x > .git/modules/group/HEAD",
    ] {
        let Some(place) = Place::with_repository() else { return };
        place.host(&format!("{FAKE}; fake .git/modules/group/sub; git config submodule.group/sub.url ./x")).ok();
        place.host("git worktree add -q ../linked -b side").ok();
        place.inside(disguise).ok();
        for attempt in attempts("group/sub") {
            assert_ne!(place.inside(&attempt).code, 0, "after `{disguise}`: `{attempt}` succeeded");
        }
    }
}

/// The configuration that git on the host takes from elsewhere.
#[test]
fn escape_e24_what_the_configuration_leads_to_is_protected() {
    let evil = CONFIG.replace("worktree=%s", "x=%s");
    for mode in MODES {
        for (what, prepare, attack) in [
            ("config.worktree", "git config extensions.worktreeConfig true", format!("{evil} > .git/config.worktree")),
            (
                "an include",
                "git config include.path ../.gitconfig; git config -f .gitconfig a.b c",
                format!("{evil} > .gitconfig"),
            ),
            ("a missing include", "git config include.path ../missing", format!("{evil} > missing")),
            (
                "an include of an include",
                "git config includeIf.onbranch:side.path ../one; git config -f one include.path two/three; mkdir two; touch two/three",
                format!("mv two four; mkdir two; {evil} > two/three; git checkout -qb side"),
            ),
        ] {
            let Some(place) = Place::with_repository() else { return };
            place.host(prepare).ok();
            works_outside(&place, what, &attack);
            inside(&place, mode, &attack);
            nothing_runs(&place, &format!("{what}, {mode}"));
            inside(&place, mode, "git status").ok();
        }
    }
}

/// The configuration of a linked worktree lies in its entry; so does that of a submodule's worktree. `prepare` and `attack`
/// are run in the project, `then` on the host.
#[test]
fn escape_e24_the_configuration_of_a_linked_worktree_is_protected() {
    let evil = CONFIG.replace("worktree=%s", "x=%s");
    let own = format!("E=$(git rev-parse --git-dir); rm -f $E/config.worktree; {evil} > $E/config.worktree");
    let on = "git config extensions.worktreeConfig true";
    let submodule = "git init -q ../other && git -C ../other commit -qm x --allow-empty
        git -c protocol.file.allow=always submodule add -q ../other sub && git commit -qm sub";
    let of_submodule = format!("{evil} > .git/modules/sub/worktrees/subwt/config.worktree");
    let inner = format!(
        "sub() {{ {evil}; }}; cp -a .git/modules/sub evil; sub > evil/config; rm sub/.git; echo gitdir: ../evil > sub/.git"
    );
    let table: [(&str, bool, String, String, &str); 7] = [
        ("a missing one", true, on.into(), own.clone(), "git status"),
        ("one that is there", true, format!("{on}; git config --worktree a.b c"), own.clone(), "git status"),
        (
            "one made before it counts",
            true,
            "true".into(),
            own,
            "git config extensions.worktreeConfig true; git status",
        ),
        (
            "an include",
            true,
            format!("{on}; git config --worktree include.path $PWD/included"),
            format!("{evil} > included"),
            "git status",
        ),
        (
            "another worktree's",
            false,
            format!("{on}; git worktree add -q ../wt2"),
            format!("{evil} > .git/worktrees/wt2/config.worktree"),
            "cd ../wt2; git status",
        ),
        (
            "a submodule's worktree's",
            false,
            format!(
                "{submodule}; git -C sub worktree add -q ../../subwt; git -C sub config extensions.worktreeConfig true"
            ),
            of_submodule,
            "cd ../subwt; git status",
        ),
        (
            "core.worktree of a submodule's",
            false,
            format!(
                "{submodule}; cd sub && git sparse-checkout set --no-cone '/*' && cat ../.git/modules/sub/config.worktree"
            ),
            inner,
            "cd sub; git status",
        ),
    ];
    for (what, is_linked, prepare, attack, then) in table {
        let made = || {
            let place = if is_linked { linked_worktree()?.0 } else { Place::with_repository()? };
            place.host(&prepare).ok();
            Some(place)
        };
        let Some(control) = made() else { return };
        control.host(&format!("{attack}; {then}"));
        assert!(control.exists("PWNED"), "{what}: the attack itself does not work");
        for mode in MODES {
            let Some(place) = made() else { return };
            inside(&place, mode, &attack);
            place.host(then);
            assert!(!place.exists("PWNED"), "{what}, {mode}: git on the host ran what the command wrote");
            inside(&place, mode, "git status && git commit -qm x --allow-empty").ok();
        }
    }
}

#[test]
fn the_configuration_of_a_linked_worktree_is_masked() {
    for mode in MODES {
        let Some((place, git)) = linked_worktree() else { return };
        place.host("git config extensions.worktreeConfig true; git worktree add -q ../wt2").ok();
        for worktree in ["wt", "wt2"] {
            let set = "git config --worktree http.extraHeader 'Authorization: Basic canary-7'";
            place.host(&format!("cd ../{worktree}; {set}; git config --worktree a.b shown")).ok();
            let seen = inside(&place, mode, &format!("{git}cat $G/worktrees/{worktree}/config.worktree")).ok();
            assert!(seen.contains("shown") && !seen.contains("canary-7"), "{mode}: {worktree}: {seen}");
        }
    }
}

/// A loop of includes, and one that leads nowhere, start a session like any other.
#[test]
fn includes_that_go_round_in_circles_end() {
    let Some(place) = Place::with_repository() else { return };
    let config = place.read(".git/config").unwrap_or_default();
    place.write(".git/config", &format!("{config}[include]\n\tpath = ../loop\n"));
    place.write("loop", "[include]\n\tpath = ./loop\n\tpath = ../project/loop\n\tpath = /nowhere/x\n");
    place.inside("echo x > loop").code(1);
    place.inside("true").ok();
}

/// The file that leads from a submodule's working tree to its repository.
#[test]
fn escape_e24_a_submodule_cannot_be_led_to_another_repository() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        place.host("git init -q ../other && cd ../other && git commit -qm x --allow-empty").ok();
        place.host("git -c protocol.file.allow=always submodule add -q ../other sub && git commit -qm sub").ok();
        let evil = CONFIG.replace("worktree=%s", "worktree=%s/sub");
        let attack = format!(
            "cp -a .git/modules/sub evil; {evil} > evil/config; rm -f sub/.git; echo gitdir: ../evil > sub/.git; \
             mv sub sub2; mkdir sub; echo gitdir: ../evil > sub/.git"
        );
        works_outside(&place, "sub/.git", &attack);
        // The list of submodules in the working tree is not what decides.
        inside(
            &place,
            mode,
            "cp .gitmodules saved; git rm -q --cached .gitmodules; rm .gitmodules; mv saved .gitmodules",
        )
        .ok();
        inside(&place, mode, &attack);
        nothing_runs(&place, mode);
        inside(&place, mode, "cd sub && echo x > x && git add x && git commit -qm inside").ok();
    }
}

/// Where `objects` and `refs` are the user's own, only `HEAD` is missing: what the command makes is put aside, and that is said.
#[test]
fn escape_e22_a_head_beside_the_users_objects_and_refs_is_put_aside_and_said() {
    let script = &format!("rm -f .git/HEAD; echo ref: refs/heads/main > HEAD; {CONFIG} > config");
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        place.host("mkdir objects refs").ok();
        works_outside(&place, "both", script);
        let mut session =
            place.start(&["--mode", mode, "--on-unknown", "deny"], &format!("{script}; echo ready; read line"));
        nothing_runs(&place, &format!("{mode}, while the session runs"));
        session.tell("\n");
        session.end();
        nothing_runs(&place, mode);
        assert_eq!(place.read("HEAD.set-aside").as_deref(), Some("ref: refs/heads/main\n"), "{mode}");
        place.host("rm HEAD.set-aside config; echo ref: refs/heads/main > .git/HEAD").ok();
        inside(&place, mode, script).says(&["HEAD.set-aside", "no repository any more", "ref: refs/heads/main"]);
    }
}

/// Corpus E2: `git-merge-NAME` is a program, and a name with `../` in it one of the project.
#[test]
fn what_git_goes_on_with_names_no_program_without_a_word() {
    const STRATEGY: &str = "names a merge strategy that is not one of git's own";
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        place.host("git -c protocol.file.allow=always submodule add -q $PWD sm && git commit -qm sm").ok();
        let cases = [
            ("mkdir -p .git/rebase-merge; echo ../x > .git/rebase-merge/strategy", STRATEGY),
            ("mkdir -p .git/sequencer; printf '[options]\\n\\tstrategy = ../x\\n' > .git/sequencer/opts", STRATEGY),
            (
                "mkdir -p .git/sequencer; printf '[options \"a\"]\\n[options] strategy=\"../x\"\\n' > .git/sequencer/opts",
                STRATEGY,
            ),
            ("d=.git/modules/sm/rebase-merge; mkdir -p $d; echo x touch PWNED > $d/git-rebase-todo", "names programs"),
            ("d=.git/modules/sm/rebase-merge; mkdir -p $d; echo ../x > $d/strategy", STRATEGY),
        ];
        for (script, said) in cases {
            inside(&place, mode, script).says(&[said]).ok();
            place.host("rm -rf .git/rebase-merge .git/sequencer .git/modules/sm/rebase-merge").ok();
        }
        for own in ["ort", "recursive", "ours"] {
            let script = format!("mkdir -p .git/rebase-merge; echo {own} > .git/rebase-merge/strategy");
            let ran = inside(&place, mode, &script);
            assert!(!ran.err.contains("strategy"), "{mode}: {}", ran.err);
        }
        place.host("rm -rf .git/rebase-merge").ok();
    }
}

/// What cannot be protected is compared at the end, and said whatever the command's exit code is.
#[test]
fn escape_e24_what_changed_for_git_is_said_at_the_end() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        let todo = "mkdir -p .git/rebase-merge; echo exec touch PWNED > .git/rebase-merge/git-rebase-todo";
        inside(&place, mode, todo).says(&["git-rebase-todo names programs", "git rebase --edit-todo"]).ok();
        // It was there before the next session.
        assert!(!inside(&place, mode, "true").err.contains("todo"), "{mode}");
        place.host("rm -r .git/rebase-merge").ok();
        let harmless =
            "mkdir -p .git/rebase-merge; echo pick 1234 > .git/rebase-merge/git-rebase-todo; rm -r .git/rebase-merge";
        assert_eq!(inside(&place, mode, harmless).err, "", "{mode}");
        inside(&place, mode, "mkdir -p .git/info; echo '* filter=x' > .git/info/attributes")
            .says(&["info/attributes was made while the session ran"])
            .ok();
        inside(&place, mode, "rm .git/HEAD").says(&["is no repository any more", "ref: refs/heads/main"]).ok();
        place.host("echo ref: refs/heads/main > .git/HEAD").ok();
        // What the host itself changes meanwhile is said, too: nothing tells who did it.
        let mut command = place.command(binary());
        command
            .args(["run", "--json", "--mode", mode, "--", "bash", "-c", "echo ready; read line"])
            .stderr(std::process::Stdio::piped());
        let session = place.begin_session(command);
        place.host("git config user.name other && echo 'exit 0' > .git/hooks/post-commit").ok();
        let (code, _) = session.end();
        assert_eq!(code, 1, "it reads to the end of its input");
        let log = place.sandbox(&["audit", "--format", "json"]).ok();
        for name in [".git/config was changed", ".git/hooks was changed", "git-rebase-todo names programs"] {
            assert!(log.contains(name), "{mode}: `{name}` is not in the audit log");
        }
    }
}

/// Ordinary work says nothing.
#[test]
fn git_work_inside_says_nothing_at_the_end() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        let work = "git checkout -qb side; echo x > x; git add -A; git commit -qm x; git checkout -q main; git merge -q side; git gc -q; git checkout -q HEAD^0";
        assert_eq!(inside(&place, mode, work).err, "", "{mode}");
    }
}

#[test]
fn doctor_recommends_that_bare_repositories_are_named() {
    let Some(place) = Place::with(&["git"]) else { return };
    let recommended = "git config --global safe.bareRepository explicit";
    assert!(place.sandbox(&["doctor"]).out.contains(recommended));
    place.host(recommended).ok();
    let out = place.sandbox(&["doctor"]).out;
    assert!(!out.contains(recommended) && out.contains("bare repositories only where they are named"), "{out}");
}

/// A repository with a linked worktree beside it, which is the project; `$G` is the repository's directory.
fn linked_worktree() -> Option<(Place, String)> {
    let mut place = Place::with_repository()?;
    place.host("git worktree add -q ../wt && git init -q --bare .git/worktrees/wt/modules/lib").ok();
    let git = place.path(".git").display().to_string();
    place.project = place.path("home:wt");
    Some((place, format!("G={git}; ")))
}

#[test]
fn the_entry_of_a_linked_worktree_cannot_be_replaced() {
    for mode in MODES {
        let Some((place, git)) = linked_worktree() else { return };
        for attempt in [
            "mv $G/worktrees $G/w2",
            "mv $G/worktrees/wt $G/worktrees/w2",
            "echo x >> $G/worktrees/wt/modules/lib/config",
            "echo x > $G/worktrees/wt/modules/lib/hooks/post-checkout",
            "mv $G/worktrees/wt/modules/lib $G/worktrees/wt/modules/other",
        ] {
            let ran = inside(&place, mode, &format!("{git}{attempt}"));
            assert_ne!(ran.code, 0, "{mode}: {attempt}: {}", ran.err);
        }
        inside(&place, mode, "echo x > made && git add made && git commit -qm made").ok();
        let copy = "cp -a $G ../copy && cd ../copy && mv worktrees w2 && mkdir worktrees && echo x >> w2/wt/modules/lib/config";
        place.host(&format!("{git}{copy} && rm -rf ../copy")).ok();
    }
}

/// The repository of a linked worktree is written, though it lies outside of the project.
#[test]
fn what_is_protected_in_the_repository_of_a_linked_worktree_is_so_behind_links_and_closed_directories() {
    for mode in MODES {
        let Some((place, git)) = linked_worktree() else { return };
        let made = "mkdir -p $G/scripts $G/info; touch $G/scripts/run $G/info/attributes; ln -s ../scripts/run $G/hooks/post-commit";
        place.host(&format!("{git}{made}")).ok();
        for attempt in ["echo x > $G/scripts/run", "mv $G/scripts $G/other", "rm $G/scripts/run"] {
            let ran = inside(&place, mode, &format!("{git}{attempt}"));
            assert_ne!(ran.code, 0, "{mode}: {attempt}: {}", ran.err);
        }
        if is_root() {
            println!("skipped: root can look into every directory");
            continue;
        }
        inside(&place, mode, &format!("{git}chmod 000 $G/info")).ok();
        let ran = inside(&place, mode, &format!("{git}chmod 755 $G/info; echo x > $G/info/attributes"));
        place.host(&format!("{git}chmod 755 $G/info; test ! -s $G/info/attributes")).ok();
        assert_ne!(ran.code, 0, "{mode}: {}", ran.err);
    }
}

#[test]
fn files_that_configurations_include_by_the_home_cannot_be_written() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        place.host("git config include.path '~/project/included'").ok();
        place.write("included", "[a]\nb = c\n");
        place.write("conditional", "[a]\nb = c\n");
        let config = place.read("home:.gitconfig").expect("it was written");
        place.write(
            "home:.gitconfig",
            &format!("{config}[includeIf \"gitdir:~/project/\"]\npath = ~/project/conditional\n"),
        );
        for name in ["included", "conditional"] {
            let ran = inside(&place, mode, &format!("echo x >> {name}"));
            assert_ne!(ran.code, 0, "{mode}: {name}: {}", ran.err);
            place.host(&format!("echo >> {name}")).ok();
        }
    }
}

/// Dotfiles are kept in a project: with its git directory elsewhere, without one, or given besides the project.
#[test]
fn files_that_the_users_configuration_includes_cannot_be_written_where_the_project_has_no_repository() {
    for mode in MODES {
        for prepare in ["git init -q --separate-git-dir ../elsewhere .", "true", "mkdir ../work; mv ../work/ ../app"] {
            let Some(mut place) = Place::with(&["git"]) else { return };
            place.write("home:.gitconfig", "[include]\npath = ~/project/included\npath = ~/project/missing\n");
            place.write("included", "[a]\nb = c\n");
            place.host(prepare).ok();
            let dotfiles = place.project.display().to_string();
            if prepare.ends_with("app") {
                place.project = place.path("home:app");
            }
            for name in ["included", "missing"] {
                let script = format!("cd {dotfiles}; echo x > made; echo x >> {name}");
                let flags = ["--mode", mode, "--on-unknown", "deny", "--rw", &dotfiles];
                let ran = place.run(&flags, &["bash", "-c", &script]);
                assert!(![0, 125].contains(&ran.code), "{mode}: {prepare}: {name}: {}", ran.err);
                assert!(place.exists("home:project/made"), "{mode}: {prepare}: {}", ran.err);
            }
            place.host(&format!("echo >> {dotfiles}/included")).ok();
        }
    }
}

#[test]
fn a_configuration_that_includes_more_than_is_followed_is_named_at_the_end() {
    let Some(place) = Place::with_repository() else { return };
    place.host("for i in $(seq 40); do git config --add include.path ../i$i; done").ok();
    place.inside("true").says(&[".git/config includes more files than are followed"]).ok();
    place.sandbox(&["explain"]).ok().contains("include more than was followed").then_some(()).expect("it is said");
}

#[test]
fn no_link_on_the_way_to_a_protected_name_can_be_replaced() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        place
            .host(
                "rm -rf .git/hooks; mkdir -p real/hooks ai/claude; ln -s ../hk .git/hooks; ln -s real/hooks hk
             ln -s cfg/claude .claude; ln -s ai cfg; echo '{}' > ai/claude/settings.json",
            )
            .ok();
        for attempt in
            ["rm hk", "mv hk other", "rm cfg", "mv real/hooks x", "rm .claude", "echo x > ai/claude/settings.json"]
        {
            let ran = inside(&place, mode, attempt);
            assert_ne!(ran.code, 0, "{mode}: {attempt}: {}", ran.err);
        }
        assert_eq!(inside(&place, mode, "cat .claude/settings.json; echo x > other").ok(), "{}\n", "{mode}");
        place.host("rm hk cfg").ok();
    }
}

#[test]
fn a_project_in_a_tree_that_is_given_cannot_be_moved_aside() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        let home = place.home.display().to_string();
        place.host("mkdir -p ../w && cp -a . ../w/p").ok();
        let mut place = place;
        place.project = place.path("home:w/p");
        let ran = place.run(
            &["--mode", mode, "--on-unknown", "deny", "--rw", &format!("{home}/w")],
            &["bash", "-c", "echo x > ../beside && mv ../p ../o"],
        );
        assert_ne!(ran.code, 0, "{mode}: {}", ran.err);
        assert!(place.exists("../beside") && !place.exists("../o"), "{mode}");
    }
}

#[test]
fn the_users_policy_cannot_be_made_in_a_tree_that_is_given() {
    for mode in MODES {
        let Some(place) = Place::with_repository() else { return };
        place.write("home:.config/other", "x");
        let config = place.path("home:.config").display().to_string();
        for name in ["cofferdam", "autostart", "systemd", "environment.d"] {
            let script = format!("echo x > {config}/made; mkdir {config}/{name}; echo x > {config}/{name}/new");
            let ran = place.run(&["--mode", mode, "--on-unknown", "deny", "--rw", &config], &["bash", "-c", &script]);
            assert_ne!(ran.code, 0, "{mode}: {name}: {}", ran.err);
            assert!(
                place.exists("home:.config/made") && !place.exists(&format!("home:.config/{name}")),
                "{mode}: {name}"
            );
        }
    }
}

/// Whatever lies on the way to it: a directory that is missing, links, the name of a user.
#[test]
fn what_a_configuration_includes_can_be_written_in_no_way() {
    let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
    let table = [
        ("", "../conf/gc", "mkdir conf; echo x > conf/gc"),
        ("", "../a/b/gc", "mkdir -p a/b; echo x > a/b/gc"),
        ("mkdir tools; echo '#' > tools/gc; ln -s tools conf", "../conf/gc", "rm conf"),
        ("mkdir tools; echo '#' > tools/gc; ln -s tools conf", "../conf/gc", "echo x > tools/gc"),
        ("mkdir tools; echo '#' > tools/gc; ln -s tools/gc gc", "../gc", "rm gc"),
        ("mkdir tools; echo '#' > tools/gc; ln -s tools/gc gc", "../gc", "echo x > tools/gc"),
        ("mkdir tools; ln -s tools/gc gc", "../gc", "rm gc"),
        ("mkdir tools; ln -s tools/gc gc", "../gc", "echo x > tools/gc"),
        ("", &format!("~{user}/project/gc"), "echo x > gc"),
    ];
    for mode in MODES {
        for (made, include, attempt) in &table {
            let Some(place) = Place::with_repository() else { return };
            place.host(&format!("{made}\ngit config include.path '{include}'")).ok();
            let ran = inside(&place, mode, attempt);
            assert!(![0, 125].contains(&ran.code), "{mode}: {include}: {attempt}: {}", ran.err);
            place.host(attempt).ok();
        }
    }
}

/// A submodule that is not initialised yet has no repository that could be protected; one that the command makes is named.
#[test]
fn escape_e23_repositories_made_for_submodules_and_worktrees_are_named_at_the_end() {
    let attack = r#"mkdir -p .git/modules/sub/objects .git/modules/sub/refs; echo ref: refs/heads/main > .git/modules/sub/HEAD
        printf '[core]\nrepositoryformatversion=0\nfsmonitor="sh -c \\"touch '"$PWD"'/PWNED\\" #"\n' > .git/modules/sub/config"#;
    for mode in MODES {
        let Some(mut place) = Place::with_repository() else { return };
        place.host("git init -q ../other && cd ../other && echo y > y && git add y && git commit -qm y").ok();
        place.host("git -c protocol.file.allow=always submodule add -q ../other sub && git commit -qm sub").ok();
        place.host("git clone -q . ../clone && cp -a ../clone ../control").ok();
        let update = "git -c protocol.file.allow=always submodule update --init";
        place.host(&format!("cd ../control; {attack}; {update}"));
        assert!(place.exists("../control/PWNED"), "{mode}: the attack itself does not work");
        place.project = place.path("home:clone");
        assert_eq!(inside(&place, mode, "true").err, "", "{mode}");
        inside(&place, mode, attack).says(&[".git/modules/sub (a repository made inside", "look at them first"]).ok();
        assert!(!inside(&place, mode, "true").err.contains("modules"), "{mode}: it was there before");
        // Ordinary work is possible, and named.
        inside(&place, mode, "git worktree add -q tree").says(&[".git/worktrees/tree (the entry of a worktree"]).ok();
        let crowd = format!("{FAKE}; for i in $(seq 100); do fake .git/modules/z$i; done");
        inside(&place, mode, &crowd).says(&[".git/modules (more repositories made inside"]).ok();
        let log = place.sandbox(&["audit", "--format", "json"]).ok();
        assert!(log.contains(".git/modules/sub"), "{mode}: not in the log");
        let json = place.run(&["--json", "--mode", mode], &["true"]).err;
        assert!(!json.contains("modules/sub"), "{mode}: {json}");
    }
    // The repository of a linked worktree lies elsewhere.
    let Some((place, git)) = linked_worktree() else { return };
    let script = format!("{git}{FAKE}; fake $G/modules/one; fake $G/worktrees/wt/modules/two; rm $G/HEAD");
    place.inside(&script).says(&["/.git/modules/one (a repo", "/.git/worktrees/wt/modules/two (a repo"]);
}
