//! Whatever the rules and whatever exists: no panic, and the walls stand in the plan.

use std::path::{Path, PathBuf};

use cofferdam_policy::{Access, ExpandedRule, Layer, Origin, index_of};
use proptest::prelude::*;

use super::fixtures::{Laptop, decided_at_start, rule};
use crate::step::{MountKind, Step};
use crate::{LaunchPlan, Request, plan};

fn some_path() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec!["a", "b", "c", ".git", ".ssh", "src", "tmp", "run", "dev"]);
    let bases = prop::sample::select(vec!["~", "/opt", "/tmp", "/run", ".", "/home/dev/app", "/proc", "/var/tmp"]);
    (bases, prop::collection::vec(names, 0..4)).prop_map(|(base, names)| {
        let mut path = base.to_owned();
        for name in names {
            path.push('/');
            path.push_str(name);
        }
        path
    })
}

fn some_access() -> impl Strategy<Value = Access> {
    prop::sample::select(vec![Access::Deny, Access::Protect, Access::Read, Access::Overlay, Access::Write])
}

fn some_layer() -> impl Strategy<Value = Layer> {
    prop::sample::select(vec![Layer::BuiltIn, Layer::Org, Layer::User, Layer::Project, Layer::Flag])
}

fn mounts(plan: &LaunchPlan) -> Vec<(&Path, &MountKind)> {
    plan.steps
        .iter()
        .filter_map(|step| match step {
            Step::Mount(mount) => Some((mount.target.as_path(), &mount.kind)),
            _ => None,
        })
        .collect()
}

/// What one finds at a path after all mounts: the last mount at or above it wins, as in the kernel.
pub(super) fn seen<'a>(plan: &'a LaunchPlan, path: &Path) -> Option<&'a MountKind> {
    giving(plan, path).map(|(_, kind)| kind)
}

/// The same with where it is mounted.
pub(super) fn giving<'a>(plan: &'a LaunchPlan, path: &Path) -> Option<(&'a Path, &'a MountKind)> {
    let all = mounts(plan);
    let mut visible: Vec<(&Path, &MountKind)> = Vec::new();
    for (target, kind) in all {
        visible.retain(|(earlier, _)| !(earlier.starts_with(target)));
        visible.push((target, kind));
    }
    visible.into_iter().filter(|(target, _)| path.starts_with(target)).max_by_key(|(t, _)| t.as_os_str().len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_rules_give_a_sound_plan_or_a_refusal(
        rules in prop::collection::vec((some_path(), some_access(), some_layer(), any::<bool>()), 0..12),
        existing in prop::collection::vec((some_path(), any::<bool>()), 0..12),
    ) {
        let mut policy = decided_at_start();
        policy.files.clear();
        for (path, access, layer, is_final) in &rules {
            let mut rule = rule(path, *access);
            rule.origin = Origin { layer: *layer, source: "test".into(), line: None };
            rule.optional = true;
            rule.is_final = *is_final && *access == Access::Deny;
            policy.files.push(rule);
        }
        let expand = |path: &str| path.replacen('~', "/home/dev", 1).replacen("./", "/home/dev/app/", 1);
        let paths: Vec<String> = existing.iter().map(|(p, dir)| format!("{}{}", expand(p), if *dir { "/" } else { "" })).collect();
        let laptop = Laptop::with(&paths.iter().map(String::as_str).collect::<Vec<_>>());
        let facts = laptop.facts(&policy);
        let Ok(plan) = plan(&policy, &facts, &Request { argv: vec!["make".into()], environment: Vec::new(), ..Request::default() }) else { return Ok(()) };

        // One definition of precedence: what the plan decided about a path is what the policy says about it.
        let places = facts.places();
        let expanded: Vec<ExpandedRule> = policy
            .files
            .iter()
            .flat_map(|rule| rule.path.expand(&places).into_iter().map(|path| ExpandedRule { path, rule: rule.clone(), lifts: false }))
            .filter(|rule| facts.answers.iter().any(|(_, fact)| matches!(fact, crate::PathFact::Present { canonical, .. } if *canonical == rule.path)))
            .collect();
        let expanded = index_of(expanded);
        for decision in plan.decisions.iter().filter(|d| matches!(d.fact, crate::PathFact::Present { .. })) {
            let below_project = Path::new("/home/dev/app");
            if decision.path.starts_with(below_project) || decision.access == Access::Protect {
                continue;
            }
            let verdict = expanded.deciding(&decision.path).map(|rule| rule.rule.access);
            prop_assert_eq!(Some(decision.access), verdict, "{:?}", decision.path);
        }
        let targets: Vec<PathBuf> = mounts(&plan).iter().map(|(t, _)| t.to_path_buf()).collect();
        for (index, target) in targets.iter().enumerate() {
            // Mounting a parent after its child would hide the child's mount.
            let covers_earlier = targets[..index].iter().any(|earlier| earlier != target && earlier.starts_with(target));
            prop_assert!(!covers_earlier, "{target:?} comes after what lies below it: {targets:?}");
        }
        for decision in &plan.decisions {
            let here = seen(&plan, &decision.path);
            match decision.access {
                Access::Deny | Access::Mask => {
                    let hidden = super::is_hidden(&plan, &decision.path.to_string_lossy()) || matches!(here, Some(MountKind::Empty { .. } | MountKind::Refused | MountKind::Text(_) | MountKind::Tmpfs { .. } | MountKind::Proc | MountKind::Seal));
                    prop_assert!(hidden, "{:?} is denied and shows {here:?}", decision.path);
                }
                Access::Read | Access::Protect => {
                    let writable = matches!(here, Some(MountKind::Bind { write: true, .. }));
                    let unheld = matches!(decision.fact, crate::PathFact::Missing { .. });
                    prop_assert!(!writable || unheld, "{:?} is read-only and shows {here:?}", decision.path);
                }
                Access::Overlay | Access::Write => {}
            }
        }
    }
}
