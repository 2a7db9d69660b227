//! What a workload closed to its owner, or put where no path leads, in a transaction of a user. A test runs as root of its own
//! namespace and gives up what lets root pass over modes.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::*;

/// As a user: modes count.
pub(super) fn as_user<T>(act: impl FnOnce() -> T) -> T {
    let before = capabilities(None).expect("a process knows its own");
    let mut fewer = before;
    fewer.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::FOWNER);
    set_capabilities(None, fewer).expect("giving up is allowed");
    let done = act();
    set_capabilities(None, before).expect("they are still permitted");
    done
}

fn modes(root: &Path) -> String {
    let found = Command::new("find").arg(root).args(["-printf", "%P %m\\n"]).output().expect("every system has it");
    String::from_utf8_lossy(&found.stdout).into_owned()
}

pub(super) const CLOSED: &str = "
    mkdir -p d/e listed entered fixed; echo 1 > d/f; echo 2 > d/e/g; chmod 000 d/f d/e d; echo 3 > rest
    echo 4 > fixed/x; chmod 555 fixed; echo 5 > listed/x; chmod 400 listed; echo 6 > entered/x; chmod 100 entered
    echo 7 > was/new; echo 8 >> was/old; chmod 000 was/old was; echo 9 > secret; chmod 000 secret; rm -r locked";

#[test]
fn what_a_workload_closed_to_its_owner_is_committed_by_a_user_as_it_is() {
    apart("closed::what_a_workload_closed_to_its_owner_is_committed_by_a_user_as_it_is", || {
        for make in [Scene::new, Scene::on_another_mount] {
            let mut scene = make();
            sh(&scene.project(), "mkdir -p was locked/in; echo old > was/old; echo x > locked/in/x; chmod 555 locked");
            sh(&scene.base, "cp -a project copy");
            sh(&scene.base.join("copy"), CLOSED);
            let after = picture(&scene.base.join("copy"));
            let mut transaction = scene.session(CLOSED);
            let upper = modes(&scene.kept().join("0/upper"));
            as_user(|| {
                let changes = transaction.changes().expect("readable");
                assert_eq!(changes[0].skipped, [], "all of it can be read");
                let content = transaction.contents(0, Path::new("d/e/g"), 100).1;
                assert_eq!(content.as_deref(), Some(&b"2\n"[..]));
            });
            assert_eq!(modes(&scene.kept().join("0/upper")), upper, "what was opened is closed again");
            let committed = as_user(|| commit_all(&mut transaction));
            assert!(committed.left.is_empty(), "{committed:?}");
            assert_eq!(picture(&scene.project()), after);
            assert_eq!(told(&transaction), Vec::<String>::new());
        }
    });
}

#[test]
fn what_no_path_leads_to_is_named_and_the_rest_committed() {
    apart("closed::what_no_path_leads_to_is_named_and_the_rest_committed", || {
        let mut scene = Scene::new();
        let path = ["0".repeat(200).as_str(); 15].join("/");
        let deep = format!("mkdir -p a/{path} b/{path}; echo x > b/{path}/x; mv b a/{path}/");
        let mut transaction = scene.session(&format!("echo rest > rest; {deep}"));
        let changes = transaction.changes().expect("readable");
        assert_eq!(changes[0].skipped.len(), 1, "{:?}", changes[0].skipped);
        assert_eq!(changes[0].skipped[0].why, Why::TooDeep);
        assert!(commit_all(&mut transaction).left.is_empty());
        assert_eq!(std::fs::read(scene.project().join("rest")).expect("committed"), b"rest\n");
        assert!(scene.project().join("a").join(&path).join("b").is_dir());
    });
}

#[test]
fn what_a_workload_closed_waits_again_when_a_user_takes_the_commit_back() {
    apart("closed::what_a_workload_closed_waits_again_when_a_user_takes_the_commit_back", || {
        for make in [Scene::new, Scene::on_another_mount] {
            let mut scene = make();
            sh(&scene.project(), "mkdir -p was locked/in; echo old > was/old; echo x > locked/in/x; chmod 555 locked");
            let before = picture(&scene.project());
            // What leads to a name of the host is closed by the commit, and a user cannot look behind it.
            let mut transaction = scene.session(&CLOSED.replace("chmod 000 was/old was", "chmod 000 was/old"));
            let waited = told(&transaction);
            as_user(|| commit_all(&mut transaction));
            let after = picture(&scene.project());
            let undone = as_user(|| transaction.undo_commit()).expect("nothing is in the way");
            assert!(undone.left.is_empty(), "{undone:?}");
            assert_eq!(picture(&scene.project()), before);
            assert_eq!(told(&transaction), waited);
            as_user(|| commit_all(&mut transaction));
            assert_eq!(picture(&scene.project()), after);
        }
    });
}
