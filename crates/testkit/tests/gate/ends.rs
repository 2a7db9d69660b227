//! When one of the processes that ask or mount is killed: everything fails closed, and nothing hangs or is left.

use std::process::Command;
use std::time::Duration;

use cofferdam_testkit::{leaks, person};
use cofferdam_wire::{Cause, Keep, Reach};

use crate::stage::Stage;

pub(crate) fn a_killed_supervisor_takes_everybody_along(stage: &Stage) {
    let file = stage.unknown("notes/a", "the content\n");
    let script = format!("cat {0} > first & cat {0} > second & sleep 60; cat {0} > third", file.display());
    let mut live = stage.start("", &script);
    live.person.question().expect("a question");
    assert!(leaks::processes(&stage.scene).len() > 2, "somebody waits");
    live.helper.child.kill().and_then(|()| live.helper.child.wait()).expect("it is ours");
    assert_eq!(leaks::processes_within(&stage.scene, Duration::from_secs(5)), Vec::<u32>::new());
    for name in ["first", "second", "third"] {
        let read = std::fs::read_to_string(stage.scene.project().join(name)).unwrap_or_default();
        assert_eq!(read, "", "nothing was given");
    }
    // The next session removes what a killed one left, while its command waits.
    let sweeper = stage.start("", "while [ ! -e swept ]; do sleep 0.02; done");
    let sessions = stage.scene.home().join(".local/state/cofferdam/sessions");
    let is_swept = || sessions.read_dir().is_ok_and(|left| left.count() == 1).then_some(());
    assert!(person::until(Duration::from_secs(10), is_swept).is_ok(), "the killed session was not swept");
    stage.mark("swept");
    sweeper.finish();
}

pub(crate) fn without_a_broker_nothing_is_given(stage: &Stage) {
    let (first, second) = (stage.unknown("notes/a", "one\n"), stage.unknown("more/b", "two\n"));
    let third = stage.unknown("again/c", "three\n");
    let script = format!(
        "cat {0}; cat {1}; cat {2}; echo alive > here; cat here",
        first.display(),
        second.display(),
        third.display()
    );
    let mut live = stage.start("", &script);
    let question = live.person.question().expect("a question");
    live.person.allow(question.id, Reach::File, Keep::Session).expect("it listens");
    let question = live.person.question().expect("another question");
    let broker = person::broker_of(live.helper.child.id()).expect("it mounts");
    let killed = Command::new("kill").args(["-9", &broker.to_string()]).status().expect("there is such a program");
    assert!(killed.success());
    assert_eq!(live.person.settled(question.id).expect("it ends"), (false, Cause::Failed));
    let done = live.finish();
    done.says("one\nalive").complains("Permission denied");
    assert_eq!(done.err.matches("Permission denied").count(), 2, "{done:?}");
}
