//! What a launch refuses although a plan asks for it: a plan that contradicts itself must not run with less.

use std::process::{Command, Stdio};

use cofferdam_plan::Step;
use cofferdam_testkit::edit::drop_steps;
use cofferdam_testkit::{Scene, Session, leaks, run_helper};

/// Set where a test runs again as the process that launches, in a scene.
const INSIDE: &str = "COFFERDAM_TEST_LAUNCHES";

/// Runs `launches` in a process of its own, with the home and the project of a scene, and looks at what it left.
fn in_scene(test: &str, launches: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return launches();
    }
    let scene = Scene::new().expect("the home directory is writable");
    let own = std::env::current_exe().expect("the test has a path");
    let arguments = ["--exact", test, "--nocapture"];
    let launched = run_helper(&own, &arguments, &scene, &scene.project(), &[(INSIDE, "1")]).expect("the test starts");
    assert!(!launched.hung && launched.stdout.contains("1 passed"), "{}\n{}", launched.stdout, launched.stderr);
    assert_eq!(leaks::find(&scene), Vec::<String>::new());
    scene.remove().expect("nothing of it is in use");
}

#[test]
fn a_plan_that_never_joins_its_network_is_refused() {
    in_scene("a_plan_that_never_joins_its_network_is_refused", || {
        let session = || Session::of(vec!["/bin/true".to_owned()]);
        let report = session().run(|plan| drop_steps(plan, |step| *step == Step::JoinNetwork), || {});
        assert!(
            report.error.as_deref().is_some_and(|error| error.contains("the net namespace is the host's")),
            "{report:?}"
        );
        assert_eq!(report.code, 125);
        assert_eq!(session().run(|_| {}, || {}).error, None, "and it runs as planned");
    });
}

#[test]
fn a_leak_is_found() {
    let scene = Scene::new().expect("the home directory is writable");
    let probe = scene.write("probe", "read line\n");
    let mut child = Command::new("sh").arg(&probe).stdin(Stdio::piped()).spawn().expect("there is a shell");
    scene.directory("home/.local/state/cofferdam/sessions/id");
    scene.write("home/.local/state/cofferdam/holds/id", "");
    let stand_in = scene.directory("home/project/.vscode");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1700);
    std::fs::set_permissions(stand_in, mode).expect("it is ours");
    let found = leaks::find(&scene);
    child.kill().and_then(|()| child.wait()).expect("it is ours");
    for (count, word) in [(1, "process "), (1, "session "), (1, "stand-in "), (1, "record ")] {
        assert_eq!(found.iter().filter(|leak| leak.starts_with(word)).count(), count, "{word}: {found:?}");
    }
}
