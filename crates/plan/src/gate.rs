//! Dynamic mode: which trigger asks, how, and the rules by which the gate knows a path without asking. Owns the choice of
//! the trigger and the expansion of rules; questions and mounts at run time are `gate`'s. Called by `plan()` and `supervisor`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_policy::decide::gives_the_home;
use cofferdam_policy::decide::index::refuses;
use cofferdam_policy::path::Base;
use cofferdam_policy::{
    Access, Isolation, Layer, Metadata, Mode, OnUnknown, Origin, PathExpr, PlacedRule, Places, Policy, RuleIndex,
};
use serde::Serialize;

use crate::facts::git::TrackedFile;
use crate::facts::host::HostFacts;
use crate::facts::path::PathFact;
use crate::files::decision::{Decision, TransactionRole};
use crate::step::Trigger;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GatePlan {
    pub trigger: Trigger,
    pub verdict: OnUnknown,
    pub metadata: Metadata,
    pub timeout: Duration,
    pub per_minute: u32,
    #[serde(skip_serializing_if = "Notices::are_usual")]
    pub notices: Notices,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook: Option<Vec<String>>,
    pub home: PathBuf,
    /// Whether programs that were granted may be executed; not where the policy lists those that may.
    pub exec: bool,
    /// Everything unknown is let through and told, and nothing is mounted for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub learns: bool,
}

/// How the operator is told of a question, besides where it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Notices {
    pub bell: bool,
    pub desktop: bool,
}

impl Notices {
    fn are_usual(&self) -> bool {
        self.bell && !self.desktop
    }
}

impl GatePlan {
    pub(crate) fn of(policy: &Policy, facts: &HostFacts, learns: bool, exec: bool) -> Option<GatePlan> {
        if policy.mode.value != Mode::Dynamic || policy.isolation.value == Isolation::None {
            return None;
        }
        let unknown = &policy.unknown;
        Some(GatePlan {
            trigger: if facts.has_fuse { Trigger::Fuse } else { Trigger::Notify },
            verdict: unknown.verdict.value,
            metadata: unknown.metadata.value,
            timeout: unknown.timeout.value,
            per_minute: unknown.per_minute.value,
            notices: Notices { bell: unknown.bell.value, desktop: unknown.desktop.value },
            hook: unknown.hook.as_ref().map(|hook| hook.value.clone()),
            home: facts.home.clone(),
            exec,
            learns,
        })
    }

    pub(crate) fn tell(&self) -> String {
        let what = match self.verdict {
            OnUnknown::Ask => "unknown paths block until a person decides",
            OnUnknown::Deny => "unknown paths are denied",
            OnUnknown::AllowAndLog => "unknown paths are allowed and recorded",
        };
        let by = match self.trigger {
            Trigger::Fuse => "a FUSE root",
            Trigger::Notify => "reported system calls, slower: /dev/fuse cannot be opened",
        };
        format!("{what}, by {by}")
    }
}

/// One rule about one path of this host. The last name is a pattern where `is_glob` is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateRule {
    pub path: PathBuf,
    pub is_glob: bool,
    /// How many of its last names stand in any directory, see [`PlacedRule::tail`].
    pub tail: usize,
    /// Names that the pattern leaves out.
    pub except: Cow<'static, str>,
    pub access: Access,
    pub is_final: bool,
    pub role: TransactionRole,
    pub origin: Origin,
    pub reason: Cow<'static, str>,
}

impl GateRule {
    /// What was decided, at this very path.
    fn at(path: &Path, decided: &Decision, is_final: bool) -> Self {
        GateRule {
            path: path.to_path_buf(),
            is_glob: false,
            tail: 0,
            except: Cow::Borrowed(""),
            access: decided.access,
            is_final,
            role: decided.role,
            origin: decided.origin.clone(),
            reason: decided.reason.clone(),
        }
    }
}

impl PlacedRule for GateRule {
    fn place(&self) -> &Path {
        &self.path
    }

    fn set_place(&mut self, place: PathBuf) {
        self.path = place;
    }

    fn is_glob(&self) -> bool {
        self.is_glob
    }

    fn tail(&self) -> usize {
        self.tail
    }

    fn except(&self) -> &str {
        &self.except
    }

    fn access(&self) -> Access {
        self.access
    }

