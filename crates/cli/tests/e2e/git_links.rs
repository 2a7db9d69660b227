//! Links that a command leaves in `.git`: git on the host writes messages, logs and lists in place, and follows links
//! (corpus E28). Each attack is shown to work without a sandbox first.

use crate::support::{Place, Ran};

const MODES: [&str; 2] = ["static", "dynamic"];

/// What the command does, what the host does then, and the file that must stay as it is.
const ATTACKS: [(&str, &str, &str, &str); 9] = [
    ("a message", "ln -sf ~/keep .git/COMMIT_EDITMSG", "git commit -qm message --allow-empty", "home:keep"),
    (
        "a message of the command's",
        "echo new > g; git add g; git commit -qm 'true; id > PWNED'; ln -sf ../../keep .git/COMMIT_EDITMSG",
        "GIT_EDITOR=true git commit -q --amend",
        "home:keep",
    ),
    ("the configuration", "ln -sf config .git/COMMIT_EDITMSG", "git commit -qm '[core]' --allow-empty", ".git/config"),
    (
        "a hook",
        "ln -sf hooks/post-checkout .git/COMMIT_EDITMSG",
        "git commit -qm 'id > PWNED' --allow-empty",
        ".git/hooks/post-checkout",
    ),
    ("a log", "ln -sf ~/keep .git/logs/HEAD", "git commit -qm x --allow-empty", "home:keep"),
    (
        "a directory of logs",
        "rm -rf .git/logs; ln -s ~/logs .git/logs",
        "git commit -qm x --allow-empty",
        "home:logs/HEAD",
    ),
    ("what was fetched", "ln -sf ~/keep .git/FETCH_HEAD", "git fetch -q . main", "home:keep"),
    ("packed refs", "git branch 'x;id>PWNED'; ln -sf ~/none .git/packed-refs", "git pack-refs --all", "home:none"),
    ("the index", "ln -sf ~/none .git/index", "echo y > y; git add y", "home:none"),
];

fn inside(place: &Place, mode: &str, script: &str) -> Ran {
    place.run(&["--mode", mode, "--on-unknown", "deny"], &["bash", "-c", script])
}

fn bytes(place: &Place, name: &str) -> Option<Vec<u8>> {
    std::fs::read(place.path(name)).ok()
}

fn prepared() -> Option<Place> {
    let place = Place::with_repository()?;
    place.write("home:keep", "precious\n");
    place.write("home:logs/HEAD", "precious\n");
    place.write(".git/hooks/post-checkout", "#!/bin/sh\n");
    Some(place)
}

#[test]
fn escape_e28_git_on_the_host_writes_through_no_link_of_a_session() {
    for (what, attack, then, kept) in ATTACKS {
        let Some(control) = prepared() else { return };
        let before = bytes(&control, kept);
        control.host(&format!("{attack}; {then}"));
        assert_ne!(bytes(&control, kept), before, "{what}: the attack itself does not work");
        for mode in MODES {
            let Some(place) = prepared() else { return };
            let ran = inside(&place, mode, attack);
            assert!(ran.err.contains("a link to") && ran.err.contains("it is removed"), "{what}, {mode}: {}", ran.err);
            place.host(then);
            assert_eq!(bytes(&place, kept), before, "{what}, {mode}: git on the host wrote through the link");
            let log = place.sandbox(&["audit", "--format", "json"]).ok();
            assert!(log.contains("would have written through it"), "{what}, {mode}: not in the log");
        }
    }
}

/// The repositories of submodules, of other worktrees, and those that the command makes there.
#[test]
fn escape_e28_links_in_other_git_directories_go_too() {
    for mode in MODES {
        let Some(place) = prepared() else { return };
        place.host("git init -q --bare .git/modules/group/sub; git worktree add -q ../linked -b side").ok();
        let names = [
            ".git/modules/group/sub/FETCH_HEAD",
            ".git/modules/group/sub/logs/HEAD",
            ".git/modules/group/new",
            ".git/modules/made/COMMIT_EDITMSG",
            ".git/rebase-merge/message",
            ".git/sequencer/todo",
        ];
        for name in names {
            let ran = inside(&place, mode, &format!("mkdir -p $(dirname {name}); ln -sf ~/keep {name}")).code(0);
            ran.says(&[&format!("{name} was a link to ")]);
            assert!(!place.exists(name), "{mode}: {name}");
        }
        // The same from a linked worktree: its repository lies elsewhere.
        let common = place.path(".git").display().to_string();
        let mut place = place;
        place.project = place.path("home:linked");
        for name in ["COMMIT_EDITMSG", "worktrees/linked/COMMIT_EDITMSG", "worktrees/linked/logs/HEAD"] {
            inside(&place, mode, &format!("ln -sf ~/keep {common}/{name}")).says(&[&format!("{name} was a link to ")]);
            assert!(!place.path("home:project/.git").join(name).is_symlink(), "{mode}: {name}");
        }
    }
}

