//! git: repositories work, what the host's git would run is out of reach, and no stand-in shows.

use crate::support::Place;

const STAND_INS: &[&str] =
    &[".claude", ".codex", ".cofferdam", ".cursor", ".gemini", ".mcp.json", ".vscode", ".git/commondir"];

#[test]
fn add_commit_and_status_work_in_a_repository_made_outside() {
    let Some(place) = Place::with_repository() else { return };
    let script =
        "echo two > second && git add second && git commit -qm second && git status --porcelain && git log --format=%s";
    assert_eq!(place.inside(script).ok(), "second\nfirst\n");
    assert_eq!(place.host("git log --format=%s; git fsck --strict").ok(), "second\nfirst\n");
}

#[test]
fn init_works_in_a_subdirectory_and_in_the_private_tmp() {
    let Some(place) = Place::with_repository() else { return };
    let script = "set -e
        for dir in sub /tmp/elsewhere; do
            git init -q $dir; cd $dir; echo x > x; git add .; git commit -qm inner; git log --format=%s; cd - >/dev/null
        done";
    assert_eq!(place.inside(script).ok(), "inner\ninner\n");
}

#[test]
fn a_linked_worktree_outside_of_the_repository_takes_commits() {
    let Some(mut place) = Place::with_repository() else { return };
    let main = place.project.clone();
    place.host("git worktree add -q ../linked -b side").ok();
    place.project = place.home.join("linked");
    let script =
        "git status --porcelain && echo two > second && git add . && git commit -qm second && git log --format=%s -1";
    assert_eq!(place.inside(script).ok(), "second\n");
    assert_eq!(place.host("git status --porcelain; git log --format=%s -1 side").ok(), "second\n");
    // The main repository is reached for its objects and references, not for its files.
    place.inside(&format!("echo changed > '{}/first'", main.display())).code(1);
    place.inside(&format!("echo x > '{}/.git/hooks/post-commit'", main.display())).code(1);
    place.inside(&format!("echo x >> '{}/.git/config'", main.display())).code(1);
}

#[test]
fn no_stand_in_shows_in_status_inside_or_outside_or_stays() {
    let Some(place) = Place::with_repository() else { return };
    let mut session = place
        .start(&[], "git status --porcelain --ignored; git add -A .; git status --porcelain; echo ready; read line");
    assert_eq!(session.first_line, "ready", "something showed inside");
    assert_eq!(place.host("git status --porcelain --ignored").ok(), "", "while the session runs");
    session.tell("go on\n");
    assert_eq!(session.end().0, 0);
    assert_eq!(place.host("git status --porcelain --ignored").ok(), "", "after the session");
    for name in STAND_INS {
        assert!(!place.exists(name), "{name} was left behind");
    }
}

#[test]
fn the_host_can_commit_while_a_session_runs() {
    let Some(place) = Place::with_repository() else { return };
    let mut session = place.start(&[], "echo ready; read line; git log --format=%s");
    place.host("echo more > more && git add -A && git commit -qm outside").ok();
    assert_eq!(place.host("git show --format= --name-only").ok(), "more\n");
    session.tell("\n");
    assert_eq!(session.end(), (0, "outside\nfirst\n".to_owned()));
}

#[test]
fn gc_branch_stash_rebase_and_merge_work() {
    let Some(place) = Place::with_repository() else { return };
    let script = "set -e
        git checkout -q -b side; echo side > side; git add .; git commit -qm side
        git checkout -q main; echo main > main; git add .; git commit -qm main
        git checkout -q side; git rebase -q main
        echo dirty >> first; git stash -q; git status --porcelain; git stash pop -q; git status --porcelain
        git checkout -q first; git checkout -q main; git merge -q --no-edit side
        git tag v1; git gc -q; git branch -q -d side
        git log --format=%s";
    assert_eq!(place.inside(script).ok(), " M first\nside\nmain\nfirst\n");
    place.host("git fsck --strict").ok();
}

#[test]
fn hooks_and_configuration_of_the_repository_cannot_be_written() {
    let Some(place) = Place::with_repository() else { return };
    let before = place.read(".git/config");
    for attempt in [
        "echo x > .git/hooks/pre-commit",
        "git config core.fsmonitor /tmp/x",
        "echo x >> .git/config",
        "mv .git/hooks .git/hooks2",
        "rm -rf .git/hooks && mkdir .git/hooks",
        "mv .git .git2",
        "echo /tmp > .git/commondir",
        "ln -sf /tmp/evil .git/config",
    ] {
        let ran = place.inside(attempt);
        assert_ne!(ran.code, 0, "`{attempt}` succeeded");
    }
    assert_eq!(place.read(".git/config"), before);
    assert!(!place.exists(".git/hooks/pre-commit"));
    assert!(!place.exists(".git2"));
}

#[test]
fn no_repository_can_be_made_where_the_project_has_none() {
    let Some(place) = Place::with(&["git"]) else { return };
    let ran = place.inside("git init . >/dev/null 2>&1");
    assert_ne!(ran.code, 0);
    assert!(!place.exists(".git"));
}
