//! Which limit is kept by what, on a machine with cgroups, with some, and without.

use std::path::{Path, PathBuf};

use cofferdam_policy::{Layer, Origin, Policy, Ruled};

use super::fixtures::{Laptop, decided_at_start};
use super::request;
use crate::{CgroupHome, Keeper, LaunchPlan, Limited, Mount, MountKind, PlanError, Resource, Step, plan};

const ALL: &[&str] = &["cpu", "cpuset", "io", "memory", "pids"];

fn delegated(controllers: &[&str]) -> CgroupHome {
    let controllers = controllers.iter().map(|name| (*name).to_owned()).collect();
    CgroupHome::Delegated { path: PathBuf::from("/sys/fs/cgroup/ours"), controllers, alone: false }
}

fn named<T>(value: T) -> Ruled<T> {
    Ruled::new(value, Origin::flag("--test"))
}

fn wished<T>(value: T) -> Ruled<T> {
    Ruled::new(value, Origin::built_in("test", 1))
}

fn try_plan(edit: impl FnOnce(&mut Policy, &mut Laptop)) -> Result<LaunchPlan, PlanError> {
    let mut policy = decided_at_start();
    let mut laptop = Laptop::with(&[]);
    edit(&mut policy, &mut laptop);
    plan(&policy, &laptop.facts(&policy), &request())
}

fn planned(edit: impl FnOnce(&mut Policy, &mut Laptop)) -> LaunchPlan {
    try_plan(edit).expect("a plan")
}

fn settings(plan: &LaunchPlan) -> Vec<(&'static str, String)> {
    let cgroup = plan.limits.cgroup.iter();
    cgroup.flat_map(|cgroup| cgroup.settings.iter().map(|setting| (setting.file, setting.value.clone()))).collect()
}

fn keeper(plan: &LaunchPlan, what: Limited) -> Option<Keeper> {
    plan.limits.bound(what).map(|bound| bound.by)
}

fn rlimit(plan: &LaunchPlan, wanted: Resource) -> Option<u64> {
    plan.steps.iter().find_map(|step| match step {
        Step::Limit { resource, value } if *resource == wanted => Some(*value),
        _ => None,
    })
}

#[test]
fn with_every_controller_the_cgroup_keeps_everything_it_can() {
    let plan = planned(|policy, laptop| {
        laptop.cgroup = delegated(ALL);
        laptop.disks = vec!["8:0".to_owned(), "8:16".to_owned()];
        policy.process.max = Some(named(100));
        policy.limits.memory = Some(named(512 << 20));
        policy.limits.memory_high = Some(named(400 << 20));
        policy.limits.cpu_millis = Some(named(1500));
        policy.limits.cpu_set = Some(named("0-1".to_owned()));
        policy.limits.io_read = Some(named(1 << 20));
        policy.limits.io_write_ops = Some(named(50));
    });
    let expected = [
        ("pids.max", "100"),
        ("memory.max", "536870912"),
        ("memory.swap.max", "0"),
        ("memory.oom.group", "1"),
        ("memory.high", "419430400"),
        ("cpuset.cpus", "0-1"),
        ("cpu.max", "150000 100000"),
        ("io.max", "8:0 rbps=1048576 wiops=50"),
        ("io.max", "8:16 rbps=1048576 wiops=50"),
    ];
    let expected: Vec<_> = expected.iter().map(|(file, value)| (*file, (*value).to_owned())).collect();
    assert_eq!(settings(&plan), expected);
    for what in [Limited::Memory, Limited::MemoryHigh, Limited::Processes, Limited::Cpus, Limited::CpuSet, Limited::Io]
    {
        assert_eq!(keeper(&plan, what), Some(Keeper::Cgroup), "{what:?}");
    }
    assert_eq!(rlimit(&plan, Resource::Processes), None);
    assert!(plan.steps.contains(&Step::OwnCgroupView));
    assert!(!plan.namespaces.cgroup, "the step makes it, once the process is in its cgroup");
}

