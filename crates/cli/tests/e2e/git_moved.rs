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
        let said = place.sandbox(&["commit"]).code(1).err;
        assert!(said.contains("branch main was moved by the host, too") || !packs.is_empty(), "{said}");
        let refs = place.host("git for-each-ref --format='%(refname:lstrip=2) %(subject)' refs/heads/cofferdam").ok();
        let named: Vec<(&str, &str)> = refs.lines().filter_map(|line| line.rsplit_once(' ')).collect();
        let of = |end: &str| named.iter().find(|(name, _)| name.ends_with(end)).map(|(_, subject)| *subject);
        assert_eq!((of("/feature/x"), of("/main")), (Some("more"), Some("agent")), "{refs}{said}");
        let all = place.host("git log --all --format=%s | sort").ok();
        assert_eq!(all, "agent\nfirst\nhost\nmore\n", "{refs}");
        assert!(said.contains("the session's commits are on branch cofferdam/"), "{said}");
        assert_eq!(place.host("git rev-parse HEAD main; git symbolic-ref HEAD; git ls-files --stage").ok(), before);
        assert_eq!(place.host("git fsck --strict --no-dangling").ok(), "");
        // Said once: the repository names them now.
        let again = place.sandbox(&["commit"]).code(1).err;
        assert!(!again.contains("are on branch"), "{again}");
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
