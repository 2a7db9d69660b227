//! One precedence: what a policy says about a path is what the plan decides, what is mounted, what the gate goes by, and what
//! `learn` makes of it, whatever the rules, their layers and their spelling.

use std::path::{Path, PathBuf};

use cofferdam_policy::{
    Access, Accessed, ExpandedRule, Layer, Mode, Origin, Policy, RuleIndex, Ruled, Touch, Transaction, index_of, learn,
    rules_in_force,
};
use proptest::prelude::*;

use super::fixtures::{Laptop, decided_at_start, rule};
use super::is_hidden;
use super::properties::seen;
use crate::step::MountKind;
use crate::{HostFacts, LaunchPlan, Request, all_gate_rules, decide, plan};

const NAMES: &[&str] =
    &["a", "A", "b", ".env", ".ENV", ".env.local", ".Env.Local", "x.key", "X.KEY", "\u{212a}", "target"];
const PATTERNS: &[&str] = &[".env*", "*.key", "*.KEY", "*", "k*"];
const DEEP: &[&str] = &[".env*", ".env", "*.key", "a/x.key", "A/b", "a/*", "b/a/.env", "target/a"];
const BASES: &[&str] = &["/home/dev", "/home/dev/app", "/opt", "/OPT", "/srv/data"];

#[derive(Debug, Clone)]
struct Written {
    path: String,
    access: Access,
    layer: Layer,
    is_final: bool,
}

fn some_path(most: usize) -> impl Strategy<Value = String> {
    // The project twice: rules about any directory are about it alone.
    let base = prop_oneof![2 => prop::sample::select(BASES), 1 => Just("/home/dev/app")];
    (base, prop::collection::vec(prop::sample::select(NAMES), 1..=most))
        .prop_map(|(base, names)| format!("{base}/{}", names.join("/")))
}

fn some_rule() -> impl Strategy<Value = Written> {
    let pattern = prop::option::weighted(0.3, prop::sample::select(PATTERNS));
    let access = [Access::Deny, Access::Mask, Access::Protect, Access::Read, Access::Overlay, Access::Write];
    let layers = [Layer::BuiltIn, Layer::Org, Layer::User, Layer::Project, Layer::Flag];
    let rest =
        (prop::sample::select(access.to_vec()), prop::sample::select(layers.to_vec()), prop::bool::weighted(0.15));
    (some_path(2), pattern, rest).prop_map(|(path, pattern, (access, layer, last_word))| Written {
        path: pattern.map_or(path.clone(), |pattern| format!("{path}/{pattern}")),
        access,
        layer,
        is_final: last_word && access == Access::Deny,
    })
}

/// A rule about any directory of the project. Only what is hidden can be named so.
fn some_deep_rule() -> impl Strategy<Value = Written> {
    let layers = [Layer::BuiltIn, Layer::Org, Layer::User, Layer::Project, Layer::Flag];
    (prop::sample::select(DEEP), prop::sample::select(layers.to_vec()), prop::bool::weighted(0.15)).prop_map(
        |(tail, layer, is_final)| Written { path: format!("./**/{tail}"), access: Access::Deny, layer, is_final },
    )
}

fn policy_of(rules: &[Written], mode: Mode, transaction: Option<Layer>) -> Policy {
    let mut policy = decided_at_start();
    policy.mode.value = mode;
    if let Some(layer) = transaction {
        policy.transaction = Ruled::new(Transaction::Review, Origin { layer, source: "test".into(), line: None });
    }
    policy.files.clear();
    for written in rules {
        let mut rule = rule(&written.path, written.access);
        rule.origin = Origin { layer: written.layer, source: "test".into(), line: None };
        rule.optional = true;
        rule.is_final = written.is_final;
        policy.files.push(rule);
    }
    policy
}

fn planned(policy: &Policy, facts: &HostFacts) -> Option<LaunchPlan> {
    plan(policy, facts, &Request { argv: vec!["make".into()], ..Request::default() }).ok()
}

type Verdict = Option<(Access, Layer)>;

fn said(index: &RuleIndex<ExpandedRule>, path: &Path) -> Verdict {
    index.deciding(path).map(|rule| (rule.rule.access, rule.rule.origin.layer))
}

