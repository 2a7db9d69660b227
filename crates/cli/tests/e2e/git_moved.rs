//! A branch that both the host and a session have moved: neither loses its commits.

use crate::support::Place;

const SESSION: &str = "set -e; echo agent > agent; git add agent; git commit -qm agent; git checkout -qb feature/x; echo more > more; \
                       git add more; git commit -qm more";
const HOST: &str = "echo host > host; git add host; git commit -qm host";

#[test]
fn commits_on_a_branch_that_the_host_moved_go_to_a_branch_of_their_own() {
    for packs in ["", "; git pack-refs --all"] {
        let Some(place) = Place::with_repository() else { return };
        place.run(&["--transaction"], &["sh", "-c", &format!("{SESSION}{packs}")]).code(0);
        place.host(HOST).ok();
        let before = place.host("git rev-parse HEAD main; git symbolic-ref HEAD; git ls-files --stage").ok();
        let ran = place.sandbox(&["commit"]).code(1);
        assert!(ran.out.contains("of git's refs, HEAD and index") && !ran.out.contains("--overwrite"), "{}", ran.out);
        assert!(ran.err.contains(": `git merge cofferdam/"), "{}", ran.err);
        let said = ran.err;
        let refs = place.host("git for-each-ref --format='%(refname:lstrip=2) %(subject)' refs/heads/cofferdam").ok();
        let named: Vec<(&str, &str)> = refs.lines().filter_map(|line| line.rsplit_once(' ')).collect();
        let of = |end: &str| named.iter().find(|(name, _)| name.ends_with(end)).map(|(_, subject)| *subject);
        assert_eq!((of("/feature/x"), of("/main")), (Some("more"), Some("agent")), "{refs}{said}");
        let all = place.host("git log --all --format=%s | sort").ok();
        assert_eq!(all, "agent\nfirst\nhost\nmore\n", "{refs}");
        assert!(said.contains("the session's commits on main are on branch cofferdam/"), "{said}");
        assert_eq!(place.host("git rev-parse HEAD main; git symbolic-ref HEAD; git ls-files --stage").ok(), before);
        assert_eq!(place.host("git fsck --strict --no-dangling").ok(), "");
        // Said once: the repository names them now. No name of the repository takes the place of the host's.
        for name in [".git/logs/HEAD", ".git/HEAD", ".git"] {
            let again = place.sandbox(&["commit", "--overwrite", name]).code(1).err;
            assert!(!again.contains("are on branch"), "{again}");
        }
        assert_eq!(place.host("git rev-parse HEAD main; git symbolic-ref HEAD; git ls-files --stage").ok(), before);
    }
}

#[test]
fn a_branch_of_the_host_in_the_way_of_the_new_name_stays_and_the_commits_wait() {
    let Some(place) = Place::with_repository() else { return };
    place.run(&["--transaction"], &["sh", "-c", SESSION]).code(0);
    place.host(&format!("{HOST}; git branch cofferdam")).ok();
    let said = place.sandbox(&["commit"]).code(1).err;
    assert!(said.contains("the session's commits on feature/x wait"), "{said}");
    assert_eq!(place.host("git log --format=%s -1 cofferdam; git fsck --strict --no-dangling").ok(), "host\n");
}

#[test]
fn a_status_between_a_commit_and_its_undo_leaves_nothing_of_the_repository_behind() {
    for is_linked in [false, true] {
        let Some(mut place) = Place::with_repository() else { return };
        if is_linked {
            place.host("git worktree add -q ../linked -b side").ok();
            place.project = place.home.join("linked");
        }
        let state = "git log --format=%s; git ls-files --stage; git status --short; git fsck --strict --no-dangling";
        let before = place.host(state).ok();
        place
            .run(&["--transaction"], &["sh", "-c", "echo two > second; git add second; git commit -qm second"])
            .code(0);
        place.sandbox(&["commit"]).code(0);
        let with_second = place.host(&format!("touch first; {state}")).ok();
        assert!(with_second.starts_with("second\nfirst\n"), "linked {is_linked}: {with_second}");
        let undone = place.sandbox(&["commit", "--undo"]).code(0);
        assert_eq!(place.host(state).ok(), before, "linked {is_linked}: {} {}", undone.out, undone.err);
    }
}

#[test]
fn a_branch_called_index_that_the_host_moved_is_a_conflict_as_any_other() {
    for branch in ["index", "other"] {
        let Some(mut place) = Place::with_repository() else { return };
        place.host(&format!("git worktree add -q ../linked -b {branch}")).ok();
        place.project = place.home.join("linked");
        place.run(&["--transaction"], &["sh", "-c", "echo s > s; git add s; git commit -qm session"]).code(0);
        place.host("echo h > h; git add h; git commit -qm host").ok();
        place.sandbox(&["commit"]).code(1);
        assert_eq!(place.host(&format!("git log --format=%s -1 refs/heads/{branch}")).ok(), "host\n", "{branch}");
        // Its index and the branch are one: of neither is the session's taken.
        assert_eq!(place.host("git diff --cached --name-only; git ls-files").ok(), "first\nh\n", "{branch}");
    }
}
