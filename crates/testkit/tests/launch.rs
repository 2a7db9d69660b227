//! What the launcher refuses although a plan asks for it: a plan that contradicts itself must not run with less.

use cofferdam_plan::Step;
use cofferdam_testkit::Session;
use cofferdam_testkit::edit::drop_steps;

#[test]
fn a_plan_that_never_joins_its_network_is_refused() {
    let session = || Session::of(vec!["/bin/true".to_owned()]);
    let report = session().run(|plan| drop_steps(plan, |step| *step == Step::JoinNetwork), || {});
    assert!(report.error.as_deref().is_some_and(|error| error.contains("the network namespace")), "{report:?}");
    assert_eq!(report.code, 125);
    assert_eq!(session().run(|_| {}, || {}).error, None, "and it runs as planned");
}