/// What is masked and is no file is hidden, and so is what lies below; a policy knows no kinds.
fn agree(enforced: Verdict, said: Verdict) -> bool {
    match (enforced, said) {
        (Some((Access::Deny, _)), Some((Access::Mask, _))) => true,
        (enforced, said) => enforced == said,
    }
}

fn check(
    rules: &[Written],
    transaction: Option<Layer>,
    existing: &[String],
    probes: &[String],
) -> Result<(), TestCaseError> {
    // What is there are files, but for those that others lie in.
    let laptop = Laptop::with(&existing.iter().map(String::as_str).collect::<Vec<_>>());
    let (at_start, asking) =
        (policy_of(rules, Mode::Static, transaction), policy_of(rules, Mode::Dynamic, transaction));
    let facts = laptop.surveyed(&at_start);
    let index = index_of(rules_in_force(&at_start, &facts.places()));
    let gated = planned(&asking, &facts).map(|plan| all_gate_rules(&asking, &facts, &plan.decisions));
    let plan = planned(&at_start, &facts);
    for path in probes.iter().chain(existing).map(PathBuf::from) {
        let verdict = said(&index, &path);
        if let Some(gated) = &gated {
            let gate = gated.deciding(&path).map(|rule| (rule.access, rule.origin.layer));
            prop_assert!(agree(gate, verdict), "the gate, {:?}: {:?} {:?}", &path, gate, verdict);
        }
        check_learned(&index, &facts, &path, verdict)?;
        let Some(plan) = plan.as_ref().filter(|_| laptop.exists(&path)) else { continue };
        let decided = decide(&plan.decisions, &path).map(|decision| (decision.access, decision.origin.layer));
        prop_assert!(agree(decided, verdict), "the plan, {:?}: {:?} {:?}", &path, decided, verdict);
        let mounted = seen(plan, &path);
        let is_sound = match verdict.map(|(access, _)| access) {
            Some(Access::Deny | Access::Mask) => match mounted {
                Some(MountKind::Filtered { .. }) => is_hidden(plan, &path.to_string_lossy()),
                other => !matches!(other, None | Some(MountKind::Bind { .. } | MountKind::Overlay { .. })),
            },
            Some(Access::Write) => matches!(mounted, Some(MountKind::Bind { write: true, .. })),
            Some(Access::Overlay) => matches!(mounted, Some(MountKind::Overlay { .. })),
            Some(Access::Protect | Access::Read) | None => {
                let is_readable =
                    matches!(mounted, None | Some(MountKind::Bind { write: false, .. } | MountKind::Filtered { .. }));
                is_readable && !is_hidden(plan, &path.to_string_lossy())
            }
        };
        prop_assert!(is_sound, "{:?} is {:?} and shows {:?}", &path, verdict, mounted);
    }
    Ok(())
}

/// What is refused is never granted by learning, and what is given adds nothing.
fn check_learned(
    index: &RuleIndex<ExpandedRule>,
    facts: &HostFacts,
    path: &Path,
    verdict: Verdict,
) -> Result<(), TestCaseError> {
    for touch in [Touch::Read, Touch::Write] {
        let learned = learn(&[Accessed { path: path.to_path_buf(), touch }], index, &facts.places());
        let is_write = touch == Touch::Write;
        let (is_refused, adds) = match verdict.map(|(access, _)| access) {
            None => (false, true),
            Some(Access::Deny) => (true, false),
            Some(Access::Mask | Access::Protect) => (is_write, false),
            Some(Access::Read) => (false, is_write),
            Some(Access::Overlay | Access::Write) => (false, false),
        };
        prop_assert_eq!(!learned.refused.is_empty(), is_refused, "learning {:?} {:?}", touch, path);
        let said = !learned.settings.is_empty() || !learned.left.is_empty();
        prop_assert_eq!(said, adds, "learning {:?} {:?} {:?}", touch, path, &learned);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn one_verdict_everywhere(
        rules in prop::collection::vec(prop_oneof![4 => some_rule(), 1 => some_deep_rule()], 0..10),
        transaction in prop::option::of(prop::sample::select(vec![Layer::Org, Layer::Project, Layer::Flag])),
        existing in prop::collection::vec(some_path(4), 0..10),
        probes in prop::collection::vec(some_path(4), 1..10),
    ) {
        check(&rules, transaction, &existing, &probes)?;
    }
}
