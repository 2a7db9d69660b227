//! What a setting of an unapproved project policy would change. Owns that judgement, one setting at a time and against the
//! policy so far; what happens to what is wider (held back, shown) is `layers`'. Called by `layers`.

use crate::decide::files::{ExpandedRule, covers};
use crate::language::path::{Base, PathExpr};
use crate::types::files::{Access, FileRule};
use crate::types::network::NetworkMode;
use crate::types::network_part::NetworkPart;
use crate::types::policy::Policy;
use crate::types::scalar::Scalar;
use crate::types::setting::Setting;

/// What one setting does to a policy, for every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Stricter,
    /// Says what is in force already. The origin stays that of the layer that said it first.
    Same,
    Wider,
}

impl Effect {
    fn stricter_if(is_stricter: bool) -> Effect {
        if is_stricter { Effect::Stricter } else { Effect::Wider }
    }
}

pub(crate) fn effect(setting: &Setting, policy: &Policy) -> Effect {
    match setting {
        Setting::Scalar(scalar) => effect_of(scalar, policy),
        Setting::File { access, path, .. } => Effect::stricter_if(refuses_more(*access, path, policy)),
        // To refuse some requests they have to be read, and TLS to that host would end outside.
        Setting::NetworkPart(NetworkPart::Deny(rule)) => Effect::stricter_if(rule.is_whole()),
        Setting::SyscallDeny(_) | Setting::EnvBlock(_) => Effect::Stricter,
        // Executables are narrowed as a list, see `layers`.
        Setting::Preset(_)
        | Setting::Hook(_)
        | Setting::AlertHook(_)
        | Setting::Executables(_)
        | Setting::NetworkPart(
            NetworkPart::Allow(_)
            | NetworkPart::Resolver(_)
            | NetworkPart::Publish(_)
            | NetworkPart::HostPort(_)
            | NetworkPart::Credential(_)
            | NetworkPart::Socket(_),
        )
        | Setting::SyscallAllow(_)
        | Setting::EnvPass(_)
        | Setting::EnvSet(..) => Effect::Wider,
    }
}

fn effect_of(scalar: &Scalar, policy: &Policy) -> Effect {
    // Chosen, it is for good: nothing follows from what else is said.
    if *scalar == Scalar::Network(NetworkMode::None) {
        return Effect::Stricter;
    }
    match policy.same(scalar) {
        Some(now) if now.value == *scalar => Effect::Same,
        now => Effect::stricter_if(counts_alone(scalar) && now.is_none_or(|now| scalar.is_within(&now.value))),
    }
}

/// Whether less of it is less for the session, whatever else is said.
fn counts_alone(scalar: &Scalar) -> bool {
    // The layer that chose less than `full` also said what is to be had with it: hosts, an agent, ports. Full isolation would make
    // it come true. Neither mode is the stricter one: static mode shows what nothing names, dynamic mode gives the shipped list of
    // what is known, also below a denied directory, and reaches unknown hosts where unknown is allowed.
    // How the operator is told of a question is the operator's, louder and quieter.
    let is_of_operator = matches!(scalar, Scalar::QuestionBell(_) | Scalar::QuestionOnDesktop(_));
    !is_of_operator && !matches!(scalar, Scalar::Isolation(_) | Scalar::Mode(_))
}

fn refuses_more(access: Access, path: &PathExpr, policy: &Policy) -> bool {
    match access {
        Access::Deny => true,
        Access::Protect => stays_inside(path) && !is_denied(path, policy),
        Access::Mask | Access::Read | Access::Overlay | Access::Write => false,
    }
}

/// A project speaks about its own directory; a stand-in for a missing name elsewhere is not its to make.
fn stays_inside(path: &PathExpr) -> bool {
    matches!(path.base, Base::Project | Base::Git)
}

/// Protect means readable. `decide` keeps it from uncovering a denied path; not counting it is the second lock.
fn is_denied(path: &PathExpr, policy: &Policy) -> bool {
    let denies = |rule: &&FileRule| rule.access == Access::Deny && rule.path.base == path.base;
    policy.files.iter().filter(denies).any(|rule| {
        covers(&ExpandedRule { path: rule.path.rest.to_path_buf(), rule: rule.clone(), lifts: false }, &path.rest)
    })
}