/// A hard link cannot lead out of the git directory, nor to what is protected there; one to another file goes from names that
/// git writes anew.
#[test]
fn escape_e28_second_names_of_files_are_removed() {
    for mode in MODES {
        let Some(place) = prepared() else { return };
        for target in [".git/config", ".git/hooks/post-checkout", "first", "~/keep"] {
            inside(&place, mode, &format!("rm -f .git/COMMIT_EDITMSG; ln {target} .git/COMMIT_EDITMSG")).code(1);
        }
        place.write(".git/other", "one\n");
        inside(&place, mode, "ln -f .git/other .git/COMMIT_EDITMSG").says(&["COMMIT_EDITMSG was a second name"]).ok();
        place.host("git commit -qm message --allow-empty").ok();
        assert_eq!(place.read(".git/other").as_deref(), Some("one\n"), "{mode}");
    }
}

/// What cannot be looked at, or not removed, is said.
#[test]
fn links_that_are_not_found_or_stay_are_said() {
    for mode in MODES {
        let Some(place) = prepared() else { return };
        let many = "mkdir .git/logs/many; cd .git/logs/many; seq 100001 | xargs touch; ln -s ~/keep ../HEAD2";
        inside(&place, mode, many).says(&["was not all searched for links", "more than 100000 names"]);
        place.host("rm -rf .git/logs/many").ok();
        if crate::support::is_root() {
            continue;
        }
        inside(&place, mode, "ln -sf ~/keep .git/logs/HEAD; chmod 555 .git/logs").says(&["cannot be removed"]);
        place.host("chmod 755 .git/logs").ok();
        inside(&place, mode, "chmod 111 .git/logs").says(&["logs was not all searched"]);
        place.host("chmod 755 .git/logs").ok();
    }
}

/// A command can make more names than are listed: what git writes is looked at by name first.
#[test]
fn escape_e28_any_number_of_names_keeps_no_link_that_git_writes_through() {
    const NAMES: [&str; 6] = [
        "COMMIT_EDITMSG",
        "FETCH_HEAD",
        "packed-refs",
        "logs/HEAD",
        "modules/group/sub/COMMIT_EDITMSG",
        "modules/group/sub/logs/HEAD",
    ];
    for mode in MODES {
        let Some(place) = prepared() else { return };
        place.host("git init -q --bare .git/modules/group/sub; mkdir .git/modules/group/sub/logs").ok();
        let links: String = NAMES.map(|name| format!("ln -sf ~/keep .git/{name}; ")).concat();
        let many = "(cd .git; seq -f flood%.0f 100001 | xargs touch)";
        let ran = inside(&place, mode, &(links + many));
        let ran = ran.says(&["was not all searched for links", "more than 100000 names"]);
        for name in NAMES {
            assert!(!place.path(&format!(".git/{name}")).is_symlink(), "{mode}: {name}: {}", ran.err);
        }
    }
}

/// Directories that cannot be searched, and links that are removed, are counted past the first ones.
#[test]
fn what_is_told_of_a_git_directory_is_bounded() {
    for mode in MODES {
        let Some(place) = prepared() else { return };
        let deep = "name=$(printf 'd%0249d' 0); cd .git; for at in $(seq 16); do mkdir $name; cd $name; done
            for at in $(seq 100 199); do mkdir $(printf %0200d $at); ln -s ~/keep l$at; done; cd ~/project; ln -sf ~/keep .git/COMMIT_EDITMSG";
        let ran = inside(&place, mode, deep);
        let ran =
            ran.says(&["COMMIT_EDITMSG was a link to", "and 84 more in ", "were not all searched", "and 85 more in "]);
        assert!(ran.err.lines().count() < 64, "{mode}: {}", ran.err.lines().count());
    }
}

/// Links of shared repositories that were there before stay, and so does a repository that was copied by hard links.
#[test]
fn links_of_the_users_own_tools_stay() {
    for mode in MODES {
        let Some(place) = prepared() else { return };
        place
            .host(
                "git pack-refs --all; mkdir ../shared; mv .git/packed-refs .git/rr-cache ../shared; mkdir -p ../shared/rr-cache
                 mv .git/logs/refs ../shared/logs-refs; ln -s ~/shared/logs-refs .git/logs/refs
                 ln -s ~/shared/packed-refs .git/packed-refs; ln -s ~/shared/rr-cache .git/rr-cache",
            );
        place.host("cp -al .git ../copy").ok();
        assert_eq!(inside(&place, mode, "echo x > x; git add x").err, "", "{mode}");
        for name in [".git/packed-refs", ".git/rr-cache", ".git/logs/refs"] {
            assert!(place.path(name).is_symlink(), "{mode}: {name}");
        }
        assert!(place.exists(".git/logs/HEAD") && place.exists(".git/COMMIT_EDITMSG"), "{mode}");
        // A symbolic reference in its old form is git's own.
        inside(&place, mode, "rm .git/HEAD; ln -s refs/heads/main .git/HEAD").ok();
        place.host("git rev-parse HEAD").ok();
    }
}
