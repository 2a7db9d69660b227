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

#[test]
fn what_is_no_branch_is_kept_too_and_a_name_for_shells_is_in_no_command() {
    let Some(place) = Place::with_repository() else { return };
    let script = "set -e; echo s > s; git add s; git commit -qm agent; git tag -a v1 -m tag; echo t >> first; git stash -q; \
                  git branch 'x;touch${IFS}made|sh'; git checkout -q --detach; git commit -q --allow-empty -m loose";
    place.run(&["--transaction"], &["sh", "-c", script]).code(0);
    place.host(HOST).ok();
    let said = place.sandbox(&["commit"]).code(1).err;
    assert!(said.contains("refs/tags/v1 is kept as refs/cofferdam/"), "{said}");
    assert!(said.contains("refs/stash is kept as refs/cofferdam/"), "{said}");
    assert!(
        !said.contains("git merge cofferdam/")
            || said.lines().all(|line| !line.contains("git merge") || !line.contains(';')),
        "{said}"
    );
    place.sandbox(&["rollback", "--yes"]).code(0);
    // Nothing of it goes when git collects what no ref leads to.
    let left =
        place.host("git gc -q --prune=now; git log --all --format=%s; git for-each-ref --format='%(refname)'").ok();
    for kept in ["agent", "loose", "/tags/v1", "/stash"] {
        assert!(left.contains(kept), "{kept}: {left}");
    }
    let again = place.sandbox(&["changes"]).ok();
    assert_eq!(again, "No changes wait.\n");
}

/// What the host has moved and packed is no file any more; the session's file of that name would count before the list.
#[test]
fn a_ref_of_the_session_takes_no_place_of_one_that_the_host_packed() {
    let by_rename = "i=$(git commit-tree -p HEAD -m SESSION $(git rev-parse HEAD^{tree})); echo $i > .git/refs/heads/t; \
                     mv .git/refs/heads/t .git/refs/heads/main";
    let beside = "i=$(git commit-tree -p HEAD -m SESSION $(git rev-parse HEAD^{tree})); mkdir .git/refs/heads/a; echo $i > .git/refs/heads/a/b";
    for (session, host) in [(by_rename, ""), (beside, "git branch a;")] {
        for auto in [false, true] {
            let Some(place) = Place::with_repository() else { return };
            let flag = if auto { "--transaction=auto" } else { "--transaction" };
            let running = place.start(&[flag], &format!("{session}; echo; read line || true"));
            place.host(&format!("echo 2 >> first; git commit -qam HOST; {host} git pack-refs --all")).ok();
            assert_eq!(running.end().0, 0);
            place.sandbox(&["commit"]).code(1);
            assert_eq!(place.host("git log -1 --format=%s main; git fsck --strict --no-dangling").ok(), "HOST\n");
            assert!(place.host("git log --all --format=%s").ok().contains("SESSION"), "on a branch of its own");
            if !host.is_empty() {
                place.host("git checkout -q a").ok();
            }
        }
    }
}

#[test]
fn what_replaces_objects_and_objects_that_go_need_a_word_of_their_own() {
    let replace = "b=$(git rev-parse HEAD:first); n=$(echo EVIL | git hash-object -w --stdin); ";
    let loose = format!("{replace} mkdir -p .git/refs/replace; echo $n > .git/refs/replace/$b");
    let packed = format!("{replace} echo $n refs/replace/$b >> .git/packed-refs");
    let nested = "rm -rf sub/.git/objects/??".to_owned();
    // A list that is too long to be looked through.
    let padded = format!("{packed}; yes '# comment' | head -c 5000000 >> .git/packed-refs");
    let grafts = "mkdir -p .git/info; git rev-parse HEAD > .git/info/grafts".to_owned();
    for script in [loose, packed, padded, grafts, nested] {
        let Some(place) = Place::with_repository() else { return };
        place.host("git init -q sub; cd sub; git -c user.name=n -c user.email=e commit -q --allow-empty -m inner; cd ..; git pack-refs --all").ok();
        place.run(&["--transaction"], &["sh", "-c", &script]).code(0);
        let said = place.sandbox(&["commit"]).code(1).out;
        assert!(said.contains("needs --opens"), "{script}: {said}");
        place.host("rm first; git checkout -q -- first; git -C sub fsck --no-dangling").ok();
        assert_eq!(place.read("first").as_deref(), Some("one\n"), "{script}");
    }
}

#[test]
fn a_repository_of_another_form_is_not_taken_by_halves() {
    let Some(place) = Place::with_repository() else { return };
    let is_known = place.host("rm -rf .git; git init -q --ref-format=reftable . 2> /dev/null || echo none").ok();
    if is_known.contains("none") {
        // The list of tables and the tables are files like any others: the rule is the same without such a git.
        place.host("git init -q .; mkdir .git/reftable; echo one > .git/reftable/1.ref; echo 1.ref > .git/reftable/tables.list").ok();
        place
            .run(
                &["--transaction"],
                &["sh", "-c", "cd .git/reftable; rm 1.ref; echo two > 2.ref; echo 2.ref > tables.list"],
            )
            .code(0);
        place.host("echo host > .git/reftable/3.ref; echo 3.ref >> .git/reftable/tables.list").ok();
        place.sandbox(&["commit", "--opens"]).code(1);
        assert_eq!(
            place.host("ls .git/reftable; cat .git/reftable/tables.list").ok(),
            "1.ref\n3.ref\ntables.list\n1.ref\n3.ref\n"
        );
        return;
    }
    place.host("echo a > a; git add a; git commit -qm first; for i in $(seq 40); do git branch b$i; done; git pack-refs --all").ok();
    place
        .run(&["--transaction"], &["sh", "-c", "echo b > b; git add b; git commit -qm agent; git pack-refs --all"])
        .code(0);
    place.host("echo c > c; git add c; git commit -qm host").ok();
    place.sandbox(&["commit"]).code(1).says(&["reftable"]);
    assert_eq!(place.host("git log --format=%s").ok(), "host\nfirst\n");
}

#[test]
fn a_submodule_with_a_name_of_several_parts_and_a_shared_index_are_units() {
    let Some(place) = Place::with_repository() else { return };
    place.host("git init -q .git/modules/libs/foo; cd .git/modules/libs/foo; mv .git/* .; rmdir .git; git config core.worktree /nowhere; \
                git config core.bare false; echo one > index").ok();
    place
        .run(&["--transaction"], &["sh", "-c", "cd .git/modules/libs/foo; echo 1 > refs/heads/x; echo two > index"])
        .code(0);
    place.host("echo 2 > .git/modules/libs/foo/refs/heads/x").ok();
    let said = place.sandbox(&["diff", "--json"]).ok();
    let found: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let all = found["trees"][0]["changes"].as_array().expect("changes").clone();
    let index = all
        .iter()
        .find(|one| one["path"].as_str().is_some_and(|path| path.ends_with("foo/index")))
        .expect("it changed");
    assert_eq!(index["conflict"], "unit", "{said}");
}