    fn is_final(&self) -> bool {
        self.is_final
    }

    fn layer(&self) -> Layer {
        self.origin.layer
    }

    fn lifts(&self) -> bool {
        self.role == TransactionRole::Lifting
    }

    fn is_liftable(&self) -> bool {
        let is_shipped = self.access == Access::Protect && self.origin.layer == Layer::BuiltIn;
        is_shipped && self.role != TransactionRole::OfOthers
    }
}

/// Rules by which the gate knows paths: those that were decided at the start, and those about paths that did not exist
/// then, but for [`gate_rules_in_home`].
pub fn gate_rules(policy: &Policy, facts: &HostFacts, decisions: &[Decision]) -> Vec<GateRule> {
    let mut rules: Vec<GateRule> =
        present(decisions).map(|decision| GateRule::at(&decision.path, decision, decision.is_final)).collect();
    rules.extend(undecided(policy, facts, decisions, false));
    // A pattern hides them, and the plan has decided otherwise: they are as the project is, or protected.
    let shown: Vec<&TrackedFile> = facts.tracked.iter().filter(|file| file.object.is_some()).collect();
    let index = RuleIndex::new(if shown.is_empty() { Vec::new() } else { decisions.iter().collect() });
    for file in shown {
        let Some(around) = index.deciding(&file.path).filter(|around| around.access != Access::Deny) else {
            continue;
        };
        // The shipped pattern is as strong as this name.
        rules.push(GateRule::at(&file.path, around, true));
    }
    rules
}

/// The rules whose paths begin with the home directory and were not decided at the start.
pub fn gate_rules_in_home(policy: &Policy, facts: &HostFacts, decisions: &[Decision]) -> Vec<GateRule> {
    undecided(policy, facts, decisions, true)
}

/// All of them, for commands that say what the gate would do.
pub fn all_gate_rules(policy: &Policy, facts: &HostFacts, decisions: &[Decision]) -> RuleIndex<GateRule> {
    let mut rules = gate_rules(policy, facts, decisions);
    rules.extend(gate_rules_in_home(policy, facts, decisions));
    RuleIndex::new(rules)
}

/// A name that is held while it is missing is the gate's to know as well.
fn present(decisions: &[Decision]) -> impl Iterator<Item = &Decision> {
    decisions.iter().filter(|decision| matches!(decision.fact, PathFact::Present { .. }))
}

fn undecided(policy: &Policy, facts: &HostFacts, decisions: &[Decision], in_home: bool) -> Vec<GateRule> {
    let places = facts.places();
    // Compared as bytes: paths by their parts would take longer than all the mounts.
    let decided: HashMap<&OsStr, Access> =
        present(decisions).map(|decision| (decision.path.as_os_str(), decision.access)).collect();
    let mut rules = Vec::new();
    for rule in policy.files.iter().filter(|rule| !rule.only_missing && is_in_home(&rule.path, &places) == in_home) {
        for path in rule.expand(&places) {
            // What exists was decided above, by its real path; of two rules the one that was kept. One that refuses is
            // about other spellings of the name as well, which a rule that gives is not. One that gives what another protects
            // keeps a third, about another spelling, from hiding it.
            let by = decided.get(path.as_os_str()).filter(|_| rule.path.is_one_path());
            let keeps_shown = |access: Access| matches!(access, Access::Protect | Access::Mask);
            let gives = |access: Access| !refuses(rule.access) && !keeps_shown(access);
            let is_decided = by.is_some_and(|access| *access == rule.access || gives(*access));
            if is_decided || gives_the_home(rule, &path, &places) {
                continue;
            }
            rules.push(GateRule {
                path,
                is_glob: rule.path.is_glob(),
                tail: rule.path.tail(),
                except: rule.path.except().clone(),
                access: rule.access,
                is_final: rule.is_final,
                role: TransactionRole::None,
                origin: rule.origin.clone(),
                reason: rule.reason.clone(),
            });
        }
    }
    rules
}

/// Whether an expression leads into the home directory here.
fn is_in_home(path: &PathExpr, places: &Places) -> bool {
    match &path.base {
        Base::Home => true,
        Base::Variable { name, default } => {
            default.base == Base::Home && !places.variables.iter().any(|(variable, _)| variable == name)
        }
        Base::Root | Base::Project | Base::Git => false,
    }
}