#[test]
fn without_cgroups_rlimits_pinning_and_the_eye_keep_what_they_can() {
    let plan = planned(|policy, _| {
        policy.process.max = Some(named(100));
        policy.limits.memory = Some(named(512 << 20));
        policy.limits.cpu_millis = Some(named(2000));
        policy.limits.cpu_seconds = Some(named(30));
    });
    assert_eq!(plan.limits.cgroup, None);
    assert_eq!(keeper(&plan, Limited::Processes), Some(Keeper::Rlimit));
    assert_eq!(rlimit(&plan, Resource::Processes), Some(100));
    assert_eq!(keeper(&plan, Limited::Memory), Some(Keeper::Watched));
    assert_eq!(rlimit(&plan, Resource::Data), Some(1 << 30));
    assert_eq!(keeper(&plan, Limited::Cpus), Some(Keeper::Affinity));
    assert!(plan.steps.contains(&Step::Pin { cpus: vec![0, 1] }));
    assert_eq!(keeper(&plan, Limited::CpuTime), Some(Keeper::Watched));
    assert_eq!(rlimit(&plan, Resource::CpuSeconds), Some(31));
    assert!(plan.namespaces.cgroup);
}

#[test]
fn root_is_watched_where_the_rlimit_does_not_bind_it() {
    let plan = planned(|policy, laptop| {
        policy.process.max = Some(named(100));
        laptop.uid = 0;
    });
    assert_eq!(keeper(&plan, Limited::Processes), Some(Keeper::Watched));
    assert_eq!(rlimit(&plan, Resource::Processes), None);
    assert!(plan.steps.contains(&Step::LargestPid { value: 401 }));
}

/// There the number is the machine's, and root could change it.
#[test]
fn the_largest_pid_of_an_old_kernel_is_left_alone() {
    let plan = planned(|policy, laptop| {
        policy.process.max = Some(named(100));
        laptop.uid = 0;
        laptop.own_largest_pid = false;
    });
    assert!(!plan.steps.iter().any(|step| matches!(step, Step::LargestPid { .. })));
}

#[test]
fn a_session_has_at_most_a_part_of_the_users_inotify_watches() {
    let policy = decided_at_start();
    let mut facts = Laptop::with(&[]).facts(&policy);
    for (of_user, expected) in [(None, 1 << 17), (Some(1 << 20), 1 << 17), (Some(8192), 2048)] {
        facts.inotify_watches = of_user;
        let plan = plan(&policy, &facts, &request()).expect("it can be planned");
        let limit = Step::CountedLimit { name: "max_inotify_watches", value: expected };
        assert!(plan.steps.contains(&limit), "{of_user:?}: {:?}", plan.steps);
    }
}

/// What a layer asks for and nothing can keep is refused, and says why.
#[test]
fn a_named_limit_that_nothing_keeps_is_refused() {
    type Edit = fn(&mut Policy);
    let edits: &[(&str, Edit)] = &[
        ("limits.memory_high", |policy| policy.limits.memory_high = Some(named(1 << 30))),
        ("limits.io.write", |policy| policy.limits.io_write = Some(named(1 << 20))),
        ("limits.cpus (a fraction)", |policy| policy.limits.cpu_millis = Some(named(500))),
    ];
    for (expected, edit) in edits {
        match try_plan(|policy, _| edit(policy)) {
            Err(PlanError::CannotLimit { setting, .. }) => assert_eq!(setting, *expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
    let none = try_plan(|policy, _| policy.limits.cpu_set = Some(named("64-70".to_owned())));
    assert!(matches!(none, Err(PlanError::NoSuchCpus { have: 4, .. })));
}

#[test]
fn so_many_cpus_are_taken_of_a_set() {
    let plan = planned(|policy, _| {
        policy.limits.cpu_set = Some(named("1-2".to_owned()));
        policy.limits.cpu_millis = Some(wished(1000));
    });
    let mut pins = plan.steps.iter().filter_map(|step| match step {
        Step::Pin { cpus } => Some(cpus.as_slice()),
        _ => None,
    });
    assert!(matches!(pins.next_back(), Some([1 | 2])), "{:?}", plan.steps);
}

#[test]
fn a_wish_of_a_preset_that_nothing_keeps_is_told_and_not_refused() {
    let plan = planned(|policy, _| policy.limits.memory_high = Some(wished(1 << 30)));
    assert!(plan.posture.0.iter().any(|line| line.by.contains("limits.memory_high") && line.layer == "limits"));
}

#[test]
fn a_controller_that_is_missing_is_replaced_or_refused_by_itself() {
    let plan = planned(|policy, laptop| {
        laptop.cgroup = delegated(&["memory", "pids"]);
        policy.limits.memory = Some(named(1 << 30));
        policy.limits.cpu_millis = Some(named(1000));
    });
    assert_eq!(keeper(&plan, Limited::Memory), Some(Keeper::Cgroup));
    assert_eq!(keeper(&plan, Limited::Cpus), Some(Keeper::Affinity));
}

#[test]
fn what_a_cgroup_has_no_controller_for_is_counted() {
    let counts = |controllers: &[&str]| {
        let plan = planned(|_, laptop| laptop.cgroup = delegated(controllers));
        assert!(plan.limits.cgroup.is_some());
        plan.limits.counts_processes()
    };
    assert!(!counts(&["memory", "pids"]));
    assert!(counts(&["pids"]), "memory is watched");
}

/// It takes some milliseconds, so it is made for limits that a layer named.
#[test]
fn the_service_manager_is_asked_only_for_named_limits() {
    let scope = || CgroupHome::Scope { controllers: vec!["memory".to_owned(), "pids".to_owned()] };
    let plain = planned(|_, laptop| laptop.cgroup = scope());
    assert_eq!(plain.limits.cgroup, None);
    assert_eq!(keeper(&plain, Limited::Memory), Some(Keeper::Watched));
    let limited = planned(|policy, laptop| {
        laptop.cgroup = scope();
        policy.limits.memory = Some(named(1 << 30));
    });
    assert_eq!(keeper(&limited, Limited::Memory), Some(Keeper::Cgroup));
}

#[test]
fn by_default_a_quarter_of_the_memory_is_left_to_others() {
    let plan = planned(|_, laptop| laptop.memory = 8 << 30);
    assert_eq!(plan.limits.bound(Limited::Memory).map(|bound| bound.value), Some(6 << 30));
}

/// Its policy file comes with it, and the user may not have looked at it yet.
#[test]
fn a_project_does_not_raise_the_defaults_of_the_machine() {
    let of_project = |value| Ruled::new(value, Origin { layer: Layer::Project, source: "p".into(), line: Some(1) });
    let ask = |value: u64| {
        planned(|policy, _| {
            policy.limits.memory = Some(of_project(value));
            policy.limits.tmp_size = Some(of_project(value));
        })
    };
    let memory = |plan: &LaunchPlan| plan.limits.bound(Limited::Memory).map(|bound| bound.value);
    let tmp = |plan: &LaunchPlan| {
        plan.steps.iter().find_map(|step| match step {
            Step::Mount(Mount { target, kind: MountKind::Tmpfs { size, .. }, .. }) if target == Path::new("/tmp") => {
                Some(*size)
            }
            _ => None,
        })
    };
    let raised = ask(900 << 30);
    assert_eq!((memory(&raised), tmp(&raised)), (Some(12 << 30), Some(4 << 30)));
    let lowered = ask(1 << 30);
    // Half of the memory, because the samples do not see what lies in it.
    assert_eq!((memory(&lowered), tmp(&lowered)), (Some(1 << 30), Some(512 << 20)));
}

#[test]
fn what_the_session_can_fill_is_watched() {
    let plan = planned(|_, _| {});
    assert!(plan.limits.storage.contains(&PathBuf::from("/home/dev/app")), "{:?}", plan.limits.storage);
}

#[test]
fn without_a_sandbox_a_named_limit_needs_a_cgroup() {
    let none = |policy: &mut Policy| {
        policy.isolation = Ruled::default_of(cofferdam_policy::Isolation::None);
        policy.none_approved = Some(Origin::default_value());
        policy.limits.memory = Some(named(1 << 30));
    };
    assert!(matches!(try_plan(|policy, _| none(policy)), Err(PlanError::CannotLimit { needs: "a sandbox", .. })));
    planned(|policy, laptop| {
        none(policy);
        laptop.cgroup = delegated(ALL);
    });
}
